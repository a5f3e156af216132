"""Frames that no classic client sends: each gets a status or ends its connection, and the server goes on.

`others_are_served` holds a connection of the same and one of the other generation through every test. A
request that made the server fail in an unforeseen way would be in its log, which is looked at in the end.
"""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from borzoi.model import errors as er
from borzoi.model import requests as rq
from borzoi.model.limits import FRAME_BYTES_UNAUTHENTICATED
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    HeaderKind,
    PollingKind,
    PollingStrategy,
    SnapshotCompression,
    SnapshotPart,
    UserStatus,
)
from borzoi.wire.classic import codec
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.commands import COMMAND_BY_REQUEST, COMMANDS, Code, Generation
from support.classic_wire import ClassicClient, Message, frame, logged_in, user_headers
from support.in_process import LocalServer
from support.wire_client import WireClient

RIGHTS = Permissions(
    GlobalPermissions(read_servers=True),
    {3: StreamPermissions(topics={0: TopicPermissions(read_topic=True)})},
)
READER = Consumer(ConsumerKind.CONSUMER, "reader")
# One valid request for every command; most name what does not exist, so that nothing changes.
REQUESTS = (
    rq.Ping(),
    rq.GetStats(),
    rq.GetSnapshot(SnapshotCompression.STORED, (SnapshotPart.TEST,)),
    rq.GetClusterMetadata(),
    rq.GetMe(),
    rq.GetClient(1),
    rq.GetClients(),
    rq.GetUser("nobody"),
    rq.GetUsers(),
    rq.CreateUser("iggy", "secret", UserStatus.ACTIVE, RIGHTS),
    rq.DeleteUser("nobody"),
    rq.UpdateUser("nobody", "somebody", UserStatus.ACTIVE),
    rq.UpdatePermissions("nobody", RIGHTS),
    rq.ChangePassword("nobody", "secret", "secret"),
    rq.LoginUser("nobody", "secret"),
    rq.LoginWithToken("no such token"),
    rq.LogoutUser(),
    rq.GetTokens(),
    rq.CreateToken("no", 0),
    rq.DeleteToken("nothing"),
    rq.PollMessages(READER, "s", "t", 0, PollingStrategy(PollingKind.FIRST, 0), 10, auto_commit=True),
    rq.FlushUnsavedBuffer("s", "t", 0, fsync=False),
    rq.GetConsumerOffset(READER, "s", "t", 0),
    rq.StoreConsumerOffset(READER, "s", "t", 0, 99),
    rq.DeleteConsumerOffset(READER, "s", "nothing", 0),
    rq.GetStream("s"),
    rq.GetStreams(),
    rq.CreateStream("s"),
    rq.DeleteStream("nowhere"),
    rq.UpdateStream("nowhere", "else"),
    rq.PurgeStream("nowhere"),
    rq.GetTopic("s", "t"),
    rq.GetTopics("s"),
    rq.CreateTopic("s", 1, "t"),
    rq.DeleteTopic("s", "nothing"),
    rq.UpdateTopic("s", "nothing", "else"),
    rq.PurgeTopic("s", "nothing"),
    rq.CreatePartitions("s", "nothing", 1),
    rq.DeletePartitions("s", "nothing", 1),
    rq.DeleteSegments("s", "nothing", 0, 1),
    rq.GetConsumerGroup("s", "t", "g"),
    rq.GetConsumerGroups("s", "t"),
    rq.CreateConsumerGroup("s", "nothing", "g"),
    rq.DeleteConsumerGroup("s", "t", "g"),
    rq.JoinConsumerGroup("s", "t", "g"),
    rq.LeaveConsumerGroup("s", "t", "g"),
)
# Very old clients leave these out, so that a login cut short there is whole.
OPTIONAL_TAIL = {Code.LOGIN_USER}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "data"
    with LocalServer(path, {"limits.max_frame_size": "16 MiB"}) as running:
        running.ask(rq.CreateStream("s"))
        running.ask(rq.CreateTopic("s", 1, "t"))
        with logged_in(running.port) as producer:
            producer.send("s", "t", [b"kept"])
        yield running
        assert running.events.of("request failed unexpectedly") == []
        with logged_in(running.port) as reader:
            assert reader.poll("s", "t").payloads[0] == b"kept"


