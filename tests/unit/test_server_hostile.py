"""What a server does with bytes no honest client sends: it answers or hangs up, and serves the others."""

import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from borzoi.model import requests as rq
from borzoi.model.errors import (
    BorzoiError,
    Error,
    FeatureUnavailable,
    InvalidCommand,
    InvalidFormat,
    InvalidMessagesCount,
    error_for,
)
from borzoi.model.limits import FRAME_BYTES_UNAUTHENTICATED
from borzoi.model.permissions import Permissions
from borzoi.model.values import Partitioning, PartitioningKind, PollingKind, UserStatus
from borzoi.wire.batch import NewMessage, build
from borzoi.wire.commands import Code
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.frames import HEADER_BYTES, EvictionReason, pack_request
from borzoi.wire.vsr.login import PROTOCOL_VERSION, ClientVersion, Register, encode_register
from borzoi.wire.vsr.operations import (
    CODE_BY_OPERATION,
    LEGACY_LOGIN_CODES,
    NON_REPLICATED_CODES,
    OPERATION_BY_CODE,
    Operation,
)
from support.in_process import LocalServer, numbered, payloads, poll_request, send_request
from support.wire_client import Evicted, WireClient

FRAME_BYTES_MAX = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "data"
    with LocalServer(path, {"limits.max_frame_size": "1 MiB"}) as running:
        running.ask(rq.CreateStream("s"))
        running.ask(rq.CreateTopic("s", 1, "t"))
        yield running
        assert running.events.of("request failed unexpectedly") == []


@pytest.fixture
def client(server):
    with WireClient(server.port) as connected:
        connected.register()
        yield connected


@pytest.fixture(autouse=True)
def others_are_served(server):
    """Whatever a test does to its own connection, this one works before and after."""
    with WireClient(server.port) as bystander:
        bystander.register()
        yield
        bystander.request(rq.Ping())
        assert bystander.request(rq.GetStream("s")).stream.name == "s"


def with_size(frame: bytes, size: int) -> bytes:
    return frame[:48] + struct.pack("<I", size) + frame[52:]


def is_refused(client: WireClient, data: bytes) -> bool:
    client.raw(data)
    return client.is_closed_by_server()


def refuse_unexplained(error: BorzoiError) -> None:
    """Nothing that a client sends may fail without a reason, as a fault of the server does."""
    assert error.code != Error.code


# Frames


@pytest.mark.parametrize("size", [0, 1, 255])
def test_a_frame_smaller_than_its_header_ends_the_connection(server, size):
    with WireClient(server.port) as stranger:
        assert is_refused(stranger, with_size(stranger.frame_of(rq.Ping()), size))


@pytest.mark.parametrize("size", [FRAME_BYTES_UNAUTHENTICATED + 1, FRAME_BYTES_MAX, 2**32 - 1])
def test_before_a_login_nothing_large_is_received(server, size):
    with WireClient(server.port) as stranger:
        assert is_refused(stranger, with_size(stranger.frame_of(rq.Ping()), size))


def test_before_a_login_the_largest_frame_is_read_whole(server):
    with WireClient(server.port) as stranger:
        body = bytes(FRAME_BYTES_UNAUTHENTICATED - HEADER_BYTES)
        stranger.raw(stranger.frame(Operation.REGISTER, body))
        with pytest.raises(Evicted) as evicted:
            stranger.receive()
        assert evicted.value.reason is EvictionReason.MALFORMED_LOGIN


def test_a_frame_at_the_limit_is_received_and_one_past_it_is_not(server, client):
    prefix = len(codec.encode_request(send_request("s", "t", [b"x"]))) - 1
    fits = FRAME_BYTES_MAX - HEADER_BYTES - prefix
    (confirmation,) = client.request(send_request("s", "t", [bytes(fits)]))
    assert confirmation.partition_id == 0
    assert is_refused(client, client.frame_of(send_request("s", "t", [bytes(fits + 1)]))[:HEADER_BYTES])


@pytest.mark.parametrize("command", [0, 4, 6, 8, 13, 255])
def test_a_frame_that_is_no_request_ends_the_connection(server, command):
    with WireClient(server.port) as stranger:
        frame = bytearray(stranger.frame_of(rq.Ping()))
        frame[60] = command
        assert is_refused(stranger, bytes(frame))


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02", b"\xff" * 64])
def test_an_unknown_protocol_ends_the_connection(server, first):
    with WireClient(server.port) as stranger:
        assert is_refused(stranger, first)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=1, max_size=600), zeros=st.integers(0, 64))
def test_noise_is_survived(server, noise, zeros):
    with WireClient(server.port, timeout_s=0.05) as stranger:
        try:
            stranger.raw(bytes(zeros) + noise)
            stranger.receive()
        except (OSError, Evicted, AssertionError):
            pass


