"""Batches that are put aside until their epoch is committed: the files they wait in.

    <data>/staging/<stream id>/<topic id>/<digest of the producer's name>-<epoch>/
        <task>-<attempt>.staged     the batches of one attempt at one task, in order
        places                      once the epoch is decided: where its batches go (see `PlacesFile`)

    head of a .staged file                       record
    off size                                     off size
      0    8  "BZSTAGE1"                           0    4  magic
      8    8  when the topic was created (us)      4    4  sequence: 0, 1, 2, ... within the file
     16    8  epoch                                8    4  partition id
     24    8  attempt                             12    4  messages
     32    4  task                                16    4  1 if the messages' own checksums were verified
     36    4  length of the producer's name       20    4  zero
     40       the name, UTF-8                     24    8  length of the batch
      +    8  XXH3-64 of all before it            32    8  XXH3-64 of bytes 0..32 and of the batch
                                                  40       the batch as its producer made it

A record counts once it is written whole; the acknowledgement follows that. So a killed process loses none,
and `open_staged` cuts off what does not check out: the end of an append that was never acknowledged or,
after a power failure, what did not reach the device. Topic ids are given out again, which is why a file
says when its topic was made.

No descriptor is kept open. What a record means, and when files go, is the business of
`borzoi.broker.transactions`.
"""

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest, xxh3_128_hexdigest

from borzoi.log.files import rewrite, write_all
from borzoi.log.sync import SyncJob

SUFFIX = ".staged"
_MAGIC = b"BZSTAGE1"
_HEAD = struct.Struct("<8sQQQII")
_RECORD = struct.Struct("<6IQ")
_RECORD_MAGIC = 0x424F5A53
_DIGEST = struct.Struct("<Q")
RECORD_BYTES = _RECORD.size + _DIGEST.size
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Report = Callable[[str], object]


class StagedDamageError(Exception):
    """A staged batch is not what was written."""


class StagedHead(NamedTuple):
    """Whose batches a file holds."""

    topic_created_at_us: int
    producer: str
    epoch: int
    task: int
    attempt: int


class StagedBatch(NamedTuple):
    partition_id: int
    message_count: int
    length: int
    is_verified: bool
    position: int  # of the record


def epoch_name(producer: str, epoch: int) -> str:
    """The directory of an epoch. The name of a producer may be anything, so only its digest is in it."""
    return f"{xxh3_128_hexdigest(producer.encode())}-{epoch}"


