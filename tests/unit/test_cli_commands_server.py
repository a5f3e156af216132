"""The command line against a real server: every command, for people and for programs."""

import json
import tomllib
import zipfile

import pytest
from typer.testing import CliRunner

from borzoi import Client
from borzoi.cli.main import app
from support.in_process import LocalServer


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("cli") / "data") as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(autouse=True)
def no_files_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("IGGY_HOME", str(tmp_path / "iggy"))


@pytest.fixture
def text(address):
    """Runs a command and gives what it printed."""

    def run(*arguments: object, stdin: str | bytes | None = None) -> str:
        result = CliRunner().invoke(
            app, [str(each) for each in arguments], input=stdin, env={"BORZOI_SERVER": address}
        )
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return run


@pytest.fixture
def data(text):
    """Runs a command with --json and gives what it said."""
    return lambda *arguments, **how: json.loads(text(*arguments, "--json", **how))


@pytest.fixture
def lines(text):
    """Runs a command that prints a line of JSON for each message."""
    return lambda *arguments: [json.loads(line) for line in text(*arguments, "--json").splitlines()]


@pytest.fixture
def refused(address):
    """Runs a command that the server refuses and gives the one line that it ends with."""

    def run(*arguments: object, code: int = 1, stdin: str | None = None) -> str:
        result = CliRunner().invoke(
            app, [str(each) for each in arguments], input=stdin, env={"BORZOI_SERVER": address}
        )
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr

    return run


@pytest.fixture
def topic(address):
    """A topic with two partitions in a new stream."""
    with Client(address, username="iggy", password="iggy") as client:
        client.create_stream("orders")
        client.create_topic("orders", "events", 2)
        yield "orders", "events"
        client.delete_stream("orders")


def test_ping(text, data):
    assert text("ping").startswith("ping 1: ")
    assert "min/avg/max" in text("ping", "-c", 1)
    measured = data("ping")
    assert measured["times_ms"] == [measured["min_ms"]] == [measured["max_ms"]]


def test_stats(text, data):
    assert "Server version" in text("stats")
    assert data("stats")["streams_count"] == 0


def test_stats_have_other_forms(text):
    assert "\nStreams|0\n" in text("stats", "--output", "list")
    assert json.loads(text("stats", "-o", "json"))["streams_count"] == 0
    found = tomllib.loads(text("stats", "-o", "toml"))
    assert (found["streams_count"], found["cache_metrics"]) == (0, [])
    assert "Server version" in text("stats", "-o", "table")


def test_cluster(text, data, address):
    assert text("cluster", "metadata").splitlines()[1].split()[:3] == ["Name", "IP", "TCP"]
    (node,) = data("cluster", "metadata")["nodes"]
    assert f"{node['ip']}:{node['tcp_port']}" == address
    assert data("cl", "m")["nodes"] == [node]


def test_options(text, data):
    assert "segment_size" in text("options", "topic")
    found = {each["key"]: each for each in data("options", "topic")}
    assert found["compression_algorithm"]["default"] == "none"
    assert data("options", "stream") == data("options", "user") == []


def test_me(text, data):
    assert "Address    127.0.0.1:" in text("me")
    assert data("me")["transport"] == "tcp"


def test_clients(text, data, refused, address):
    with Client(address, username="iggy", password="iggy") as client:
        me = client.get_me()
        assert str(me.client_id) in text("client", "list")
        assert me.client_id in [each["client_id"] for each in data("client", "list")]
        assert me.address in text("client", "get", me.client_id)
        assert data("client", "get", me.client_id)["address"] == me.address
    assert "no client 4294967295" in refused("client", "get", 4294967295)


def test_a_client_is_shown_with_its_groups(text, data, topic, address):
    with Client(address, username="iggy", password="iggy") as client:
        client.create_consumer_group(*topic, "billing")
        client.join_consumer_group(*topic, "billing")
        me = client.get_me()
        assert "Group ID" in text("client", "get", me.client_id)
        assert len(data("client", "get", me.client_id)["consumer_groups"]) == 1


