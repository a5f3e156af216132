"""Sends dead letters of one topic back, in batches, and remembers how far it came.

What was sent back without a gap is remembered as an offset of the consumer `borzoi-dlq-replay` in the
dead-letter topic. It is stored after the send was confirmed: a crash in between repeats letters, and loses
none. Letters that arrive while this runs, maybe those that fail again, are left for the next time.

A letter goes back under its own id, one letter a request, because a server that drops duplicates may still
remember the id, and says that it stored nothing only if a request is nothing but duplicates. The command then
stops before that letter. With `--new-ids` letters go in batches under ids derived from where they lie, which
no original has; if such a one is dropped it was sent by a run that did not come to store its offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from borzoi.cli.connection import refuse, wrong_usage
from borzoi.cli.positions import Bounds, committed_offset

if TYPE_CHECKING:
    from borzoi.cli.letters import Destination, Letter, Progress
    from borzoi.client.details import TopicDetails
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.sync import Client
    from borzoi.client.values import Partitioning
    from borzoi.model.values import Identifier

REPLAYER = "borzoi-dlq-replay"

_BATCH_MESSAGES = 100
_BATCH_BYTES = 1 << 20


@dataclass(slots=True)
class Part:
    """One partition of the dead-letter topic, and the offsets that are looked at."""

    partition_id: int
    progress: "Progress"
    wanted: range | list[int]


@dataclass(slots=True)
class Replaying:
    """Sends letters back; knows how far it has come."""

    client: "Client"
    stream: "Identifier"
    topic: "TopicDetails"
    destination: "Destination"
    with_new_ids: bool = False
    cause: str | None = None
    is_dry: bool = False
    sent_count: int = 0
    skipped_count: int = 0
    planned: list[dict[str, Any]] = field(default_factory=list)
    _partitions: "dict[tuple[Identifier, Identifier], int]" = field(default_factory=dict)

    def parts(self, partition: int | None, offsets: list[int], *, everything: bool) -> list[Part]:
        """What to look at; ends the command if something of it does not exist."""
        from borzoi.cli.letters import Progress
        from borzoi.client.values import Consumer

        known = {each.id: each for each in self.topic.partitions}
        if partition is not None and partition not in known:
            refuse(f'topic "{self.topic.name}" has no partition {partition}; it has {len(known)}')
        if offsets and partition is None and len(known) != 1:
            wrong_usage("the topic has several partitions; say with --partition which one --offset is in")
        parts = []
        for number in known if partition is None else [partition]:
            done = committed_offset(
                self.client, self.stream, self.topic.id, number, Consumer.single(REPLAYER)
            )
            bounds = Bounds.of(known[number], done)
            progress = Progress(bounds.first_offset, done)
            wanted: range | list[int] = offsets
            if not offsets:
                start = bounds.first_offset if everything else progress.next_offset
                wanted = range(start, bounds.next_offset)
            elif missing := [
                each for each in offsets if not bounds.first_offset <= each < bounds.next_offset
            ]:
                refuse(
                    f"there is no letter at offset {', '.join(map(str, missing))} of partition {number}; "
                    f"it has {bounds.first_offset} to {bounds.next_offset - 1}"
                )
            parts.append(Part(number, progress, wanted))
        return parts

    def send_back(self, part: Part) -> None:
        """In batches that have one target; what is no letter, or not wanted, is passed over."""
        from borzoi.cli.letters import Letter

        batch: list[Letter] = []
        target: tuple[Identifier, Identifier, Partitioning] | None = None
        for message in self._messages(part):
            letter = Letter.of(message)
            if letter is None or (self.cause is not None and not letter.has_cause(self.cause)):
                self._flush(part, batch, target)
                batch = []
                self.skipped_count += 1
                if letter is None:
                    self._passed(part, [message.offset])
                continue
            own = self._target(part, letter)
            if batch and (own != target or not self._has_room(batch, letter)):
                self._flush(part, batch, target)
                batch = []
            target = own
            batch.append(letter)
        self._flush(part, batch, target)

    def _has_room(self, batch: "list[Letter]", letter: "Letter") -> bool:
        size_bytes = sum(len(each.message.payload) for each in [*batch, letter])
        return self.with_new_ids and len(batch) < _BATCH_MESSAGES and size_bytes <= _BATCH_BYTES

    def _messages(self, part: Part) -> "Iterator[ReceivedMessage]":
        from borzoi.client.values import PollingStrategy

        def poll(offset: int, count: int) -> "list[ReceivedMessage]":
            return self.client.poll_messages(
                self.stream,
                self.topic.id,
                part.partition_id,
                PollingStrategy.Offset(offset),
                count,
                auto_commit=False,
            )

        if isinstance(part.wanted, list):
            for offset in part.wanted:
                # One that retention has removed meanwhile is answered by the next there is.
                yield from (message for message in poll(offset, 1) if message.offset == offset)
            return
        position = part.wanted.start
        while position < part.wanted.stop:
            found = poll(position, min(_BATCH_MESSAGES, part.wanted.stop - position))
            found = [message for message in found if message.offset < part.wanted.stop]
            if not found:
                return  # retention was faster
            yield from found
            position = found[-1].offset + 1

    def _flush(
        self,
        part: Part,
        batch: "list[Letter]",
        target: "tuple[Identifier, Identifier, Partitioning] | None",
    ) -> None:
        """Send letters and remember it; nothing, if there are none."""
        from borzoi.model.errors import BorzoiError

        if not batch or target is None:
            return
        if self.is_dry:
            self.planned += [_planned(letter, target) for letter in batch]
            return
        try:
            stored = self.client.send_messages(
                *target, [letter.returned(with_new_id=self.with_new_ids) for letter in batch]
            )
        except BorzoiError as error:
            error.add_note(self._where(part, batch[0]))
            raise
        if not stored and not self.with_new_ids:
            self._stop(
                part,
                batch[0],
                "the server took it for a duplicate and dropped it, because it still knows a message "
                "with this id; --new-ids sends it all the same",
            )
        self.sent_count += len(batch)
        self._passed(part, [letter.message.offset for letter in batch])

    def _passed(self, part: Part, offsets: list[int]) -> None:
        from borzoi.client.values import Consumer

        if self.is_dry or not sum(map(part.progress.passed, offsets)):
            return
        self.client.store_consumer_offset(
            self.stream,
            self.topic.id,
            part.partition_id,
            offset=part.progress.offset or 0,
            consumer=Consumer.single(REPLAYER),
        )

    def _target(self, part: Part, letter: "Letter") -> "tuple[Identifier, Identifier, Partitioning]":
        """The same partition if there is one, else one that the server chooses."""
        from borzoi.client.values import Partitioning

        where = self.destination.of(letter)
        if where not in self._partitions:
            found = self.client.get_topic(*where)
            if found is None:
                self._stop(
                    part,
                    letter,
                    f'there is no topic "{where[1]}" in stream "{where[0]}"; --to says where else',
                )
            if found.id == self.topic.id and self._is_same_stream(where[0]):
                self._stop(
                    part, letter, "it would go to the topic it is in; --to STREAM/TOPIC says where else"
                )
            self._partitions[where] = found.partitions_count
        number = letter.content.partition_id
        exists = 0 <= number < self._partitions[where]
        return *where, Partitioning.partition_id(number) if exists else Partitioning.balanced()

    def _is_same_stream(self, other: "Identifier") -> bool:
        ours, theirs = self.client.get_stream(self.stream), self.client.get_stream(other)
        return ours is not None and theirs is not None and ours.id == theirs.id

    def _stop(self, part: Part, letter: "Letter", why: str) -> NoReturn:
        refuse(f"{why}. {self._where(part, letter)}")

    def _where(self, part: Part, letter: "Letter") -> str:
        """What is known when a letter could not be sent."""
        return (
            f"It was about the letter at offset {letter.message.offset} of partition {part.partition_id}; "
            f"sent back before: {self.sent_count}"
        )


def _planned(letter: "Letter", target: "tuple[Identifier, Identifier, Partitioning]") -> dict[str, Any]:
    from borzoi.model.values import PartitioningKind

    stream, topic, partitioning = target
    is_same = partitioning.kind is PartitioningKind.PARTITION_ID
    return {
        "partition_id": letter.message.partition_id,
        "offset": letter.message.offset,
        "error": letter.content.error,
        "cause": letter.content.cause,
        "replayed": letter.replayed_count,
        "to_stream": stream,
        "to_topic": topic,
        "to_partition_id": letter.content.partition_id if is_same else None,
    }
