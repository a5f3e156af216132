"""Messages of the classic dialects to a batch, and stored batches to messages of a dialect.

    sent and polled, B C D           sent, A                      polled, A
    off size                         off size                     off size
      0    8  checksum                 0   16  message id           0    8  offset
      8   16  message id              16    4  headers length       8    1  state, 1 = available
     24    8  offset                  20    h  user headers         9    8  timestamp (us, broker)
     32    8  timestamp (us, broker)   +    4  payload length      17   16  message id
     40    8  origin timestamp (us)    +    n  payload             33    4  CRC32 of the payload
     48    4  headers length                                       37    4  headers length
     52    4  payload length         index entry, B C D            41    h  user headers
     56    8  zero, D only             0    4  zero                 +    4  payload length
      +    n  payload                  4    4  end of the record    +    n  payload
      +    h  user headers             8    8  zero

The checksum is XXH3-64 of the record from byte 8 on, in the dialect's own layout. The batch and its 48-byte
frames are drawn in `wire.batch`; payload and user headers lie there as they do in B, C and D.

Many messages are moved together (see `tiles`). Few messages, user headers whose keys have to gain or lose
their kind, and requests that break a rule go to `one_by_one`. User headers of D are stored as they came;
the gate for batches does not look into them either.

Nothing here assigns offsets or stamps the batch checksum; the owner of the partition does.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import PAYLOAD_BYTES_MAX, U64_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import BytesLike
from borzoi.wire.batch import FRAME_HEADER_BYTES, HEADER_BYTES
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.one_by_one import (
    INDEX_ENTRY_BYTES,
    StoredBatch,
    build_batch,
    check_origin_span,
    new_batch,
    read_messages,
    write_messages,
)
from borzoi.wire.classic.tiles import Tiles

# Below this many messages a Python loop beats the fixed cost of NumPy calls.
_VECTOR_MIN = 32

_ID = [("id_low", "<u8"), ("id_high", "<u8")]
_SIZES = [("headers", "<u4"), ("payload", "<u4")]
_RECORD = [("checksum", "<u8"), *_ID, ("offset", "<u8"), ("timestamp", "<u8"), ("origin", "<u8"), *_SIZES]
_FRAME = np.dtype(
    [("checksum", "<u8"), *_ID, ("offset_delta", "<u4"), ("time_delta", "<u4"), *_SIZES, ("zero", "<u8")]
)
_INDEX = np.dtype([("offset", "<u4"), ("end", "<u4"), ("timestamp", "<u8")])
# What lies before the body. In A that is so only where there are no user headers.
_SENT = {
    Dialect.A: np.dtype([*_ID, *_SIZES]),
    Dialect.B: np.dtype(_RECORD),
    Dialect.C: np.dtype(_RECORD),
    Dialect.D: np.dtype([*_RECORD, ("zero", "<u8")]),
}
_POLLED = _SENT | {
    Dialect.A: np.dtype(
        [("offset", "<u8"), ("state", "u1"), ("timestamp", "<u8"), *_ID, ("checksum", "<u4"), *_SIZES]
    )
}
_AVAILABLE = 1

_TWO_LENGTHS = Struct("<II")
_LENGTHS_IN_FRAME = 32
_BATCH = Struct("<8xQQQQ8xI")

_Longs = NDArray[np.uint64]


def to_batch(
    messages: memoryview,
    count: int | None,
    index: memoryview | None,
    dialect: Dialect,
    *,
    now_us: int,
    random_bytes: Callable[[int], bytes],
) -> tuple[memoryview, int]:
    """One batch with the messages of a send request, and their number; raises RemoteProtocolError.

    `messages` are the records to their last byte. `count` and `index` are what the request says, None where
    it says nothing (A). Messages without an id get a random UUID, all from one call of `random_bytes`;
    messages of A, which have no origin time, get `now_us`. Batch checksum and offsets are left zero.
    """
    if count is None or count >= _VECTOR_MIN:
        sent = _sent_tiles(messages, count, index, dialect)
        if sent is not None:
            return _batch_of(sent, dialect, now_us, random_bytes), sent.number
    found = read_messages(messages, count, index, dialect, now_us)
    return build_batch(found, random_bytes), len(found)


def from_batches(buffers: Sequence[BytesLike], dialect: Dialect) -> tuple[memoryview, int]:
    """The messages of stored batches as records of a dialect, back to back, and their number.

    The batches lie back to back in the buffers, as in a poll reply; header and frames of one may lie in two
    of them. Raises RemoteProtocolError if the frames of a batch do not tile it.
    """
    batches = _stored_batches(buffers)
    count = sum([batch.messages_count for batch in batches])
    growth = _POLLED[dialect].itemsize - FRAME_HEADER_BYTES
    # Untyped keys make user headers shorter, nothing makes them longer.
    most_bytes = sum([batch.end - batch.start for batch in batches]) + count * growth
    out = np.empty(most_bytes, np.uint8).data
    position = 0
    group: list[StoredBatch] = []  # in one buffer, handled together
    for batch in batches:
        stride = _stride(batch)
        if group and (stride or group[0].buffer is not batch.buffer):
            position = _write_group(group, dialect, out, position)
            group = []
        if stride:
            frames = Tiles(batch.buffer, batch.messages_count, batch.start, stride)
            position = _write_tiles(frames, [batch], dialect, out, position)
        else:
            group.append(batch)
    if group:
        position = _write_group(group, dialect, out, position)
    return out[:position], count


def _sent_tiles(
    messages: memoryview, count: int | None, index: memoryview | None, dialect: Dialect
) -> Tiles | None:
    """The records, if they are many, valid, and their bodies need no change. None: look at each of them."""
    form = _SENT[dialect]
    size_bytes = len(messages)
    if size_bytes < _VECTOR_MIN * form.itemsize:
        return None
    ends: NDArray[np.int64] | None = None
    if index is not None:
        if count is None or len(index) != count * INDEX_ENTRY_BYTES:
            return None
        entries = np.frombuffer(index, _INDEX)
        if entries["offset"].any() or entries["timestamp"].any() or entries["end"][-1] != size_bytes:
            return None
        ends = entries["end"].astype(np.int64)

    stride = form.itemsize + sum(_TWO_LENGTHS.unpack_from(messages, _lengths_at(dialect)))
    number = size_bytes // stride
    if number * stride == size_bytes and count in {None, number}:
        sent = Tiles(messages, number, 0, stride)
        heads = sent.heads(form)
        is_equal = (heads["headers"] == heads["headers"][0]) & (heads["payload"] == heads["payload"][0])
        if is_equal.all():
            if number < _VECTOR_MIN or not _may_be_moved(heads, heads[:1], dialect):
                return None
            if ends is not None and (ends != np.arange(stride, size_bytes + 1, stride)).any():
                return None
            return sent

    starts = _walked(messages, dialect) if ends is None else np.concatenate(([0], ends[:-1]))
    if len(starts) < _VECTOR_MIN or starts.max() > size_bytes - form.itemsize:
        return None
    sent = Tiles(messages, len(starts), 0, 0, starts)
    heads = sent.heads(form)
    sent = sent.measured(heads)
    if (starts[:-1] + sent.sizes[:-1] != starts[1:]).any() or sent.end != size_bytes:
        return None
    if count not in {None, len(starts)} or not _may_be_moved(heads, heads, dialect):
        return None
    return sent


def _lengths_at(dialect: Dialect) -> int:
    return 16 if dialect is Dialect.A else 48


def _walked(messages: memoryview, dialect: Dialect) -> NDArray[np.int64]:
    """Where the records start by their own lengths, as far as that makes sense."""
    unpack = _TWO_LENGTHS.unpack_from
    width, lengths_at = _SENT[dialect].itemsize, _lengths_at(dialect)
    starts: list[int] = []
    position, last = 0, len(messages) - width
    while position <= last:
        headers, payload = unpack(messages, position + lengths_at)
        starts.append(position)
        position += width + headers + payload
    return np.array(starts, np.int64)


def _may_be_moved(heads: NDArray[Any], different: NDArray[Any], dialect: Dialect) -> bool:
    """Whether the messages are valid and their bodies the same in a batch; `different` are distinct sizes."""
    headers_most, payloads = different["headers"].max(), different["payload"]
    if headers_most and not dialect.has_typed_header_keys:
        return False
    if headers_most > USER_HEADERS_BYTES_MAX or not payloads.min() or payloads.max() > PAYLOAD_BYTES_MAX:
        return False
    return dialect is not Dialect.D or not heads["zero"].any()


def _batch_of(sent: Tiles, dialect: Dialect, now_us: int, random_bytes: Callable[[int], bytes]) -> memoryview:
    form = _SENT[dialect]
    heads = sent.heads(form)
    frames = np.zeros(sent.number, _FRAME)
    frames["id_low"], frames["id_high"] = heads["id_low"], heads["id_high"]
    _fill_ids(frames, random_bytes)
    frames["offset_delta"] = np.arange(sent.number, dtype=np.uint32)
    frames["headers"], frames["payload"] = heads["headers"], heads["payload"]
    origin_us = now_us
    if dialect is not Dialect.A:
        origins_us = heads["origin"]
        origin_us = int(origins_us.min())
        deltas_us = origins_us - np.uint64(origin_us)
        check_origin_span(int(deltas_us.max()))
        frames["time_delta"] = deltas_us
    growth = FRAME_HEADER_BYTES - form.itemsize
    batch = new_batch(HEADER_BYTES + len(sent.buffer) + sent.number * growth, sent.number, origin_us)
    _move(sent, form.itemsize, sent.resized(batch, HEADER_BYTES, growth), frames)
    return batch


def _fill_ids(frames: NDArray[Any], random_bytes: Callable[[int], bytes]) -> None:
    """Version 4 UUIDs as little-endian numbers where there is no id."""
    missing = np.flatnonzero((frames["id_low"] | frames["id_high"]) == 0)
    if len(missing):
        fresh = np.frombuffer(random_bytes(16 * len(missing)), "<u8")
        frames["id_low"][missing] = fresh[::2] & np.uint64(U64_MAX >> 2) | np.uint64(2 << 62)
        frames["id_high"][missing] = fresh[1::2] & np.uint64(U64_MAX ^ 0xF000) | np.uint64(0x4000)


def _move(source: Tiles, source_head_bytes: int, target: Tiles, heads: NDArray[Any]) -> None:
    """Fill `target`: these heads, the bodies of `source`, and the checksums over both."""
    width = heads.dtype.itemsize
    target.copy_bodies(width, source, source_head_bytes)
    if heads.dtype == _POLLED[Dialect.A]:
        heads["checksum"] = np.fromiter(target.digests(width, crc32), np.uint32, target.number)
    else:
        target.put_heads(heads)
        heads["checksum"] = np.frombuffer(b"".join(target.digests(8, xxh3_64_digest)), ">u8")
    target.put_heads(heads)


def _stored_batches(buffers: Sequence[BytesLike]) -> list[StoredBatch]:
    views = [memoryview(buffer) for buffer in buffers if len(buffer)]
    batches: list[StoredBatch] = []
    number = position = 0
    while number < len(views):
        view = views[number]
        if position + HEADER_BYTES > len(view):
            raise RemoteProtocolError("a batch header is cut short")
        base_offset, base_us, origin_us, length, count = _BATCH.unpack_from(view, position)
        position += HEADER_BYTES
        if position == len(view) and number + 1 < len(views):  # part of a batch: its header, then its frames
            number, position = number + 1, 0
            view = views[number]
        end = position + length - HEADER_BYTES
        if end > len(view) or count * FRAME_HEADER_BYTES > end - position:
            raise RemoteProtocolError("a batch reaches past the end of its buffer")
        batches.append(StoredBatch(view, position, end, count, base_offset, base_us, origin_us))
        position = end
        if position == len(view):
            number, position = number + 1, 0
    return batches


def _stride(batch: StoredBatch) -> int:
    """The size of the frames if there are many and all have the same lengths, otherwise 0."""
    count, lengths_at = batch.messages_count, batch.start + _LENGTHS_IN_FRAME
    if count < _VECTOR_MIN:
        return 0
    stride, remainder = divmod(batch.end - batch.start, count)
    if remainder or stride != FRAME_HEADER_BYTES + sum(_TWO_LENGTHS.unpack_from(batch.buffer, lengths_at)):
        return 0
    lengths: _Longs = np.ndarray((count,), "<u8", batch.buffer, lengths_at, (stride,))
    return stride if (lengths == lengths[0]).all() else 0


def _write_group(batches: list[StoredBatch], dialect: Dialect, out: memoryview, position: int) -> int:
    """Write the messages of batches that lie in one buffer; returns where they end."""
    buffer = batches[0].buffer
    starts: list[int] = []
    unpack = _TWO_LENGTHS.unpack_from
    for batch in batches:
        start, last = batch.start, batch.end - FRAME_HEADER_BYTES
        for _ in range(batch.messages_count):
            if start > last:
                raise RemoteProtocolError("a message starts past the end of its batch")
            headers, payload = unpack(buffer, start + _LENGTHS_IN_FRAME)
            starts.append(start)
            start += FRAME_HEADER_BYTES + headers + payload
        if start != batch.end:
            raise RemoteProtocolError(f"the messages of a batch end at byte {start}, not {batch.end}")
    if len(starts) < _VECTOR_MIN:
        return write_messages(batches, starts, dialect, out, position)
    frames = Tiles(buffer, len(starts), 0, 0, np.array(starts, np.int64))
    return _write_tiles(frames.measured(frames.heads(_FRAME)), batches, dialect, out, position)


def _write_tiles(
    frames: Tiles, batches: list[StoredBatch], dialect: Dialect, out: memoryview, position: int
) -> int:
    """Write the frames of these batches as records from `position` on; returns where they end."""
    heads = frames.heads(_FRAME)
    if not dialect.has_typed_header_keys and heads["headers"].any():
        return write_messages(batches, frames.begins(), dialect, out, position)
    base_offsets, base_us, origins_us = _spread(batches)
    records = np.zeros(frames.number, _POLLED[dialect])
    records["id_low"], records["id_high"] = heads["id_low"], heads["id_high"]
    records["offset"] = base_offsets + heads["offset_delta"]
    records["timestamp"] = base_us
    records["headers"], records["payload"] = heads["headers"], heads["payload"]
    if dialect is Dialect.A:
        records["state"] = _AVAILABLE
    else:
        records["origin"] = origins_us + heads["time_delta"]
    polled = frames.resized(out, position, records.dtype.itemsize - FRAME_HEADER_BYTES)
    _move(frames, FRAME_HEADER_BYTES, polled, records)
    return polled.end


def _spread(batches: list[StoredBatch]) -> tuple[_Longs, _Longs, _Longs]:
    """Base offset, base time and origin time for every message; one value each if there is one batch."""
    values = np.array([(batch.base_offset, batch.base_us, batch.origin_us) for batch in batches], np.uint64)
    if len(batches) > 1:
        values = np.repeat(values, [batch.messages_count for batch in batches], axis=0)
    return values[:, 0], values[:, 1], values[:, 2]