def test_snapshot(text, data, tmp_path, refused):
    shown = text("snapshot", "-o", tmp_path, "-s", "server_config")
    assert shown.startswith("File  ")
    (first,) = tmp_path.glob("snapshot_*.zip")
    first.unlink()
    made = data("snapshot", "--out-dir", tmp_path, "-c", "stored", "-s", "server_config", "-s", "test")
    assert len(zipfile.ZipFile(made["path"]).namelist()) == 2
    assert "cannot be written" in refused("snapshot", "-o", tmp_path / "none")


def test_streams(text, data, refused):
    assert 'stream "one" created, id ' in text("stream", "create", "one")
    made = data("stream", "create", "two")
    assert made["name"] == "two"
    assert text("stream", "list").split()[:6] == ["ID", "Name", "Created", "Size", "Messages", "Topics"]
    assert [each["name"] for each in data("stream", "list")] == ["one", "two"]
    assert 'is now "three"' in text("stream", "update", made["id"], "three")
    assert data("stream", "update", "three", "two") == {"stream": "three", "name": "two"}
    assert "Name       two" in text("stream", "get", made["id"])
    assert data("stream", "get", "two")["topics"] == []
    assert "is empty" in text("stream", "purge", "two")
    assert data("stream", "purge", "two") == {"stream": "two"}
    assert "deleted" in text("stream", "delete", "two")
    assert data("stream", "delete", "one") == {"stream": "one"}
    assert 'there is no stream "one"' in refused("stream", "get", "one")
    assert "one" in refused("stream", "delete", "one")


def test_aliases_are_those_that_users_of_iggy_know(text, data):
    text("s", "c", "short")
    assert [each["name"] for each in data("s", "l")] == ["short"]
    text("s", "d", "short")


def test_topics(text, data, refused, topic):
    stream, _ = topic
    shown = text("topic", "create", stream, "small", 3, "none", "7", "days", "-m", "15 GB")
    assert 'topic "small" with 3 partitions created in stream "orders", id ' in shown
    assert data("topic", "create", stream, "other")["partitions_count"] == 1
    assert "15 GB" in text("topic", "list", stream)
    assert [each["name"] for each in data("topic", "list", stream)] == ["events", "small", "other"]
    shown = text("topic", "get", stream, "small")
    assert "Message expiry  7days" in shown
    assert "Current offset" in shown
    found = data("topic", "get", stream, "small")
    assert (found["max_topic_size"], len(found["partitions"])) == (15 * 10**9, 3)
    assert 'its name is "tiny"' in text("topic", "update", stream, "small", "tiny", "none", "unlimited")
    assert "never_expire" in text("topic", "get", stream, "tiny")
    assert data("topic", "update", stream, "tiny", "small", "-m", "unlimited")["name"] == "small"
    assert "unlimited" in text("topic", "get", stream, "small")
    assert "is empty" in text("topic", "purge", stream, "small")
    assert data("topic", "purge", stream, "small") == {"stream": stream, "topic": "small"}
    assert "deleted" in text("topic", "delete", stream, "small")
    assert data("topic", "delete", stream, "other")["topic"] == "other"
    assert 'there is no topic "small"' in refused("topic", "get", stream, "small")


def test_a_topic_has_the_options_it_was_given(text, data, topic):
    text("topic", "create", topic[0], "safe", "--durability", "persisted", "--segment-size", "100 MiB")
    options = data("topic", "get", topic[0], "safe")["explicit_options"]
    assert (options["durability"], options["segment_size"]) == ("persisted", 100 << 20)


@pytest.mark.parametrize(
    "wrong", [["1", "zip"], ["1", "none", "7"], ["1", "-m", "huge"], ["--segment-size", "x"], ["many"]]
)
def test_values_that_no_topic_can_have_are_wrong_usage(refused, topic, wrong):
    refused("topic", "create", topic[0], "new", *wrong, code=2)


def test_partitions_and_segments(text, data, topic):
    assert "2 partitions added to" in text("partition", "create", *topic, 2)
    assert data("partition", "create", *topic, 1)["partitions_count"] == 1
    assert data("topic", "get", *topic)["partitions_count"] == 5
    assert "1 partition deleted from" in text("partition", "delete", *topic, 1)
    assert data("partition", "delete", *topic, 2)["partitions_count"] == 2
    assert data("topic", "get", *topic)["partitions_count"] == 2
    assert "oldest full segments of partition 0" in text("segment", "delete", *topic, 0, 1)
    assert data("segment", "delete", *topic, 0, 1)["segments_count"] == 1


