"""Opens the segments that a previous run left behind, whatever state they are in.

A segment's files are created and sealed in order, so only the last one can have been cut off in the
middle of an append. Its index covers everything acknowledged (see `borzoi.log.index`), so recovery

1. goes back from the last index entry to one whose run has the hash it should have,
2. walks the batches after it, each of which must have its place, layout and checksums right,
3. cuts off what is left. If that was ever covered by the index it is kept in a `.torn` file.

A missing or unusable index is made anew by walking the whole segment. There is no separate mark for
a clean stop: the work is the same, and it is bounded by the last run, not by the size of the log.

A sealed segment must end where its index says and where the next segment begins, which two short reads
tell. If it does not (index files are not synced with their logs, so a power loss may leave them behind),
it is walked like the last one, but its log is not cut: bytes in which no batch can be found stay, covered
by an index entry that makes reads report them. Offsets whose bytes are gone are reported here, and reads
go on behind them. A sealed segment's batches from the next one's first offset on were never acknowledged
and are cut off.
"""

import mmap
import os
from itertools import pairwise
from pathlib import Path

from xxhash import xxh3_64_intdigest

from borzoi.log.files import OpenFiles, write_all
from borzoi.log.index import ENTRY_BYTES, RUN_BYTES, Entry, pack_entries, read_last_entry
from borzoi.log.partition import RETIRED_SUFFIX, LogSettings, PartitionLog
from borzoi.log.scan import Repair, Report, RunTail, Scan, is_zero, read_tail
from borzoi.log.segment import Segment
from borzoi.wire.batch import HEADER_BYTES

__all__ = ["TORN_SUFFIX", "Repair", "Report", "open_partition"]

TORN_SUFFIX = ".torn"
_NAME_DIGITS = 20
# The last batch of a run begins before RUN_BYTES, so this much of a run holds all of its headers.
_TAIL_BYTES = RUN_BYTES + HEADER_BYTES


def open_partition(
    directory: Path, partition_id: int, settings: LogSettings, files: OpenFiles, report: Report
) -> PartitionLog:
    """The partition's log as far as it is whole. Raises OSError if the directory cannot be read."""
    sizes = _list_files(directory)
    if not sizes:
        return PartitionLog(directory, partition_id, settings, files, report=report)
    bases = sorted(sizes)
    segments = [
        _open_sealed(directory / f"{base:020d}.log", base, stop, sizes[base], partition_id, files, report)
        for base, stop in pairwise(bases)
    ]
    last, next_offset = _open_last(
        directory / f"{bases[-1]:020d}.log", bases[-1], partition_id, files, report
    )
    segments.append(last)
    for before, segment in pairwise(segments):
        if not segment.size_bytes:
            segment.not_before(before.last_timestamp_us())
    return PartitionLog(directory, partition_id, settings, files, segments, next_offset, report=report)


def _list_files(directory: Path) -> dict[int, int]:
    """Sizes of the log files by base offset. Leftovers of finished work are removed."""
    logs: dict[int, int] = {}
    indexes: set[int] = set()
    with os.scandir(directory) as listing:
        for item in listing:
            stem, _, suffix = item.name.partition(".")
            if item.name.endswith(RETIRED_SUFFIX):
                Path(item.path).unlink()
            elif len(stem) == _NAME_DIGITS and stem.isascii() and stem.isdigit():
                if suffix == "log":
                    logs[int(stem)] = item.stat().st_size
                elif suffix == "index":
                    indexes.add(int(stem))
    for base in indexes - logs.keys():
        (directory / f"{base:020d}.index").unlink()
    return logs


