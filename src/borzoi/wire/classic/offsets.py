"""Bodies of the consumer-offset commands.

    get     target
    store   target, u64 offset
    delete  target

    target          consumer, identifier stream, identifier topic, optional partition
    ConsumerOffset  u32 partition_id, u64 current_offset, u64 stored_offset

Get answers ConsumerOffset, or an empty body when nothing is stored; the others answer nothing. There is no
choice of acknowledgement: an answered store is a stored offset.

A consumer stores its offset again and again with only the last eight bytes changed, so a caller may keep
what `decode_target` says about the bytes before `STORE_SUFFIX`.
"""

from struct import Struct
from typing import Any

from borzoi.model.replies import ConsumerOffset
from borzoi.model.requests import DeleteConsumerOffset, GetConsumerOffset, StoreConsumerOffset
from borzoi.model.values import BytesLike, Consumer, Identifier, OffsetAck
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.ids import IDS, Ids
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import U64, Codec
from borzoi.wire.records import NOTHING, Implied, Layout, OrNothing, Record

Target = tuple[Consumer, Identifier, Identifier, int | None]

# offset
STORE_SUFFIX = Struct("<Q")


def decode_target(prefix: BytesLike, dialect: Dialect) -> Target:
    """Consumer, stream, topic and partition of a poll or an offset command, from exactly their bytes."""
    ids = IDS[dialect]
    cursor = Cursor(prefix)
    target = (
        ids.consumer.read(cursor),
        ids.identifier.read(cursor),
        ids.identifier.read(cursor),
        ids.optional_partition.read(cursor),
    )
    cursor.finish()
    return target


def target_fields(ids: Ids) -> dict[str, Codec[Any]]:
    return {
        "consumer": ids.consumer,
        "stream": ids.identifier,
        "topic": ids.identifier,
        "partition_id": ids.optional_partition,
    }


def layouts(ids: Ids) -> dict[Code, Layout]:
    target = target_fields(ids)
    ack = Implied(lambda: OffsetAck.QUORUM)
    stored = Record(ConsumerOffset, partition_id=ids.number, current_offset=U64, stored_offset=U64)
    return {
        Code.GET_CONSUMER_OFFSET: Layout(Record(GetConsumerOffset, **target), OrNothing(stored)),
        Code.STORE_CONSUMER_OFFSET: Layout(
            Record(StoreConsumerOffset, **target, offset=U64, ack=ack), NOTHING
        ),
        Code.DELETE_CONSUMER_OFFSET: Layout(Record(DeleteConsumerOffset, **target, ack=ack), NOTHING),
    }
