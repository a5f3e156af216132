"""One segment: a `.log` file of batches back to back, and its `.index`.

Both files are named after the offset of the segment's first message, in 20 digits. `size_bytes` is
the part of the log that is written and covered by the index; bytes past it are never read and, after
a failed append, are cut off. The active segment is written by one owner; sealed ones never change.

Reads give views of a memory map, or of a private copy for a short range the map does not cover yet.
A map stays valid for those who hold views of it after the segment is closed or its files removed.
"""

import errno
import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path

from borzoi.log.files import OpenFiles, write_all
from borzoi.log.index import Entries, SegmentIndex, read_last_entry

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
        "base_offset",
        "created_at_us",
        "directory_synced",
        "files",
        "index",
        "path",
        "rewrite_needed",
        "size_bytes",
        "synced_bytes",
        "used",
    )

    def __init__(
        self, path: Path, base_offset: int, size_bytes: int, index_count: int, files: OpenFiles
    ) -> None:
        """`path` is that of the log file."""
        self.path = path
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.synced_bytes = size_bytes
        self.directory_synced = True
        self.rewrite_needed = False
        self.created_at_us = 0
        self.index = SegmentIndex(path.with_suffix(".index"), index_count)
        self.files = files
        self.used = False
        self._log_fd = -1
        self._index_fd = -1
        self._map: memoryview | None = None
        self._last_timestamp_us = -1

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, files: OpenFiles, now_us: int, preallocate_bytes: int = 0
    ) -> "Segment":
        """A new, empty segment on disk. If this raises, nothing is left behind."""
        path = directory / f"{segment_name(base_offset)}.log"
        segment = cls(path, base_offset, 0, 0, files)
        segment.directory_synced = False
        segment.created_at_us = now_us
        try:
            segment._open(os.O_CREAT | os.O_EXCL)
            if preallocate_bytes:
                os.posix_fallocate(segment._log_fd, 0, preallocate_bytes)
        except OSError:
            segment.remove_files()
            raise
        return segment

    def append(self, batch: memoryview, base_offset: int, base_timestamp_us: int) -> None:
        """Write a stamped batch and its index entry. If this raises, the segment is as before."""
        if self._log_fd < 0:
            self._open()
        self.used = True
        position = self.size_bytes
        try:
            write_all(self._log_fd, batch, position)
            self.index.add(self._index_fd, batch, base_offset, base_timestamp_us, position)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._log_fd, position)
            raise
        self.size_bytes = position + len(batch)
        self._last_timestamp_us = base_timestamp_us

    def window(self, position: int) -> memoryview:
        """The written bytes from `position` on."""
        size = self.size_bytes
        mapped = self._map
        self.used = True
        if mapped is not None and len(mapped) >= size:
            return mapped[position:size]
        if self._log_fd < 0:
            self._open()
        if size - position <= COPY_BYTES_MAX:
            data = os.pread(self._log_fd, size - position, position)
            if len(data) != size - position:
                raise OSError(errno.EIO, "the log is shorter than its index says", str(self.path))
            return memoryview(data)
        self._map = mapped = memoryview(mmap.mmap(self._log_fd, size, prot=mmap.PROT_READ))
        return mapped[position:size]

    @property
    def entries(self) -> Entries:
        return self.index.entries

    def last_timestamp_us(self) -> int:
        """Broker time of the last batch; 0 for an empty segment."""
        if self._last_timestamp_us < 0:
            self._last_timestamp_us = 0
            if self.index.count:
                if self._log_fd < 0:
                    self._open()
                window = self.window(read_last_entry(self._index_fd, self.index.count).position)
                while len(window) >= BATCH_HEADER_BYTES:
                    _, self._last_timestamp_us, length, _ = BATCH_PLACE.unpack_from(window)
                    window = window[max(length, BATCH_HEADER_BYTES) :]
        return self._last_timestamp_us

    def dup_for_sync(self, *, index: bool) -> list[int]:
        """Descriptors for another thread to sync and close; ours may be closed meanwhile."""
        if self._log_fd < 0:
            self._open()
        return [os.dup(fd) for fd in ((self._log_fd, self._index_fd) if index else (self._log_fd,))]

    def rewrite_unsynced(self) -> None:
        """Dirty the unsynced bytes again after a failed fsync, which may have dropped them as clean."""
        if self._log_fd < 0:
            self._open()
        position = self.synced_bytes
        while position < self.size_bytes:
            chunk = os.pread(self._log_fd, min(1 << 20, self.size_bytes - position), position)
            if not chunk:
                raise OSError(errno.EIO, "unsynced bytes cannot be read back", str(self.path))
            write_all(self._log_fd, chunk, position)
            position += len(chunk)
        self.rewrite_needed = False

    def trim(self) -> None:
        """Give back preallocated space past the written bytes; called when the segment is sealed."""
        self.index.end_run()
        if self._log_fd >= 0:
            os.ftruncate(self._log_fd, self.size_bytes)

    def close_files(self) -> None:
        for fd in (self._log_fd, self._index_fd):
            if fd >= 0:
                os.close(fd)
        self._log_fd = self._index_fd = -1
        self._map = None
        self.index.end_run()
        self.index.unload()

    def close(self) -> None:
        self.close_files()
        self.files.forget(self)

    def remove_files(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self.index.path.unlink(missing_ok=True)

    def _open(self, flags: int = 0) -> None:
        self.files.admit(self)
        try:
            self._log_fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | flags, 0o640)
            self._index_fd = os.open(self.index.path, os.O_RDWR | os.O_CLOEXEC | flags, 0o640)
        except OSError:
            self.close()
            raise
