"""Bodies captured from the official 0.9.0 client, and replies that it accepted."""

import pytest

from borzoi.model.errors import LocalProtocolError
from borzoi.model.replies import ClusterMetadata, ClusterNode, Confirmation, PolledMessages
from borzoi.model.requests import (
    CreateStream,
    CreateTopic,
    LoginUser,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    HeaderKind,
    OffsetAck,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
    TypedValue,
)
from borzoi.wire.commands import Code
from borzoi.wire.vsr import codec, login, messages, offsets

HEADER_BYTES = 256


def frame_body(size_bytes: int, rows: str) -> bytes:
    """A frame drawn as `offset: hex` rows of which those of zeros are left out; without its header."""
    frame = bytearray(size_bytes)
    for row in rows.strip().splitlines():
        offset, _, data = row.partition(":")
        raw = bytes.fromhex(data)
        frame[int(offset, 16) : int(offset, 16) + len(raw)] = raw
    assert len(frame) == size_bytes
    return bytes(frame[HEADER_BYTES:])


LOGIN = frame_body(
    290,
    """
    0100: 002c0000 08727573 742d7364 6b06302e 31312e30 04696767 79046967 67790000
    0120: 0000
    """,
)
CREATE_STREAM = frame_body(263, "0100: 066f7264 657273")
CREATE_TOPIC = frame_body(
    347,
    """
    0100: 02066f72 64657273 03000000 02743102 1a000000 636f6e73 756d6572 5f6f6666
    0120: 7365745f 64757261 62696c69 7479020a 00000072 65706c69 63617465 64020a00
    0140: 00006475 72616269 6c697479 020a0000 00726570 6c696361 746564
    """,
)
SEND = frame_body(
    657,
    """
    0100: 16000000 02066f72 64657273 02027431 02040000 00000200 00000000 00000000
    0120: 00000000 00000000 00000000 00000000 00006a5c a50a5660 06007701 00000000
    0140: 0000f8c7 0d2755a7 30200200 00000000 00000000 00000000 00000000 00000000
    0200: 00000000 00000000 00000000 00000000 00000000 00000000 00008e5c a59edbbd
    0220: bfb90100 00000000 00000000 00000000 00000000 00000000 00000000 00000500
    0240: 00000000 00000000 00006865 6c6c6fb9 4a09fe5a f1e5e102 00000000 00000000
    0260: 00000000 00000001 00000015 0000000c 00000006 00000000 00000000 00000077
    0280: 6f726c64 21020100 00006b02 01000000 76
    """,
)
POLL = frame_body(
    292,
    """
    0100: 01020263 3102066f 72646572 73020274 31010000 00000300 00000000 0000000a
    0120: 00000000
    """,
)
REPLICATED = TypedValue(HeaderKind.STRING, b"replicated")

CAPTURED = {
    Code.CREATE_STREAM: (CREATE_STREAM, CreateStream("orders")),
    Code.CREATE_TOPIC: (
        CREATE_TOPIC,
        CreateTopic("orders", 3, "t1", {"consumer_offset_durability": REPLICATED, "durability": REPLICATED}),
    ),
    Code.SEND_MESSAGES: (
        SEND,
        SendMessages("orders", "t1", Partitioning(PartitioningKind.PARTITION_ID, bytes(4)), 2, SEND[26:]),
    ),
    Code.POLL_MESSAGES: (
        POLL,
        PollMessages(
            Consumer(ConsumerKind.CONSUMER, "c1"),
            "orders",
            "t1",
            0,
            PollingStrategy(PollingKind.FIRST),
            10,
            auto_commit=False,
        ),
    ),
}

ACCEPTED = {
    Code.GET_CLUSTER_METADATA: (
        (
            "0b000000 73696e676c652d6e6f6465 01000000 09000000 696767792d6e6f6465 09000000 3132372e302e302e31"
            "aa46 0000 ab46 ac46 00 00"
        ),
        ClusterMetadata("single-node", (ClusterNode("iggy-node", "127.0.0.1", 18090, 0, 18091, 18092),)),
    ),
    Code.SEND_MESSAGES: (
        "01000000 00000000 00000000 00000000 0000000000000000",
        (Confirmation(0, 0, 0, 0),),
    ),
    Code.POLL_MESSAGES: ("00000000 0000000000000000 00000000", PolledMessages(0, 0, 0, [])),
}


