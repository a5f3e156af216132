"""Ids in dialects that count from one, and what a dialect cannot say."""

import pytest
from msgspec.structs import replace

from borzoi.model import permissions as pm
from borzoi.model import replies as rp
from borzoi.model import requests as rq
from borzoi.model import values as vl
from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.limits import U32_MAX
from borzoi.wire.classic import codec, messages, offsets
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.commands import Code

A, B, C, D = Dialect
FROM_ONE, FROM_ZERO = (A, B), (C, D)
IN_ALL_DIALECTS = pytest.mark.parametrize("dialect", Dialect, ids=lambda dialect: dialect.name)
IN_OLD_DIALECTS = pytest.mark.parametrize("dialect", FROM_ONE, ids=lambda dialect: dialect.name)

FIRST = vl.PollingStrategy(vl.PollingKind.FIRST)
INVALID_IDENTIFIER = 6


def number(value):
    return value.to_bytes(4, "little")


def ident(value):
    return b"\1\4" + number(value)


def group(id_):
    return vl.Consumer(vl.ConsumerKind.GROUP, id_)


def plain(id_):
    return vl.Consumer(vl.ConsumerKind.CONSUMER, id_)


def partition(id_):
    return vl.Partitioning(vl.PartitioningKind.PARTITION_ID, number(id_))


@IN_ALL_DIALECTS
def test_numeric_identifiers_of_a_request_are_shifted(dialect):
    one = dialect.id_base
    body = ident(one) + ident(2 + one) + ident(7 + one)
    request = rq.JoinConsumerGroup(0, 2, 7)
    assert codec.decode_request(Code.JOIN_CONSUMER_GROUP, body, dialect) == request
    assert codec.encode_request(request, dialect) == body


@IN_ALL_DIALECTS
def test_user_identifiers_and_logged_in_user_are_shifted(dialect):
    body = ident(dialect.id_base)
    assert codec.decode_request(Code.GET_USER, body, dialect) == rq.GetUser(0)
    reply = codec.encode_reply(Code.LOGIN_USER, rp.LoggedIn(0), dialect)
    assert reply == number(dialect.id_base)


@IN_ALL_DIALECTS
def test_partition_of_flush_and_segments_is_shifted(dialect):
    names = b"\2\1s\2\1t"
    flush = names + number(3 + dialect.id_base) + b"\1"
    assert codec.decode_request(Code.FLUSH_UNSAVED_BUFFER, flush, dialect) == rq.FlushUnsavedBuffer(
        "s", "t", 3, fsync=True
    )
    segments = names + number(3 + dialect.id_base) + number(9)
    assert codec.decode_request(Code.DELETE_SEGMENTS, segments, dialect) == rq.DeleteSegments("s", "t", 3, 9)


@IN_OLD_DIALECTS
def test_plain_consumer_keeps_its_number_and_a_group_does_not(dialect):
    end = b"\2\1s\2\1t" + number(0)
    for wire, consumer in (
        (b"\1" + ident(1), plain(1)),
        (b"\1" + ident(0), plain(0)),
        (b"\2" + ident(1), group(0)),
    ):
        assert offsets.decode_target(wire + end, dialect) == (consumer, "s", "t", None)
        request = rq.GetConsumerOffset(consumer, "s", "t", None)
        assert codec.encode_request(request, dialect) == wire + end


@IN_OLD_DIALECTS
def test_partition_zero_is_no_partition_and_one_is_the_first(dialect):
    start = b"\1" + ident(1) + b"\2\1s\2\1t"
    assert offsets.decode_target(start + number(0), dialect)[3] is None
    assert offsets.decode_target(start + number(1), dialect)[3] == 0


