"""The command table: everything a client can ask for, once.

A row ties a command's name to its request class, to what it answers, to the right it needs and to the
code it has in each wire generation that knows it. Handlers, client methods, routes and verbs are checked
against this table; how a generation carries a command (operation numbers, layouts) is that generation's
own business and is not here. A new generation is a member of `Generation` and a column in the rows.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType

import msgspec

from borzoi.model import replies as rp
from borzoi.model import requests as rq
from borzoi.model.access import Access


class Generation(StrEnum):
    CLASSIC = "classic"
    VSR = "vsr"


class Code(IntEnum):
    PING = 1
    GET_STATS = 10
    SNAPSHOT = 11
    GET_CLUSTER_METADATA = 12
    DESCRIBE_OPTIONS = 13
    GET_ME = 20
    GET_CLIENT = 21
    GET_CLIENTS = 22
    GET_USER = 31
    GET_USERS = 32
    CREATE_USER = 33
    DELETE_USER = 34
    UPDATE_USER = 35
    UPDATE_PERMISSIONS = 36
    CHANGE_PASSWORD = 37
    LOGIN_USER = 38
    LOGOUT_USER = 39
    LOGIN_REGISTER = 40
    GET_PERSONAL_ACCESS_TOKENS = 41
    CREATE_PERSONAL_ACCESS_TOKEN = 42
    DELETE_PERSONAL_ACCESS_TOKEN = 43
    LOGIN_WITH_PERSONAL_ACCESS_TOKEN = 44
    LOGIN_REGISTER_WITH_PERSONAL_ACCESS_TOKEN = 45
    POLL_MESSAGES = 100
    SEND_MESSAGES = 101
    FLUSH_UNSAVED_BUFFER = 102
    GET_CONSUMER_OFFSET = 120
    STORE_CONSUMER_OFFSET = 121
    DELETE_CONSUMER_OFFSET = 122
    GET_STREAM = 200
    GET_STREAMS = 201
    CREATE_STREAM = 202
    DELETE_STREAM = 203
    UPDATE_STREAM = 204
    PURGE_STREAM = 205
    GET_TOPIC = 300
    GET_TOPICS = 301
    CREATE_TOPIC = 302
    DELETE_TOPIC = 303
    UPDATE_TOPIC = 304
    PURGE_TOPIC = 305
    CREATE_PARTITIONS = 402
    DELETE_PARTITIONS = 403
    DELETE_SEGMENTS = 503
    GET_CONSUMER_GROUP = 600
    GET_CONSUMER_GROUPS = 601
    CREATE_CONSUMER_GROUP = 602
    DELETE_CONSUMER_GROUP = 603
    JOIN_CONSUMER_GROUP = 604
    LEAVE_CONSUMER_GROUP = 605
    SYNC_CONSUMER_GROUP = 606
    # Borzoi's own, far away from the numbers that the platform gives out.
    GET_TOPIC_EXTENT = 9001
    STAGE_MESSAGES = 9010
    COMMIT_EPOCH = 9011
    ABORT_EPOCH = 9012
    GET_PRODUCER_EPOCH = 9013
    FORGET_PRODUCER = 9014
    STAGE_COPY = 9015


class Answer(Enum):
    """What a successful command returns: nothing, one reply, one or None, or a tuple of replies."""

    NOTHING = "nothing"
    ONE = "one"
    ONE_OR_NONE = "one or none"
    MANY = "many"


class Command(msgspec.Struct, frozen=True):
    """`access` is the rule for things of others; what is the caller's own, a handler may allow."""

    name: str
    codes: Mapping[Generation, Code]
    request: type
    answer: Answer
    reply: type | None
    access: Access


_Codes = Mapping[Generation, Code]
_Replies = tuple[Answer, type | None]
_NOTHING: _Replies = (Answer.NOTHING, None)


def _one(reply: type) -> _Replies:
    return (Answer.ONE, reply)


def _maybe(reply: type) -> _Replies:
    return (Answer.ONE_OR_NONE, reply)


def _many(reply: type) -> _Replies:
    return (Answer.MANY, reply)


def _row(code: Code | _Codes, request: type, replies: _Replies, access: Access) -> Command:
    """A row named after its first code. A single code is that of every generation."""
    codes = dict.fromkeys(Generation, code) if isinstance(code, Code) else dict(code)
    name = next(iter(codes.values())).name.lower()
    return Command(name, MappingProxyType(codes), request, *replies, access)


