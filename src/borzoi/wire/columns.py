"""The messages of batches that lie back to back in a buffer, as columns: one NumPy array for each field.

The buffer is a poll reply's, a segment file's (mapped or read), or a part of one that begins and ends with a
batch. Nothing is copied but frame headers. Batches of equal-sized messages, the common case, are found with a
handful of NumPy calls each; where sizes differ, every frame says where the next one is, and that takes a
Python step per message.

`columns` returns only if header and frames describe exactly these bytes, so whoever follows `payload_starts`
and `payload_ends` stays within the buffer. Whatever else the bytes are, RemoteProtocolError is raised and
nothing else. Checksums are not checked; `wire.batch` does that.

Numbers are those of the wire, unsigned. A served part of a batch, whose first offset delta is above zero,
is as good as a whole one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.values import BytesLike
from borzoi.wire.batch_layout import FRAME_FORM, FRAME_HEADER_BYTES, HEADER_BYTES, LENGTHS, LENGTHS_AT

# Below this many messages in a batch, following the frames beats the fixed cost of NumPy calls.
_VECTOR_MIN = 24
_LENGTH_AND_COUNT = Struct("<32xQ8xI")
# What the messages of a batch share, from byte 0 of its header.
_SHARED_FORM = np.dtype([("partition", "<u8"), ("offset", "<u8"), ("stored_us", "<u8"), ("origin_us", "<u8")])
_FRAME_BYTES = np.dtype(f"V{FRAME_HEADER_BYTES}")
_ID_AT = 8
_ID_FORM = np.dtype("V16")
_CHECKSUM_AND_ID_FORM = np.dtype("V24")

Longs = NDArray[np.int64]
UnsignedLongs = NDArray[np.uint64]


class Shared(NamedTuple):
    """What all messages of a batch have in common."""

    partition_id: int
    base_offset: int
    timestamp_us: int
    origin_timestamp_us: int


class Even(NamedTuple):
    """Messages whose frames follow each other and have the same lengths."""

    start: int  # the first byte of the first frame
    messages: int
    frame_bytes: int
    payload_bytes: int

    def part(self, first: int, last: int) -> "Even":
        return Even(self.start + first * self.frame_bytes, last - first, self.frame_bytes, self.payload_bytes)

    @property
    def headers_bytes(self) -> int:
        return self.frame_bytes - self.payload_bytes - FRAME_HEADER_BYTES


@dataclass(frozen=True, eq=False)
class Columns:
    """What was found. Columns are made when asked for; positions are bytes of `buffer`."""

    buffer: memoryview
    starts: Longs  # of frames
    heads: NDArray[Any]  # frame headers, of FRAME_FORM
    evens: tuple[Even, ...]  # all messages, one for each batch; empty if a batch has different lengths
    _shared: NDArray[Any]  # of each batch, of _SHARED_FORM
    _counts: Longs  # messages of each batch

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def only_batch(self) -> Shared | None:
        """If there is one batch; sparing its columns, where every row would be the same, is worth it."""
        return Shared(*self._shared[0].tolist()) if len(self._shared) == 1 else None

    @property
    def largest_batch(self) -> tuple[int, int]:
        """Its base offset, and how many messages of it are here."""
        number = int(np.argmax(self._counts))
        return int(self._shared["offset"][number]), int(self._counts[number])

    @property
    def partition_ids(self) -> UnsignedLongs:
        return self._spread("partition")

    @cached_property
    def offsets(self) -> UnsignedLongs:
        found: UnsignedLongs = self._spread("offset") + self.heads["offset_delta"]
        return found

    @property
    def offset_range(self) -> range | None:
        """The offsets, if none is left out. Batches are trusted to have theirs in order."""
        if not len(self):
            return None
        batch = self.only_batch
        if batch is None:
            offsets = self.offsets
            first, last = int(offsets[0]), int(offsets[-1])
        else:
            deltas = self.heads["offset_delta"]
            first, last = batch.base_offset + int(deltas[0]), batch.base_offset + int(deltas[-1])
        return range(first, last + 1) if last - first == len(self) - 1 else None

    @property
    def timestamps_us(self) -> UnsignedLongs:
        """When the broker stored the message's batch."""
        return self._spread("stored_us")

    @property
    def origin_timestamps_us(self) -> UnsignedLongs:
        found: UnsignedLongs = self._spread("origin_us") + self.heads["time_delta"]
        return found

    @property
    def ids(self) -> NDArray[np.void]:
        """16 bytes each, the least significant first."""
        return self.heads.getfield(_ID_FORM, _ID_AT)

    @property
    def checksums_and_ids(self) -> NDArray[np.void]:
        """The first 24 bytes of every frame."""
        return self.heads.getfield(_CHECKSUM_AND_ID_FORM)

    @property
    def checksums(self) -> UnsignedLongs:
        found: UnsignedLongs = self.heads["checksum"]
        return found

    @property
    def payload_starts(self) -> Longs:
        return self.starts + FRAME_HEADER_BYTES

    @property
    def payload_ends(self) -> Longs:
        """Also where the user headers start."""
        found: Longs = self.payload_starts + self.heads["payload"]
        return found

    @property
    def headers_ends(self) -> Longs:
        found: Longs = self.payload_ends + self.heads["headers"]
        return found

    @property
    def has_headers(self) -> bool:
        if self.evens:
            return any(even.headers_bytes for even in self.evens if even.messages)
        return bool(self.heads["headers"].any())

    def part(self, first: int, last: int) -> "Columns":
        """Messages `first` to `last`, the latter not included."""
        if first <= 0 and last >= len(self):
            return self
        ends = np.cumsum(self._counts)
        begins = ends - self._counts
        firsts = np.clip(first - begins, 0, self._counts)
        lasts = np.maximum(np.clip(last - begins, 0, self._counts), firsts)
        bounds = zip(self.evens, firsts.tolist(), lasts.tolist(), strict=False)  # evens may be empty
        return Columns(
            self.buffer,
            self.starts[first:last],
            self.heads[first:last],
            tuple(even.part(begin, end) for even, begin, end in bounds),
            self._shared,
            lasts - firsts,
        )

    def without_buffer(self) -> "Columns":
        """Only what the headers of batches and frames say; payloads and user headers are gone."""
        heads = np.ascontiguousarray(self.heads.view(_FRAME_BYTES)).view(FRAME_FORM)  # not field by field
        return Columns(memoryview(b""), self.starts, heads, self.evens, self._shared, self._counts)

    def payloads(self) -> list[bytes]:
        """A copy of every payload."""
        if self.evens:
            return self._equal((FRAME_HEADER_BYTES, even.payload_bytes) for even in self.evens)
        return self._slices(self.payload_starts, self.payload_ends)

    def header_blocks(self) -> list[bytes]:
        """A copy of the user headers of every message, as they are encoded."""
        if not self.has_headers:
            return [b""] * len(self)
        if self.evens:
            return self._equal(
                (FRAME_HEADER_BYTES + even.payload_bytes, even.headers_bytes) for even in self.evens
            )
        return self._slices(self.payload_ends, self.headers_ends)

    def _equal(self, places: Iterable[tuple[int, int]]) -> list[bytes]:
        """A part of every message: where it is in the frames of each `evens`, and how long."""
        found: list[bytes] = []
        for even, (skip, size) in zip(self.evens, places, strict=True):
            if even.messages:
                strides = (even.frame_bytes,)
                found += np.ndarray(
                    (even.messages,), f"V{size}", self.buffer, even.start + skip, strides
                ).tolist()
        return found

    def _slices(self, starts: Longs, ends: Longs) -> list[bytes]:
        if not len(self):
            return []
        # Copied once for all: a slice of bytes is half the work of copying a slice of a view.
        first, last = int(starts[0]), int(ends[-1])
        data = bytes(self.buffer[first:last])
        bounds = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
        return [data[start:end] for start, end in bounds]

    def _spread(self, field: str) -> UnsignedLongs:
        return np.repeat(self._shared[field], self._counts)


