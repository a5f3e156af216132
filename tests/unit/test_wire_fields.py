"""Limits and refusals of the codecs that bodies are made of."""

import tracemalloc

import pytest
from msgspec.structs import replace

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.limits import OPTIONS_BYTES_MAX, OPTIONS_MAX, U32_MAX
from borzoi.model.permissions import ROOT_PERMISSIONS, Permissions, StreamPermissions, TopicPermissions
from borzoi.model.replies import (
    ClientDetails,
    ClientInfo,
    GroupDetails,
    GroupInfo,
    GroupMember,
    PolledMessages,
    StreamDetails,
    StreamInfo,
    TopicDetails,
    TopicInfo,
    UserDetails,
    UserInfo,
)
from borzoi.model.requests import (
    CreateStream,
    CreateToken,
    DeleteSegments,
    GetStream,
    LoginUser,
    Ping,
    SendMessages,
    UpdatePermissions,
)
from borzoi.model.values import (
    Compression,
    HeaderKind,
    Partitioning,
    PartitioningKind,
    Transport,
    TypedValue,
    UserStatus,
)
from borzoi.wire import fields, records
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.permissions import PERMISSIONS
from borzoi.wire.vsr import codec

ORDERS = StreamInfo(0, 0, 0, 0, 0, "orders")
TOPIC = TopicInfo(0, 0, 0, 0, Compression.NONE, 0, 0, 0, "t1")
CLIENT = ClientInfo(1, None, Transport.TCP, "127.0.0.1:1", 0)
GROUP = GroupInfo(0, 0, 0, "g")
USER = UserInfo(0, 0, UserStatus.ACTIVE, "iggy")
U32_MAX_BYTES = U32_MAX.to_bytes(4, "little")


def written(field, value):
    out = bytearray()
    field.write(out, value)
    return bytes(out)


def read(field, data):
    cursor = Cursor(data)
    value = field.read(cursor)
    cursor.finish()
    return value


def option(key, data=b"v", *, key_kind=2, value_kind=2):
    return b"".join(
        bytes((part_kind,)) + len(part).to_bytes(4, "little") + part
        for part_kind, part in ((key_kind, key), (value_kind, data))
    )


def test_cursor_refuses_to_read_past_the_end_and_stays_where_it_was():
    cursor = Cursor(b"abc")
    cursor.take(1)
    with pytest.raises(RemoteProtocolError):
        cursor.take(3)
    assert (cursor.position, cursor.remaining_bytes) == (1, 2)
    assert cursor.rest() == b"bc"
    cursor.finish()


@pytest.mark.parametrize(
    ("field", "data"),
    [
        (fields.BOOL, b"\2"),
        (fields.NAME8, b"\0"),
        (fields.NAME8, b"\2a"),
        (fields.NAME8, b"\1\xff"),
        (fields.STR32, b"\2\0\0\0\xc3\x28"),
        (fields.IDENTIFIER, b"\0\4\0\0\0\0"),
        (fields.IDENTIFIER, b"\3\4\0\0\0\0"),
        (fields.IDENTIFIER, b"\1\3\0\0\0"),
        (fields.IDENTIFIER, b"\1\0"),
        (fields.IDENTIFIER, b"\2\0"),
        (fields.IDENTIFIER, b"\2\1\xff"),
        (fields.CONSUMER, b"\3\2\1a"),
        (fields.OPTIONAL_PARTITION, b"\1\0\0\0"),
        (fields.PARTITIONING, b"\1\1a"),
        (fields.PARTITIONING, b"\2\0"),
        (fields.PARTITIONING, b"\3\0"),
        (fields.PARTITIONING, b"\4\0"),
        (records.Sized(fields.U8), b"\2\0\0\0\1\1"),
        (records.Flagged(fields.U8), b"\2\1"),
    ],
)
def test_malformed_field_is_the_peers_fault(field, data):
    with pytest.raises(RemoteProtocolError) as raised:
        read(field, data)
    assert raised.value.code == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (fields.U8, 256),
        (fields.U8, -1),
        (fields.U16, 2**16),
        (fields.U32, 2**32),
        (fields.U64, 2**64),
        (fields.F32, 1e40),
        (fields.NAME8, ""),
        (fields.NAME8, "n" * 256),
        (fields.NAME8, "\u20ac" * 86),
        (fields.STR8, "n" * 256),
        (fields.STR32, "\ud800"),
        (fields.IDENTIFIER, ""),
        (fields.IDENTIFIER, "n" * 256),
        (fields.IDENTIFIER, 2**32),
        (fields.IDENTIFIER, -1),
        (fields.OPTIONAL_PARTITION, 2**32),
        (fields.PARTITIONING, Partitioning(PartitioningKind.BALANCED, b"x")),
        (fields.PARTITIONING, Partitioning(PartitioningKind.PARTITION_ID, b"x")),
        (fields.PARTITIONING, Partitioning(PartitioningKind.MESSAGES_KEY, b"")),
        (fields.PARTITIONING, Partitioning(PartitioningKind.MESSAGES_KEY, bytes(256))),
        (records.Nullable(fields.U32, null=U32_MAX), U32_MAX),
        (records.Counted(fields.U8, fields.U8), (0,) * 256),
    ],
)
def test_value_that_the_layout_cannot_carry_is_our_own_fault(field, value):
    with pytest.raises(LocalProtocolError):
        written(field, value)


