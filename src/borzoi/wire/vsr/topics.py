"""Bodies of the commands for topics, partitions and segments.

    create             identifier stream, u32 partitions_count, name8 name, options
    update             identifier stream, identifier topic, name8 name, options
    get, delete, purge identifier stream, identifier topic
    list               identifier stream
    create, delete partitions   identifier stream, identifier topic, u32 partitions_count
    delete segments    identifier stream, identifier topic, u32 partition_id, u32 segments_count

    TopicInfo      u32 id, u64 created_at_us, u32 partitions_count, u64 message_expiry_us,
                   u8 compression (1 none, 2 gzip), u64 max_topic_size, u64 size_bytes, u64 messages_count,
                   name8 name, u32 length + explicit options, u32 length + derived options
    PartitionInfo  u32 id, u64 created_at_us, u32 segments_count, u64 current_offset, u64 size_bytes,
                   u64 messages_count
    TopicDetails   TopicInfo, PartitionInfo * partitions_count

Create answers TopicDetails, get TopicDetails or an empty body, the others nothing. List answers u32 count,
TopicInfo * count: the only list with a count, and one that may be left out altogether.
"""

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
from borzoi.model.values import Compression
from borzoi.wire.commands import Code
from borzoi.wire.fields import IDENTIFIER, NAME8, U32, U64, Enumerated
from borzoi.wire.records import NOT_SENT, NOTHING, Counted, Details, Layout, OrNothing, Record
from borzoi.wire.vsr.options import OPTIONS, OPTIONS32

PARTITION_INFO = Record(
    PartitionInfo,
    id=U32,
    created_at_us=U64,
    segments_count=U32,
    current_offset=U64,
    size_bytes=U64,
    messages_count=U64,
)
TOPIC_INFO = Record(
    TopicInfo,
    id=U32,
    created_at_us=U64,
    partitions_count=U32,
    message_expiry_us=U64,
    compression=Enumerated(Compression),
    max_topic_size=U64,
    size_bytes=U64,
    messages_count=U64,
    name=NAME8,
    explicit_options=OPTIONS32,
    derived_options=OPTIONS32,
)
TOPIC_DETAILS = Details(TopicDetails, "partitions_count", topic=TOPIC_INFO, partitions=PARTITION_INFO)

_TOPIC = {"stream": IDENTIFIER, "topic": IDENTIFIER}

LAYOUTS = {
    Code.GET_TOPIC: Layout(Record(GetTopic, **_TOPIC), OrNothing(TOPIC_DETAILS)),
    Code.GET_TOPICS: Layout(Record(GetTopics, stream=IDENTIFIER), Counted(TOPIC_INFO, may_be_missing=True)),
    Code.CREATE_TOPIC: Layout(
        Record(
            CreateTopic,
            stream=IDENTIFIER,
            partitions_count=U32,
            name=NAME8,
            options=OPTIONS,
            wanted_id=NOT_SENT,
        ),
        TOPIC_DETAILS,
    ),
    Code.DELETE_TOPIC: Layout(Record(DeleteTopic, **_TOPIC), NOTHING),
    Code.UPDATE_TOPIC: Layout(Record(UpdateTopic, **_TOPIC, name=NAME8, options=OPTIONS), NOTHING),
    Code.PURGE_TOPIC: Layout(Record(PurgeTopic, **_TOPIC), NOTHING),
    Code.CREATE_PARTITIONS: Layout(Record(CreatePartitions, **_TOPIC, partitions_count=U32), NOTHING),
    Code.DELETE_PARTITIONS: Layout(Record(DeletePartitions, **_TOPIC, partitions_count=U32), NOTHING),
    Code.DELETE_SEGMENTS: Layout(
        Record(DeleteSegments, **_TOPIC, partition_id=U32, segments_count=U32), NOTHING
    ),
}
