"""The Spark sink: rows become messages of a topic, exactly once.

    driver      stream_writer / batch_writer    reads options, checks columns, finds or creates the topic
    executors   write(rows)                     encodes (`encode`) and stages (`epochs`) the rows of a task
    driver      commit / abort                  one request for all tasks

Of a streaming query the producer's name has the query's id and the epoch is the number of the micro-batch;
both are the same when Spark repeats a micro-batch after a failure, so the broker knows what it has. Spark
tells tasks these two as properties of the task, under names that are internal but have not changed in years;
without them nothing is written. A batch write is epoch 0 of a producer that nobody else is, unless options
name them.

Writers are pickled to executors, so they hold no connection; `connections` keeps one for each process.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from borzoi.model.errors import BorzoiError, InvalidOptionValue
from borzoi.spark import epochs
from borzoi.spark.connections import connected
from borzoi.spark.encode import EncodedBatch, Encoder, first_id
from borzoi.spark.epochs import Attempt, TaskReport
from borzoi.spark.routing import Longs, PartitioningMode, by_key, by_partition
from borzoi.spark.sink_columns import SinkColumns, sink_columns
from borzoi.spark.sink_formats import payload_encoder
from borzoi.spark.sink_options import SinkOptions
from borzoi.spark.sink_topic import partitions_of
from borzoi.spark.workers import settle

logger = logging.getLogger("borzoi.spark")

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_NO_OVERWRITING = (
    "a topic can only be appended to; {} To begin with an empty topic, purge or delete it first: "
    "client.purge_topic(stream, topic)"
)


class SparkTooDifferent(BorzoiError):  # noqa: N818 - named like the platform's other errors
    """This version of Spark does not tell what exactly-once writing needs. Nothing was written."""

    hint = "Write from foreachBatch with the options producer and epoch instead; see docs/spark.md."

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.hint}"


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """What a task tells the driver."""

    report: TaskReport


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes the rows of a task. Plain, so that tests use it without Spark."""

    options: SinkOptions
    columns: SinkColumns
    partitions_count: int

    def write(
        self, rows: Iterable[pa.RecordBatch], attempt: Attempt, *, is_stream: bool = False
    ) -> TaskReport:
        settle()
        target = self.options.target
        is_checked = is_stream and self.options.fail_on_data_loss
        return epochs.stage_all(
            connected(target), target, attempt, self.encoded(rows, attempt), is_stream=is_checked
        )

    def encoded(self, rows: Iterable[pa.RecordBatch], attempt: Attempt) -> Iterator[EncodedBatch]:
        encoder = self.encoder(attempt)
        for batch in rows:
            yield from encoder.encode(batch)
        yield from encoder.flush()

    def encoder(self, attempt: Attempt) -> Encoder:
        options, columns = self.options, self.columns
        return Encoder(
            payload_encoder(columns, options.format),
            self._routes,
            headers=columns.headers,
            ids=columns.id,
            first_id=first_id(attempt.producer, attempt.epoch, attempt.task),
            batch_bytes=options.batch_bytes,
            batch_rows=options.batch_rows,
        )

    def _routes(self, rows: pa.RecordBatch) -> Longs | None:
        name = self.columns.route
        if name is None:
            return None
        column = rows.column(name)
        if self.options.partitioning is PartitioningMode.KEY:
            return by_key(column, name, self.partitions_count)
        return by_partition(column, name, self.partitions_count, is_modulo=False)


class EpochCommitter(DataSourceStreamArrowWriter):
    """The driver's part of a streaming write, and what tasks are called."""

    options: SinkOptions

    def attempt(self) -> Attempt:
        """Of the task that this runs in."""
        context = task_context()
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if not query_id or not batch_id:
            raise SparkTooDifferent(
                f"the task knows neither its query nor its micro-batch ({_QUERY_ID} is {query_id!r}, "
                f"{_BATCH_ID} is {batch_id!r})"
            )
        return Attempt(
            self.options.stream_producer(query_id),
            int(batch_id),
            context.partitionId(),
            epochs.attempt_number(context.taskAttemptId()),
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        settle()
        target = self.options.target
        reports = reports_of(messages)
        done = epochs.commit(connected(target), target, batchId, reports)
        if done is not None and self.options.fail_on_data_loss:
            epochs.compare(target, done, reports)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what was staged. If no task got far enough to say who it was, the broker does so in time."""
        target = self.options.target
        for producer in {report.producer for report in reports_of(messages)}:
            epochs.abort(connected(target), target, producer, batchId)


class StreamSink(EpochCommitter):
    """`writeStream.format("borzoi")`."""

    def __init__(self, writer: RowWriter) -> None:
        self.options = writer.options
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        return SinkMessage(self._writer.write(iterator, self.attempt(), is_stream=True))


class BatchSink(DataSourceArrowWriter):
    """`write.format("borzoi")`."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer
        # Chosen here, on the driver: tasks, commit and abort have copies of this object.
        self._producer = writer.options.batch_producer()
        self._epoch = writer.options.epoch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        context = task_context()
        attempt = Attempt(
            self._producer,
            self._epoch,
            context.partitionId(),
            epochs.attempt_number(context.taskAttemptId()),
        )
        return SinkMessage(self._writer.write(iterator, attempt))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        target = self._writer.options.target
        done = epochs.commit(connected(target), target, self._epoch, reports_of(messages))
        if done is not None and self._writer.options.producer is None:
            self._forget()
        if done is not None and done.is_repeated and self._writer.options.producer is not None:
            logger.warning(
                "epoch %d of %s was written to %s before; nothing is written now",
                self._epoch,
                self._producer,
                target,
            )

    def _forget(self) -> None:
        """Nobody else will ever write under a name that was made for this write."""
        target = self._writer.options.target
        try:
            epochs.forget(connected(target), target, self._producer)
        except BorzoiError as error:  # everything is written; the broker forgets it by itself, only later
            logger.warning("%s stays known to the topic %s: %s", self._producer, target, error)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's name
        target = self._writer.options.target
        epochs.abort(connected(target), target, self._producer, self._epoch)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """The writer of a streaming query; for Spark, which asks for a new one for every micro-batch."""
    settle()
    if overwrite:
        raise InvalidOptionValue(_NO_OVERWRITING.format('use outputMode "append".'))
    found = SinkOptions.of(options)
    if found.epoch is not None:
        raise InvalidOptionValue('option "epoch": a streaming query counts its epochs itself')
    return StreamSink(_row_writer(found, schema))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of `df.write`; for Spark."""
    if overwrite:
        raise InvalidOptionValue(_NO_OVERWRITING.format('use mode("append").'))
    found = SinkOptions.of(options)
    if found.producer is not None and found.epoch is None:
        # With a number of our own, a second write under this name would be taken for the first one.
        raise InvalidOptionValue(
            'option "epoch" is missing: a producer that is named writes each epoch once; '
            '.option("epoch", "20260501"), a number that grows with every write'
        )
    return BatchSink(_row_writer(found, schema))


def _row_writer(options: SinkOptions, schema: StructType) -> RowWriter:
    # Columns first: what can be refused without the broker is refused without it.
    columns = sink_columns(options, schema)
    return RowWriter(options, columns, partitions_of(options))


def task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SparkTooDifferent("rows are written outside of a task")
    return context


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    """What tasks that succeeded said; Spark has None for the others."""
    return [message.report for message in messages if isinstance(message, SinkMessage)]
