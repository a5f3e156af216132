"""Every request of the platform, free of any wire dialect.

A wire generation decodes its frames into these; the broker has one handler per class; the
client's methods build them. `borzoi.wire.commands` ties each to its code and its reply.
"""

import msgspec

from borzoi.model.permissions import Permissions
from borzoi.model.values import (
    BytesLike,
    Consumer,
    Identifier,
    OffsetAck,
    Options,
    OptionScope,
    Partitioning,
    PollingStrategy,
    SnapshotCompression,
    SnapshotPart,
    UserStatus,
)


class Ping(msgspec.Struct, frozen=True):
    pass


class GetStats(msgspec.Struct, frozen=True):
    pass


class GetSnapshot(msgspec.Struct, frozen=True):
    compression: SnapshotCompression
    parts: tuple[SnapshotPart, ...]


class GetClusterMetadata(msgspec.Struct, frozen=True):
    pass


class DescribeOptions(msgspec.Struct, frozen=True):
    scope: OptionScope


class GetMe(msgspec.Struct, frozen=True):
    pass


class GetClient(msgspec.Struct, frozen=True):
    client_id: int


class GetClients(msgspec.Struct, frozen=True):
    pass


class GetUser(msgspec.Struct, frozen=True):
    user: Identifier


class GetUsers(msgspec.Struct, frozen=True):
    pass


class CreateUser(msgspec.Struct, frozen=True):
    username: str
    password: str
    status: UserStatus
    permissions: Permissions | None
    options: Options = msgspec.field(default_factory=dict)


class DeleteUser(msgspec.Struct, frozen=True):
    user: Identifier


class UpdateUser(msgspec.Struct, frozen=True):
    user: Identifier
    username: str | None = None
    status: UserStatus | None = None
    options: Options = msgspec.field(default_factory=dict)


class UpdatePermissions(msgspec.Struct, frozen=True):
    user: Identifier
    permissions: Permissions | None


class ChangePassword(msgspec.Struct, frozen=True):
    user: Identifier
    current_password: str
    new_password: str


class LoginUser(msgspec.Struct, frozen=True):
    username: str
    password: str


class LoginWithToken(msgspec.Struct, frozen=True):
    token: str


class LogoutUser(msgspec.Struct, frozen=True):
    pass


class GetTokens(msgspec.Struct, frozen=True):
    pass


class CreateToken(msgspec.Struct, frozen=True):
    name: str
    expiry_us: int


class DeleteToken(msgspec.Struct, frozen=True):
    name: str


class PollMessages(msgspec.Struct, frozen=True):
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    strategy: PollingStrategy
    count: int
    auto_commit: bool


