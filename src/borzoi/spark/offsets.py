"""Where a query stands in a topic, and how users say where one starts or ends.

`Positions` are what Spark writes into a query's checkpoint, as JSON:

    {"created_at": 1767225600000000, "partitions": {"0": 1042, "1": 998}}

    created_at   when the topic was made, in microseconds: a topic that was deleted and made again under its
                 old name is another topic, and the offsets of the old one say nothing about it
    partitions   for each partition the offset of the first message that was not read
    began        in the end of a query's first micro-batch only: the positions where that begins

A partition that is not named has not been seen yet: its first message is the next one. Equal positions have
the same text, because Spark compares texts to find out whether there is something new.

Spark does not write down where a query's first micro-batch begins. It asks again, right away and whenever
that micro-batch is repeated, and the end of a topic is another one by then. So its end says it.

A `Bound` is what an option says: a word, a moment, or something for each partition. It becomes offsets when a
query starts, once. Nothing here talks to a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, Self

from borzoi.model.errors import BorzoiError, InvalidOptionValue
from borzoi.model.replies import PartitionExtent, TopicExtent
from borzoi.spark.options import Options

_OFFSETS = 2**63  # Spark has no unsigned numbers
_EXAMPLE = '{"0": 5, "1": "latest"}'


class CheckpointDamaged(  # noqa: N818 - named like the platform's other errors
    BorzoiError, text="The offsets in the checkpoint cannot be used"
):
    """Somebody else wrote the checkpoint, or it belongs to another source."""


@dataclass(frozen=True, slots=True)
class Positions:
    created_at_us: int
    next_offsets: Mapping[int, int]
    began: Self | None = None

    def to_json(self) -> dict[str, Any]:
        partitions = {str(number): self.next_offsets[number] for number in sorted(self.next_offsets)}
        written: dict[str, Any] = {"created_at": self.created_at_us, "partitions": partitions}
        return written if self.began is None else written | {"began": self.began.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        match value:
            case {"created_at": int(created_at_us), "partitions": dict(partitions)} if all(
                map(_is_position, partitions.items())
            ):
                offsets = {int(number): offset for number, offset in partitions.items()}
                return cls(
                    created_at_us, offsets, cls.from_json(value["began"]) if "began" in value else None
                )
        raise CheckpointDamaged(
            f"{value!r} is not what this source writes; was the checkpoint another query's?"
        )

    def is_at(self, other: Self) -> bool:
        """Both name the same place."""
        return (self.created_at_us, self.next_offsets) == (other.created_at_us, other.next_offsets)

    @classmethod
    def at_end(cls, extent: TopicExtent) -> Self:
        """Behind the last message of every partition."""
        return cls(extent.created_at_us, {each.partition_id: each.next_offset for each in extent.partitions})


def _is_position(item: tuple[Any, Any]) -> bool:
    number, offset = item
    return str(number).isdecimal() and isinstance(offset, int) and 0 <= offset < _OFFSETS


class Word(Enum):
    """Places that have a name in every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Bound:
    """`each` holds what is said for single partitions; for all others it is the moment, or the word."""

    word: Word = Word.EARLIEST
    timestamp_us: int | None = None
    each: Mapping[int, int | Word] = field(default_factory=dict)


class Lookup(Protocol):
    """What only the server, or its files, know. None: there is no such offset."""

    def offset_at(self, partition_id: int, timestamp_us: int) -> int | None: ...

    def committed_offset(self, partition_id: int, group: str) -> int | None: ...


def starting_bound(options: Options) -> Bound:
    return _bound(
        options,
        "startingOffsets",
        "startingTimestamp",
        Word.EARLIEST,
        (Word.EARLIEST, Word.LATEST, Word.GROUP),
    )


def ending_bound(options: Options) -> Bound:
    return _bound(options, "endingOffsets", "endingTimestamp", Word.LATEST, (Word.LATEST,))


def resolve(bound: Bound, extent: TopicExtent, lookup: Lookup, group: str) -> dict[int, int]:
    """The offset in each partition of the topic."""
    known = {each.partition_id for each in extent.partitions}
    if unknown := sorted(set(bound.each) - known):
        raise InvalidOptionValue(
            f"offsets are given for partition {unknown[0]}, but the topic has {len(known)} partitions, "
            "numbered from 0"
        )
    return {each.partition_id: _resolved(bound, each, lookup, group) for each in extent.partitions}


def _resolved(bound: Bound, extent: PartitionExtent, lookup: Lookup, group: str) -> int:
    number = extent.partition_id
    said = bound.each.get(number, bound.word)
    if isinstance(said, int):
        if said > extent.next_offset:
            raise InvalidOptionValue(
                f"partition {number} ends before offset {extent.next_offset}; offset {said} is not there yet"
            )
        return said
    if number not in bound.each and bound.timestamp_us is not None:
        found = lookup.offset_at(number, bound.timestamp_us)
        return extent.next_offset if found is None else found
    if said is Word.LATEST:
        return extent.next_offset
    if said is Word.GROUP:
        stored = lookup.committed_offset(number, group)
        return extent.first_offset if stored is None else stored + 1
    return extent.first_offset


def _bound(options: Options, name: str, timestamp_name: str, default: Word, words: tuple[Word, ...]) -> Bound:
    timestamp_us = options.timestamp_us(timestamp_name)
    text = options.text(name)
    if timestamp_us is not None and text is not None:
        raise InvalidOptionValue(f'give either "{name}" or "{timestamp_name}", not both')
    if text is None:
        return Bound(default, timestamp_us)
    if text.startswith("{"):
        return Bound(default, each=_each(options, name))
    return Bound(Word(options.choice(name, [*(word.value for word in words), _EXAMPLE], default.value)))


def _each(options: Options, name: str) -> dict[int, int | Word]:
    found: dict[int, int | Word] = {}
    for number, said in (options.json_object(name, _EXAMPLE) or {}).items():
        if not (number.isascii() and number.isdecimal()):
            raise options.fault(name, f'"{number}" is no partition; write for example {_EXAMPLE}')
        if said in (Word.EARLIEST.value, Word.LATEST.value):
            found[int(number)] = Word(said)
        elif isinstance(said, int) and not isinstance(said, bool) and 0 <= said < _OFFSETS:
            found[int(number)] = said
        else:
            raise options.fault(name, f'partition {number}: write an offset, "earliest" or "latest"')
    return found
