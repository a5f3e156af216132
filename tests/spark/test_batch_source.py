"""The batch source in real queries."""

import datetime as dt

import pytest
from pyspark.sql import functions as f

from borzoi.client.values import SendMessage

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def topic(spark, borzoi_server, borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    return Topic(spark, borzoi_server, borzoi)


class Topic:
    def __init__(self, spark, server, client):
        self.spark, self.server, self.client = spark, server, client

    def send(self, partition_id, *payloads):
        self.client.send_messages("s", "t", partition_id, payloads)

    def batch(self, **given):
        return (
            self.spark.read.format("borzoi")
            .option("connection", self.server.connection_string)
            .options(stream="s", topic="t", **given)
        )

    def texts(self, **given):
        return texts(self.batch(columns="payload", **given).load())


def texts(frame):
    return sorted(row[0] for row in frame.select(f.col("payload").cast("string")).collect())


@pytest.fixture(params=["true", "false"])
def pushdown(spark, request):
    """Whether filters are pushed down, and how a reader has to be made for it."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param
    spark.conf.set(PUSHDOWN, before)


def test_all_columns_of_a_message(topic):
    topic.client.send_messages("s", "t", 1, [SendMessage("x", 258, {"key": b"k", "n": 7})])
    (row,) = topic.batch().load().collect()
    received = topic.client.poll_messages("s", "t", 1, count=1, auto_commit=False)[0]
    assert (row.stream, row.topic, row.partition, row.offset) == ("s", "t", 1, 0)
    assert bytes(row.id) == (258).to_bytes(16, "little")
    assert bytes(row.key) == b"k"
    assert {name: bytes(value) for name, value in row.headers.items()} == {
        "key": b"k",
        "n": (7).to_bytes(8, "little"),
    }
    assert row.checksum % 2**64 == received.checksum
    assert row.timestamp.astimezone(dt.UTC) == dt.datetime.fromtimestamp(received.timestamp / 1e6, dt.UTC)


def test_a_schema_of_the_users_chooses_columns(topic):
    topic.send(0, "a")
    frame = topic.batch().schema("offset long, payload binary").load()
    assert frame.columns == ["offset", "payload"]
    assert [(row.offset, bytes(row.payload)) for row in frame.collect()] == [(0, b"a")]


def test_offsets_and_moments_bound_what_is_read(topic):
    topic.send(0, "a", "b", "c")
    topic.send(1, "x")
    assert topic.texts(startingOffsets='{"0": 1, "1": "latest"}', endingOffsets='{"0": 2}') == ["b"]
    topic.server.advance(10)
    moment = dt.datetime.fromtimestamp(topic.server.now_us / 1e6, dt.UTC).isoformat()
    topic.send(1, "late")
    assert topic.texts(startingTimestamp=moment) == ["late"]
    assert topic.texts(endingTimestamp=moment) == ["a", "b", "c", "x"]


def test_an_empty_topic_is_an_empty_frame(topic):
    assert topic.batch().load().count() == 0


def test_filters_have_the_same_result_pushed_down_or_not(topic, pushdown):
    topic.send(0, "a", "b", "c", "d")
    topic.send(1, "x", "y")
    topic.server.advance(10)
    moment = dt.datetime.fromtimestamp(topic.server.now_us / 1e6, dt.UTC)
    topic.send(1, "z")

    def where(condition):
        return texts(topic.batch(pushFilters=pushdown).load().where(condition))

    assert where("partition = 0 AND offset >= 1 AND offset < 3") == ["b", "c"]
    assert where("partition IN (1) AND offset <= 1") == ["x", "y"]
    assert where(f.col("timestamp") >= f.lit(moment)) == ["z"]
    assert where((f.col("timestamp") < f.lit(moment)) & (f.col("partition") == 1)) == ["x", "y"]
    assert where("offset = 1 OR partition = 1") == ["b", "x", "y", "z"]


def test_filters_that_are_pushed_down_are_not_read_and_thrown_away(topic, pushdown):
    topic.send(0, "a", "b", "c", "d")
    frame = topic.batch(pushFilters=pushdown).load().where("partition = 0 AND offset = 3")
    assert texts(frame) == ["d"]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert ("Filter" in plan.split("BatchScan")[0]) == (pushdown == "false")


def test_a_frame_that_did_not_ask_for_it_can_be_filtered_and_used_again(topic, pushdown):
    """Where Spark pushes filters down, it keeps the narrowed read for later queries of the frame."""
    topic.send(0, "a", "b", "c", "d")
    frame = topic.batch().load()
    assert texts(frame.where("offset > 1")) == ["c", "d"]
    assert texts(frame) == ["a", "b", "c", "d"]


def test_a_frame_is_a_snapshot_and_a_new_one_is_not(topic):
    topic.send(0, "a")
    frame = topic.batch().load()
    assert frame.count() == 1
    topic.send(0, "b")
    assert frame.count() == 1
    assert topic.batch().load().count() == 2


def test_splits_read_everything_once(topic):
    for number in range(30):
        topic.send(0, *(f"{number}-{i}-{'x' * 2000}" for i in range(10)))
    frame = topic.batch(maxSplitBytes="100 KB", columns="offset,payload").load()
    assert frame.rdd.getNumPartitions() >= 6
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(300))


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_json_with_a_schema_of_the_users(topic, mode):
    topic.send(0, '{"user": "a", "amount": 1.5}', "?", '{"user": "b"}')
    frame = topic.batch(format="json", mode=mode).schema("offset long, user string, amount double").load()
    expected = [(0, "a", 1.5), (1, None, None), (2, "b", None)]
    if mode == "DROPMALFORMED":
        del expected[1]
    assert [tuple(row) for row in frame.collect()] == expected


def test_the_plan_shows_no_password(topic, capsys):
    topic.batch().load().explain(True)
    assert "iggy:iggy" not in capsys.readouterr().out