@IN_ALL_DIALECTS
def test_partition_of_a_send_is_shifted_and_a_key_is_not(dialect):
    one = dialect.id_base
    routes = {
        b"\2\4" + number(4 + one): partition(4),
        b"\3\4" + number(4): vl.Partitioning(vl.PartitioningKind.MESSAGES_KEY, number(4)),
        b"\1\0": vl.Partitioning(vl.PartitioningKind.BALANCED),
    }
    for wire, partitioning in routes.items():
        assert messages.decode_route(b"\2\1s" + ident(one) + wire, dialect) == ("s", 0, partitioning)


@IN_ALL_DIALECTS
def test_permissions_are_shifted_inside(dialect):
    one = dialect.id_base
    permissions = pm.Permissions(
        streams={0: pm.StreamPermissions(read_stream=True, topics={5: pm.TopicPermissions(read_topic=True)})}
    )
    block = (
        bytes(10) + b"\1" + number(one) + b"\0\1\0\0\0\0" + b"\1" + number(5 + one) + b"\0\1\0\0" + b"\0\0"
    )
    body = ident(2 + one) + b"\1" + number(len(block)) + block
    request = rq.UpdatePermissions(2, permissions)
    assert codec.encode_request(request, dialect) == body
    assert codec.decode_request(Code.UPDATE_PERMISSIONS, body, dialect) == request
    details = rp.UserDetails(rp.UserInfo(2, 0, vl.UserStatus.ACTIVE, "bob"), permissions)
    assert codec.encode_reply(Code.GET_USER, details, dialect).endswith(block)


@IN_ALL_DIALECTS
def test_ids_of_replies_are_shifted(dialect):
    one = dialect.id_base
    topic = rp.TopicInfo(1, 0, 1, 0, vl.Compression.NONE, 0, 0, 0, "t")
    stream = rp.StreamDetails(rp.StreamInfo(3, 0, 1, 0, 0, "s"), (topic,))
    body = codec.encode_reply(Code.GET_STREAM, stream, dialect)
    assert (body[:4], body[34:38]) == (number(3 + one), number(1 + one))
    details = rp.TopicDetails(topic, (rp.PartitionInfo(6, 0, 1, 0, 0, 0),))
    assert codec.encode_reply(Code.GET_TOPIC, details, dialect)[-40:-36] == number(6 + one)
    stored = rp.ConsumerOffset(2, 9, 8)
    assert codec.encode_reply(Code.GET_CONSUMER_OFFSET, stored, dialect)[:4] == number(2 + one)
    members = rp.GroupDetails(rp.GroupInfo(4, 2, 1, "g"), (rp.GroupMember(0, (0, 1)),))
    assert codec.encode_reply(Code.GET_CONSUMER_GROUP, members, dialect) == b"".join(
        (number(4 + one), number(2), number(1), b"\1g", number(one), number(2), number(one), number(1 + one))
    )
    assert messages.poll_reply_prefix(2, 9, 1, dialect)[:4] == number(2 + one)


@IN_ALL_DIALECTS
def test_client_info_shifts_its_user_and_groups_but_not_itself(dialect):
    one = dialect.id_base
    client = rp.ClientInfo(7, 0, vl.Transport.TCP, "", 1)
    body = codec.encode_reply(Code.GET_ME, rp.ClientDetails(client, (rp.ClientGroup(1, 2, 3),)), dialect)
    assert body[:8] == number(7) + number(one)
    assert body[-12:] == number(1 + one) + number(2 + one) + number(3 + one)
    nobody = codec.encode_reply(Code.GET_CLIENTS, (replace(client, user_id=None),), dialect)
    assert nobody[4:8] == number(0 if one else U32_MAX)


@IN_ALL_DIALECTS
def test_member_without_a_partition_is_told_of_none(dialect):
    assert messages.poll_reply_prefix(vl.FENCED_PARTITION_ID, 0, 0, dialect) == bytes(16)


