"""Bodies of the commands for epochs: stage, commit, abort. They are Borzoi's own.

stage   u32 metadata_length, metadata, one batch to the end of the body
copy    attempt, identifier source stream, identifier source topic, u32 partition, u64 offset, u32 count
commit  epoch, u32 count, part * count
abort   epoch
get     identifier stream, identifier topic, name8 producer
forget  identifier stream, identifier topic, name8 producer

epoch     identifier stream, identifier topic, name8 producer, u64 epoch
attempt   epoch, u32 task, u64 attempt, u32 sequence, partitioning
metadata  attempt, u32 messages_count
part      u32 task, u64 attempt, u32 batches_count

stage reply   bool is_committed, u32 batches_count
copy reply    bool is_committed, u32 batches_count, u64 messages_count
commit reply  u64 epoch, bool is_repeated, u64 messages_count
get reply     u64 epoch, u64 committed_at_us; an empty body for a producer that has committed nothing
"""

from typing import Any

from borzoi.model.replies import Copied, EpochCommitted, ProducerEpoch, Staged
from borzoi.model.requests import (
    AbortEpoch,
    CommitEpoch,
    ForgetProducer,
    GetProducerEpoch,
    StageCopy,
    StagedPart,
    StageMessages,
)
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import BOOL, IDENTIFIER, NAME8, PARTITIONING, U32, U64, Codec
from borzoi.wire.records import NOTHING, Counted, Layout, OrNothing, Record

_PRODUCER: dict[str, Codec[Any]] = {"stream": IDENTIFIER, "topic": IDENTIFIER, "producer": NAME8}
_EPOCH: dict[str, Codec[Any]] = {**_PRODUCER, "epoch": U64}
_ATTEMPT: dict[str, Codec[Any]] = {
    **_EPOCH,
    "task": U32,
    "attempt": U64,
    "sequence": U32,
    "partitioning": PARTITIONING,
}
_METADATA: dict[str, Codec[Any]] = {**_ATTEMPT, "messages_count": U32}


def stage_prefix(request: StageMessages) -> bytes:
    """The body of a stage up to its batch."""
    metadata = bytearray()
    for name, codec in _METADATA.items():
        codec.write(metadata, getattr(request, name))
    out = bytearray()
    U32.write(out, len(metadata))
    return bytes(out + metadata)


class StageBody(Codec[StageMessages]):
    least_bytes = U32.least_bytes

    def read(self, cursor: Cursor) -> StageMessages:
        metadata = Cursor(cursor.take(U32.read(cursor)))
        fields = {name: codec.read(metadata) for name, codec in _METADATA.items()}
        metadata.finish()
        return StageMessages(**fields, batch=cursor.rest())

    def write(self, out: bytearray, value: StageMessages) -> None:
        out += stage_prefix(value)
        out += value.batch


LAYOUTS = {
    Code.STAGE_MESSAGES: Layout(StageBody(), Record(Staged, is_committed=BOOL, batches_count=U32)),
    Code.COMMIT_EPOCH: Layout(
        Record(
            CommitEpoch,
            **_EPOCH,
            parts=Counted(Record(StagedPart, task=U32, attempt=U64, batches_count=U32)),
        ),
        Record(EpochCommitted, epoch=U64, is_repeated=BOOL, messages_count=U64),
    ),
    Code.ABORT_EPOCH: Layout(Record(AbortEpoch, **_EPOCH), NOTHING),
    Code.GET_PRODUCER_EPOCH: Layout(
        Record(GetProducerEpoch, **_PRODUCER),
        OrNothing(Record(ProducerEpoch, epoch=U64, committed_at_us=U64)),
    ),
    Code.FORGET_PRODUCER: Layout(Record(ForgetProducer, **_PRODUCER), NOTHING),
    Code.STAGE_COPY: Layout(
        Record(
            StageCopy,
            **_ATTEMPT,
            source_stream=IDENTIFIER,
            source_topic=IDENTIFIER,
            source_partition=U32,
            offset=U64,
            count=U32,
        ),
        Record(Copied, is_committed=BOOL, batches_count=U32, messages_count=U64),
    ),
}
