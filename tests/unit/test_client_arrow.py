"""Topics as Arrow data: what is read, in which types, up to where, and what is missing."""

import datetime as dt
import logging
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from borzoi import PollingStrategy, SendMessage
from borzoi.client import arrow
from borzoi.client.arrow import (
    topic_batches,
    topic_batches_async,
    topic_to_arrow,
    topic_to_arrow_async,
)
from borzoi.client.arrow_columns import (
    DEFAULT_COLUMNS,
    batches_to_arrow,
    record_batches,
    schema,
)
from borzoi.model.errors import (
    BorzoiError,
    InvalidOffset,
    InvalidOptionValue,
    NotFound,
    PartitionNotFound,
    RemoteProtocolError,
)
from borzoi.model.headers import decode_user_headers
from borzoi.model.values import HeaderKind, TypedValue
from borzoi.wire.build import NewMessage, build
from borzoi.wire.columns import columns

STREAM, TOPIC = "orders", "events"


@pytest.fixture
def client(borzoi):
    borzoi.create_stream(STREAM)
    borzoi.create_topic(STREAM, TOPIC, 3)
    return borzoi


def fill(client, partition_id, *counts):
    """Batches of so many messages; payloads tell partition and offset, sizes differ in odd batches."""
    offset = 0
    for number, count in enumerate(counts):
        client.send_messages(
            STREAM,
            TOPIC,
            partition_id,
            [
                f"{partition_id}/{each:06d}" + "x" * (each % 5 if number % 2 else 0)
                for each in range(offset, offset + count)
            ],
        )
        offset += count


def places(table):
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def everything(*counts):
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


# The schema


def test_the_types_are_those_that_every_engine_takes():
    made = schema()
    assert tuple(made.names) == DEFAULT_COLUMNS
    moment = pa.timestamp("us", tz="UTC")
    kinds = [pa.int32(), pa.int64(), moment, moment, pa.binary()]
    assert made.types == [*kinds, pa.map_(pa.string(), pa.binary()), pa.binary(), pa.int64()]


@pytest.mark.parametrize("names", [["nonsense"], ["offset", "offset"], []])
def test_columns_that_do_not_exist_are_named(names):
    with pytest.raises(InvalidOptionValue, match="choose from partition"):
        schema(names)


# Bytes to Arrow


def batch_of(count, *, is_equal, headers=b""):
    return build(
        [
            NewMessage(b"%04d" % n + b"x" * (0 if is_equal else n % 9), 2**100 + n, headers, 10**15 + n)
            for n in range(count)
        ]
    )


@pytest.mark.parametrize("is_equal", [True, False])
@pytest.mark.parametrize("count", [1, 10, 500])
def test_columns_become_arrow_without_a_change(count, is_equal):
    batch = batch_of(count, is_equal=is_equal)
    found = columns(batch)
    table = batches_to_arrow([batch, b"", batch])
    table.validate(full=True)
    assert table.schema == schema()
    assert table.num_rows == 2 * count
    first = table.slice(0, count).to_pydict()
    assert first["payload"] == found.payloads()
    assert first["offset"] == list(range(count))
    assert [int.from_bytes(each, "little") for each in first["id"]] == [2**100 + n for n in range(count)]
    assert [each & (2**64 - 1) for each in first["checksum"]] == found.checksums.tolist()
    assert first["origin_timestamp"] == [
        dt.datetime.fromtimestamp(10**9, dt.UTC) + dt.timedelta(microseconds=n) for n in range(count)
    ]
    assert first["headers"] == [[]] * count


def test_batches_in_one_buffer_may_be_of_any_sizes():
    equal, larger, mixed = (
        batch_of(40, is_equal=True),
        build([NewMessage(b"%090d" % n) for n in range(30)]),
        batch_of(50, is_equal=False),
    )
    for batches in ([equal, equal], [equal, larger, equal], [equal, mixed, larger]):
        table = batches_to_arrow([b"".join(batches)])
        table.validate(full=True)
        assert table["payload"].to_pylist() == [
            each for batch in batches for each in columns(batch).payloads()
        ]


