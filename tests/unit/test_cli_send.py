"""Sending and saving many messages: files of Iggy's format, encryption, live input, failures, the bar."""

import base64
import io
import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from borzoi import Client
from borzoi.cli import progress
from borzoi.cli.line_input import LineTooLong, read_lines
from borzoi.cli.main import app
from borzoi.cli.message_file import DamagedMessageFile, read_records, record
from borzoi.cli.progress import Progress
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.one_by_one import read_messages
from support.in_process import LocalServer, eventually

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("send") / "data") as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch, address):
    monkeypatch.setenv("IGGY_HOME", str(tmp_path / "iggy"))
    monkeypatch.setenv("BORZOI_SERVER", address)


@pytest.fixture
def client(address):
    with Client(address, username="iggy", password="iggy") as connected:
        yield connected


@pytest.fixture
def topic(client):
    client.create_stream("orders")
    client.create_topic("orders", "events", 1)
    client.create_topic("orders", "copy", 1)
    yield "orders", "events"
    client.delete_stream("orders")


def run(*arguments: object, code: int = 0, stdin: str | bytes | None = None) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert result.exit_code == code, result.stderr
    if code:
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
    return result.stderr if code else result.stdout


def payloads(client, topic):
    return [each.payload for each in client.poll_messages(*topic, 0, count=100_000, auto_commit=False)]


def test_a_topic_can_be_saved_and_sent_again(client, topic, tmp_path):
    file = tmp_path / "saved.bin"
    run("message", "send", *topic, "a", "-H", "n:uint8:7", "-H", "url:string:x:y")
    run("message", "send", *topic, stdin="".join(f"{number}\n" for number in range(2500)))
    shown = run("message", "poll", *topic, 0, "--first", "-m", 10_000, "--output-file", file)
    assert shown == f"2501 messages, {file.stat().st_size} bytes, appended to {file}\n"
    sent = json.loads(run("message", "send", "orders", "copy", "--input-file", file, "--json"))
    assert sent["messages_count"] == 2501
    copied, original = (
        client.poll_messages("orders", name, 0, count=10_000, auto_commit=False)
        for name in ("copy", "events")
    )
    assert [(each.payload, each.id, each.user_headers) for each in copied] == [
        (each.payload, each.id, each.user_headers) for each in original
    ]


def test_the_file_is_appended_to_and_told_about_in_json(topic, tmp_path):
    file = tmp_path / "saved.bin"
    run("message", "send", *topic, "a", "b")
    poll = ("message", "poll", *topic, 0, "--first", "--output-file", file, "--json")
    first = json.loads(run(*poll))
    assert first == {"messages_count": 1, "size_bytes": 65, "path": str(file)}
    run(*poll)
    assert file.stat().st_size == 130


def test_the_file_has_the_layout_of_the_classic_wire(client, topic, tmp_path):
    """What official clients write is what they send: the server's own reader of it understands the file."""
    file = tmp_path / "saved.bin"
    run("message", "send", *topic, "hello", "-H", "n:uint8:7")
    run("message", "poll", *topic, 0, "--first", "--output-file", file)
    (message,) = read_messages(memoryview(file.read_bytes()), 1, None, Dialect.D, 0)
    (stored,) = client.poll_messages(*topic, 0, auto_commit=False)
    assert bytes(message.payload) == b"hello"
    assert int.from_bytes(message.id, "little") == stored.id
    assert bytes(message.user_headers) == stored.user_headers


def test_an_offset_is_stored_when_the_messages_are_in_the_file(topic, tmp_path):
    run("message", "send", *topic, "a", "b", "c")
    poll = ("message", "poll", *topic, 0, "--next", "-c", "me", "-a", "--output-file")
    run(*poll, "/dev/full", code=1)
    file = tmp_path / "saved.bin"
    run(*poll, file)
    assert file.read_bytes()[64:] == b"a"
    assert json.loads(run("message", "poll", *topic, 0, "-n", "-c", "me", "--json"))["payload"] == "b"


