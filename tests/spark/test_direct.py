"""Spark reads segment files: with a server for the tail, and with none at all."""

import pytest

pytestmark = pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
COUNT = 4000


@pytest.fixture
def topic(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    for start in range(0, COUNT, 100):
        for partition in range(2):
            payloads = [f"{number}:{'x' * 1000}" for number in range(start, start + 100)]
            borzoi.send_messages("s", "t", partition, payloads)
    return borzoi


def numbers(frame):
    number = "split(cast(payload as string), ':')[0] as number"
    rows = frame.selectExpr("partition", "offset", number).collect()
    return sorted((row.partition, row.offset, int(row.number)) for row in rows)


EXPECTED = [(partition, number, number) for partition in range(2) for number in range(COUNT)]


def options_of(server, **more):
    return {"stream": "s", "topic": "t", "direct": "true", "dataDirectory": str(server.path), **more}


def test_a_batch_from_files_and_the_tail_from_the_server(spark, topic, borzoi_server):
    options = options_of(borzoi_server, connection=borzoi_server.connection_string)
    assert numbers(spark.read.format("borzoi").options(**options).load()) == EXPECTED


def test_a_batch_from_files_alone(spark, topic, borzoi_server):
    borzoi_server.stop()
    frame = spark.read.format("borzoi").options(**options_of(borzoi_server)).load()
    assert numbers(frame) == EXPECTED
    assert numbers(frame.where("partition = 1 and offset >= 3990")) == EXPECTED[-10:]


def test_a_stream_from_files_goes_on_where_it_ended(spark, topic, borzoi_server, checkpoint, tmp_path):
    options = options_of(borzoi_server, startingOffsets="earliest", maxBytesPerTrigger="2mb")

    def run():
        query = (
            spark.readStream.format("borzoi")
            .options(**options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    topic.send_messages("s", "t", 0, [f"{COUNT}:"])
    run()
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == sorted([*EXPECTED, (0, COUNT, COUNT)])