def test_no_batches_are_a_table_without_rows():
    assert batches_to_arrow([]).schema == schema()
    assert batches_to_arrow([b""], ["payload"]).num_rows == 0


@pytest.mark.parametrize("is_equal", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, 200, 10**6])
def test_record_batches_are_cut_to_size_and_lose_nothing(chunk_bytes, is_equal):
    found = columns(batch_of(100, is_equal=is_equal) + batch_of(50, is_equal=not is_equal))
    made = list(record_batches(found, schema(), chunk_bytes))
    assert [row for each in made for row in each["payload"].to_pylist()] == found.payloads()
    assert len(made) == {1: 150, 10**6: 1}.get(chunk_bytes, len(made))


def test_bytes_that_are_no_batches_are_refused():
    with pytest.raises(RemoteProtocolError):
        batches_to_arrow([bytes(300)])


def test_headers_that_cannot_be_decoded_are_named_and_can_be_left_out():
    batch = batch_of(3, is_equal=True, headers=b"\x99broken")
    with pytest.raises(RemoteProtocolError, match=r"offset 0.*user_headers"):
        batches_to_arrow([batch])
    table = batches_to_arrow([batch], ["offset", "user_headers"])
    assert table["user_headers"].to_pylist() == [b"\x99broken"] * 3


# Topics


def test_headers_become_a_map_of_texts_to_encoded_values(client):
    headers = {
        "text": "tëxt",
        "number": -2,
        "yes": True,
        "half": 0.5,
        b"raw\xff": b"\x00\x01",
        7: TypedValue(HeaderKind.UINT16, b"\x01\x02"),
    }
    client.send_messages(
        STREAM,
        TOPIC,
        0,
        [SendMessage(b"with", headers=headers), b"without", SendMessage(b"w", headers=headers)],
    )
    found = topic_to_arrow(client, STREAM, TOPIC, columns=["headers", "user_headers"])
    with_headers, without, again = found.table["headers"].to_pylist()
    assert dict(with_headers) == {
        "text": "tëxt".encode(),
        "number": (-2).to_bytes(8, "little", signed=True),
        "yes": b"\x01",
        "half": np.float64(0.5).tobytes(),
        "raw\\xff": b"\x00\x01",
        "7": b"\x01\x02",
    }
    assert (without, again) == ([], with_headers)
    blocks = found.table["user_headers"].to_pylist()
    assert len(decode_user_headers(blocks[0])) == len(headers)
    assert blocks[1] == b""


def test_a_topic_is_read_partition_by_partition_with_the_servers_data(client):
    fill(client, 0, 100, 30, 1)
    fill(client, 2, 1, 1, 40)
    found = topic_to_arrow(client, STREAM, TOPIC)
    assert found.gaps == ()
    assert places(found.table) == everything(131, 0, 42)
    polled = client.poll_messages(STREAM, TOPIC, 0, PollingStrategy.First(), 1000, auto_commit=False)
    rows = found.table.slice(0, 131).to_pylist()
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    for row, message in zip(rows, polled, strict=True):
        assert row["payload"] == message.payload
        assert int.from_bytes(row["id"], "little") == message.id
        assert row["checksum"] & (2**64 - 1) == message.checksum
        assert (row["timestamp"] - epoch) // dt.timedelta(microseconds=1) == message.timestamp
        assert (row["origin_timestamp"] - epoch) // dt.timedelta(microseconds=1) == message.origin_timestamp


def test_reading_stores_no_offset(client):
    fill(client, 0, 10)
    topic_to_arrow(client, STREAM, TOPIC)
    assert client.get_consumer_offset(STREAM, TOPIC, 0) is None


