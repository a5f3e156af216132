"""A range of a topic as Arrow data, read through a client; from there to Polars, pandas or DuckDB.

What to read is decided once, at the start: partitions, and for each where it begins and ends. A range of
times becomes one of offsets there: messages with start <= timestamp < end, by the server's time, which never
goes back within a partition. What is sent later is not read, however long reading takes.

Retention may be faster than the reader: messages that were there at the start, or that the caller named, may
be gone when their turn comes. Reading goes on behind them, and every such gap is named.

The steps are written once, as a generator that says what to ask; the blocking and the asyncio functions ask
it. Nothing is stored on the server: no offset, no group.

This module needs pyarrow (`pip install 'borzoi[arrow]'`).
"""

import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from borzoi.client import messages, topics
from borzoi.client.aio import AsyncClient
from borzoi.client.arrow_columns import record_batches, schema, table_of
from borzoi.client.call import Call
from borzoi.client.holdings import OffsetGap
from borzoi.client.sync import Client
from borzoi.client.values import PollingStrategy
from borzoi.model import values
from borzoi.model.errors import InvalidOptionValue, PartitionNotFound, TopicIdNotFound
from borzoi.model.values import Identifier, PollingKind
from borzoi.wire.columns import Columns, columns

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Position = int | dt.datetime | values.PollingStrategy
"""An offset; a time; `PollingStrategy.Offset(n)`; `PollingStrategy.Timestamp(t)`, also of microseconds."""

OnGap = Callable[[OffsetGap], None]

# The server ends a reply at 16 MiB, whatever number was asked for.
_MESSAGES_PER_POLL = 16_384
_logger = logging.getLogger("borzoi.client")

_Steps = Generator["Call[Any] | pa.RecordBatch", Any, None]


class _Range(NamedTuple):
    """Offsets `first` to `end`, the latter not included. What was there before `expected` is not missed."""

    partition_id: int
    first: int
    end: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class TopicTable:
    """Messages that were read, and what was missing."""

    table: "pa.Table"
    gaps: tuple[OffsetGap, ...] = ()
    """Offsets that were to be read and were gone: expired or deleted."""

    def polars(self) -> "pl.DataFrame":
        try:
            import polars as pl  # noqa: PLC0415 - only whoever calls this needs it
        except ImportError as error:
            raise ImportError("polars() needs Polars: pip install polars") from error
        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a series is what becomes of an array
        return frame

    def pandas(self) -> "pd.DataFrame":
        try:
            import pandas  # noqa: F401, ICN001, PLC0415 - pyarrow asks for it, with an error that says less
        except ImportError as error:
            raise ImportError("pandas() needs pandas: pip install pandas") from error
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """A relation over the table, in this connection or in DuckDB's default one."""
        try:
            import duckdb  # noqa: PLC0415 - only whoever calls this needs it
        except ImportError as error:
            raise ImportError("duckdb() needs DuckDB: pip install duckdb") from error
        return (connection or duckdb).from_arrow(self.table)


def topic_batches(
    client: Client,
    stream: Identifier,
    topic: Identifier,
    *,
    partitions: Iterable[int] | None = None,
    start: Position | Mapping[int, Position] | None = None,
    end: Position | Mapping[int, Position] | None = None,
    columns: Sequence[str] | None = None,
    on_gap: OnGap | None = None,
) -> Iterator["pa.RecordBatch"]:
    """The messages of a topic, partition by partition, as record batches of a few megabytes.

    `start` is included, `end` is not. Without them: from the first message there is to the last one there is
    now. Both may be given by partition. `columns` are names out of `borzoi.client.arrow_columns`. Only one
    reply of the server is in memory at a time. A gap is passed to `on_gap`, or logged as a warning.
    """
    steps = _read(stream, topic, partitions, start, end, schema(columns), on_gap or _warn)
    answer = None
    while (step := _next(steps, answer)) is not None:
        answer = None
        if isinstance(step, Call):
            answer = client._call(step)
        else:
            yield step


async def topic_batches_async(
    client: AsyncClient,
    stream: Identifier,
    topic: Identifier,
    *,
    partitions: Iterable[int] | None = None,
    start: Position | Mapping[int, Position] | None = None,
    end: Position | Mapping[int, Position] | None = None,
    columns: Sequence[str] | None = None,
    on_gap: OnGap | None = None,
) -> AsyncIterator["pa.RecordBatch"]:
    """What `topic_batches` does, for asyncio."""
    steps = _read(stream, topic, partitions, start, end, schema(columns), on_gap or _warn)
    answer = None
    while (step := _next(steps, answer)) is not None:
        answer = None
        if isinstance(step, Call):
            answer = await client._call(step)
        else:
            yield step


