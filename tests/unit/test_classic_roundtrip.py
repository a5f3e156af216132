"""Every classic body survives encoding and decoding in every dialect; damage is a RemoteProtocolError."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.model import permissions as pm
from borzoi.model import replies as rp
from borzoi.model import requests as rq
from borzoi.model import values as vl
from borzoi.model.errors import RemoteProtocolError
from borzoi.wire.classic import codec, frames, messages, users
from borzoi.wire.classic.dialect import Dialect, DialectSniffer
from borzoi.wire.commands import COMMAND_BY_CODE, COMMANDS, Answer, Code, Generation

EXAMPLES = settings(max_examples=5, deadline=None)

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
# The highest id is out of reach of the dialects that count from one.
id_ = st.integers(0, 2**32 - 2)
f32 = st.floats(width=32, allow_nan=False)
flag = st.booleans()
short_text = st.text(max_size=12)
name = st.text(min_size=1, max_size=12)
ident = id_ | name
blob = st.binary(max_size=12)
partition = st.none() | id_


def kind(enum):
    return st.sampled_from(list(enum))


def few(item):
    return st.lists(item, max_size=2).map(tuple)


def with_count(make, head, count_field, items):
    """A `Details` dataclass whose head tells the number of its items."""
    return few(items).flatmap(
        lambda chosen: head(**{count_field: st.just(len(chosen))}).map(lambda built: make(built, chosen))
    )


number_option = st.integers(1, 2**64 - 1).map(
    lambda value: vl.TypedValue(vl.HeaderKind.UINT64, value.to_bytes(8, "little"))
)
topic_settings = st.fixed_dictionaries(
    {
        "compression_algorithm": st.sampled_from([b"none", b"gzip"]).map(
            lambda text: vl.TypedValue(vl.HeaderKind.STRING, text)
        )
    },
    optional={"message_expiry": number_option, "max_topic_size": number_option},
)
consumer = st.builds(vl.Consumer, kind(vl.ConsumerKind), ident)
partitioning = st.one_of(
    st.just(vl.Partitioning(vl.PartitioningKind.BALANCED)),
    id_.map(lambda i: vl.Partitioning(vl.PartitioningKind.PARTITION_ID, i.to_bytes(4, "little"))),
    st.binary(min_size=1, max_size=12).map(lambda b: vl.Partitioning(vl.PartitioningKind.MESSAGES_KEY, b)),
)
strategy = st.builds(vl.PollingStrategy, kind(vl.PollingKind), u64)
status = kind(vl.UserStatus)
stream_permissions = st.builds(
    pm.StreamPermissions,
    *(flag,) * 6,
    st.dictionaries(id_, st.builds(pm.TopicPermissions, *(flag,) * 4), max_size=2),
)
permissions = st.none() | st.builds(
    pm.Permissions,
    st.builds(pm.GlobalPermissions, *(flag,) * 10),
    st.dictionaries(id_, stream_permissions, max_size=2),
)
target = (consumer, ident, ident, partition)
topic = (ident, ident)
group = (ident, ident, ident)

REQUESTS = {
    Code.PING: st.builds(rq.Ping),
    Code.GET_STATS: st.builds(rq.GetStats),
    Code.SNAPSHOT: st.builds(rq.GetSnapshot, kind(vl.SnapshotCompression), few(kind(vl.SnapshotPart))),
    Code.GET_CLUSTER_METADATA: st.builds(rq.GetClusterMetadata),
    Code.GET_ME: st.builds(rq.GetMe),
    Code.GET_CLIENT: st.builds(rq.GetClient, u32),
    Code.GET_CLIENTS: st.builds(rq.GetClients),
    Code.GET_USER: st.builds(rq.GetUser, ident),
    Code.GET_USERS: st.builds(rq.GetUsers),
    Code.CREATE_USER: st.builds(rq.CreateUser, name, short_text, status, permissions),
    Code.DELETE_USER: st.builds(rq.DeleteUser, ident),
    Code.UPDATE_USER: st.builds(rq.UpdateUser, ident, st.none() | name, st.none() | status),
    Code.UPDATE_PERMISSIONS: st.builds(rq.UpdatePermissions, ident, permissions),
    Code.CHANGE_PASSWORD: st.builds(rq.ChangePassword, ident, short_text, short_text),
    Code.LOGIN_USER: st.builds(rq.LoginUser, name, short_text),
    Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: st.builds(rq.LoginWithToken, name),
    Code.LOGOUT_USER: st.builds(rq.LogoutUser),
    Code.GET_PERSONAL_ACCESS_TOKENS: st.builds(rq.GetTokens),
    Code.CREATE_PERSONAL_ACCESS_TOKEN: st.builds(rq.CreateToken, name, u64),
    Code.DELETE_PERSONAL_ACCESS_TOKEN: st.builds(rq.DeleteToken, name),
    Code.POLL_MESSAGES: st.builds(rq.PollMessages, *target, strategy, u32, flag),
    Code.FLUSH_UNSAVED_BUFFER: st.builds(rq.FlushUnsavedBuffer, *topic, id_, flag),
    Code.GET_CONSUMER_OFFSET: st.builds(rq.GetConsumerOffset, *target),
    Code.STORE_CONSUMER_OFFSET: st.builds(rq.StoreConsumerOffset, *target, u64),
    Code.DELETE_CONSUMER_OFFSET: st.builds(rq.DeleteConsumerOffset, *target),
    Code.GET_STREAM: st.builds(rq.GetStream, ident),
    Code.GET_STREAMS: st.builds(rq.GetStreams),
    Code.CREATE_STREAM: st.builds(rq.CreateStream, name),
    Code.DELETE_STREAM: st.builds(rq.DeleteStream, ident),
    Code.UPDATE_STREAM: st.builds(rq.UpdateStream, ident, name),
    Code.PURGE_STREAM: st.builds(rq.PurgeStream, ident),
    Code.GET_TOPIC: st.builds(rq.GetTopic, *topic),
    Code.GET_TOPICS: st.builds(rq.GetTopics, ident),
    Code.CREATE_TOPIC: st.builds(rq.CreateTopic, ident, u32, name, topic_settings),
    Code.DELETE_TOPIC: st.builds(rq.DeleteTopic, *topic),
    Code.UPDATE_TOPIC: st.builds(rq.UpdateTopic, *topic, name, topic_settings),
    Code.PURGE_TOPIC: st.builds(rq.PurgeTopic, *topic),
    Code.CREATE_PARTITIONS: st.builds(rq.CreatePartitions, *topic, u32),
    Code.DELETE_PARTITIONS: st.builds(rq.DeletePartitions, *topic, u32),
    Code.DELETE_SEGMENTS: st.builds(rq.DeleteSegments, *topic, id_, u32),
    Code.GET_CONSUMER_GROUP: st.builds(rq.GetConsumerGroup, *group),
    Code.GET_CONSUMER_GROUPS: st.builds(rq.GetConsumerGroups, *topic),
    Code.CREATE_CONSUMER_GROUP: st.builds(rq.CreateConsumerGroup, *topic, name),
    Code.DELETE_CONSUMER_GROUP: st.builds(rq.DeleteConsumerGroup, *group),
    Code.JOIN_CONSUMER_GROUP: st.builds(rq.JoinConsumerGroup, *group),
    Code.LEAVE_CONSUMER_GROUP: st.builds(rq.LeaveConsumerGroup, *group),
}


def topic_info(partitions_count=u32):
    return st.builds(rp.TopicInfo, id_, u64, partitions_count, u64, kind(vl.Compression), u64, u64, u64, name)


def stream_info(topics_count=u32):
    return st.builds(rp.StreamInfo, id_, u64, topics_count, u64, u64, name)


def group_info(members_count=u32):
    return st.builds(rp.GroupInfo, id_, u32, members_count, name)


def client_info(consumer_groups_count=u32):
    return st.builds(
        rp.ClientInfo, u32, st.none() | id_, kind(vl.Transport), short_text, consumer_groups_count
    )


user_info = st.builds(rp.UserInfo, id_, u64, status, name)
stats = st.builds(
    rp.Stats,
    u32, f32, f32, *(u64,) * 8, *(u32,) * 4, u64, u32, u32, *(short_text,) * 5, u32,
    few(st.builds(rp.CacheMetrics, id_, id_, id_, u64, u64, f32)), u32, u64, u64,
)  # fmt: skip
node = st.builds(
    rp.ClusterNode, short_text, short_text, u16, u16, u16, u16, kind(vl.NodeRole), kind(vl.NodeStatus)
)
partition_info = st.builds(rp.PartitionInfo, id_, u64, u32, u64, u64, u64)
client_group = st.builds(rp.ClientGroup, id_, id_, id_)
member = st.builds(rp.GroupMember, id_, few(id_))

REPLIES = {
    rp.Stats: stats,
    rp.Snapshot: st.builds(rp.Snapshot, blob),
    rp.ClusterMetadata: st.builds(rp.ClusterMetadata, short_text, few(node)),
    rp.ClientInfo: client_info(),
    rp.ClientDetails: with_count(rp.ClientDetails, client_info, "consumer_groups_count", client_group),
    rp.UserInfo: user_info,
    rp.UserDetails: st.builds(rp.UserDetails, user_info, permissions),
    rp.LoggedIn: st.builds(rp.LoggedIn, id_),
    rp.TokenInfo: st.builds(rp.TokenInfo, name, u64),
    rp.RawToken: st.builds(rp.RawToken, name),
    rp.ConsumerOffset: st.builds(rp.ConsumerOffset, id_, u64, u64),
    rp.StreamInfo: stream_info(),
    rp.StreamDetails: with_count(rp.StreamDetails, stream_info, "topics_count", topic_info()),
    rp.TopicInfo: topic_info(),
    rp.TopicDetails: with_count(rp.TopicDetails, topic_info, "partitions_count", partition_info),
    rp.GroupInfo: group_info(),
    rp.GroupDetails: with_count(rp.GroupDetails, group_info, "members_count", member),
}


def reply_to(code):
    row = COMMAND_BY_CODE[code]
    if code is Code.SEND_MESSAGES:
        return st.just(())
    match row.answer:
        case Answer.NOTHING:
            return st.none()
        case Answer.ONE:
            return REPLIES[row.reply]
        case Answer.ONE_OR_NONE:
            return st.none() | REPLIES[row.reply]
        case Answer.MANY:
            return few(REPLIES[row.reply])


CLASSIC = {row.codes[Generation.CLASSIC] for row in COMMANDS if Generation.CLASSIC in row.codes}
ANSWERED = sorted(CLASSIC - {Code.POLL_MESSAGES})
ALL_DIALECTS = pytest.mark.parametrize("dialect", Dialect, ids=lambda dialect: dialect.name)


def recode_request(code, body, dialect):
    return codec.encode_request(codec.decode_request(code, memoryview(body), dialect), dialect)


def recode_reply(code, body, dialect):
    return codec.encode_reply(code, codec.decode_reply(code, memoryview(body), dialect), dialect)


def recode_send(_code, body, dialect):
    return messages.encode_send(messages.decode_send(body, dialect), dialect)


def recode_login(_code, body, _dialect):
    return users.encode_login(*users.decode_login(body))


def recode_poll_reply(_code, body, dialect):
    *head, records = messages.decode_poll_reply(body, dialect)
    return messages.poll_reply_prefix(*head, dialect) + bytes(records)


def assert_only_protocol_errors(recode, code, body, dialect):
    """What decodes can be sent on, and then it is the same; everything else is the peer's fault."""
    with suppress(RemoteProtocolError):
        encoded = recode(code, body, dialect)
        assert recode(code, encoded, dialect) == encoded


