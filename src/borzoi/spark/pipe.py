"""From topic to topic through a Python function, without the messages ever entering the JVM.

    from borzoi.spark import pipe

    query = pipe(
        {"connection": "iggy://iggy:iggy@127.0.0.1:8090", "stream": "shop", "topic": "orders"},
        lambda rows: rows.filter(pc.match_substring(rows["payload"], "EU")),
        stream="shop",
        topic="orders_eu",
        checkpoint="/var/lib/shop/orders_eu",
        trigger={"availableNow": True},
    )

Spark still does what it is good at: it plans micro-batches under the source's limits, runs tasks, repeats
those that fail, and keeps the checkpoint. What moves through it are splits, a few numbers for each task
(`fused`).

Splits are carried by a Python data source and written by a Python stream writer, not by foreachBatch and
mapInArrow. Tasks of a stream writer know the query and the micro-batch, and abort and commit belong to it:
there is one implementation of writing exactly once, the sink's. With foreachBatch all of these would have to
be done by hand, around a job of its own.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark.fused import BLIND_MODES, PIPE_MODES, PipeTarget, SplitSource, Transform, pickled
from borzoi.spark.sink_options import SinkOptions
from borzoi.spark.source_options import RAW, SourceOptions


def pipe(
    source: Mapping[str, Any],
    fn: Transform | None = None,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | str | None = None,
    name: str | None = None,
    spark: SparkSession | None = None,
    **target: Any,
) -> StreamingQuery:
    """Start a query that copies messages from one topic to another, exactly once.

    `source` has the options of the streaming source, `target` those of the sink; the connection is the
    source's unless another is given. `partitioning` is "source" unless said otherwise: partition n of the
    source goes to partition n, modulo the target's number of partitions.

    `fn` gets the source's rows as record batches, on Spark's workers, and returns what to write: a column
    `payload` and, if wanted, `headers`, `id` and a column for partitioning. It may return fewer or more rows,
    or None for no rows at all; it must not keep anything from one call to the next. Without it, and without a
    `format`, messages are copied as they are, with ids, headers and times.

    `trigger` is a processing time ("5 seconds") or the arguments of Spark's trigger ({"availableNow": True}).
    """
    if not isinstance(source, Mapping):
        raise TypeError(
            "source is a mapping with options of the streaming source; rows of a DataFrame are in the JVM "
            'already, so write them with writeStream.format("borzoi")'
        )
    given = {key: _text(value) for key, value in source.items()}
    read = SourceOptions.of(given).for_stream(given)
    if fn is not None and not callable(fn):
        raise TypeError(f"fn is a function from a record batch to a record batch, not {fn!r}")
    wanted = {
        "connection": _given(given, "connection"),
        **{key: _text(value) for key, value in target.items()},
    }
    options = SinkOptions.of(wanted, PIPE_MODES)
    if options.epoch is not None:
        raise InvalidOptionValue('option "epoch": a streaming query counts its epochs itself')
    transform = "" if fn is None else pickled(fn)
    session = spark or SparkSession.active()
    rows = ""
    if fn is not None or options.partitioning not in BLIND_MODES or {read.format, options.format} != {RAW}:
        # Asked of Spark and not of the source: only Spark can read a schema that is written as DDL.
        rows = session.readStream.format("borzoi").options(**given).load().schema.json()
    session.dataSource.register(SplitSource)
    session.dataSource.register(PipeTarget)
    writer = (
        session.readStream.format(SplitSource.name())
        .options(**given)
        .load()
        .writeStream.format(PipeTarget.name())
        .options(**wanted, source=json.dumps(given), rows=rows, transform=transform)
        .option("checkpointLocation", checkpoint)
    )
    if name is not None:
        writer = writer.queryName(name)
    if isinstance(trigger, str):
        writer = writer.trigger(processingTime=trigger)
    elif trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _given(options: Mapping[str, str], name: str) -> str:
    """An option without regard to case, as Spark takes it."""
    return next((value for key, value in options.items() if key.lower() == name), "")