def topic_to_arrow(
    client: Client,
    stream: Identifier,
    topic: Identifier,
    *,
    partitions: Iterable[int] | None = None,
    start: Position | Mapping[int, Position] | None = None,
    end: Position | Mapping[int, Position] | None = None,
    columns: Sequence[str] | None = None,
) -> TopicTable:
    """The messages of a topic as one table, in memory. The arguments are those of `topic_batches`."""
    gaps: list[OffsetGap] = []
    found = topic_batches(
        client,
        stream,
        topic,
        partitions=partitions,
        start=start,
        end=end,
        columns=columns,
        on_gap=gaps.append,
    )
    return TopicTable(table_of(found, schema(columns)), tuple(gaps))


async def topic_to_arrow_async(
    client: AsyncClient,
    stream: Identifier,
    topic: Identifier,
    *,
    partitions: Iterable[int] | None = None,
    start: Position | Mapping[int, Position] | None = None,
    end: Position | Mapping[int, Position] | None = None,
    columns: Sequence[str] | None = None,
) -> TopicTable:
    """What `topic_to_arrow` does, for asyncio."""
    gaps: list[OffsetGap] = []
    found = topic_batches_async(
        client,
        stream,
        topic,
        partitions=partitions,
        start=start,
        end=end,
        columns=columns,
        on_gap=gaps.append,
    )
    batches = [batch async for batch in found]
    return TopicTable(table_of(batches, schema(columns)), tuple(gaps))


def _next(steps: _Steps, answer: Any) -> "Call[Any] | pa.RecordBatch | None":
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _read(
    stream: Identifier,
    topic: Identifier,
    partitions: Iterable[int] | None,
    start: Position | Mapping[int, Position] | None,
    end: Position | Mapping[int, Position] | None,
    made: "pa.Schema",
    on_gap: OnGap,
) -> _Steps:
    details = yield topics.get_topic(stream, topic)
    if details is None:
        raise TopicIdNotFound(f"stream {stream}, topic {topic}")
    known = {partition.id: partition for partition in details.partitions}
    chosen = list(known) if partitions is None else list(dict.fromkeys(partitions))
    for partition_id in chosen:
        if partition_id not in known:
            raise PartitionNotFound(f"stream {stream}, topic {topic}, partition {partition_id}")
    ranges: list[_Range] = []
    for partition_id in chosen:
        partition = known[partition_id]
        is_new = not partition.messages_count and not partition.current_offset
        now_end = 0 if is_new else partition.current_offset + 1
        first = yield from _offset(stream, topic, partition_id, start, now_end)
        last = yield from _offset(stream, topic, partition_id, end, now_end)
        until = now_end if last is None else min(last, now_end)
        ranges.append(_Range(partition_id, first or 0, until, first))
    for each in ranges:
        yield from _read_range(stream, topic, each, made, on_gap)


def _offset(
    stream: Identifier,
    topic: Identifier,
    partition_id: int,
    position: Position | Mapping[int, Position] | None,
    now_end: int,
) -> Generator[Call[Any], Any, int | None]:
    """The offset that a position stands for; None if none is named."""
    named = position.get(partition_id) if isinstance(position, Mapping) else position
    if named is None:
        return None
    if isinstance(named, dt.datetime):
        named = PollingStrategy.Timestamp(named)
    elif isinstance(named, int):
        named = PollingStrategy.Offset(named)
    if named.kind is PollingKind.OFFSET:
        return named.value
    if named.kind is not PollingKind.TIMESTAMP:
        raise InvalidOptionValue(f"{named.kind.name.lower()} is no offset and no time")
    buffers = yield messages.poll_buffers(stream, topic, partition_id, named, 1)
    for buffer in buffers:
        found = columns(buffer)
        if len(found):
            return int(found.offsets[0])
    return now_end


def _read_range(
    stream: Identifier, topic: Identifier, wanted: _Range, made: "pa.Schema", on_gap: OnGap
) -> _Steps:
    partition_id, position, end, expected = wanted
    while position < end:
        count = min(end - position, _MESSAGES_PER_POLL)
        strategy = PollingStrategy.Offset(position)
        buffers = yield messages.poll_buffers(stream, topic, partition_id, strategy, count)
        reached = position
        for found in map(columns, buffers):
            found = _before(found, end)  # noqa: PLW2901 - what lies behind the end was not asked for
            if len(found):
                first = int(found.offsets[0])
                if expected is not None and first > expected:
                    on_gap(OffsetGap(partition_id, expected, first))
                reached = expected = int(found.offsets[-1]) + 1
                yield from record_batches(found, made)
        if reached == position:
            # Nothing is left before the end.
            if expected is not None:
                on_gap(OffsetGap(partition_id, expected, end))
            return
        position = reached


def _before(found: Columns, end: int) -> Columns:
    offsets = found.offsets
    if not len(found) or offsets[-1] < end:
        return found
    return found.part(0, int(offsets.searchsorted(end)))


def _warn(gap: OffsetGap) -> None:
    _logger.warning("%s", gap)
