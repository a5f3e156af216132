"""The whole tree of commands: help, examples and JSON everywhere, all tried, and what starting costs."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from borzoi.cli.main import _ALIASES, _MODULES, app

# Commands that print no JSON, and why.
WITHOUT_JSON = {"server": "it runs until it is stopped, and logs"}
TESTS = "\n".join(path.read_text() for path in sorted(Path(__file__).parent.glob("test_cli_*.py")))


def leaves(command=None, context=None, path: str = ""):
    """Every command with its path, without groups and aliases."""
    if command is None:
        command = get_command(app)
        context = command.make_context("borzoi", [], resilient_parsing=True)
    names = command.list_commands(context) if hasattr(command, "list_commands") else None
    if names is None:
        yield path, command
        return
    for name in names:
        sub = command.get_command(context, name)
        if not sub.hidden:
            yield from leaves(sub, context, f"{path} {name}".strip())


LEAVES = dict(leaves())


@pytest.mark.parametrize("path", LEAVES)
def test_the_help_of_every_command_explains_it_has_an_example_and_offers_json(path):
    result = CliRunner().invoke(app, [*path.split(), "--help"])
    assert result.exit_code == 0
    assert LEAVES[path].help.strip()
    assert f"      borzoi {path}" in result.stdout
    assert ("--json" in result.stdout) is (path not in WITHOUT_JSON)


@pytest.mark.parametrize("path", LEAVES)
def test_every_argument_and_option_is_explained(path):
    hidden = [each.name for each in LEAVES[path].params if getattr(each, "hidden", False)]
    unexplained = [each.name for each in LEAVES[path].params if not getattr(each, "help", None)]
    assert set(unexplained) <= set(hidden)


@pytest.mark.parametrize("path", [path for path in LEAVES if path.split()[0] in _MODULES])
def test_every_command_is_tried_for_people_and_for_programs(path):
    """Against a real server, where the command talks to one: see the fixtures of these tests."""
    arguments = ", ".join(f'"{each}"' for each in path.split())
    assert f"text({arguments}" in TESTS
    assert any(f"{name}({arguments}" in TESTS for name in ("data", "lines"))


def test_aliases_name_commands_and_hide_none():
    assert set(_ALIASES.values()) <= set(_MODULES)
    assert not set(_ALIASES) & set(_MODULES)


def test_the_top_lists_every_command():
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for name in (*_MODULES, "server", "config"):
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_can_be_installed_by_hand(shell):
    shown = CliRunner().invoke(app, ["--generate", shell])
    assert (shown.exit_code, "_BORZOI_COMPLETE" in shown.stdout) == (0, True)


def test_a_shell_completes_commands_and_options():
    def completed(*words: str) -> set[str]:
        env = {
            "_BORZOI_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("borzoi", *words)),
            "COMP_CWORD": str(len(words)),
        }
        shown = subprocess.run(
            [sys.executable, "-c", "from borzoi.cli.main import app; app(prog_name='borzoi')"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        return set(shown.stdout.split())

    assert "stream" in completed("str")
    assert {"create", "list"} <= completed("stream", "")
    assert "--show-headers" in completed("message", "poll", "--show")


def loaded_by(*arguments: str) -> set[str]:
    """Modules that a command loads."""
    program = (
        "import sys; from borzoi.cli.main import app; from typer.testing import CliRunner; "
        f"CliRunner().invoke(app, {list(arguments)!r}); print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(shown.stdout.split())


def test_starting_the_server_does_not_load_what_other_commands_need():
    loaded = {
        name
        for name in loaded_by("server", "--shards", "2")
        if name.startswith(("borzoi.client", "borzoi.cli.", "rich"))
    }
    assert loaded == {f"borzoi.cli.{name}" for name in ("main", "config", "coercion", "options", "server")}


@pytest.mark.parametrize(
    "command", ["stream create orders", "ping -c 2", "message poll s t 0 -m 5", "topic create s t 3"]
)
def test_texts_and_plain_numbers_do_not_load_what_converts_values(command):
    loaded = loaded_by(*command.split(), "--server", "127.0.0.1:1", "--deadline", "1ms")
    assert "borzoi.client.sync" in loaded
    assert not {"pydantic", "rich"} & loaded