@pytest.fixture(autouse=True)
def others_are_served(server):
    with logged_in(server.port, Dialect.B) as old, WireClient(server.port) as new:
        new.register()
        yield
        assert old.request(rq.GetStream("s")).stream.name == "s"
        assert new.request(rq.GetStream("s")).stream.name == "s"


def code_of(request):
    return COMMAND_BY_REQUEST[type(request)].codes[Generation.CLASSIC]


def test_every_command_is_here():
    here = {code_of(request) for request in REQUESTS} | {Code.SEND_MESSAGES}
    assert here == {row.codes[Generation.CLASSIC] for row in COMMANDS if Generation.CLASSIC in row.codes}


# Frames


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_length_without_room_for_a_code_ends_the_connection(server, length, is_first):
    with ClassicClient(server.port) as client:
        if not is_first:
            client.log_in()
        client.raw(struct.pack("<II", length, 1))
        assert client.is_closed_by_server()


def test_a_length_of_zero_in_mid_connection_ends_it(server, client):
    client.raw(bytes(300))
    assert client.is_closed_by_server()


def test_a_frame_beyond_the_limit_ends_the_connection(server, client):
    client.raw(struct.pack("<II", 17 << 20, Code.SEND_MESSAGES))
    assert client.is_closed_by_server()


def test_a_stranger_may_send_little(server):
    with ClassicClient(server.port) as stranger:
        stranger.command(Code.PING)
        stranger.raw(struct.pack("<II", FRAME_BYTES_UNAUTHENTICATED, Code.LOGIN_USER))
        assert stranger.is_closed_by_server()


def test_a_control_request_of_more_than_ten_mebibytes_is_refused(client):
    body = bytes(10 << 20)
    assert client.status(Code.CREATE_STREAM, body + b"x") == er.InvalidCommand.code
    assert client.status(Code.PING) == 0


@pytest.mark.parametrize("code", [0, 2, 13, 40, 45, 103, 400, 606, 9999, 0xFFFF_FFFF])
def test_an_unknown_code_is_refused_and_the_connection_kept(client, code):
    assert client.status(code) == er.InvalidCommand.code
    assert client.status(code, bytes(1000)) == er.InvalidCommand.code
    assert client.status(Code.PING) == 0


def test_a_frame_in_single_bytes_is_one_frame(client):
    for byte in frame(Code.GET_STREAM, b"\x02\x01s") + frame(Code.PING):
        client.raw(bytes([byte]))
    assert client.receive()[0] == 0
    assert client.receive() == (0, b"")


def test_half_a_frame_and_a_goodbye_is_survived(server, dialect):
    with logged_in(server.port, dialect) as client:
        client.raw(frame(Code.SEND_MESSAGES, bytes(5000))[:3000])


def test_no_generation_is_talked_into_another_in_mid_connection(server, client):
    with WireClient(server.port) as vsr:
        vsr.raw(client_frame := frame(Code.PING))
        assert vsr._exactly(8) == bytes(8), "its first bytes made it a classic connection"
        vsr.raw(bytes(256))
        assert vsr.is_closed_by_server()
    client.raw(client_frame)
    assert client.receive() == (0, b"")


