"""Bodies of the commands about the server itself and its clients, alike in every generation.

    ping, stats, cluster metadata, me, clients   -
    snapshot          u8 compression, u8 count, u8 part * count
    client            u32 client_id

    Stats            numbers and str32 in the order of `_stats`; cache metrics are u32 count and
                     count * (u32 stream, u32 topic, u32 partition, u64 hits, u64 misses, f32 ratio)
    Snapshot         the archive, to the end of the body
    ClusterMetadata  str32 name, u32 count, ClusterNode * count
    ClusterNode      str32 name, str32 ip, u16 tcp, u16 quic, u16 http, u16 websocket, u8 role, u8 status
    ClientInfo       u32 client_id, u32 user_id or none, u8 transport, str32 address,
                     u32 consumer_groups_count
    ClientDetails    ClientInfo, (u32 stream_id, u32 topic_id, u32 group_id) * consumer_groups_count

Me answers ClientDetails, client ClientDetails or an empty body; clients ClientInfo to the end of the body;
ping nothing. What differs is how ids are numbered and how "no user" is written, which the caller gives.
A client id is that of a connection and is numbered alike everywhere. The newest classic clients want the
last three numbers of Stats and the others ignore them, so they are always sent.
"""

from borzoi.model.replies import (
    CacheMetrics,
    ClientDetails,
    ClientGroup,
    ClientInfo,
    ClusterMetadata,
    ClusterNode,
    Snapshot,
    Stats,
)
from borzoi.model.requests import (
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetMe,
    GetSnapshot,
    GetStats,
    Ping,
)
from borzoi.model.values import NodeRole, NodeStatus, SnapshotCompression, SnapshotPart, Transport
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import F32, STR32, U8, U16, U32, U64, Codec, Enumerated
from borzoi.wire.records import NOTHING, Counted, Details, Layout, Many, OrNothing, Record

_CLUSTER_NODE = Record(
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


class SnapshotBody(Codec[Snapshot]):
    least_bytes = 0

    def read(self, cursor: Cursor) -> Snapshot:
        return Snapshot(bytes(cursor.rest()))

    def write(self, out: bytearray, value: Snapshot) -> None:
        out += value.archive


def system_layouts(id_codec: Codec[int], optional_user: Codec[int | None]) -> dict[Code, Layout]:
    client = Record(
        ClientInfo,
        client_id=U32,
        user_id=optional_user,
        transport=Enumerated(Transport),
        address=STR32,
        consumer_groups_count=U32,
    )
    group = Record(ClientGroup, stream_id=id_codec, topic_id=id_codec, group_id=id_codec)
    details = Details(ClientDetails, "consumer_groups_count", client=client, groups=group)
    return {
        Code.PING: Layout(Record(Ping), NOTHING),
        Code.GET_STATS: Layout(Record(GetStats), _stats(id_codec)),
        Code.SNAPSHOT: Layout(
            Record(
                GetSnapshot,
                compression=Enumerated(SnapshotCompression),
                parts=Counted(Enumerated(SnapshotPart), U8),
            ),
            SnapshotBody(),
        ),
        Code.GET_CLUSTER_METADATA: Layout(
            Record(GetClusterMetadata), Record(ClusterMetadata, name=STR32, nodes=Counted(_CLUSTER_NODE))
        ),
        Code.GET_ME: Layout(Record(GetMe), details),
        Code.GET_CLIENT: Layout(Record(GetClient, client_id=U32), OrNothing(details)),
        Code.GET_CLIENTS: Layout(Record(GetClients), Many(client)),
    }


def _stats(id_codec: Codec[int]) -> Record[Stats]:
    return Record(
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
                CacheMetrics,
                stream_id=id_codec,
                topic_id=id_codec,
                partition_id=id_codec,
                hits=U64,
                misses=U64,
                hit_ratio=F32,
            )
        ),
        threads_count=U32,
        free_disk_bytes=U64,
        total_disk_bytes=U64,
    )
