"""How fast Spark reads and writes topics, next to its own Parquet reader on the same rows.

Everything is in one run and one session, in turn, on as many cores as `--cores` says; what counts is the
ratio of medians, because absolute numbers belong to the machine, and even ratios differ by a tenth from run
to run. The rows of the topic and of the Parquet files (uncompressed) have the same columns (partition,
offset, timestamp, payload) and the same values.

    read       rows per second into Spark's no-op sink, as a batch and as a stream (one large micro-batch)
    copy       topic to topic: source and sink, and the fused path (`borzoi.spark.pipe`); micro-batches of a
               fourth of the messages, without a query's first, in which Spark starts a process for the sink
    overhead   median duration of micro-batches of a few rows, against Spark's own `rate` source, and against
               the least that a source in Python can do, which shows what of it is Spark's

    python benchmarks/spark.py [--rounds 5] [--megabytes 600] [--cores 2] [--only read,copy,overhead]
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from borzoi import Client
from borzoi.client.arrow import topic_batches
from borzoi.spark import pipe, session
from launch import Launched

STREAM = "benchmark"
PARTITIONS = 2
COLUMNS = ["partition", "offset", "timestamp", "payload"]
BATCH_BYTES = 1 << 20
ALL_AT_ONCE = "100gb"
# Small against a partition, so that few messages are in the segment that is not sealed yet.
SEGMENT_SIZE = "16 MiB"
WARM_ROUNDS = 3
SMALL_BATCHES, SMALL_ROUNDS = 20, 5


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    payload_bytes: int


SIZES = (Size("1 KB", 1024), Size("100 B", 100))
# Ratios to reach, at 1 KB.
GOALS = {"topic, batch": 0.55, "topic, stream": 0.55, "direct, batch": 0.75, "pipe": 2.0}


class Bench:
    def __init__(self, home: Path, megabytes: int, cores: int) -> None:
        self._home = home
        self._megabytes = megabytes
        self.data = home / "data"
        self._server = Launched(
            [sys.executable, "-m", "borzoi", "server", "--data", str(self.data), "--tcp", "127.0.0.1:0"],
            home / "server.log",
        )
        self.connection = f"iggy://iggy:iggy@127.0.0.1:{self._server.port}"
        self._client = Client(self.connection)
        self._client.connect()
        self._client.create_stream(STREAM)
        self._names = count()
        self.spark = session(
            "borzoi benchmark",
            f"local[{cores}]",
            config={"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": cores},
            log_level="ERROR",
        )

    def close(self) -> None:
        self.spark.stop()
        self._client.close()
        self._server.stop()

    # Data

    def fill(self, size: Size) -> int:
        """A topic and Parquet files with the same messages; returns how many."""
        topic, per_batch = _topic(size), max(1, BATCH_BYTES // (size.payload_bytes + 48))
        self._client.create_topic(STREAM, topic, PARTITIONS, segment_size=SEGMENT_SIZE)
        batches = self._megabytes * 1_000_000 // (per_batch * size.payload_bytes) // PARTITIONS
        for _ in range(batches):
            payload = os.urandom(size.payload_bytes)
            for partition in range(PARTITIONS):
                self._client.send_messages(STREAM, topic, partition, [payload] * per_batch)
        directory = self._home / f"parquet-{topic}"
        directory.mkdir()
        for partition in range(PARTITIONS):
            _write_parquet(self._client, topic, partition, directory / f"{partition}.parquet")
        return batches * per_batch * PARTITIONS

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"connection": self.connection, "stream": STREAM, "topic": topic, **more}

    def source(self, size: Size, **more: str) -> dict[str, str]:
        return self.options(_topic(size), columns=",".join(COLUMNS), **more)

    def new_topic(self) -> str:
        name = f"target-{next(self._names)}"
        self._client.create_topic(STREAM, name, PARTITIONS)
        return name

    def drop_topic(self, name: str) -> int:
        topic = self._client.get_topic(STREAM, name)
        self._client.delete_topic(STREAM, name)
        return 0 if topic is None else topic.messages_count

    def checkpoint(self) -> str:
        path = self._home / "checkpoints" / str(next(self._names))
        return str(path)

    # Ways to read. Each returns the seconds it took.

    def read_parquet(self, size: Size) -> float:
        frame = self.spark.read.parquet(str(self._home / f"parquet-{_topic(size)}"))
        return _timed(lambda: frame.write.format("noop").mode("overwrite").save())

    def read_batch(self, size: Size, **more: str) -> float:
        options = self.source(size, **more)
        frame = self.spark.read.format("borzoi").options(**options).load()
        return _timed(lambda: frame.write.format("noop").mode("overwrite").save())

    def read_direct(self, size: Size) -> float:
        return self.read_batch(size, direct="true", dataDirectory=str(self.data))

    def read_stream(self, size: Size) -> float:
        options = self.source(size, maxBytesPerTrigger=ALL_AT_ONCE)
        frame = self.spark.readStream.format("borzoi").options(**options).load()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", self.checkpoint())
            .trigger(availableNow=True)
            .start()
        )
        return _batch_seconds(query)

    def stream_parquet(self, size: Size) -> float:
        path = str(self._home / f"parquet-{_topic(size)}")
        schema = self.spark.read.parquet(path).schema
        query = (
            self.spark.readStream.schema(schema)
            .parquet(path)
            .writeStream.format("noop")
            .option("checkpointLocation", self.checkpoint())
            .trigger(availableNow=True)
            .start()
        )
        return _batch_seconds(query)

    # Ways to copy

    def copy_plain(self, size: Size) -> float:
        target = self.new_topic()
        query = (
            self.spark.readStream.format("borzoi")
            .options(**self._a_fourth_of(size))
            .load()
            .select("partition", "payload")
            .writeStream.format("borzoi")
            .options(**self.options(target, partitioning="partition"))
            .option("checkpointLocation", self.checkpoint())
            .trigger(availableNow=True)
            .start()
        )
        taken = _seconds_for_all(query)
        self.drop_topic(target)
        return taken

    def copy_fused(self, size: Size) -> float:
        return self._fused(size, lambda rows: rows.select(["partition", "payload"]))

    def copy_raw(self, size: Size) -> float:
        return self._fused(size, None)

    def _fused(self, size: Size, function: Callable | None) -> float:
        target = self.new_topic()
        query = pipe(
            self._a_fourth_of(size),
            function,
            stream=STREAM,
            topic=target,
            checkpoint=self.checkpoint(),
            trigger={"availableNow": True},
        )
        taken = _seconds_for_all(query)
        self.drop_topic(target)
        return taken

    def _a_fourth_of(self, size: Size) -> dict[str, str]:
        """At a time. Headers count too, so a little is left for a fifth."""
        return self.source(size, maxBytesPerTrigger=f"{self._megabytes // 4}mb")

    # Micro-batches of a few rows

    def overhead(self) -> dict[str, float]:
        """Median milliseconds per micro-batch."""
        topic = self.new_topic()
        self.spark.dataSource.register(LeastSource)
        least = self.spark.readStream.format("least").load()
        rate = (
            self.spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=PARTITIONS, numPartitions=PARTITIONS)
            .load()
        )
        ours = (
            self.spark.readStream.format("borzoi")
            .options(**self.options(topic, startingOffsets="earliest", publishOffsets="false"))
            .load()
        )
        ways = (
            ("rate", rate, lambda: None),
            ("python", least, lambda: None),
            ("borzoi", ours, lambda: self._send_one(topic)),
        )
        found: dict[str, list[int]] = {name: [] for name, _, _ in ways}
        for number in range(SMALL_ROUNDS + 1):
            for name, frame, feed in ways:
                durations = self._small_batches(frame, feed)
                if number:  # the first round warms up
                    found[name] += durations
        self.drop_topic(topic)
        return {name: statistics.median(durations) for name, durations in found.items()}

    def _small_batches(self, frame, feed: Callable[[], None]) -> list[int]:
        """Milliseconds of every micro-batch of one query, without its first ones."""
        os.sync()  # checkpoints wait for the disk, which may still be writing what went before
        query = frame.writeStream.format("noop").option("checkpointLocation", self.checkpoint()).start()
        durations: dict[int, int] = {}
        give_up = time.monotonic() + 60
        while len(durations) < SMALL_BATCHES and time.monotonic() < give_up:
            feed()
            time.sleep(0.05)
            for progress in query.recentProgress:
                if progress.numInputRows:
                    durations[progress.batchId] = progress.durationMs["triggerExecution"]
        query.stop()
        return list(durations.values())[5:]

    def _send_one(self, topic: str) -> None:
        for partition in range(PARTITIONS):
            self._client.send_messages(STREAM, topic, partition, [b"x"])


class LeastReader(DataSourceStreamReader):
    def initialOffset(self) -> dict:  # noqa: N802 - Spark's names
        return {"n": 0}

    def latestOffset(self, start: dict | None = None, limit: object = None) -> dict:  # noqa: N802, ARG002
        return {"n": (start or self.initialOffset())["n"] + 1}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": pa.array([partition.value], pa.int64())})


class LeastSource(DataSource):
    """As little as a streaming source in Python can do."""

    @classmethod
    def name(cls) -> str:
        return "least"

    def schema(self) -> str:
        return "number long"

    def streamReader(self, schema: object) -> LeastReader:  # noqa: N802, ARG002
        return LeastReader()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=600, help="payload per message size")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", default="read,copy,overhead")
    arguments = parser.parse_args()
    wanted = set(arguments.only.split(","))
    home = Path(tempfile.mkdtemp(prefix="borzoi-spark-"))
    bench = Bench(home, arguments.megabytes, arguments.cores)
    try:
        for size in SIZES if wanted & {"read", "copy"} else ():
            rows = bench.fill(size)
            print(f"\n{size.name}: {rows:,} messages in {PARTITIONS} partitions, {arguments.rounds} rounds")
            if "read" in wanted:
                _compare(size, rows, arguments.rounds, _reads(bench))
            if "copy" in wanted:
                _compare(size, rows, arguments.rounds, _copies(bench))
        if "overhead" in wanted:
            found = bench.overhead()
            print(f"\nmicro-batch of {PARTITIONS} rows, ms:", {name: round(ms) for name, ms in found.items()})
            print(f"  over rate {found['borzoi'] - found['rate']:+.0f} (goal: at most +30),", end=" ")
            print(f"of which any source in Python {found['python'] - found['rate']:+.0f}")
    finally:
        bench.close()
        shutil.rmtree(home, ignore_errors=True)


def _reads(bench: Bench) -> dict[str, Callable[[Size], float]]:
    return {
        "parquet, batch": bench.read_parquet,
        "topic, batch": bench.read_batch,
        "direct, batch": bench.read_direct,
        "parquet, stream": bench.stream_parquet,
        "topic, stream": bench.read_stream,
    }


def _copies(bench: Bench) -> dict[str, Callable[[Size], float]]:
    return {
        "source + sink": bench.copy_plain,
        "pipe with a function": bench.copy_fused,
        "pipe": bench.copy_raw,
    }


def _compare(size: Size, rows: int, rounds: int, ways: dict[str, Callable[[Size], float]]) -> None:
    os.sync()
    for _ in range(WARM_ROUNDS):  # the JVM compiles, workers start, pages are touched
        for run in ways.values():
            run(size)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            taken[name].append(run(size))
    first = next(iter(ways))
    for name, seconds in taken.items():
        rate = rows / statistics.median(seconds)
        base = f"parquet, {name.partition(', ')[2]}" if first.startswith("parquet") else first
        ratio = statistics.median(taken[base]) / statistics.median(seconds)
        mb = rate * size.payload_bytes / 1e6
        goal = f" (goal: {GOALS[name]})" if size is SIZES[0] and name in GOALS else ""
        print(f"  {name:22} {rate / 1e3:8,.0f} k msg/s  {mb:7,.0f} MB/s  {ratio:5.2f} of {base}{goal}")


def _topic(size: Size) -> str:
    return f"messages-{size.payload_bytes}"


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _batch_seconds(query) -> float:
    """What the micro-batches with rows took, without the start of the query."""
    query.awaitTermination()
    return sum(each.durationMs["addBatch"] for each in query.recentProgress if each.numInputRows) / 1000


def _seconds_for_all(query) -> float:
    """What it would have taken if all its micro-batches had been like those after the first."""
    query.awaitTermination()
    done = [(_messages(each), each.durationMs["addBatch"]) for each in query.recentProgress]
    done = [(messages, taken) for messages, taken in done if messages]
    counted = done[1:]
    rate = sum(messages for messages, _ in counted) / sum(taken for _, taken in counted)
    return sum(messages for messages, _ in done) / rate / 1000


def _messages(progress) -> int:
    """Read in a micro-batch; the rows of a pipe are not messages."""
    offsets = (progress.sources[0].startOffset, progress.sources[0].endOffset)
    start, end = (json.loads(text) if text else None for text in offsets)
    return _read_until(end) - _read_until(start)


def _read_until(offset: dict | None) -> int:
    return sum(offset["partitions"].values()) if offset else 0


def _write_parquet(client: Client, topic: str, partition: int, path: Path) -> None:
    writer = None
    for batch in topic_batches(client, STREAM, topic, partitions=[partition], columns=COLUMNS):
        if writer is None:
            writer = pq.ParquetWriter(path, batch.schema, compression="none", use_dictionary=False)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


if __name__ == "__main__":
    main()
