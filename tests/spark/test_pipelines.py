"""Pipelines that write from foreachBatch: exactly once, by the producer and the epoch that they name."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from borzoi.client.values import PollingStrategy

TIMEOUT_S = 120


def test_two_topics_are_written_once_by_a_batch_that_is_repeated(spark, borzoi, borzoi_server, checkpoint):
    """The function fails between its two writes and after them; Spark repeats the micro-batch each time."""
    borzoi.create_stream("s")
    for topic in ("in", "even", "odd"):
        borzoi.create_topic("s", topic, 1)
    borzoi.send_messages("s", "in", 0, [f"{n}" for n in range(300)])
    place = {"connection": borzoi_server.connection_string, "stream": "s"}
    faults = {("between", 0), ("after", 0), ("after", 1)}

    def fail_if_wanted(*when):
        if when in faults:
            faults.remove(when)
            raise RuntimeError(f"injected: {when}")

    def write(rows, number):
        for topic, rest in (("even", 0), ("odd", 1)):
            chosen = rows.where(f"int(string(payload)) % 2 = {rest}").select("payload").coalesce(1)
            writer = chosen.write.format("borzoi").mode("append").options(**place, topic=topic)
            writer.options(producer="pipeline", epoch=number).save()
            if topic == "even":
                fail_if_wanted("between", number)
        fail_if_wanted("after", number)

    def run():
        source = {**place, "topic": "in", "maxRowsPerTrigger": "100"}
        query = (
            spark.readStream.format("borzoi")
            .options(**source)
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()

    for _ in range(3):
        with pytest.raises(PySparkException, match="injected"):
            run()
    run()
    assert not faults
    for topic, rest in (("even", 0), ("odd", 1)):
        found = borzoi.poll_messages("s", topic, 0, PollingStrategy.First(), 1000, auto_commit=False)
        assert [int(each.payload) for each in found] == list(range(rest, 300, 2))


def test_a_checkpoint_that_lost_its_end_fails_the_query_and_loses_nothing(
    spark, borzoi, borzoi_server, checkpoint
):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "in", 1)
    borzoi.create_topic("s", "out", 1)
    place = {"connection": borzoi_server.connection_string, "stream": "s"}

    def run(**options):
        query = (
            spark.readStream.format("borzoi")
            .options(**place, topic="in")
            .load()
            .writeStream.format("borzoi")
            .options(**place, topic="out", **options)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    borzoi.send_messages("s", "in", 0, ["a", "b"])
    run()
    for name in ("offsets", "commits"):
        for path in (Path(checkpoint) / name).iterdir():
            path.unlink()
    borzoi.send_messages("s", "in", 0, ["c"])
    with pytest.raises(PySparkException, match="written with 2 messages and has 3 now"):
        run()
    run(failOnDataLoss="false")
    polled = borzoi.poll_messages("s", "out", 0, PollingStrategy.First(), auto_commit=False)
    assert [message.payload for message in polled] == [b"a", b"b"]
