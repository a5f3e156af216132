"""Tasks without Spark: messages of a real broker as record batches of Spark's types."""

import datetime as dt
import logging
import pickle

import pytest

pytest.importorskip("pyspark", reason="needs borzoi[spark]")

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from borzoi.client.values import SendMessage
from borzoi.model.errors import InvalidOptionValue
from borzoi.spark import fetch, rows
from borzoi.spark.connections import close_all, connected
from borzoi.spark.fetch import BrokerFetcher
from borzoi.spark.formats import decoder
from borzoi.spark.options import Target
from borzoi.spark.plan import DataLoss, Split
from borzoi.spark.rows import ROW_SCHEMA, Rows
from borzoi.spark.source_options import SourceOptions
from borzoi.spark.source_schema import rows_of, source_schema
from borzoi.testing import Server

ALL = Rows(ROW_SCHEMA, tuple(ROW_SCHEMA.fieldNames()), "s", "t")
FEW = StructType([ROW_SCHEMA["offset"], ROW_SCHEMA["payload"]])
TARGET = {"connection": "iggy://a:b@localhost", "stream": "s", "topic": "t"}
SOME = Rows(FEW, ("offset", "payload"), "s", "t")


@pytest.fixture(autouse=True)
def no_connection_is_left():
    yield
    close_all()


@pytest.fixture
def target(borzoi_server, borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    return Target(borzoi_server.connection_string, "s", "t", 5.0)


def split(client, partition_id=0, start=0, end=None, message_bytes=100, topic="t"):
    extent = client.get_topic_extent("s", topic)
    end = extent.partitions[partition_id].next_offset if end is None else end
    return Split(partition_id, start, end, extent.created_at_us, message_bytes)


def read(fetcher, wanted):
    batches = list(fetcher.fetch(wanted))
    schema = to_arrow_schema(fetcher.rows.schema, timezone="UTC")
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema)


class TestRows:
    def test_they_are_what_was_sent(self, target, borzoi, borzoi_server):
        headers = {"key": b"k1", "trace": "abc", 7: 1}
        borzoi.send_messages("s", "t", 1, [SendMessage("one", 5, headers), SendMessage("two", 6)])
        table = read(BrokerFetcher(target, ALL), split(borzoi, 1))
        received = borzoi.poll_messages("s", "t", 1, count=2, auto_commit=False)
        assert table.num_rows == 2
        first, second = table.to_pylist()
        assert (first["stream"], first["topic"], first["partition"], first["offset"]) == ("s", "t", 1, 0)
        assert first["timestamp"] == moment(received[0].timestamp)
        assert first["origin_timestamp"] == moment(received[0].origin_timestamp)
        assert first["id"] == (5).to_bytes(16, "little")
        assert first["payload"] == b"one"
        assert first["key"] == b"k1"
        assert dict(first["headers"]) == {"key": b"k1", "trace": b"abc", "7": (1).to_bytes(8, "little")}
        assert first["checksum"] % 2**64 == received[0].checksum
        assert (second["key"], second["headers"], second["offset"]) == (None, [], 1)

    def test_large_answers_become_batches_of_some_thousand_rows(self, target, borzoi, monkeypatch):
        monkeypatch.setattr(rows, "ROWS_MAX", 10)
        borzoi.send_messages("s", "t", 0, [b"%d" % number for number in range(25)])
        batches = list(BrokerFetcher(target, SOME).fetch(split(borzoi)))
        assert [batch.num_rows for batch in batches] == [10, 10, 5]
        assert [row["payload"] for batch in batches for row in batch.to_pylist()] == [
            b"%d" % n for n in range(25)
        ]

    def test_columns_that_are_not_chosen_are_not_there(self, target, borzoi):
        borzoi.send_messages("s", "t", 0, ["x"])
        assert read(BrokerFetcher(target, SOME), split(borzoi)).to_pylist() == [
            {"offset": 0, "payload": b"x"}
        ]

    def test_a_decoder_makes_columns_of_payloads(self, target, borzoi):
        of_payload = StructType([StructField("user", StringType()), StructField("n", LongType())])
        schema = StructType([*of_payload.fields, ROW_SCHEMA["offset"]])
        decoded = Rows(schema, ("offset",), "s", "t", decoder("json", of_payload))
        borzoi.send_messages("s", "t", 0, ['{"user": "a", "n": 1}', "not json", '{"n": 3}'])
        found = read(BrokerFetcher(target, decoded), split(borzoi))
        assert found.to_pylist() == [
            {"user": "a", "n": 1, "offset": 0},
            {"user": None, "n": None, "offset": 1},
            {"user": None, "n": 3, "offset": 2},
        ]

    def test_a_decoder_that_drops_rows_drops_their_offsets_too(self, target, borzoi):
        of_payload = StructType([StructField("n", LongType())])
        schema = StructType([ROW_SCHEMA["offset"], *of_payload.fields])
        decoded = Rows(schema, ("offset",), "s", "t", decoder("json", of_payload, {"mode": "DROPMALFORMED"}))
        borzoi.send_messages("s", "t", 0, ["?", '{"n": 1}', "?", '{"n": 3}'])
        found = read(BrokerFetcher(target, decoded), split(borzoi))
        assert found.to_pylist() == [{"offset": 1, "n": 1}, {"offset": 3, "n": 3}]

    def test_a_payload_that_must_not_be_malformed_is_found_by_its_offset(self, target, borzoi):
        of_payload = StructType([StructField("n", LongType())])
        decoded = Rows(of_payload, (), "s", "t", decoder("json", of_payload, {"mode": "FAILFAST"}))
        borzoi.send_messages("s", "t", 0, ['{"n": 1}', "?"])
        with pytest.raises(Exception, match="partition 0, offset 1"):
            list(BrokerFetcher(target, decoded).fetch(split(borzoi)))


