"""Where so many bytes after an offset end, from the index alone.

Readers that plan ahead (`borzoi.spark`) want to know how much they are about to read before they read it.
The answer is as fine as the index: a cut falls on the start of a run, and a run is at least one batch.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from borzoi.log.index import Entries


class Piece(Protocol):
    """What is asked of a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def entries(self) -> Entries: ...


class Pieces(Protocol):
    """What is asked of a log: one that is open (`log.partition`), or files of one (`log.offline`)."""

    @property
    def segments(self) -> Sequence[Piece]: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...


class Cut(NamedTuple):
    """`offset` is where the bytes end, `bytes_after` how many there are from the start to the log's end."""

    offset: int
    bytes_after: int


def cut_after(log: Pieces, start_offset: int, bytes_max: int) -> Cut:
    """The last run start within `bytes_max` of the run that holds `start_offset`, but past that run's own.

    So whoever reads up to the cut gets on, however small `bytes_max` is. May raise OSError.
    """
    start_offset = max(start_offset, log.first_offset)
    if start_offset >= log.next_offset:
        return Cut(log.next_offset, 0)
    bases = [segment.base_offset for segment in log.segments]
    first = bisect_right(bases, start_offset) - 1
    entries = log.segments[first].entries
    slot = entries.run_of_offset(start_offset)
    position = entries.positions[slot]
    bytes_after = sum(segment.size_bytes for segment in log.segments[first:]) - position
    if bytes_max >= bytes_after:
        return Cut(log.next_offset, bytes_after)
    target = position + bytes_max  # counted from the start of the segment that is looked at
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        if target >= segment.size_bytes:
            target -= segment.size_bytes
            continue
        entries = segment.entries
        found = max(bisect_right(entries.positions, target) - 1, 0)
        if number == first and found <= slot:
            found = slot + 1
        if found < len(entries):
            return Cut(entries.offsets[found], bytes_after)
        break
    following = log.segments[number + 1 :]
    return Cut(following[0].base_offset if following else log.next_offset, bytes_after)
