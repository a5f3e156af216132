"""The batch source as Spark calls it: which messages there are to read, and which tasks that makes.

"latest" and moments become offsets once, when Spark plans the read; what is sent later is not seen.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from borzoi.model.replies import TopicExtent
from borzoi.spark import plan
from borzoi.spark.fetch import Fetcher
from borzoi.spark.filters import Bounds, FilterTaker
from borzoi.spark.offsets import Bound, Positions, Word, resolve
from borzoi.spark.source_options import SourceOptions
from borzoi.spark.topic import topic_of
from borzoi.spark.workers import settle


class BorzoiReader(DataSourceReader):
    def __init__(self, options: SourceOptions, fetcher: Fetcher) -> None:
        self._options = options
        self._fetcher = fetcher
        self._topic = topic_of(options)
        self._filters = Bounds()

    def partitions(self) -> list[InputPartition]:
        settle()
        extent = self._topic.extent()
        starts, ends = self._bounds(extent, self._filters)
        # An end that lies before its start is nothing to read, not a topic that lost messages.
        kept = [number for number in starts if starts[number] < ends[number]]
        wanted, losses = plan.ranges(
            Positions(extent.created_at_us, {number: starts[number] for number in kept}),
            Positions(extent.created_at_us, {number: ends[number] for number in kept}),
            extent,
        )
        plan.lose(self._options.target, losses, fail=self._options.fail_on_data_loss)
        found = plan.splits(
            wanted,
            extent.created_at_us,
            self._topic.extent,
            split_bytes_max=self._options.split_bytes_max,
            splits_min=self._options.splits_min,
        )
        return [InputPartition(split) for split in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        # Spark makes one task of no tasks.
        return iter(()) if partition.value is None else self._fetcher.fetch(partition.value)

    def _bounds(self, extent: TopicExtent, filters: Bounds) -> tuple[dict[int, int], dict[int, int]]:
        options = self._options
        starts = resolve(options.starting, extent, self._topic, options.group)
        ends = resolve(options.ending, extent, self._topic, options.group)
        wanted = [number for number in starts if filters.has_partition(number)]
        starts = {number: max(starts[number], filters.offset.low) for number in wanted}
        ends = {number: min(ends[number], filters.offset.high) for number in wanted}
        if filters.timestamp != Bounds().timestamp:
            narrow = extent_of(extent, wanted)
            lows = self._at(filters.timestamp.low, narrow)
            highs = self._at(filters.timestamp.high, narrow)
            starts = {number: max(starts[number], lows[number]) for number in wanted}
            ends = {number: min(ends[number], highs[number]) for number in wanted}
        return starts, ends

    def _at(self, timestamp_us: int, extent: TopicExtent) -> dict[int, int]:
        return resolve(Bound(Word.LATEST, timestamp_us), extent, self._topic, "")


class FilteringReader(BorzoiReader):
    """Reads only what Spark's filters leave of partitions, offsets and times.

    Spark refuses a reader with this hook while `spark.sql.python.filterPushdown.enabled` is false. Where it
    is true, Spark 4.3 keeps the narrowed read with the frame it was made for: a later query of the same
    frame, or view, that has no filter to hand down, gets it too, and misses rows. So users have to ask.
    """

    def __init__(self, options: SourceOptions, fetcher: Fetcher, columns: Iterable[str]) -> None:
        super().__init__(options, fetcher)
        self._taker = FilterTaker(columns)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        left = list(self._taker.take(filters))
        self._filters = self._taker.bounds
        return left


def extent_of(extent: TopicExtent, partitions: list[int]) -> TopicExtent:
    """The extent of some of the partitions."""
    kept = tuple(each for each in extent.partitions if each.partition_id in partitions)
    return TopicExtent(extent.stream_id, extent.topic_id, extent.created_at_us, kept)