def columns(batches: BytesLike) -> Columns:
    """The messages of the batches in this buffer, in their order."""
    buffer = memoryview(batches).cast("B")
    positions: list[int] = []
    counts: list[int] = []
    evens: list[Even] = []
    starts: list[Longs] = []
    walked: list[int] = []  # the last of these, of batches that had to be walked
    position = 0
    while position < len(buffer):
        end, count = _end_and_count(buffer, position)
        positions.append(position)
        counts.append(count)
        start = position + HEADER_BYTES
        even = _even(buffer, start, end, count) if count >= _VECTOR_MIN else None
        if even is None:
            _walk(buffer, start, end, count, walked)
        else:
            evens.append(even)
            if walked:
                starts.append(np.array(walked, np.int64))
                walked = []
            starts.append(np.arange(start, end, even.frame_bytes))
        position = end
    if walked or not starts:
        starts.append(np.array(walked, np.int64))
    if len(evens) < len(counts):
        evens = []
    every = starts[0] if len(starts) == 1 else np.concatenate(starts)
    heads = _even_heads(buffer, evens) if evens else _gathered(buffer, every, FRAME_FORM)
    shared = _gathered(buffer, np.array(positions, np.int64), _SHARED_FORM)
    return Columns(buffer, every, heads, tuple(evens), shared, np.array(counts, np.int64))


