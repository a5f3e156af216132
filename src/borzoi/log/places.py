"""Where the batches of a decided epoch are put in the logs, noted before they are put there.

    record
    off size
      0    4  magic
      4    4  number of entries
      8    8  XXH3-64 of the entries
     16       entries of 16 bytes: u32 batch, u32 partition id, u64 offset

A batch is known by its number in the order in which the epoch's batches are appended. An entry says: this
batch is about to be appended at this offset, by an owner of the log who lets nobody else append in between.
So after a crash a batch is in the log if it has an entry and the log holds exactly this batch at that
offset; a batch without an entry was never appended. Of two entries for a batch the later one counts; the
offset 2^64-1 takes an entry back.

The file is not synced. After a power failure it may lack entries of batches that did reach the device; then
`borzoi.broker.application` has to look for them.
"""

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from borzoi.log.files import write_all
from borzoi.model.limits import U64_MAX

NAME = "places"
_RECORD = struct.Struct("<IIQ")
_ENTRY = struct.Struct("<IIQ")
_MAGIC = 0x424F5A50
_NOWHERE = U64_MAX


class Place(NamedTuple):
    batch: int
    partition_id: int
    offset: int


class PlacesFile:
    def __init__(self, directory: Path) -> None:
        """Read what is there; what is not whole was never acted upon. May raise OSError."""
        self.path = directory / NAME
        self.known: dict[int, Place] = {}
        self._size = 0
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        while (entries := _parse(data, self._size)) is not None:
            for place in entries:
                self.known[place.batch] = place
            self._size += _RECORD.size + _ENTRY.size * len(entries)
        self.known = {place.batch: place for place in self.known.values() if place.offset != _NOWHERE}

    def note(self, places: Sequence[Place]) -> None:
        """Say where the next batches go. May raise OSError; then nothing is noted."""
        self._write(self._size, places)
        self._size += _RECORD.size + _ENTRY.size * len(places)

    def revoke(self, places: Sequence[Place]) -> None:
        """Take back entries whose batches were not appended after all. May raise OSError.

        Without this a batch of the same content that somebody else appends there would be taken for ours.
        """
        self.note([place._replace(offset=_NOWHERE) for place in places])

    def _write(self, position: int, places: Sequence[Place]) -> None:
        entries = b"".join(_ENTRY.pack(*place) for place in places)
        data = _RECORD.pack(_MAGIC, len(places), xxh3_64_intdigest(entries)) + entries
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            write_all(fd, data, position)
            os.ftruncate(fd, position + len(data))
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, position)
            raise
        finally:
            os.close(fd)


def _parse(data: bytes, position: int) -> list[Place] | None:
    if position + _RECORD.size > len(data):
        return None
    magic, count, digest = _RECORD.unpack_from(data, position)
    start = position + _RECORD.size
    entries = data[start : start + count * _ENTRY.size]
    if magic != _MAGIC or len(entries) < count * _ENTRY.size or xxh3_64_intdigest(entries) != digest:
        return None
    return [Place._make(fields) for fields in _ENTRY.iter_unpack(entries)]
