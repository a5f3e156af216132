"""What a transport needs of a wire generation.

A conversation is the server's side of one connection: it is given whole frames and answers with bytes,
or with something to wait for. It does no I/O. Which generations there are is in `server.generations`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from borzoi.broker.pending import Pending
from borzoi.model.values import BytesLike

# What goes out for one request, in order; the pieces are written as they are, without joining large ones.
Answer = list[BytesLike]


@dataclass(slots=True)
class Waiting:
    """An answer that takes time: once `pending` is done, `finish` turns its outcome into bytes."""

    pending: Pending
    finish: Callable[[object], Answer]


class Conversation(Protocol):
    header_bytes: int  # how much of a frame must be there before its size can be told

    @property
    def is_authenticated(self) -> bool: ...

    def frame_size(self, data: bytearray, position: int) -> int:
        """Size of the frame that starts here. Raises RemoteProtocolError if it is none or too large."""
        ...

    def receive(self, data: memoryview, position: int, end: int, now_us: int) -> Answer | Waiting:
        """Answer the frame that lies between `position` and `end`. Never raises for what a client sent."""
        ...
