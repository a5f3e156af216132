"""Every reply of the platform, free of any wire dialect.

A handler that has nothing to say returns None; so does one whose thing does not exist, where the
protocol has no error for it ("get stream" of a missing stream).
"""

from collections.abc import Sequence

import msgspec

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


class PartitionInfo(msgspec.Struct, frozen=True):
    id: int
    created_at_us: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


class TopicInfo(msgspec.Struct, frozen=True):
    id: int
    created_at_us: int
    partitions_count: int
    message_expiry_us: int
    compression: Compression
    max_topic_size: int
    size_bytes: int
    messages_count: int
    name: str
    explicit_options: Options = msgspec.field(default_factory=dict)
    derived_options: Options = msgspec.field(default_factory=dict)


class TopicDetails(msgspec.Struct, frozen=True):
    topic: TopicInfo
    partitions: tuple[PartitionInfo, ...]


class StreamInfo(msgspec.Struct, frozen=True):
    id: int
    created_at_us: int
    topics_count: int
    size_bytes: int
    messages_count: int
    name: str
    options: Options = msgspec.field(default_factory=dict)


class StreamDetails(msgspec.Struct, frozen=True):
    stream: StreamInfo
    topics: tuple[TopicInfo, ...]


class Confirmation(msgspec.Struct, frozen=True):
    """Where a sent batch was stored."""

    stream_id: int
    topic_id: int
    partition_id: int
    base_offset: int


class PolledMessages(msgspec.Struct, frozen=True):
    """A poll's answer. `batches` are whole stored batches, back to back, in one or more buffers."""

    partition_id: int
    current_offset: int
    messages_count: int
    batches: Sequence[BytesLike] = ()


class ConsumerOffset(msgspec.Struct, frozen=True):
    partition_id: int
    current_offset: int
    stored_offset: int


class GroupInfo(msgspec.Struct, frozen=True):
    id: int
    partitions_count: int
    members_count: int
    name: str


class GroupMember(msgspec.Struct, frozen=True):
    id: int
    partitions: tuple[int, ...]


class GroupDetails(msgspec.Struct, frozen=True):
    group: GroupInfo
    members: tuple[GroupMember, ...]


class GroupAssignment(msgspec.Struct, frozen=True):
    """What a member may poll, valid until the generation changes."""

    generation: int
    partitions: tuple[int, ...]


class UserInfo(msgspec.Struct, frozen=True):
    id: int
    created_at_us: int
    status: UserStatus
    username: str
    options: Options = msgspec.field(default_factory=dict)


class UserDetails(msgspec.Struct, frozen=True):
    user: UserInfo
    permissions: Permissions | None


class TokenInfo(msgspec.Struct, frozen=True):
    name: str
    expires_at_us: int  # 0 = never


class RawToken(msgspec.Struct, frozen=True):
    """A new personal access token; the only time its text is shown."""

    token: str


class LoggedIn(msgspec.Struct, frozen=True):
    user_id: int


class ClientInfo(msgspec.Struct, frozen=True):
    client_id: int
    user_id: int | None
    transport: Transport
    address: str
    consumer_groups_count: int


class ClientGroup(msgspec.Struct, frozen=True):
    stream_id: int
    topic_id: int
    group_id: int


class ClientDetails(msgspec.Struct, frozen=True):
    client: ClientInfo
    groups: tuple[ClientGroup, ...]


class ClusterNode(msgspec.Struct, frozen=True):
    name: str
    ip: str
    tcp_port: int
    quic_port: int
    http_port: int
    websocket_port: int
    role: NodeRole = NodeRole.LEADER
    status: NodeStatus = NodeStatus.HEALTHY


class ClusterMetadata(msgspec.Struct, frozen=True):
    name: str
    nodes: tuple[ClusterNode, ...]


class OptionSpec(msgspec.Struct, frozen=True):
    key: str
    kind: HeaderKind
    default: bytes
    description: str


class CacheMetrics(msgspec.Struct, frozen=True):
    stream_id: int
    topic_id: int
    partition_id: int
    hits: int
    misses: int
    hit_ratio: float


class Stats(msgspec.Struct, frozen=True):
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


class Snapshot(msgspec.Struct, frozen=True):
    """A ZIP archive with what a person who helps from afar wants to see."""

    archive: bytes


class PartitionExtent(msgspec.Struct, frozen=True):
    """What a partition holds: offsets from `first_offset` up to, not including, `next_offset`.

    Where a `ByteCut` was asked for, `cut_offset` is where its bytes end, and `bytes_after` is how many bytes
    there are from its offset to the end; otherwise the end, and how many there are at all.
    """

    partition_id: int
    first_offset: int
    next_offset: int
    cut_offset: int
    bytes_after: int


class TopicExtent(msgspec.Struct, frozen=True):
    """A topic that was deleted and made again under its old name has another `created_at_us`."""

    stream_id: int
    topic_id: int
    created_at_us: int
    partitions: tuple[PartitionExtent, ...]


class Staged(msgspec.Struct, frozen=True):
    """`batches_count` are staged for the attempt now; none if the epoch is committed already."""

    is_committed: bool
    batches_count: int


class Copied(msgspec.Struct, frozen=True):
    """What is staged for the attempt now, copied or not; nothing if the epoch is committed already."""

    is_committed: bool
    batches_count: int
    messages_count: int


class EpochCommitted(msgspec.Struct, frozen=True):
    """`is_repeated` if it had been committed before, which changed nothing."""

    epoch: int
    is_repeated: bool
    messages_count: int


class ProducerEpoch(msgspec.Struct, frozen=True):
    epoch: int
    committed_at_us: int