@pytest.mark.parametrize("text", ["n", "n" * 255, "\u20ac" * 85])
def test_name_at_its_limits_survives(text):
    assert read(fields.NAME8, written(fields.NAME8, text)) == text
    assert read(fields.IDENTIFIER, written(fields.IDENTIFIER, text)) == text


@pytest.mark.parametrize("flag", [0, 2, 255])
def test_partition_is_absent_unless_its_flag_is_one(flag):
    assert read(fields.OPTIONAL_PARTITION, bytes((flag, 7, 0, 0, 0))) is None
    assert read(fields.OPTIONAL_PARTITION, b"\1\7\0\0\0") == 7


def test_layout_that_does_not_name_every_field_is_refused_when_it_is_declared():
    with pytest.raises(TypeError):
        records.Record(GetStream)
    with pytest.raises(TypeError):
        records.Record(Ping, stream=fields.IDENTIFIER)


@pytest.mark.parametrize("wrap", [records.Many, records.Counted, records.OrNothing])
def test_value_that_takes_no_bytes_cannot_be_counted_or_left_out(wrap):
    with pytest.raises(TypeError):
        wrap(records.Record(Ping))


PREFIX_BEFORE_COUNT = [
    (Code.GET_TOPICS, b""),
    (Code.SEND_MESSAGES, b""),
    (Code.DESCRIBE_OPTIONS, b""),
    (Code.GET_CLUSTER_METADATA, bytes(4)),
    (Code.SYNC_CONSUMER_GROUP, bytes(8)),
    (Code.GET_STATS, bytes(108 + 5 * 4 + 4)),
    (
        Code.GET_CONSUMER_GROUP,
        codec.encode_reply(
            Code.GET_CONSUMER_GROUP, GroupDetails(replace(GROUP, members_count=1), (GroupMember(0, ()),))
        )[:-4],
    ),
]


@pytest.mark.parametrize(("code", "prefix"), PREFIX_BEFORE_COUNT)
@pytest.mark.parametrize("tail_bytes", [0, 3, 64])
def test_count_that_the_body_cannot_hold_is_refused_before_memory_is_taken(code, prefix, tail_bytes):
    body = prefix + U32_MAX_BYTES + bytes(tail_bytes)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="items do not fit"):
            codec.decode_reply(code, body)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("code", "details", "count_at"),
    [
        (Code.GET_STREAM, StreamDetails(ORDERS, ()), 12),
        (Code.GET_TOPIC, TopicDetails(TOPIC, ()), 12),
        (Code.GET_CONSUMER_GROUP, GroupDetails(GROUP, ()), 8),
        (Code.GET_CLIENT, ClientDetails(CLIENT, ()), 24),
    ],
)
def test_head_that_promises_more_than_follows_is_refused(code, details, count_at):
    body = bytearray(codec.encode_reply(code, details))
    assert body[count_at : count_at + 4] == bytes(4)
    body[count_at : count_at + 4] = U32_MAX_BYTES
    with pytest.raises(RemoteProtocolError, match="items do not fit"):
        codec.decode_reply(code, body)


