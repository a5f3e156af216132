"""The memory that all connections together may use for requests they are receiving.

Small buffers are always given; they are bounded by the number of connections. A large request reserves
what it needs before it is read. If that is not free, its connection stops reading and is told when its
turn has come, in the order of asking. A single request larger than the whole budget is let through when
nothing else is reserved, so a low limit slows clients down but never stops them.
"""

from collections import OrderedDict
from typing import Protocol


class Receiver(Protocol):
    def budget_granted(self) -> None: ...


class BufferBudget:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._reserved: set[Receiver] = set()
        self._queue: OrderedDict[Receiver, int] = OrderedDict()

    def take(self, size: int) -> None:
        self.used_bytes += size

    def reserve(self, receiver: Receiver, size: int) -> bool:
        """True if granted; otherwise `budget_granted` is called later."""
        if self._queue or not self._fits(size):
            self._queue[receiver] = size
            return False
        self._grant(receiver, size)
        return True

    def release(self, receiver: Receiver, size: int) -> None:
        """The receiver is back to a small buffer."""
        self._reserved.discard(receiver)
        self.used_bytes -= size
        self._serve()

    def forget(self, receiver: Receiver, size: int) -> None:
        """The receiver is gone, with all it held or asked for."""
        self._queue.pop(receiver, None)
        self.release(receiver, size)

    def _fits(self, size: int) -> bool:
        return self.used_bytes + size <= self.limit_bytes or not self._reserved

    def _grant(self, receiver: Receiver, size: int) -> None:
        self._reserved.add(receiver)
        self.used_bytes += size

    def _serve(self) -> None:
        while self._queue:
            receiver, size = next(iter(self._queue.items()))
            if not self._fits(size):
                return
            del self._queue[receiver]
            self._grant(receiver, size)
            receiver.budget_granted()