def test_a_full_disk_leaves_whole_messages(topic):
    run("message", "send", *topic, "a")
    line = run("message", "poll", *topic, 0, "--first", "--output-file", "/dev/full", code=1)
    assert "No space left on device; 0 messages were written before" in line


@pytest.mark.parametrize("cut", [1, 63, 64, 66])
def test_a_file_that_ends_in_a_message_is_damaged(topic, client, tmp_path, cut):
    file = tmp_path / "saved.bin"
    run("message", "send", *topic, "abc")
    run("message", "poll", *topic, 0, "--first", "--output-file", file)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:cut])
    line = run("message", "send", "orders", "copy", "--input-file", file, code=2)
    assert "message 2, at byte 67: the file ends in the middle of it" in line
    assert payloads(client, ("orders", "copy")) == []


@given(st.binary(min_size=1, max_size=63))
def test_a_file_of_something_else_is_refused(content):
    with pytest.raises(DamagedMessageFile, match="message 1, at byte 0"):
        list(read_records(io.BytesIO(content), lambda size: None))


@given(st.binary(min_size=64, max_size=300))
def test_whatever_a_file_holds_is_a_message_or_a_damaged_one(content):
    with suppress(DamagedMessageFile):
        for message in read_records(io.BytesIO(content), lambda size: None):
            assert message.payload


def test_polling_much_is_done_in_parts(client, topic, monkeypatch):
    monkeypatch.setattr("borzoi.cli.message._POLL_MESSAGES", 7)
    run("message", "send", *topic, stdin="".join(f"{number}\n" for number in range(20)))
    for how, expected in (
        (["--first", "-m", "100"], range(20)),
        (["--offset", "3", "-m", "10"], range(3, 13)),
        (["--last", "-m", "9"], range(11, 20)),
        (["--last", "-m", "5"], range(15, 20)),
    ):
        lines = run("message", "poll", *topic, 0, *how, "--json").splitlines()
        assert [int(json.loads(line)["payload"]) for line in lines] == list(expected)
    run("message", "poll", *topic, 0, "--next", "-c", "me", "-a", "-m", "10")
    assert json.loads(run("message", "poll", *topic, 0, "-n", "-c", "me", "--json"))["payload"] == "10"


def test_payloads_are_encrypted_and_headers_are_not(client, topic, tmp_path):
    run("--encryption-key", KEY, "message", "send", *topic, "secret", "-H", "region:string:eu")
    (stored,) = client.poll_messages(*topic, 0, auto_commit=False)
    assert len(stored.payload) == 12 + len("secret") + 16
    assert b"secret" not in stored.payload
    assert stored.headers == {"region": "eu"}
    assert "secret" in run("--encryption-key", KEY, "message", "poll", *topic, 0, "--first")
    assert "secret" in run("--encryption-key", KEY, "topic", "tail", *topic)
    assert "secret" in run("topic", "tail", *topic, "--encryption-key", KEY, "--contains", "secret")
    assert "secret" not in run("message", "poll", *topic, 0, "--first")
    other = base64.b64encode(bytes(32)).decode()
    line = run("--encryption-key", other, "message", "poll", *topic, 0, "--first", code=1)
    assert "It is the message at offset 0 of partition 0." in line


def test_a_context_may_have_the_key(client, topic, address):
    run("context", "create", "safe", "--tcp-server-address", address, "--encryption-key", KEY)
    run("context", "use", "safe")
    run("message", "send", *topic, "secret")
    assert payloads(client, topic) != [b"secret"]
    assert "secret" in run("message", "poll", *topic, 0, "--first")


def test_a_wrong_key_is_told_before_anything_is_sent(client, topic):
    for key in ("short", base64.b64encode(bytes(31)).decode(), "?"):
        run("--encryption-key", key, "message", "send", *topic, "a", code=2)
    assert payloads(client, topic) == []


def test_a_wrong_line_ends_sending_and_says_what_was_stored(client, topic):
    good = '{"payload": "x"}\n'
    line = run("message", "send", *topic, "--file", "-", stdin=good * 1500 + "no json\n", code=2)
    assert "line 1501: no JSON" in line
    assert "1000 messages stored before." in line
    assert len(payloads(client, topic)) == 1000


