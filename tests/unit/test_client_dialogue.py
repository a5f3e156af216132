"""What the client says and how it takes the answers, without a socket."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borzoi.client.dialogue import _EVICTIONS, Dialogue, describe, is_change
from borzoi.client.incoming import SPACE_BYTES, ReplyStream
from borzoi.client.memberships import GroupKey, Memberships
from borzoi.client.values import Consumer, PollingStrategy
from borzoi.model import errors
from borzoi.model import requests as rq
from borzoi.model.limits import FRAME_BYTES_CEILING
from borzoi.model.replies import GroupAssignment, PolledMessages
from borzoi.model.values import FENCED_PARTITION_ID, Partitioning, PartitioningKind
from borzoi.wire.commands import COMMANDS, Code
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.frames import (
    HEADER_BYTES,
    EvictionReason,
    pack_eviction,
    pack_reply,
    unpack_request,
)
from borzoi.wire.vsr.login import (
    PROTOCOL_VERSION,
    RegisterReply,
    decode_register,
    encode_register_reply,
    pack_version,
)
from borzoi.wire.vsr.operations import Operation, is_result_framed

REGISTERED = RegisterReply(user_id=3, session=42, protocol_version=PROTOCOL_VERSION, server_version="0.9.0")
CREDENTIALS = rq.LoginUser("alice", "secret")


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Peer:
    """Runs exchanges of a dialogue; `answers` are taken one after the other."""

    def __init__(self):
        self.clock = Clock()
        self.memberships = Memberships(period_s=5.0)
        self.dialogue = Dialogue(self.memberships, self.clock)
        self.headers = []
        self.bodies = []

    def run(self, exchange, *answers):
        waiting = list(answers)
        try:
            parts = next(exchange)
            while True:
                frame = b"".join(parts)
                header = unpack_request(frame)
                assert header.size == len(frame)
                self.headers.append(header)
                self.bodies.append(frame[HEADER_BYTES:])
                answer = waiting.pop(0)
                parts = exchange.send(memoryview(answer(header) if callable(answer) else answer))
        except StopIteration as stop:
            assert waiting == []
            return stop.value

    def log_in(self):
        return self.run(self.dialogue.log_in(CREDENTIALS), ok(encode_register_reply(REGISTERED)))


def ok(body=b""):
    def reply(header):
        framed = codec.frame_result(body) if is_result_framed(header.operation) else body
        return pack_reply(header, len(framed), 0) + framed

    return reply


def status(code):
    return lambda header: pack_reply(header, 0, 0, code)


def rejected(code):
    body = codec.reject_result(code)
    return lambda header: pack_reply(header, len(body), 0) + body


def encoded(code, reply):
    return ok(codec.encode_reply(code, reply))


@pytest.fixture
def peer():
    made = Peer()
    made.log_in()
    return made


# Logging in, sessions and numbers


def test_a_login_names_the_client_and_starts_a_session():
    peer = Peer()
    assert peer.log_in() == REGISTERED
    assert (peer.headers[0].operation, peer.headers[0].request, peer.headers[0].session) == (
        Operation.REGISTER,
        0,
        0,
    )
    register = decode_register(peer.bodies[0])
    assert register.credentials == CREDENTIALS
    assert (register.version.protocol_version, register.version.sdk_name) == (PROTOCOL_VERSION, "borzoi")
    assert peer.dialogue.session == 42


def test_a_second_login_logs_out_first_and_has_another_client_id(peer):
    first = peer.headers[0].client
    peer.run(peer.dialogue.log_in(rq.LoginWithToken("t")), ok(), ok(encode_register_reply(REGISTERED)))
    assert [header.operation for header in peer.headers[1:]] == [Operation.LOGOUT, Operation.REGISTER]
    assert peer.headers[-1].client != first
    assert peer.headers[-1].session == 0


def test_changes_are_numbered_and_reads_repeat_the_next_number(peer):
    peer.run(peer.dialogue.perform(rq.Ping()), ok())
    peer.run(peer.dialogue.perform(rq.DeleteStream("s")), ok())
    peer.run(peer.dialogue.perform(rq.Ping()), ok())
    peer.run(peer.dialogue.perform(rq.DeleteSegments("s", "t", 0, 1)), ok())
    assert [header.request for header in peer.headers[1:]] == [1, 1, 2, 2]
    assert {header.session for header in peer.headers[1:]} == {42}
    assert [header.code for header in peer.headers[1:]] == [Code.PING, 0, Code.PING, 0]
    assert peer.headers[2].request_checksum != bytes(16)
    assert peer.headers[1].request_checksum == bytes(16)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda row: row.name)
def test_nothing_but_a_ping_or_a_logout_is_said_without_a_session(command):
    request = command.request(*[1] * len(command.request.__struct_fields__))
    if isinstance(request, rq.PollMessages):
        request = poll(partition_id=1)
    exchange = Dialogue(Memberships(5.0)).perform(request)
    if isinstance(request, rq.Ping | rq.LogoutUser):
        assert next(exchange)
    else:
        with pytest.raises(errors.Unauthenticated):
            next(exchange)


def test_an_empty_or_zero_session_is_nonsense():
    peer = Peer()
    with pytest.raises(errors.RemoteProtocolError):
        peer.run(peer.dialogue.log_in(CREDENTIALS), lambda header: pack_reply(header, 0, 0))
    zero = RegisterReply(0, 0, PROTOCOL_VERSION, "1")
    with pytest.raises(errors.InvalidSession):
        peer.run(peer.dialogue.log_in(CREDENTIALS), ok(encode_register_reply(zero)))
    assert peer.dialogue.session == 0


def test_credentials_that_no_frame_can_carry_are_wrong_credentials():
    with pytest.raises(errors.InvalidCredentials):
        next(Dialogue(Memberships(5.0)).log_in(rq.LoginUser("u" * 256, "p")))


# Errors


@pytest.mark.parametrize("reason", EvictionReason)
def test_every_eviction_is_an_error_and_ends_the_session(peer, reason):
    frame = pack_eviction(bytes(16), reason, PROTOCOL_VERSION, pack_version(0, 10, 0))
    with pytest.raises(_EVICTIONS[reason]):
        peer.run(peer.dialogue.perform(rq.GetStreams()), frame)
    assert peer.dialogue.session == 0


def test_another_version_is_told_with_its_window():
    peer = Peer()
    frame = pack_eviction(
        bytes(16), EvictionReason.INCOMPATIBLE_PROTOCOL, pack_version(0, 13, 1), pack_version(0, 12, 0)
    )
    with pytest.raises(errors.IncompatibleProtocolVersion, match=r"client 0\.11\.0.*0\.12\.0 to 0\.13\.1"):
        peer.run(peer.dialogue.log_in(CREDENTIALS), frame)


@pytest.mark.parametrize("answer", [status, rejected])
def test_errors_have_the_class_of_their_code_and_say_what_was_asked(peer, answer):
    request = rq.CreateTopic("orders", 1, "events")
    with pytest.raises(errors.TopicNameAlreadyExists, match="create_topic, stream orders, name events"):
        peer.run(peer.dialogue.perform(request), answer(errors.TopicNameAlreadyExists.code))
    assert peer.dialogue.session == 42


def test_an_unknown_code_is_kept(peer):
    with pytest.raises(errors.Error, match="code 31415") as unknown:
        peer.run(peer.dialogue.perform(rq.GetStats()), status(31415))
    assert unknown.value.code == 31415


@pytest.mark.parametrize(
    "frame",
    [
        lambda header: pack_reply(header._replace(operation=Operation.CREATE_STREAM), 0, 0),
        lambda header: pack_reply(header, 1, 0) + b"x",
        lambda header: bytes(48) + struct.pack("<I8xB", HEADER_BYTES, 9) + bytes(195),
        lambda header: bytes(48) + struct.pack("<I8xB", HEADER_BYTES, 13) + bytes(194) + b"\xff",
    ],
    ids=["another operation", "a body too many", "no reply", "no reason"],
)
def test_nonsense_is_a_protocol_error(peer, frame):
    with pytest.raises(errors.RemoteProtocolError):
        peer.run(peer.dialogue.perform(rq.Ping()), frame)


def test_secrets_are_not_described():
    for request in (
        rq.LoginUser("alice", "secret"),
        rq.LoginWithToken("secret"),
        rq.ChangePassword("alice", "secret", "secret"),
        rq.CreateUser("alice", "secret", 1, None),
    ):
        assert "secret" not in describe(request)


def test_only_what_changes_nothing_may_be_sent_twice():
    reads = {row.name for row in COMMANDS if row.name.startswith(("get_", "describe", "ping", "snapshot"))}
    poll = rq.PollMessages(Consumer.single(1), 1, 1, 0, PollingStrategy.Next(), 1, auto_commit=False)
    assert not is_change(poll)
    assert is_change(
        rq.PollMessages(Consumer.single(1), 1, 1, 0, PollingStrategy.Next(), 1, auto_commit=True)
    )
    for row in COMMANDS:
        if row.request is not rq.PollMessages:
            request = row.request(*[1] * len(row.request.__struct_fields__))
            harmless = reads | {"sync_consumer_group", "flush_unsaved_buffer"}
            # The server knows a repetition.
            harmless |= {"stage_messages", "stage_copy", "commit_epoch", "abort_epoch", "forget_producer"}
            assert is_change(request) == (row.name not in harmless), row.name


def test_a_batch_is_not_copied_into_its_frame(peer):
    batch = bytearray(1000)
    request = rq.SendMessages("s", "t", Partitioning(PartitioningKind.BALANCED), 1, batch)
    assert next(peer.dialogue.perform(request))[-1] is batch


def test_a_frame_that_no_server_takes_is_not_sent(peer):
    class Huge(bytes):
        def __len__(self):
            return FRAME_BYTES_CEILING

    request = rq.SendMessages("s", "t", Partitioning(PartitioningKind.BALANCED), 1, Huge())
    with pytest.raises(errors.CommandLengthError):
        next(peer.dialogue.perform(request))


# Groups


def poll(consumer=None, partition_id=None):
    return rq.PollMessages(
        consumer or Consumer.group("g"), "s", "t", partition_id, PollingStrategy.Next(), 10, auto_commit=True
    )


def assigned(generation, *partitions):
    return encoded(Code.SYNC_CONSUMER_GROUP, GroupAssignment(generation, partitions))


def polled(partition_id):
    return encoded(Code.POLL_MESSAGES, PolledMessages(partition_id, 0, 0))


FENCED = polled(FENCED_PARTITION_ID)


def asked(peer):
    """The partitions polled so far, None for a sync."""
    found = []
    for header, body in zip(peer.headers, peer.bodies, strict=True):
        if header.code == Code.POLL_MESSAGES:
            found.append(codec.decode_request(Code.POLL_MESSAGES, body).partition_id)
        elif header.code == Code.SYNC_CONSUMER_GROUP:
            found.append(None)
    return found


def test_partitions_are_polled_in_turn_after_one_sync(peer):
    peer.run(peer.dialogue.perform(poll()), assigned(1, 4, 6), polled(4))
    for partition in (6, 4):
        assert peer.run(peer.dialogue.perform(poll()), polled(partition)).partition_id == partition
    assert asked(peer) == [None, 4, 6, 4]


def test_an_assignment_is_asked_for_again_when_it_is_old(peer):
    peer.run(peer.dialogue.perform(poll()), assigned(1, 0, 1), polled(0))
    peer.clock.now_s = 4.9
    peer.run(peer.dialogue.perform(poll()), polled(1))
    peer.clock.now_s = 5.0
    peer.run(peer.dialogue.perform(poll()), assigned(1, 0, 1), polled(0))
    peer.clock.now_s = 10.0
    peer.run(peer.dialogue.perform(poll()), assigned(2, 7), polled(7))
    assert asked(peer) == [None, 0, 1, None, 0, None, 7]


@pytest.mark.parametrize("fence", [FENCED, status(errors.ConsumerGroupPartitionNotOwned.code)])
def test_a_fence_leads_to_a_sync_and_one_more_poll(peer, fence):
    reply = peer.run(peer.dialogue.perform(poll()), assigned(1, 0), fence, assigned(2, 3), polled(3))
    assert reply.partition_id == 3
    assert asked(peer) == [None, 0, None, 3]


def test_two_fences_are_an_empty_poll(peer):
    reply = peer.run(peer.dialogue.perform(poll()), assigned(1, 0), FENCED, assigned(2, 3), FENCED)
    assert reply.messages_count == 0


def test_without_partitions_nothing_is_polled_but_every_call_asks(peer):
    for _ in range(2):
        assert peer.run(peer.dialogue.perform(poll()), assigned(1)).messages_count == 0
    assert asked(peer) == [None, None]


def test_who_is_no_member_is_told(peer):
    with pytest.raises(errors.ConsumerGroupMemberNotFound):
        peer.run(peer.dialogue.perform(poll()), ok())


def test_a_named_partition_of_somebody_else_is_an_error(peer):
    with pytest.raises(errors.ConsumerGroupPartitionNotOwned):
        peer.run(peer.dialogue.perform(poll(partition_id=1)), FENCED)


def test_memberships_outlive_their_assignments():
    memberships = Memberships(5.0)
    key = GroupKey("s", "t", "g")
    memberships.join(key)
    memberships.learn(key, GroupAssignment(1, (0,)), 0.0)
    memberships.forget_assignments()
    assert memberships.joined == (key,)
    assert memberships.is_due(key, 0.0)
    assert memberships.next_partition(key) is None
    assert memberships.only_group_of("s", "t") == "g"
    memberships.join(GroupKey("s", "t", "h"))
    assert memberships.only_group_of("s", "t") is None
    memberships.leave(key)
    memberships.leave(key)
    assert memberships.only_group_of("s", "t") == "h"


# Bytes


def frame_of(size, fill):
    return struct.pack("<48xI8xB", size, 8) + bytes([fill]) * (size - 61)


@given(
    st.lists(st.one_of(st.integers(256, 600), st.integers(SPACE_BYTES - 2, SPACE_BYTES * 2 + 3)), max_size=8),
    st.data(),
)
def test_frames_are_found_however_the_bytes_arrive(sizes, data):
    frames = [frame_of(size, number) for number, size in enumerate(sizes, 1)]
    stream = b"".join(frames)
    replies = ReplyStream()
    found = []
    position = 0
    while position < len(stream):
        space = replies.space()
        most = min(len(space), len(stream) - position)
        assert most > 0
        count = data.draw(st.integers(1, most)) if data.draw(st.booleans()) else most
        space[:count] = stream[position : position + count]
        position += count
        found += replies.received(count)
    assert [bytes(frame) for frame in found] == frames
    assert replies.is_between_frames


@pytest.mark.parametrize("size", [0, HEADER_BYTES - 1, FRAME_BYTES_CEILING + 1])
def test_a_frame_of_an_impossible_size_is_refused(size):
    replies = ReplyStream()
    replies.space()[:HEADER_BYTES] = struct.pack("<48xI8xB", size, 8) + bytes(195)
    with pytest.raises(errors.RemoteProtocolError, match=str(size)):
        replies.received(HEADER_BYTES)
