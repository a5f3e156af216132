"""Where a reset of offsets goes: from what is asked for and where a partition stands to what is stored.

No server and no clock: both are asked before, by the command. All arithmetic is done with the offset of the
next message to be read, which always exists; the stored offset is the one before it. The beginning of a
partition that still has its first message has no offset before it: nothing is stored then.

Times are written as ISO 8601 (local time unless a zone is given), as microseconds since 1970, or as a
duration before now.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from borzoi.cli.positions import Bounds

# In seconds or milliseconds since 1970 any date of this century is a smaller number than this.
_LEAST_TIME_US = 10**14


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The message at this offset is the next one to be read."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at this time or later is the next one; if there is none, the end."""

    time_us: int


@dataclass(frozen=True, slots=True)
class Shift:
    """So many messages further, or back if negative."""

    count: int


Target = Earliest | Latest | AtOffset | AtTime | Shift


@dataclass(frozen=True, slots=True)
class Place:
    """Where a consumer stands in a partition; `offset_at_time` is what was found for an `AtTime`."""

    partition_id: int
    bounds: Bounds
    committed_offset: int | None
    offset_at_time: int | None = None

    @property
    def next_offset(self) -> int:
        """Of the message that it would read next."""
        if self.committed_offset is None:
            return self.bounds.first_offset
        return max(self.committed_offset + 1, self.bounds.first_offset)


@dataclass(frozen=True, slots=True)
class Move:
    """What is stored for one partition before and after; None is nothing."""

    partition_id: int
    before: int | None
    after: int | None
    next_offset: int
    change: int
    note: str = ""

    @property
    def is_needed(self) -> bool:
        return self.before != self.after


def planned(target: Target, place: Place) -> Move:
    """The move of one partition, clamped to the messages that there are."""
    wanted = _wanted(target, place)
    bounds = place.bounds
    next_offset = min(max(wanted, bounds.first_offset), bounds.next_offset)
    notes = []
    if wanted > next_offset:
        notes.append(f"{wanted} is past the end, clamped to {next_offset}")
    elif wanted < next_offset:
        notes.append(f"{wanted} is before the first message kept, clamped to {next_offset}")
    if isinstance(target, AtTime) and place.offset_at_time is None:
        notes.append("no message since then: at the end")
    if place.committed_offset is None:
        notes.append("had no offset stored")
    return Move(
        place.partition_id,
        place.committed_offset,
        next_offset - 1 if next_offset else None,
        next_offset,
        next_offset - place.next_offset,
        "; ".join(notes),
    )


def restored(before: Mapping[int, int | None], places: Mapping[int, Place]) -> list[Move]:
    """Moves back to recorded offsets, for partitions that still exist."""
    moves = []
    for partition_id, offset in before.items():
        place = places.get(partition_id)
        if place is None:
            continue
        bounds, note = place.bounds, ""
        if offset is not None and offset >= bounds.next_offset:
            last = bounds.next_offset - 1 if bounds.next_offset else None
            note = f"{offset} is past the end, clamped to {'none' if last is None else last}"
            offset = last  # noqa: PLW2901 - what can be stored of it
        next_offset = bounds.first_offset if offset is None else max(offset + 1, bounds.first_offset)
        change = next_offset - place.next_offset
        moves.append(Move(partition_id, place.committed_offset, offset, next_offset, change, note))
    return moves


def parse_time(text: str, now_us: int) -> int:
    """Microseconds since 1970; `ValueError` says how a time is written."""
    from borzoi.client.values import timestamp_us
    from borzoi.model.errors import TimestampOutOfRange
    from borzoi.model.units import parse_duration

    written = text.strip()
    if written.startswith("-"):
        return max(0, now_us - parse_duration(written[1:]))
    if written.isascii() and written.isdecimal():
        if int(written) < _LEAST_TIME_US:
            raise ValueError(
                f'"{text}" is no time: digits are microseconds since 1970, which have 16 of them'
            )
        return int(written)
    try:
        return timestamp_us(dt.datetime.fromisoformat(written))
    except (ValueError, OverflowError, TimestampOutOfRange):
        raise ValueError(
            f'"{text}" is no time; write for example 2026-01-31T12:00:00Z, 1769860800000000 or -15min'
        ) from None


def _wanted(target: Target, place: Place) -> int:
    bounds = place.bounds
    match target:
        case Earliest():
            return bounds.first_offset
        case Latest():
            return bounds.next_offset
        case AtOffset(offset):
            return offset
        case AtTime():
            return bounds.next_offset if place.offset_at_time is None else place.offset_at_time
        case Shift(count):
            return place.next_offset + count