def test_details_whose_count_contradicts_their_items_are_never_sent():
    with pytest.raises(LocalProtocolError, match="topics_count"):
        codec.encode_reply(Code.GET_STREAM, StreamDetails(ORDERS, (TOPIC,)))


def test_options_at_the_limit_are_read_and_one_more_is_refused():
    block = b"".join(option(b"%d" % number) for number in range(OPTIONS_MAX))
    request = codec.decode_request(Code.CREATE_STREAM, b"\1s" + block)
    assert len(request.options) == OPTIONS_MAX
    assert codec.encode_request(request) == b"\1s" + block
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(Code.CREATE_STREAM, b"\1s" + block + option(b"more"))
    with pytest.raises(LocalProtocolError):
        codec.encode_request(
            replace(request, options={**request.options, "more": TypedValue(HeaderKind.STRING, b"v")})
        )


def test_options_block_of_the_largest_size_is_read_and_one_byte_more_is_refused():
    full = [option(b"%0255d" % number, bytes(255)) for number in range(192)]
    missing = OPTIONS_BYTES_MAX - sum(map(len, full))
    block = b"".join(full)
    exact = block + option(b"k", bytes(missing - 11))
    assert len(exact) == OPTIONS_BYTES_MAX
    request = codec.decode_request(Code.CREATE_STREAM, b"\1s" + exact)
    assert codec.encode_request(request) == b"\1s" + exact
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(Code.CREATE_STREAM, b"\1s" + block + option(b"kk", bytes(missing - 11)))
    too_long = {**request.options, "k": TypedValue(HeaderKind.RAW, bytes(missing - 10))}
    with pytest.raises(LocalProtocolError):
        codec.encode_request(replace(request, options=too_long))


@pytest.mark.parametrize(
    "block",
    [
        option(b"k") * 2,
        option(b"k", key_kind=1),
        option(b"k", key_kind=0),
        option(b"k", value_kind=0),
        option(b"k", value_kind=16),
        option(b""),
        option(b"k", b""),
        option(b"k" * 256),
        option(b"k", bytes(256)),
        option(b"\xff"),
        option(b"k")[:-1],
        option(b"k") + b"\2",
    ],
)
def test_options_of_a_wrong_structure_are_refused_as_an_invalid_command(block):
    with pytest.raises(RemoteProtocolError) as raised:
        codec.decode_request(Code.CREATE_STREAM, b"\1s" + block)
    assert raised.value.code == 3


@pytest.mark.parametrize(
    "options",
    [
        {"": TypedValue(HeaderKind.RAW, b"v")},
        {"k" * 256: TypedValue(HeaderKind.RAW, b"v")},
        {"k": TypedValue(HeaderKind.RAW, b"")},
        {"k": TypedValue(HeaderKind.RAW, bytes(256))},
    ],
)
def test_options_of_a_wrong_structure_are_never_sent(options):
    with pytest.raises(LocalProtocolError):
        codec.encode_request(CreateStream("s", options))


def test_permissions_block_is_laid_out_as_the_protocol_says():
    permissions = Permissions(
        streams={
            1: StreamPermissions(read_stream=True),
            2: StreamPermissions(topics={3: TopicPermissions(send_messages=True), 4: TopicPermissions()}),
        }
    )
    block = (
        bytes(10)
        + b"\1"
        + b"\1\0\0\0" + b"\0\1\0\0\0\0" + b"\0"
        + b"\1"
        + b"\2\0\0\0" + bytes(6) + b"\1"
        + b"\3\0\0\0" + b"\0\0\0\1" + b"\1"
        + b"\4\0\0\0" + bytes(4) + b"\0"
        + b"\0"
    )  # fmt: skip
    assert written(PERMISSIONS, permissions) == block
    assert read(PERMISSIONS, block) == permissions


def test_any_byte_but_zero_is_a_granted_permission():
    assert read(PERMISSIONS, b"\xff" * 10 + b"\0") == ROOT_PERMISSIONS


def test_permissions_for_the_same_stream_twice_are_refused():
    stream = b"\1\0\0\0" + bytes(7)
    with pytest.raises(RemoteProtocolError):
        read(PERMISSIONS, bytes(10) + b"\1" + stream + b"\1" + stream + b"\0")


