"""Bodies of the commands for topics, partitions and segments.

    create             identifier stream, [u32 wanted id: A and B,] u32 partitions_count, settings, name8 name
    update             identifier stream, identifier topic, settings, name8 name
    get, delete, purge identifier stream, identifier topic
    list               identifier stream
    create, delete partitions   identifier stream, identifier topic, u32 partitions_count
    delete segments    identifier stream, identifier topic, u32 partition_id, u32 segments_count

    settings       u8 compression (1 none, 2 gzip), u64 message_expiry_us (0 = server default),
                   u64 max_topic_size (0 = server default), u8 replication factor
    TopicInfo      u32 id, u64 created_at_us, u32 partitions_count, u64 message_expiry_us, u8 compression,
                   u64 max_topic_size, u8 replication factor, u64 size_bytes, u64 messages_count, name8 name
    PartitionInfo  u32 id, u64 created_at_us, u32 segments_count, u64 current_offset, u64 size_bytes,
                   u64 messages_count
    TopicDetails   TopicInfo, PartitionInfo * partitions_count

Create answers TopicDetails, get TopicDetails or an empty body, list TopicInfo to the end of the body, the
others nothing. The settings are options of the model; a setting of 0 is an option not given, and options
that are no settings cannot be sent. The options of a reply are left out. The replication factor means
nothing to one node: read and dropped, in replies 1.
"""

from borzoi.model.errors import LocalProtocolError
from borzoi.model.replies import PartitionInfo, TopicDetails, TopicInfo
from borzoi.model.requests import (
    CreatePartitions,
    CreateTopic,
    DeletePartitions,
    DeleteSegments,
    DeleteTopic,
    GetTopic,
    GetTopics,
    PurgeTopic,
    UpdateTopic,
)
from borzoi.model.values import Compression, HeaderKind, Options, TypedValue
from borzoi.wire.classic.ids import Ids
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import NAME8, U8, U32, U64, Codec, Enumerated
from borzoi.wire.records import NOTHING, Details, Implied, Layout, Many, OrNothing, Prefixed, Record

_COMPRESSION = Enumerated(Compression)
_REPLICATION_UNSET, _REPLICATION_REPLIED = 0, 1

_COMPRESSION_KEY = "compression_algorithm"
_EXPIRY_KEY = "message_expiry"
_SIZE_KEY = "max_topic_size"
_KEYS = {_COMPRESSION_KEY, _EXPIRY_KEY, _SIZE_KEY}


class Settings(Codec[Options]):
    least_bytes = 18

    def read(self, cursor: Cursor) -> Options:
        compression = _COMPRESSION.read(cursor).name.lower()
        options = {_COMPRESSION_KEY: TypedValue(HeaderKind.STRING, compression.encode())}
        for key in (_EXPIRY_KEY, _SIZE_KEY):
            data = bytes(cursor.take(U64.least_bytes))
            if any(data):
                options[key] = TypedValue(HeaderKind.UINT64, data)
        U8.read(cursor)
        return options

    def write(self, out: bytearray, value: Options) -> None:
        if not value.keys() <= _KEYS:
            raise LocalProtocolError(f"this generation has no options {sorted(value.keys() - _KEYS)}")
        _COMPRESSION.write(out, _compression(value.get(_COMPRESSION_KEY)))
        for key in (_EXPIRY_KEY, _SIZE_KEY):
            out += _number(value.get(key))
        U8.write(out, _REPLICATION_UNSET)


def topic_info(ids: Ids) -> Record[TopicInfo]:
    lost_options = Implied[Options](dict, may_be_lost=True)
    return Record(
        TopicInfo,
        id=ids.number,
        created_at_us=U64,
        partitions_count=U32,
        message_expiry_us=U64,
        compression=_COMPRESSION,
        max_topic_size=U64,
        size_bytes=Prefixed(U8, _REPLICATION_REPLIED, U64),
        messages_count=U64,
        name=NAME8,
        explicit_options=lost_options,
        derived_options=lost_options,
    )


def layouts(ids: Ids) -> dict[Code, Layout]:
    stream = {"stream": ids.identifier}
    topic = {**stream, "topic": ids.identifier}
    info = topic_info(ids)
    partition = Record(
        PartitionInfo,
        id=ids.number,
        created_at_us=U64,
        segments_count=U32,
        current_offset=U64,
        size_bytes=U64,
        messages_count=U64,
    )
    details = Details(TopicDetails, "partitions_count", topic=info, partitions=partition)
    return {
        Code.GET_TOPIC: Layout(Record(GetTopic, **topic), OrNothing(details)),
        Code.GET_TOPICS: Layout(Record(GetTopics, **stream), Many(info)),
        Code.CREATE_TOPIC: Layout(
            Record(
                CreateTopic,
                **stream,
                wanted_id=ids.wanted,
                partitions_count=U32,
                options=Settings(),
                name=NAME8,
            ),
            details,
        ),
        Code.DELETE_TOPIC: Layout(Record(DeleteTopic, **topic), NOTHING),
        Code.UPDATE_TOPIC: Layout(Record(UpdateTopic, **topic, options=Settings(), name=NAME8), NOTHING),
        Code.PURGE_TOPIC: Layout(Record(PurgeTopic, **topic), NOTHING),
        Code.CREATE_PARTITIONS: Layout(Record(CreatePartitions, **topic, partitions_count=U32), NOTHING),
        Code.DELETE_PARTITIONS: Layout(Record(DeletePartitions, **topic, partitions_count=U32), NOTHING),
        Code.DELETE_SEGMENTS: Layout(
            Record(DeleteSegments, **topic, partition_id=ids.number, segments_count=U32), NOTHING
        ),
    }


def _compression(value: TypedValue | None) -> Compression:
    if value is None:
        return Compression.NONE
    for compression in Compression:
        if value == TypedValue(HeaderKind.STRING, compression.name.lower().encode()):
            return compression
    raise LocalProtocolError(f"{value} is no compression")


def _number(value: TypedValue | None) -> bytes:
    if value is None:
        return bytes(U64.least_bytes)
    if value.kind is not HeaderKind.UINT64 or len(value.data) != U64.least_bytes:
        raise LocalProtocolError(f"{value} is no u64")
    return value.data
