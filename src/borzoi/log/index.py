"""The index of one segment: finds a batch by offset or by time, and vouches for the bytes.

The `.index` file holds 32-byte entries, one per run of the log:

    off size
      0    8  base_offset of the run's first batch
      8    8  base_timestamp (us) of the run's first batch
     16    4  position of the run in the log file
     20    4  length of the run in bytes
     24    8  XXH3-64 of those bytes

A run is one batch of at least RUN_BYTES, or as many smaller ones as it takes to reach that. The
last entry is rewritten in place while its run grows, and always before an append is acknowledged,
so after a crash of the process the entries cover every acknowledged byte; 32 divides the page size,
so an entry is never half written. Runs lie back to back: an entry's run ends where the next begins.

Timestamps never decrease within a partition, so one file serves both look-ups.

The entries of a segment are read into memory when a look-up first needs them. A segment that is only
appended to keeps none.
"""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from borzoi.log.files import write_all

ENTRY = struct.Struct("<QQIIQ")
ENTRY_BYTES = ENTRY.size
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

    def run_of_offset(self, offset: int) -> int:
        """Slot of the run that holds `offset`, if any does: the last one that starts at or before it."""
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def run_before_timestamp(self, timestamp_us: int) -> int:
        """Slot of the first run that can hold a batch of this time or later."""
        return max(bisect_left(self.timestamps, timestamp_us) - 1, 0)

    def run_of_position(self, position: int) -> int:
        return max(bisect_right(self.positions, position) - 1, 0)


class SegmentIndex:
    """Grows with the active segment's appends; answers look-ups for any segment."""

    __slots__ = ("_entries", "_run", "_run_state", "count", "path")

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.count = count
        self._entries: Entries | None = None
        # The run that the next small batch may still join, and its hash so far.
        self._run: Entry | None = None
        self._run_state: xxh3_64 | None = None

    @property
    def entries(self) -> Entries:
        if self._entries is None:
            with self.path.open("rb") as file:
                self._entries = Entries(file.read(self.count * ENTRY_BYTES))
        return self._entries

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None

    def unload(self) -> None:
        self._entries = None

    def add(
        self, fd: int, batch: memoryview, base_offset: int, base_timestamp_us: int, position: int
    ) -> None:
        """Cover a batch that was just written at `position`. If this raises, nothing has changed."""
        run, state = self._run, self._run_state
        size = len(batch)
        if run is not None and state is not None:
            state.update(batch)
            slot = self.count - 1
            entry = Entry(
                run.base_offset, run.base_timestamp_us, run.position, run.length + size, state.intdigest()
            )
        elif size < RUN_BYTES:
            slot = self.count
            state = xxh3_64(batch)
            entry = Entry(base_offset, base_timestamp_us, position, size, state.intdigest())
        else:
            slot, state = self.count, None
            entry = Entry(base_offset, base_timestamp_us, position, size, xxh3_64_intdigest(batch))
        try:
            write_all(fd, ENTRY.pack(*entry), slot * ENTRY_BYTES)
        except OSError:
            self.end_run()  # its hash state has moved on; the entry on disk still tells the truth
            raise
        self.count = slot + 1
        if state is not None and entry.length < RUN_BYTES:
            self._run, self._run_state = entry, state
        else:
            self._run = self._run_state = None
        if self._entries is not None:
            self._entries.put(slot, entry)

    def end_run(self) -> None:
        """Let the next batch start a run of its own."""
        self._run = self._run_state = None


def read_last_entry(fd: int, count: int) -> Entry:
    return Entry._make(ENTRY.unpack(os.pread(fd, ENTRY_BYTES, (count - 1) * ENTRY_BYTES)))
