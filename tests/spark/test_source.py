"""The streaming source in real queries: where they start, what they survive, what Spark makes of the rows."""

import json
import os
import subprocess
import sys
import uuid
from contextlib import contextmanager

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as f

from borzoi.client.values import Consumer
from borzoi.spark.rows import ROW_SCHEMA

TIMEOUT_S = 90


@pytest.fixture
def topic(spark, borzoi_server, borzoi, checkpoint):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    return Topic(spark, borzoi_server, borzoi, checkpoint)


class Topic:
    """A topic with two partitions, and queries that read it and end by themselves."""

    def __init__(self, spark, server, client, checkpoint):
        self.spark, self.server, self.client, self.checkpoint = spark, server, client, checkpoint

    def send(self, partition_id, *payloads, topic="t"):
        self.client.send_messages("s", topic, partition_id, payloads)

    def stream(self, topic="t", **given):
        return (
            self.spark.readStream.format("borzoi")
            .option("connection", self.server.connection_string)
            .options(**{"stream": "s", "topic": topic, "deadline": "20s", **given})
        )

    def texts(self, **given):
        return self.stream(columns="payload", **given).load().select(f.col("payload").cast("string"))

    def run(self, frame, mode="append", checkpoint=None):
        """All rows that the query has given out, and the query, which has ended."""
        name = f"q{uuid.uuid4().hex}"
        batches = []
        query = (
            frame.writeStream.queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", checkpoint or self.checkpoint)
            .foreachBatch(lambda batch, number: batches.append(batch.collect()))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()
        return [row for batch in batches for row in batch], query

    def read(self, **given):
        """The payloads that a query reads."""
        rows, _ = self.run(self.texts(**given))
        return sorted(row[0] for row in rows)


class TestReading:
    def test_it_is_found_by_its_name_and_has_a_schema(self, topic):
        frame = topic.stream().load()
        assert frame.isStreaming
        assert frame.schema.simpleString() == ROW_SCHEMA.simpleString()

    def test_every_message_is_a_row(self, topic):
        topic.send(0, "a", "b")
        topic.send(1, "c")
        rows, query = topic.run(topic.stream().load().drop("headers"))
        assert sorted((row.partition, row.offset, bytes(row.payload)) for row in rows) == [
            (0, 0, b"a"),
            (0, 1, b"b"),
            (1, 0, b"c"),
        ]
        assert {(row.stream, row.topic, row.key) for row in rows} == {("s", "t", None)}
        assert query.recentProgress[0].numInputRows == 3

    def test_it_can_be_used_from_sql(self, topic):
        topic.send(0, "a", "b", "a")
        rows = topic.spark.sql(
            f"""CREATE OR REPLACE TEMPORARY VIEW messages USING borzoi
            OPTIONS (connection '{topic.server.connection_string}', stream 's', topic 't')"""
        )
        assert rows.collect() == []
        found = topic.spark.sql(
            "SELECT CAST(payload AS STRING) AS word, count(*) AS n FROM messages GROUP BY 1 ORDER BY 1"
        )
        assert [tuple(row) for row in found.collect()] == [("a", 2), ("b", 1)]

    def test_it_cannot_be_a_table_and_says_what_to_do(self, topic):
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW instead"):
            topic.spark.sql(
                f"""CREATE TABLE messages_table USING borzoi
                OPTIONS (connection '{topic.server.connection_string}', stream 's', topic 't')"""
            )

    def test_json_becomes_columns(self, topic):
        topic.send(0, '{"user": "a", "n": 1}', '{"user": "b", "n": 2}')
        frame = topic.stream(format="json", schema="user string, n long", columns="offset").load()
        rows, _ = topic.run(frame)
        assert [tuple(row) for row in rows] == [("a", 1, 0), ("b", 2, 1)]

    def test_a_wrong_option_fails_before_the_query_starts(self, topic):
        with pytest.raises(Exception, match='did you mean "maxRowsPerTrigger"') as caught:
            topic.stream(maxRowPerTrigger="5").load()
        assert "iggy:iggy" not in str(caught.value)

    def test_an_option_that_a_stream_cannot_have_is_named_last(self, topic):
        with pytest.raises(StreamingQueryException) as caught:
            topic.read(endingOffsets="latest")
        assert 'option "endingOffsets" is "latest"' in str(caught.value)
        assert "UnboundLocalError" not in str(caught.value)


class TestStarting:
    """All ways to say where are in test_spark_reader.py; here, that Spark asks, and when it does not."""

    def test_offsets_may_be_given_by_partition(self, topic):
        topic.send(0, "a", "b", "c")
        topic.send(1, "x", "y")
        assert topic.read(startingOffsets='{"0": 2, "1": 1}') == ["c", "y"]

    def test_a_checkpoint_wins_over_what_the_options_say(self, topic):
        topic.send(0, "old")
        assert topic.read(startingOffsets="latest") == []
        topic.send(0, "new")
        assert topic.read(startingOffsets="earliest") == ["new"]

    def test_latest_stays_where_it_was_when_the_first_batch_is_repeated(self, topic):
        def fail(batch, number):
            raise RuntimeError("the sink is not ready")

        topic.send(0, "old", "old")
        first = topic.texts(startingOffsets="latest").writeStream.foreachBatch(fail)
        query = first.option("checkpointLocation", topic.checkpoint).start()
        with pytest.raises(StreamingQueryException, match="the sink is not ready"):
            query.awaitTermination(TIMEOUT_S)
        topic.send(0, "new")
        assert topic.read(startingOffsets="latest") == ["new"]


class TestChanges:
    def failure(self, topic, **given):
        with pytest.raises(StreamingQueryException) as caught:
            topic.read(**given)
        return str(caught.value)

    def test_a_topic_made_anew_fails_the_query_or_is_read_from_its_start(self, topic):
        topic.send(0, "a", "b")
        assert topic.read() == ["a", "b"]
        topic.client.delete_topic("s", "t")
        topic.server.advance(1)
        topic.client.create_topic("s", "t", 1)
        topic.send(0, "new")
        assert "deleted and created again" in self.failure(topic)
        assert topic.read(failOnDataLoss="false") == ["new"]
        assert topic.read() == []

    @pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
    def test_retention_that_overtakes_fails_the_query_or_is_stepped_over(self, topic):
        # What a group has not read is not deleted, and Spark's own would be such a group.
        unseen = {"publishOffsets": "false"}
        topic.send(0, "first")
        assert topic.read(**unseen) == ["first"]
        for number in range(30):
            topic.send(0, f"{number:02}" + "x" * 100_000)
        topic.client.delete_segments("s", "t", 0, 1)
        first = topic.client.get_topic_extent("s", "t").partitions[0].first_offset
        assert f"partition 0: offsets [1, {first}) were deleted by retention" in self.failure(topic, **unseen)
        assert len(topic.read(**unseen, failOnDataLoss="false")) == 31 - first

    @contextmanager
    def running(self, topic, **given):
        """A query that goes on until the block ends, and what it has read."""
        seen = []
        query = (
            topic.texts(**given)
            .writeStream.option("checkpointLocation", topic.checkpoint)
            .foreachBatch(lambda batch, number: seen.extend(row[0] for row in batch.collect()))
            .start()
        )
        try:
            query.processAllAvailable()
            yield query, seen
        finally:
            query.stop()

    def test_a_partition_that_is_added_is_read_while_the_query_runs(self, topic):
        with self.running(topic, startingOffsets="latest") as (query, seen):
            topic.client.create_partitions("s", "t", 1)
            topic.send(2, "new")
            query.processAllAvailable()
            assert seen == ["new"]
            topic.server.restart()
            topic.send(0, "after the restart")
            query.processAllAvailable()
            assert seen == ["new", "after the restart"]

    def test_a_topic_that_is_away_is_waited_for_if_the_user_wants_so(self, topic):
        with self.running(topic, failOnDataLoss="false", publishOffsets="false") as (query, seen):
            topic.send(0, "old")
            query.processAllAvailable()
            topic.client.delete_topic("s", "t")
            query.processAllAvailable()
            assert query.isActive
            topic.server.advance(1)
            topic.client.create_topic("s", "t", 1)
            topic.send(0, "new")
            query.processAllAvailable()
            assert seen == ["old", "new"]


class TestProgress:
    def test_available_now_reads_in_several_batches_and_publishes_them(self, topic):
        for partition_id in (0, 1):
            topic.send(partition_id, *(f"{number}" for number in range(50)))
        rows, query = topic.run(topic.texts(maxRowsPerTrigger="30"))
        counts = [each.numInputRows for each in query.recentProgress if each.numInputRows]
        assert len(rows) == 100
        assert counts == [30, 30, 30, 10]
        stored = topic.client.get_consumer_offset("s", "t", 0, consumer=Consumer.group("spark"))
        assert stored.stored_offset == 49

    def test_the_lag_is_in_the_progress(self, topic):
        topic.send(0, *(f"{number}" for number in range(50)))
        _, query = topic.run(topic.texts(maxRowsPerTrigger="20"))
        first = query.recentProgress[0].sources[0]
        assert json.loads(first.endOffset)["partitions"]["0"] == 20
        assert json.loads(first.latestOffset)["partitions"]["0"] == 50

    def test_more_tasks_read_the_same(self, topic):
        for number in range(20):
            topic.send(0, *(f"{number}-{i}-{'x' * 2000}" for i in range(10)))
        assert len(set(topic.read(minPartitions="4"))) == 200


class TestQueries:
    def test_words_are_counted(self, topic):
        topic.send(0, "a b a", "c")
        topic.send(1, "b a")
        words = topic.texts().select(f.explode(f.split("payload", " ")).alias("word"))
        rows, _ = topic.run(words.groupBy("word").count(), mode="complete")
        assert sorted(map(tuple, rows)) == [("a", 3), ("b", 2), ("c", 1)]

    def test_windows_with_a_watermark_are_given_out_when_they_are_over(self, topic):
        def at(second, n):
            return json.dumps({"at": f"2026-01-01T00:00:{second:02}Z", "n": n})

        counts = (
            topic.stream(format="json", schema="at timestamp, n long", columns="none")
            .load()
            .withWatermark("at", "5 seconds")
            .groupBy(f.window("at", "10 seconds"))
            .agg(f.sum("n").alias("n"))
            .select(f.date_format("window.start", "ss").alias("start"), "n")
        )
        topic.send(0, at(1, 1), at(9, 2), at(12, 4))
        assert topic.run(counts)[0] == []
        topic.send(0, at(30, 8))
        rows, _ = topic.run(counts)
        assert sorted(map(tuple, rows)) == [("00", 3), ("10", 4)]

    def test_duplicates_are_dropped(self, topic):
        topic.send(0, "a", "b", "a")
        frame = topic.texts().dropDuplicates(["payload"])
        assert sorted(row[0] for row in topic.run(frame)[0]) == ["a", "b"]
        topic.send(1, "b", "c")
        assert [row[0] for row in topic.run(frame)[0]] == ["c"]

    def test_two_topics_are_joined(self, topic):
        topic.client.create_topic("s", "payments", 1)
        topic.send(0, '{"order": 1, "item": "pen"}', '{"order": 2, "item": "ink"}')
        topic.send(0, '{"order": 2, "paid": 5}', topic="payments")
        orders = topic.stream(format="json", schema="order long, item string", columns="none").load()
        payments = topic.stream(
            "payments", format="json", schema="order long, paid long", columns="none"
        ).load()
        joined = orders.join(payments, "order")
        assert [tuple(row) for row in topic.run(joined)[0]] == [(2, "ink", 5)]
        topic.send(0, '{"order": 1, "paid": 3}', topic="payments")
        assert [tuple(row) for row in topic.run(joined)[0]] == [(1, "pen", 3)]


CONNECT = """
import sys
from pyspark.sql import SparkSession
from borzoi.spark.source import BorzoiDataSource

spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(BorzoiDataSource)
options = {"connection": sys.argv[1], "stream": "s", "topic": "t"}
print("batch", spark.read.format("borzoi").options(**options).load().count())
query = (
    spark.readStream.format("borzoi").options(**options).load()
    .writeStream.format("memory").queryName("seen").option("checkpointLocation", sys.argv[2])
    .trigger(availableNow=True).start()
)
query.awaitTermination(60)
print("stream", spark.table("seen").count())
spark.stop()
"""


def test_it_works_over_spark_connect(topic, borzoi_server, tmp_path):
    """In a process of its own: a process has one kind of session."""
    topic.send(0, "a", "b", "c")
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, "-c", CONNECT, borzoi_server.connection_string, str(tmp_path / "connect")],
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
    )
    assert "batch 3" in ended.stdout, ended.stderr[-3000:]
    assert "stream 3" in ended.stdout, ended.stderr[-3000:]