class SendMessages(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages_count: int
    batch: BytesLike


class FlushUnsavedBuffer(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    partition_id: int
    fsync: bool


class GetConsumerOffset(msgspec.Struct, frozen=True):
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None


class StoreConsumerOffset(msgspec.Struct, frozen=True):
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    offset: int
    ack: OffsetAck = OffsetAck.QUORUM


class DeleteConsumerOffset(msgspec.Struct, frozen=True):
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    ack: OffsetAck = OffsetAck.QUORUM


class GetStream(msgspec.Struct, frozen=True):
    stream: Identifier


class GetStreams(msgspec.Struct, frozen=True):
    pass


class CreateStream(msgspec.Struct, frozen=True):
    name: str
    options: Options = msgspec.field(default_factory=dict)
    wanted_id: int | None = None  # None = the lowest free one


class DeleteStream(msgspec.Struct, frozen=True):
    stream: Identifier


class UpdateStream(msgspec.Struct, frozen=True):
    stream: Identifier
    name: str
    options: Options = msgspec.field(default_factory=dict)


class PurgeStream(msgspec.Struct, frozen=True):
    stream: Identifier


class GetTopic(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier


class GetTopics(msgspec.Struct, frozen=True):
    stream: Identifier


class CreateTopic(msgspec.Struct, frozen=True):
    stream: Identifier
    partitions_count: int
    name: str
    options: Options = msgspec.field(default_factory=dict)
    wanted_id: int | None = None  # None = the lowest free one


class DeleteTopic(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier


class UpdateTopic(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    name: str
    options: Options = msgspec.field(default_factory=dict)


class PurgeTopic(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier


class CreatePartitions(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    partitions_count: int


class DeletePartitions(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    partitions_count: int


class DeleteSegments(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    partition_id: int
    segments_count: int


class GetConsumerGroup(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    group: Identifier


class GetConsumerGroups(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier


class CreateConsumerGroup(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    name: str
    wanted_id: int | None = None  # None = the next one


class DeleteConsumerGroup(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    group: Identifier


class JoinConsumerGroup(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    group: Identifier


class LeaveConsumerGroup(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    group: Identifier


class SyncConsumerGroup(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    group: Identifier


class ByteCut(msgspec.Struct, frozen=True):
    """Asks where the bytes from `offset` on exceed `bytes_max`."""

    partition_id: int
    offset: int
    bytes_max: int


class GetTopicExtent(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    cuts: tuple[ByteCut, ...] = ()


class StageMessages(msgspec.Struct, frozen=True):
    """One batch for later: nobody sees it before its epoch is committed. See `borzoi.broker.transactions`.

    `producer` names who writes epochs in order; `task` and `attempt` tell apart the parts of an epoch and
    the tries at one part; `sequence` counts the batches of an attempt from 0, so that a repetition is known.
    """

    stream: Identifier
    topic: Identifier
    producer: str
    epoch: int
    task: int
    attempt: int
    sequence: int
    partitioning: Partitioning
    messages_count: int
    batch: BytesLike


class StageCopy(msgspec.Struct, frozen=True):
    """Messages that the server has already, for later, as batches from `sequence` on.

    At most `count` messages of a partition of `source_topic`, from `offset` on; the server decides how many.
    """

    stream: Identifier
    topic: Identifier
    producer: str
    epoch: int
    task: int
    attempt: int
    sequence: int
    partitioning: Partitioning
    source_stream: Identifier
    source_topic: Identifier
    source_partition: int
    offset: int
    count: int


class StagedPart(msgspec.Struct, frozen=True):
    """The attempt at a task that counts, and how many batches it staged."""

    task: int
    attempt: int
    batches_count: int


class CommitEpoch(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    producer: str
    epoch: int
    parts: tuple[StagedPart, ...]


class AbortEpoch(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    producer: str
    epoch: int


class GetProducerEpoch(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    producer: str


class ForgetProducer(msgspec.Struct, frozen=True):
    """The producer's epochs stay committed, but nobody will know that they were."""

    stream: Identifier
    topic: Identifier
    producer: str


Request = (
    Ping
    | GetStats
    | GetSnapshot
    | GetClusterMetadata
    | DescribeOptions
    | GetMe
    | GetClient
    | GetClients
    | GetUser
    | GetUsers
    | CreateUser
    | DeleteUser
    | UpdateUser
    | UpdatePermissions
    | ChangePassword
    | LoginUser
    | LoginWithToken
    | LogoutUser
    | GetTokens
    | CreateToken
    | DeleteToken
    | PollMessages
    | SendMessages
    | FlushUnsavedBuffer
    | GetConsumerOffset
    | StoreConsumerOffset
    | DeleteConsumerOffset
    | GetStream
    | GetStreams
    | CreateStream
    | DeleteStream
    | UpdateStream
    | PurgeStream
    | GetTopic
    | GetTopics
    | CreateTopic
    | DeleteTopic
    | UpdateTopic
    | PurgeTopic
    | CreatePartitions
    | DeletePartitions
    | DeleteSegments
    | GetConsumerGroup
    | GetConsumerGroups
    | CreateConsumerGroup
    | DeleteConsumerGroup
    | JoinConsumerGroup
    | LeaveConsumerGroup
    | SyncConsumerGroup
    | GetTopicExtent
    | StageMessages
    | StageCopy
    | CommitEpoch
    | AbortEpoch
    | GetProducerEpoch
    | ForgetProducer
)