def test_permissions_block_fills_its_length_exactly():
    body = codec.encode_request(UpdatePermissions(1, Permissions()))
    assert body[6:] == b"\1" + b"\x0b\0\0\0" + bytes(11)
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(Code.UPDATE_PERMISSIONS, body[:6] + b"\1" + b"\x0c\0\0\0" + bytes(12))


def test_user_without_permissions_ends_with_four_zero_bytes():
    details = UserDetails(USER, None)
    listed = codec.encode_reply(Code.GET_USERS, (USER,))
    body = codec.encode_reply(Code.GET_USER, details)
    assert body == listed + bytes(4)
    assert codec.decode_reply(Code.GET_USER, body) == details
    for tail in (bytes(1), bytes(3), bytes(5), b"\0\0\0\1"):
        with pytest.raises(RemoteProtocolError):
            codec.decode_reply(Code.GET_USER, listed + tail)


def test_only_the_list_of_topics_starts_with_a_count():
    assert codec.encode_reply(Code.GET_TOPICS, ()) == bytes(4)
    assert codec.decode_reply(Code.GET_TOPICS, b"") == ()
    for code in (Code.GET_STREAMS, Code.GET_USERS, Code.GET_CLIENTS, Code.GET_CONSUMER_GROUPS):
        assert codec.encode_reply(code, ()) == b""


def test_client_without_a_user_has_the_highest_id():
    body = codec.encode_reply(Code.GET_CLIENTS, (CLIENT,))
    assert body[4:8] == U32_MAX_BYTES
    assert codec.decode_reply(Code.GET_CLIENTS, body) == (CLIENT,)


def test_send_whose_metadata_does_not_fit_its_length_is_refused():
    request = SendMessages("orders", "t1", Partitioning(PartitioningKind.BALANCED), 1, bytes(256))
    body = codec.encode_request(request)
    for length in (0, 3, body[0] - 1, body[0] + 1, len(body), U32_MAX):
        with pytest.raises(RemoteProtocolError):
            codec.decode_request(Code.SEND_MESSAGES, length.to_bytes(4, "little") + body[4:])


def test_thing_that_does_not_exist_is_an_empty_body_but_a_made_one_is_not():
    assert codec.encode_reply(Code.GET_STREAM, None) == b""
    assert codec.decode_reply(Code.GET_STREAM, b"") is None
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.CREATE_STREAM, None)
    with pytest.raises(RemoteProtocolError):
        codec.decode_reply(Code.CREATE_STREAM, b"")


def test_poll_reply_is_never_empty():
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.POLL_MESSAGES, None)
    with pytest.raises(RemoteProtocolError):
        codec.decode_reply(Code.POLL_MESSAGES, b"")
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.POLL_MESSAGES, PolledMessages(2**32, 0, 0))


def test_reply_of_the_wrong_class_is_never_sent():
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.CREATE_STREAM, ORDERS)
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.GET_STATS, ORDERS)
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.PING, ORDERS)


def test_request_that_is_no_plain_command_is_never_sent():
    for request in (LoginUser("iggy", "iggy"), object()):
        with pytest.raises(LocalProtocolError):
            codec.encode_request(request)
    for request in (CreateToken("", 0), CreateToken("t", 2**64), DeleteSegments(1, 1, 2**32, 0)):
        with pytest.raises(LocalProtocolError):
            codec.encode_request(request)


def test_code_of_another_generation_is_refused():
    for code in (Code.LOGIN_USER, Code.LOGIN_REGISTER):
        with pytest.raises(RemoteProtocolError):
            codec.decode_request(code, b"")


def test_result_section_tells_success_from_rejection():
    assert codec.frame_result(b"") == bytes(4)
    assert codec.split_result(codec.frame_result(b"payload")) == (0, b"payload")
    rejection = codec.reject_result(1009)
    assert rejection == bytes.fromhex("01000000 00000000 f1030000")
    assert codec.split_result(rejection) == (1009, b"")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0",
        b"\1\0\0\0",
        codec.reject_result(1009)[:-1],
        codec.reject_result(1009) + b"x",
        codec.reject_result(0),
        U32_MAX_BYTES + bytes(8),
    ],
)
def test_malformed_result_section_is_refused(body):
    with pytest.raises(RemoteProtocolError):
        codec.split_result(body)
