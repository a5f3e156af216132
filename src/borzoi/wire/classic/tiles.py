"""Many records in one buffer, moved into another with new heads.

A record is a head of fixed width and a body. Records of one size are strided views: heads and bodies are
copied with one call each. Records of various sizes are gathered and scattered through a view in which
element i begins at byte i: heads as they are, bodies in chunks of one size. The last chunk of a body ends
where the body ends and overlaps the one before it, so nothing is read or written beyond a body. Where
that would make too many chunks, bodies are copied one slice each; so the cost grows with the records, and
with their bytes only as a plain copy does.
"""

from collections.abc import Callable, Iterable
from itertools import starmap
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from borzoi.model.values import BytesLike

# Up to here hashing a copy of a record is cheaper than making a view of it.
_COPIED_BYTES_MAX = 2048
_CHUNKS_BYTES = (512, 256, 128, 64, 32, 16)
# So many chunks cost about as much as one slice.
_CHUNKS_PER_RECORD_MAX = 12
_NONE: NDArray[np.int64] = np.empty(0, np.int64)


class Tiles(NamedTuple):
    """Where records lie: `stride` bytes apart from `start` on, or (stride 0) `sizes` bytes at `starts`."""

    buffer: memoryview
    number: int
    start: int
    stride: int
    starts: NDArray[np.int64] = _NONE
    sizes: NDArray[np.int64] = _NONE

    def heads(self, form: np.dtype[Any]) -> NDArray[Any]:
        """The heads, not to be written to."""
        if self.stride:
            return np.ndarray((self.number,), form, self.buffer, self.start, (self.stride,))
        return self._anywhere(form.itemsize)[self.starts].view(form)

    def measured(self, heads: NDArray[Any]) -> "Tiles":
        """With the sizes that these heads, the records' own, tell."""
        return self._replace(
            sizes=heads.dtype.itemsize + heads["headers"].astype(np.int64) + heads["payload"]
        )

    def resized(self, buffer: memoryview, start: int, growth: int) -> "Tiles":
        """The same records back to back in `buffer` from `start` on, with heads `growth` bytes longer."""
        if self.stride:
            return Tiles(buffer, self.number, start, self.stride + growth)
        sizes = self.sizes + growth
        return Tiles(buffer, self.number, start, 0, start + np.cumsum(sizes) - sizes, sizes)

    def put_heads(self, heads: NDArray[Any]) -> None:
        opaque = f"V{heads.dtype.itemsize}"
        if self.stride:
            place: NDArray[np.void] = np.ndarray(
                (self.number,), opaque, self.buffer, self.start, (self.stride,)
            )
            place[:] = heads.view(opaque)
        else:
            self._anywhere(heads.dtype.itemsize)[self.starts] = heads.view(opaque)

    def copy_bodies(self, head_bytes: int, source: "Tiles", source_head_bytes: int) -> None:
        """Take the bodies of `source`, which has as many records with bodies of the same sizes."""
        if self.stride:
            self._bodies(head_bytes)[:] = source._bodies(source_head_bytes)
            return
        bodies_bytes = self.sizes - head_bytes
        chunk_bytes = _chunk_bytes(bodies_bytes)
        if chunk_bytes:
            chunks = -(-bodies_bytes // chunk_bytes)
            # For every chunk: its number within its body, then where in the body it begins.
            within = np.arange(chunks.sum()) - np.repeat(np.cumsum(chunks) - chunks, chunks)
            within = np.minimum(within * chunk_bytes, np.repeat(bodies_bytes - chunk_bytes, chunks))
            begins = np.repeat(self.starts + head_bytes, chunks) + within
            firsts = np.repeat(source.starts + source_head_bytes, chunks) + within
            self._anywhere(chunk_bytes)[begins] = source._anywhere(chunk_bytes)[firsts]
            return
        to, of = self.buffer, source.buffer
        for (begin, end), (first, last) in zip(
            self.bounds(head_bytes), source.bounds(source_head_bytes), strict=True
        ):
            to[begin:end] = of[first:last]

    def digests(self, skip: int, digest: Callable[[BytesLike], Any]) -> Iterable[Any]:
        """What `digest` makes of every record without its first `skip` bytes."""
        if 0 < self.stride <= _COPIED_BYTES_MAX:
            records = self.buffer[self.start : self.start + self.number * self.stride]
            return starmap(digest, Struct(f"{skip}x{self.stride - skip}s").iter_unpack(records))
        buffer = self.buffer
        return [digest(buffer[begin:end]) for begin, end in self.bounds(skip)]

    def begins(self) -> Iterable[int]:
        if self.stride:
            return range(self.start, self.end, self.stride)
        starts: list[int] = self.starts.tolist()
        return starts

    def bounds(self, skip: int) -> Iterable[tuple[int, int]]:
        """Begin, without the first `skip` bytes, and end of every record."""
        starts: Iterable[int]
        ends: Iterable[int]
        if self.stride:
            end = self.start + self.number * self.stride
            starts = range(self.start + skip, end + skip, self.stride)
            ends = range(self.start + self.stride, end + 1, self.stride)
        else:
            starts, ends = (self.starts + skip).tolist(), (self.starts + self.sizes).tolist()
        return zip(starts, ends, strict=True)

    @property
    def end(self) -> int:
        if self.stride:
            return self.start + self.number * self.stride
        return int(self.starts[-1] + self.sizes[-1])

    def _bodies(self, head_bytes: int) -> NDArray[np.uint8]:
        shape = (self.number, self.stride - head_bytes)
        return np.ndarray(shape, np.uint8, self.buffer, self.start + head_bytes, (self.stride, 1))

    def _anywhere(self, width: int) -> NDArray[np.void]:
        return np.ndarray((len(self.buffer) - width + 1,), f"V{width}", self.buffer, 0, (1,))


def _chunk_bytes(bodies_bytes: NDArray[np.int64]) -> int:
    """The largest chunk that fits into every body; 0 if slices are cheaper."""
    least, most = int(bodies_bytes.min()), int(bodies_bytes.sum()) // _CHUNKS_PER_RECORD_MAX
    for chunk_bytes in _CHUNKS_BYTES:
        if chunk_bytes <= least:
            return chunk_bytes if most <= chunk_bytes * len(bodies_bytes) else 0
    return 0
