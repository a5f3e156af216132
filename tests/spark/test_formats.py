"""Payloads as columns of a query: that Spark takes what the unit tests of formats have checked."""

import datetime as dt
import decimal

import pytest

GOOD = [
    b"""{"id": 1, "name": "a", "price": 1.25, "cost": 2.345, "at": "2024-01-31T12:00:00+02:00",
         "day": "2024-01-31", "local": "2024-01-31T12:00:00", "raw": "AAE=", "tags": ["x", null],
         "counts": {"k": 1}, "inner": {"n": 7, "deep": [{"s": "t"}]}}""",
    b'{"id": 2, "name": 17}',
]
SCHEMA = (
    "id long, name string, price double, cost decimal(9,2), at timestamp, day date, local timestamp_ntz, "
    "raw binary, tags array<string>, counts map<string,long>, "
    "inner struct<n: int, deep: array<struct<s: string>>>"
)


@pytest.fixture
def load(spark, borzoi, borzoi_server):
    """Reads a topic that holds the payloads, in a batch query."""

    def load(payloads, schema, **options):
        borzoi.create_stream("s")
        borzoi.create_topic("s", "t", 1)
        borzoi.send_messages("s", "t", 0, payloads)
        target = {
            "connection": borzoi_server.connection_string,
            "stream": "s",
            "topic": "t",
            "columns": "offset",
        }
        return spark.read.format("borzoi").options(**target, **options, schema=schema).load()

    return load


def test_columns_of_every_type_reach_spark(load):
    first, second = load(GOOD, SCHEMA, format="json").orderBy("id").collect()
    assert first.id == 1
    assert first.cost == decimal.Decimal("2.35")
    assert first.day == dt.date(2024, 1, 31)
    assert first.local == dt.datetime(2024, 1, 31, 12)  # noqa: DTZ001
    assert first.tags == ["x", None]
    assert first.counts == {"k": 1}
    assert first.inner.n == 7
    assert first.inner.deep[0].s == "t"
    assert first.offset == 0
    assert (second.name, second.at, second.inner, second.offset) == ("17", None, None, 1)


def test_times_are_the_instants_that_were_written(load):
    frame = load(GOOD, SCHEMA, format="json")
    assert [row[0] for row in frame.selectExpr("unix_micros(at)").collect()] == [1706695200000000, None]


def test_malformed_payloads_are_kept_aside(load):
    frame = load([*GOOD, b"oops"], f"{SCHEMA}, _corrupt_record string", format="json")
    rows = frame.select("offset", "_corrupt_record").where("_corrupt_record is not null").collect()
    assert [tuple(row) for row in rows] == [(2, "oops")]


def test_malformed_payloads_are_dropped_with_their_offsets(load):
    frame = load([GOOD[0], b"oops", GOOD[1]], SCHEMA, format="json", mode="DROPMALFORMED")
    assert [tuple(row) for row in frame.select("offset", "id").orderBy("offset").collect()] == [
        (0, 1),
        (2, 2),
    ]


def test_failfast_names_the_offset_of_the_malformed_payload(load):
    frame = load([*GOOD, b"oops"], SCHEMA, format="json", mode="FAILFAST")
    with pytest.raises(Exception, match=r"Malformed payload: .*partition 0.*offset 2"):
        frame.collect()
