"""The data directory: its layout, its format number, and the lock that keeps a second server out.

<data>/format                                  {"format": 1}
<data>/lock                                    held while a server runs
<data>/metadata/                               see borzoi.broker.metadata
<data>/streams/<id>/topics/<id>/partitions/<id>/<20 digits>.log|.index
<data>/staging/<stream id>/<topic id>/         batches of epochs not committed yet, see borzoi.log.staging
<data>/orphaned/                               directories that belong to nothing the metadata knows
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from borzoi.log.files import replace_durably

FORMAT = 1


class DataDirectoryError(Exception):
    """The directory cannot be used as it is; the text says why and what to do."""


class PartitionPlace(NamedTuple):
    stream_id: int
    topic_id: int
    partition_id: int
    path: Path


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = path / "metadata"
        self.streams = path / "streams"
        self.orphaned = path / "orphaned"
        self.staging = path / "staging"
        self._lock_fd = -1

    def open(self) -> None:
        """Create the directory if it is new, take the lock, check the format."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._check_format()
            self.metadata.mkdir(exist_ok=True)
            self.streams.mkdir(exist_ok=True)
        except OSError as error:
            self.close()
            name = error.filename or self.path
            raise DataDirectoryError(
                f"cannot use data directory {self.path}: {name}: {error.strerror}"
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def stream(self, stream_id: int) -> Path:
        return self.streams / str(stream_id)

    def topic(self, stream_id: int, topic_id: int) -> Path:
        return self.stream(stream_id) / "topics" / str(topic_id)

    def partition(self, stream_id: int, topic_id: int, partition_id: int) -> Path:
        return self.topic(stream_id, topic_id) / "partitions" / str(partition_id)

    def staged(self, stream_id: int, topic_id: int) -> Path:
        return self.staging / str(stream_id) / str(topic_id)

    def found_staged(self) -> Iterator[tuple[int, int, Path]]:
        """Every topic's directory of staged batches, known or not."""
        for stream_id, stream in _numbered(self.staging):
            for topic_id, topic in _numbered(stream):
                yield stream_id, topic_id, topic

    def found(self) -> Iterator[PartitionPlace]:
        """Every partition directory on disk, known or not, in order of ids."""
        for stream_id, stream in _numbered(self.streams):
            for topic_id, topic in _numbered(stream / "topics"):
                for partition_id, path in _numbered(topic / "partitions"):
                    yield PartitionPlace(stream_id, topic_id, partition_id, path)

    def found_topics(self) -> Iterator[tuple[int, int, Path]]:
        for stream_id, stream in _numbered(self.streams):
            for topic_id, topic in _numbered(stream / "topics"):
                yield stream_id, topic_id, topic

    def found_streams(self) -> Iterator[tuple[int, Path]]:
        return _numbered(self.streams)

    def set_aside(self, path: Path) -> Path:
        """Move a directory that belongs to nothing out of the way, keeping its content."""
        name = "-".join(path.relative_to(self.path).parts)
        self.orphaned.mkdir(exist_ok=True)
        number = 0
        while (target := self.orphaned / f"{name}.{number}").exists():
            number += 1
        path.rename(target)
        return target

    def _take_lock(self) -> None:
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(fd, 64, 0).decode(errors="replace").strip()
            os.close(fd)
            raise DataDirectoryError(
                f"data directory {self.path} is in use by another server (process {owner or 'unknown'})"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd

    def _check_format(self) -> None:
        path = self.path / "format"
        try:
            found = json.loads(path.read_text())["format"]
        except FileNotFoundError:
            replace_durably(path, json.dumps({"format": FORMAT}).encode() + b"\n")
            return
        except (ValueError, KeyError, TypeError):
            raise DataDirectoryError(
                f'{path} is not readable; it should say {{"format": {FORMAT}}}'
            ) from None
        if type(found) is not int or found < 1:
            raise DataDirectoryError(f"{path} names no format number: {found!r}")
        if found > FORMAT:
            raise DataDirectoryError(
                f"data directory {self.path} has format {found}, written by a newer Borzoi; "
                f"this version reads up to format {FORMAT}. Nothing was changed."
            )


def wipe(path: Path) -> None:
    """Remove everything in a data directory that is not in use (`--fresh`)."""
    directory = DataDirectory(path)
    directory.open()
    try:
        for name in ("streams", "metadata", "orphaned", "staging", "format"):
            target = path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
    finally:
        directory.close()


def _numbered(parent: Path) -> Iterator[tuple[int, Path]]:
    """Sub-directories whose name is a number as this module writes it, in order."""
    try:
        with os.scandir(parent) as listing:
            names = sorted(int(item.name) for item in listing if _is_number(item.name) and item.is_dir())
    except FileNotFoundError:
        return
    for name in names:
        yield name, parent / str(name)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and str(int(name)) == name
