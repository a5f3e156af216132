"""Bodies of send, poll and flush, without the messages in them.

    send, A    route, messages to the end of the body
    send       u32 metadata_length, metadata, index entry * messages_count, messages to the end of the body
    poll       target, suffix
    flush      identifier stream, identifier topic, u32 partition_id, u8 fsync

    route      identifier stream, identifier topic, partitioning
    metadata   route, u32 messages_count
    index entry (16 bytes)   u32 0, u32 end of the message in the message area, u64 0
    target     as in `classic.offsets`
    suffix     u8 strategy, u64 value, u32 count, u8 auto_commit

    poll reply  u32 partition_id, u64 current_offset, u32 messages_count, messages to the end of the body;
                at least its 16 bytes, always

Messages are areas of bytes here, neither copied nor looked into; `classic.translate` makes a batch of them.
So a send has no codec that yields `SendMessages`, and a poll's reply none that takes `PolledMessages`. A send
answers nothing; where its batch went is not told.

A producer or consumer repeats itself: a caller may keep what `decode_route` and `decode_target` say about
the bytes before a send's count and a poll's suffix.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - the module's own name for it says nothing
from typing import NamedTuple

from borzoi.model.errors import (
    InvalidIndexesByteSize,
    InvalidMessagesCount,
    LocalProtocolError,
    RemoteProtocolError,
)
from borzoi.model.replies import Confirmation
from borzoi.model.requests import FlushUnsavedBuffer, PollMessages
from borzoi.model.values import (
    FENCED_PARTITION_ID,
    BytesLike,
    Identifier,
    Partitioning,
    PollingKind,
    PollingStrategy,
)
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.ids import IDS, Ids
from borzoi.wire.classic.offsets import decode_target, target_fields
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import BOOL, U32, U64, Codec, Enumerated
from borzoi.wire.records import NOTHING, Implied, Layout, Record

# strategy, value, count, auto_commit
POLL_SUFFIX = Struct("<BQIB")
INDEX_ENTRY_BYTES = 16

_POLL_REPLY_PREFIX = Struct("<IQI")
_POLLING_KINDS = {int(kind): kind for kind in PollingKind}
# The partition that a poll's reply names where there is none to name.
_NO_PARTITION = 0

Route = tuple[Identifier, Identifier, Partitioning]

SEND_REPLY: Codec[tuple[Confirmation, ...]] = Implied(tuple, may_be_lost=True)


class Send(NamedTuple):
    """The parts of a send. Dialect A has neither a count nor an index: its messages have to be walked."""

    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages_count: int | None
    messages: memoryview
    index_entries: memoryview | None


class PollReply(NamedTuple):
    """A poll's reply as a client of the dialect gets it."""

    partition_id: int
    current_offset: int
    messages_count: int
    messages: memoryview


def decode_route(prefix: BytesLike, dialect: Dialect) -> Route:
    """Stream, topic and partitioning of a send, from exactly their bytes."""
    cursor = Cursor(prefix)
    route = _read_route(cursor, IDS[dialect])
    cursor.finish()
    return route


def decode_send(body: BytesLike, dialect: Dialect) -> Send:
    cursor = Cursor(body)
    if not dialect.has_send_index:
        route = _read_route(cursor, IDS[dialect])
        return Send(*route, None, cursor.rest(), None)
    metadata = Cursor(cursor.take(U32.read(cursor)))
    route = _read_route(metadata, IDS[dialect])
    count = U32.read(metadata)
    metadata.finish()
    if count == 0:
        raise RemoteProtocolError("a send of no messages", InvalidMessagesCount.code)
    index_bytes = count * INDEX_ENTRY_BYTES
    if index_bytes > cursor.remaining_bytes:
        raise RemoteProtocolError(
            f"an index of {count} entries in {cursor.remaining_bytes} bytes", InvalidIndexesByteSize.code
        )
    index = cursor.take(index_bytes)
    return Send(*route, count, cursor.rest(), index)


def encode_send(send: Send, dialect: Dialect) -> bytes:
    ids = IDS[dialect]
    route = bytearray()
    ids.identifier.write(route, send.stream)
    ids.identifier.write(route, send.topic)
    ids.partitioning.write(route, send.partitioning)
    if not dialect.has_send_index:
        return bytes(route + send.messages)
    if send.messages_count is None or send.index_entries is None:
        raise LocalProtocolError(f"a send of dialect {dialect.name} has a count and an index")
    out = bytearray()
    U32.write(out, len(route) + U32.least_bytes)
    out += route
    U32.write(out, send.messages_count)
    out += send.index_entries
    out += send.messages
    return bytes(out)


def decode_poll(body: BytesLike, dialect: Dialect) -> PollMessages:
    """What `codec.decode_request` makes of it too, but polls are frequent."""
    view = memoryview(body)
    suffix_at = len(view) - POLL_SUFFIX.size
    if suffix_at < 0:
        raise RemoteProtocolError(f"a poll of {len(view)} bytes is cut short")
    kind, value, count, auto_commit = POLL_SUFFIX.unpack_from(view, suffix_at)
    strategy = _POLLING_KINDS.get(kind)
    if strategy is None or auto_commit > 1:
        raise RemoteProtocolError(f"polling strategy {kind}, auto commit {auto_commit}")
    target = decode_target(view[:suffix_at], dialect)
    return PollMessages(*target, PollingStrategy(strategy, value), count, auto_commit == 1)


def poll_reply_prefix(partition_id: int, current_offset: int, count: int, dialect: Dialect) -> bytes:
    """A poll's reply up to its messages. A member without a partition gets a zero for one, in any dialect."""
    number = _NO_PARTITION if partition_id == FENCED_PARTITION_ID else partition_id + dialect.id_base
    try:
        return _POLL_REPLY_PREFIX.pack(number, current_offset, count)
    except StructError as error:
        raise LocalProtocolError(f"no poll reply has {partition_id}, {current_offset}, {count}") from error


def decode_poll_reply(body: BytesLike, dialect: Dialect) -> PollReply:
    cursor = Cursor(body)
    number, current_offset, count = cursor.unpack(_POLL_REPLY_PREFIX)
    is_fenced = number < dialect.id_base
    partition_id = FENCED_PARTITION_ID if is_fenced else number - dialect.id_base
    return PollReply(partition_id, current_offset, count, cursor.rest())


def poll_request(ids: Ids) -> Record[PollMessages]:
    return Record(
        PollMessages,
        **target_fields(ids),
        strategy=Record(PollingStrategy, kind=Enumerated(PollingKind), value=U64),
        count=U32,
        auto_commit=BOOL,
    )


def layouts(ids: Ids) -> dict[Code, Layout]:
    return {
        Code.FLUSH_UNSAVED_BUFFER: Layout(
            Record(
                FlushUnsavedBuffer,
                stream=ids.identifier,
                topic=ids.identifier,
                partition_id=ids.number,
                fsync=BOOL,
            ),
            NOTHING,
        ),
    }


def _read_route(cursor: Cursor, ids: Ids) -> Route:
    return ids.identifier.read(cursor), ids.identifier.read(cursor), ids.partitioning.read(cursor)