def test_messages_are_sent_and_read(text, data, lines, topic):
    assert "1 message stored: partition 0 from offset 0" in text("message", "send", *topic, "a", "-p", 0)
    sent = data("message", "send", *topic, "b", "c", "--partition", 0)
    assert (sent["messages_count"], sent["batches"][0]["base_offset"]) == (2, 1)
    shown = text("message", "poll", *topic, 0, "--first", "-m", 10).splitlines()
    assert [line.split()[-1] for line in shown] == ["Payload", "a", "b", "c"]
    assert [each["payload"] for each in lines("message", "poll", *topic, 0, "--offset", 1, "-m", 9)] == [
        "b",
        "c",
    ]
    assert [each["offset"] for each in lines("message", "poll", *topic, 0, "--last")] == [2]
    assert lines("message", "poll", *topic, 0, "--timestamp", "2020-01-31T12:00:00Z")[0]["payload"] == "a"
    assert lines("message", "poll", *topic, 1, "--first") == []


def test_a_consumer_goes_on_where_it_stopped(lines, topic, text):
    text("message", "send", *topic, "a", "b", "-p", 0)
    poll = ("message", "poll", *topic, 0, "--next", "-c", "me")
    assert [lines(*poll)[0]["payload"] for _ in range(2)] == ["a", "a"]
    assert [lines(*poll, "-a")[0]["payload"] for _ in range(2)] == ["a", "b"]


def test_messages_with_one_key_go_to_one_partition(text, data, topic):
    sent = [data("message", "send", *topic, "x", "--key", "k")["batches"][0] for _ in range(3)]
    assert len({each["partition_id"] for each in sent}) == 1


def test_balanced_messages_go_to_all_partitions(data, topic):
    sent = [data("message", "send", *topic, "x")["batches"][0]["partition_id"] for _ in range(2)]
    assert sorted(sent) == [0, 1]


def test_headers_have_the_kind_they_were_given(text, lines, topic):
    text(
        "message",
        "send",
        *topic,
        "a",
        "-p",
        0,
        "-H",
        "url:string:a:b",
        "-H",
        "n:uint8:7",
        "-H",
        "ok:bool:true",
    )
    (found,) = lines("message", "poll", *topic, 0, "--first")
    assert found["headers"] == {
        "url": {"kind": "string", "value": "a:b"},
        "n": {"kind": "uint8", "value": 7},
        "ok": {"kind": "bool", "value": True},
    }
    shown = text("message", "poll", *topic, 0, "--first", "--show-headers")
    assert "Header: url  Header: n  Header: ok" in shown


def test_lines_of_standard_input_are_messages(text, lines, topic):
    assert "2 messages stored" in text("message", "send", *topic, "-p", 0, stdin=b"one\n\ntwo \xff\n")
    found = lines("message", "poll", *topic, 0, "--first", "-m", 10)
    assert (found[0]["payload"], found[1]["payload_base64"]) == ("one", "dHdvIP8=")


def test_what_is_polled_can_be_sent_again(text, lines, topic, tmp_path):
    stream, _ = topic
    written = [
        {"payload": {"total": 5}, "headers": {"n": 1, "exact": {"kind": "raw", "value": "/w=="}}, "id": 7},
        {"payload_base64": "/w==", "id": str(2**127)},
        {"payload": "text"},
    ]
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join(map(json.dumps, written)))
    text("message", "send", *topic, "-p", 0, "--file", file)
    first = text("message", "poll", *topic, 0, "--first", "-m", 10, "--json")
    text("topic", "create", stream, "copy")
    text("message", "send", stream, "copy", "-p", 0, "--file", "-", stdin=first)
    again = lines("message", "poll", stream, "copy", 0, "--first", "-m", 10)
    for message in (found := [json.loads(line) for line in first.splitlines()]) + again:
        del message["timestamp"], message["origin_timestamp"]
    assert again == found
    assert [found[0]["payload"], found[1]["id"], found[2]["payload"]] == ['{"total":5}', str(2**127), "text"]


