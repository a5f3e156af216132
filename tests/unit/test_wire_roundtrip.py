"""Every vsr body survives encoding and decoding, and no bytes raise anything but RemoteProtocolError."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.model import permissions as pm
from borzoi.model import replies as rp
from borzoi.model import requests as rq
from borzoi.model import values as vl
from borzoi.model.errors import RemoteProtocolError
from borzoi.wire.commands import COMMAND_BY_CODE, Answer, Code
from borzoi.wire.vsr import codec

EXAMPLES = settings(max_examples=20, deadline=None)
FEW_EXAMPLES = settings(max_examples=5, deadline=None)

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
f32 = st.floats(width=32, allow_nan=False)
flag = st.booleans()
short_text = st.text(max_size=12)
name = st.text(min_size=1, max_size=12)
ident = u32 | name
blob = st.binary(max_size=12)
partition = st.none() | u32


def kind(enum):
    return st.sampled_from(list(enum))


def few(item):
    return st.lists(item, max_size=2).map(tuple)


def with_count(make, head, count_field, items):
    """A `Details` dataclass whose head tells the number of its items."""
    return few(items).flatmap(
        lambda chosen: head(**{count_field: st.just(len(chosen))}).map(lambda built: make(built, chosen))
    )


typed = st.builds(vl.TypedValue, kind(vl.HeaderKind), st.binary(min_size=1, max_size=12))
options = st.dictionaries(name, typed, max_size=2)
consumer = st.builds(vl.Consumer, kind(vl.ConsumerKind), ident)
partitioning = st.one_of(
    st.just(vl.Partitioning(vl.PartitioningKind.BALANCED)),
    st.binary(min_size=4, max_size=4).map(lambda b: vl.Partitioning(vl.PartitioningKind.PARTITION_ID, b)),
    st.binary(min_size=1, max_size=12).map(lambda b: vl.Partitioning(vl.PartitioningKind.MESSAGES_KEY, b)),
)
strategy = st.builds(vl.PollingStrategy, kind(vl.PollingKind), u64)
status = kind(vl.UserStatus)
topic_permissions = st.builds(pm.TopicPermissions, *(flag,) * 4)
stream_permissions = st.builds(
    pm.StreamPermissions, *(flag,) * 6, st.dictionaries(u32, topic_permissions, max_size=3)
)
permissions = st.builds(
    pm.Permissions,
    st.builds(pm.GlobalPermissions, *(flag,) * 10),
    st.dictionaries(u32, stream_permissions, max_size=3),
)
maybe_permissions = st.none() | permissions
target = (consumer, ident, ident, partition)

REQUESTS = {
    Code.PING: st.builds(rq.Ping),
    Code.GET_STATS: st.builds(rq.GetStats),
    Code.SNAPSHOT: st.builds(rq.GetSnapshot, kind(vl.SnapshotCompression), few(kind(vl.SnapshotPart))),
    Code.GET_CLUSTER_METADATA: st.builds(rq.GetClusterMetadata),
    Code.DESCRIBE_OPTIONS: st.builds(rq.DescribeOptions, kind(vl.OptionScope)),
    Code.GET_ME: st.builds(rq.GetMe),
    Code.GET_CLIENT: st.builds(rq.GetClient, u32),
    Code.GET_CLIENTS: st.builds(rq.GetClients),
    Code.GET_USER: st.builds(rq.GetUser, ident),
    Code.GET_USERS: st.builds(rq.GetUsers),
    Code.CREATE_USER: st.builds(rq.CreateUser, name, short_text, status, maybe_permissions, options),
    Code.DELETE_USER: st.builds(rq.DeleteUser, ident),
    Code.UPDATE_USER: st.builds(rq.UpdateUser, ident, st.none() | name, st.none() | status, options),
    Code.UPDATE_PERMISSIONS: st.builds(rq.UpdatePermissions, ident, maybe_permissions),
    Code.CHANGE_PASSWORD: st.builds(rq.ChangePassword, ident, short_text, short_text),
    Code.LOGOUT_USER: st.builds(rq.LogoutUser),
    Code.GET_PERSONAL_ACCESS_TOKENS: st.builds(rq.GetTokens),
    Code.CREATE_PERSONAL_ACCESS_TOKEN: st.builds(rq.CreateToken, name, u64),
    Code.DELETE_PERSONAL_ACCESS_TOKEN: st.builds(rq.DeleteToken, name),
    Code.POLL_MESSAGES: st.builds(rq.PollMessages, *target, strategy, u32, flag),
    Code.SEND_MESSAGES: st.builds(rq.SendMessages, ident, ident, partitioning, u32, blob),
    Code.FLUSH_UNSAVED_BUFFER: st.builds(rq.FlushUnsavedBuffer, ident, ident, u32, flag),
    Code.GET_CONSUMER_OFFSET: st.builds(rq.GetConsumerOffset, *target),
    Code.STORE_CONSUMER_OFFSET: st.builds(rq.StoreConsumerOffset, *target, u64, kind(vl.OffsetAck)),
    Code.DELETE_CONSUMER_OFFSET: st.builds(rq.DeleteConsumerOffset, *target, kind(vl.OffsetAck)),
    Code.GET_STREAM: st.builds(rq.GetStream, ident),
    Code.GET_STREAMS: st.builds(rq.GetStreams),
    Code.CREATE_STREAM: st.builds(rq.CreateStream, name, options),
    Code.DELETE_STREAM: st.builds(rq.DeleteStream, ident),
    Code.UPDATE_STREAM: st.builds(rq.UpdateStream, ident, name, options),
    Code.PURGE_STREAM: st.builds(rq.PurgeStream, ident),
    Code.GET_TOPIC: st.builds(rq.GetTopic, ident, ident),
    Code.GET_TOPICS: st.builds(rq.GetTopics, ident),
    Code.CREATE_TOPIC: st.builds(rq.CreateTopic, ident, u32, name, options),
    Code.DELETE_TOPIC: st.builds(rq.DeleteTopic, ident, ident),
    Code.UPDATE_TOPIC: st.builds(rq.UpdateTopic, ident, ident, name, options),
    Code.PURGE_TOPIC: st.builds(rq.PurgeTopic, ident, ident),
    Code.CREATE_PARTITIONS: st.builds(rq.CreatePartitions, ident, ident, u32),
    Code.DELETE_PARTITIONS: st.builds(rq.DeletePartitions, ident, ident, u32),
    Code.DELETE_SEGMENTS: st.builds(rq.DeleteSegments, ident, ident, u32, u32),
    Code.GET_CONSUMER_GROUP: st.builds(rq.GetConsumerGroup, ident, ident, ident),
    Code.GET_CONSUMER_GROUPS: st.builds(rq.GetConsumerGroups, ident, ident),
    Code.CREATE_CONSUMER_GROUP: st.builds(rq.CreateConsumerGroup, ident, ident, name),
    Code.DELETE_CONSUMER_GROUP: st.builds(rq.DeleteConsumerGroup, ident, ident, ident),
    Code.JOIN_CONSUMER_GROUP: st.builds(rq.JoinConsumerGroup, ident, ident, ident),
    Code.LEAVE_CONSUMER_GROUP: st.builds(rq.LeaveConsumerGroup, ident, ident, ident),
    Code.SYNC_CONSUMER_GROUP: st.builds(rq.SyncConsumerGroup, ident, ident, ident),
    Code.GET_TOPIC_EXTENT: st.builds(
        rq.GetTopicExtent, ident, ident, few(st.builds(rq.ByteCut, u32, u64, u64))
    ),
    Code.STAGE_MESSAGES: st.builds(
        rq.StageMessages, ident, ident, name, u64, u32, u64, u32, partitioning, u32, blob
    ),
    Code.COMMIT_EPOCH: st.builds(
        rq.CommitEpoch, ident, ident, name, u64, few(st.builds(rq.StagedPart, u32, u64, u32))
    ),
    Code.ABORT_EPOCH: st.builds(rq.AbortEpoch, ident, ident, name, u64),
    Code.GET_PRODUCER_EPOCH: st.builds(rq.GetProducerEpoch, ident, ident, name),
    Code.FORGET_PRODUCER: st.builds(rq.ForgetProducer, ident, ident, name),
    Code.STAGE_COPY: st.builds(
        rq.StageCopy, ident, ident, name, u64, u32, u64, u32, partitioning, ident, ident, u32, u64, u32
    ),
}


def topic_info(partitions_count=u32):
    return st.builds(
        rp.TopicInfo,
        u32, u64, partitions_count, u64, kind(vl.Compression), u64, u64, u64, name, options, options,
    )  # fmt: skip


def stream_info(topics_count=u32):
    return st.builds(rp.StreamInfo, u32, u64, topics_count, u64, u64, name, options)


def group_info(members_count=u32):
    return st.builds(rp.GroupInfo, u32, u32, members_count, name)


def client_info(consumer_groups_count=u32):
    user_id = st.none() | st.integers(0, 2**32 - 2)
    return st.builds(rp.ClientInfo, u32, user_id, kind(vl.Transport), short_text, consumer_groups_count)


user_info = st.builds(rp.UserInfo, u32, u64, status, name, options)
stats = st.builds(
    rp.Stats,
    u32, f32, f32, *(u64,) * 8, *(u32,) * 4, u64, u32, u32, *(short_text,) * 5, u32,
    few(st.builds(rp.CacheMetrics, u32, u32, u32, u64, u64, f32)), u32, u64, u64,
)  # fmt: skip
node = st.builds(
    rp.ClusterNode, short_text, short_text, u16, u16, u16, u16, kind(vl.NodeRole), kind(vl.NodeStatus)
)

REPLIES = {
    rp.Stats: stats,
    rp.Snapshot: st.builds(rp.Snapshot, blob),
    rp.ClusterMetadata: st.builds(rp.ClusterMetadata, short_text, few(node)),
    rp.OptionSpec: st.builds(rp.OptionSpec, name, kind(vl.HeaderKind), blob, short_text),
    rp.ClientInfo: client_info(),
    rp.ClientDetails: with_count(
        rp.ClientDetails, client_info, "consumer_groups_count", st.builds(rp.ClientGroup, u32, u32, u32)
    ),
    rp.UserInfo: user_info,
    rp.UserDetails: st.builds(rp.UserDetails, user_info, maybe_permissions),
    rp.TokenInfo: st.builds(rp.TokenInfo, name, u64),
    rp.RawToken: st.builds(rp.RawToken, name),
    rp.PolledMessages: st.builds(
        rp.PolledMessages, u32, u64, u32, st.lists(st.binary(min_size=1, max_size=12), max_size=1)
    ),
    rp.Confirmation: st.builds(rp.Confirmation, u32, u32, u32, u64),
    rp.ConsumerOffset: st.builds(rp.ConsumerOffset, u32, u64, u64),
    rp.StreamInfo: stream_info(),
    rp.StreamDetails: with_count(rp.StreamDetails, stream_info, "topics_count", topic_info()),
    rp.TopicInfo: topic_info(),
    rp.TopicDetails: with_count(
        rp.TopicDetails,
        topic_info,
        "partitions_count",
        st.builds(rp.PartitionInfo, u32, u64, u32, u64, u64, u64),
    ),
    rp.GroupInfo: group_info(),
    rp.GroupDetails: with_count(
        rp.GroupDetails, group_info, "members_count", st.builds(rp.GroupMember, u32, few(u32))
    ),
    rp.GroupAssignment: st.builds(rp.GroupAssignment, u64, few(u32)),
    rp.TopicExtent: st.builds(
        rp.TopicExtent, u32, u32, u64, few(st.builds(rp.PartitionExtent, u32, u64, u64, u64, u64))
    ),
    rp.Staged: st.builds(rp.Staged, flag, u32),
    rp.Copied: st.builds(rp.Copied, st.booleans(), u32, u64),
    rp.EpochCommitted: st.builds(rp.EpochCommitted, u64, flag, u64),
    rp.ProducerEpoch: st.builds(rp.ProducerEpoch, u64, u64),
}


def reply_to(code):
    row = COMMAND_BY_CODE[code]
    match row.answer:
        case Answer.NOTHING:
            return st.none()
        case Answer.ONE:
            return REPLIES[row.reply]
        case Answer.ONE_OR_NONE:
            return st.none() | REPLIES[row.reply]
        case Answer.MANY:
            return few(REPLIES[row.reply])


def decode_and_encode_request(code, body):
    return codec.encode_request(codec.decode_request(code, memoryview(body)))


def decode_and_encode_reply(code, body):
    return codec.encode_reply(code, codec.decode_reply(code, memoryview(body)))


def assert_only_protocol_errors(decode_and_encode, code, body):
    """What decodes can be sent on, and then it is the same; everything else is the peer's fault."""
    with suppress(RemoteProtocolError):
        encoded = decode_and_encode(code, body)
        assert decode_and_encode(code, encoded) == encoded


