"""Bodies of the consumer-offset commands.

    get     target
    store   target, u64 offset, u8 ack (0 none, 1 quorum)
    delete  target, u8 ack

    target          consumer, identifier stream, identifier topic, optional partition (5 bytes)
    ConsumerOffset  u32 partition_id, u64 current_offset, u64 stored_offset

Get answers ConsumerOffset, or an empty body when nothing is stored; the others answer nothing.

A consumer stores its offset again and again with only the last nine bytes changed, so a caller may keep
what `decode_target` says about the bytes before `STORE_SUFFIX`.
"""

from struct import Struct
from typing import Any

from borzoi.model.replies import ConsumerOffset
from borzoi.model.requests import DeleteConsumerOffset, GetConsumerOffset, StoreConsumerOffset
from borzoi.model.values import BytesLike, Consumer, Identifier, OffsetAck
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import CONSUMER, IDENTIFIER, OPTIONAL_PARTITION, U32, U64, Codec, Enumerated
from borzoi.wire.records import NOTHING, Layout, OrNothing, Record

Target = tuple[Consumer, Identifier, Identifier, int | None]

# offset, ack
STORE_SUFFIX = Struct("<QB")

TARGET_FIELDS: dict[str, Codec[Any]] = {
    "consumer": CONSUMER,
    "stream": IDENTIFIER,
    "topic": IDENTIFIER,
    "partition_id": OPTIONAL_PARTITION,
}
_ACK = Enumerated(OffsetAck)

LAYOUTS = {
    Code.GET_CONSUMER_OFFSET: Layout(
        Record(GetConsumerOffset, **TARGET_FIELDS),
        OrNothing(Record(ConsumerOffset, partition_id=U32, current_offset=U64, stored_offset=U64)),
    ),
    Code.STORE_CONSUMER_OFFSET: Layout(
        Record(StoreConsumerOffset, **TARGET_FIELDS, offset=U64, ack=_ACK), NOTHING
    ),
    Code.DELETE_CONSUMER_OFFSET: Layout(Record(DeleteConsumerOffset, **TARGET_FIELDS, ack=_ACK), NOTHING),
}


def decode_target(prefix: BytesLike) -> Target:
    """Consumer, stream, topic and partition of a poll or an offset command, from exactly their bytes."""
    cursor = Cursor(prefix)
    target = (
        CONSUMER.read(cursor),
        IDENTIFIER.read(cursor),
        IDENTIFIER.read(cursor),
        OPTIONAL_PARTITION.read(cursor),
    )
    cursor.finish()
    return target
