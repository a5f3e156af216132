"""Rows written with Spark are messages, once, in order, whatever fails on the way."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from borzoi.client.values import PollingStrategy
from borzoi.spark.routing import partition_of_key


@pytest.fixture
def write(spark, borzoi_server):
    def write(rows, schema, **options):
        writer = spark.createDataFrame(rows, schema).repartition(2).write.format("borzoi").mode("append")
        target = {"connection": borzoi_server.connection_string, "stream": "s", "topic": "out"}
        writer.options(**{**target, **options}).save()

    return write


@pytest.fixture
def topics(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "out", 3)
    return borzoi


def messages(client, topic="out"):
    """All messages of a topic, by partition."""
    found = {}
    for partition in client.get_topic("s", topic).partitions:
        found[partition.id] = []
        while True:
            start = PollingStrategy.Offset(len(found[partition.id]))
            polled = client.poll_messages("s", topic, partition.id, start, 1000, auto_commit=False)
            if not polled:
                break
            found[partition.id] += polled
    return found


def payloads(client, topic="out"):
    return {number: [each.payload for each in found] for number, found in messages(client, topic).items()}


def fill(client, topic, *, batches=4, size=100, payload_bytes=0):
    client.create_topic("s", topic, 3)
    for partition in range(3):
        for batch in range(batches):
            texts = [f"{partition}-{batch}-{n}".ljust(payload_bytes, ".") for n in range(size)]
            client.send_messages("s", topic, partition, texts)


def test_rows_go_to_the_partition_that_a_column_names(topics, write):
    rows = [(f"row {n}".encode(), n % 3) for n in range(300)]
    write(rows, "payload binary, partition int", partitioning="partition")
    found = payloads(topics)
    for partition in range(3):
        assert sorted(found[partition]) == sorted(payload for payload, number in rows if number == partition)


def test_rows_with_a_key_go_where_every_client_puts_them(topics, write):
    rows = [(f"row {n}", f"customer {n % 10}", {"n": str(n)}) for n in range(200)]
    write(
        rows,
        "payload string, customer string, headers map<string,string>",
        partitioning="key",
        keyColumn="customer",
    )
    found = messages(topics)
    assert sum(map(len, found.values())) == 200
    for partition, stored in found.items():
        for message in stored:
            number = message.headers["n"]
            assert message.payload.decode() == f"row {number}"
            assert partition_of_key(f"customer {int(number) % 10}", "key", 3) == partition


def test_columns_are_written_in_a_format_to_a_new_topic(topics, write):
    write(
        [(n, f"name {n}") for n in range(50)],
        "id long, name string",
        format="json",
        topic="new",
        createTopic="true",
        partitions="2",
        batchRows="10",
    )
    found = payloads(topics, "new")
    assert len(found) == 2
    objects = [json.loads(each) for stored in found.values() for each in stored]
    assert sorted(each["id"] for each in objects) == list(range(50))
    assert all(each["name"] == f"name {each['id']}" for each in objects)


def test_a_named_epoch_is_written_once(topics, write):
    for _ in range(2):
        write([(b"a",), (b"b",)], "payload binary", producer="nightly", epoch="20260501")
    write([(b"c",)], "payload binary", producer="nightly", epoch="20260502")
    assert sorted(each for stored in payloads(topics).values() for each in stored) == [b"a", b"b", b"c"]


def test_nothing_of_a_write_that_fails_is_written(topics, write):
    rows = [(b"good",)] * 100 + [(None,)]
    with pytest.raises(PySparkException, match="null payload; filter such rows out"):
        write(rows, "payload binary")
    assert not any(payloads(topics).values())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partitioning": "key"}, 'column "key" is missing'),
        ({"partitionning": "key"}, 'did you mean "partitioning"'),
        ({"topic": "missing"}, "createTopic"),
    ],
)
def test_mistakes_are_told_before_a_task_runs(topics, write, options, text):
    with pytest.raises(PySparkException, match=text):
        write([(b"a",)], "payload binary", **options)


def test_overwriting_is_refused(spark, topics, borzoi_server):
    rows = spark.createDataFrame([(b"a",)], "payload binary")
    target = {"connection": borzoi_server.connection_string, "stream": "s", "topic": "out"}
    with pytest.raises(PySparkException, match="can only be appended to"):
        rows.write.format("borzoi").mode("overwrite").options(**target).save()


def faulty_source():
    """The data source with a sink that raises where files in a directory say so, each of them once.

    Made in a function, so that it is sent to Spark's workers by value: they cannot import tests.
    """
    from borzoi.spark.sink import StreamSink
    from borzoi.spark.source import BorzoiDataSource

    class FaultySink(StreamSink):
        def __init__(self, sink, faults):
            super().__init__(sink._writer)
            self.faults = faults

        def fail_if_wanted(self, what):
            fault = Path(self.faults, what)
            if fault.exists():
                fault.unlink()
                raise RuntimeError(f"injected: {what}")

        def write(self, iterator):
            message = super().write(iterator)
            if message.report.task == 0:
                self.fail_if_wanted(f"staged-{message.report.epoch}")
            return message

        def commit(self, messages, batchId):  # noqa: N803 - Spark's name
            self.fail_if_wanted(f"not-committed-{batchId}")
            super().commit(messages, batchId)
            self.fail_if_wanted(f"committed-{batchId}")

    class FaultySource(BorzoiDataSource):
        @classmethod
        def name(cls):
            return "faulty_borzoi"

        def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
            faults = self.options["faults"]
            del self.options["faults"]
            try:
                return FaultySink(super().streamWriter(schema, overwrite), faults)
            finally:
                self.options["faults"] = faults

    return FaultySource


def run_to_the_end(start):
    """Start a query again and again from its checkpoint; returns the texts of what ended it."""
    failures = []
    while len(failures) < 10:
        query = start()
        try:
            assert query.awaitTermination(120)
        except PySparkException as error:
            failures.append(str(error))
        else:
            return failures
        finally:
            query.stop()
    raise AssertionError(failures)


def test_a_stream_is_written_exactly_once_whatever_fails(spark, topics, borzoi_server, checkpoint, tmp_path):
    # Large enough that a task which reads none of its rows leaves some of them in the JVM.
    fill(topics, "in", payload_bytes=10_000)
    spark.dataSource.register(faulty_source())
    faults = tmp_path / "faults"
    faults.mkdir()
    for fault in ("staged-0", "staged-1", "committed-1", "not-committed-2", "committed-3"):
        (faults / fault).touch()
    place = {"connection": borzoi_server.connection_string, "stream": "s"}

    def start():
        rows = spark.readStream.format("borzoi").options(**place, topic="in", maxRowsPerTrigger="300").load()
        return (
            rows.writeStream.format("faulty_borzoi")
            .options(**place, topic="out", partitioning="partition", faults=str(faults))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    failures = run_to_the_end(start)
    assert [
        name
        for name in ("staged-0", "staged-1", "committed-1", "not-committed-2", "committed-3")
        if not any(f"injected: {name}" in text for text in failures)
    ] == []
    assert len(failures) == 5
    assert list(faults.iterdir()) == []
    before, after = messages(topics, "in"), messages(topics)
    for partition in range(3):
        assert [each.payload for each in before[partition]] == [each.payload for each in after[partition]]
        assert [each.id for each in before[partition]] == [each.id for each in after[partition]]


def test_complete_output_is_refused(spark, topics, borzoi_server, checkpoint):
    counts = spark.readStream.format("rate").load().groupBy().count().selectExpr("string(count) payload")
    target = {"connection": borzoi_server.connection_string, "stream": "s", "topic": "out"}
    query = (
        counts.writeStream.format("borzoi")
        .options(**target)
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    with pytest.raises(PySparkException, match="can only be appended to"):
        query.awaitTermination(60)


RETRYING = """
import sys

