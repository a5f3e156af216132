"""Bodies of send, poll and flush.

    send   u32 metadata_length, metadata, one batch to the end of the body
    poll   target, suffix
    flush  identifier stream, identifier topic, u32 partition_id, u8 fsync

    metadata  identifier stream, identifier topic, partitioning, u32 messages_count
    target    consumer, identifier stream, identifier topic, optional partition (5 bytes)
    suffix    u8 strategy, u64 value, u32 count, u8 auto_commit

    send reply  u32 count, per batch: u32 stream_id, u32 topic_id, u32 partition_id, u64 base_offset;
                an empty body is a send without a confirmation
    poll reply  u32 partition_id, u64 current_offset, u32 messages_count, batches to the end of the body;
                at least its 16 bytes, always

Batches are passed on as views and neither copied nor looked into here; `wire.batch` does that. A producer
or consumer repeats itself: only the last four bytes of `metadata` and the suffix of a poll change, so a
caller may keep what `decode_send_target` and `decode_poll_target` say about the bytes before.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - the module's own name for it says nothing

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.replies import Confirmation, PolledMessages
from borzoi.model.requests import FlushUnsavedBuffer, PollMessages, SendMessages
from borzoi.model.values import (
    BytesLike,
    Consumer,
    Identifier,
    Partitioning,
    PollingKind,
    PollingStrategy,
)
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import BOOL, IDENTIFIER, PARTITIONING, U32, U64, Codec, Enumerated
from borzoi.wire.records import NOTHING, Counted, Layout, Record
from borzoi.wire.vsr.offsets import TARGET_FIELDS, Target, decode_target

# strategy, value, count, auto_commit
POLL_SUFFIX = Struct("<BQIB")

_POLL_REPLY_PREFIX = Struct("<IQI")
# count, stream_id, topic_id, partition_id, base_offset
_SEND_REPLY = Struct("<IIIIQ")
_COUNT_BYTES = U32.least_bytes
# Targets whose bytes are remembered; who uses more encodes them again.
_TARGETS_KEPT = 1024


def decode_send_target(prefix: BytesLike) -> tuple[Identifier, Identifier, Partitioning]:
    """The metadata of a send, from exactly its bytes without the count."""
    cursor = Cursor(prefix)
    target = (IDENTIFIER.read(cursor), IDENTIFIER.read(cursor), PARTITIONING.read(cursor))
    cursor.finish()
    return target


def decode_send_routing(metadata: BytesLike) -> tuple[Identifier, Identifier, Partitioning, int]:
    """The metadata of a send: stream, topic, partitioning, messages_count."""
    view = memoryview(metadata)
    if len(view) < _COUNT_BYTES:
        raise RemoteProtocolError("the metadata of a send ends early")
    count = U32.read(Cursor(view[-_COUNT_BYTES:]))
    return (*decode_send_target(view[:-_COUNT_BYTES]), count)


def decode_poll_target(prefix: BytesLike) -> Target:
    """A poll's body without its suffix: consumer, stream, topic, partition_id."""
    return decode_target(prefix)


def send_prefix(request: SendMessages) -> bytes:
    """The body of a send up to its batch."""
    count = bytearray()
    U32.write(count, request.messages_count)
    return _send_target(request.stream, request.topic, request.partitioning) + count


@lru_cache(maxsize=_TARGETS_KEPT)
def _send_target(stream: Identifier, topic: Identifier, partitioning: Partitioning) -> bytes:
    """The body of a send up to its count. Producers send to few places many times."""
    metadata = bytearray()
    IDENTIFIER.write(metadata, stream)
    IDENTIFIER.write(metadata, topic)
    PARTITIONING.write(metadata, partitioning)
    out = bytearray()
    U32.write(out, len(metadata) + _COUNT_BYTES)
    return bytes(out + metadata)


def poll_body(request: PollMessages) -> bytes:
    """The body of a poll; what the layout below makes of it too, but once per poll it counts."""
    strategy = request.strategy
    try:
        suffix = POLL_SUFFIX.pack(strategy.kind, strategy.value, request.count, request.auto_commit)
    except StructError as error:
        raise LocalProtocolError(f"no poll has {strategy} and {request.count} messages") from error
    return _poll_target(request.consumer, request.stream, request.topic, request.partition_id) + suffix


@lru_cache(maxsize=_TARGETS_KEPT)
def _poll_target(
    consumer: Consumer, stream: Identifier, topic: Identifier, partition_id: int | None
) -> bytes:
    out = bytearray()
    for codec, value in zip(TARGET_FIELDS.values(), (consumer, stream, topic, partition_id), strict=True):
        codec.write(out, value)
    return bytes(out)


def send_reply(confirmation: Confirmation) -> bytes:
    """The reply to a send of one batch; what `encode_reply` makes of it too, but once per send it counts."""
    stored = confirmation
    try:
        return _SEND_REPLY.pack(1, stored.stream_id, stored.topic_id, stored.partition_id, stored.base_offset)
    except StructError as error:
        raise LocalProtocolError(f"no send reply has {confirmation}") from error


def poll_reply_prefix(partition_id: int, current_offset: int, count: int) -> bytes:
    """A poll's reply up to its batches."""
    try:
        return _POLL_REPLY_PREFIX.pack(partition_id, current_offset, count)
    except StructError as error:
        raise LocalProtocolError(f"no poll reply has {partition_id}, {current_offset}, {count}") from error


class SendBody(Codec[SendMessages]):
    least_bytes = _COUNT_BYTES

    def read(self, cursor: Cursor) -> SendMessages:
        metadata = cursor.take(U32.read(cursor))
        return SendMessages(*decode_send_routing(metadata), batch=cursor.rest())

    def write(self, out: bytearray, value: SendMessages) -> None:
        out += send_prefix(value)
        out += value.batch


class PollReplyBody(Codec[PolledMessages]):
    least_bytes = _POLL_REPLY_PREFIX.size

    def read(self, cursor: Cursor) -> PolledMessages:
        partition_id, current_offset, count = cursor.unpack(_POLL_REPLY_PREFIX)
        batches = cursor.rest()
        return PolledMessages(partition_id, current_offset, count, [batches] if batches else [])

    def write(self, out: bytearray, value: PolledMessages) -> None:
        out += poll_reply_prefix(value.partition_id, value.current_offset, value.messages_count)
        for batch in value.batches:
            out += batch


LAYOUTS = {
    Code.POLL_MESSAGES: Layout(
        Record(
            PollMessages,
            **TARGET_FIELDS,
            strategy=Record(PollingStrategy, kind=Enumerated(PollingKind), value=U64),
            count=U32,
            auto_commit=BOOL,
        ),
        PollReplyBody(),
    ),
    Code.SEND_MESSAGES: Layout(
        SendBody(),
        Counted(
            Record(Confirmation, stream_id=U32, topic_id=U32, partition_id=U32, base_offset=U64),
            may_be_missing=True,
        ),
    ),
    Code.FLUSH_UNSAVED_BUFFER: Layout(
        Record(FlushUnsavedBuffer, stream=IDENTIFIER, topic=IDENTIFIER, partition_id=U32, fsync=BOOL), NOTHING
    ),
}
