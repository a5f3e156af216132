"""A checksummed file of records with snapshots: how the metadata survives a restart.

    journal-<20 digits>    records from that index on      snapshot-<20 digits>   state after that index
    off size                                               off size
      0    4  payload length                                 0    8  XXH3-64 of the rest
      4    8  record index                                   8    8  record index
     12    8  XXH3-64 of index and payload                  16       payload
     20       payload

A new snapshot starts a new journal. The snapshot before it and the journal after that one are kept, so
that a lost or damaged snapshot costs nothing. A record that is cut off at the end of the newest journal
was never acknowledged and is dropped; a copy stays in a `dropped-` file. Anything else that does not check
out stops the start, because skipping a record would change the meaning of all that follow.
"""

import errno
import os
import struct
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

from borzoi.log.files import replace_durably, rewrite, sync_directory, write_all
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
        self._synced_size = 0
        self._sync_failures = 0
        self._files_started = 0
        self._rewrite_needed = False

    def open(self) -> tuple[bytes | None, list[bytes]]:
        for leftover in self.directory.glob("*.new"):
            leftover.unlink()
        snapshot, index = self._newest_snapshot()
        self.index = index
        records = self._read_records()
        if self._fd < 0:
            self._fd, self._size = self._create_journal(), 0
        self._synced_size = self._size
        self.records_since_snapshot = len(records)
        return snapshot, records

    def append(self, payload: bytes) -> None:
        """Add a record; it has reached the operating system when this returns.

        May raise OSError; then there is no such record. One that is too long is a mistake of the caller.
        """
        if len(payload) > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {len(payload)} bytes exceeds the limit of {RECORD_BYTES_MAX}")
        index = self.index + 1
        digest = xxh3_64_intdigest(_INDEX.pack(index) + payload)
        record = _RECORD.pack(len(payload), index, digest) + payload
        try:
            write_all(self._fd, record, self._size)
        except OSError:
            with suppress(OSError):  # what stays is overwritten by the next record, or dropped by `open`
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(record)
        self.index = index
        self.records_since_snapshot += 1

    def snapshot(self, payload: bytes) -> None:
        """Write the state after the last record and start a new journal. Blocks on the disk.

        May raise OSError; then the journal goes on as before.
        """
        body = _INDEX.pack(self.index) + payload
        os.fsync(self._fd)
        replace_durably(
            self.directory / f"snapshot-{self.index:020d}", _INDEX.pack(xxh3_64_intdigest(body)) + body
        )
        if self.records_since_snapshot:
            fd = self._create_journal()
            os.close(self._fd)
            self._fd, self._size, self._synced_size, self._rewrite_needed = fd, 0, 0, False
            self._files_started += 1
        self.records_since_snapshot = 0
        self._remove_old()

    def sync_job(self) -> SyncJob:
        if self._rewrite_needed:
            rewrite(self._fd, self._synced_size, self._size)
            self._rewrite_needed = False
        number, size, failures = self._files_started, self._size, self._sync_failures

        def finish(error: OSError | None) -> OSError | None:
            if error is not None:
                self._sync_failures += 1
            elif failures != self._sync_failures:
                error = OSError(errno.EIO, "an earlier sync of the journal failed", str(self.directory))
            if number != self._files_started:
                return error  # a snapshot, itself synced, has taken the place of those records
            if error is not None:
                self._rewrite_needed = True
            else:
                self._synced_size = max(self._synced_size, size)
            return error

        return SyncJob((id(self), number), lambda: [os.dup(self._fd)], finish)

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
            payload = _snapshot_payload(path.read_bytes(), index)
            if payload is not None:
                return payload, index
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
            if not is_last or not _is_torn(data, position, expected):
                raise JournalError(
                    f"{path}: record {expected} at byte {position} is damaged and more follows it; restore "
                    "the file, or move the metadata directory away and set "
                    "system.recovery.recreate_missing_state to rebuild streams and topics"
                )
            dropped = path.with_name(f"dropped-{path.name}-{position}")
            dropped.write_bytes(data[position:])
            self.repairs.append(
                f"{path}: an unfinished record at byte {position} was dropped, a copy is in {dropped.name}"
            )
        if is_last:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.ftruncate(self._fd, position)
            self._size = position

    def _create_journal(self) -> int:
        path = self.directory / f"journal-{self.index + 1:020d}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            sync_directory(self.directory)
        except OSError:
            os.close(fd)
            path.unlink()
            raise
        return fd

    def _remove_old(self) -> None:
        snapshots = self._numbered("snapshot")
        if len(snapshots) < _KEEP_SNAPSHOTS:
            return
        for _, path in snapshots[:-_KEEP_SNAPSHOTS]:
            path.unlink()
        oldest = snapshots[-_KEEP_SNAPSHOTS][0]
        journals = self._numbered("journal")
        for (_, path), (next_first, _) in pairwise(journals):
            if next_first <= oldest + 1:  # so all records of this one are in the oldest snapshot
                path.unlink()


def peek(directory: Path) -> tuple[bytes | None, list[bytes]]:
    """What `Journal.open` would give, without changing a file: for reading beside a server, or from a copy.

    The end of what is read may be older than the newest record. Raises JournalError if records are missing.
    """
    journal = Journal(directory)
    snapshot, index = None, 0
    for number, path in reversed(journal._numbered("snapshot")):
        snapshot = _snapshot_payload(path.read_bytes(), number)
        if snapshot is not None:
            index = number
            break
    records: list[bytes] = []
    for first, path in journal._numbered("journal"):
        data = path.read_bytes()
        position, expected = 0, first
        while (record := _parse(data, position, expected)) is not None:
            if expected == index + 1:
                records.append(record)
                index = expected
            expected += 1
            position += _RECORD.size + len(record)
    newest = max((first for first, _ in journal._numbered("journal")), default=0)
    if newest > index + 1:
        raise JournalError(f"{directory}: the records {index + 1} to {newest - 1} are missing or damaged")
    return snapshot, records


def _snapshot_payload(data: bytes, index: int) -> bytes | None:
    """The state that a snapshot file holds; None if it is damaged."""
    if len(data) >= _SNAPSHOT.size:
        digest, stored_index = _SNAPSHOT.unpack_from(data)
        if stored_index == index and xxh3_64_intdigest(data[8:]) == digest:
            return data[_SNAPSHOT.size :]
    return None


def _parse(data: bytes, position: int, expected: int) -> bytes | None:
    if position + _RECORD.size > len(data):
        return None
    length, index, digest = _RECORD.unpack_from(data, position)
    payload = data[position + _RECORD.size : position + _RECORD.size + length]
    if index != expected or len(payload) != length or length > RECORD_BYTES_MAX:
        return None
    return payload if xxh3_64_intdigest(_INDEX.pack(index) + payload) == digest else None


def _is_torn(data: bytes, position: int, expected: int) -> bool:
    """Tell whether nothing whole follows the bad record: then it is the last one, never fully written.

    Its own length may be what is wrong, so a later record is looked for at every byte.
    """
    places = len(data) - position - _RECORD.size
    if places <= 0:
        return True
    indexes = np.ndarray((places,), "<u8", data, position + 1 + 4, (1,))
    possible = (indexes > expected) & (indexes <= expected + places // _RECORD.size + 1)
    return all(
        _parse(data, position + 1 + int(at), int(indexes[at])) is None for at in np.flatnonzero(possible)
    )
