"""The streaming source as Spark calls it: where to start, how far to go, which tasks that makes.

Spark keeps one reader beside its driver and calls it for every micro-batch; a copy of a fresh one is pickled
for the tasks. So nothing here holds a socket: connections belong to the process (`borzoi.spark.connections`)
and are made with the first call. Spark calls methods by the names and the parameters given here.

The checkpoint holds the truth about what was read. Offsets are published as a consumer group too, for others
to see; what Spark asks to start from is behind it for good, so that is what is published.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from borzoi.model.errors import BorzoiError, NotFound
from borzoi.model.replies import TopicExtent
from borzoi.spark import plan
from borzoi.spark.fetch import Fetcher
from borzoi.spark.offsets import Positions, resolve
from borzoi.spark.publish import Publisher
from borzoi.spark.source_options import SourceOptions
from borzoi.spark.topic import topic_of
from borzoi.spark.workers import hang_up_quietly, settle

logger = logging.getLogger("borzoi.spark")

Json = dict[str, Any]
T = TypeVar("T")


class RefusingReader(DataSourceStreamReader):
    """In place of a reader that cannot be made: whatever Spark calls first says why.

    If making it failed, Spark 4.3 would fail too, over a variable that it has not set, and say that instead.
    """

    def __init__(self, reason: BorzoiError) -> None:
        self._reason = reason

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's names
        raise self._reason

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802, ARG002
        raise self._reason

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:  # noqa: ARG002
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        raise self._reason


class BorzoiStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, fetcher: Fetcher) -> None:
        self._options = options
        self._fetcher = fetcher
        self._topic = topic_of(options)
        self._initial: Positions | None = None
        self._is_first = True  # the micro-batch that is planned
        self._target: Positions | None = None  # of a query that ends when it gets there
        self._publisher: Publisher | None = None
        self._extent: TopicExtent | None = None  # as `latestOffset` saw it
        self._is_away = False  # the topic, and the user knows

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name, as below
        """Asked for more than once: every time with the same answer."""
        if self._initial is None:
            extent = self._topic.extent()
            found = resolve(self._options.starting, extent, self._topic, self._options.group)
            self._initial = Positions(extent.created_at_us, found)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.rows_max is None else ReadMaxRows(limits.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = Positions.at_end(self._topic.extent())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        begin = Positions.from_json(start)
        self._publish(begin)
        self._extent = None
        end = self._unless_away(lambda: self._end(begin, limit), begin)
        self._is_first = self._is_first and begin == self._initial
        if self._is_first:
            return replace(end, began=begin).to_json()
        return start if end.is_at(begin) else end.to_json()

    def _end(self, begin: Positions, limit: ReadLimit) -> Positions:
        extent = self._topic.extent()
        begins, losses = plan.begins(begin, extent)
        plan.lose(self._options.target, losses, fail=self._options.fail_on_data_loss)
        ends = plan.ends(begins, extent, self._target_in(extent), self._limits(limit), self._topic.extent)
        is_same_topic = begin.created_at_us == extent.created_at_us
        # A new partition is mentioned when it has messages; until then there is nothing new to say.
        seen = {
            number: end
            for number, end in ends.items()
            if end or (is_same_topic and number in begin.next_offsets)
        }
        self._extent = extent
        return Positions(extent.created_at_us, seen)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Asked for right after `latestOffset`. Nothing is known of a topic that is away."""
        return None if self._extent is None else Positions.at_end(self._extent).to_json()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        stop = Positions.from_json(end)
        begin = stop.began or Positions.from_json(start)
        nothing: list[plan.Split] = []
        found = self._unless_away(lambda: self._splits(begin, stop), nothing)
        return [InputPartition(splits) for splits in plan.tasks(found, splits_min=self._options.splits_min)]

    def _splits(self, begin: Positions, stop: Positions) -> list[plan.Split]:
        extent = self._topic.extent()
        wanted, losses = plan.ranges(begin, stop, extent)
        plan.lose(self._options.target, losses, fail=self._options.fail_on_data_loss)
        return plan.splits(
            wanted,
            extent.created_at_us,
            self._topic.extent,
            split_bytes_max=self._options.split_bytes_max,
            splits_min=self._options.splits_min,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        return chain.from_iterable(map(self._fetcher.fetch, partition.value))

    def commit(self, end: Json) -> None:
        self._publish(Positions.from_json(end))

    def stop(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()
        if isinstance(sys.exc_info()[1], EOFError):
            hang_up_quietly()

    def _unless_away(self, planned: Callable[[], T], otherwise: T) -> T:
        """A plan, made again if a partition went away meanwhile; the other if the whole topic is away."""
        try:
            try:
                found = planned()
            except NotFound:
                found = planned()
        except NotFound as error:
            if self._options.fail_on_data_loss:
                raise
            if not self._is_away:
                logger.warning("failOnDataLoss is off: %s; the query waits for it to come back", error)
            self._is_away = True
            return otherwise
        self._is_away = False
        return found

    def _publish(self, positions: Positions) -> None:
        if not self._options.is_published:
            return
        if self._publisher is None:
            self._publisher = Publisher(self._options.target, self._options.group)
        self._publisher.publish(positions.next_offsets)

    def _limits(self, limit: ReadLimit) -> plan.Limits:
        """Those of the options, which may be two, while Spark knows one."""
        return plan.Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits

    def _target_in(self, extent: TopicExtent) -> Positions | None:
        if self._target is not None and self._target.created_at_us != extent.created_at_us:
            self._target = Positions.at_end(extent)
        return self._target
