"""Bytes received, cut into reply frames; both drivers receive into the space given here.

Small frames are received together and copied out, because the space is used again. A frame larger than the
space gets memory of its own and is handed out without a copy; while it arrives nothing else is received.
"""

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import FRAME_BYTES_CEILING
from borzoi.wire.vsr.frames import HEADER_BYTES, SIZE_AND_COMMAND

SPACE_BYTES = 64 * 1024


class ReplyStream:
    __slots__ = ("_end", "_large", "_large_end", "_space")

    def __init__(self) -> None:
        self._space = memoryview(bytearray(SPACE_BYTES))
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
            return [frame]
        self._end += count
        frames: list[memoryview] = []
        start = 0
        while self._end - start >= HEADER_BYTES:
            size, _ = SIZE_AND_COMMAND.unpack_from(self._space, start)
            if not HEADER_BYTES <= size <= FRAME_BYTES_CEILING:
                raise RemoteProtocolError(f"a reply frame of {size} bytes")
            if start + size > self._end:
                if size > SPACE_BYTES:
                    self._start_large(start, size)
                    return frames
                break
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
        self._large = memoryview(bytearray(size))
        self._large_end = self._end - start
        self._large[: self._large_end] = self._space[start : self._end]
        self._end = 0