def test_partitions_and_columns_can_be_chosen(client):
    for partition_id in range(3):
        fill(client, partition_id, 5)
    found = topic_to_arrow(client, STREAM, TOPIC, partitions=[2, 0, 2], columns=["offset", "partition"])
    assert found.table.schema == schema(["offset", "partition"])
    assert places(found.table) == [(2, n) for n in range(5)] + [(0, n) for n in range(5)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, range(100)),
        (10, 20, range(10, 20)),
        (99, None, range(99, 100)),
        (None, 1, range(1)),
        (20, 10, range(0)),
        (100, None, range(0)),
        (0, 10**9, range(100)),
        (PollingStrategy.Offset(40), PollingStrategy.Offset(90), range(40, 90)),
        ({0: 95, 1: 3}, None, range(95, 100)),
        (None, {0: 5}, range(5)),
    ],
)
def test_a_range_of_offsets_includes_its_start_and_not_its_end(client, start, end, expected):
    fill(client, 0, 30, 40, 30)
    found = topic_to_arrow(client, STREAM, TOPIC, partitions=[0], start=start, end=end)
    assert found.table["offset"].to_pylist() == list(expected)
    assert found.gaps == ()


def test_a_range_of_times_has_messages_from_its_start_to_before_its_end(client, borzoi_server):
    stored_us = []
    for number in range(4):
        borzoi_server.advance(10)
        client.send_messages(STREAM, TOPIC, number % 2, [f"{number}.{each}" for each in range(3)])
        (last,) = client.poll_messages(
            STREAM, TOPIC, number % 2, PollingStrategy.Last(), 1, auto_commit=False
        )
        stored_us.append(last.timestamp)

    def numbers(start, end):
        found = topic_to_arrow(client, STREAM, TOPIC, start=start, end=end)
        assert found.gaps == ()
        return sorted({int(payload[:1]) for payload in found.table["payload"].to_pylist()})

    at = PollingStrategy.Timestamp
    assert numbers(at(stored_us[1]), at(stored_us[3])) == [1, 2]
    assert numbers(at(stored_us[1] + 1), at(stored_us[3] + 1)) == [2, 3]
    assert numbers(at(0), at(stored_us[0])) == []
    assert numbers(at(stored_us[3] + 1), None) == []
    assert numbers(at(0), at(stored_us[3] + 10**9)) == [0, 1, 2, 3]
    moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=stored_us[2])
    assert numbers(moment, None) == [2, 3]
    assert numbers(None, moment) == [0, 1]


def test_what_is_sent_while_reading_is_not_read(client, monkeypatch):
    monkeypatch.setattr(arrow, "_MESSAGES_PER_POLL", 7)
    fill(client, 0, 20)
    fill(client, 1, 20)
    reading = topic_batches(client, STREAM, TOPIC)
    first = next(reading)
    fill(client, 1, 5)
    rest = pa.Table.from_batches([first, *reading])
    assert places(rest) == everything(20, 20)


def test_batches_hold_no_more_than_a_reply(client, monkeypatch):
    monkeypatch.setattr(arrow, "_MESSAGES_PER_POLL", 7)
    fill(client, 0, 10, 10)
    sizes = [batch.num_rows for batch in topic_batches(client, STREAM, TOPIC)]
    assert max(sizes) <= 7
    assert sum(sizes) == 20


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"partitions": [3]}, PartitionNotFound),
        ({"start": -1}, InvalidOffset),
        ({"start": PollingStrategy.Next()}, InvalidOptionValue),
        ({"end": PollingStrategy.Last()}, InvalidOptionValue),
        ({"columns": ["nonsense"]}, InvalidOptionValue),
    ],
)
def test_wrong_arguments_are_refused(client, arguments, error):
    fill(client, 0, 1)
    with pytest.raises(error):
        topic_to_arrow(client, STREAM, TOPIC, **arguments)


def test_a_topic_that_does_not_exist_is_named(client):
    with pytest.raises(NotFound, match="missing"):
        topic_to_arrow(client, STREAM, "missing")