def assert_damage_is_contained(recode, code, body, dialect, data):
    for length in range(len(body)):
        assert_only_protocol_errors(recode, code, body[:length], dialect)
    if body:
        changed = bytearray(body)
        changed[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        assert_only_protocol_errors(recode, code, bytes(changed), dialect)


@ALL_DIALECTS
def test_every_command_of_the_generation_is_covered(dialect):
    assert set(codec.REQUESTS[dialect]) == set(REQUESTS) == CLASSIC - {Code.SEND_MESSAGES}
    assert set(codec.REPLIES[dialect]) == set(ANSWERED)


@ALL_DIALECTS
@pytest.mark.parametrize("code", REQUESTS)
@EXAMPLES
@given(data=st.data())
def test_request_survives_the_wire_and_damage_to_it_is_contained(code, dialect, data):
    request = data.draw(REQUESTS[code])
    assert type(request) is COMMAND_BY_CODE[code].request
    body = codec.encode_request(request, dialect)
    assert codec.decode_request(code, memoryview(body), dialect) == request
    assert_damage_is_contained(recode_request, code, body, dialect, data)


@ALL_DIALECTS
@pytest.mark.parametrize("code", ANSWERED)
@EXAMPLES
@given(data=st.data())
def test_reply_survives_the_wire_and_damage_to_it_is_contained(code, dialect, data):
    reply = data.draw(reply_to(code))
    body = codec.encode_reply(code, reply, dialect)
    assert codec.decode_reply(code, memoryview(body), dialect) == reply
    assert_damage_is_contained(recode_reply, code, body, dialect, data)


@ALL_DIALECTS
@pytest.mark.parametrize("code", sorted(CLASSIC))
@EXAMPLES
@given(body=st.binary(max_size=64))
def test_random_bytes_raise_nothing_but_protocol_errors(code, dialect, body):
    if code is Code.SEND_MESSAGES:
        assert_only_protocol_errors(recode_send, code, body, dialect)
    else:
        assert_only_protocol_errors(recode_request, code, body, dialect)
    if code is Code.POLL_MESSAGES:
        assert_only_protocol_errors(recode_poll_reply, code, body, dialect)
    else:
        assert_only_protocol_errors(recode_reply, code, body, dialect)


@ALL_DIALECTS
@pytest.mark.parametrize("code", REQUESTS)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_request_with_a_byte_too_many_is_refused(code, dialect, data):
    body = codec.encode_request(data.draw(REQUESTS[code]), dialect) + b"\0"
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(code, body, dialect)


@ALL_DIALECTS
@settings(max_examples=50, deadline=None)
@given(data=st.data(), route=st.tuples(ident, ident, partitioning), area=st.binary(max_size=40))
def test_send_survives_the_wire_and_damage_to_it_is_contained(dialect, data, route, area):
    count = data.draw(st.integers(1, 3)) if dialect.has_send_index else None
    index = (
        None if count is None else memoryview(data.draw(st.binary(min_size=16 * count, max_size=16 * count)))
    )
    send = messages.Send(*route, count, memoryview(area), index)
    body = messages.encode_send(send, dialect)
    assert messages.decode_send(body, dialect) == send
    assert_damage_is_contained(recode_send, Code.SEND_MESSAGES, body, dialect, data)


@ALL_DIALECTS
@settings(max_examples=50, deadline=None)
@given(route=st.tuples(ident, ident, partitioning))
def test_route_of_a_send_can_be_read_on_its_own(dialect, route):
    send = messages.Send(*route, 1, memoryview(b""), memoryview(bytes(16)))
    body = messages.encode_send(send, dialect)
    prefix = body[4 : -16 - 4] if dialect.has_send_index else body
    assert messages.decode_route(prefix, dialect) == route


@ALL_DIALECTS
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_quick_reading_of_a_poll_agrees_with_its_layout(dialect, data):
    body = bytearray(codec.encode_request(data.draw(REQUESTS[Code.POLL_MESSAGES]), dialect))
    if data.draw(flag):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))]
    try:
        expected = codec.decode_request(Code.POLL_MESSAGES, body, dialect)
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            messages.decode_poll(body, dialect)
    else:
        assert messages.decode_poll(body, dialect) == expected


