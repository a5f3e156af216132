"""Reads a split: messages from the broker, as record batches.

While one answer is decoded, the next is on its way (`client.ahead`). Answers are four megabytes, each of
which becomes one record batch: what is done for a batch in Python costs several times what it seems to when
megabytes of messages have gone through the processor's cache since the last one. What is asked for next is a
guess, that the last answer is complete; where it was not, that one is asked for again.

A split yields exactly its messages, in order. If the server no longer has some of them that is data loss: an
error, or, if the user wants so, a warning, and what is left is read. The topic's identity is asked for after
the last answer, while that is worked on, so that messages of a topic that was made anew under the same name
are not taken for the old one's: what a task has read counts only if it ends well.
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
from borzoi.client.transactions import get_topic_extent
from borzoi.client.values import PollingStrategy
from borzoi.model.errors import NotFound, RemoteProtocolError
from borzoi.model.replies import TopicExtent
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
        losses = Losses(self.target, self.fail_on_data_loss)
        if losses.is_all_lost(split):
            return
        with borrowed(self.target) as client:
            reading = _Reading(client, self.target, split)
            try:
                position = split.start
                for found in reading.answers():
                    first = int(found.offsets[0])
                    if first != position:
                        losses.check_identity(split)  # which says better why
                        losses.lost(split, position, min(first, split.end))
                    require_order(found, position, split.end)
                    position = first + len(found)
                    yield from self.rows.batches(found)
                losses.compare(split, reading.extent())
            finally:
                reading.drop()
        if position < split.end:
            losses.lost(split, position, split.end)


class _Reading:
    """Of one split, on a client that nobody else uses meanwhile."""

    def __init__(self, client: Client, target: Target, split: Split) -> None:
        self._target = target
        self._split = split
        # One read is under way at most: when what the topic is now is asked for, no more messages are.
        self._messages: Ahead[list[memoryview]] = Ahead(client)
        self._topic: Ahead[TopicExtent] = Ahead(client)

    def answers(self) -> Iterator[Columns]:
        """Everything from the start of the split on that the server still has, up to its end."""
        split, start = self._split, self._split.start
        count_max = max(1, min(ANSWER_BYTES // split.message_bytes, _COUNT_MAX))
        count = min(count_max, split.end - start)
        largest = 0, 1  # batch so far: where it begins, how many messages it has
        self._ask(start, count)
        while True:
            buffers = self._take()
            guess = start + count
            if guess < split.end:
                count = _whole_batches(guess, min(count_max, split.end - guess), *largest)
                self._ask(guess, count)
            else:
                self._topic.send(self._extent_call())
            answered = start
            for found in map(columns, buffers):
                largest = max(largest, found.largest_batch, key=itemgetter(1))
                # If some were gone, as many more came behind the end of the split.
                kept = found.part(0, int(np.searchsorted(found.offsets, split.end)))
                if len(kept):
                    answered = int(kept.offsets[-1]) + 1
                    yield kept
            if answered == start or answered >= split.end:
                return
            start = answered
            if start != guess:
                self._discard()
                count = min(count_max, split.end - start)
                self._ask(start, count)

    def extent(self) -> TopicExtent | None:
        """Of the topic after the last answer; None if it is gone."""
        if not self._topic.is_under_way:
            self._messages.drop()
            self._topic.send(self._extent_call())
        try:
            return self._topic.take()
        except NotFound:
            return None

    def drop(self) -> None:
        self._messages.drop()
        self._topic.drop()

    def _ask(self, position: int, count: int) -> None:
        where = self._target.stream, self._target.topic, self._split.partition_id
        self._messages.send(poll_buffers(*where, PollingStrategy.Offset(position), count))

    def _take(self) -> list[memoryview]:
        try:
            return self._messages.take()
        except NotFound:
            return []

    def _discard(self) -> None:
        """Take what was asked for in the belief that the answer before it is complete."""
        if self._messages.is_under_way:
            self._take()
        else:
            self.extent()

    def _extent_call(self) -> Call[TopicExtent]:
        return get_topic_extent(self._target.stream, self._target.topic)


def _whole_batches(position: int, count: int, base_offset: int, batch_count: int) -> int:
    """How many to ask for, `count` at most, so that the answer ends with a batch if all are of one size.

    A batch that is cut makes work for the server and, with what comes before it, for whoever reads it.
    """
    end = position + count
    return max(end - (end - base_offset) % batch_count, position) - position or count


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
