"""Batches as a topic has them become batches for another topic, without a look at payloads.

A stored batch is sent again as it is: only its header says anew that it has no place yet. Two kinds of
batches are made anew, from columns, with the same messages: parts of batches, because their messages do not
count from 0; and small ones, of which as many as possible are put together, because a request for each costs
more. All messages keep their ids, headers and origin times; those of batches that are made anew get new
checksums, because these depend on a message's place in its batch.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from borzoi.model.limits import U32_MAX
from borzoi.model.values import BytesLike
from borzoi.wire.batch import batch_checksum, prove, read_header, split
from borzoi.wire.batch_layout import HEADER, HEADER_BYTES, RESERVED
from borzoi.wire.build import assemble
from borzoi.wire.columns import Columns

# Larger batches are sent as they are.
_SMALL_BYTES = 128 << 10
_DELTA_AT = HEADER_BYTES + 24
_DELTA = struct.Struct("<I")
_CHECKSUM_AT = 40
_CHECKSUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class RawCopies:
    """Stands where `Rows` does, behind a fetcher."""

    batch_bytes: int
    batch_rows: int

    def batches(self, found: Columns) -> Iterator[tuple[BytesLike, int]]:
        """Batches to stage, and how many messages each has, of exactly the messages that were found.

        The buffer may hold more than these, before them and behind them. If it can be written to, batches are
        made of it where they are, and it is of no other use afterwards.
        """
        first = last = 0  # of the messages that wait to be put together
        waiting_bytes = 0
        for batch, start, end in _held(found):
            if end - start == read_header(batch).message_count and self._is_sent_on(batch):
                yield from self._merged(found, first, last)
                yield restamped(batch), end - start
                first, last, waiting_bytes = end, end, 0
                continue
            size = len(batch)
            if waiting_bytes + size > self.batch_bytes or end - first > self.batch_rows:
                yield from self._merged(found, first, last)
                first, waiting_bytes = start, 0
            last = end
            waiting_bytes += size
        yield from self._merged(found, first, last)

    def _merged(self, found: Columns, first: int, last: int) -> Iterator[tuple[BytesLike, int]]:
        """Messages `first` to `last`, the latter not included, in batches that are not too large."""
        while first < last:
            filled = int(np.searchsorted(found.starts, found.starts[first] + self.batch_bytes))
            end = min(last, first + self.batch_rows, max(filled, first + 1))
            yield from _assembled(found, first, end)
            first = end

    def _is_sent_on(self, batch: memoryview) -> bool:
        is_whole = _DELTA.unpack_from(batch, _DELTA_AT)[0] == 0
        return is_whole and len(batch) >= min(_SMALL_BYTES, self.batch_bytes)


def _held(found: Columns) -> Iterator[tuple[memoryview, int, int]]:
    """The batches of a buffer that hold messages which were found, and which of these each holds."""
    position = 0
    for batch in split(found.buffer):
        start, end = np.searchsorted(found.starts, (position, position + len(batch))).tolist()
        if start < end:
            yield batch, start, end
        position += len(batch)


def restamped(batch: memoryview) -> memoryview:
    """The same messages, as a producer sends them; if possible in the same place."""
    header = read_header(batch)
    made = memoryview(bytearray(batch)) if batch.readonly else batch
    HEADER.pack_into(
        made, 0, 0, 0, 0, header.origin_timestamp_us, header.length, 0, header.message_count, RESERVED
    )
    _CHECKSUM.pack_into(made, _CHECKSUM_AT, batch_checksum(made, prove(made, header.message_count)))
    return made


def _assembled(found: Columns, first: int, last: int) -> Iterator[tuple[BytesLike, int]]:
    """Messages `first` to `last`, the latter not included, in as few batches as their times allow."""
    part = found.part(first, last)
    origins_us = part.origin_timestamps_us
    if int(origins_us.max()) - int(origins_us.min()) > U32_MAX:
        # Times that far apart have no place in one batch; those of either half may have.
        middle = (first + last) // 2
        yield from _assembled(found, first, middle)
        yield from _assembled(found, middle, last)
        return
    blocks = part.header_blocks() if part.has_headers else None
    yield assemble(part.payloads(), part.ids, blocks, origins_us), len(part)
