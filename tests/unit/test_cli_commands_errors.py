"""How the command line ends when something is wrong, what its help teaches, and what it costs to start."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from borzoi.cli.main import app
from support.client_kinds import HOST
from support.in_process import LocalServer


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("cli-errors") / "data") as server:
        server.add_user("guest")
        yield f"{HOST}:{server.port}"


def ended(*arguments: str, code: int, **env: str) -> str:
    """The one line of a command that fails."""
    result = CliRunner().invoke(app, arguments, env=env)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def leaf_commands():
    root = get_command(app)
    context = root.make_context("borzoi", [], resilient_parsing=True)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        for sub, leaf in getattr(command, "commands", {}).items():
            if not leaf.hidden:
                yield f"{name} {sub}"
        if not hasattr(command, "commands"):
            yield name


@pytest.mark.parametrize("command", list(leaf_commands()))
def test_the_help_of_every_command_has_an_example_and_offers_json(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"      borzoi {command}" in result.stdout
    assert "--json" in result.stdout or command == "server"


@pytest.mark.parametrize("group", ["stream", "topic", "message", "user"])
def test_a_group_without_a_command_prints_its_help(group):
    result = CliRunner().invoke(app, [group])
    assert result.exit_code == 2
    assert f"Example: borzoi {group} " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["strem", "list"], "No such command 'strem'. Did you mean 'stream'?"),
        (["stream", "lst"], "Did you mean 'list'"),
        (["stream", "create"], "Missing argument 'NAME'. See: borzoi stream create --help"),
        (["stream", "list", "--colour"], "No such option"),
        (["partition", "create", "s", "t", "0"], "Invalid value for 'COUNT'"),
        (["message", "poll", "s", "t", "x"], "Invalid value for 'PARTITION'"),
        (["me", "--deadline", "soon"], "--deadline"),
        (["me", "--deadline", "0"], "--deadline"),
        (["me", "--server", "http://127.0.0.1"], 'starts with "iggy://"'),
        (["me", "--server", "127.0.0.1:none"], '"none" is no port'),
        (["--json", "config", "default"], "write its options after it"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_usage_is_told_in_one_line(arguments, said):
    assert said in ended(*arguments, code=2)


def test_a_server_that_is_not_there(address):
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    start_s = time.monotonic()
    line = ended("stream", "list", "--server", f"{HOST}:{port}", "--deadline", "200ms", code=3)
    assert time.monotonic() - start_s < 3
    assert f"{HOST}:{port}" in line
    assert "Check the address, the port, and that the server is running." in line


def test_without_a_deadline_a_missing_server_is_noticed_within_seconds(monkeypatch):
    monkeypatch.setattr("borzoi.cli.connection._CONNECT_S", 0.1)
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    ended("ping", code=3, BORZOI_SERVER=f"{HOST}:{port}")


def test_a_server_that_does_not_answer():
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        line = ended("stats", "--server", f"{HOST}:{port}", "--deadline", "200ms", code=3)
    assert "does not answer" in line


@pytest.mark.parametrize("login", ["iggy:wrong", "nobody:secret", "not-a-token"])
def test_wrong_credentials(address, login):
    ended("stream", "list", "--server", f"iggy://{login}@{address}", code=4)


def test_ping_needs_no_login(address):
    result = CliRunner().invoke(app, ["ping", "--server", f"iggy://iggy:wrong@{address}"])
    assert result.exit_code == 0


def test_what_is_not_allowed_is_no_matter_of_credentials(address):
    ended("stream", "create", "mine", "--server", f"iggy://guest:secret@{address}", code=1)


def test_options_may_stand_before_the_command_and_those_after_it_win(address):
    result = CliRunner().invoke(app, ["--server", address, "--json", "stream", "list"])
    assert (result.exit_code, result.stdout) == (0, "[]\n")
    result = CliRunner().invoke(app, ["--server", "127.0.0.1:1", "stream", "list", "--server", address])
    assert result.exit_code == 0


def test_names_in_errors_cannot_take_over_the_terminal(address):
    assert "\x1b" not in ended("stream", "get", "\x1b[2J", "--server", address, code=1)


def test_arguments_that_are_no_text_are_refused(address):
    assert "is no text" in ended("stream", "get", "\udcff", "--server", address, code=2)


def test_ctrl_c_ends_a_command_without_a_traceback(address):
    CliRunner().invoke(app, ["stream", "create", "live", "--server", address])
    CliRunner().invoke(app, ["topic", "create", "live", "events", "--server", address])
    CliRunner().invoke(app, ["message", "send", "live", "events", "hello", "--server", address])
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from borzoi.cli.main import main; main()",
            "topic",
            "tail",
            "live",
            "events",
            "-f",
        ],
        env={**os.environ, "BORZOI_SERVER": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert "hello" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, said = following.communicate(timeout=10)
    assert (following.returncode, said) == (130, "error: interrupted\n")


@pytest.mark.parametrize(
    "arguments", [["stats"], ["message", "poll", "big", "events", "0", "-f", "-m", "5000"]]
)
def test_a_reader_that_has_seen_enough_is_no_error(address, arguments):
    CliRunner().invoke(app, ["stream", "create", "big", "--server", address])
    CliRunner().invoke(app, ["topic", "create", "big", "events", "--server", address])
    CliRunner().invoke(app, ["message", "send", "big", "events", "--server", address], input="x\n" * 5000)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-c", "from borzoi.cli.main import main; main()", *arguments],
            env={**os.environ, "BORZOI_SERVER": address},
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_starting_the_server_does_not_load_what_other_commands_need():
    program = (
        "import sys; from borzoi.cli.main import app; from typer.testing import CliRunner;"
        "CliRunner().invoke(app, ['server', '--shards', '2']);"
        "print([name for name in sys.modules if name.startswith(('borzoi.client', 'borzoi.cli.', 'rich'))])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(eval(shown.stdout))
    assert loaded == {f"borzoi.cli.{name}" for name in ("main", "config", "options", "server")}
