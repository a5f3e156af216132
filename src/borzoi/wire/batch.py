"""Message batches, looked at one by one: proven, read, checked.

The layout is drawn in `wire.batch_layout`; `wire.build` makes batches; `wire.columns` reads the messages
of many batches at once.

`prove` is the gate: nothing is appended whose frames do not tile the batch exactly. It returns
where the frames are, so that whoever needs them later does not walk the batch again. Batches of
equal-sized messages, the common case, are proven with a handful of NumPy calls whatever their size.

This module neither assigns offsets nor knows where a batch is stored; that is `borzoi.log.batch`.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import BytesLike
from borzoi.wire.batch_layout import (
    FRAME,
    FRAME_HEADER_BYTES,
    HEADER,
    HEADER_BYTES,
    check_lengths,
)
from borzoi.wire.batch_layout import RESERVED as _ZEROS
from borzoi.wire.build import NewMessage, build

__all__ = [
    "FRAME",
    "FRAME_HEADER_BYTES",
    "HEADER",
    "HEADER_BYTES",
    "BatchHeader",
    "Frame",
    "Layout",
    "NewMessage",
    "batch_checksum",
    "build",
    "column",
    "frames",
    "prove",
    "read_header",
    "split",
    "verify_header",
    "verify_messages",
]

_FRAME_TAIL = struct.Struct("<I4xIIQ")  # from byte 24: offset_delta, headers length, payload length, reserved
_U64 = struct.Struct("<Q")

# Below this many messages a Python loop over the frames beats the fixed cost of NumPy calls.
_VECTOR_MIN = 24
_ONLY_POSITION = (HEADER_BYTES,)
# Header of a batch and of its only message in one.
_SINGLE = struct.Struct("<6QI204sQ16sIIIIQ")
_SINGLE_BYTES = HEADER_BYTES + FRAME_HEADER_BYTES
_DTYPE_U32 = np.dtype("<u4")
_DTYPE_U64 = np.dtype("<u8")
_TAIL_AT = 24
_DTYPE_TAIL = np.dtype("V24")
_TAIL_FIELDS = 6  # u32 each; the last two are the reserved bytes
_CACHED_COUNT_MAX = 8192

_INVALID_COMMAND = 3
_INVALID_MESSAGES_COUNT = 4009
_INVALID_MESSAGE_CHECKSUM = 4027
_INVALID_BATCH_CHECKSUM = 4039


class BatchHeader(NamedTuple):
    partition_id: int
    base_offset: int
    base_timestamp_us: int
    origin_timestamp_us: int
    length: int
    checksum: int
    message_count: int
    reserved: bytes


class Layout(NamedTuple):
    """Where the frames of a proven batch start: `stride` bytes apart, or (stride 0) at `positions`."""

    message_count: int
    length: int
    stride: int
    positions: Sequence[int] = ()

    def position(self, index: int) -> int:
        """Start of frame `index`; for `index == message_count` the end of the batch."""
        if self.stride:
            return HEADER_BYTES + index * self.stride
        return self.positions[index] if index < self.message_count else self.length


class Frame(NamedTuple):
    """One message as it lies in a batch; payload and user headers are views, not copies."""

    checksum: int
    id: int
    offset_delta: int
    timestamp_delta_us: int
    payload: memoryview
    user_headers: memoryview


def read_header(batch: BytesLike, position: int = 0) -> BatchHeader:
    """The header that starts at `position`, where there must be 256 bytes."""
    return BatchHeader._make(HEADER.unpack_from(batch, position))


def prove(batch: memoryview, expected_count: int | None = None) -> Layout:
    """Check that header and frames describe exactly these bytes; raise RemoteProtocolError if not."""
    size = len(batch)
    if size < HEADER_BYTES + FRAME_HEADER_BYTES:
        raise RemoteProtocolError(f"a batch of {size} bytes cannot hold a message")
    if expected_count == 1:
        layout = _prove_single(batch, size)
        if layout is not None:
            return layout
    _, _, _, _, length, _, count, reserved = HEADER.unpack_from(batch)
    if length != size:
        raise RemoteProtocolError(f"batch_length says {length}, the batch has {size} bytes")
    if count == 0 or (expected_count is not None and count != expected_count):
        raise RemoteProtocolError(
            f"message_count is {count}, expected {expected_count or 'at least 1'}",
            _INVALID_COMMAND if count else _INVALID_MESSAGES_COUNT,
        )
    if count > (size - HEADER_BYTES) // FRAME_HEADER_BYTES:
        raise RemoteProtocolError(f"{count} messages cannot fit into {size} bytes")
    if reserved != _ZEROS:
        raise RemoteProtocolError("reserved bytes of the batch header are not zero")
    if count >= _VECTOR_MIN:
        stride, remainder = divmod(size - HEADER_BYTES, count)
        if not remainder and _is_uniform(batch, count, stride):
            return Layout(count, size, stride)
    return _walk(batch, count)


def _prove_single(batch: memoryview, size: int) -> Layout | None:
    """The layout of a sound batch of one message, which is the most sensitive to what proving costs."""
    _, _, _, _, length, _, count, reserved, _, _, delta, _, headers, payload, frame_reserved = (
        _SINGLE.unpack_from(batch)
    )
    if (
        count == 1
        and length == size == _SINGLE_BYTES + headers + payload
        and 0 < payload <= PAYLOAD_BYTES_MAX
        and headers <= USER_HEADERS_BYTES_MAX
        and not (delta or frame_reserved)
        and reserved == _ZEROS
    ):
        return Layout(1, size, 0, _ONLY_POSITION)
    return None


def _is_uniform(batch: memoryview, count: int, stride: int) -> bool:
    """Tell whether every frame is a valid one of `stride` bytes. False means: look frame by frame."""
    delta, headers, payload, reserved = _FRAME_TAIL.unpack_from(batch, HEADER_BYTES + 24)
    if FRAME_HEADER_BYTES + headers + payload != stride or delta or reserved:
        return False
    check_lengths(0, headers, payload)
    tails = np.ndarray((count,), _DTYPE_TAIL, batch, HEADER_BYTES + _TAIL_AT, (stride,)).copy()
    tails.view(_DTYPE_U32)[1::_TAIL_FIELDS] = 0  # timestamp deltas may be anything
    expected = _uniform_tails if count <= _CACHED_COUNT_MAX else _uniform_tails.__wrapped__
    return tails.tobytes() == expected(count, headers, payload)


@lru_cache(maxsize=16)
def _uniform_tails(count: int, headers: int, payload: int) -> bytes:
    """Bytes 24 to 48 of the headers of that many frames of one size, timestamp deltas zero."""
    tails = np.zeros((count, _TAIL_FIELDS), _DTYPE_U32)
    tails[:, 0] = np.arange(count)
    tails[:, 2] = headers
    tails[:, 3] = payload
    return tails.tobytes()


def column(
    batch: memoryview, count: int, stride: int, offset: int, dtype: "np.dtype[Any]"
) -> NDArray[np.unsignedinteger]:
    """A field at `offset` of each of `count` equal-sized frames, as a strided view."""
    return np.ndarray((count,), dtype, batch, HEADER_BYTES + offset, (stride,))


def _walk(batch: memoryview, count: int) -> Layout:
    end = len(batch)
    position = HEADER_BYTES
    positions: list[int] = []
    unpack = _FRAME_TAIL.unpack_from
    for index in range(count):
        if position + FRAME_HEADER_BYTES > end:
            raise RemoteProtocolError(f"message {index} of {count} starts past the end of the batch")
        delta, headers, payload, reserved = unpack(batch, position + 24)
        if delta != index:
            raise RemoteProtocolError(f"offset_delta of message {index} is {delta}")
        if reserved:
            raise RemoteProtocolError(f"reserved bytes of message {index} are not zero")
        if headers > USER_HEADERS_BYTES_MAX or not 0 < payload <= PAYLOAD_BYTES_MAX:
            check_lengths(index, headers, payload)
        positions.append(position)
        position += FRAME_HEADER_BYTES + headers + payload
    if position != end:
        raise RemoteProtocolError(f"the messages end at byte {position}, the batch at {end}")
    return Layout(count, end, 0, positions)


def batch_checksum(batch: memoryview, layout: Layout, header: memoryview | None = None) -> int:
    """The batch checksum that the header fields and frame checksums, as they stand, call for.

    `header` replaces the batch's own, for a part of a batch that gets a header of its own.
    """
    if header is None:
        header = batch
    if layout.message_count == 1 and not layout.stride:
        first = layout.positions[0]
        return xxh3_64_intdigest(b"".join((header[:40], header[48:52], batch[first : first + 8])))
    parts: list[BytesLike] = [header[:40], header[48:52]]
    if layout.stride:
        parts.append(column(batch, layout.message_count, layout.stride, 0, _DTYPE_U64).tobytes())
    else:
        for position in layout.positions:
            parts.append(batch[position : position + 8])  # noqa: PERF401 - one message is the common case
    return xxh3_64_intdigest(b"".join(parts))


def verify_messages(batch: memoryview, layout: Layout) -> None:
    """Check every message's own checksum; one hash call per message."""
    if layout.message_count == 1 and _U64.unpack_from(batch, HEADER_BYTES)[0] == xxh3_64_intdigest(
        batch[HEADER_BYTES + 8 :]
    ):
        return
    start = HEADER_BYTES
    for index in range(layout.message_count):
        end = layout.position(index + 1) if index + 1 < layout.message_count else layout.length
        (stored,) = _U64.unpack_from(batch, start)
        if xxh3_64_intdigest(batch[start + 8 : end]) != stored:
            raise RemoteProtocolError(
                f"checksum of message {index} does not match", _INVALID_MESSAGE_CHECKSUM
            )
        start = end