@ALL_DIALECTS
@settings(max_examples=50, deadline=None)
@given(partition_id=id_, offset=u64, count=u32, records=blob, data=st.data())
def test_poll_reply_survives_the_wire(dialect, partition_id, offset, count, records, data):
    body = messages.poll_reply_prefix(partition_id, offset, count, dialect) + records
    assert messages.decode_poll_reply(body, dialect) == (partition_id, offset, count, records)
    for length in range(16):
        with pytest.raises(RemoteProtocolError):
            messages.decode_poll_reply(body[:length], dialect)


@settings(max_examples=50, deadline=None)
@given(login=REQUESTS[Code.LOGIN_USER], version=st.none() | name, data=st.data())
def test_login_survives_the_wire_with_its_version(login, version, data):
    body = users.encode_login(login, version)
    assert users.decode_login(body) == (login, version)
    assert_damage_is_contained(recode_login, Code.LOGIN_USER, body, Dialect.D, data)


@settings(max_examples=200, deadline=None)
@given(code=st.sampled_from(sorted(CLASSIC)) | u32, body=st.binary(max_size=64))
def test_sniffer_takes_any_bytes(code, body):
    sniffer = DialectSniffer()
    assert sniffer.feed(code, body) in Dialect
    assert sniffer.feed(code, memoryview(body)) is sniffer.dialect


@settings(max_examples=200, deadline=None)
@given(data=st.binary(min_size=4, max_size=12))
def test_any_first_bytes_are_a_size_or_a_protocol_error(data):
    length = int.from_bytes(data[:4], "little")
    try:
        assert frames.frame_size(data, 0, 1 << 20) == length + 4
    except RemoteProtocolError:
        assert length < 4 or length + 4 > 1 << 20