def test_many_messages_are_sent_in_several_batches(data, topic):
    sent = data("message", "send", *topic, "-p", 1, stdin="x\n" * 2500)
    assert (sent["messages_count"], [each["base_offset"] for each in sent["batches"]]) == (
        2500,
        [0, 1000, 2000],
    )


@pytest.mark.parametrize(
    "wrong",
    [
        ["a", "-p", "0", "--key", "k"],
        ["a", "-H", "no-kind"],
        ["a", "-H", "n:int9:1"],
        ["a", "-H", "n:uint8:300"],
        ["a", "-H", "n:bool:maybe"],
        ["a", "--file", "x"],
        ["--file", "does-not-exist"],
        [],
    ],
    ids=" ".join,
)
def test_wrong_ways_to_send(refused, topic, wrong):
    refused("message", "send", *topic, *wrong, code=2, stdin="")


@pytest.mark.parametrize(
    "line",
    ["no json", "[]", "{}", '{"payload": "a", "payload_base64": "YQ=="}', '{"payload": "a", "key": 1}',
     '{"payload_base64": "?"}', '{"payload": "a", "id": "x"}', '{"payload": "a", "headers": {"a": []}}'],
)  # fmt: skip
def test_a_line_that_is_no_message_is_named(refused, topic, line):
    assert "line 2: " in refused(
        "message", "send", *topic, "--file", "-", code=2, stdin=f'{{"payload": "a"}}\n{line}\n'
    )


def test_polls_start_at_one_place(refused, topic):
    refused("message", "poll", *topic, 0, "--first", "--last", code=2)


def test_what_is_in_a_payload_cannot_take_over_the_terminal(text, topic):
    text("message", "send", *topic, "\x1b[2J", "-p", 0)
    assert "\x1b" not in text("message", "poll", *topic, 0, "--first")
    assert "\x1b" not in text("topic", "tail", *topic)


def test_flush(text, data, topic):
    assert "to its file" in text("message", "flush", *topic, 0)
    assert data("message", "flush", *topic, 0, "--fsync")["fsync"] is True


def test_tail_shows_the_newest_of_all_partitions(text, lines, topic):
    for partition, payload in ((0, "a"), (1, "b"), (0, "c")):
        text("message", "send", *topic, payload, "-p", partition)
    assert [line.split()[-1] for line in text("topic", "tail", *topic, "-n", 2).splitlines()] == ["b", "c"]
    assert [each["payload"] for each in lines("topic", "tail", *topic, "--contains", "a")] == ["a"]


def test_tail_follows_until_it_is_interrupted(address, topic, monkeypatch, text):
    text("message", "send", *topic, "old", "-p", 1)
    steps = iter(["new", "newer"])

    def pause(seconds):
        payload = next(steps, None)
        if payload is None:
            raise KeyboardInterrupt
        with Client(address, username="iggy", password="iggy") as client:
            client.send_messages(*topic, 0, [payload])

    monkeypatch.setattr("borzoi.cli.tail.time.sleep", pause)
    result = CliRunner().invoke(app, ["topic", "tail", *topic, "-f", "--server", address])
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["old", "new", "newer"]
    assert (result.exit_code, result.stderr) == (130, "error: interrupted\n")


def test_consumer_groups(text, data, refused, topic, address):
    assert 'consumer group "billing" created' in text("consumer-group", "create", *topic, "billing")
    assert data("consumer-group", "create", *topic, "audit")["name"] == "audit"
    assert "billing" in text("consumer-group", "list", *topic)
    assert [each["name"] for each in data("consumer-group", "list", *topic)] == ["billing", "audit"]
    with Client(address, username="iggy", password="iggy") as client:
        client.join_consumer_group(*topic, "billing")
        assert "0, 1" in text("consumer-group", "get", *topic, "billing")
        assert data("consumer-group", "get", *topic, "billing")["members"][0]["partitions"] == [0, 1]
    assert "deleted" in text("consumer-group", "delete", *topic, "billing")
    assert data("consumer-group", "delete", *topic, "audit")["group"] == "audit"
    assert "there is no consumer group" in refused("consumer-group", "get", *topic, "audit")