def moment(microseconds):
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)


class TestSplits:
    @pytest.mark.parametrize("message_bytes", [1, 1_000_000, 10_000_000])
    def test_all_messages_come_once_however_well_their_size_was_guessed(self, target, borzoi, message_bytes):
        for batch in range(20):
            borzoi.send_messages("s", "t", 0, [f"{batch}-{number}" for number in range(7)])
        found = read(BrokerFetcher(target, SOME), split(borzoi, 0, 3, 135, message_bytes))
        assert found["offset"].to_pylist() == list(range(3, 135))
        assert found["payload"].to_pylist()[:2] == [b"0-3", b"0-4"]

    def test_an_answer_that_the_server_cut_short_is_no_gap(self, target, borzoi):
        """The server ends an answer at 16 MiB."""
        for _ in range(10):
            borzoi.send_messages("s", "t", 0, [bytes(1_000_000)] * 4)
        found = list(BrokerFetcher(target, SOME).fetch(split(borzoi, message_bytes=1)))
        assert [offset for batch in found for offset in batch["offset"].to_pylist()] == list(range(40))

    def test_the_reader_may_stop_early(self, target, borzoi):
        borzoi.send_messages("s", "t", 0, [b"x"] * 100)
        found = BrokerFetcher(target, SOME).fetch(split(borzoi, message_bytes=1_000_000))
        assert next(found).num_rows
        found.close()

    def test_a_fetcher_is_pickled_without_its_connection(self, target, borzoi):
        borzoi.send_messages("s", "t", 0, ["x"])
        fetcher = BrokerFetcher(target, SOME)
        assert read(fetcher, split(borzoi)).num_rows == 1
        assert read(pickle.loads(pickle.dumps(fetcher)), split(borzoi)).num_rows == 1

    def test_a_restart_of_the_server_is_waited_for(self, target, borzoi, borzoi_server):
        borzoi.send_messages("s", "t", 0, [b"x"] * 50)
        fetcher = BrokerFetcher(target, SOME)
        wanted = split(borzoi, message_bytes=1_000_000)
        found = fetcher.fetch(wanted)
        seen = next(found).num_rows
        borzoi_server.restart()
        assert seen + sum(batch.num_rows for batch in found) == 50

    def test_connections_are_kept_between_splits(self, target, borzoi):
        borzoi.send_messages("s", "t", 0, ["x"])
        list(BrokerFetcher(target, SOME).fetch(split(borzoi)))
        client = connected(target)
        list(BrokerFetcher(target, SOME).fetch(split(borzoi)))
        assert connected(target) is client


@pytest.fixture(scope="module")
def server():
    with Server(memory=True, settings={"system.segment.size": "1 MiB"}) as server, server.client() as client:
        client.create_stream("s")
        yield server, client
    close_all()


numbers = iter(range(10_000))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=60), min_size=1, max_size=8),
    st.data(),
)
def test_any_part_of_any_batches_is_read_as_it_was_sent(server, batches, data):
    server, client = server
    topic = f"t{next(numbers)}"
    client.create_topic("s", topic, 1)
    for batch in batches:
        client.send_messages("s", topic, 0, batch)
    sent = [payload for batch in batches for payload in batch]
    start = data.draw(st.integers(0, len(sent) - 1))
    end = data.draw(st.integers(start + 1, len(sent)))
    guess = data.draw(st.sampled_from([1, 400_000, 1 << 20, 1 << 30]))
    target = Target(server.connection_string, "s", topic, 5.0)
    found = read(BrokerFetcher(target, SOME), split(client, 0, start, end, guess, topic))
    assert found["offset"].to_pylist() == list(range(start, end))
    assert found["payload"].to_pylist() == sent[start:end]


@pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
class TestDataLoss:
    @pytest.fixture
    def overtaken(self, target, borzoi):
        """A split of 30 messages, of which retention took the first ones; and the first that is left."""
        for _ in range(30):
            borzoi.send_messages("s", "t", 0, [bytes(100_000)])
        wanted = split(borzoi, message_bytes=100_000)
        borzoi.delete_segments("s", "t", 0, 1)
        first = borzoi.get_topic_extent("s", "t").partitions[0].first_offset
        assert 0 < first < 30
        return wanted, first

    def test_messages_that_retention_took_are_an_error_with_the_exact_gap(self, target, overtaken):
        wanted, first = overtaken
        with pytest.raises(DataLoss, match=rf"partition 0: offsets \[0, {first}\) were deleted"):
            list(BrokerFetcher(target, SOME).fetch(wanted))

    def test_or_a_warning_and_the_rest_is_read(self, target, overtaken, caplog):
        wanted, first = overtaken
        with caplog.at_level(logging.WARNING):
            found = read(BrokerFetcher(target, SOME, fail_on_data_loss=False), wanted)
        assert found["offset"].to_pylist() == list(range(first, 30))
        assert f"offsets [0, {first}) were deleted" in caplog.text

    def test_a_split_that_is_gone_altogether_has_no_rows(self, target, overtaken, caplog, borzoi):
        _, first = overtaken
        wanted = split(borzoi, 0, 0, first - 1)
        assert read(BrokerFetcher(target, SOME, fail_on_data_loss=False), wanted).num_rows == 0
        assert f"offsets [0, {first - 1}) were deleted" in caplog.text
        with pytest.raises(DataLoss):
            list(BrokerFetcher(target, SOME).fetch(wanted))

    def test_rows_behind_the_split_do_not_fill_its_gap(self, target, overtaken, borzoi):
        _, first = overtaken
        wanted = split(borzoi, 0, 0, first + 2)
        found = read(BrokerFetcher(target, SOME, fail_on_data_loss=False), wanted)
        assert found["offset"].to_pylist() == [first, first + 1]

    def test_a_purged_topic_is_noticed(self, target, borzoi):
        borzoi.send_messages("s", "t", 0, ["x"] * 5)
        wanted = split(borzoi)
        borzoi.purge_topic("s", "t")
        with pytest.raises(DataLoss, match=r"\[0, 5\)"):
            list(BrokerFetcher(target, SOME).fetch(wanted))

    def test_a_topic_made_anew_is_not_taken_for_the_old_one(self, target, borzoi, borzoi_server):
        borzoi.send_messages("s", "t", 0, ["old"] * 5)
        wanted = split(borzoi)
        borzoi.delete_topic("s", "t")
        borzoi_server.advance(1)
        borzoi.create_topic("s", "t", 1)
        borzoi.send_messages("s", "t", 0, ["new"] * 5)
        with pytest.raises(DataLoss, match="deleted and created again while it was read"):
            list(BrokerFetcher(target, SOME).fetch(wanted))

    def test_if_that_is_fine_with_the_user_nothing_is_read(self, target, borzoi, borzoi_server, caplog):
        fetcher = BrokerFetcher(target, SOME, fail_on_data_loss=False)
        borzoi.send_messages("s", "t", 0, ["old"] * 5)
        wanted = split(borzoi)
        borzoi.delete_topic("s", "t")
        assert list(fetcher.fetch(wanted)) == []
        borzoi_server.advance(1)
        borzoi.create_topic("s", "t", 1)
        borzoi.send_messages("s", "t", 0, ["new"] * 5)  # which the next micro-batch reads
        assert list(fetcher.fetch(wanted)) == []
        assert "it was deleted before it was read" in caplog.text
        assert "it was deleted and created again before it was read" in caplog.text

    @pytest.mark.parametrize("fails", [True, False])
    def test_not_even_if_it_happens_while_it_is_read(self, target, borzoi, borzoi_server, monkeypatch, fails):
        monkeypatch.setattr(fetch, "ANSWER_BYTES", 1)
        borzoi.send_messages("s", "t", 0, ["old"] * 5)
        found = BrokerFetcher(target, SOME, fail_on_data_loss=fails).fetch(split(borzoi))
        next(found)
        borzoi.delete_topic("s", "t")
        borzoi_server.advance(1)
        borzoi.create_topic("s", "t", 1)
        borzoi.send_messages("s", "t", 0, ["new"] * 5)
        with pytest.raises(DataLoss, match="deleted"):
            list(found)


