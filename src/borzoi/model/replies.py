"""Every reply of the platform, free of any wire dialect.

A handler that has nothing to say returns None; so does one whose thing does not exist, where the
protocol has no error for it ("get stream" of a missing stream).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from borzoi.model.permissions import Permissions
from borzoi.model.values import (
    BytesLike,
    Compression,
    HeaderKind,
    NodeRole,
    NodeStatus,
    Options,
    Transport,
    UserStatus,
)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    id: int
    created_at_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    id: int
    created_at_us: int
    partitions_count: int
    message_expiry_us: int
    compression: Compression
    max_topic_size: int
    size_bytes: int
    messages_count: int
    name: str
    explicit_options: Options = field(default_factory=dict)
    derived_options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDetails:
    topic: TopicInfo
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class StreamInfo:
    id: int
    created_at_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamDetails:
    stream: StreamInfo
    topics: tuple[TopicInfo, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Where a sent batch was stored."""

    stream_id: int
    topic_id: int
    partition_id: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class PolledMessages:
    """A poll's answer. `batches` are whole stored batches, back to back, in one or more buffers."""

    partition_id: int
    current_offset: int
    messages_count: int
    batches: Sequence[BytesLike] = ()


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    partition_id: int
    current_offset: int
    stored_offset: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    id: int
    partitions_count: int
    members_count: int
    name: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupDetails:
    group: GroupInfo
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What a member may poll, valid until the generation changes."""

    generation: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UserInfo:
    id: int
    created_at_us: int
    status: UserStatus
    username: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserDetails:
    user: UserInfo
    permissions: Permissions | None


@dataclass(frozen=True, slots=True)
class TokenInfo:
    name: str
    expires_at_us: int  # 0 = never


@dataclass(frozen=True, slots=True)
class RawToken:
    """A new personal access token; the only time its text is shown."""

    token: str


@dataclass(frozen=True, slots=True)
class LoggedIn:
    user_id: int


@dataclass(frozen=True, slots=True)
class ClientInfo:
    client_id: int
    user_id: int | None
    transport: Transport
    address: str
    consumer_groups_count: int


@dataclass(frozen=True, slots=True)
class ClientGroup:
    stream_id: int
    topic_id: int
    group_id: int


@dataclass(frozen=True, slots=True)
class ClientDetails:
    client: ClientInfo
    groups: tuple[ClientGroup, ...]


@dataclass(frozen=True, slots=True)
class ClusterNode:
    name: str
    ip: str
    tcp_port: int
    quic_port: int
    http_port: int
    websocket_port: int
    role: NodeRole = NodeRole.LEADER
    status: NodeStatus = NodeStatus.HEALTHY


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    name: str
    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class OptionSpec:
    key: str
    kind: HeaderKind
    default: bytes
    description: str


@dataclass(frozen=True, slots=True)
class CacheMetrics:
    stream_id: int
    topic_id: int
    partition_id: int
    hits: int
    misses: int
    hit_ratio: float


@dataclass(frozen=True, slots=True)
class Stats:
    process_id: int
    cpu_usage: float
    total_cpu_usage: float
    memory_usage_bytes: int
    total_memory_bytes: int
    available_memory_bytes: int
    run_time_us: int
    start_time_us: int
    read_bytes: int
    written_bytes: int
    messages_size_bytes: int
    streams_count: int
    topics_count: int
    partitions_count: int
    segments_count: int
    messages_count: int
    clients_count: int
    consumer_groups_count: int
    hostname: str
    os_name: str
    os_version: str
    kernel_version: str
    server_version: str
    server_semver: int
    cache_metrics: tuple[CacheMetrics, ...]
    threads_count: int
    free_disk_bytes: int
    total_disk_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A ZIP archive with what a person who helps from afar wants to see."""

    archive: bytes
