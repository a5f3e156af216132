"""Reads a split: messages from the broker, as record batches.

While one answer is decoded, the next is on its way (`client.ahead`). Answers are four megabytes, each of
which becomes one record batch: what is done for a batch in Python costs several times what it seems to when
megabytes of messages have gone through the processor's cache since the last one. What is asked for next is a
guess, that the last answer is complete; where it was not, that one is asked for again.

A split yields exactly its messages, in order. If the server no longer has some of them that is data loss: an
error, or, if the user wants so, a warning, and what is left is read. The topic's identity is compared after
the last answer, so that messages of a topic that was made anew under the same name are not taken for the old
one's: what a task has read counts only if it ends well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

import numpy as np
import pyarrow as pa

from borzoi.client.ahead import Ahead
from borzoi.client.call import Call
from borzoi.client.messages import poll_buffers
from borzoi.client.sync import Client
from borzoi.client.values import PollingStrategy
from borzoi.model.errors import NotFound, RemoteProtocolError
from borzoi.spark.connections import borrowed
from borzoi.spark.losses import Losses
from borzoi.spark.options import Target
from borzoi.spark.plan import Split
from borzoi.spark.rows import Rows
from borzoi.wire.columns import Columns, columns

ANSWER_BYTES = 4 << 20
_COUNT_MAX = 1 << 20


class Fetcher(Protocol):
    """Turns a split into record batches, in a task. Pickled with the reader."""

    def fetch(self, split: Split) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class BrokerFetcher:
    """Over a connection of this process."""

    target: Target
    rows: Rows
    fail_on_data_loss: bool = True

    def fetch(self, split: Split) -> Iterator[pa.RecordBatch]:
        with borrowed(self.target) as client:
            position = split.start
            for found in self._answers(client, split):
                first = int(found.offsets[0])
                if first != position:
                    self._losses.check_identity(split)  # which says better why
                    self._losses.lost(split, position, min(first, split.end))
                require_order(found, position, split.end)
                position = first + len(found)
                yield from self.rows.batches(found)
        self._losses.check_identity(split)
        if position < split.end:
            self._losses.lost(split, position, split.end)

    @property
    def _losses(self) -> Losses:
        return Losses(self.target, self.fail_on_data_loss)

    def _answers(self, client: Client, split: Split) -> Iterator[Columns]:
        """Everything from the start of the split on that the server still has, up to its end."""
        count_max = max(1, min(ANSWER_BYTES // split.message_bytes, _COUNT_MAX))
        position, count = split.start, min(count_max, split.end - split.start)
        largest = 0, 1  # batch so far: where it begins, how many messages it has
        reads: Ahead[list[memoryview]] = Ahead(client)
        try:
            reads.send(self._poll(split, position, count))
            while True:
                buffers = _taken(reads)
                guess = position + count
                if guess < split.end:
                    count = _whole_batches(guess, min(count_max, split.end - guess), *largest)
                    reads.send(self._poll(split, guess, count))
                answered = position
                for found in map(columns, buffers):
                    largest = max(largest, found.largest_batch, key=itemgetter(1))
                    # If some were gone, as many more came behind the end of the split.
                    kept = found.part(0, int(np.searchsorted(found.offsets, split.end)))
                    if len(kept):
                        answered = int(kept.offsets[-1]) + 1
                        yield kept
                if answered == position or answered >= split.end:
                    return
                position = answered
                if position != guess:
                    if guess < split.end:
                        _taken(reads)  # and not used
                    count = min(count_max, split.end - position)
                    reads.send(self._poll(split, position, count))
        finally:
            reads.drop()

    def _poll(self, split: Split, position: int, count: int) -> Call[list[memoryview]]:
        where = self.target.stream, self.target.topic, split.partition_id
        return poll_buffers(*where, PollingStrategy.Offset(position), count)


def _whole_batches(position: int, count: int, base_offset: int, batch_count: int) -> int:
    """How many to ask for, `count` at most, so that the answer ends with a batch if all are of one size.

    A batch that is cut makes work for the server and, with what comes before it, for whoever reads it.
    """
    end = position + count
    return max(end - (end - base_offset) % batch_count, position) - position or count


def _taken(reads: Ahead[list[memoryview]]) -> list[memoryview]:
    try:
        return reads.take()
    except NotFound:
        return []


def require_order(found: Columns, start: int, end: int) -> None:
    """Every offset once, none left out, none that was not asked for."""
    offsets = found.offsets
    first = int(offsets[0])
    if first < start or first + len(offsets) > end:
        raise RemoteProtocolError(
            f"offsets [{start}, {end}) were asked for, [{first}, {first + len(offsets)}) came"
        )
    if not np.array_equal(offsets, np.arange(first, first + len(offsets), dtype=np.uint64)):
        raise RemoteProtocolError(f"the offsets of an answer that begins with {first} are not consecutive")
