"""Bodies of the commands about the server itself and its clients.

    ping, stats, cluster metadata, me, clients   -
    snapshot          u8 compression, u8 count, u8 part * count
    describe options  u8 scope (1 topic, 2 stream, 3 user)
    client            u32 client_id

    Stats            see STATS: numbers and str32 in the order given there; cache metrics are u32 count and
                     count * (u32 stream, u32 topic, u32 partition, u64 hits, u64 misses, f32 ratio)
    Snapshot         the archive, to the end of the body
    ClusterMetadata  str32 name, u32 count, ClusterNode * count
    ClusterNode      str32 name, str32 ip, u16 tcp, u16 quic, u16 http, u16 websocket, u8 role, u8 status
    OptionSpec       name8 key, u8 kind, u32 length + default, str32 description
    ClientInfo       u32 client_id, u32 user_id (2^32-1 = none), u8 transport, str32 address,
                     u32 consumer_groups_count
    ClientDetails    ClientInfo, (u32 stream_id, u32 topic_id, u32 group_id) * consumer_groups_count

Describe options answers u32 count and OptionSpec * count; client ClientDetails or an empty body; clients
ClientInfo to the end of the body; ping nothing.
"""

from borzoi.model.limits import U32_MAX
from borzoi.model.replies import (
    CacheMetrics,
    ClientDetails,
    ClientGroup,
    ClientInfo,
    ClusterMetadata,
    ClusterNode,
    OptionSpec,
    Snapshot,
    Stats,
)
from borzoi.model.requests import (
    DescribeOptions,
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetMe,
    GetSnapshot,
    GetStats,
    Ping,
)
from borzoi.model.values import (
    HeaderKind,
    NodeRole,
    NodeStatus,
    OptionScope,
    SnapshotCompression,
    SnapshotPart,
    Transport,
)
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import BYTES32, F32, NAME8, STR32, U8, U16, U32, U64, Codec, Enumerated
from borzoi.wire.records import NOTHING, Counted, Details, Layout, Many, Nullable, OrNothing, Record

STATS = Record(
    Stats,
    process_id=U32,
    cpu_usage=F32,
    total_cpu_usage=F32,
    memory_usage_bytes=U64,
    total_memory_bytes=U64,
    available_memory_bytes=U64,
    run_time_us=U64,
    start_time_us=U64,
    read_bytes=U64,
    written_bytes=U64,
    messages_size_bytes=U64,
    streams_count=U32,
    topics_count=U32,
    partitions_count=U32,
    segments_count=U32,
    messages_count=U64,
    clients_count=U32,
    consumer_groups_count=U32,
    hostname=STR32,
    os_name=STR32,
    os_version=STR32,
    kernel_version=STR32,
    server_version=STR32,
    server_semver=U32,
    cache_metrics=Counted(
        Record(
            CacheMetrics, stream_id=U32, topic_id=U32, partition_id=U32, hits=U64, misses=U64, hit_ratio=F32
        )
    ),
    threads_count=U32,
    free_disk_bytes=U64,
    total_disk_bytes=U64,
)
CLUSTER_NODE = Record(
    ClusterNode,
    name=STR32,
    ip=STR32,
    tcp_port=U16,
    quic_port=U16,
    http_port=U16,
    websocket_port=U16,
    role=Enumerated(NodeRole),
    status=Enumerated(NodeStatus),
)
OPTION_SPEC = Record(OptionSpec, key=NAME8, kind=Enumerated(HeaderKind), default=BYTES32, description=STR32)
CLIENT_INFO = Record(
    ClientInfo,
    client_id=U32,
    user_id=Nullable(U32, null=U32_MAX),
    transport=Enumerated(Transport),
    address=STR32,
    consumer_groups_count=U32,
)
CLIENT_DETAILS = Details(
    ClientDetails,
    "consumer_groups_count",
    client=CLIENT_INFO,
    groups=Record(ClientGroup, stream_id=U32, topic_id=U32, group_id=U32),
)


class SnapshotBody(Codec[Snapshot]):
    least_bytes = 0

    def read(self, cursor: Cursor) -> Snapshot:
        return Snapshot(bytes(cursor.rest()))

    def write(self, out: bytearray, value: Snapshot) -> None:
        out += value.archive


LAYOUTS = {
    Code.PING: Layout(Record(Ping), NOTHING),
    Code.GET_STATS: Layout(Record(GetStats), STATS),
    Code.SNAPSHOT: Layout(
        Record(
            GetSnapshot,
            compression=Enumerated(SnapshotCompression),
            parts=Counted(Enumerated(SnapshotPart), U8),
        ),
        SnapshotBody(),
    ),
    Code.GET_CLUSTER_METADATA: Layout(
        Record(GetClusterMetadata), Record(ClusterMetadata, name=STR32, nodes=Counted(CLUSTER_NODE))
    ),
    Code.DESCRIBE_OPTIONS: Layout(
        Record(DescribeOptions, scope=Enumerated(OptionScope)), Counted(OPTION_SPEC)
    ),
    Code.GET_ME: Layout(Record(GetMe), CLIENT_DETAILS),
    Code.GET_CLIENT: Layout(Record(GetClient, client_id=U32), OrNothing(CLIENT_DETAILS)),
    Code.GET_CLIENTS: Layout(Record(GetClients), Many(CLIENT_INFO)),
}
