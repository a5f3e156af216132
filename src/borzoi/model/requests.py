"""Every request of the platform, free of any wire dialect.

A wire generation decodes its frames into these; the broker has one handler per class; the
client's methods build them. `borzoi.wire.commands` ties each to its code and its reply.
"""

from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class GetStats:
    pass


@dataclass(frozen=True, slots=True)
class GetSnapshot:
    compression: SnapshotCompression
    parts: tuple[SnapshotPart, ...]


@dataclass(frozen=True, slots=True)
class GetClusterMetadata:
    pass


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    scope: OptionScope


@dataclass(frozen=True, slots=True)
class GetMe:
    pass


@dataclass(frozen=True, slots=True)
class GetClient:
    client_id: int


@dataclass(frozen=True, slots=True)
class GetClients:
    pass


@dataclass(frozen=True, slots=True)
class GetUser:
    user: Identifier


@dataclass(frozen=True, slots=True)
class GetUsers:
    pass


@dataclass(frozen=True, slots=True)
class CreateUser:
    username: str
    password: str
    status: UserStatus
    permissions: Permissions | None
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteUser:
    user: Identifier


@dataclass(frozen=True, slots=True)
class UpdateUser:
    user: Identifier
    username: str | None = None
    status: UserStatus | None = None
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdatePermissions:
    user: Identifier
    permissions: Permissions | None


@dataclass(frozen=True, slots=True)
class ChangePassword:
    user: Identifier
    current_password: str
    new_password: str


@dataclass(frozen=True, slots=True)
class LoginUser:
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class LoginWithToken:
    token: str


@dataclass(frozen=True, slots=True)
class LogoutUser:
    pass


@dataclass(frozen=True, slots=True)
class GetTokens:
    pass


@dataclass(frozen=True, slots=True)
class CreateToken:
    name: str
    expiry_us: int


@dataclass(frozen=True, slots=True)
class DeleteToken:
    name: str


@dataclass(frozen=True, slots=True)
class PollMessages:
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    strategy: PollingStrategy
    count: int
    auto_commit: bool


@dataclass(frozen=True, slots=True)
class SendMessages:
    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages_count: int
    batch: BytesLike


@dataclass(frozen=True, slots=True)
class FlushUnsavedBuffer:
    stream: Identifier
    topic: Identifier
    partition_id: int
    fsync: bool


@dataclass(frozen=True, slots=True)
class GetConsumerOffset:
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None


@dataclass(frozen=True, slots=True)
class StoreConsumerOffset:
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    offset: int
    ack: OffsetAck = OffsetAck.QUORUM


@dataclass(frozen=True, slots=True)
class DeleteConsumerOffset:
    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    ack: OffsetAck = OffsetAck.QUORUM


@dataclass(frozen=True, slots=True)
class GetStream:
    stream: Identifier


@dataclass(frozen=True, slots=True)
class GetStreams:
    pass


@dataclass(frozen=True, slots=True)
class CreateStream:
    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteStream:
    stream: Identifier


@dataclass(frozen=True, slots=True)
class UpdateStream:
    stream: Identifier
    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PurgeStream:
    stream: Identifier


@dataclass(frozen=True, slots=True)
class GetTopic:
    stream: Identifier
    topic: Identifier


@dataclass(frozen=True, slots=True)
class GetTopics:
    stream: Identifier


@dataclass(frozen=True, slots=True)
class CreateTopic:
    stream: Identifier
    partitions_count: int
    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    stream: Identifier
    topic: Identifier


@dataclass(frozen=True, slots=True)
class UpdateTopic:
    stream: Identifier
    topic: Identifier
    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PurgeTopic:
    stream: Identifier
    topic: Identifier


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    stream: Identifier
    topic: Identifier
    partitions_count: int


@dataclass(frozen=True, slots=True)
class DeletePartitions:
    stream: Identifier
    topic: Identifier
    partitions_count: int


@dataclass(frozen=True, slots=True)
class DeleteSegments:
    stream: Identifier
    topic: Identifier
    partition_id: int
    segments_count: int


@dataclass(frozen=True, slots=True)
class GetConsumerGroup:
    stream: Identifier
    topic: Identifier
    group: Identifier


@dataclass(frozen=True, slots=True)
class GetConsumerGroups:
    stream: Identifier
    topic: Identifier


@dataclass(frozen=True, slots=True)
class CreateConsumerGroup:
    stream: Identifier
    topic: Identifier
    name: str


@dataclass(frozen=True, slots=True)
class DeleteConsumerGroup:
    stream: Identifier
    topic: Identifier
    group: Identifier


@dataclass(frozen=True, slots=True)
class JoinConsumerGroup:
    stream: Identifier
    topic: Identifier
    group: Identifier


@dataclass(frozen=True, slots=True)
class LeaveConsumerGroup:
    stream: Identifier
    topic: Identifier
    group: Identifier


@dataclass(frozen=True, slots=True)
class SyncConsumerGroup:
    stream: Identifier
    topic: Identifier
    group: Identifier


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
)