from pyspark import TaskContext

from borzoi.spark import session
from borzoi.spark.sink import BatchSink, StreamSink
from borzoi.spark.source import BorzoiDataSource

connection, checkpoint = sys.argv[1:]


def fail_at_first():
    if TaskContext.get().attemptNumber() < 2:
        raise RuntimeError("injected, after everything was staged")


class Retried(BorzoiDataSource):
    @classmethod
    def name(cls):
        return "retried"

    def writer(self, schema, overwrite):
        class Sink(BatchSink):
            def write(self, iterator):
                message = super().write(iterator)
                fail_at_first()
                return message

        return Sink(super().writer(schema, overwrite)._writer)

    def streamWriter(self, schema, overwrite):
        class Sink(StreamSink):
            def write(self, iterator):
                message = super().write(iterator)
                fail_at_first()
                return message

        return Sink(super().streamWriter(schema, overwrite)._writer)


spark = session("retries", "local[2,3]", config={"spark.driver.memory": "1g"}, log_level="OFF")
spark.dataSource.register(Retried)
place = {"connection": connection, "stream": "s", "partitioning": "partition"}
rows = spark.range(0, 100, 1, 2).selectExpr("string(id) payload", "int(id % 3) partition")
rows.write.format("retried").mode("append").options(**place, topic="batch").save()
source = {"connection": connection, "stream": "s", "topic": "in"}
query = (
    spark.readStream.format("borzoi").options(**source).load()
    .writeStream.format("retried").options(**place, topic="out")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
assert query.awaitTermination(120)
spark.stop()
"""


def test_tasks_that_are_repeated_write_once(topics, borzoi_server, checkpoint):
    """In a session of its own: only with a number of failures in its master does a local one repeat tasks."""
    topics.create_topic("s", "batch", 3)
    fill(topics, "in", batches=1)
    command = [sys.executable, "-c", RETRYING, borzoi_server.connection_string, checkpoint]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert payloads(topics, "out") == payloads(topics, "in")
    written = [int(each) for stored in payloads(topics, "batch").values() for each in stored]
    assert sorted(written) == list(range(100))
