"""The stored offsets of one group or consumer, to be looked at and changed.

The server lets only a member that holds a partition change the group's offset in it, so changing them means
to join a group that has no members, store, and leave. Members that there are can only be thrown out: the
group is deleted, made anew under its name, and given all its offsets, those that were not to be changed too.

What is about to change is written down by the caller before (`cli.reset_journal`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from borzoi.cli.connection import identifier, refuse
from borzoi.cli.consumer_offset import Kind
from borzoi.cli.offset_targets import AtTime, Move, Place, Target
from borzoi.cli.positions import Bounds, committed_offset, peek, topic_named
from borzoi.cli.reset_journal import Change, Subject

if TYPE_CHECKING:
    from borzoi.client.details import ConsumerGroupDetails, TopicDetails
    from borzoi.client.sync import Client
    from borzoi.client.values import Consumer
    from borzoi.model.values import Identifier

# Members that come back by themselves are thrown out so often; each time there are milliseconds to be first.
_THROWS_MAX = 5


@dataclass(slots=True)
class GroupOffsets:
    """Whose offsets are changed, and the changing of them."""

    client: "Client"
    topic: "TopicDetails"
    stream_id: int
    subject: Subject
    kind: Kind
    group: "ConsumerGroupDetails | None"  # None for a consumer, and for a group that is gone
    will_recreate: bool = False

    @classmethod
    def of(
        cls, client: "Client", stream: str, topic: str, name: str, kind: Kind, *, is_undo: bool = False
    ) -> "GroupOffsets":
        """Ends the command if something of it does not exist; undoing may bring a group back."""
        found_topic = topic_named(client, stream, topic)
        found_stream = client.get_stream(identifier(stream))
        if found_stream is None:
            refuse(f'there is no stream "{stream}"; `borzoi stream list` shows all')
        group = None
        consumer: Identifier = identifier(name)
        if kind is Kind.GROUP:
            group = client.get_consumer_group(found_stream.id, found_topic.id, consumer)
            if group is not None:
                consumer = group.name
            elif not is_undo or isinstance(consumer, int):
                refuse(
                    f'there is no consumer group "{name}"; '
                    f"`borzoi consumer-group list {stream} {topic}` shows those there are"
                )
        subject = Subject(client.address, found_stream.name, found_topic.name, kind.value, consumer)
        return cls(client, found_topic, found_stream.id, subject, kind, group)

    @property
    def members_count(self) -> int:
        return 0 if self.group is None else self.group.members_count

    @property
    def consumer(self) -> "Consumer":
        from borzoi.client.values import Consumer

        made = Consumer.single if self.kind is Kind.CONSUMER else Consumer.group
        return made(self.subject.consumer)

    def places(self, wanted: Sequence[int], target: Target | None = None) -> dict[int, Place]:
        """Where the consumer stands in the wanted partitions, or in all."""
        known = {partition.id: partition for partition in self.topic.partitions}
        if unknown := [each for each in wanted if each not in known]:
            refuse(f'topic "{self.topic.name}" has no partition {listed(unknown)}; it has {len(known)}')
        has_offsets = self.kind is Kind.CONSUMER or self.group is not None
        found = {}
        for number in sorted(set(wanted) or known):
            stored = self._stored(number) if has_offsets else None
            at_time = self._offset_at(number, target.time_us) if isinstance(target, AtTime) else None
            found[number] = Place(number, Bounds.of(known[number], stored), stored, at_time)
        return found

    def require_unchanged(self, moves: Sequence[Move]) -> None:
        """End the command if somebody joined or committed while the question was on the screen."""
        if self.kind is Kind.GROUP and self.group is None:
            return
        if self.group is not None:
            now = self.client.get_consumer_group(self.stream_id, self.topic.id, self.group.id)
            if now is None or now.members_count != self.members_count:
                refuse("members have joined or left since this was shown; nothing was changed, look again")
        if any(self._stored(move.partition_id) != move.before for move in moves):
            refuse("offsets were committed since this was shown; nothing was changed, look again")

    def applied(self, moves: Sequence[Move], *, force: bool) -> list[Change]:
        """What has to be stored; all partitions, if members are thrown out and the offsets with them."""
        self.will_recreate = self.kind is Kind.GROUP and (
            self.group is None or (force and self.members_count > 0)
        )
        moved = {move.partition_id: move for move in moves}
        changes = [Change(each.partition_id, each.before, each.after) for each in moves if each.is_needed]
        if self.will_recreate and self.group is not None:
            for partition in self.topic.partitions:
                if partition.id not in moved or not moved[partition.id].is_needed:
                    stored = self._stored(partition.id)
                    changes.append(Change(partition.id, stored, stored))
        return sorted(changes, key=lambda change: change.partition_id)

    def apply(self, changes: Sequence[Change]) -> None:
        """Change the offsets. If that fails midway, the error says what was changed."""
        from borzoi.model.errors import BorzoiError, ResourceNotFound

        done: list[int] = []
        for throws_left in reversed(range(_THROWS_MAX)):
            try:
                self._stand_in()
                for change in changes:
                    self._store(change)
                    done.append(change.partition_id)
                if self.kind is Kind.GROUP:
                    self.client.leave_consumer_group(self.stream_id, self.topic.id, self.subject.consumer)
            except (BorzoiError, KeyboardInterrupt) as error:
                if len(done) == len(changes) and isinstance(error, BorzoiError):
                    return  # all is stored, and the membership ends with the connection
                if isinstance(error, ResourceNotFound) and self.will_recreate and throws_left:
                    # One that was thrown out was back before we were done, and has got some partitions.
                    where = self.stream_id, self.topic.id
                    self.group = self.client.get_consumer_group(*where, self.subject.consumer)
                    done.clear()
                    continue
                error.add_note(self._halfway(done, changes))
                raise
            return

    def _stand_in(self) -> None:
        if self.kind is Kind.CONSUMER:
            return
        where = self.stream_id, self.topic.id
        name = str(self.subject.consumer)
        if self.will_recreate:
            if self.group is not None:
                self.client.delete_consumer_group(*where, self.group.id)
            self.client.create_consumer_group(*where, name)
        self.client.join_consumer_group(*where, name)

    def _store(self, change: Change) -> None:
        from borzoi.model.errors import ConsumerOffsetNotFound

        where = self.stream_id, self.topic.id, change.partition_id
        if change.after is not None:
            self.client.store_consumer_offset(*where, offset=change.after, consumer=self.consumer)
        elif not self.will_recreate:
            try:
                self.client.delete_consumer_offset(*where, consumer=self.consumer)
            except ConsumerOffsetNotFound:
                return  # it is as it should be

    def _stored(self, partition_id: int) -> int | None:
        return committed_offset(self.client, self.stream_id, self.topic.id, partition_id, self.consumer)

    def _offset_at(self, partition_id: int, time_us: int) -> int | None:
        from borzoi.client.values import PollingStrategy

        strategy = PollingStrategy.Timestamp(time_us)
        message = peek(self.client, self.stream_id, self.topic.id, partition_id, strategy)
        return None if message is None else message.offset

    def _halfway(self, done: list[int], changes: Sequence[Change]) -> str:
        left = [change.partition_id for change in changes if change.partition_id not in done]
        subject = self.subject
        kind = "" if self.kind is Kind.GROUP else f" --kind {self.kind.value}"
        return (
            f"Offsets were changed in partition {listed(done) or 'none'}; "
            f"not, or not known to be, in {listed(left)}. What was before comes back with: "
            f"borzoi consumer-group undo-reset {subject.stream} {subject.topic} {subject.consumer}{kind}"
        )


def listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
