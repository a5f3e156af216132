"""The readers as Spark calls them, with a real broker and without a JVM."""

import datetime as dt
import json
import logging
import pickle
from functools import partial

import pytest

pytest.importorskip("pyspark", reason="needs borzoi[spark]")

from pyspark.sql import datasource as ds
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from borzoi.client.values import Consumer
from borzoi.model.errors import CannotEstablishConnection, InvalidOptionValue, TopicIdNotFound
from borzoi.spark import plan, publish
from borzoi.spark.connections import close_all, new_client
from borzoi.spark.filters import Bounds, FilterTaker, Interval
from borzoi.spark.plan import DataLoss
from borzoi.spark.source import BorzoiDataSource
from pyspark_borzoi import DefaultSource

DEFAULT = ReadMaxBytes(1)  # which of its limits Spark hands back does not matter
ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def no_connection_is_left():
    yield
    close_all()


@pytest.fixture
def topic(borzoi_server, borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    return Topic(borzoi_server, borzoi)


class Topic:
    """A topic with two partitions, and the readers of it that a test makes."""

    def __init__(self, server, client):
        self.server, self.client = server, client
        self.given = {"connection": server.connection_string, "stream": "s", "topic": "t", "deadline": "5s"}
        self.readers = []

    def source(self, **given):
        return BorzoiDataSource(self.given | given)

    def stream_reader(self, **given):
        source = self.source(**({"publishOffsets": "false"} | given))
        reader = source.streamReader(source.schema())
        self.readers.append(reader)
        return reader

    def reader(self, **given):
        source = self.source(**given)
        return source.reader(source.schema())

    def send(self, partition_id, *payloads):
        self.client.send_messages("s", "t", partition_id, payloads)

    def make_anew(self, partitions_count=1):
        self.client.delete_topic("s", "t")
        self.server.advance(1)
        self.client.create_topic("s", "t", partitions_count)

    def stored(self, group, partition_id=0):
        found = self.client.get_consumer_offset("s", "t", partition_id, consumer=Consumer.group(group))
        return None if found is None else found.stored_offset


def payloads(reader, partitions):
    """What the tasks of these partitions read, each with a copy of the reader, as Spark does it."""
    copy = pickle.loads(pickle.dumps(reader))
    return [
        payload.decode()
        for partition in partitions
        for batch in copy.read(pickle.loads(pickle.dumps(partition)))
        for payload in batch["payload"].to_pylist()
    ]


def between(reader, start, end):
    return payloads(reader, reader.partitions(start, end))


def through_json(offset):
    return json.loads(json.dumps(offset))


class TestStream:
    def test_it_reads_what_is_there_and_then_what_comes(self, topic):
        reader = topic.stream_reader()
        topic.send(0, "a", "b")
        start = through_json(reader.initialOffset())
        end = through_json(reader.latestOffset(start, DEFAULT))
        assert end["partitions"] == {"0": 2, "1": 0}
        assert between(reader, start, end) == ["a", "b"]
        assert reader.latestOffset(end, DEFAULT) == end
        topic.send(1, "c")
        later = reader.latestOffset(end, DEFAULT)
        assert between(reader, end, later) == ["c"]

    def test_the_offset_says_which_topic_it_belongs_to(self, topic):
        created_at_us = topic.client.get_topic_extent("s", "t").created_at_us
        assert topic.stream_reader().initialOffset() == {
            "created_at": created_at_us,
            "partitions": {"0": 0, "1": 0},
        }

    def test_it_can_start_at_the_end(self, topic):
        topic.send(0, "a")
        assert topic.stream_reader(startingOffsets="latest").initialOffset()["partitions"] == {"0": 1, "1": 0}

    def test_messages_that_come_while_the_first_batch_is_planned_are_read_once(self, topic):
        topic.send(0, "old", "old")
        reader = topic.stream_reader(startingOffsets="latest")
        start = reader.initialOffset()
        topic.send(0, "a")
        end = through_json(reader.latestOffset(start, DEFAULT))
        topic.send(0, "b")
        # Spark does not keep the start of the first batch but asks again, here and after a restart.
        assert between(reader, reader.initialOffset(), end) == ["a"]
        restarted = topic.stream_reader(startingOffsets="latest")
        assert between(restarted, restarted.initialOffset(), end) == ["a"]
        later = through_json(restarted.latestOffset(end, DEFAULT))
        assert between(restarted, end, later) == ["b"]
        assert restarted.latestOffset(later, DEFAULT) == later

    def test_a_first_batch_without_messages_stays_so_when_it_is_repeated(self, topic):
        topic.send(0, "old")
        reader = topic.stream_reader(startingOffsets="latest")
        end = through_json(reader.latestOffset(reader.initialOffset(), DEFAULT))
        assert reader.latestOffset(end, DEFAULT) == end  # or Spark would make empty batches for ever
        topic.send(0, "new")
        restarted = topic.stream_reader(startingOffsets="latest")
        assert between(restarted, restarted.initialOffset(), end) == []
        assert between(restarted, end, restarted.latestOffset(end, DEFAULT)) == ["new"]

    def test_it_can_start_where_a_group_is(self, topic):
        topic.send(0, "a", "b", "c")
        topic.client.create_consumer_group("s", "t", "billing")
        topic.client.join_consumer_group("s", "t", "billing")
        topic.client.store_consumer_offset("s", "t", 0, offset=1, consumer=Consumer.group("billing"))
        reader = topic.stream_reader(startingOffsets="group", group="billing")
        assert reader.initialOffset()["partitions"] == {"0": 2, "1": 0}

    def test_a_group_that_is_not_there_has_read_nothing(self, topic):
        topic.send(0, "a")
        reader = topic.stream_reader(startingOffsets="group", group="nobody")
        assert reader.initialOffset()["partitions"] == {"0": 0, "1": 0}

    def test_it_can_start_at_a_moment(self, topic):
        topic.send(0, "early")
        topic.server.advance(60)
        moment = topic.server.now_us
        topic.send(0, "late")
        reader = topic.stream_reader(startingTimestamp=str(moment))
        assert reader.initialOffset()["partitions"] == {"0": 1, "1": 0}

    def test_a_new_partition_is_read_from_its_start(self, topic):
        reader = topic.stream_reader(startingOffsets="latest")
        start = reader.initialOffset()
        topic.client.create_partitions("s", "t", 1)
        start = reader.latestOffset(start, DEFAULT)
        assert start["partitions"] == {"0": 0, "1": 0}
        assert reader.latestOffset(start, DEFAULT) == start
        topic.send(2, "new")
        end = reader.latestOffset(start, DEFAULT)
        assert end["partitions"] == {"0": 0, "1": 0, "2": 1}
        assert between(reader, start, end) == ["new"]

    def test_limits_make_several_batches(self, topic):
        for number in range(30):
            topic.send(number % 2, f"m{number}")
        reader = topic.stream_reader(maxRowsPerTrigger="8")
        assert reader.getDefaultReadLimit() == ReadMaxBytes(128 << 20)
        position, read = reader.initialOffset(), []
        while (end := reader.latestOffset(position, DEFAULT)) != position:
            rows = between(reader, position, end)
            assert len(rows) <= 8
            read += rows
            position = end
        assert sorted(read) == sorted(f"m{number}" for number in range(30))

    def test_a_trigger_that_wants_everything_gets_it(self, topic):
        topic.send(0, *"abcdefgh")
        reader = topic.stream_reader(maxRowsPerTrigger="2", maxBytesPerTrigger="1")
        assert reader.latestOffset(reader.initialOffset(), ALL)["partitions"] == {"0": 8, "1": 0}

    def test_the_default_limit_is_what_the_options_say(self, topic):
        assert topic.stream_reader(maxBytesPerTrigger="1 MiB").getDefaultReadLimit() == ReadMaxBytes(1 << 20)
        unlimited = {"maxBytesPerTrigger": "unlimited"}
        assert topic.stream_reader(**unlimited).getDefaultReadLimit() == ALL
        assert topic.stream_reader(**unlimited, maxRowsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)

    def test_a_batch_larger_than_the_limit_is_read_all_the_same(self, topic):
        topic.send(0, "x" * 100_000)
        topic.send(0, "y" * 100_000)
        reader = topic.stream_reader(maxBytesPerTrigger="10 KB")
        end = reader.latestOffset(reader.initialOffset(), DEFAULT)
        assert end["partitions"] == {"0": 1, "1": 0}

    def test_available_now_stops_at_what_was_there(self, topic):
        topic.send(0, "a", "b", "c")
        reader = topic.stream_reader(maxRowsPerTrigger="2")
        reader.prepareForTriggerAvailableNow()
        topic.send(0, "later")
        topic.client.create_partitions("s", "t", 1)
        topic.send(2, "later too")
        first = reader.latestOffset(reader.initialOffset(), DEFAULT)
        second = reader.latestOffset(first, DEFAULT)
        assert second["partitions"] == {"0": 3, "1": 0, "2": 0}
        assert reader.latestOffset(second, DEFAULT) == second

    def test_the_end_of_the_topic_is_reported_for_the_lag(self, topic):
        reader = topic.stream_reader(maxRowsPerTrigger="1")
        assert reader.reportLatestOffset() is None  # Spark never asks before it has asked for the other
        topic.send(0, "a", "b")
        assert reader.latestOffset(reader.initialOffset(), DEFAULT)["partitions"] == {"0": 1, "1": 0}
        assert reader.reportLatestOffset()["partitions"] == {"0": 2, "1": 0}

    def test_many_splits_read_the_same_as_one(self, topic):
        for number in range(40):
            topic.send(0, *(f"{number}-{i}-" + "x" * 2000 for i in range(10)))
        one = topic.stream_reader()
        many = topic.stream_reader(minPartitions="7", maxSplitBytes="300 KB")
        start, end = one.initialOffset(), one.latestOffset(one.initialOffset(), ALL)
        assert len(one.partitions(start, end)) == 1
        assert len(many.partitions(start, end)) >= 7
        assert between(many, start, end) == between(one, start, end)

    def test_a_restart_of_the_server_is_waited_for(self, topic):
        reader = topic.stream_reader()
        topic.send(0, "a")
        start = reader.initialOffset()
        topic.server.restart()
        end = reader.latestOffset(start, DEFAULT)
        assert between(reader, start, end) == ["a"]

    def test_a_server_that_does_not_come_back_is_an_error_in_time(self, topic):
        reader = topic.stream_reader(deadline="200ms")
        start = reader.initialOffset()
        topic.server.stop()
        with pytest.raises(CannotEstablishConnection):
            reader.latestOffset(start, DEFAULT)


@pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
class TestLoss:
    def overtaken(self, topic, reader):
        """Positions before and behind messages of which the first were deleted, and where the rest begins."""
        for _ in range(30):
            topic.send(0, "x" * 100_000)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        topic.client.delete_segments("s", "t", 0, 1)
        return start, end, topic.client.get_topic_extent("s", "t").partitions[0].first_offset

    def test_retention_that_was_faster_fails_the_query_with_the_exact_gap(self, topic):
        reader = topic.stream_reader()
        start, end, first = self.overtaken(topic, reader)
        said = rf"partition 0: offsets \[0, {first}\) were deleted by retention"
        with pytest.raises(DataLoss, match=said):
            reader.latestOffset(start, DEFAULT)
        with pytest.raises(DataLoss, match=said):
            reader.partitions(start, end)

    def test_or_is_stepped_over(self, topic, caplog):
        reader = topic.stream_reader(failOnDataLoss="false")
        start, end, first = self.overtaken(topic, reader)
        assert len(between(reader, start, end)) == 30 - first
        assert reader.latestOffset(start, ALL) == end
        assert f"offsets [0, {first})" in caplog.text

    def test_a_purged_topic_fails_the_query(self, topic):
        reader = topic.stream_reader()
        topic.send(0, "a", "b")
        end = reader.latestOffset(reader.initialOffset(), DEFAULT)
        topic.client.purge_topic("s", "t")
        with pytest.raises(
            DataLoss, match="partition 0 was purged: it ends before offset 0, and offset 2 was next"
        ):
            reader.latestOffset(end, DEFAULT)

    def test_or_is_read_from_its_start(self, topic):
        reader = topic.stream_reader(failOnDataLoss="false")
        topic.send(0, "a", "b")
        before = reader.latestOffset(reader.initialOffset(), DEFAULT)
        topic.client.purge_topic("s", "t")
        topic.send(0, "c")
        after = reader.latestOffset(before, DEFAULT)
        assert between(reader, before, after) == ["c"]
        assert reader.latestOffset(after, DEFAULT) == after

    def test_a_topic_made_anew_fails_the_query_and_says_what_to_do(self, topic):
        reader = topic.stream_reader()
        topic.send(0, "a")
        end = reader.latestOffset(reader.initialOffset(), DEFAULT)
        topic.make_anew()
        with pytest.raises(DataLoss, match=r"deleted and created again.*failOnDataLoss.*new checkpoint"):
            reader.latestOffset(end, DEFAULT)

    def test_or_is_read_from_its_start_too(self, topic):
        reader = topic.stream_reader(failOnDataLoss="false")
        topic.send(0, "a", "b")
        before = reader.latestOffset(reader.initialOffset(), DEFAULT)
        topic.make_anew()
        topic.send(0, "c", "d", "e")
        after = reader.latestOffset(before, DEFAULT)
        assert between(reader, before, after) == ["c", "d", "e"]
        assert reader.latestOffset(after, DEFAULT) == after

    def test_a_run_that_ends_by_itself_ends_in_a_topic_made_anew(self, topic):
        reader = topic.stream_reader(failOnDataLoss="false")
        topic.send(0, "a", "b")
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        topic.make_anew()
        topic.send(0, "c")
        end = reader.latestOffset(start, DEFAULT)
        topic.send(0, "d")
        assert reader.latestOffset(end, DEFAULT) == end

    def test_a_topic_that_is_away_fails_the_query_or_is_waited_for(self, topic, caplog):
        topic.send(0, "a")
        strict, patient = topic.stream_reader(), topic.stream_reader(failOnDataLoss="false")
        start = strict.initialOffset()
        topic.client.delete_topic("s", "t")
        with pytest.raises(TopicIdNotFound):
            strict.latestOffset(start, DEFAULT)
        for _ in range(3):
            assert patient.latestOffset(start, DEFAULT) == start
        assert patient.reportLatestOffset() is None
        assert caplog.text.count("waits for it to come back") == 1

    def test_it_is_waited_for_too_if_it_went_between_plan_and_tasks(self, topic, caplog):
        topic.send(0, "a")
        strict, patient = topic.stream_reader(), topic.stream_reader(failOnDataLoss="false")
        start = strict.initialOffset()
        end = strict.latestOffset(start, DEFAULT)
        topic.client.delete_topic("s", "t")
        with pytest.raises(TopicIdNotFound):
            strict.partitions(start, end)
        assert patient.partitions(start, end) == []
        assert patient.latestOffset(end, DEFAULT) == end
        assert caplog.text.count("waits for it to come back") == 1

    def test_a_partition_that_goes_while_a_batch_is_planned_is_named(self, topic, monkeypatch):
        topic.send(0, "a")
        topic.send(1, "b")
        strict, patient = topic.stream_reader(), topic.stream_reader(failOnDataLoss="false")
        start = strict.initialOffset()
        end = strict.latestOffset(start, DEFAULT)
        splits = plan.splits

        def late(*args, **kwargs):
            monkeypatch.undo()
            topic.client.delete_partitions("s", "t", 1)
            return splits(*args, **kwargs)

        monkeypatch.setattr(plan, "splits", late)
        with pytest.raises(DataLoss, match="partition 1 was deleted; offset 0 was next"):
            strict.partitions(start, end)
        assert between(patient, start, end) == ["a"]

    def test_a_deleted_partition_fails_the_query(self, topic):
        reader = topic.stream_reader()
        start = reader.initialOffset()
        topic.client.delete_partitions("s", "t", 1)
        with pytest.raises(DataLoss, match="partition 1 was deleted"):
            reader.latestOffset(start, DEFAULT)


class TestPublishing:
    def test_what_was_read_is_shown_as_a_group(self, topic):
        reader = topic.stream_reader(publishOffsets="true", group="billing")
        topic.send(0, "a", "b")
        end = reader.latestOffset(reader.initialOffset(), DEFAULT)
        reader.commit(end)
        reader.stop()
        assert topic.stored("billing") == 1
        assert topic.stored("billing", 1) is None

    def test_the_query_is_the_groups_member_while_it_runs(self, topic):
        reader = topic.stream_reader(publishOffsets="true")
        topic.send(0, "a")
        reader.commit(reader.latestOffset(reader.initialOffset(), DEFAULT))
        reader._publisher._settle()
        assert topic.client.get_consumer_group("s", "t", "spark").members_count == 1
        reader.stop()
        assert topic.client.get_consumer_group("s", "t", "spark").members_count == 0

    def test_what_spark_starts_from_counts_as_read(self, topic):
        """A query that ends by itself is not told to commit its last batch."""
        reader = topic.stream_reader(publishOffsets="true")
        topic.send(0, "a", "b", "c")
        end = reader.latestOffset(reader.initialOffset(), DEFAULT)
        reader.latestOffset(end, DEFAULT)
        reader.stop()
        assert topic.stored("spark") == 2

    def test_members_of_the_group_keep_their_partitions(self, topic, caplog, monkeypatch):
        topic.client.create_consumer_group("s", "t", "billing")
        topic.client.join_consumer_group("s", "t", "billing")
        reader = topic.stream_reader(publishOffsets="true", group="billing")
        topic.send(0, "a")
        made = []
        monkeypatch.setattr(publish, "new_client", lambda target: made.append(new_client(target)) or made[-1])
        with caplog.at_level(logging.WARNING):
            for next_offset in range(1, 6):
                reader.commit({"created_at": 1, "partitions": {"0": next_offset}})
                reader._publisher._settle()
            assert len(made) == 1
            monkeypatch.setattr(reader._publisher, "_look_again_s", 0.0)
            reader.commit({"created_at": 1, "partitions": {"0": 1}})
            reader.stop()
        assert len(made) == 2
        assert topic.stored("billing") is None
        said = 'not published as consumer group "billing": it has other members (1)'
        assert caplog.text.count(said) == 1

    def test_a_failure_to_publish_is_a_warning_without_credentials(self, topic, caplog):
        reader = topic.stream_reader(publishOffsets="true", deadline="100ms")
        topic.send(0, "a")
        end = reader.latestOffset(reader.initialOffset(), DEFAULT)
        reader._publisher._settle()  # or what was on its way when the server stops is a failure of its own
        topic.server.stop()
        with caplog.at_level(logging.WARNING):
            reader.commit(end)
            reader._publisher._settle()
        assert caplog.text.count("is not published") == 1
        assert "iggy:iggy" not in caplog.text
        topic.server.start()
        topic.send(0, "b")
        reader.commit({**end, "partitions": {"0": 2}})
        reader.stop()
        assert topic.stored("spark") == 1

    def test_nothing_is_published_if_the_user_says_so(self, topic):
        reader = topic.stream_reader(publishOffsets="false")
        topic.send(0, "a")
        reader.commit(reader.latestOffset(reader.initialOffset(), DEFAULT))
        reader.stop()
        assert topic.client.get_consumer_groups("s", "t") == ()


class TestBatch:
    def test_it_reads_all_there_is_when_it_is_planned(self, topic):
        topic.send(0, "a", "b")
        topic.send(1, "c")
        reader = topic.reader()
        partitions = reader.partitions()
        topic.send(0, "later")
        assert payloads(reader, partitions) == ["a", "b", "c"]

    def test_an_empty_topic_has_no_rows(self, topic):
        reader = topic.reader()
        assert reader.partitions() == []
        assert list(reader.read(ds.InputPartition(None))) == []

    def test_it_reads_between_offsets(self, topic):
        topic.send(0, *"abcdef")
        topic.send(1, *"xyz")
        reader = topic.reader(startingOffsets='{"0": 2}', endingOffsets='{"0": 4, "1": 1}')
        assert payloads(reader, reader.partitions()) == ["c", "d", "x"]

    def test_it_reads_between_moments_the_last_not_included(self, topic):
        topic.send(0, "a")
        topic.server.advance(10)
        start = topic.server.now_us
        topic.send(0, "b")
        topic.server.advance(10)
        end = topic.server.now_us
        topic.send(0, "c")
        reader = topic.reader(startingTimestamp=str(start), endingTimestamp=str(end))
        assert payloads(reader, reader.partitions()) == ["b"]

    def test_an_end_before_the_start_is_nothing(self, topic):
        topic.send(0, *"abc")
        reader = topic.reader(startingOffsets='{"0": 3}', endingOffsets='{"0": 1}')
        assert reader.partitions() == []

    @pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
    def test_offsets_that_are_gone_are_named(self, topic):
        for _ in range(30):
            topic.send(0, "x" * 100_000)
        topic.client.delete_segments("s", "t", 0, 1)
        first = topic.client.get_topic_extent("s", "t").partitions[0].first_offset
        with pytest.raises(DataLoss, match=rf"offsets \[2, {first}\)"):
            topic.reader(startingOffsets='{"0": 2}').partitions()
        assert len(payloads(topic.reader(), topic.reader().partitions())) == 30 - first

    def test_filters_narrow_what_is_read(self, topic):
        topic.send(0, *"abcdef")
        topic.send(1, *"xyz")
        reader = topic.reader(pushFilters="true")
        other = ds.EqualTo(("payload",), b"c")
        filters = [
            ds.GreaterThan(("offset",), 1),
            ds.LessThanOrEqual(("offset",), 3),
            ds.In(("partition",), (0,)),
        ]
        assert list(reader.pushFilters([*filters, other])) == [other]
        assert payloads(reader, reader.partitions()) == ["c", "d"]

    def test_filters_on_time_narrow_too(self, topic):
        topic.send(0, "a")
        topic.server.advance(10)
        moment = dt.datetime.fromtimestamp(topic.server.now_us / 1e6, dt.UTC)
        topic.send(0, "b")
        reader = topic.reader(pushFilters="true")
        assert list(reader.pushFilters([ds.GreaterThanOrEqual(("timestamp",), moment)])) == []
        assert payloads(reader, reader.partitions()) == ["b"]
        reader = topic.reader(pushFilters="true")
        list(reader.pushFilters([ds.LessThan(("timestamp",), moment), ds.EqualTo(("partition",), 0)]))
        assert payloads(reader, reader.partitions()) == ["a"]

    def test_only_a_reader_that_was_asked_for_takes_filters(self, topic):
        """Spark refuses one that does while filter pushdown is off, and misuses it where it is on."""
        assert topic.reader().pushFilters.__func__ is ds.DataSourceReader.pushFilters


class TestFilters:
    COLUMNS = ("partition", "offset", "timestamp", "payload")

    @pytest.mark.parametrize(
        ("given", "interval"),
        [
            (ds.EqualTo(("offset",), 5), Interval(5, 6)),
            (ds.EqualNullSafe(("offset",), 5), Interval(5, 6)),
            (ds.GreaterThan(("offset",), 5), Interval(low=6)),
            (ds.GreaterThanOrEqual(("offset",), 5), Interval(low=5)),
            (ds.LessThan(("offset",), 5), Interval(high=5)),
            (ds.LessThanOrEqual(("offset",), 5), Interval(high=6)),
            (ds.LessThan(("offset",), -5), Interval(high=-5)),
        ],
    )
    def test_comparisons_are_taken_over(self, given, interval):
        taker = FilterTaker(self.COLUMNS)
        assert list(taker.take([given])) == []
        assert taker.bounds == Bounds(offset=interval)

    @pytest.mark.parametrize(
        "given",
        [
            ds.Not(ds.EqualTo(("offset",), 5)),
            ds.EqualTo(("offset",), "5"),
            ds.EqualTo(("offset", "deeper"), 5),
            ds.In(("offset",), (1, 2)),
            ds.In(("partition",), ("a",)),
            ds.IsNotNull(("offset",)),
            ds.EqualTo(("timestamp",), dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - no zone is the point
            ds.GreaterThan(("timestamp",), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)),
            ds.EqualTo(("payload",), b"x"),
            ds.StringStartsWith(("topic",), "x"),
        ],
    )
    def test_what_is_not_understood_stays_with_spark(self, given):
        taker = FilterTaker(self.COLUMNS)
        assert list(taker.take([given])) == [given]
        assert taker.bounds == Bounds()

    def test_a_column_of_the_payload_is_not_the_messages(self):
        taker = FilterTaker(("partition",))
        given = ds.EqualTo(("offset",), 5)
        assert list(taker.take([given])) == [given]

    def test_several_filters_hold_together(self):
        taker = FilterTaker(self.COLUMNS)
        filters = [
            ds.In(("partition",), (1, 2, None)),
            ds.In(("partition",), (2, 3)),
            ds.LessThan(("partition",), 9),
        ]
        assert list(taker.take(filters)) == []
        assert [number for number in range(12) if taker.bounds.has_partition(number)] == [2]


class TestSource:
    def test_spark_finds_it_by_its_name(self):
        assert DefaultSource is BorzoiDataSource
        assert DefaultSource.name() == "borzoi"

    def test_it_is_pickled_by_spark(self, topic):
        copy = pickle.loads(pickle.dumps(topic.source()))
        assert copy.schema() == topic.source().schema()

    def test_options_of_the_other_mode_are_refused(self, topic):
        refusing = topic.stream_reader(endingOffsets="latest")
        calls = (
            refusing.initialOffset,
            partial(refusing.latestOffset, {}, ALL),
            partial(refusing.partitions, {}, {}),
            partial(refusing.read, None),
        )
        for call in calls:  # Spark says something else if it cannot make a reader
            with pytest.raises(InvalidOptionValue, match="endingOffsets"):
                call()
        with pytest.raises(InvalidOptionValue, match="maxRowsPerTrigger"):
            topic.reader(maxRowsPerTrigger="1")
