"""The memory that all connections together may use for requests they are receiving.

Small buffers are always given; they are bounded by the number of connections. A large request reserves
what it needs before it is read. If that is not free, its connection stops reading and is told when its
turn has come, in the order of asking. When everybody who holds memory waits for more, nobody could ever
release any; then the first in the queue is let through whatever it needs, so a low limit slows clients
down but never stops them.
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

    @property
    def is_contended(self) -> bool:
        return bool(self._queue)

    def take(self, size: int) -> None:
        self.used_bytes += size

    def reserve(self, receiver: Receiver, size: int) -> bool:
        """True if granted; otherwise `budget_granted` is called later."""
        self._queue[receiver] = size
        self._serve(asking=receiver)
        return receiver not in self._queue

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
        return self.used_bytes + size <= self.limit_bytes or self._reserved <= self._queue.keys()

    def _serve(self, asking: Receiver | None = None) -> None:
        """Grant what can be granted; who is just asking learns it from the answer."""
        while self._queue:
            receiver, size = next(iter(self._queue.items()))
            if not self._fits(size):
                return
            del self._queue[receiver]
            self._reserved.add(receiver)
            self.used_bytes += size
            if receiver is not asking:
                receiver.budget_granted()
