"""Bytes received, cut into reply frames; both drivers receive into the space given here.

Small frames are received together and copied out, because the space is used again. A frame that arrives
alone and fills most of the space is handed out with it, without a copy, and there is a new space. A frame
larger than the space gets memory of its own, and while it arrives nothing else is received. Others like it
may follow: after it the space is a little larger than that frame, or, if that is too much to keep, small, so
that little of the next one has to be copied out of it.

Batches and replies are large blocks that come and go with every call. Left alone, glibc's malloc gives such
memory back to the system each time it is freed and asks for it again, page by page, which can cost more
than everything else that is done with a batch. It learns how much to keep from the largest block that was
ever freed; `keep_freed_memory` shows it one.
"""

from functools import cache

import numpy as np

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import FRAME_BYTES_CEILING, POLL_REPLY_BYTES_MAX
from borzoi.wire.vsr.frames import HEADER_BYTES, SIZE_AND_COMMAND

SPACE_BYTES = 64 * 1024
SPACE_BYTES_MAX = 4 * 1024 * 1024


@cache
def keep_freed_memory() -> None:
    """Let the process keep freed memory, up to about twice the largest poll reply. No effect but on glibc."""
    bytes(POLL_REPLY_BYTES_MAX)  # zeros that nobody touches: the system gives no memory for them


class ReplyStream:
    __slots__ = ("_end", "_large", "_large_end", "_space")

    def __init__(self) -> None:
        keep_freed_memory()
        self._space = _memory(SPACE_BYTES)
        self._end = 0  # of what is in the space
        self._large: memoryview | None = None  # the frame that does not fit into it
        self._large_end = 0

    def space(self) -> memoryview:
        """Where to receive to. Never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._space[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are complete now that `count` more bytes have been received."""
        if self._large is not None:
            self._large_end += count
            if self._large_end < len(self._large):
                return []
            frame, self._large = self._large, None
            wanted_bytes = len(frame) + len(frame) // 8
            self._space = _memory(wanted_bytes if wanted_bytes <= SPACE_BYTES_MAX else SPACE_BYTES)
            return [frame]
        self._end += count
        frames: list[memoryview] = []
        start = 0
        while self._end - start >= HEADER_BYTES:
            size, _ = SIZE_AND_COMMAND.unpack_from(self._space, start)
            if not HEADER_BYTES <= size <= FRAME_BYTES_CEILING:
                raise RemoteProtocolError(f"a reply frame of {size} bytes")
            if start + size > self._end:
                if size > len(self._space):
                    self._start_large(start, size)
                    return frames
                break
            if size == self._end and 2 * size > len(self._space):
                frame, self._space = self._space[:size], _memory(len(self._space))
                self._end = 0
                return [frame]
            frames.append(memoryview(bytes(self._space[start : start + size])))
            start += size
        if start:
            rest = self._end - start
            self._space[:rest] = self._space[start : self._end]
            self._end = rest
        return frames

    @property
    def is_between_frames(self) -> bool:
        return self._end == 0 and self._large is None

    def _start_large(self, start: int, size: int) -> None:
        self._large = _memory(size)
        self._large_end = self._end - start
        self._large[: self._large_end] = self._space[start : self._end]
        self._end = 0


def _memory(size_bytes: int) -> memoryview:
    """Not zeroed, unlike a bytearray."""
    return np.empty(size_bytes, np.uint8).data
