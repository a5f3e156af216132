"""What a task finds out about messages that it was to read and that the server no longer has.

That is data loss: an error or, if the user wants so, a warning, and what is left is read. A topic that was
deleted, or deleted and made anew under the same name, has lost everything: its messages are not those that
were asked for. A task looks at that after its last message, because what it has read counts only if it ends
well. If the topic was made anew meanwhile it does not end well, whatever the user wants: the rows may be the
new topic's, which the next micro-batch reads. Tried again, the task sees that before its first message.
"""

from dataclasses import dataclass

from borzoi.client.values import PollingStrategy
from borzoi.model.errors import NotFound
from borzoi.model.replies import TopicExtent
from borzoi.spark.connections import borrowed
from borzoi.spark.options import Target
from borzoi.spark.plan import Split, lose


@dataclass(frozen=True, slots=True)
class Losses:
    """Of the topic that is read."""

    target: Target
    fail: bool

    def is_all_lost(self, split: Split) -> bool:
        """Whether the topic is another one, and the user wants to go on all the same."""
        if self.fail:
            return False  # it is an error, after the last message
        extent = self._extent()
        if extent is not None and extent.created_at_us == split.created_at_us:
            return False
        what = "deleted" if extent is None else "deleted and created again"
        self._lose(f"it was {what} before it was read")
        return True

    def check_identity(self, split: Split) -> None:
        self.compare(split, self._extent())

    def compare(self, split: Split, extent: TopicExtent | None) -> None:
        """The topic as it was when the read was planned, and as it is now; None if it is gone."""
        if extent is None:
            self._lose("it was deleted while it was read")
        elif extent.created_at_us != split.created_at_us:
            lose(self.target, ["it was deleted and created again while it was read"], fail=True)

    def skip(self, split: Split, position: int) -> int:
        """Where the messages of a split go on, of which the server does not have that at `position`."""
        self.check_identity(split)  # which says better why
        end = self._first_from(split.partition_id, position)
        if end is None or not position < end < split.end:
            end = split.end
        self.lost(split, position, end)
        return end

    def has_partition(self, partition_id: int) -> bool:
        extent = self._extent()
        partitions = extent.partitions if extent is not None else ()
        return any(each.partition_id == partition_id for each in partitions)

    def lost(self, split: Split, start: int, end: int) -> None:
        self._lose(
            f"partition {split.partition_id}: offsets [{start}, {end}) were deleted before they were read"
        )

    def _first_from(self, partition_id: int, position: int) -> int | None:
        """The offset of the first message at or behind a position."""
        target, start = self.target, PollingStrategy.Offset(position)
        try:
            with borrowed(target) as client:
                found = client.poll_messages(
                    target.stream, target.topic, partition_id, start, 1, auto_commit=False
                )
        except NotFound:
            return None
        return found[0].offset if found else None

    def _extent(self) -> TopicExtent | None:
        try:
            with borrowed(self.target) as client:
                return client.get_topic_extent(self.target.stream, self.target.topic)
        except NotFound:
            return None

    def _lose(self, what: str) -> None:
        lose(self.target, [what], fail=self.fail)