def test_a_frame_cut_short_by_the_end_of_the_connection_is_forgotten(server):
    frame_of = WireClient(server.port)
    with frame_of:
        frame_of.register()
        frame = frame_of.frame_of(send_request("s", "t", [b"never whole"]))
        before = server.call(lambda: server.broker.catalog.topic("s", "t").messages_count)
        frame_of.raw(frame[: len(frame) - 1])
    with WireClient(server.port) as client:
        client.register()
        assert client.request(rq.GetTopic("s", "t")).topic.messages_count == before


@pytest.mark.parametrize("cut", [1, 3, 4, 60, 255, 256, 257, 280])
def test_a_frame_may_come_in_any_pieces(client, cut):
    frame = client.frame_of(send_request("s", "t", [b"in pieces"]))
    client.raw(frame[:cut])
    client.raw(frame[cut:])
    assert client.receive().header.status == 0


def test_a_login_and_a_send_may_come_byte_by_byte(server):
    with WireClient(server.port) as client:
        client.register()
        for frame in (
            client.frame_of(rq.GetMe()),
            client.frame_of(send_request("s", "t", [b"slowly"])),
        ):
            for index in range(len(frame)):
                client.raw(frame[index : index + 1])
            assert client.receive().header.status == 0


def test_pipelined_requests_are_answered_in_order(client):
    """Also around requests whose answer has to wait for a thread."""
    requests = [
        rq.GetStream("s"),
        rq.CreateUser("pipelined", "secret", UserStatus.ACTIVE, None),
        rq.GetUser("pipelined"),
        *[send_request("s", "t", [b"%d" % number]) for number in range(50)],
        rq.GetStats(),
        rq.DeleteUser("pipelined"),
        rq.Ping(),
    ]
    frames = [client.frame_of(request) for request in requests]
    client.raw(b"".join(frames))
    replies = [client.receive() for _ in frames]
    assert [reply.header.status for reply in replies] == [0] * len(frames)
    assert [reply.header.operation for reply in replies] == [frame[176] for frame in frames]
    offsets = [struct.unpack("<IIIIQ", reply.body)[4] for reply in replies[3:53]]
    assert offsets == list(range(offsets[0], offsets[0] + 50))


# Operations and codes


@pytest.mark.parametrize("operation", [0, 4, 63, 64, 68, 127, 150, 159, 163, 255])
def test_an_unknown_operation_is_refused(server, client, operation):
    client.raw(client.frame(operation))
    with pytest.raises(Evicted) as evicted:
        client.receive()
    assert evicted.value.reason is EvictionReason.INVALID_REQUEST_OPERATION
    with WireClient(server.port) as stranger:
        stranger.raw(stranger.frame(operation))
        with pytest.raises(Evicted):
            stranger.receive()


@pytest.mark.parametrize("code", [0, 2, 14, 99, 103, 104, 123, 607, 65_536, 2**32 - 1])
def test_an_unknown_code_is_an_invalid_command(client, code):
    client.raw(client.frame(Operation.NON_REPLICATED, code=code))
    with pytest.raises(InvalidCommand):
        client.result(client.receive())
    client.request(rq.Ping())


@pytest.mark.parametrize(
    "code",
    [code for operation, code in CODE_BY_OPERATION.items()]
    + [Code.LOGIN_REGISTER, Code.LOGIN_REGISTER_WITH_PERSONAL_ACCESS_TOKEN],
)
def test_a_command_with_an_operation_of_its_own_does_not_travel_as_another(client, code):
    client.raw(client.frame(Operation.NON_REPLICATED, code=code))
    with pytest.raises(FeatureUnavailable):
        client.result(client.receive())


@pytest.mark.parametrize("code", sorted(LEGACY_LOGIN_CODES))
def test_logins_of_the_older_generation_are_malformed(server, code):
    with WireClient(server.port) as stranger:
        stranger.raw(stranger.frame(Operation.NON_REPLICATED, b"\x04iggy\x04iggy", code=code))
        with pytest.raises(Evicted) as evicted:
            stranger.receive()
        assert evicted.value.reason is EvictionReason.MALFORMED_LOGIN
        stranger.register()


# Bodies

ALL_CODES = sorted(NON_REPLICATED_CODES | set(CODE_BY_OPERATION.values()))
GARBAGE = [
    b"",
    b"\0",
    b"\xff",
    bytes(64),
    b"\xff" * 64,
    b"\x01\x04\0\0\0\0" * 8,
    b"\x02\x01s\x02\x01t" + b"\xff" * 32,
    random.Random(5).randbytes(300),
    b"\x02\xff" + b"\xc3" * 255,
]


