"""Topic to topic without the JVM: the same guarantees as through the source and the sink."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from borzoi.client.values import PollingStrategy, SendMessage
from borzoi.spark import pipe
from borzoi.spark.fused import PipeSink, PipeTarget

PER_PARTITION = 400


@pytest.fixture
def topics(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "in", 3)
    borzoi.create_topic("s", "out", 3)
    for partition in range(3):
        for batch in range(4):
            numbers = range(batch * 100, batch * 100 + 100)
            sent = [SendMessage(f"{partition}-{n}", n + 1, {"n": f"{n}"}) for n in numbers]
            borzoi.send_messages("s", "in", partition, sent)
    return borzoi


@pytest.fixture
def start(spark, borzoi_server, checkpoint):
    def start(fn=None, rows_per_trigger=300, source_options=None, **target):
        source = {
            "connection": borzoi_server.connection_string,
            "stream": "s",
            "topic": "in",
            "maxRowsPerTrigger": rows_per_trigger,
            "minPartitions": 6,
            **(source_options or {}),
        }
        target = {"stream": "s", "topic": "out", **target}
        return pipe(source, fn, checkpoint=checkpoint, trigger={"availableNow": True}, spark=spark, **target)

    return start


def messages(client, partition):
    return client.poll_messages("s", "out", partition, PollingStrategy.First(), 1000, auto_commit=False)


def finish(query):
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def test_messages_are_copied_as_they_are(topics, start):
    finish(start())
    for partition in range(3):
        before = topics.poll_messages("s", "in", partition, PollingStrategy.First(), 1000, auto_commit=False)
        after = messages(topics, partition)
        assert len(after) == PER_PARTITION
        for one, other in zip(before, after, strict=True):
            assert (one.payload, one.id, one.headers) == (other.payload, other.id, other.headers)


def test_a_function_changes_messages_exactly_once_whatever_fails(topics, start, tmp_path, monkeypatch):
    """Spark's tasks and its driver fail in turn, before and after the broker has committed."""
    faults = tmp_path / "faults"
    faults.mkdir()
    for fault in ("task", "committed-1", "not-committed-2"):
        (faults / fault).touch()
    directory = str(faults)

    def fail_if_wanted(what):
        fault = Path(directory, what)
        if fault.exists():
            fault.unlink()
            raise RuntimeError(f"injected: {what}")

    class FaultyPipe(PipeSink):
        def commit(self, messages, batchId):  # noqa: N803 - Spark's name
            fail_if_wanted(f"not-committed-{batchId}")
            super().commit(messages, batchId)
            fail_if_wanted(f"committed-{batchId}")

    class FaultyTarget(PipeTarget):
        def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
            return FaultyPipe(super().streamWriter(schema, overwrite)._copier)

    def marked(rows):
        if rows["offset"][0].as_py() > 100:
            fail_if_wanted("task")
        payloads = [b"<" + payload + b">" for payload in rows["payload"].to_pylist()]
        return pa.RecordBatch.from_pydict({"payload": payloads})

    monkeypatch.setattr(sys.modules["borzoi.spark.pipe"], "PipeTarget", FaultyTarget)
    failures = []
    while True:
        try:
            finish(start(marked))
            break
        except PySparkException as error:
            failures.append(str(error))
            assert len(failures) < 6
    assert len(failures) == 3
    assert list(faults.iterdir()) == []
    ids = set()
    for partition in range(3):
        found = messages(topics, partition)
        assert [each.payload.decode() for each in found] == [
            f"<{partition}-{n}>" for n in range(PER_PARTITION)
        ]
        ids.update(each.id for each in found)
    assert len(ids) == 3 * PER_PARTITION


def test_formats_are_applied_without_a_function_too(topics, start):
    finish(start(format="json", source_options={"columns": "offset"}))
    assert [json.loads(each.payload) for each in messages(topics, 1)] == [
        {"offset": n} for n in range(PER_PARTITION)
    ]


def test_a_query_goes_on_where_it_ended(topics, start):
    finish(start())
    topics.send_messages("s", "in", 1, ["one more"])
    finish(start())
    assert [each.payload for each in messages(topics, 1)][-1] == b"one more"
    assert sum(len(messages(topics, partition)) for partition in range(3)) == 3 * PER_PARTITION + 1