def boot_id() -> str:
    """Changes with every start of the machine; empty where that cannot be told."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class StagedFile:
    __slots__ = ("batches", "head", "messages_count", "path", "rewrite_needed", "size_bytes")

    def __init__(self, directory: Path, head: StagedHead) -> None:
        """Nothing is on disk before the first `append`."""
        self.path = directory / f"{head.task}-{head.attempt}{SUFFIX}"
        self.head = head
        self.batches: list[StagedBatch] = []
        self.size_bytes = self.messages_count = 0
        self.rewrite_needed = False  # an fsync failed

    def append(
        self, batch: memoryview, message_count: int, partition_id: int, *, is_verified: bool
    ) -> StagedBatch:
        """Add a batch; the operating system has it when this returns.

        May raise OSError; then the file holds what it held before.
        """
        start = b"" if self.size_bytes else _pack_head(self.head)
        position = self.size_bytes + len(start)
        record = _RECORD.pack(
            _RECORD_MAGIC, len(self.batches), partition_id, message_count, is_verified, 0, len(batch)
        )
        prefix = start + record + _DIGEST.pack(_digest(record, batch))
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if self.size_bytes else os.O_CREAT | os.O_TRUNC)
        fd = os.open(self.path, flags, 0o640)
        try:
            write_all(fd, prefix, self.size_bytes)
            write_all(fd, batch, self.size_bytes + len(prefix))
        except OSError:
            with suppress(
                OSError
            ):  # what stays is overwritten by the next record, or cut off by `open_staged`
                os.ftruncate(fd, self.size_bytes)
            raise
        finally:
            os.close(fd)
        staged = StagedBatch(partition_id, message_count, len(batch), is_verified, position)
        self.batches.append(staged)
        self.size_bytes += len(prefix) + len(batch)
        self.messages_count += message_count
        return staged

    def read(self, sequence: int) -> memoryview:
        """A batch, in memory that may be written to. Raises StagedDamageError or OSError."""
        staged = self.batches[sequence]
        data = np.empty(RECORD_BYTES + staged.length, np.uint8).data  # not zeroed, unlike a bytearray
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(staged.position)
                filled = 0
                while filled < len(data) and (more := file.readinto(data[filled:])):
                    filled += more
        except FileNotFoundError as error:
            raise StagedDamageError(f"{self.path} is missing") from error
        record, batch = data[: _RECORD.size], data[RECORD_BYTES:]
        (digest,) = _DIGEST.unpack_from(data, _RECORD.size)
        if filled < len(data) or digest != _digest(record, batch):
            raise StagedDamageError(f"{self.path}: batch {sequence} at byte {staged.position} is damaged")
        return batch

    def sync_job(self) -> SyncJob:
        """Bring everything to the device. May raise OSError."""

        def finish(error: OSError | None) -> None:
            self.rewrite_needed = error is not None

        if self.rewrite_needed:
            fd = self._open()
            try:
                rewrite(fd, 0, self.size_bytes)
            finally:
                os.close(fd)
        return SyncJob(
            key=(id(self), "staged"),
            open_fds=lambda: [self._open()],
            finish=finish,
            directory=self.path.parent,
            paths=(self.path,),
        )

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)


def _pack_head(head: StagedHead) -> bytes:
    name = head.producer.encode()
    packed = (
        _HEAD.pack(_MAGIC, head.topic_created_at_us, head.epoch, head.attempt, head.task, len(name)) + name
    )
    return packed + _DIGEST.pack(xxh3_64_intdigest(packed))


def _digest(record: bytes | memoryview, batch: memoryview) -> int:
    state = xxh3_64(record)
    state.update(batch)
    return state.intdigest()


def open_staged(path: Path, report: Report) -> StagedFile | None:
    """What a file holds, cut off behind its last whole record; None if not even its head is whole.

    Reads every byte. `report` hears of what is cut off. Raises OSError if the file cannot be read or cut.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        head = _read_head(fd)
        if head is None or path.name != f"{head.task}-{head.attempt}{SUFFIX}":
            report(f"{path}: {size} bytes dropped, the head of the file was not written whole")
            return None
        file = StagedFile(path.parent, head)
        position = len(_pack_head(head))
        while (batch := _read_record(fd, position, size, len(file.batches))) is not None:
            file.batches.append(batch)
            file.messages_count += batch.message_count
            position += RECORD_BYTES + batch.length
        if position < size:
            os.ftruncate(fd, position)
            report(
                f"{path}: {size - position} bytes cut off behind {len(file.batches)} whole batches; "
                "they were not written whole"
            )
        file.size_bytes = position
        return file
    finally:
        os.close(fd)


def _read_head(fd: int) -> StagedHead | None:
    fixed = os.pread(fd, _HEAD.size, 0)
    if len(fixed) < _HEAD.size:
        return None
    magic, created_at_us, epoch, attempt, task, name_bytes = _HEAD.unpack(fixed)
    if magic != _MAGIC or name_bytes > 0xFFFF:
        return None
    rest = os.pread(fd, name_bytes + _DIGEST.size, _HEAD.size)
    if len(rest) < name_bytes + _DIGEST.size:
        return None
    (digest,) = _DIGEST.unpack_from(rest, name_bytes)
    if xxh3_64_intdigest(fixed + rest[:name_bytes]) != digest:
        return None
    return StagedHead(created_at_us, rest[:name_bytes].decode(), epoch, task, attempt)


def _read_record(fd: int, position: int, size: int, sequence: int) -> StagedBatch | None:
    packed = os.pread(fd, RECORD_BYTES, position)
    if len(packed) < RECORD_BYTES:
        return None
    magic, number, partition_id, count, verified, _, length = _RECORD.unpack_from(packed)
    if magic != _RECORD_MAGIC or number != sequence or length > size - position - RECORD_BYTES:
        return None
    batch = os.pread(fd, length, position + RECORD_BYTES)
    (digest,) = _DIGEST.unpack_from(packed, _RECORD.size)
    if len(batch) < length or _digest(packed[: _RECORD.size], memoryview(batch)) != digest:
        return None
    return StagedBatch(partition_id, count, length, bool(verified), position)