@pytest.mark.parametrize("code", CAPTURED)
def test_captured_request_decodes_and_encodes_to_the_same_bytes(code):
    body, request = CAPTURED[code]
    assert codec.decode_request(code, memoryview(body)) == request
    assert codec.encode_request(request) == body


@pytest.mark.parametrize("code", ACCEPTED)
def test_reply_is_byte_for_byte_what_the_client_accepted(code):
    text, reply = ACCEPTED[code]
    body = bytes.fromhex(text)
    assert codec.encode_reply(code, reply) == body
    assert codec.decode_reply(code, body) == reply


def test_captured_login_decodes_and_encodes_to_the_same_bytes():
    register = login.decode_register(memoryview(LOGIN))
    assert register == login.Register(
        login.ClientVersion(login.PROTOCOL_VERSION, "rust-sdk", "0.11.0"), LoginUser("iggy", "iggy")
    )
    assert login.encode_register(register) == LOGIN


def test_login_reply_is_byte_for_byte_what_the_client_accepted():
    reply = login.RegisterReply(0, 1, login.PROTOCOL_VERSION, "0.9.0")
    body = codec.frame_result(login.encode_register_reply(reply))
    assert body == bytes.fromhex("00000000 00000000 0100000000000000 002c0000 05 302e392e30")
    error_code, payload = codec.split_result(body)
    assert (error_code, login.decode_register_reply(payload)) == (0, reply)


def test_batch_of_a_send_is_a_view_of_the_body_and_not_a_copy():
    body = bytearray(SEND)
    batch = codec.decode_request(Code.SEND_MESSAGES, memoryview(body)).batch
    body[-1] = ord("w")
    assert batch[-1] == ord("w")


def test_parts_that_a_caller_may_cache_say_the_same_as_the_whole():
    send = codec.decode_request(Code.SEND_MESSAGES, SEND)
    assert messages.decode_send_routing(SEND[4:26]) == (send.stream, send.topic, send.partitioning, 2)
    assert messages.decode_send_target(SEND[4:22]) == (send.stream, send.topic, send.partitioning)
    assert messages.send_prefix(send) == SEND[:26]

    poll = codec.decode_request(Code.POLL_MESSAGES, POLL)
    split = len(POLL) - messages.POLL_SUFFIX.size
    assert messages.decode_poll_target(POLL[:split]) == (poll.consumer, poll.stream, poll.topic, 0)
    assert messages.POLL_SUFFIX.unpack_from(POLL, split) == (PollingKind.FIRST, 0, 10, 0)


def test_target_of_a_store_is_what_stands_before_its_suffix():
    consumer = Consumer(ConsumerKind.GROUP, 7)
    store = StoreConsumerOffset(consumer, "orders", 1, None, 41, OffsetAck.NONE)
    body = codec.encode_request(store)
    split = len(body) - offsets.STORE_SUFFIX.size
    assert offsets.decode_target(body[:split]) == (consumer, "orders", 1, None)
    assert offsets.STORE_SUFFIX.unpack_from(body, split) == (41, OffsetAck.NONE)


def test_quick_reply_to_a_send_is_the_usual_one():
    confirmation = Confirmation(1, 2, 3, 2**40)
    assert messages.send_reply(confirmation) == codec.encode_reply(Code.SEND_MESSAGES, (confirmation,))
    with pytest.raises(LocalProtocolError):
        messages.send_reply(Confirmation(1, 2, 2**32, 0))


def test_prefix_of_a_poll_reply_is_the_reply_without_its_batches():
    reply = PolledMessages(3, 99, 2, [b"first", b"second"])
    prefix = messages.poll_reply_prefix(3, 99, 2)
    assert codec.encode_reply(Code.POLL_MESSAGES, reply) == prefix + b"firstsecond"