@pytest.mark.parametrize("code", ALL_CODES, ids=lambda code: code.name)
def test_garbage_in_a_body_is_answered(server, code):
    with WireClient(server.port) as client:
        client.register()
        for body in GARBAGE:
            try:
                client.command(code, body)
            except BorzoiError as error:
                refuse_unexplained(error)
            except Evicted:
                client.register()
            if code is Code.LOGOUT_USER:
                client.register()
        client.request(rq.Ping())
        assert client.request(rq.GetStream("s")) is not None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(code=st.sampled_from(ALL_CODES), body=st.binary(max_size=200))
def test_any_body_is_answered(server, code, body):
    with WireClient(server.port) as client:
        client.register()
        try:
            client.command(code, body)
        except BorzoiError as error:
            refuse_unexplained(error)
        except Evicted:
            pass


def valid_bodies() -> list[tuple[Code, bytes]]:
    requests = [
        rq.CreateStream("new"),
        rq.CreateTopic("s", 1, "new"),
        rq.CreateUser("new user", "secret", UserStatus.ACTIVE, Permissions()),
        rq.StoreConsumerOffset(poll_request("s", "t").consumer, "s", "t", 0, 0),
        poll_request("s", "t"),
        send_request("s", "t", [b"one", b"two"]),
        rq.JoinConsumerGroup("s", "t", "g"),
    ]
    codes = [Code.CREATE_STREAM, Code.CREATE_TOPIC, Code.CREATE_USER, Code.STORE_CONSUMER_OFFSET]
    codes += [Code.POLL_MESSAGES, Code.SEND_MESSAGES, Code.JOIN_CONSUMER_GROUP]
    return [(code, codec.encode_request(request)) for code, request in zip(codes, requests, strict=True)]


@pytest.mark.parametrize(("code", "body"), valid_bodies(), ids=lambda value: getattr(value, "name", ""))
def test_a_body_cut_short_anywhere_is_refused_or_means_something_else(server, code, body):
    with WireClient(server.port) as client:
        client.register()
        for size in range(0, len(body), max(1, len(body) // 60)):
            try:
                client.command(code, body[:size])
            except BorzoiError as error:
                refuse_unexplained(error)
        client.request(rq.Ping())


def test_a_body_that_does_not_match_its_checksum_is_refused(client):
    with pytest.raises(InvalidFormat):
        client.request(rq.CreateStream("wrong"), checksum=1)
    assert client.request(rq.GetStream("wrong")) is None
    client.request(rq.CreateStream("unchecked"), checksum=0)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (Code.CREATE_TOPIC, b"\x02\x01s" + b"\xff\xff\xff\xff" + b"\x01x"),
        (Code.CREATE_PARTITIONS, b"\x02\x01s\x02\x01t\xff\xff\xff\xff"),
        (Code.DELETE_PARTITIONS, b"\x02\x01s\x02\x01t\xff\xff\xff\xff"),
        (Code.CREATE_USER, b"\x05user1\x06secret\x01\x01\xff\xff\xff\xff"),
        (Code.SNAPSHOT, b"\x01\xff\x01"),
    ],
)
def test_an_absurd_count_is_refused_without_trying(client, code, body):
    with pytest.raises(BorzoiError) as refused:
        client.command(code, body)
    assert refused.value.code in {3, 4, 2015}


def test_an_absurd_number_of_messages_in_a_poll_is_just_all_there_are(client):
    polled = client.request(poll_request("s", "t", count=2**32 - 1, value=0))
    assert polled.messages_count <= 1 << 20
    nothing = client.request(poll_request("s", "t", count=0))
    assert nothing.messages_count == 0
    past = client.request(poll_request("s", "t", value=2**64 - 1))
    assert past.messages_count == 0
    assert (
        client.request(poll_request("s", "t", kind=PollingKind.TIMESTAMP, value=2**64 - 1)).messages_count
        == 0
    )


def test_many_segments_or_partitions_that_are_not_there_are_no_problem(client):
    client.request(rq.DeleteSegments("s", "t", 0, 2**32 - 1))
    with pytest.raises(error_for(3007)):
        client.request(rq.DeleteSegments("s", "t", 2**32 - 1, 1))
    with pytest.raises(error_for(3007)):
        client.request(poll_request("s", "t", partition=2**32 - 1))
    with pytest.raises(error_for(20)):
        client.request(send_request("s", "t", [b"x"], partition=2**32 - 1))


# Batches that lie


def send_body(batch: bytes, count: int) -> rq.SendMessages:
    partitioning = Partitioning(PartitioningKind.PARTITION_ID, bytes(4))
    return rq.SendMessages("s", "t", partitioning, count, batch)