def test_what_cannot_be_read_is_named(topic, tmp_path):
    for option in ("--file", "--input-file"):
        assert "cannot be read" in run("message", "send", *topic, option, tmp_path, code=2)
        assert "cannot be read" in run("message", "send", *topic, option, tmp_path / "none", code=2)
    line = run("message", "poll", *topic, 0, "--output-file", tmp_path / "none" / "x", code=2)
    assert "cannot be written" in line


@pytest.mark.parametrize(
    "wrong", [["a", "--input-file", "x"], ["--file", "x", "--input-file", "y"], ["a", "--format", "json"]]
)
def test_messages_come_from_one_place(topic, wrong):
    run("message", "send", *topic, *wrong, code=2)


def sending(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "borzoi", "message", "send", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_line_of_live_input_is_sent_when_the_input_pauses(client, topic):
    with sending(*topic) as live:
        for count in (1, 2):
            live.stdin.write(f"line {count}\n")
            live.stdin.flush()
            assert eventually(lambda count=count: len(payloads(client, topic)) == count)
        shown, said = live.communicate("the end", timeout=20)
    assert (live.returncode, said) == (0, "")
    assert shown.startswith("3 messages stored: ")
    assert payloads(client, topic) == [b"line 1", b"line 2", b"the end"]


def test_when_the_server_goes_away_it_is_told_what_was_stored(tmp_path, monkeypatch):
    with LocalServer(tmp_path / "data") as server:
        monkeypatch.setenv("BORZOI_SERVER", f"127.0.0.1:{server.port}")
        with Client("127.0.0.1", server.port, username="iggy", password="iggy") as client:
            client.create_stream("s")
            client.create_topic("s", "t", 1)
            live = sending("s", "t", "--deadline", "500ms")
            live.stdin.write("one\n")
            live.stdin.flush()
            assert eventually(lambda: payloads(client, ("s", "t")) == [b"one"])
    _, said = live.communicate("two\n", timeout=20)
    assert live.returncode == 3
    assert said.count("\n") == 1
    assert said.endswith("1 message stored before. Of 1 message under way it is not known.\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_a_bar_on_a_terminal(monkeypatch, topic, tmp_path):
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress("sending", 100) as bar:
        bar.show(50, 5)
        bar.show(100, 10)
    assert "sending" in screen.getvalue()
    assert "10 messages" in screen.getvalue()


def test_short_work_and_other_outputs_show_no_bar(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress("sending", 100) as bar:
        bar.show(50, 5)
    assert screen.getvalue() == ""
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    with Progress("sending", 100, is_wanted=False) as bar:
        bar.show(50, 5)
    assert screen.getvalue() == ""
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with Progress("sending", None) as bar:
        bar.show_now()
    assert plain.getvalue() == ""


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=20), st.booleans())
def test_lines_are_read_as_they_are_written(lines, ends):
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    read_bytes = []
    found = list(read_lines(io.BytesIO(content), read_bytes.append))
    assert found == [line.rstrip(b"\r") for line in content.split(b"\n") if line.rstrip(b"\r")]
    assert sum(read_bytes) == len(content)


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr("borzoi.cli.line_input._LINE_BYTES_MAX", 3 << 20)
    with pytest.raises(LineTooLong):
        list(read_lines(io.BytesIO(bytes(5 << 20)), lambda size: None))


def test_pauses_of_a_pipe_are_told():
    reading, writing = os.pipe()
    with open(reading, "rb") as source:
        os.write(writing, b"one\ntwo")
        lines = read_lines(source, lambda size: None)
        assert [next(lines), next(lines)] == [b"one", None]
        os.write(writing, b"!\n")
        os.close(writing)
        assert list(lines) == [b"two!"]


def test_records_are_whole_numbers_of_bytes(client, topic):
    run("message", "send", *topic, "abc")
    (message,) = client.poll_messages(*topic, 0, auto_commit=False)
    (found,) = read_records(io.BytesIO(record(message)), lambda size: None)
    assert (found.payload, found.id, found.headers) == (b"abc", message.id, None)