def _open_sealed(
    path: Path, base: int, stop: int, size: int, partition_id: int, files: OpenFiles, report: Report
) -> Segment:
    index_path = path.with_suffix(".index")
    log_fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        index_fd = os.open(index_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            count, remainder = divmod(os.fstat(index_fd).st_size, ENTRY_BYTES)
            entry = read_last_entry(index_fd, count)
            tail = _tail_of(log_fd, entry) if entry is not None and entry.end == size else None
            if tail is not None and not remainder and tail.next_offset == stop:
                return Segment(path, base, size, count, files, tail.timestamp_us, report)
            return _mend_sealed(path, log_fd, index_fd, base, stop, partition_id, files, report)
        finally:
            os.close(index_fd)
    finally:
        os.close(log_fd)


def _tail_of(log_fd: int, entry: Entry) -> RunTail | None:
    """What the last run of a sealed segment says; None if it is not what was written."""
    run = memoryview(os.pread(log_fd, min(entry.length, _TAIL_BYTES), entry.position))
    if len(run) == entry.length and xxh3_64_intdigest(run) != entry.hash:
        return None
    tail = read_tail(run, entry)
    return tail if tail is not None and tail.end == entry.length else None


def _mend_sealed(
    path: Path,
    log_fd: int,
    index_fd: int,
    base: int,
    stop: int,
    partition_id: int,
    files: OpenFiles,
    report: Report,
) -> Segment:
    size = os.fstat(log_fd).st_size
    scan = Scan(_map(log_fd, size), base, partition_id, stop)
    kept = _resume(scan, path, index_fd, report)
    found = scan.position
    scan.walk()
    covered = scan.position
    if scan.next_offset >= stop:
        if kept and found < covered:
            _report_extended(path, scan, found, report)
        if covered < size:
            os.ftruncate(log_fd, covered)
            report(Repair(path, "rest of a failed append cut off", scan.next_offset, size - covered))
    elif covered < size and scan.claimed_end <= size and not _is_lost(scan):
        scan.cover_rest()
        report(Repair(path, f"damaged, not readable: {scan.reason}", scan.next_offset, size - covered))
        covered = size
        # Messages that cannot be read have a time too, and must not expire before it.
        scan.last_timestamp_us = max(scan.last_timestamp_us, os.fstat(log_fd).st_mtime_ns // 1000)
    else:
        missing = f"the messages {scan.next_offset} to {stop - 1} are missing"
        report(Repair(path, missing, scan.next_offset, size - covered))
    _write_index(index_fd, kept, scan.entries)
    return Segment(path, base, covered, kept + len(scan.entries), files, scan.last_timestamp_us, report)


def _is_lost(scan: Scan) -> bool:
    """Tell whether bytes are missing where the walk ended, rather than wrong."""
    return is_zero(scan.log[scan.position :]) or (scan.is_cut_short and scan.claimed_end < len(scan.log))


def _open_last(
    path: Path, base: int, partition_id: int, files: OpenFiles, report: Report
) -> tuple[Segment, int]:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        index_fd = os.open(path.with_suffix(".index"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            size = os.fstat(fd).st_size
            scan = Scan(_map(fd, size), base, partition_id)
            kept = _resume(scan, path, index_fd, report) if size else 0
            found = scan.position
            scan.walk()
            if kept and found < scan.position:
                _report_extended(path, scan, found, report)
            # Without an index nobody knows how much was acknowledged, so whatever is cut off is kept.
            torn = bytes(scan.log[scan.position : scan.claimed_end if kept else size])
            if not kept or is_zero(memoryview(torn)):
                torn = torn.rstrip(b"\0")  # may be preallocated space
            if scan.position < size:
                _cut_tail(path, fd, scan, size, torn, report)
            _write_index(index_fd, kept, scan.entries)
        finally:
            os.close(index_fd)
    finally:
        os.close(fd)
    count = kept + len(scan.entries)
    segment = Segment(path, base, scan.position, count, files, scan.last_timestamp_us, report)
    segment.created_at_us = scan.first_timestamp_us
    return segment, scan.next_offset


def _map(fd: int, size: int) -> memoryview:
    return memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ)) if size else memoryview(b"")


def _resume(scan: Scan, path: Path, index_fd: int, report: Report) -> int:
    """Stand where the index can be trusted to; returns how many of its entries to keep."""
    index = os.pread(index_fd, os.fstat(index_fd).st_size, 0)
    kept = scan.resume(index)
    if not kept:
        report(Repair(path, "index missing or unusable, made anew", scan.next_offset, len(scan.log)))
    return kept


def _report_extended(path: Path, scan: Scan, found: int, report: Report) -> None:
    size_bytes = scan.position - found
    report(Repair(path, "index was behind its log, extended", scan.next_offset, size_bytes))


def _cut_tail(path: Path, fd: int, scan: Scan, size: int, torn: bytes, report: Report) -> None:
    if torn:
        kept = path.with_name(f"{path.name}.{scan.position}{TORN_SUFFIX}")
        kept.write_bytes(torn)
        report(Repair(kept, "damaged batches cut off the log and kept here", scan.next_offset, len(torn)))
    os.ftruncate(fd, scan.position)
    report(Repair(path, f"torn tail cut off: {scan.reason}", scan.next_offset, size - scan.position))


def _write_index(index_fd: int, kept: int, entries: list[Entry]) -> None:
    if entries:  # else nothing has to be written, which matters on a full disk
        write_all(index_fd, pack_entries(entries), kept * ENTRY_BYTES)
    os.ftruncate(index_fd, (kept + len(entries)) * ENTRY_BYTES)
