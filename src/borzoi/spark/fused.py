"""The two ends of a pipe, as Spark sees them: a source of splits, and a sink that reads and writes messages.

A split says which messages a task is to read: a partition and two offsets. Splits are the only rows that
Spark sees; they pass through its planning, scheduling, retries and checkpoint like any other rows. The
messages go from the broker to a Python worker and from there to the broker, or do not even leave the broker;
never do they enter the JVM.

    borzoi_splits   the streaming source's plan (`plan`, `stream_reader`), one row for each split
    borzoi_pipe     a writer whose tasks fetch what a split names, transform it, and stage it (`epochs`)

So the guarantees are those of the source and the sink, by the same code. Splits of a partition are in order,
tasks are numbered like splits, and the broker appends in the order of tasks: a partition's order is kept.

Messages that stay as they are and need no partition of their own are copied batch by batch: by the server if
it has both topics (`server_copy`), otherwise here (`wire.copies`).
`pipe` is what users call; nothing here is.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from typing import cast

import pyarrow as pa
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from borzoi.client.values import Partitioning
from borzoi.model.errors import BorzoiError, InvalidOptionValue
from borzoi.spark import epochs
from borzoi.spark.connections import connected
from borzoi.spark.encode import EncodedBatch, Encoder
from borzoi.spark.epochs import Attempt, TaskReport
from borzoi.spark.losses import Losses
from borzoi.spark.plan import Split
from borzoi.spark.routing import PartitioningMode
from borzoi.spark.rows import Rows
from borzoi.spark.server_copy import copy_all
from borzoi.spark.sink import EpochCommitter, RowWriter, SinkMessage
from borzoi.spark.sink_columns import sink_columns
from borzoi.spark.sink_options import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_ROWS,
    SINK_MODES,
    SINK_OPTIONS,
    SinkOptions,
)
from borzoi.spark.sink_topic import partitions_of
from borzoi.spark.source import fetcher_of
from borzoi.spark.source_options import SourceOptions
from borzoi.spark.source_schema import rows_of
from borzoi.spark.stream_reader import BorzoiStreamReader
from borzoi.spark.workers import settle
from borzoi.wire.copies import RawCopies

Transform = Callable[[pa.RecordBatch], pa.RecordBatch | None]

PIPE_MODES = (PartitioningMode.SOURCE, *SINK_MODES)
# What `pipe` adds to the sink's options, in the case in which Spark hands them over.
_PIPE_OPTIONS = (*SINK_OPTIONS, "source", "rows", "transform")
_SPLIT_FIELDS = tuple(field.name for field in fields(Split))
_SPLIT_SCHEMA = StructType([StructField(name, LongType(), nullable=False) for name in _SPLIT_FIELDS])
# Modes in which a message's partition does not depend on what is in it.
BLIND_MODES = (PartitioningMode.SOURCE, PartitioningMode.BALANCED)


class TransformFailed(BorzoiError, text="The function of a pipe failed"):  # noqa: N818 - named like the platform's other errors
    """The function of a pipe returned something that is not a batch of rows. Nothing was written."""


class SplitSource(DataSource):
    """A row for each split of a topic's messages."""

    @classmethod
    def name(cls) -> str:
        return "borzoi_splits"

    def schema(self) -> StructType:
        return _SPLIT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        given = dict(cast("Mapping[str, str]", self.options))
        return BorzoiStreamReader(SourceOptions.of(given).for_stream(given), _SplitRows())


class _SplitRows:
    """In place of a fetcher: the split itself."""

    def fetch(self, split: Split) -> Iterator[pa.RecordBatch]:
        columns = [[value] for value in astuple(split)]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, pa.int64()) for column in columns], schema=to_arrow_schema(_SPLIT_SCHEMA)
        )


class PipeTarget(DataSource):
    """Takes splits, and writes what becomes of their messages."""

    @classmethod
    def name(cls) -> str:
        return "borzoi_pipe"

    def streamWriter(self, schema: StructType, overwrite: bool) -> EpochCommitter:  # noqa: ARG002, N802
        settle()
        given = dict(cast("Mapping[str, str]", self.options))
        if overwrite:
            raise InvalidOptionValue('a topic can only be appended to; use outputMode "append"')
        options = SinkOptions.of(given, PIPE_MODES, _PIPE_OPTIONS)
        count = partitions_of(options)
        return PipeSink(
            Copier(json.loads(given["source"]), options, count, given["rows"], given["transform"])
        )


class PipeSink(EpochCommitter):
    def __init__(self, copier: "Copier") -> None:
        self.options = copier.options
        self._copier = copier

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        settle()
        return SinkMessage(self._copier.stage(splits_of(iterator), self.attempt()))


