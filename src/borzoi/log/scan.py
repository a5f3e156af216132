"""Walks the bytes of one segment and makes index entries for what is whole.

A batch is whole if it has the place that the chain of lengths and offsets before it calls for, and if
its layout, its checksum and the checksums of its messages are right. Nothing is searched for: bytes that
only look like a batch, inside a payload say, are never taken for one.

Scanning changes no file. `borzoi.log.recovery` uses it at start-up, `borzoi.log.segment` when it finds
an index that does not fit its log, `borzoi.log.reader` when a run does not have the hash it should have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from borzoi.log.index import ENTRY, ENTRY_BYTES, RUN_BYTES, Entry
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import U64_MAX
from borzoi.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    prove,
    read_header,
    verify_header,
    verify_messages,
)


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that had to be mended or given up, for the log of the server."""

    path: Path
    what: str
    offset: int
    size_bytes: int = 0


Report = Callable[[Repair], None]


class Scan:
    """Walks one segment: first back over index entries, then forward over batches."""

    def __init__(
        self, log: memoryview, base_offset: int, partition_id: int | None = None, stop_offset: int = U64_MAX
    ) -> None:
        """`stop_offset` is where the next segment begins; nothing from there on is taken in."""
        self.log = log
        self.partition_id = partition_id
        self.stop_offset = stop_offset
        self.position = 0
        self.next_offset = base_offset
        self.last_timestamp_us = 0
        self.first_timestamp_us = read_header(log).base_timestamp_us if len(log) >= HEADER_BYTES else 0
        self.entries: list[Entry] = []
        self._run_state = xxh3_64()  # hash so far of the last of them
        self.reason = ""
        self.is_cut_short = False  # the walk ended because bytes are missing, not because they are wrong
        self.claimed_end = 0  # where the index, as found, says the log ends

    def resume(self, index: bytes) -> int:
        """Find the last index entry that tells the truth, stand behind its run; return how many to keep."""
        for slot in range(len(index) // ENTRY_BYTES - 1, -1, -1):
            entry = Entry._make(ENTRY.unpack_from(index, slot * ENTRY_BYTES))
            self.claimed_end = max(self.claimed_end, entry.end)
            run = self.log[entry.position : entry.end]
            is_whole = entry.length and len(run) == entry.length and xxh3_64_intdigest(run) == entry.hash
            if is_whole and self._stand_behind(run, entry):
                self.position = entry.end
                return slot + 1
        return 0

    def _stand_behind(self, run: memoryview, entry: Entry) -> bool:
        tail = read_tail(run, entry)
        if tail is None or tail.end != len(run) or tail.next_offset > self.stop_offset:
            return False
        self.next_offset, self.last_timestamp_us = tail.next_offset, tail.timestamp_us
        return True

    def walk(self) -> None:
        """Take in batch after batch while they are whole; `position` ends behind the last good one."""
        while self.position < len(self.log) and self.next_offset < self.stop_offset:
            header = self._header_at(self.position)
            if header is None:
                break
            batch = self.log[self.position : self.position + header.length]
            if not self._is_sound(header, batch):
                break
            self._cover(batch, header.base_offset, header.base_timestamp_us)
            self.position += header.length
            self.next_offset += header.message_count
            self.last_timestamp_us = header.base_timestamp_us

    def cover_rest(self) -> None:
        """Add an entry, with a hash that cannot match, for the bytes that no batch could be found in.

        With it the entries still tile the log, and a read that comes here reports the damage instead of
        going on behind it.
        """
        rest = self.log[self.position :]
        wrong_hash = xxh3_64_intdigest(rest) ^ U64_MAX
        self.entries.append(
            Entry(self.next_offset, self.last_timestamp_us, self.position, len(rest), wrong_hash)
        )

    def _header_at(self, position: int) -> BatchHeader | None:
        """The header that starts here, if it is one of a batch that lies wholly in this log."""
        left = len(self.log) - position
        if left < HEADER_BYTES:
            self.reason, self.is_cut_short = "a batch header is cut short", True
            return None
        header = read_header(self.log, position)
        if header.length > left:
            self.reason, self.is_cut_short = "a batch is cut short", header.base_offset == self.next_offset
            return None
        if header.length < HEADER_BYTES:
            self.reason = "there is no batch header"
            return None
        return header

    def _is_sound(self, header: BatchHeader, batch: memoryview) -> bool:
        if header.base_offset != self.next_offset or self.partition_id not in (None, header.partition_id):
            self.reason = f"no batch with offset {self.next_offset}"
            return False
        if header.base_offset + header.message_count > self.stop_offset:
            self.reason = f"a batch reaches past offset {self.stop_offset}, where the next segment begins"
            return False
        try:
            layout = prove(batch)
            verify_header(batch, layout)
            verify_messages(batch, layout)
        except RemoteProtocolError as error:
            self.reason = error.detail
            return False
        return True

    def _cover(self, batch: memoryview, base_offset: int, base_timestamp_us: int) -> None:
        """Extend the last new index entry over this batch, or start another."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.length < RUN_BYTES:
            self._run_state.update(batch)
            self.entries[-1] = Entry(
                last.base_offset,
                last.base_timestamp_us,
                last.position,
                last.length + len(batch),
                self._run_state.intdigest(),
            )
        else:
            self._run_state = xxh3_64(batch)
            digest = self._run_state.intdigest()
            self.entries.append(Entry(base_offset, base_timestamp_us, self.position, len(batch), digest))


@dataclass(frozen=True, slots=True)
class RunTail:
    """What follows from the headers of a run: where it ends, which offset is next, its last time."""

    end: int
    next_offset: int
    timestamp_us: int


def read_tail(run: memoryview, entry: Entry) -> RunTail | None:
    """Follow the headers of a run of which at least all headers are at hand; None if they make no chain."""
    position, expected, timestamp_us = 0, entry.base_offset, entry.base_timestamp_us
    while position < entry.length:
        if position + HEADER_BYTES > len(run):
            return None
        header = read_header(run, position)
        if (
            header.base_offset != expected
            or header.length <= HEADER_BYTES
            or not header.message_count
            or header.base_timestamp_us < timestamp_us
            or (not position and header.base_timestamp_us != timestamp_us)
        ):
            return None
        expected += header.message_count
        timestamp_us = header.base_timestamp_us
        position += header.length
    return RunTail(position, expected, timestamp_us)


def is_zero(data: memoryview) -> bool:
    """Tell whether there is nothing but zeros, as in space that was allocated but never written."""
    step = 1 << 20
    return not any(np.frombuffer(data[at : at + step], np.uint8).any() for at in range(0, len(data), step))
