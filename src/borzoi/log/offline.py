"""Reads the files of a partition without owning them: beside a running server, or from a copy of them.

Nothing is changed or locked. Sealed segments never change, so they can be read at any time, also while the
server deletes them: files that are open stay readable. The last segment may still grow; what is whole of it
when it is listed is read, found as recovery finds it.

Every run is compared with its hash in the index before it is given out; damage raises `SegmentDamaged`.
"""

import mmap
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

from borzoi.log.index import Entries, pack_entries
from borzoi.log.scan import Scan
from borzoi.model.errors import InvalidBatchChecksum

_NAME_DIGITS = 20
_READ_BYTES = 256 << 10


class SegmentDamaged(InvalidBatchChecksum):
    """The bytes of a segment file are not what was written; the text says which."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """Messages `base_offset` up to, not including, `next_offset`, in the first `size_bytes` of a file."""

    path: Path
    base_offset: int
    next_offset: int
    size_bytes: int
    is_sealed: bool

    @property
    def entries(self) -> Entries:
        """The segment's index, read anew; made in memory if the file does not cover exactly these bytes."""
        if not self.size_bytes:
            return Entries()
        entries = Entries(_index_bytes(self.path))
        if entries.tile(self.base_offset, self.size_bytes):
            return entries
        scan = Scan(_map(self.path, self.size_bytes), self.base_offset)
        scan.walk()
        if scan.position < self.size_bytes:
            scan.cover_rest()
        return Entries(pack_entries(scan.entries))


class PartitionFiles:
    """The segments of a partition as they are found; fits `log.extent.cut_after`."""

    def __init__(self, directory: Path) -> None:
        self.segments = list_segments(directory)

    @property
    def first_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    @property
    def next_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def list_segments(directory: Path, *, sealed_only: bool = False) -> list[SegmentFile]:
    """The segments of a partition in order, without those that are deleted meanwhile.

    Raises OSError if the directory cannot be read.
    """
    bases = sorted(
        int(path.stem)
        for path in directory.glob("*.log")
        if len(path.stem) == _NAME_DIGITS and path.stem.isascii() and path.stem.isdigit()
    )
    segments = []
    for base, next_base in pairwise(bases):
        path = _path(directory, base)
        with suppress(FileNotFoundError):
            segments.append(SegmentFile(path, base, next_base, path.stat().st_size, is_sealed=True))
    if bases and not sealed_only:
        with suppress(FileNotFoundError):
            segments.append(_last_segment(_path(directory, bases[-1]), bases[-1]))
    return segments


def read_runs(segment: SegmentFile, start: int, end: int, chunk_bytes: int) -> Iterator[memoryview]:
    """Whole runs that hold the messages `start` to `end`, about `chunk_bytes` at a time.

    The first and the last chunk may hold messages outside that range. The views stay valid.
    """
    if not segment.size_bytes or start >= min(end, segment.next_offset):
        return
    entries = segment.entries
    slot = entries.run_of_offset(start)
    stop = bisect_left(entries.offsets, end, lo=slot)
    with segment.path.open("rb", buffering=0) as file:
        while slot < stop:
            first = slot
            size_bytes = 0
            while slot < stop and size_bytes < chunk_bytes:
                size_bytes += entries.lengths[slot]
                slot += 1
            yield _read(file, entries, range(first, slot), size_bytes)


def _read(file: FileIO, entries: Entries, runs: range, size_bytes: int) -> memoryview:
    """Runs that lie behind each other. Read, not mapped, and hashed while the processor has them in cache."""
    chunk = np.empty(size_bytes, np.uint8).data
    start = entries.positions[runs.start]
    file.seek(start)
    position = filled = 0
    for slot in runs:
        end = position + entries.lengths[slot]
        while filled < end:
            count = file.readinto(chunk[filled : max(end, filled + _READ_BYTES)])
            if not count:
                raise SegmentDamaged(f"{file.name}: {start + filled} bytes are left of {start + size_bytes}")
            filled += count
        if xxh3_64_intdigest(chunk[position:end]) != entries.hashes[slot]:
            raise SegmentDamaged(
                f"{file.name}: checksum mismatch at byte {start + position} (offset {entries.offsets[slot]})"
            )
        position = end
    return chunk


def offset_at_or_after(segments: list[SegmentFile], timestamp_us: int) -> int:
    """The first message of the run in which a broker time of `timestamp_us` or later can begin.

    As fine as the index is: messages of the run that are older have to be left out by the caller.
    """
    before = 0  # where the run before the one that is looked at begins
    for segment in segments:
        if not segment.size_bytes:
            continue
        entries = segment.entries
        slot = bisect_left(entries.timestamps, timestamp_us)
        if slot:
            before = entries.offsets[slot - 1]
        if slot < len(entries):
            break
    return before


def _path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:0{_NAME_DIGITS}d}.log"


def _map(path: Path, size_bytes: int) -> memoryview:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    if len(mapped) < size_bytes:
        raise SegmentDamaged(f"{path}: {len(mapped)} bytes are left of {size_bytes}")
    return memoryview(mapped)[:size_bytes]


def _last_segment(path: Path, base_offset: int) -> SegmentFile:
    if not path.stat().st_size:
        return SegmentFile(path, base_offset, base_offset, 0, is_sealed=False)
    with path.open("rb") as file:
        log = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    scan = Scan(log, base_offset)
    scan.resume(_index_bytes(path))
    scan.walk()
    return SegmentFile(path, base_offset, scan.next_offset, scan.position, is_sealed=False)


def _index_bytes(path: Path) -> bytes:
    try:
        return path.with_suffix(".index").read_bytes()
    except FileNotFoundError:
        return b""
