"""Opens the segments that a previous run left behind, whatever state they are in.

A segment's files are created and sealed in order, so only the last one can have been cut off in the
middle of an append. Its index covers everything acknowledged (see `borzoi.log.index`), so recovery

1. goes back from the last index entry to one whose run has the hash it should have,
2. walks the batches after it, each of which must have its place, layout and checksums right,
3. cuts off what is left. If that was ever covered by the index it is kept in a `.torn` file.

A missing or unusable index is made anew by walking the whole segment. There is no separate mark for
a clean stop: the work is the same, and it is bounded by the last run, not by the size of the log.
"""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_64_intdigest

from borzoi.log.files import OpenFiles
from borzoi.log.index import ENTRY, ENTRY_BYTES, RUN_BYTES, Entry
from borzoi.log.partition import RETIRED_SUFFIX, LogSettings, PartitionLog
from borzoi.log.segment import Segment
from borzoi.model.errors import RemoteProtocolError
from borzoi.wire.batch import HEADER_BYTES, prove, read_header, verify_header, verify_messages

TORN_SUFFIX = ".torn"
_NAME_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that recovery had to mend, for the log of the server."""

    path: Path
    what: str
    offset: int
    size_bytes: int = 0


Report = Callable[[Repair], None]


def open_partition(
    directory: Path, partition_id: int, settings: LogSettings, files: OpenFiles, report: Report
) -> PartitionLog:
    """The partition's log as far as it is whole. Raises OSError if the directory cannot be read."""
    logs, indexes = _list_files(directory)
    if not logs:
        return PartitionLog(directory, partition_id, settings, files)
    bases = sorted(logs)
    segments: list[Segment] = []
    for base in bases[:-1]:
        path = directory / f"{base:020d}.log"
        index_bytes = indexes.get(base, 0)
        if logs[base] and not _is_plausible(index_bytes):
            index_bytes = _rebuild_index(path, base, partition_id, logs[base], report)
        segments.append(Segment(path, base, logs[base], index_bytes // ENTRY_BYTES, files))
    last, next_offset = _open_last(directory, bases[-1], partition_id, indexes, files, report)
    segments.append(last)
    return PartitionLog(directory, partition_id, settings, files, segments, next_offset)


def _list_files(directory: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Sizes of the log and index files by base offset. Leftovers of finished work are removed."""
    logs: dict[int, int] = {}
    indexes: dict[int, int] = {}
    with os.scandir(directory) as listing:
        for item in listing:
            stem, _, suffix = item.name.partition(".")
            if item.name.endswith(RETIRED_SUFFIX):
                Path(item.path).unlink()
            elif len(stem) == _NAME_DIGITS and stem.isdigit() and suffix in ("log", "index"):
                (logs if suffix == "log" else indexes)[int(stem)] = item.stat().st_size
    for base in indexes.keys() - logs.keys():
        (directory / f"{base:020d}.index").unlink()
    return logs, indexes


def _is_plausible(index_bytes: int) -> bool:
    return index_bytes > 0 and index_bytes % ENTRY_BYTES == 0


def _open_last(
    directory: Path,
    base: int,
    partition_id: int,
    indexes: dict[int, int],
    files: OpenFiles,
    report: Report,
) -> tuple[Segment, int]:
    path = directory / f"{base:020d}.log"
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    index_fd = os.open(path.with_suffix(".index"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        size = os.fstat(fd).st_size
        count = indexes.get(base, 0) // ENTRY_BYTES
        if not size:
            os.ftruncate(index_fd, 0)
            return Segment(path, base, 0, 0, files), base
        scan = _Scan(memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ)), base, partition_id)
        kept = scan.resume(os.pread(index_fd, count * ENTRY_BYTES, 0))
        if not kept:
            report(Repair(path, "index missing or unusable, made anew", base, size))
        scan.walk()
        torn = bytes(scan.log[scan.position : scan.claimed_end])
        _write_index(index_fd, kept, scan.entries)
        if scan.position < size:
            _cut_tail(path, fd, scan, size, torn, report)
        segment = Segment(path, base, scan.position, kept + len(scan.entries), files)
        segment.created_at_us = scan.first_timestamp_us
    finally:
        os.close(fd)
        os.close(index_fd)
    return segment, scan.next_offset


def _cut_tail(path: Path, fd: int, scan: "_Scan", size: int, torn: bytes, report: Report) -> None:
    if torn:
        kept = path.with_name(f"{path.name}.{scan.position}{TORN_SUFFIX}")
        kept.write_bytes(torn)
        report(Repair(kept, "damaged batches cut off the log and kept here", scan.next_offset, len(torn)))
    os.ftruncate(fd, scan.position)
    report(Repair(path, f"torn tail cut off: {scan.reason}", scan.next_offset, size - scan.position))


def _write_index(index_fd: int, kept: int, entries: list[Entry]) -> None:
    data = b"".join([ENTRY.pack(*entry) for entry in entries])
    os.pwrite(index_fd, data, kept * ENTRY_BYTES)
    os.ftruncate(index_fd, kept * ENTRY_BYTES + len(data))


def _rebuild_index(path: Path, base: int, partition_id: int, size: int, report: Report) -> int:
    """Index of a sealed segment, as far as its batches can be walked. The log itself is left alone."""
    with path.open("rb") as file:
        scan = _Scan(memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)), base, partition_id)
    scan.walk()
    report(Repair(path, "index missing or unusable, made anew", base, size))
    if scan.position < size:
        report(Repair(path, f"damaged: {scan.reason}", scan.next_offset, size - scan.position))
    data = b"".join([ENTRY.pack(*entry) for entry in scan.entries])
    path.with_suffix(".index").write_bytes(data)
    return len(data)


class _Scan:
    """Walks one segment: first back over index entries, then forward over batches."""

    def __init__(self, log: memoryview, base: int, partition_id: int) -> None:
        self.log = log
        self.partition_id = partition_id
        self.position = 0
        self.next_offset = base
        self.last_timestamp_us = 0
        self.first_timestamp_us = read_header(log).base_timestamp_us if len(log) >= HEADER_BYTES else 0
        self.entries: list[Entry] = []
        self.reason = ""
        self.claimed_end = 0  # where the index, as found, says the log ends

    def resume(self, index: bytes) -> int:
        """Find the last index entry that tells the truth, stand behind its run; return how many to keep."""
        count = len(index) // ENTRY_BYTES
        for slot in range(count - 1, -1, -1):
            entry = Entry._make(ENTRY.unpack_from(index, slot * ENTRY_BYTES))
            if slot == count - 1:
                self.claimed_end = entry.end
            run = self.log[entry.position : entry.end]
            is_whole = entry.length and len(run) == entry.length and xxh3_64_intdigest(run) == entry.hash
            if is_whole and self._stand_behind(run):
                self.position = entry.end
                return slot + 1
        return 0

    def _stand_behind(self, run: memoryview) -> bool:
        position = 0
        while position + HEADER_BYTES <= len(run):
            header = read_header(run, position)
            if header.length <= HEADER_BYTES:
                return False
            self.next_offset = header.base_offset + header.message_count
            self.last_timestamp_us = header.base_timestamp_us
            position += header.length
        return position == len(run)

    def walk(self) -> None:
        """Take in batch after batch while they are whole; `position` ends behind the last good one."""
        while self.position < len(self.log):
            batch = self._batch_at(self.position)
            if batch is None or not self._is_sound(batch):
                break
            header = read_header(batch)
            self._cover(batch, header.base_offset, header.base_timestamp_us)
            self.position += header.length
            self.next_offset += header.message_count
            self.last_timestamp_us = header.base_timestamp_us

    def _batch_at(self, position: int) -> memoryview | None:
        """The batch that starts here, if its header is one that this log could hold."""
        if position + HEADER_BYTES > len(self.log):
            self.reason = "a batch header is cut short"
            return None
        header = read_header(self.log, position)
        if position + header.length > len(self.log):
            self.reason = "a batch is cut short"
            return None
        return self.log[position : position + header.length]

    def _is_sound(self, batch: memoryview) -> bool:
        header = read_header(batch) if len(batch) >= HEADER_BYTES else None
        if (
            header is None
            or header.base_offset != self.next_offset
            or header.partition_id != self.partition_id
        ):
            self.reason = f"no batch with offset {self.next_offset}"
            return False
        try:
            layout = prove(batch)
            verify_header(batch, layout)
            verify_messages(batch, layout)
        except RemoteProtocolError as error:
            self.reason = error.detail
            return False
        return True

    def _cover(self, batch: memoryview, base_offset: int, base_timestamp_us: int) -> None:
        """Extend the last new index entry over this batch, or start another."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.length < RUN_BYTES:
            end = last.end + len(batch)
            run = self.log[last.position : end]
            self.entries[-1] = last._replace(length=end - last.position, hash=xxh3_64_intdigest(run))
        else:
            self.entries.append(
                Entry(base_offset, base_timestamp_us, self.position, len(batch), xxh3_64_intdigest(batch))
            )
