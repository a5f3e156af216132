"""The values that requests and replies are made of."""

from enum import IntEnum

import msgspec

# What carries message bytes without a copy.
BytesLike = bytes | bytearray | memoryview

# A stream, topic, group, user or consumer is named by its numeric id or by its name.
Identifier = int | str

# The partition id of a poll reply that tells a group member: this partition is not yours, sync again.
FENCED_PARTITION_ID = 0xFFFF_FFFF


class ConsumerKind(IntEnum):
    CONSUMER = 1
    GROUP = 2


class PollingKind(IntEnum):
    OFFSET = 1
    TIMESTAMP = 2
    FIRST = 3
    LAST = 4
    NEXT = 5


class PartitioningKind(IntEnum):
    BALANCED = 1
    PARTITION_ID = 2
    MESSAGES_KEY = 3


class HeaderKind(IntEnum):
    """Type of a user header's key or value, and of an option's value."""

    RAW = 1
    STRING = 2
    BOOL = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    INT128 = 8
    UINT8 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    UINT128 = 13
    FLOAT32 = 14
    FLOAT64 = 15


class UserStatus(IntEnum):
    ACTIVE = 1
    INACTIVE = 2


class Compression(IntEnum):
    NONE = 1
    GZIP = 2


class Transport(IntEnum):
    TCP = 1
    QUIC = 2
    HTTP = 3
    WEBSOCKET = 4


class NodeRole(IntEnum):
    LEADER = 0
    FOLLOWER = 1


class NodeStatus(IntEnum):
    HEALTHY = 0
    STARTING = 1
    STOPPING = 2
    UNREACHABLE = 3
    MAINTENANCE = 4


class OptionScope(IntEnum):
    TOPIC = 1
    STREAM = 2
    USER = 3


class SnapshotCompression(IntEnum):
    STORED = 1
    DEFLATED = 2
    BZIP2 = 3
    ZSTD = 4
    LZMA = 5
    XZ = 6


class SnapshotPart(IntEnum):
    FILESYSTEM_OVERVIEW = 1
    PROCESS_LIST = 2
    RESOURCE_USAGE = 3
    TEST = 4
    SERVER_LOGS = 5
    SERVER_CONFIG = 6
    ALL = 100


class OffsetAck(IntEnum):
    NONE = 0
    QUORUM = 1


class TypedValue(msgspec.Struct, frozen=True):
    """A value with its kind, as bytes: half of a user header, or an option's value."""

    kind: HeaderKind
    data: bytes


# Options of a topic (streams and users have none yet), in the order they came.
Options = dict[str, TypedValue]


class Consumer(msgspec.Struct, frozen=True):
    kind: ConsumerKind
    id: Identifier


class Partitioning(msgspec.Struct, frozen=True):
    """How the partition of a send is chosen. `value` is empty, a u32, or the key, by kind."""

    kind: PartitioningKind
    value: bytes = b""


class PollingStrategy(msgspec.Struct, frozen=True):
    kind: PollingKind
    value: int = 0
