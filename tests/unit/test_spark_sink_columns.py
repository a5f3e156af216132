"""Mistakes in options and columns of a write are found on the driver, by name, before anything is written."""

import base64
import datetime as dt
import decimal
import json
import re

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark import sink
from borzoi.spark.connections import close_all
from borzoi.spark.routing import PartitioningMode
from borzoi.spark.sink_columns import SinkColumns, UnsuitableColumns, sink_columns
from borzoi.spark.sink_formats import payload_encoder
from borzoi.spark.sink_options import SinkOptions
from borzoi.spark.sink_topic import MissingTopic, partitions_of

TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "bigint": LongType(),
    "smallint": ShortType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,binary>": MapType(StringType(), BinaryType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
GIVEN = {"connection": "iggy://iggy:iggy@127.0.0.1:1", "stream": "s", "topic": "t"}


@pytest.fixture(autouse=True)
def no_connections_left():
    yield
    close_all()


def options(**given):
    return SinkOptions.of({**GIVEN, **given})


def columns(schema, **given):
    return sink_columns(options(**given), struct(schema))


def struct(text):
    """A schema as DDL of simple types; Spark's own reader of DDL needs a JVM."""
    found = StructType()
    for column in re.split(r", (?![^<]*>)", text):
        name, kind = column.split(" ", 1)
        found.add(name, TYPES[kind])
    return found


def test_defaults():
    found = options()
    assert found.partitioning is PartitioningMode.BALANCED
    assert (found.format, found.batch_bytes, found.batch_rows) == ("raw", 1 << 20, 10_000)
    assert not found.create_topic
    assert found.target.deadline_s == 60


def test_names_of_options_have_no_case():
    assert options(BATCHROWS="5", createtopic="TRUE", Partitions="3").partitions_count == 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"partitionning": "key"}, 'no option "partitionning"; did you mean "partitioning"'),
        ({"partitioning": "hash"}, 'option "partitioning" is "hash"'),
        ({"partitioning": "source"}, 'option "partitioning" is "source"'),
        ({"format": "jsn"}, 'option "format" is "jsn": write raw or text or json'),
        ({"keyColumn": "k"}, 'needs the option "partitioning" to be "key", not "balanced"'),
        ({"partitionColumn": "k", "partitioning": "key"}, 'to be "partition", not "key"'),
        ({"partitions": "3"}, 'set the option "createTopic" to true'),
        ({"createTopic": "true", "topic": "7"}, "a new topic needs a name"),
        ({"epoch": "3"}, 'needs the option "producer"'),
        ({"batchBytes": "33 MiB"}, "at most 32 MiB"),
        ({"batchBytes": "unlimited"}, "at most 32 MiB"),
        ({"batchRows": "0"}, 'option "batchRows" is "0"'),
        ({"producer": "p" * 219}, "at most 218 bytes"),
        ({"topic": ""}, 'option "topic" is missing'),
    ],
)
def test_wrong_options_are_named(given, text):
    with pytest.raises(InvalidOptionValue, match=text):
        options(**given)


def test_a_streams_producer_always_has_the_querys_id():
    assert options().stream_producer("id-1") == "spark.id-1"
    assert options(producer="copy").stream_producer("id-1") == "copy.id-1"


def test_a_batchs_producer_is_nobody_else_unless_it_is_named():
    assert options().batch_producer() != options().batch_producer()
    assert options(producer="nightly", epoch="3").batch_producer() == "nightly"


def test_columns_that_are_used():
    assert columns("payload binary") == SinkColumns("payload", None, None, None)
    assert columns(
        "payload string, headers map<string,string>, id binary, shard smallint",
        partitioning="partition",
        partitionColumn="shard",
    ) == SinkColumns("payload", "headers", "id", "shard")
    assert columns("payload string, key binary", partitioning="key").route == "key"


def test_rows_of_the_source_can_be_written_as_they_are():
    source = (
        "stream string, topic string, partition int, offset long, timestamp timestamp, "
        "origin_timestamp timestamp, id binary, key binary, headers map<string,binary>, payload binary, "
        "checksum long"
    )
    assert columns(source) == SinkColumns("payload", "headers", "id", None)