class TestSchemas:
    def schema(self, **given):
        return source_schema(SourceOptions.of(TARGET | given))

    def rows(self, schema, **given):
        given = TARGET | given
        return rows_of(SourceOptions.of(given), given, schema)

    def test_without_options_all_columns_are_there(self):
        assert self.schema() == ROW_SCHEMA

    def test_columns_are_chosen_in_order(self):
        assert self.schema(columns="payload, offset").fieldNames() == ["payload", "offset"]

    @pytest.mark.parametrize("columns", ["payload,ofset", "none"])
    def test_an_unknown_column_is_refused(self, columns):
        with pytest.raises(InvalidOptionValue, match="there is no column"):
            self.schema(columns=columns)

    def test_a_column_cannot_be_chosen_twice(self):
        with pytest.raises(InvalidOptionValue, match='two columns are called "offset"'):
            self.schema(columns="offset,offset")

    def test_a_schema_of_the_users_has_columns_of_the_source(self):
        assert self.rows(FEW).metadata == ("offset", "payload")
        with pytest.raises(InvalidOptionValue, match='"ofset"; did you mean "offset"'):
            self.rows(StructType([StructField("ofset", LongType())]))
        with pytest.raises(InvalidOptionValue, match='"payload" is binary, not string; cast it'):
            self.rows(StructType([StructField("payload", StringType())]))

    def test_columns_of_the_payload_come_first(self):
        assert self.schema(format="json", schema="user string, n long") == (
            "user string, n long, partition int NOT NULL, offset bigint NOT NULL, "
            "timestamp timestamp NOT NULL"
        )
        assert self.schema(format="json", schema="a int", columns="none") == "a int"
        assert self.schema(format="text", columns="offset") == "payload string, offset bigint NOT NULL"

    def test_a_schema_may_be_json(self):
        written = StructType([StructField("user", StringType())]).json()
        found = self.schema(format="json", schema=written, columns="offset")
        assert found.fieldNames() == ["user", "offset"]
        with pytest.raises(InvalidOptionValue, match="not the JSON of a schema"):
            self.schema(format="json", schema='{"type": 5}')

    def test_a_format_of_many_columns_needs_a_schema(self):
        with pytest.raises(InvalidOptionValue, match="format json needs a schema"):
            self.schema(format="json")

    @pytest.mark.parametrize(
        "written",
        ["timestamp string", "a int, `offset` long", "a struct<x: int, y: map<int, int>>, Offset int"],
    )
    def test_a_column_of_the_payload_must_not_hide_one_of_the_message(self, written):
        with pytest.raises(InvalidOptionValue, match='option "columns"'):
            self.schema(format="json", schema=written)

    def test_names_within_columns_hide_nothing(self):
        assert "offset: int" in self.schema(format="json", schema="a struct<b: int, offset: int>")

    def test_a_schema_of_the_users_may_mix_both_kinds(self):
        schema = StructType([ROW_SCHEMA["offset"], StructField("user", StringType())])
        made = self.rows(schema, format="json")
        assert made.metadata == ("offset",)
        assert made.decoder.schema.fieldNames() == ["user"]


@given(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(0, 10**6), st.integers(1, 10**5))
def test_answers_end_with_batches_where_they_can(position, count, base_offset, batch_count):
    asked = fetch._whole_batches(position, count, base_offset, batch_count)
    assert 1 <= asked <= count
    ends = range(position + 1, position + count + 1)
    boundaries = [end for end in (ends[-1] - (ends[-1] - base_offset) % batch_count,) if end in ends]
    assert position + asked == (boundaries or [position + count])[-1]


def test_only_the_first_answers_cut_batches(target, borzoi, monkeypatch):
    monkeypatch.setattr(fetch, "ANSWER_BYTES", 100 * 25)
    for _ in range(20):
        borzoi.send_messages("s", "t", 0, [b"x"] * 10)
    asked = []
    real = fetch.poll_buffers
    monkeypatch.setattr(fetch, "poll_buffers", lambda *call: asked.append(call[3:]) or real(*call))
    batches = list(BrokerFetcher(target, SOME).fetch(split(borzoi, message_bytes=100)))
    assert sum(batch.num_rows for batch in batches) == 200
    ends = [strategy.value + count for strategy, count in asked]
    assert all(end % 10 == 0 for end in ends[2:])
