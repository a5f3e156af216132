"""How the command line ends when something is wrong."""

import socket
import time

import pytest
from typer.testing import CliRunner

from borzoi.cli.main import app
from support.client_kinds import HOST
from support.in_process import LocalServer


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("cli-errors") / "data") as server:
        server.add_user("guest")
        yield f"{HOST}:{server.port}"


@pytest.fixture(autouse=True)
def no_files_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("IGGY_HOME", str(tmp_path / "iggy"))
    monkeypatch.delenv("BORZOI_SERVER", raising=False)


def ended(*arguments: str, code: int, **env: str) -> str:
    """The one line of a command that fails."""
    result = CliRunner().invoke(app, arguments, env=env)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


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
        (["--username", "iggy", "config", "default"], "write its options after it"),
        (["--generate", "elvish"], "there is completion for bash, zsh, fish, powershell"),
        (["stats", "--json", "--output", "toml"], "give --json or --output"),
        (["options", "partition"], "'topic'"),
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