def verify_header(batch: memoryview, layout: Layout) -> None:
    """Check the batch checksum, which covers the header and the frames' checksum fields."""
    (stored,) = _U64.unpack_from(batch, 40)
    if batch_checksum(batch, layout) != stored:
        raise RemoteProtocolError("batch checksum does not match", _INVALID_BATCH_CHECKSUM)


def frames(batch: memoryview) -> Iterator[Frame]:
    """The messages of a proven or stored batch, one by one. Not for hot paths."""
    if len(batch) < HEADER_BYTES:
        raise RemoteProtocolError("a batch header is cut short")
    _, _, _, _, length, _, count, _ = HEADER.unpack_from(batch)
    length = min(length, len(batch))
    position = HEADER_BYTES
    for _ in range(count):
        if position + FRAME_HEADER_BYTES > length:
            raise RemoteProtocolError("a message starts past the end of its batch")
        checksum, id_low, id_high, delta, delta_us, headers, payload, _ = FRAME.unpack_from(batch, position)
        middle = position + FRAME_HEADER_BYTES + payload
        end = middle + headers
        if end > length:
            raise RemoteProtocolError("a message reaches past the end of its batch")
        yield Frame(
            checksum,
            id_high << 64 | id_low,
            delta,
            delta_us,
            batch[position + FRAME_HEADER_BYTES : middle],
            batch[middle:end],
        )
        position = end


def split(batches: memoryview) -> Iterator[memoryview]:
    """The batches that lie back to back in a buffer."""
    position = 0
    while position < len(batches):
        if position + HEADER_BYTES > len(batches):
            raise RemoteProtocolError("a batch header is cut short")
        length = HEADER.unpack_from(batches, position)[4]
        if length < HEADER_BYTES or position + length > len(batches):
            raise RemoteProtocolError("a batch reaches past the end of the buffer")
        yield batches[position : position + length]
        position += length
