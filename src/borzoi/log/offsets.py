"""Consumer offsets of one partition: a file of fixed slots, updated in place.

    off size
      0    1  kind: 1 consumer, 2 group (0 = free slot)
      1    1  1 if the consumer was named by text, 0 if by number
      2    6  zero
      8    8  key: the number, or XXH3-64 of the name
     16    8  offset of the last processed message
     24    8  XXH3-64 of bytes 0 to 24

A store is one write of 32 bytes into the page cache, so it survives the process, costs about a
microsecond and does not grow the file. 32 divides the page size: a slot is never half written. A slot
that fails its checksum is treated as free and reported.
"""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from borzoi.log.files import OpenFiles, rewrite, write_all
from borzoi.log.sync import SyncJob
from borzoi.model.errors import TooManyConsumerOffsets
from borzoi.model.limits import CONSUMER_OFFSETS_PER_PARTITION_MAX
from borzoi.model.values import Consumer, ConsumerKind

FILE_NAME = "offsets"

_SLOT = struct.Struct("<BB6xQQQ")
_HASHED = struct.Struct("<BB6xQQ")
_SLOT_BYTES = _SLOT.size


class OffsetKey(NamedTuple):
    kind: int
    named: int
    key: int


def consumer_key(consumer: Consumer) -> OffsetKey:
    """The key under which a single consumer's offset is kept; groups use `group_key`."""
    if isinstance(consumer.id, int):
        return OffsetKey(ConsumerKind.CONSUMER, 0, consumer.id)
    return OffsetKey(ConsumerKind.CONSUMER, 1, xxh3_64_intdigest(consumer.id.encode()))


def group_key(group_id: int) -> OffsetKey:
    return OffsetKey(ConsumerKind.GROUP, 0, group_id)


def group_ids(directory: Path) -> set[int]:
    """Ids of the groups that stored an offset in a partition's directory."""
    try:
        data = (directory / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return set()
    slots = [_SLOT.unpack_from(data, at) for at in range(0, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES)]
    return {key for kind, _, key, _, _ in slots if kind == ConsumerKind.GROUP}


class ConsumerOffsets:
    __slots__ = (
        "_directory_synced",
        "_fd",
        "_files",
        "_free",
        "_next_offset",
        "_path",
        "_report",
        "_rewrite_needed",
        "_slots",
        "_slots_count",
        "_sync_failures",
        "_synced_writes",
        "_values",
        "_writes",
        "used",
    )

    def __init__(
        self,
        directory: Path,
        files: OpenFiles,
        report: Callable[[str], None],
        next_offset: int | None = None,
    ) -> None:
        """`next_offset` is where the log ends; offsets past it are from before a tail was lost."""
        self._path = directory / FILE_NAME
        self._files = files
        self._report = report
        self._next_offset = next_offset
        self._fd = -1
        self._slots: dict[OffsetKey, int] | None = None  # None until first needed
        self._values: dict[OffsetKey, int] = {}
        self._free: list[int] = []
        self._slots_count = 0
        self._directory_synced = False
        self._rewrite_needed = False
        self._sync_failures = 0
        self._writes = self._synced_writes = 0
        self.used = False

    @property
    def is_dirty(self) -> bool:
        """Something was stored that is not known to be on the device."""
        return self._writes != self._synced_writes

    def get(self, key: OffsetKey) -> int | None:
        if self._slots is None:
            self._load()
        return self._values.get(key)

    def lowest(self) -> int | None:
        """The offset of whoever is furthest behind; None if nobody stored one."""
        if self._slots is None:
            self._load()
        return min(self._values.values(), default=None)

    def store(self, key: OffsetKey, offset: int) -> None:
        """Keep an offset; it has reached the operating system when this returns. May raise OSError."""
        slots = self._slots if self._slots is not None else self._load()
        slot = slots.get(key)
        if slot is None:
            if len(slots) >= CONSUMER_OFFSETS_PER_PARTITION_MAX:
                raise TooManyConsumerOffsets(f"this partition keeps {len(slots)} offsets already")
            slot = self._free[-1] if self._free else self._slots_count
        digest = xxh3_64_intdigest(_HASHED.pack(*key, offset))
        self._write(slot, _SLOT.pack(*key, offset, digest))
        if key not in slots:
            slots[key] = slot
            if self._free:
                self._free.pop()
            else:
                self._slots_count += 1
        self._values[key] = offset

    def delete(self, key: OffsetKey) -> bool:
        """Forget an offset; False if there was none."""
        slots = self._slots if self._slots is not None else self._load()
        slot = slots.get(key)
        if slot is None:
            return False
        self._write(slot, bytes(_SLOT_BYTES))
        del slots[key], self._values[key]
        self._free.append(slot)
        return True

    def clear(self) -> None:
        """Forget every offset."""
        self.close()
        self._path.unlink(missing_ok=True)
        self._slots, self._values, self._free, self._slots_count = {}, {}, [], 0
        self._directory_synced = self._rewrite_needed = False

    def sync_job(self) -> SyncJob:
        """What makes every offset stored so far durable. May raise OSError."""
        if self._rewrite_needed:
            rewrite(self._opened(), 0, self._slots_count * _SLOT_BYTES)
            self._rewrite_needed = False
        failures, writes = self._sync_failures, self._writes

        def finish(error: OSError | None) -> OSError | None:
            if error is not None:
                self._sync_failures += 1
            elif self._sync_failures != failures:
                error = OSError(errno.EIO, "an earlier sync of this file failed", str(self._path))
            if error is None:
                self._directory_synced = True
                self._synced_writes = writes
            else:
                self._rewrite_needed = True
            return error

        return SyncJob(
            key=id(self),
            open_fds=lambda: [os.dup(self._opened())],
            finish=finish,
            directory=None if self._directory_synced else self._path.parent,
            paths=(self._path,),
        )

    def sync(self) -> None:
        """Make every offset stored so far durable, now. May raise OSError."""
        os.fsync(self._opened())
        self._synced_writes = self._writes

    def close_files(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        self.close_files()
        self._files.forget(self)

    def _opened(self) -> int:
        self.used = True
        if self._fd < 0:
            self._files.admit(self)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return self._fd

    def _write(self, slot: int, data: bytes) -> None:
        write_all(self._opened(), data, slot * _SLOT_BYTES)
        self._writes += 1

    def _load(self) -> dict[OffsetKey, int]:
        slots: dict[OffsetKey, int] = {}
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        self._slots = slots
        self._slots_count = len(data) // _SLOT_BYTES
        for slot in range(self._slots_count):
            kind, named, key, offset, digest = _SLOT.unpack_from(data, slot * _SLOT_BYTES)
            if kind and xxh3_64_intdigest(_HASHED.pack(kind, named, key, offset)) == digest:
                slots[OffsetKey(kind, named, key)] = slot
                self._values[OffsetKey(kind, named, key)] = offset
                continue
            if kind or key or offset or digest:
                self._report(f"{self._path}: slot {slot} is damaged, its consumer starts over")
            self._free.append(slot)
        if self._next_offset is not None:
            self._take_back(self._next_offset)
        return slots

    def _take_back(self, next_offset: int) -> None:
        """Bring offsets past the end of the log back to it, or what is appended next would be skipped."""
        for key, offset in list(self._values.items()):
            if offset < next_offset:
                continue
            self._report(f"{self._path}: offset {offset} lies past the end of the log, taken back to it")
            if next_offset:
                self.store(key, next_offset - 1)
            else:
                self.delete(key)
