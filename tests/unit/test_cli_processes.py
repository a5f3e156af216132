"""The installed command as a process of its own: what it prints and how it ends, whatever happens."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from borzoi import Client
from support.in_process import LocalServer

HOST = "127.0.0.1"
COMMAND = str(Path(sys.executable).with_name("borzoi"))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("processes") / "data") as server:
        yield f"{HOST}:{server.port}"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path, address):
    monkeypatch.setenv("IGGY_HOME", str(tmp_path / "iggy"))
    monkeypatch.setenv("BORZOI_SERVER", address)
    for name in ("IGGY_USERNAME", "IGGY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def topic(address):
    with Client(address, username="iggy", password="iggy") as client:
        client.create_stream("live")
        client.create_topic("live", "events", 1)
        client.send_messages("live", "events", 0, ["hello"] * 5000)
        yield "live", "events"
        client.delete_stream("live")


def borzoi(*arguments: str, **how) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **how
    )


def said(*arguments: str, code: int) -> str:
    """The one line that a command ends with."""
    ended = borzoi(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def test_without_arguments_it_explains_itself():
    ended = borzoi()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "borzoi stream create orders" in ended.stdout
    assert "\n  stream " in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["stream", "create"], "Missing argument 'NAME'. See: borzoi stream create --help"),
        (["--nonsense"], "No such option: --nonsense"),
        (["topic", "create", "s", "t", "many"], "PARTITIONS"),
        (["message", "poll", "s", "t", "0", "--first", "--last"], "give one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments(arguments, told):
    assert told in said(*arguments, code=2)


def test_no_server(monkeypatch):
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    line = said("stream", "list", "--server", f"{HOST}:{port}", "--deadline", "300ms", code=3)
    assert f"{HOST}:{port}" in line
    assert "Check the address, the port, and that the server is running." in line


def test_wrong_password():
    assert "password" in said("--username", "iggy", "--password", "wrong", "stream", "list", code=4)


def test_what_does_not_exist():
    assert "borzoi stream list" in said("stream", "get", "nowhere", code=1)


def test_ctrl_c_ends_tail(topic):
    with subprocess.Popen(
        [COMMAND, "topic", "tail", *topic, "-f"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert "hello" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, told = following.communicate(timeout=20)
    assert (following.returncode, told) == (130, "error: interrupted\n")


def test_ctrl_c_while_sending_says_what_was_stored(topic):
    with subprocess.Popen(
        [COMMAND, "message", "send", *topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as sending:
        sending.stdin.write("one\n")
        sending.stdin.flush()
        with Client(os.environ["BORZOI_SERVER"], username="iggy", password="iggy") as client:
            while client.get_topic(*topic).messages_count == 5000:
                pass
        sending.send_signal(signal.SIGINT)
        _, told = sending.communicate(timeout=20)
    assert sending.returncode == 130
    # The answer may still have been on its way.
    assert told in (
        "error: interrupted. 1 message stored before.\n",
        "error: interrupted. Nothing was stored before. Of 1 message under way it is not known.\n",
    )


@pytest.mark.parametrize(
    "arguments", [["stats"], ["message", "poll", "live", "events", "0", "-f", "-m", "5000"]]
)
def test_a_reader_that_has_seen_enough_is_no_error(topic, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        ended = subprocess.run(
            [COMMAND, *arguments], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_output_that_cannot_be_written_is_told(topic):
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [COMMAND, "stream", "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "error: the output: No space left on device\n")


def test_standard_input_and_output_may_be_closed(topic):
    def shell(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

    ended = shell(f"{COMMAND} message send live events <&-")
    assert (ended.returncode, ended.stderr) == (2, "error: standard input is closed\n")
    ended = shell(f"{COMMAND} --username iggy me <&-")
    assert (ended.returncode, ended.stderr) == (2, "error: password: nothing on standard input\n")
    ended = shell(f"{COMMAND} stream list >&-")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_letters_that_the_terminal_does_not_know_are_shown_as_escapes(topic):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    subprocess.run(
        [COMMAND, "message", "send", *topic, "é", "-p", "0"], check=True, stdout=subprocess.DEVNULL
    )
    ended = borzoi("message", "poll", *topic, "0", "--last", env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[1].endswith("  \\xe9")


def test_a_missing_password_is_asked_for_at_a_terminal():
    in_a_terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    with subprocess.Popen(
        [sys.executable, "-c", in_a_terminal, COMMAND, "--username", "iggy", "me"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as asking:
        shown = b""
        while b"Password: " not in shown:
            shown += asking.stdout.read(1)
        asking.stdin.write(b"iggy\n")
        rest = asking.stdout.read()
    assert asking.returncode == 0
    assert b"Client ID" in rest
    assert b"iggy" not in rest


def test_a_bar_is_shown_at_a_terminal_and_only_there(topic, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("x\n" * 3000)
    program = (
        "import os, pty, sys; from borzoi.cli import progress; progress._AFTER_S = 0; "
        "sys.argv = ['borzoi', *sys.argv[1:]]; from borzoi.cli.main import main; main()"
    )
    in_a_terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    send = (sys.executable, "-c", program, "message", "send", *topic, "--file", str(file), "--format", "text")
    plain = subprocess.run(send, capture_output=True, text=True, check=True)
    assert plain.stderr == ""
    shown = subprocess.run(
        [sys.executable, "-c", in_a_terminal, *send],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    assert "sending" in shown.stdout
    assert "3000 messages stored: " in shown.stdout


def test_the_version():
    assert borzoi("--version").stdout == borzoi("-V").stdout