def expire_first_segments(client, server):
    """Messages 0 to 999 or so expire, later ones stay. Returns the first offset that is left."""
    client.create_stream("short")
    client.create_topic("short", TOPIC, 1, message_expiry="1h", segment_size="1 MiB")
    for _ in range(4):
        client.send_messages("short", TOPIC, 0, [b"x" * 1000] * 500)
    server.advance(3000)
    client.send_messages("short", TOPIC, 0, [b"x" * 1000] * 500)
    server.advance(1000)
    (oldest,) = client.poll_messages("short", TOPIC, 0, PollingStrategy.Offset(0), 1, auto_commit=False)
    assert 0 < oldest.offset < 2500
    return oldest.offset


def test_messages_that_expired_before_the_start_are_a_gap_with_a_name(client, borzoi_server, caplog):
    oldest = expire_first_segments(client, borzoi_server)
    found = topic_to_arrow(client, "short", TOPIC, start=5)
    assert found.table["offset"].to_pylist() == list(range(oldest, 2500))
    (gap,) = found.gaps
    assert isinstance(gap, BorzoiError)
    assert (gap.partition_id, gap.expected_offset, gap.offset) == (0, 5, oldest)
    assert topic_to_arrow(client, "short", TOPIC).gaps == ()  # "from the first there is" misses nothing

    (gap,) = topic_to_arrow(client, "short", TOPIC, start=5, end=10).gaps
    assert (gap.expected_offset, gap.offset) == (5, 10)

    with caplog.at_level(logging.WARNING, "borzoi.client"):
        assert sum(each.num_rows for each in topic_batches(client, "short", TOPIC, start=5)) == 2500 - oldest
    assert f"goes on at {oldest}, not at 5" in caplog.text


async def test_the_asyncio_twins_read_the_same(borzoi_async, borzoi_server):
    await borzoi_async.create_stream(STREAM)
    await borzoi_async.create_topic(STREAM, TOPIC, 2)
    for partition_id in range(2):
        await borzoi_async.send_messages(STREAM, TOPIC, partition_id, [f"m{n}" for n in range(60)])
    found = await topic_to_arrow_async(borzoi_async, STREAM, TOPIC, start=10, end=50)
    with borzoi_server.client() as blocking:
        assert found.table == topic_to_arrow(blocking, STREAM, TOPIC, start=10, end=50).table
    batches = [each async for each in topic_batches_async(borzoi_async, STREAM, TOPIC, partitions=[1])]
    assert places(pa.Table.from_batches(batches)) == [(1, n) for n in range(60)]


# What becomes of a table


@pytest.fixture
def found(client):
    fill(client, 0, 30)
    client.send_messages(STREAM, TOPIC, 1, [SendMessage(b"last", headers={"k": "v"})])
    return topic_to_arrow(client, STREAM, TOPIC)


def test_polars(found):
    pytest.importorskip("polars")
    frame = found.polars()
    assert frame.shape == (31, len(DEFAULT_COLUMNS))
    assert frame["payload"].to_list() == found.table["payload"].to_pylist()


def test_pandas(found):
    pytest.importorskip("pandas")
    frame = found.pandas()
    assert frame.shape == (31, len(DEFAULT_COLUMNS))
    assert frame["payload"].tolist() == found.table["payload"].to_pylist()
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"


def test_duckdb(found):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        relation = found.duckdb(connection)
        rows = relation.aggregate('partition, count(*), max("offset")').order("partition").fetchall()
    assert rows == [(0, 30, 29), (1, 1, 0)]


def without(package, code):
    hidden = f"import sys; sys.modules[{package!r}] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hidden + code], capture_output=True, text=True, check=False, timeout=60
    ).stderr


def test_a_missing_package_is_named_with_what_to_install():
    assert "pip install 'borzoi[arrow]'" in without("pyarrow", "import borzoi.client.arrow")
    empty = (
        "from borzoi.client.arrow import TopicTable\n"
        "from borzoi.client.arrow_columns import batches_to_arrow\n"
        "TopicTable(batches_to_arrow([]))."
    )
    for package in ("polars", "pandas", "duckdb"):
        assert f"pip install {package}" in without(package, f"{empty}{package}()")
