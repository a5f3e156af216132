"""Makes batches, as a producer sends them: offsets and broker time zero, all checksums filled in.

Everything but the checksums is done for all messages at once: frame headers are rows of a NumPy array, and
header, frame headers, payloads and user headers are joined into the batch with one call. A checksum needs
its frame in one piece; that piece is made, hashed and dropped message by message, so that it never leaves the
processor's cache and no second batch's worth of memory is asked of the system.

    build            from messages as objects
    assemble         from payloads as objects and everything else in columns
    encode_columns   from payloads in one buffer, as Arrow holds them

The layout is drawn in `wire.batch_layout`. What becomes of a batch on the server is not known here.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import add
from struct import Struct
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_digest, xxh3_64_intdigest

from borzoi.model.limits import PAYLOAD_BYTES_MAX, U32_MAX, U64_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import BytesLike
from borzoi.wire.batch_layout import (
    CHECKED_FROM,
    FRAME_FORM,
    FRAME_HEADER_BYTES,
    HEADER,
    HEADER_BYTES,
    RESERVED,
    check_lengths,
)

# Below this many messages a Python loop beats the fixed cost of NumPy calls.
_VECTOR_MIN = 28
# From this average on, hashing a frame in two pieces is cheaper than putting it together.
_PIECES_BYTES_MIN = 12 * 1024
_ID_BYTES = 16
_IDS = 1 << 8 * _ID_BYTES
_ID_FORM = np.dtype(f"V{_ID_BYTES}")

_FRAME_BYTES_FORM = np.dtype(f"V{FRAME_HEADER_BYTES}")
_TAIL_FORM = np.dtype(f"V{FRAME_HEADER_BYTES - CHECKED_FROM}")
_TAIL = Struct("<QQIIIIQ")  # a frame's header without its checksum
_CHECKSUM = Struct("<Q")
_CHECKED_HEADER = Struct("<5QI")  # what the batch checksum covers of the batch header
# Header of a batch and its only message's.
_SINGLE = Struct("<6QI204xQQQIIIIQ")
_SINGLE_CHECKED = Struct("<5QIQ")

Longs = NDArray[np.int64]
Frames = NDArray[Any]  # of FRAME_FORM
# A number for every message, or one for all of them.
Microseconds = int | NDArray[np.integer[Any]]


class NewMessage(msgspec.Struct, frozen=True):
    """What a producer gives for one message."""

    payload: bytes
    id: int = 0
    user_headers: bytes = b""
    origin_timestamp_us: int = 0


def build(messages: Sequence[NewMessage]) -> bytearray:
    """A batch of these messages."""
    if not messages:
        raise ValueError("a batch holds at least one message")
    origins_us: list[int] = [message.origin_timestamp_us for message in messages]
    is_one_time = min(origins_us) == max(origins_us)
    return assemble(
        [message.payload for message in messages],
        [message.id for message in messages],
        [message.user_headers for message in messages],
        origins_us[0] if is_one_time else np.array(origins_us, np.uint64),
    )


def assemble(
    payloads: Sequence[BytesLike],
    ids: int | Sequence[int] | NDArray[np.void],
    blocks: Sequence[BytesLike] | None = None,
    origins_us: Microseconds = 0,
    sizes: Longs | None = None,
) -> bytearray:
    """A batch of messages whose parts have the same places in all arguments.

    `ids` are numbers, or 16 bytes each, or the first of consecutive numbers. `blocks` are encoded user
    headers, empty for messages without. `sizes` are the lengths of the payloads, if they are known.
    """
    count = len(payloads)
    if not count:
        raise ValueError("a batch holds at least one message")
    if blocks is not None and len(blocks) != count:
        raise ValueError(f"{count} messages, user headers of {len(blocks)}")
    if count < _VECTOR_MIN:
        return _assemble_few(payloads, _id_numbers(ids, count), blocks, origins_us)
    if sizes is None:
        sizes = np.fromiter(map(len, payloads), np.int64, count)
    heads = np.zeros(count, FRAME_FORM)
    _put_ids(heads, ids)
    heads["offset_delta"] = np.arange(count, dtype=np.uint32)
    heads["payload"] = sizes
    body_bytes = int(sizes.sum())
    bodies: tuple[Sequence[BytesLike], ...] = (payloads,)
    blocks_sizes = None
    if blocks is not None and any(blocks):
        blocks_sizes = np.fromiter(map(len, blocks), np.int64, count)
        heads["headers"] = blocks_sizes
        body_bytes += int(blocks_sizes.sum())
        bodies = (payloads, blocks)
    _check_sizes(sizes, blocks_sizes)
    origin_us = _put_times(heads, origins_us)
    heads["checksum"] = np.frombuffer(b"".join(_digests(heads, bodies, body_bytes)), ">u8")

    length = HEADER_BYTES + count * FRAME_HEADER_BYTES + body_bytes
    checksums = heads["checksum"].tobytes()
    checksum = xxh3_64_intdigest(_CHECKED_HEADER.pack(0, 0, 0, origin_us, length, count) + checksums)
    width = 1 + len(bodies)
    parts: list[BytesLike] = [b""] * (1 + width * count)
    parts[0] = HEADER.pack(0, 0, 0, origin_us, length, checksum, count, RESERVED)
    parts[1::width] = heads.view(_FRAME_BYTES_FORM).tolist()
    for column, values in enumerate(bodies, 2):
        parts[column::width] = values
    return bytearray().join(parts)


def encode_columns(
    payloads: BytesLike,
    offsets: NDArray[np.integer[Any]],
    *,
    ids: int | Sequence[int] | NDArray[np.void] = 0,
    blocks: Sequence[BytesLike] | None = None,
    origins_us: Microseconds = 0,
) -> bytearray:
    """A batch of the payloads that lie back to back in a buffer: payload i at `offsets[i] : offsets[i + 1]`.

    That is how an Arrow array of type binary keeps its values: the buffer and, one more than messages, the
    offsets (int32 or int64). The other arguments are those of `assemble`. Payloads that are empty or too
    large are refused with a `RemoteProtocolError`, offsets that do not fit the buffer with a `ValueError`.
    """
    bounds = np.asarray(offsets, np.int64)
    if len(bounds) < 2:
        raise ValueError("a batch holds at least one message")
    sizes = np.diff(bounds)
    view = memoryview(payloads).cast("B")
    first, last = int(bounds[0]), int(bounds[-1])
    if first < 0 or last > len(view) or sizes.min() < 0:
        raise ValueError("offsets do not fit the buffer of payloads")
    _check_sizes(sizes, None)
    size = int(sizes[0])
    values: Sequence[BytesLike]
    if (sizes == size).all():
        values = np.ndarray((len(sizes),), f"V{size}", view, first).tolist()
    else:
        # Copied once for all: a slice of bytes is half the work of a slice of a view.
        data = bytes(view[first:last])
        ends = (bounds - first).tolist()
        values = [data[start:end] for start, end in pairwise(ends)]
    return assemble(values, ids, blocks, origins_us, sizes)


def _assemble_few(
    payloads: Sequence[BytesLike],
    ids: Sequence[int],
    blocks: Sequence[BytesLike] | None,
    origins_us: Microseconds,
) -> bytearray:
    count = len(payloads)
    if isinstance(origins_us, int):
        origin_us, deltas_us = origins_us, [0] * count
    else:
        origin_us = _earliest(origins_us, count)
        deltas_us = [each - origin_us for each in origins_us.tolist()]
    if count == 1:
        return _assemble_one(payloads[0], ids[0], blocks[0] if blocks else b"", origin_us)
    parts: list[BytesLike] = [b""]
    checksums = b""
    for index, payload in enumerate(payloads):
        block = blocks[index] if blocks else b""
        size, block_size, number = len(payload), len(block), ids[index]
        if not 0 < size <= PAYLOAD_BYTES_MAX or block_size > USER_HEADERS_BYTES_MAX:
            check_lengths(index, block_size, size)
        tail = _TAIL.pack(number & U64_MAX, number >> 64, index, deltas_us[index], block_size, size, 0)
        frame = b"".join((tail, payload, block))
        digest = _CHECKSUM.pack(xxh3_64_intdigest(frame))
        checksums += digest
        parts += (digest, frame)
    length = HEADER_BYTES + sum(map(len, parts))
    checksum = xxh3_64_intdigest(_CHECKED_HEADER.pack(0, 0, 0, origin_us, length, count) + checksums)
    parts[0] = HEADER.pack(0, 0, 0, origin_us, length, checksum, count, RESERVED)
    return bytearray().join(parts)


def _assemble_one(payload: BytesLike, number: int, block: BytesLike, origin_us: int) -> bytearray:
    size, block_size = len(payload), len(block)
    if not 0 < size <= PAYLOAD_BYTES_MAX or block_size > USER_HEADERS_BYTES_MAX:
        check_lengths(0, block_size, size)
    low, high = number & U64_MAX, number >> 64
    tail = _TAIL.pack(low, high, 0, 0, block_size, size, 0)
    frame_checksum = xxh3_64_intdigest(b"".join((tail, payload, block)))
    length = _SINGLE.size + size + block_size
    checksum = xxh3_64_intdigest(_SINGLE_CHECKED.pack(0, 0, 0, origin_us, length, 1, frame_checksum))
    head = _SINGLE.pack(
        0, 0, 0, origin_us, length, checksum, 1, frame_checksum, low, high, 0, 0, block_size, size, 0
    )
    return bytearray().join((head, payload, block))


def _id_numbers(ids: int | Sequence[int] | NDArray[np.void], count: int) -> Sequence[int]:
    if isinstance(ids, int):
        return [(ids + index) % _IDS for index in range(count)]
    if isinstance(ids, np.ndarray):
        if ids.shape != (count,) or ids.itemsize != _ID_BYTES:
            raise ValueError(f"{count} messages need as many ids of {_ID_BYTES} bytes")
        return [int.from_bytes(each, "little") for each in np.ascontiguousarray(ids).view(_ID_FORM).tolist()]
    if len(ids) != count:
        raise ValueError(f"{count} messages, {len(ids)} ids")
    for number in ids:
        if not 0 <= number < _IDS:
            raise OverflowError(f"no message has the id {number}")
    return ids


def _put_ids(heads: Frames, ids: int | Sequence[int] | NDArray[np.void]) -> None:
    if isinstance(ids, int):
        low = np.arange(len(heads), dtype=np.uint64)
        low += np.uint64(ids & U64_MAX)  # beyond 2^64 - 1 it goes on at 0
        high = (ids >> 64) & U64_MAX
        heads["id_low"], heads["id_high"] = low, high
        if low[-1] < low[0]:
            heads["id_high"][low < low[0]] = (high + 1) & U64_MAX
        return
    if not isinstance(ids, np.ndarray):
        ids = np.frombuffer(b"".join([number.to_bytes(_ID_BYTES, "little") for number in ids]), _ID_FORM)
    if ids.shape != heads.shape or ids.itemsize != _ID_BYTES:
        raise ValueError(f"{len(heads)} messages need as many ids of {_ID_BYTES} bytes")
    place: NDArray[np.void] = np.ndarray(heads.shape, _ID_FORM, heads, CHECKED_FROM, heads.strides)
    place[:] = np.ascontiguousarray(ids).view(_ID_FORM)


def _put_times(heads: Frames, origins_us: Microseconds) -> int:
    """Write the distances to the earliest origin time, and return that."""
    if isinstance(origins_us, int):
        return origins_us
    earliest_us = _earliest(origins_us, len(heads))
    heads["time_delta"] = origins_us - origins_us.dtype.type(earliest_us)
    return earliest_us


def _earliest(origins_us: NDArray[np.integer[Any]], count: int) -> int:
    if origins_us.shape != (count,) or origins_us.min() < 0:
        raise ValueError(f"{count} messages need as many origin times, none before 1970")
    earliest_us = int(origins_us.min())
    if int(origins_us.max()) - earliest_us > U32_MAX:
        raise ValueError("origin times within one batch may lie at most 2^32 - 1 microseconds apart")
    return earliest_us


def _check_sizes(payloads: Longs, blocks: Longs | None) -> None:
    is_wrong = payloads.min() <= 0 or payloads.max() > PAYLOAD_BYTES_MAX
    if not is_wrong and (blocks is None or blocks.max() <= USER_HEADERS_BYTES_MAX):
        return
    for index, size in enumerate(payloads.tolist()):
        check_lengths(index, 0 if blocks is None else int(blocks[index]), size)


def _digests(heads: Frames, bodies: tuple[Sequence[BytesLike], ...], body_bytes: int) -> Iterable[bytes]:
    """The checksum of every frame, with its most significant byte first."""
    tails = np.ndarray(heads.shape, _TAIL_FORM, heads, CHECKED_FROM, heads.strides).tolist()
    if body_bytes >= len(heads) * _PIECES_BYTES_MIN:
        return map(_digest_of_pieces, tails, *bodies)
    if len(bodies) == 1:
        return map(xxh3_64_digest, map(add, tails, bodies[0]))
    return map(xxh3_64_digest, map(b"".join, zip(tails, *bodies, strict=True)))


def _digest_of_pieces(*pieces: BytesLike) -> bytes:
    digest = xxh3_64()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
