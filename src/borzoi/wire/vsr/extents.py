"""Bodies of `get_topic_extent`, a command of Borzoi's own.

request  identifier stream, identifier topic, u32 count, cut * count
cut      u32 partition_id, u64 offset, u64 bytes_max
reply    u32 stream_id, u32 topic_id, u64 created_at_us, u32 count, extent * count
extent   u32 partition_id, u64 first_offset, u64 next_offset, u64 cut_offset, u64 bytes_after
"""

from borzoi.model.replies import PartitionExtent, TopicExtent
from borzoi.model.requests import ByteCut, GetTopicExtent
from borzoi.wire.commands import Code
from borzoi.wire.fields import IDENTIFIER, U32, U64
from borzoi.wire.records import Counted, Layout, Record

_CUT = Record(ByteCut, partition_id=U32, offset=U64, bytes_max=U64)
_EXTENT = Record(
    PartitionExtent, partition_id=U32, first_offset=U64, next_offset=U64, cut_offset=U64, bytes_after=U64
)

LAYOUTS = {
    Code.GET_TOPIC_EXTENT: Layout(
        Record(GetTopicExtent, stream=IDENTIFIER, topic=IDENTIFIER, cuts=Counted(_CUT)),
        Record(TopicExtent, stream_id=U32, topic_id=U32, created_at_us=U64, partitions=Counted(_EXTENT)),
    ),
}