@dataclass(frozen=True, slots=True)
class Copier:
    """Turns splits into batches to stage. Plain, so that tests use it without Spark."""

    source: Mapping[str, str]  # as given; that they are right is known
    options: SinkOptions
    partitions_count: int
    rows: str = ""  # what the source's rows look like, as JSON; empty if nobody looks at them
    transform: str = ""  # pickled, as text; empty if messages stay as they are

    def stage(self, splits: Iterable[Split], attempt: Attempt) -> TaskReport:
        target, is_stream = self.options.target, self.options.fail_on_data_loss
        client, source = connected(target), SourceOptions.of(self.source)
        if self._is_for_the_server(source):
            losses = Losses(source.target, source.fail_on_data_loss)
            placed = ((split, self._place(split)) for split in splits)
            return copy_all(client, target, attempt, placed, losses, is_stream=is_stream)
        return epochs.stage_all(client, target, attempt, self.batches(splits, attempt), is_stream=is_stream)

    def _is_for_the_server(self, source: SourceOptions) -> bool:
        """Whether the messages may stay where they are: one server has both topics, and nobody looks at them.

        Who wants batches of another size than the server makes gets them from here.
        """
        return (
            not self.rows
            and source.data_directory is None
            and source.target.connection == self.options.target.connection
            and (self.options.batch_bytes, self.options.batch_rows)
            == (DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS)
        )

    def batches(self, splits: Iterable[Split], attempt: Attempt) -> Iterator[EncodedBatch]:
        if not self.rows:
            return self._as_they_are(splits)
        return self._transformed(splits, attempt)

    def _as_they_are(self, splits: Iterable[Split]) -> Iterator[EncodedBatch]:
        copies = RawCopies(self.options.batch_bytes, self.options.batch_rows)
        # A fetcher passes on whatever is made of an answer, be it rows or not.
        fetcher = fetcher_of(SourceOptions.of(self.source), cast("Rows", copies))
        for split in splits:
            place = self._place(split)
            for batch, count in fetcher.fetch(split):
                yield EncodedBatch(place, batch, count)

    def _transformed(self, splits: Iterable[Split], attempt: Attempt) -> Iterator[EncodedBatch]:
        transform = None if not self.transform else unpickled(self.transform)
        options = SourceOptions.of(self.source)
        schema = StructType.fromJson(json.loads(self.rows))
        fetcher = fetcher_of(options, rows_of(options, self.source, schema))
        encoder: Encoder | None = None
        result_schema: pa.Schema | None = None
        for split in splits:
            partition = self._same_partition(split)
            for rows in fetcher.fetch(split):
                result = rows if transform is None else _applied(transform, rows)
                if result is None or not result.num_rows:
                    continue
                if encoder is None:
                    result_schema = result.schema
                    encoder = self._encoder(result_schema, attempt)
                elif result.schema != result_schema:
                    raise TransformFailed(
                        f"the function returned batches of two schemas: {result_schema}, then {result.schema}"
                    )
                yield from encoder.encode(result, partition)
        if encoder is not None:
            yield from encoder.flush()

    def _encoder(self, schema: pa.Schema, attempt: Attempt) -> Encoder:
        columns = sink_columns(self.options, from_arrow_schema(schema))
        return RowWriter(self.options, columns, self.partitions_count).encoder(attempt)

    def _place(self, split: Split) -> Partitioning:
        same = self._same_partition(split)
        return Partitioning.balanced() if same is None else Partitioning.partition_id(same)

    def _same_partition(self, split: Split) -> int | None:
        """That which has the source's number; None if the options want something else."""
        if self.options.partitioning is not PartitioningMode.SOURCE:
            return None
        return split.partition_id % self.partitions_count


def splits_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Split]:
    for batch in batches:
        for row in batch.to_pylist():
            yield Split(**row)


def pickled(transform: Transform) -> str:
    """A function as the text of an option."""
    try:
        pickle: bytes = dumps(transform)  # type: ignore[no-untyped-call]
        return base64.b64encode(pickle).decode()
    except Exception as error:
        raise TypeError(f"the function cannot be sent to Spark's workers: {error}") from error


def unpickled(text: str) -> Transform:
    return cast("Transform", loads(base64.b64decode(text)))


def _applied(transform: Transform, rows: pa.RecordBatch) -> pa.RecordBatch | None:
    result = transform(rows)
    if result is not None and not isinstance(result, pa.RecordBatch):
        raise TransformFailed(
            f"the function returned a {type(result).__name__}; it has to return a RecordBatch, or None"
        )
    return result