# A vsr login also registers the session, which gives it a code of its own.
_LOGIN: _Codes = {Generation.CLASSIC: Code.LOGIN_USER, Generation.VSR: Code.LOGIN_REGISTER}
_LOGIN_WITH_TOKEN: _Codes = {
    Generation.CLASSIC: Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
    Generation.VSR: Code.LOGIN_REGISTER_WITH_PERSONAL_ACCESS_TOKEN,
}
_DESCRIBE_OPTIONS: _Codes = {Generation.VSR: Code.DESCRIBE_OPTIONS}
_SYNC_CONSUMER_GROUP: _Codes = {Generation.VSR: Code.SYNC_CONSUMER_GROUP}
_GET_TOPIC_EXTENT: _Codes = {Generation.VSR: Code.GET_TOPIC_EXTENT}
_STAGE_MESSAGES: _Codes = {Generation.VSR: Code.STAGE_MESSAGES}
_COMMIT_EPOCH: _Codes = {Generation.VSR: Code.COMMIT_EPOCH}
_ABORT_EPOCH: _Codes = {Generation.VSR: Code.ABORT_EPOCH}
_GET_PRODUCER_EPOCH: _Codes = {Generation.VSR: Code.GET_PRODUCER_EPOCH}
_FORGET_PRODUCER: _Codes = {Generation.VSR: Code.FORGET_PRODUCER}
_STAGE_COPY: _Codes = {Generation.VSR: Code.STAGE_COPY}