# Bodies


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_body_cut_short_or_too_long_is_refused(client, dialect, request_):
    code = code_of(request_)
    body = codec.encode_request(request_, dialect)
    sizes = sorted({*range(min(len(body), 8)), len(body) // 2, len(body) - 1} - {len(body), -1})
    for size in sizes:
        status = client.status(code, body[:size])
        assert status or code in OPTIONAL_TAIL, size
    assert client.status(code, body + b"\0") or code is Code.PING, "one byte too many"
    assert client.status(Code.PING) == 0


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_text_that_is_not_utf_8_is_refused(client, dialect, request_):
    code = code_of(request_)
    body = codec.encode_request(request_, dialect)
    for text in (b"nobody", b"nothing", b"nowhere", b"reader", b"s", b"t"):
        found = body.find(bytes([len(text)]) + text)
        if found >= 0:
            broken = body[: found + 1] + b"\xff" * len(text) + body[found + 1 + len(text) :]
            assert client.status(code, broken) != 0, text
    assert client.status(Code.PING) == 0


WRONG_IDENTIFIERS = {
    "unknown kind": b"\x03\x01s",
    "no length": b"\x02\x00",
    "number of two bytes": b"\x01\x02\x00\x00",
    "longer than the body": b"\x02\xffs",
    "not UTF-8": b"\x02\x02\xc3\x28",
    "nothing": b"",
}


@pytest.mark.parametrize("identifier", WRONG_IDENTIFIERS.values(), ids=WRONG_IDENTIFIERS.keys())
def test_a_wrong_identifier_is_told_so(client, identifier):
    assert client.status(Code.GET_STREAM, identifier) == er.InvalidIdentifier.code
    assert client.status(Code.GET_TOPIC, b"\x02\x01s" + identifier) == er.InvalidIdentifier.code


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (Code.SNAPSHOT, bytes([1, 255, 1])),
        (Code.SNAPSHOT, bytes([9, 1, 1])),
        (Code.CREATE_USER, b"\x03abc\x03abc\x01\x01\xff\xff\xff\xff"),
        (Code.CREATE_USER, b"\x03abc\x03abc\x01\x01" + struct.pack("<I", 20) + b"\x01" * 20),
        (Code.CREATE_USER, b"\x03abc\x03abc\x07\x00"),
        (Code.UPDATE_PERMISSIONS, b"\x02\x01s\x01" + struct.pack("<I", 0)),
        (Code.LOGIN_USER, b"\x04iggy\x04iggy\xff\xff\xff\xff"),
        (Code.LOGIN_USER, b"\x04iggy\x04iggy\x01\x00\x00\x00\xff\x00\x00\x00\x00"),
    ],
)
def test_absurd_counts_and_kinds_are_refused(client, code, body):
    assert client.status(code, body) != 0
    assert client.status(Code.PING) == 0


@pytest.mark.parametrize("compression", [0, 3, 255])
def test_an_unknown_compression_is_refused(client, dialect, compression):
    body = bytearray(codec.encode_request(rq.CreateTopic("s", 1, "new"), dialect))
    at = len(body) - 4 - 18
    assert body[at] == 1
    body[at] = compression
    assert client.status(Code.CREATE_TOPIC, bytes(body)) == er.InvalidCommand.code


@pytest.mark.parametrize("strategy", [0, 6, 255])
def test_an_unknown_strategy_is_refused(client, dialect, strategy):
    request = next(each for each in REQUESTS if isinstance(each, rq.PollMessages))
    body = bytearray(codec.encode_request(request, dialect))
    body[-14] = strategy
    assert client.status(Code.POLL_MESSAGES, bytes(body)) == er.InvalidCommand.code


# Dialects


SHAPED = (
    rq.CreateStream("new-stream"),
    rq.CreateTopic("s", 1, "new-topic"),
    rq.CreateConsumerGroup("s", "t", "new-group"),
    rq.GetConsumerOffset(READER, "s", "t", 0),
    rq.StoreConsumerOffset(READER, "s", "t", 0, 0),
    rq.PollMessages(READER, "s", "t", 0, PollingStrategy(PollingKind.FIRST, 0), 10, auto_commit=False),
)


@pytest.mark.parametrize("request_", SHAPED, ids=lambda request: type(request).__name__)
def test_the_frame_of_another_dialect_in_mid_connection_is_refused(client, dialect, request_):
    other = Dialect.D if dialect.id_base else Dialect.B
    assert client.status(code_of(request_), codec.encode_request(request_, other)) != 0
    assert client.request(rq.GetStream("new-stream")) is None
    assert client.request(rq.GetTopic("s", "new-topic")) is None


def test_messages_of_another_dialect_are_refused(server, client, dialect):
    client.request(rq.CreateStream(name := f"messages-{dialect.name}"))
    client.request(rq.CreateTopic(name, 1, "t"))
    for other in Dialect:
        if other.message_header_bytes == dialect.message_header_bytes:
            continue
        with ClassicClient(server.port, other) as packer:
            for count in (1, 50):
                body = packer.send_body(name, "t", [b"some payload"] * count)
                assert client.status(Code.SEND_MESSAGES, body) != 0
    assert client.poll(name, "t").messages == []