@pytest.mark.parametrize(
    ("schema", "given", "text"),
    [
        ("value binary", {}, 'column "payload" is missing, the columns are value'),
        ("payload int", {}, 'column "payload" has the type int; it has to be binary or string'),
        ("payload binary, headers string", {}, 'column "headers" has the type string'),
        ("payload binary, headers map<string,int>", {}, 'column "headers" has the type map<string,int>'),
        ("payload binary, id bigint", {}, 'column "id" has the type bigint'),
        ("payload binary, amount int", {}, 'column "amount" would not be written'),
        ("payload binary", {"partitioning": "key"}, 'column "key" is missing, and rows'),
        ("payload binary, key int", {"partitioning": "key"}, 'column "key" has the type int'),
        (
            "payload binary, partition string",
            {"partitioning": "partition"},
            'column "partition" has the type',
        ),
        ("headers map<string,string>", {"format": "json"}, "no column is left"),
        ("a int, b int", {"format": "text"}, 'the format "text" writes one column of type string'),
        ("a int", {"format": "text"}, "left are a int"),
    ],
)
def test_wrong_columns_are_named(schema, given, text):
    with pytest.raises(UnsuitableColumns, match=text.replace("(", r"\(")):
        columns(schema, **given)


def test_two_columns_of_one_name_are_refused():
    schema = StructType().add("payload", "binary").add("payload", "string")
    with pytest.raises(UnsuitableColumns, match='two columns have the name "payload"'):
        sink_columns(options(), schema)


def test_a_format_takes_all_columns_that_are_nothing_else():
    found = columns("id long, name string, headers map<string,binary>, partition int", format="json")
    assert found == SinkColumns(None, "headers", None, None, ("id", "name", "partition"))
    routed = columns("id binary, name string, key string", format="json", partitioning="key")
    assert routed == SinkColumns(None, None, "id", "key", ("name",))
    named = columns("name string, v int", format="json", partitioning="key", keyColumn="name")
    assert named.encoded == ("name", "v")


def test_overwriting_is_refused_before_anything_else():
    schema = StructType().add("payload", "binary")
    with pytest.raises(InvalidOptionValue, match="can only be appended to; use mode"):
        sink.batch_writer(GIVEN, schema, overwrite=True)
    with pytest.raises(InvalidOptionValue, match='use outputMode "append"'):
        sink.stream_writer(GIVEN, schema, overwrite=True)
    with pytest.raises(InvalidOptionValue, match="counts its epochs itself"):
        sink.stream_writer({**GIVEN, "producer": "p", "epoch": "0"}, schema, overwrite=False)


def test_a_named_producer_of_a_batch_counts_its_epochs():
    schema = StructType().add("payload", "binary")
    with pytest.raises(InvalidOptionValue, match='option "epoch" is missing'):
        sink.batch_writer({**GIVEN, "producer": "nightly"}, schema, overwrite=False)


def test_json_payloads():
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "a": 1,
                "b": b"\x01\x02",
                "c": dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC),
                "d": decimal.Decimal("1.50"),
                "e": None,
                "f": [1, 2],
                "g": {"x": 1.5},
            }
        ]
    )
    encode = payload_encoder(SinkColumns(None, None, None, None, tuple("abcdefg")), "json")
    assert json.loads(encode(rows)[0].as_py()) == {
        "a": 1,
        "b": base64.b64encode(b"\x01\x02").decode(),
        "c": "2026-05-01T12:00:00Z",
        "d": "1.50",
        "e": None,
        "f": [1, 2],
        "g": {"x": 1.5},
    }


def test_maps_are_objects_and_msgpack_is_written_too():
    column = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32()))
    rows = pa.RecordBatch.from_arrays([column], ["m"])
    shape = SinkColumns(None, None, None, None, ("m",))
    assert [json.loads(each) for each in payload_encoder(shape, "json")(rows).to_pylist()] == [
        {"m": {"k": 1}},
        {"m": None},
    ]
    packed = payload_encoder(shape, "msgpack")(rows).to_pylist()
    assert [msgspec.msgpack.decode(each) for each in packed] == [{"m": {"k": 1}}, {"m": None}]


def test_text_payloads():
    rows = pa.RecordBatch.from_pydict({"line": ["a", "b"]})
    encode = payload_encoder(SinkColumns(None, None, None, None, ("line",)), "text")
    assert encode(rows).to_pylist() == ["a", "b"]


def test_the_topic_is_found_or_made(borzoi, borzoi_server):
    place = {"connection": borzoi_server.connection_string}
    with pytest.raises(MissingTopic, match=r's/t.*option\("createTopic", "true"\)'):
        partitions_of(options(**place))
    assert partitions_of(options(**place, createTopic="true", partitions="3")) == 3
    assert borzoi.get_topic("s", "t").partitions_count == 3
    assert partitions_of(options(**place, createTopic="true", partitions="5")) == 3
    assert partitions_of(options(**place)) == 3
