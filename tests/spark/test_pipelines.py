"""Pipelines that write from foreachBatch: exactly once, by the producer and the epoch that they name."""

import pytest

pytest.importorskip("pyspark", reason="needs borzoi[spark]")

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
