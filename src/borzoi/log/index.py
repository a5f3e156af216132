"""The index of one segment: finds a batch by offset or by time, and vouches for the bytes.

The `.index` file holds 32-byte entries, one per run of the log:

    off size
      0    8  base_offset of the run's first batch
      8    8  base_timestamp (us) of the run's first batch
     16    4  position of the run in the log file
     20    4  length of the run in bytes
     24    8  XXH3-64 of those bytes

A run is one batch of at least RUN_BYTES, or as many smaller ones as it takes to reach that. Runs lie
back to back: an entry's run ends where the next begins. The last entry is rewritten in place while its
run grows; 32 divides the page size, so an entry is never half written.

After a crash recovery must be able to vouch for every acknowledged byte. An entry does that, so it is
written before the append is acknowledged. Batches whose messages' own checksums were verified vouch for
themselves; for them the entry may lag behind until its run is full or the index is flushed, which saves
most of the writes that single-message sends would cost.

Timestamps never decrease within a partition, so one file serves both look-ups.

The entries of a segment are read into memory when a look-up first needs them; `Entries.tile` says
whether they still describe the log. A segment that is only appended to keeps none.
"""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from borzoi.log.files import write_all

ENTRY = struct.Struct("<QQIIQ")
ENTRY_BYTES = ENTRY.size
# Long enough that a poll of many small batches hashes few runs, short enough that a poll of the newest
# message copies and hashes little besides it.
RUN_BYTES = 16 * 1024

_DTYPE = np.dtype(
    [("offset", "<u8"), ("timestamp", "<u8"), ("position", "<u4"), ("length", "<u4"), ("hash", "<u8")]
)


class Entry(NamedTuple):
    base_offset: int
    base_timestamp_us: int
    position: int
    length: int
    hash: int

    @property
    def end(self) -> int:
        return self.position + self.length


class Entries:
    """The entries of a segment in memory, as columns that `bisect` searches at C speed."""

    __slots__ = ("hashes", "lengths", "offsets", "positions", "timestamps")

    def __init__(self, data: bytes = b"") -> None:
        table = np.frombuffer(data, _DTYPE, len(data) // ENTRY_BYTES)
        self.offsets = array("Q", table["offset"].tobytes())
        self.timestamps = array("Q", table["timestamp"].tobytes())
        self.positions = array("I", table["position"].tobytes())
        self.lengths = array("I", table["length"].tobytes())
        self.hashes = array("Q", table["hash"].tobytes())

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, slot: int) -> Entry:
        return Entry(
            self.offsets[slot],
            self.timestamps[slot],
            self.positions[slot],
            self.lengths[slot],
            self.hashes[slot],
        )

    def put(self, slot: int, entry: Entry) -> None:
        if slot == len(self.offsets):
            self.offsets.append(entry.base_offset)
            self.timestamps.append(entry.base_timestamp_us)
            self.positions.append(entry.position)
            self.lengths.append(entry.length)
            self.hashes.append(entry.hash)
        else:
            self.lengths[slot] = entry.length
            self.hashes[slot] = entry.hash

    def tile(self, base_offset: int, size_bytes: int) -> bool:
        """Tell whether the runs lie back to back over exactly `size_bytes`, offsets and times in order."""
        if not len(self):
            return not size_bytes
        offsets, timestamps = np.asarray(self.offsets), np.asarray(self.timestamps)
        positions = np.asarray(self.positions).astype(np.uint64)
        lengths = np.asarray(self.lengths).astype(np.uint64)
        return bool(
            offsets[0] == base_offset
            and positions[0] == 0
            and positions[-1] + lengths[-1] == size_bytes
            and lengths.all()
            and (positions[1:] == positions[:-1] + lengths[:-1]).all()
            and (offsets[1:] > offsets[:-1]).all()
            and (timestamps[1:] >= timestamps[:-1]).all()
        )

    def run_of_offset(self, offset: int) -> int:
        """Slot of the run that holds `offset`, if any does: the last one that starts at or before it."""
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def run_before_timestamp(self, timestamp_us: int) -> int:
        """Slot of the first run that can hold a batch of this time or later."""
        return max(bisect_left(self.timestamps, timestamp_us) - 1, 0)


