"""Bounds how many files are open at once, and writes to them without losing an error.

A server may hold many thousand partitions; only those in use keep descriptors. Whoever opens files
admits itself here and sets `used` on every access; when the bound is reached, the first owner that
was not used since the last sweep is told to close (the clock algorithm: no bookkeeping per access).
"""

import ctypes
import errno
import os
import resource
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

# Log file, index file, and the descriptor that a memory map keeps.
FILES_PER_OWNER = 3
_OWNERS_MIN = 8
_REWRITE_BYTES = 1 << 20
# From here on it pays to make room first.
LARGE_BYTES = 256 << 10
_KEEP_SIZE = 1
_fallocate = getattr(ctypes.CDLL(None), "fallocate", None)  # the `os` module only has one that changes sizes
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


class FileOwner(Protocol):
    used: bool

    def close_files(self) -> None: ...


class OpenFiles:
    def __init__(self, limit: int = 0) -> None:
        """`limit` is a number of files; 0 takes half of what the process may open."""
        if limit <= 0:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = (soft if soft != resource.RLIM_INFINITY else 65_536) // 2
        self.owners_max = max(_OWNERS_MIN, limit // FILES_PER_OWNER)
        self._owners: OrderedDict[int, FileOwner] = OrderedDict()

    def __len__(self) -> int:
        return len(self._owners)

    def admit(self, owner: FileOwner) -> None:
        owner.used = True
        if id(owner) in self._owners:
            return
        while len(self._owners) >= self.owners_max:
            self._evict_one()
        self._owners[id(owner)] = owner

    def forget(self, owner: FileOwner) -> None:
        self._owners.pop(id(owner), None)

    def close_all(self) -> None:
        for owner in list(self._owners.values()):
            owner.close_files()
        self._owners.clear()

    def _evict_one(self) -> None:
        while True:
            key, owner = self._owners.popitem(last=False)
            if owner.used:
                owner.used = False
                self._owners[key] = owner
                continue
            owner.close_files()
            return


def make_room(fd: int, position: int, length: int) -> None:
    """Have the file system find blocks for a large write, all at once; the file's size stays as it is.

    If they are found page by page as bytes are copied, a megabyte takes half as long again on ext4.
    Where this fails, so will the write, and say why; or the file system cannot do it, and need not. On btrfs
    files that room is made in are not compressed.
    """
    if _fallocate is not None:
        _fallocate(fd, _KEEP_SIZE, position, length)


def write_all(fd: int, data: memoryview | bytes, position: int) -> None:
    """Write every byte at `position` or raise; a short write is continued, not ignored."""
    if len(data) >= LARGE_BYTES:
        make_room(fd, position, len(data))
    written = os.pwrite(fd, data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        more = os.pwrite(fd, view[written:], position + written)
        if not more:
            raise OSError(errno.EIO, "a write made no progress")
        written += more


def rewrite(fd: int, start: int, end: int) -> None:
    """Make the bytes from `start` to `end` dirty again.

    A failed fsync may leave pages marked clean that never reached the device; the next one would then
    report success without having written them.
    """
    position = start
    while position < end:
        chunk = os.pread(fd, min(_REWRITE_BYTES, end - position), position)
        if not chunk:
            raise OSError(errno.EIO, "unsynced bytes cannot be read back")
        write_all(fd, chunk, position)
        position += len(chunk)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make names created or removed in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_durably(path: Path, data: bytes) -> None:
    """Put a whole file in place so that after a power loss there is the old one or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            write_all(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