COMMANDS: tuple[Command, ...] = (
    _row(Code.PING, rq.Ping, _NOTHING, Access.PUBLIC),
    _row(Code.GET_STATS, rq.GetStats, _one(rp.Stats), Access.READ_SERVERS),
    _row(Code.SNAPSHOT, rq.GetSnapshot, _one(rp.Snapshot), Access.READ_SERVERS),
    _row(Code.GET_CLUSTER_METADATA, rq.GetClusterMetadata, _one(rp.ClusterMetadata), Access.AUTHENTICATED),
    _row(_DESCRIBE_OPTIONS, rq.DescribeOptions, _many(rp.OptionSpec), Access.AUTHENTICATED),
    _row(Code.GET_ME, rq.GetMe, _one(rp.ClientDetails), Access.AUTHENTICATED),
    _row(Code.GET_CLIENT, rq.GetClient, _maybe(rp.ClientDetails), Access.READ_SERVERS),
    _row(Code.GET_CLIENTS, rq.GetClients, _many(rp.ClientInfo), Access.READ_SERVERS),
    _row(Code.GET_USER, rq.GetUser, _maybe(rp.UserDetails), Access.READ_USERS),
    _row(Code.GET_USERS, rq.GetUsers, _many(rp.UserInfo), Access.READ_USERS),
    _row(Code.CREATE_USER, rq.CreateUser, _one(rp.UserDetails), Access.MANAGE_USERS),
    _row(Code.DELETE_USER, rq.DeleteUser, _NOTHING, Access.MANAGE_USERS),
    _row(Code.UPDATE_USER, rq.UpdateUser, _NOTHING, Access.MANAGE_USERS),
    _row(Code.UPDATE_PERMISSIONS, rq.UpdatePermissions, _NOTHING, Access.MANAGE_USERS),
    _row(Code.CHANGE_PASSWORD, rq.ChangePassword, _NOTHING, Access.MANAGE_USERS),
    _row(_LOGIN, rq.LoginUser, _one(rp.LoggedIn), Access.PUBLIC),
    _row(_LOGIN_WITH_TOKEN, rq.LoginWithToken, _one(rp.LoggedIn), Access.PUBLIC),
    _row(Code.LOGOUT_USER, rq.LogoutUser, _NOTHING, Access.PUBLIC),
    _row(Code.GET_PERSONAL_ACCESS_TOKENS, rq.GetTokens, _many(rp.TokenInfo), Access.AUTHENTICATED),
    _row(Code.CREATE_PERSONAL_ACCESS_TOKEN, rq.CreateToken, _one(rp.RawToken), Access.AUTHENTICATED),
    _row(Code.DELETE_PERSONAL_ACCESS_TOKEN, rq.DeleteToken, _NOTHING, Access.AUTHENTICATED),
    _row(Code.POLL_MESSAGES, rq.PollMessages, _one(rp.PolledMessages), Access.POLL),
    _row(Code.SEND_MESSAGES, rq.SendMessages, _many(rp.Confirmation), Access.SEND),
    _row(Code.FLUSH_UNSAVED_BUFFER, rq.FlushUnsavedBuffer, _NOTHING, Access.SEND),
    _row(Code.GET_CONSUMER_OFFSET, rq.GetConsumerOffset, _maybe(rp.ConsumerOffset), Access.POLL),
    _row(Code.STORE_CONSUMER_OFFSET, rq.StoreConsumerOffset, _NOTHING, Access.POLL),
    _row(Code.DELETE_CONSUMER_OFFSET, rq.DeleteConsumerOffset, _NOTHING, Access.POLL),
    _row(Code.GET_STREAM, rq.GetStream, _maybe(rp.StreamDetails), Access.READ_STREAM),
    _row(Code.GET_STREAMS, rq.GetStreams, _many(rp.StreamInfo), Access.LIST_STREAMS),
    _row(Code.CREATE_STREAM, rq.CreateStream, _one(rp.StreamDetails), Access.CREATE_STREAM),
    _row(Code.DELETE_STREAM, rq.DeleteStream, _NOTHING, Access.MANAGE_STREAM),
    _row(Code.UPDATE_STREAM, rq.UpdateStream, _NOTHING, Access.MANAGE_STREAM),
    _row(Code.PURGE_STREAM, rq.PurgeStream, _NOTHING, Access.MANAGE_STREAM),
    _row(Code.GET_TOPIC, rq.GetTopic, _maybe(rp.TopicDetails), Access.READ_TOPIC),
    _row(Code.GET_TOPICS, rq.GetTopics, _many(rp.TopicInfo), Access.LIST_TOPICS),
    _row(Code.CREATE_TOPIC, rq.CreateTopic, _one(rp.TopicDetails), Access.CREATE_TOPIC),
    _row(Code.DELETE_TOPIC, rq.DeleteTopic, _NOTHING, Access.MANAGE_TOPIC),
    _row(Code.UPDATE_TOPIC, rq.UpdateTopic, _NOTHING, Access.MANAGE_TOPIC),
    _row(Code.PURGE_TOPIC, rq.PurgeTopic, _NOTHING, Access.MANAGE_TOPIC),
    _row(Code.CREATE_PARTITIONS, rq.CreatePartitions, _NOTHING, Access.MANAGE_TOPIC),
    _row(Code.DELETE_PARTITIONS, rq.DeletePartitions, _NOTHING, Access.MANAGE_TOPIC),
    _row(Code.DELETE_SEGMENTS, rq.DeleteSegments, _NOTHING, Access.MANAGE_TOPIC),
    _row(Code.GET_CONSUMER_GROUP, rq.GetConsumerGroup, _maybe(rp.GroupDetails), Access.READ_TOPIC),
    _row(Code.GET_CONSUMER_GROUPS, rq.GetConsumerGroups, _many(rp.GroupInfo), Access.READ_TOPIC),
    _row(Code.CREATE_CONSUMER_GROUP, rq.CreateConsumerGroup, _one(rp.GroupDetails), Access.READ_TOPIC),
    _row(Code.DELETE_CONSUMER_GROUP, rq.DeleteConsumerGroup, _NOTHING, Access.READ_TOPIC),
    _row(Code.JOIN_CONSUMER_GROUP, rq.JoinConsumerGroup, _NOTHING, Access.READ_TOPIC),
    _row(Code.LEAVE_CONSUMER_GROUP, rq.LeaveConsumerGroup, _NOTHING, Access.READ_TOPIC),
    _row(_SYNC_CONSUMER_GROUP, rq.SyncConsumerGroup, _maybe(rp.GroupAssignment), Access.AUTHENTICATED),
    _row(_GET_TOPIC_EXTENT, rq.GetTopicExtent, _one(rp.TopicExtent), Access.POLL),
    _row(_STAGE_MESSAGES, rq.StageMessages, _one(rp.Staged), Access.SEND),
    _row(_COMMIT_EPOCH, rq.CommitEpoch, _one(rp.EpochCommitted), Access.SEND),
    _row(_ABORT_EPOCH, rq.AbortEpoch, _NOTHING, Access.SEND),
    _row(_GET_PRODUCER_EPOCH, rq.GetProducerEpoch, _maybe(rp.ProducerEpoch), Access.SEND),
    _row(_FORGET_PRODUCER, rq.ForgetProducer, _NOTHING, Access.SEND),
    _row(_STAGE_COPY, rq.StageCopy, _one(rp.Copied), Access.SEND),
)

COMMAND_BY_NAME: Mapping[str, Command] = MappingProxyType({row.name: row for row in COMMANDS})
COMMAND_BY_CODE: Mapping[Code, Command] = MappingProxyType(
    {code: row for row in COMMANDS for code in row.codes.values()}
)
COMMAND_BY_REQUEST: Mapping[type, Command] = MappingProxyType({row.request: row for row in COMMANDS})