def assert_damage_is_contained(decode_and_encode, code, body, data):
    for length in range(len(body)):
        assert_only_protocol_errors(decode_and_encode, code, body[:length])
    if body:
        changed = bytearray(body)
        changed[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
        assert_only_protocol_errors(decode_and_encode, code, bytes(changed))


def test_every_command_is_covered_here():
    assert REQUESTS.keys() == codec.LAYOUTS.keys()


@pytest.mark.parametrize("code", codec.LAYOUTS)
@EXAMPLES
@given(data=st.data())
def test_request_survives_the_wire_and_damage_to_it_is_contained(code, data):
    request = data.draw(REQUESTS[code])
    assert type(request) is COMMAND_BY_CODE[code].request
    body = codec.encode_request(request)
    assert codec.decode_request(code, memoryview(body)) == request
    assert_damage_is_contained(decode_and_encode_request, code, body, data)


@pytest.mark.parametrize("code", codec.LAYOUTS)
@EXAMPLES
@given(data=st.data())
def test_reply_survives_the_wire_and_damage_to_it_is_contained(code, data):
    reply = data.draw(reply_to(code))
    body = codec.encode_reply(code, reply)
    assert codec.decode_reply(code, memoryview(body)) == reply
    assert_damage_is_contained(decode_and_encode_reply, code, body, data)


@pytest.mark.parametrize("code", codec.LAYOUTS)
@EXAMPLES
@given(body=st.binary(max_size=64))
def test_random_bytes_raise_nothing_but_protocol_errors(code, body):
    assert_only_protocol_errors(decode_and_encode_request, code, body)
    assert_only_protocol_errors(decode_and_encode_reply, code, body)


FILLS_THE_BODY = {Code.SEND_MESSAGES, Code.STAGE_MESSAGES}


@pytest.mark.parametrize("code", sorted(codec.LAYOUTS.keys() - FILLS_THE_BODY))
@FEW_EXAMPLES
@given(data=st.data())
def test_request_with_a_byte_too_many_is_refused(code, data):
    body = codec.encode_request(data.draw(REQUESTS[code])) + b"\0"
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(code, body)