@pytest.mark.parametrize("kind", ["consumer", "consumer-group"])
def test_consumer_offsets(text, data, refused, topic, kind):
    text("message", "send", *topic, "a", "b", "c", "-p", 0)
    text("consumer-group", "create", *topic, "me")
    where = ("me", *topic, 0)
    assert "no offset is stored" in refused("consumer-offset", "get", *where, "-k", kind)
    assert f"offset 1 stored for {kind}" in text("consumer-offset", "set", *where, 1, "-k", kind)
    assert data("consumer-offset", "set", *where, 2, "-k", kind)["offset"] == 2
    assert "Stored offset   2" in text("consumer-offset", "get", *where, "-k", kind)
    assert data("consumer-offset", "get", *where, "-k", kind)["stored_offset"] == 2
    assert "deleted" in text("consumer-offset", "delete", *where, "-k", kind)
    text("consumer-offset", "set", *where, 1, "-k", kind)
    assert data("consumer-offset", "delete", *where, "-k", kind)["kind"] == kind


def test_the_offset_of_a_group_at_work_is_not_changed(text, refused, topic, address):
    text("consumer-group", "create", *topic, "busy")
    with Client(address, username="iggy", password="iggy") as client:
        client.join_consumer_group(*topic, "busy")
        for change in (("set", "busy", *topic, 0, 1), ("delete", "busy", *topic, 0)):
            assert "stop them first" in refused("consumer-offset", *change, "-k", "consumer-group")
    assert "there is no consumer group" in refused(
        "consumer-offset", "set", "x", *topic, 0, 1, "-k", "consumer-group"
    )


def test_users(text, data, refused, address):
    assert 'user "alice" created, id ' in text("user", "create", "alice", "secret", "-u", "inactive")
    assert data("user", "create", "bob", stdin="hidden\n")["username"] == "bob"
    assert "inactive" in text("user", "list")
    assert {"iggy", "alice", "bob"} <= {each["username"] for each in data("user", "list")}
    assert 'user "alice" is active' in text("user", "status", "alice", "active")
    assert data("user", "status", "alice", "inactive")["status"] == "inactive"
    assert data("user", "get", "alice")["status"] == "inactive"
    assert "is now" in text("user", "name", "alice", "carol")
    assert data("user", "name", "carol", "alice")["username"] == "alice"
    assert "changed" in text("user", "password", "bob", "hidden", "better")
    assert data("user", "password", "bob", stdin="better\nbest!\n") == {"user": "bob"}
    assert (
        data("me", "--server", f"iggy://bob:best!@{address}")["user_id"] == data("user", "get", "bob")["id"]
    )
    assert "deleted" in text("user", "delete", "alice")
    assert data("user", "delete", "bob") == {"user": "bob"}
    assert 'there is no user "bob"' in refused("user", "get", "bob")


def test_permissions_are_json(text, data, refused):
    wanted = {
        "general": {"read_streams": True},
        "streams": {"1": {"read_topics": True, "topics": {"2": {"poll_messages": True}}}},
    }
    text("user", "create", "dave", "secret", "--permissions", json.dumps(wanted))
    shown = text("user", "get", "dave")
    assert "Global permissions  read_streams\n" in shown
    assert "Stream 1, topic 2   poll_messages\n" in shown
    found = data("user", "get", "dave")["permissions"]
    assert found["streams"]["1"]["topics"]["2"]["poll_messages"] is True
    assert data("user", "permissions", "dave", "none")["permissions"] is None
    assert "replaced" in text("user", "permissions", "dave", json.dumps(found))
    assert data("user", "get", "dave")["permissions"] == found
    for wrong in ("{", '{"general": {"reed_streams": true}}', '{"general": {"read_streams": "yes"}}', "[]"):
        refused("user", "permissions", "dave", wrong, code=2)
    text("user", "delete", "dave")


def test_tokens(text, data, address):
    assert text("pat", "create", "deploy", "30", "days").startswith("Token: ")
    token = data("pat", "create", "for-ever")["token"]
    assert data("me", "--server", f"iggy://{token}@{address}")["user_id"] == 0
    assert "never" in text("pat", "list")
    assert {each["name"] for each in data("pat", "list")} == {"deploy", "for-ever"}
    assert "deleted" in text("pat", "delete", "deploy")
    assert data("pat", "delete", "for-ever") == {"name": "for-ever"}