def _end_and_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Where the batch that starts here ends, and how many messages it says it has."""
    left = len(buffer) - position
    if left < HEADER_BYTES:
        raise RemoteProtocolError("a batch header is cut short")
    length, count = _LENGTH_AND_COUNT.unpack_from(buffer, position)
    if not HEADER_BYTES <= length <= left:
        raise RemoteProtocolError("a batch reaches past the end of the buffer")
    if count * FRAME_HEADER_BYTES > length - HEADER_BYTES:
        raise RemoteProtocolError(f"{count} messages cannot fit into {length} bytes")
    return position + length, count


def _even(buffer: memoryview, start: int, end: int, count: int) -> Even | None:
    """The frames, if all have the same lengths."""
    frame_bytes, remainder = divmod(end - start, count)
    lengths_at = start + LENGTHS_AT
    headers_bytes, payload_bytes = LENGTHS.unpack_from(buffer, lengths_at)
    if remainder or frame_bytes != FRAME_HEADER_BYTES + headers_bytes + payload_bytes:
        return None
    lengths: UnsignedLongs = np.ndarray((count,), "<u8", buffer, lengths_at, (frame_bytes,))
    # A third of what comparing them as numbers takes.
    if lengths.tobytes() != lengths[:1].tobytes() * count:
        return None
    return Even(start, count, frame_bytes, payload_bytes)


def _walk(buffer: memoryview, start: int, end: int, count: int, starts: list[int]) -> None:
    """Add where the frames of a batch start."""
    unpack = LENGTHS.unpack_from
    last = end - FRAME_HEADER_BYTES
    for _ in range(count):
        if start > last:
            raise RemoteProtocolError("a message starts past the end of its batch")
        starts.append(start)
        headers, payload = unpack(buffer, start + LENGTHS_AT)
        start += FRAME_HEADER_BYTES + headers + payload
    if start != end:
        raise RemoteProtocolError(f"the messages of a batch end at byte {start}, the batch at {end}")


def _even_heads(buffer: memoryview, evens: list[Even]) -> NDArray[Any]:
    """The frame headers; of one batch where they lie, of several copied together."""
    views = [
        np.ndarray((even.messages,), _FRAME_BYTES, buffer, even.start, (even.frame_bytes,)) for even in evens
    ]
    return (views[0] if len(views) == 1 else np.concatenate(views)).view(FRAME_FORM)


def _gathered(buffer: memoryview, starts: Longs, form: np.dtype[Any]) -> NDArray[Any]:
    """What lies at each of these places."""
    if not len(starts):
        return np.empty(0, form)
    width = form.itemsize
    # Element i of this view is the bytes that begin at byte i.
    anywhere: NDArray[np.void] = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, 0, (1,))
    return anywhere[starts].view(form)
