"""A bounds-checked reading position in a received body.

Every read is checked against the end of the body before it happens, so a short, long or lying body is
a `RemoteProtocolError` and never an `IndexError` or a `struct.error`. Nothing is copied here: `take`
and `rest` hand out views of the body. The cursor knows no field types; those are in `wire.fields`.
"""

from struct import Struct
from typing import Any

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.values import BytesLike


class Cursor:
    __slots__ = ("_view", "end", "position")

    def __init__(self, body: BytesLike) -> None:
        self._view = memoryview(body)
        self.position = 0
        self.end = len(self._view)

    @property
    def remaining_bytes(self) -> int:
        return self.end - self.position

    def take(self, size_bytes: int) -> memoryview:
        start = self._advance(size_bytes)
        return self._view[start : self.position]

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        start = self._advance(layout.size)
        return layout.unpack_from(self._view, start)

    def rest(self) -> memoryview:
        return self.take(self.remaining_bytes)

    def finish(self) -> None:
        """Refuse a body that has more bytes than its layout."""
        if self.position != self.end:
            raise RemoteProtocolError(f"{self.remaining_bytes} bytes too many at {self.position}")

    def _advance(self, size_bytes: int) -> int:
        start = self.position
        if size_bytes > self.end - start:
            raise RemoteProtocolError(
                f"body ends early: {size_bytes} bytes expected at {start}, {self.end - start} left"
            )
        self.position = start + size_bytes
        return start
