"""A checksummed file of records with snapshots: how the metadata survives a restart.

    journal-<20 digits>    records from that index on      snapshot-<20 digits>   state after that index
    off size                                               off size
      0    4  payload length                                 0    8  XXH3-64 of the rest
      4    8  record index                                   8    8  record index
     12    8  XXH3-64 of index and payload                  16       payload
     20       payload

A new snapshot starts a new journal. The snapshot before it and the journal after that one are kept, so
that a lost or damaged snapshot costs nothing. A record that is cut off at the end of the newest journal
was never acknowledged and is dropped; anything else that does not check out stops the start, because
skipping a record would change the meaning of all that follow.
"""

import os
import struct
from pathlib import Path

from xxhash import xxh3_64_intdigest

from borzoi.log.files import sync_directory, write_all
from borzoi.log.sync import SyncJob

_RECORD = struct.Struct("<IQQ")
_SNAPSHOT = struct.Struct("<QQ")
_INDEX = struct.Struct("<Q")
_KEEP_SNAPSHOTS = 2
RECORD_BYTES_MAX = 16 << 20


class JournalError(Exception):
    """The journal cannot be trusted; the text says where."""


class Journal:
    """`open` gives the newest usable snapshot and the records after it; then `append` adds more."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.index = 0  # of the last record
        self.records_since_snapshot = 0
        self.repairs: list[str] = []
        self._fd = -1
        self._size = 0

    def open(self) -> tuple[bytes | None, list[bytes]]:
        for leftover in self.directory.glob("*.new"):
            leftover.unlink()
        snapshot, index = self._newest_snapshot()
        self.index = index
        records = self._read_records()
        if self._fd < 0:
            self._start_journal()
        self.records_since_snapshot = len(records)
        return snapshot, records

    def append(self, payload: bytes) -> None:
        """Add a record; it has reached the operating system when this returns. May raise OSError."""
        index = self.index + 1
        digest = xxh3_64_intdigest(_INDEX.pack(index) + payload)
        record = _RECORD.pack(len(payload), index, digest) + payload
        try:
            write_all(self._fd, record, self._size)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(record)
        self.index = index
        self.records_since_snapshot += 1

    def snapshot(self, payload: bytes) -> None:
        """Write the state after the last record and start a new journal. Blocks on the disk."""
        body = _INDEX.pack(self.index) + payload
        path = self.directory / f"snapshot-{self.index:020d}"
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(_INDEX.pack(xxh3_64_intdigest(body)) + body)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        os.fsync(self._fd)
        os.close(self._fd)
        self._start_journal()
        sync_directory(self.directory)
        self.records_since_snapshot = 0
        self._remove_old()

    def sync_job(self) -> SyncJob:
        return SyncJob(id(self), lambda: [os.dup(self._fd)], lambda _error: None)

    def close(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _numbered(self, kind: str) -> list[tuple[int, Path]]:
        found = []
        for path in self.directory.glob(f"{kind}-*"):
            digits = path.name[len(kind) + 1 :]
            if digits.isdecimal():
                found.append((int(digits), path))
        return sorted(found)

    def _newest_snapshot(self) -> tuple[bytes | None, int]:
        for index, path in reversed(self._numbered("snapshot")):
            data = path.read_bytes()
            if len(data) >= _SNAPSHOT.size:
                digest, stored_index = _SNAPSHOT.unpack_from(data)
                if stored_index == index and xxh3_64_intdigest(data[8:]) == digest:
                    return data[_SNAPSHOT.size :], index
            self.repairs.append(f"{path}: snapshot is damaged, an older one is used")
            path.rename(path.with_name(f"damaged-{path.name}"))
        return None, 0

    def _read_records(self) -> list[bytes]:
        """Records after the snapshot, in order, over as many journals as that takes."""
        records: list[bytes] = []
        journals = self._numbered("journal")
        relevant = [
            (first, path)
            for slot, (first, path) in enumerate(journals)
            if slot + 1 == len(journals) or journals[slot + 1][0] > self.index + 1
        ]
        for slot, (first, path) in enumerate(relevant):
            if first > self.index + 1:
                raise JournalError(
                    f"{path}: the records {self.index + 1} to {first - 1} before it are missing, and so is a "
                    "snapshot that holds them; set system.recovery.recreate_missing_state to rebuild "
                    "streams and topics from the segment files"
                )
            self._read_journal(path, first, records, is_last=slot + 1 == len(relevant))
        return records

    def _read_journal(self, path: Path, first: int, records: list[bytes], *, is_last: bool) -> None:
        data = path.read_bytes()
        position = 0
        expected = first
        while position < len(data):
            record = _parse(data, position, expected)
            if record is None:
                break
            if expected > self.index:
                records.append(record)
                self.index = expected
            expected += 1
            position += _RECORD.size + len(record)
        if position < len(data):
            if not is_last or not _is_torn(data, position):
                raise JournalError(
                    f"{path}: record {expected} at byte {position} is damaged and more follows it; restore "
                    "the file, or move the metadata directory away and set "
                    "system.recovery.recreate_missing_state to rebuild streams and topics"
                )
            self.repairs.append(f"{path}: an unfinished record at byte {position} was dropped")
        if is_last:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.ftruncate(self._fd, position)
            self._size = position

    def _start_journal(self) -> None:
        path = self.directory / f"journal-{self.index + 1:020d}"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._size = 0
        sync_directory(self.directory)

    def _remove_old(self) -> None:
        snapshots = self._numbered("snapshot")
        if len(snapshots) < _KEEP_SNAPSHOTS:
            return
        for _, path in snapshots[:-_KEEP_SNAPSHOTS]:
            path.unlink()
        oldest = snapshots[-_KEEP_SNAPSHOTS][0]
        for first, path in self._numbered("journal"):
            if first <= oldest:
                path.unlink()


def _parse(data: bytes, position: int, expected: int) -> bytes | None:
    if position + _RECORD.size > len(data):
        return None
    length, index, digest = _RECORD.unpack_from(data, position)
    payload = data[position + _RECORD.size : position + _RECORD.size + length]
    if index != expected or len(payload) != length or length > RECORD_BYTES_MAX:
        return None
    return payload if xxh3_64_intdigest(_INDEX.pack(index) + payload) == digest else None


def _is_torn(data: bytes, position: int) -> bool:
    """Nothing whole follows the bad record: it is the last one, cut short or never fully written."""
    if position + _RECORD.size > len(data):
        return True
    length, _, _ = _RECORD.unpack_from(data, position)
    end = position + _RECORD.size + length
    return end >= len(data) or not any(data[position:])
