"""One segment: a `.log` file of batches back to back, and its `.index`.

Both files are named after the offset of the segment's first message, in 20 digits. `size_bytes` is
the part of the log that is written and covered by the index; bytes past it are never read and, after
a failed append, are cut off. The active segment is written by one owner; sealed ones never change.

An index that does not fit its log is made anew from the log when it is loaded.

Reads give views of a memory map, or of a private copy for a short range the map does not cover yet.
A map stays valid for those who hold views of it after the segment is closed or its files removed.
"""

import errno
import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path

from borzoi.log.files import LARGE_BYTES, OpenFiles, make_room, rewrite, write_all
from borzoi.log.index import Entries, SegmentIndex
from borzoi.log.scan import Repair, Report, Scan
from borzoi.log.trust import TrustedRuns

# A range this short that lies past the map is copied; mapping the file anew costs more.
COPY_BYTES_MAX = 64 * 1024

BATCH_PLACE = struct.Struct("<8xQQ8xQ8xI")  # base_offset, base_timestamp, length, message_count
BATCH_HEADER_BYTES = 256


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    __slots__ = (
        "_index_fd",
        "_last_timestamp_us",
        "_log_fd",
        "_map",
        "_trusted",
        "base_offset",
        "created_at_us",
        "directory_synced",
        "files",
        "index",
        "is_index_rebuilt",
        "path",
        "report",
        "rewrite_needed",
        "size_bytes",
        "sync_failures",
        "synced_bytes",
        "used",
    )

    def __init__(
        self,
        path: Path,
        base_offset: int,
        size_bytes: int,
        index_count: int,
        files: OpenFiles,
        last_timestamp_us: int = 0,
        report: Report | None = None,
    ) -> None:
        """`path` is that of the log file. `report` hears of an index that had to be made anew."""
        self.path = path
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.synced_bytes = size_bytes
        self.directory_synced = True
        self.rewrite_needed = False
        self.sync_failures = 0
        self.created_at_us = 0
        self.report = report
        self.index = SegmentIndex(path.with_suffix(".index"), index_count)
        # Once is enough: if log and index still disagree then, it is the log that is damaged.
        self.is_index_rebuilt = False
        self.files = files
        self.used = False
        self._log_fd = -1
        self._index_fd = -1
        self._map: memoryview | None = None
        self._trusted = TrustedRuns()
        self._last_timestamp_us = last_timestamp_us

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        files: OpenFiles,
        now_us: int,
        preallocate_bytes: int = 0,
        last_timestamp_us: int = 0,
        report: Report | None = None,
    ) -> "Segment":
        """A new, empty segment on disk. If this raises, no file of it is left behind."""
        path = directory / f"{segment_name(base_offset)}.log"
        segment = cls(path, base_offset, 0, 0, files, last_timestamp_us, report)
        segment.directory_synced = False
        segment.created_at_us = now_us
        created: list[Path] = []
        try:
            for new in (path, segment.index.path):
                # Exclusive: a file that is there already holds messages, and is not ours to remove either.
                os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
                created.append(new)
            segment._open()
            if preallocate_bytes:
                os.posix_fallocate(segment._log_fd, 0, preallocate_bytes)
        except OSError:
            segment.close()
            for new in created:
                new.unlink(missing_ok=True)
            raise
        return segment

    def append(
        self, batch: memoryview, base_offset: int, base_timestamp_us: int, *, is_verified: bool = False
    ) -> None:
        """Write a stamped batch and cover it by the index. If this raises, the segment is as before.

        `is_verified` says that the messages' own checksums were found right; see `borzoi.log.index`.
        """
        if self._log_fd < 0:
            self._open()
        self.used = True
        position = self.size_bytes
        try:
            if len(batch) >= LARGE_BYTES:
                make_room(self._log_fd, position, len(batch))
            if os.pwrite(self._log_fd, batch, position) != len(batch):
                write_all(self._log_fd, batch, position)  # from the start: the rest tells why, or works
            self.index.add(
                self._index_fd, batch, base_offset, base_timestamp_us, position, may_lag=is_verified
            )
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._log_fd, position)
            raise
        self.size_bytes = position + len(batch)
        self._last_timestamp_us = base_timestamp_us

    def window(self, start: int, end: int) -> memoryview:
        """The written bytes from `start` to `end`."""
        mapped = self._map
        self.used = True
        if mapped is not None and len(mapped) >= end:
            return mapped[start:end]
        if self._log_fd < 0:
            self._open()
        if end - start <= COPY_BYTES_MAX:
            data = os.pread(self._log_fd, end - start, start)
            if len(data) != end - start:
                raise self._too_short()
            return memoryview(data)
        return self._map_written()[start:end]

    def _map_written(self) -> memoryview:
        # Touching a map past the end of its file would end the process, so look before.
        if os.fstat(self._log_fd).st_size < self.size_bytes:
            raise self._too_short()
        self._map = memoryview(mmap.mmap(self._log_fd, self.size_bytes, prot=mmap.PROT_READ))
        return self._map

    def _too_short(self) -> OSError:
        return OSError(errno.EIO, "the log is shorter than its index says", str(self.path))

    @property
    def entries(self) -> Entries:
        index = self.index
        return index.entries if index.is_loaded else self._load_index()

    def _load_index(self) -> Entries:
        entries = self.index.entries
        if not entries.tile(self.base_offset, self.size_bytes):
            self.rebuild_index()
        return self.index.entries

    def trusted_runs(self, now_us: int) -> set[int]:
        """Slots of runs that need no hashing now; those found sound may be added. See `borzoi.log.trust`."""
        if self._log_fd < 0:
            self._open()
        return self._trusted.at(os.fstat(self._log_fd).st_mtime_ns, now_us)

    def rebuild_index(self) -> None:
        """Make the index anew from the log; done when the two are found to disagree."""
        self.is_index_rebuilt = True
        self._trusted = TrustedRuns()
        self.index.unload()
        if self._log_fd < 0:
            self._open()
        scan = Scan(self._map_written() if self.size_bytes else memoryview(b""), self.base_offset)
        scan.walk()
        if scan.position < self.size_bytes:
            scan.cover_rest()
        self.index.replace(scan.entries)
        if self.report is not None:
            self.report(Repair(self.index.path, "index does not fit its log, made anew", self.base_offset))

    def last_timestamp_us(self) -> int:
        """Broker time of the last batch; for an empty segment that of the one before it."""
        return self._last_timestamp_us

    def not_before(self, timestamp_us: int) -> None:
        """Keep times in order over segments, which look-ups rely on, also where one has no batch to ask."""
        self._last_timestamp_us = max(self._last_timestamp_us, timestamp_us)

    def dup_for_sync(self, *, index: bool) -> list[int]:
        """Descriptors for another thread to sync and close; ours may be closed meanwhile."""
        if self._log_fd < 0:
            self._open()
        return [os.dup(fd) for fd in ((self._log_fd, self._index_fd) if index else (self._log_fd,))]

    def flush_index(self) -> None:
        """Let the index on disk cover everything written. May raise OSError."""
        if self._log_fd >= 0:  # closing flushed it otherwise
            self.index.flush(self._index_fd)

    def rewrite_unsynced(self) -> None:
        """Dirty the unsynced bytes again after a failed fsync, which may have dropped them as clean."""
        if self._log_fd < 0:
            self._open()
        rewrite(self._log_fd, self.synced_bytes, self.size_bytes)
        self.rewrite_needed = False

    def trim(self) -> None:
        """Leave nothing past the written bytes, neither preallocated space nor a failed append's rest."""
        if self._log_fd < 0:
            self._open()
        self.index.flush(self._index_fd)
        self.index.end_run()
        os.ftruncate(self._log_fd, self.size_bytes)

    def close_files(self) -> None:
        if self._index_fd >= 0:
            with suppress(OSError):  # what is missing is made anew when the index is next needed
                self.index.flush(self._index_fd)
        for fd in (self._log_fd, self._index_fd):
            if fd >= 0:
                os.close(fd)
        self._log_fd = self._index_fd = -1
        self._map = None
        self._trusted = TrustedRuns()
        self.index.end_run()
        self.index.unload()

    def close(self) -> None:
        self.close_files()
        self.files.forget(self)

    def remove_files(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self.index.path.unlink(missing_ok=True)

    def _open(self) -> None:
        self.files.admit(self)
        try:
            self._log_fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            self._index_fd = os.open(self.index.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            self.close()
            raise