@IN_OLD_DIALECTS
@pytest.mark.parametrize(
    ("code", "body"),
    [
        (Code.GET_STREAM, ident(0)),
        (Code.GET_TOPIC, ident(1) + ident(0)),
        (Code.GET_USER, ident(0)),
        (Code.JOIN_CONSUMER_GROUP, ident(1) + ident(1) + ident(0)),
        (Code.GET_CONSUMER_OFFSET, b"\2" + ident(0) + ident(1) + ident(1) + number(0)),
        (Code.DELETE_SEGMENTS, ident(1) + ident(1) + number(0) + number(1)),
    ],
)
def test_zero_is_no_identifier_where_ids_count_from_one(code, body, dialect):
    with pytest.raises(RemoteProtocolError) as raised:
        codec.decode_request(code, body, dialect)
    assert raised.value.code == INVALID_IDENTIFIER


@IN_OLD_DIALECTS
def test_zero_is_no_partition_to_send_to_where_ids_count_from_one(dialect):
    with pytest.raises(RemoteProtocolError) as raised:
        messages.decode_route(b"\2\1s\2\1t\2\4" + number(0), dialect)
    assert raised.value.code == INVALID_IDENTIFIER


@IN_ALL_DIALECTS
@pytest.mark.parametrize("wire", [b"\0\1a", b"\3\1a", b"\2\0", b"\1\0", b"\1\3abc", b"\1\5abcde"])
def test_malformed_identifier_has_its_own_status(wire, dialect):
    with pytest.raises(RemoteProtocolError) as raised:
        codec.decode_request(Code.GET_STREAM, wire, dialect)
    assert raised.value.code == INVALID_IDENTIFIER


@IN_ALL_DIALECTS
@pytest.mark.parametrize("wire", [b"\2\0", b"\3\0", b"\1\1a", b"\2\3abc"])
def test_malformed_partitioning_has_its_own_status(wire, dialect):
    with pytest.raises(RemoteProtocolError) as raised:
        messages.decode_route(b"\2\1s\2\1t" + wire, dialect)
    assert raised.value.code == 4028


@IN_OLD_DIALECTS
def test_wanted_id_of_a_new_thing_is_shifted_like_any_other(dialect):
    wanted = number(77)
    assert codec.decode_request(Code.CREATE_STREAM, wanted + b"\1s", dialect) == rq.CreateStream(
        "s", wanted_id=76
    )
    topic = b"\2\1s" + wanted + number(3) + b"\2" + bytes(8) + bytes(8) + b"\5" + b"\1t"
    gzip = vl.TypedValue(vl.HeaderKind.STRING, b"gzip")
    assert codec.decode_request(Code.CREATE_TOPIC, topic, dialect) == rq.CreateTopic(
        "s", 3, "t", {"compression_algorithm": gzip}, wanted_id=76
    )
    group_body = b"\2\1s\2\1t" + wanted + b"\1g"
    assert codec.decode_request(Code.CREATE_CONSUMER_GROUP, group_body, dialect) == rq.CreateConsumerGroup(
        "s", "t", "g", wanted_id=76
    )
    assert codec.decode_request(Code.CREATE_STREAM, number(0) + b"\1s", dialect) == rq.CreateStream("s")


@IN_OLD_DIALECTS
@pytest.mark.parametrize(
    "request_",
    [rq.GetStream(U32_MAX), rq.GetStream(-1), rq.GetConsumerOffset(plain(1), "s", "t", U32_MAX)],
)
def test_id_that_has_no_number_is_refused(request_, dialect):
    with pytest.raises(LocalProtocolError):
        codec.encode_request(request_, dialect)


@IN_OLD_DIALECTS
def test_last_partition_has_no_number_to_send_to(dialect):
    send = messages.Send("s", "t", partition(U32_MAX), 1, memoryview(b""), memoryview(bytes(16)))
    with pytest.raises(LocalProtocolError):
        messages.encode_send(send, dialect)


TEXT = vl.TypedValue(vl.HeaderKind.STRING, b"7 days")