class SegmentIndex:
    """Grows with the active segment's appends; answers look-ups for any segment."""

    __slots__ = (
        "_entries",
        "_is_lagging",
        "_run_hash",
        "_run_length",
        "_run_offset",
        "_run_position",
        "_run_state",
        "_run_timestamp_us",
        "count",
        "path",
    )

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.count = count
        self._entries: Entries | None = None
        # The run that the next small batch may still join: None unless there is one.
        self._run_state: xxh3_64 | None = None
        self._run_offset = self._run_timestamp_us = self._run_position = self._run_length = 0
        self._run_hash = 0
        self._is_lagging = False  # the last entry on disk does not cover all of the last run

    @property
    def entries(self) -> Entries:
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None

    def unload(self) -> None:
        self._entries = None

    def replace(self, entries: list[Entry]) -> None:
        """Make the file anew from these entries."""
        data = pack_entries(entries)
        self.path.write_bytes(data)
        self.end_run()
        self._is_lagging = False
        self.count = len(entries)
        self._entries = Entries(data)

    def add(
        self,
        fd: int,
        batch: memoryview,
        base_offset: int,
        base_timestamp_us: int,
        position: int,
        *,
        may_lag: bool = False,
    ) -> None:
        """Cover a batch that was just written at `position`. If this raises, nothing has changed."""
        state = self._run_state
        length = len(batch)
        if state is not None:
            if may_lag and self._entries is None and self._run_length + length < RUN_BYTES:
                state.update(batch)
                self._run_length += length
                self._is_lagging = True
                return
            self._run_hash = state.intdigest()
            state.update(batch)
            digest = state.intdigest()
            slot = self.count - 1
            base_offset, base_timestamp_us = self._run_offset, self._run_timestamp_us
            position = self._run_position
            length += self._run_length
        else:
            slot = self.count
            if length < RUN_BYTES:
                state = xxh3_64(batch)
                digest = state.intdigest()
            else:
                digest = xxh3_64_intdigest(batch)
        is_full = length >= RUN_BYTES
        if is_full or not may_lag:
            entry = ENTRY.pack(base_offset, base_timestamp_us, position, length, digest)
            try:
                write_all(fd, entry, slot * ENTRY_BYTES)
            except OSError:
                self._undo_write(fd)
                raise
            self._is_lagging = False
        else:
            self._is_lagging = True
        self.count = slot + 1
        self._run_state = None if is_full else state
        self._run_offset, self._run_timestamp_us, self._run_position = (
            base_offset,
            base_timestamp_us,
            position,
        )
        self._run_length, self._run_hash = length, digest
        if self._entries is not None:
            self._entries.put(slot, Entry(base_offset, base_timestamp_us, position, length, digest))

    def flush(self, fd: int) -> None:
        """Write the last entry if it lags behind. May raise OSError."""
        if self._is_lagging:
            write_all(fd, ENTRY.pack(*self._last_run()), (self.count - 1) * ENTRY_BYTES)
            self._is_lagging = False

    def _last_run(self) -> Entry:
        if self._run_state is not None:
            self._run_hash = self._run_state.intdigest()
        return Entry(
            self._run_offset, self._run_timestamp_us, self._run_position, self._run_length, self._run_hash
        )

    def end_run(self) -> None:
        """Let the next batch start a run of its own."""
        if self._run_state is not None:
            self._run_hash = self._run_state.intdigest()
            self._run_state = None

    def _undo_write(self, fd: int) -> None:
        """After a failed write: the entry as it was, and no new run to join, as its hash state moved on.

        Best effort. An entry left half written is found and mended when the index is next loaded.
        """
        had_run = self._run_state is not None
        self._run_state = None  # `_run_hash` is still that of before
        with suppress(OSError):
            if had_run:
                write_all(fd, ENTRY.pack(*self._last_run()), (self.count - 1) * ENTRY_BYTES)
                self._is_lagging = False
            os.ftruncate(fd, self.count * ENTRY_BYTES)

    def _load(self) -> Entries:
        on_disk = self.count - self._is_lagging
        try:
            with self.path.open("rb") as file:
                entries = Entries(file.read(on_disk * ENTRY_BYTES))
        except FileNotFoundError:
            return Entries()
        if self._is_lagging:
            entries.put(len(entries), self._last_run())
        return entries


def pack_entries(entries: list[Entry]) -> bytes:
    return b"".join([ENTRY.pack(*entry) for entry in entries])


def read_last_entry(fd: int, count: int) -> Entry | None:
    """The newest of `count` entries; None if the file does not reach that far."""
    data = os.pread(fd, ENTRY_BYTES, (count - 1) * ENTRY_BYTES) if count else b""
    return Entry._make(ENTRY.unpack(data)) if len(data) == ENTRY_BYTES else None
