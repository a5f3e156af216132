"""What a consumer has of one partition: its place there, and messages that are not delivered yet.

No I/O. A holding is good as long as nobody else stores offsets for the partition; `agrees_with` tells from
the stored offset whether somebody did. One that does not agree is thrown away and begun anew.

    committed_offset    stored on the server, as far as is known; None: nothing is
    delivered_offset    the last message that the application got
    finished_offset     the last message that was dealt with
    expected_offset     of the next message to be delivered; None: whatever comes first
    next_poll           where the next poll starts, past everything in `buffer`
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from borzoi.client.received import ReceivedMessage
from borzoi.client.values import PollingStrategy
from borzoi.model import values
from borzoi.model.errors import BorzoiError
from borzoi.model.values import PollingKind


class OffsetGap(BorzoiError):  # noqa: N818 - named like the platform's other errors
    """Messages are missing between the last one and the next: they expired or were deleted."""

    def __init__(self, partition_id: int, expected_offset: int, offset: int) -> None:
        self.partition_id = partition_id
        self.expected_offset = expected_offset
        self.offset = offset
        super().__init__(f"partition {partition_id} goes on at {offset}, not at {expected_offset}")


@dataclass(slots=True, eq=False)
class Holding:
    partition_id: int
    next_poll: values.PollingStrategy
    committed_offset: int | None = None
    expected_offset: int | None = None
    delivered_offset: int | None = None
    finished_offset: int | None = None
    storing_offset: int | None = None  # sent to be stored, with an unknown outcome
    buffer: deque[ReceivedMessage] = field(default_factory=deque)
    is_leaving: bool = False  # another member is waiting for the partition

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be stored."""
        return self.finished_offset is None or self.finished_offset == self.committed_offset

    def agrees_with(self, stored_offset: int | None) -> bool:
        """Whether the stored offset is our own doing; learns the outcome of a store."""
        if stored_offset is not None and stored_offset == self.storing_offset:
            self.stored(stored_offset)
        return stored_offset == self.committed_offset

    def finish(self, offset: int | None) -> None:
        """A message was dealt with. What is older than what is known changes nothing."""
        known = [known for known in (self.committed_offset, self.finished_offset) if known is not None]
        if offset is not None and all(offset > earlier for earlier in known):
            self.finished_offset = offset

    def stored(self, offset: int) -> None:
        self.committed_offset = offset
        self.storing_offset = None

    def add(self, messages: Sequence[ReceivedMessage]) -> None:
        """What a poll at `next_poll` returned."""
        if messages:
            self.buffer.extend(messages)
            self.next_poll = PollingStrategy.Offset(messages[-1].offset + 1)
        elif self.next_poll.kind is PollingKind.LAST:
            # There is nothing yet, so everything that comes is new.
            self.next_poll = PollingStrategy.Offset(0)

    def take(self) -> ReceivedMessage:
        """The next message, or an `OffsetGap`, once, if it is not the expected one."""
        message = self.buffer[0]
        expected_offset, self.expected_offset = self.expected_offset, message.offset
        if expected_offset is not None and message.offset > expected_offset:
            raise OffsetGap(self.partition_id, expected_offset, message.offset)
        self.expected_offset = message.offset + 1
        self.delivered_offset = message.offset
        return self.buffer.popleft()

    def lend(self, count: int) -> list[ReceivedMessage]:
        """What follows the delivered message without a gap, for somebody who gives the rest back."""
        lent: list[ReceivedMessage] = []
        while len(lent) < count and self.buffer and self.expected_offset is not None:
            if self.buffer[0].offset != self.expected_offset + len(lent):
                break
            lent.append(self.buffer.popleft())
        return lent

    def give_back(self, delivered: ReceivedMessage, rest: Sequence[ReceivedMessage]) -> None:
        """The last of the lent messages that was delivered, and those that were not."""
        self.buffer.extendleft(reversed(rest))
        self.delivered_offset = delivered.offset
        self.expected_offset = delivered.offset + 1

    def put_back(self, message: ReceivedMessage) -> None:
        self.buffer.appendleft(message)
        self.delivered_offset = self.finished_offset
        self.expected_offset = message.offset


def begin(partition_id: int, stored_offset: int | None, start: values.PollingStrategy) -> Holding:
    """After the stored offset; without one, at `start`."""
    if stored_offset is not None:
        following = stored_offset + 1
        return Holding(partition_id, PollingStrategy.Offset(following), stored_offset, following)
    match start.kind:
        case PollingKind.OFFSET:
            return Holding(partition_id, start, expected_offset=start.value)
        case PollingKind.LAST | PollingKind.TIMESTAMP:
            return Holding(partition_id, start)
        case _:
            return Holding(partition_id, PollingStrategy.Offset(0))