@IN_ALL_DIALECTS
@pytest.mark.parametrize(
    "request_",
    [
        rq.CreateStream("s", {"x": TEXT}),
        rq.CreateTopic("s", 1, "t", {"durability": TEXT}),
        rq.CreateTopic("s", 1, "t", {"message_expiry": TEXT}),
        rq.CreateTopic("s", 1, "t", {"max_topic_size": vl.TypedValue(vl.HeaderKind.UINT64, b"\1")}),
        rq.CreateTopic("s", 1, "t", {"compression_algorithm": TEXT}),
        rq.StoreConsumerOffset(plain(1), "s", "t", 0, 1, vl.OffsetAck.NONE),
        rq.SendMessages("s", "t", partition(0), 1, b""),
        rq.SyncConsumerGroup("s", "t", "g"),
        rq.DescribeOptions(vl.OptionScope.TOPIC),
        object(),
    ],
)
def test_what_the_generation_cannot_say_is_refused(request_, dialect):
    with pytest.raises(LocalProtocolError):
        codec.encode_request(request_, dialect)


@IN_ALL_DIALECTS
def test_topic_without_settings_is_sent_with_the_defaults(dialect):
    body = codec.encode_request(rq.UpdateTopic("s", "t", "t2"), dialect)
    assert body == b"\2\1s\2\1t" + b"\1" + bytes(8) + bytes(8) + b"\0" + b"\2t2"


@IN_ALL_DIALECTS
def test_options_of_a_reply_are_left_out_and_one_replica_is_claimed(dialect):
    topic = rp.TopicInfo(0, 0, 0, 0, vl.Compression.NONE, 0, 0, 0, "t")
    with_options = replace(topic, explicit_options={"x": TEXT}, derived_options={"y": TEXT})
    body = codec.encode_reply(Code.GET_TOPICS, (with_options,), dialect)
    assert codec.decode_reply(Code.GET_TOPICS, body, dialect) == (topic,)
    assert body[33] == 1


@IN_ALL_DIALECTS
def test_confirmation_of_a_send_is_not_told(dialect):
    assert codec.encode_reply(Code.SEND_MESSAGES, (rp.Confirmation(0, 0, 0, 0),), dialect) == b""
    assert codec.encode_reply(Code.SEND_MESSAGES, None, dialect) == b""


@IN_ALL_DIALECTS
@pytest.mark.parametrize("code", [Code.DESCRIBE_OPTIONS, Code.SYNC_CONSUMER_GROUP, Code.LOGIN_REGISTER])
def test_command_of_another_generation_is_refused(code, dialect):
    with pytest.raises(RemoteProtocolError) as raised:
        codec.decode_request(code, b"", dialect)
    assert raised.value.code == 3


@IN_ALL_DIALECTS
def test_reply_that_cannot_be_empty_is_not_made_empty(dialect):
    with pytest.raises(LocalProtocolError):
        codec.encode_reply(Code.CREATE_STREAM, None, dialect)


@pytest.mark.parametrize("dialect", [B, C, D])
def test_send_of_nothing_or_with_too_short_an_index_has_its_own_status(dialect):
    send = messages.Send("s", "t", partition(0), 2, memoryview(b"x"), memoryview(bytes(32)))
    body = messages.encode_send(send, dialect)
    assert messages.decode_send(body, dialect) == send
    with pytest.raises(RemoteProtocolError) as raised:
        messages.decode_send(body[:-2], dialect)
    assert raised.value.code == 4034
    nothing = messages.encode_send(send._replace(messages_count=0), dialect)
    with pytest.raises(RemoteProtocolError) as raised:
        messages.decode_send(nothing, dialect)
    assert raised.value.code == 4009


@pytest.mark.parametrize("dialect", [B, C, D])
def test_send_without_an_index_is_not_made(dialect):
    send = messages.Send("s", "t", partition(0), None, memoryview(b"x"), None)
    with pytest.raises(LocalProtocolError):
        messages.encode_send(send, dialect)