# Tokens tell no version, so that the dialect shows in what a client sends first.


@pytest.fixture
def bearer(server, dialect):
    token = server.add_user(f"bearer-{next(TOKENS)}", Permissions(GlobalPermissions(*(True,) * 10)))
    with ClassicClient(server.port, dialect) as connected:
        connected.log_in_with_token(token)
        if not dialect.id_base:
            connected.command(Code.GET_CLUSTER_METADATA)
        yield connected


TOKENS = iter(range(10**6))


def test_a_token_login_shows_its_dialect_by_what_it_creates(bearer, dialect):
    name = f"sniffed-{next(TOKENS)}"
    made = bearer.request(rq.CreateStream(name))
    assert made.stream.name == name
    assert bearer.request(rq.GetStream(made.stream.id)).stream.name == name


def test_a_token_login_shows_its_dialect_by_what_it_sends(bearer, dialect):
    name = f"sniffed-{next(TOKENS)}"
    headers = user_headers(dialect, [("k", HeaderKind.STRING, b"v")])
    bearer.request(rq.CreateStream(name))
    bearer.request(rq.CreateTopic(name, 1, "t"))
    bearer.send(name, "t", [Message(b"one", 1, headers), b"two"])
    one, two = bearer.poll(name, "t").messages
    assert (one.payload, one.headers, two.payload) == (b"one", headers, b"two")


def test_a_login_without_a_version_is_like_one_with_a_token(server, dialect):
    with ClassicClient(server.port, dialect) as client:
        client.log_in(version="")
        if not dialect.id_base:
            client.command(Code.GET_CLUSTER_METADATA)
        client.send("s", "t", [b"whatever"])
        assert client.poll("s", "t", kind=PollingKind.LAST, count=1).payloads == [b"whatever"]


def test_a_login_that_ends_with_the_password_is_accepted(server):
    with ClassicClient(server.port) as client:
        client.command(Code.LOGIN_USER, b"\x04iggy\x04iggy")
        client.command(Code.GET_STREAMS)


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0", "1.0", "0.9", "0.9.0-rc1+build"])
def test_a_version_is_compared_by_its_numbers(server, version):
    with ClassicClient(server.port, Dialect.D) as client:
        assert client.log_in(version=version) == 0
        client.send("s", "t", [b"by number"])
        assert client.poll("s", "t", kind=PollingKind.LAST, count=1).payloads == [b"by number"]


# Noise


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.sampled_from(Dialect),
    request_=st.sampled_from(REQUESTS),
    flips=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_changed_bytes_get_an_answer(server, chosen, request_, flips):
    body = bytearray(codec.encode_request(request_, chosen))
    for at, value in flips:
        if body:
            body[at % len(body)] = value
    with logged_in(server.port, chosen) as client:
        client.status(code_of(request_), bytes(body))
        assert client.status(Code.PING) == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.sampled_from(Dialect),
    count=st.sampled_from([1, 3, 40]),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 30),
)
def test_changed_sends_get_an_answer(server, chosen, count, flips, cut):
    with logged_in(server.port, chosen) as client:
        headers = user_headers(chosen, [("key", HeaderKind.STRING, b"value")])
        messages = [Message(b"p" * (1 + number % 3), 0, headers) for number in range(count)]
        body = bytearray(client.send_body("s", "t", messages))
        for at, value in flips:
            body[at % len(body)] = value
        client.status(Code.SEND_MESSAGES, bytes(body[: len(body) - cut]))
        assert client.status(Code.PING) == 0
        # Whatever was accepted can be read by everyone.
        for reader in Dialect:
            with logged_in(server.port, reader) as other:
                other.poll("s", "t", kind=PollingKind.LAST, count=count)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=1, max_size=600), is_logged_in=st.booleans())
def test_noise_is_survived(server, noise, is_logged_in):
    with ClassicClient(server.port) as client:
        if is_logged_in:
            client.log_in()
        client.socket.settimeout(0.05)
        try:
            client.raw(noise)
            client.receive()
        except OSError:
            pass