def edited(batch: bytes, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    return bytes(changed)


HONEST = bytes(build([NewMessage(b"payload", id=1), NewMessage(b"another", id=2)]))
LIES = {
    "more messages than there are": (edited(HONEST, 48, "<I", 3), 3),
    "fewer messages than there are": (edited(HONEST, 48, "<I", 1), 1),
    "no messages": (edited(HONEST, 48, "<I", 0), 0),
    "2^32-1 messages": (edited(HONEST, 48, "<I", 2**32 - 1), 2**32 - 1),
    "count of the request": (HONEST, 3),
    "length too large": (edited(HONEST, 32, "<Q", len(HONEST) + 1), 2),
    "length too small": (edited(HONEST, 32, "<Q", len(HONEST) - 1), 2),
    "length absurd": (edited(HONEST, 32, "<Q", 2**64 - 1), 2),
    "reserved bytes": (edited(HONEST, 60, "<I", 1), 2),
    "payload length": (edited(HONEST, 256 + 36, "<I", 8), 2),
    "payload length absurd": (edited(HONEST, 256 + 36, "<I", 2**32 - 1), 2),
    "empty payload": (edited(edited(HONEST, 256 + 36, "<I", 0), 256 + 32, "<I", 7), 2),
    "headers length": (edited(HONEST, 256 + 32, "<I", 1), 2),
    "offset delta": (edited(HONEST, 256 + 24, "<I", 1), 2),
    "reserved bytes of a message": (edited(HONEST, 256 + 40, "<Q", 1), 2),
    "cut short": (HONEST[:-1], 2),
    "only a header": (HONEST[:256], 2),
    "nothing": (b"", 2),
    "something after it": (HONEST + b"x", 2),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused_and_not_stored(client, lie):
    batch, count = LIES[lie]
    before = client.request(rq.GetTopic("s", "t")).topic.messages_count
    with pytest.raises(BorzoiError) as refused:
        client.request(send_body(batch, count))
    assert refused.value.code in {InvalidCommand.code, InvalidMessagesCount.code, 4025, 4022, 4017}
    assert client.request(rq.GetTopic("s", "t")).topic.messages_count == before
    # The number of the refused request was not used up, and the next send is not taken for its repetition.
    (stored,) = client.request(send_request("s", "t", [b"honest"]), number=client.number)
    polled = client.request(poll_request("s", "t", value=stored.base_offset))
    assert payloads(polled) == [b"honest"]


def test_offsets_and_times_that_a_producer_claims_are_not_believed(client):
    batch = edited(edited(edited(HONEST, 0, "<Q", 9), 8, "<Q", 2**63), 16, "<Q", 2**63)
    (stored,) = client.request(send_body(batch, 2))
    polled = client.request(poll_request("s", "t", value=stored.base_offset))
    assert numbered(polled) == [(stored.base_offset, b"payload"), (stored.base_offset + 1, b"another")]


@pytest.mark.parametrize("metadata_length", [0, 3, 2**31, 2**32 - 1])
def test_a_send_whose_metadata_length_lies_is_refused(client, metadata_length):
    body = codec.encode_request(send_request("s", "t", [b"x"]))
    with pytest.raises(InvalidCommand):
        client.command(Code.SEND_MESSAGES, struct.pack("<I", metadata_length) + body[4:])


# Logins


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 20,
        struct.pack("<I", PROTOCOL_VERSION),
        struct.pack("<I", PROTOCOL_VERSION) + b"\x01a\x01b",
        struct.pack("<I", PROTOCOL_VERSION) + b"\x01a\x01b\xff\xff\xff",
        encode_register(Register(ClientVersion(PROTOCOL_VERSION, "a", "b"), rq.LoginUser("iggy", "iggy")))
        + b"x",
    ],
)
def test_a_login_that_makes_no_sense_is_malformed(server, body):
    with WireClient(server.port) as stranger:
        stranger.raw(stranger.frame(Operation.REGISTER, body))
        with pytest.raises(Evicted) as evicted:
            stranger.receive()
        assert evicted.value.reason is EvictionReason.MALFORMED_LOGIN
        stranger.register()


def test_a_login_without_a_client_id_is_malformed(server):
    with WireClient(server.port) as stranger:
        body = encode_register(
            Register(ClientVersion(PROTOCOL_VERSION, "a", "b"), rq.LoginUser("iggy", "iggy"))
        )
        stranger.client_id = bytes(16)
        stranger.raw(pack_request(len(body), client=bytes(16), operation=Operation.REGISTER) + body)
        with pytest.raises(Evicted) as evicted:
            stranger.receive()
        assert evicted.value.reason is EvictionReason.MALFORMED_LOGIN


def test_every_operation_of_the_protocol_was_tried():
    assert set(OPERATION_BY_CODE) - {
        Code.LOGIN_REGISTER,
        Code.LOGIN_REGISTER_WITH_PERSONAL_ACCESS_TOKEN,
    } == set(ALL_CODES)
