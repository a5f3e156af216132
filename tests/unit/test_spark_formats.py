"""Payloads into columns, without Spark: formats, types, and what becomes of malformed payloads."""

import datetime as dt
import decimal
import io
import json
import pickle

import msgspec
import pytest

pa = pytest.importorskip("pyarrow", reason="needs borzoi[spark]")
st = pytest.importorskip("pyspark.sql.types", reason="needs borzoi[spark]")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as some  # noqa: E402
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402

from borzoi.model.errors import InvalidOptionValue  # noqa: E402
from borzoi.spark.formats import MalformedPayload, decoder  # noqa: E402

FLAT = st.StructType().add("id", "long").add("name", "string").add("price", "double").add("ok", "boolean")
CORRUPT = st.StructType().add("id", "long").add("_corrupt_record", "string").add("name", "string")


def payloads(*items):
    return pa.array(items, pa.binary())


def rows_of(columns, schema):
    """The rows, after checking that Spark would take the columns."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    assert [column.type for column in columns] == [field.type for field in wanted]
    batch = pa.RecordBatch.from_arrays(columns, schema=wanted)
    batch.validate(full=True)
    return [tuple(row.values()) for row in batch.to_pylist()]


def read(kind, schema, *items, **options):
    made = decoder(kind, schema, options)
    return rows_of(made.decode(payloads(*items)), schema)


def read_one(kind, text, name="json"):
    """What one value is read as; the column is of the type."""
    schema = st.StructType([st.StructField("v", kind)])
    payload = b'{"v":%s}' % text if name == "json" else msgspec.msgpack.encode({"v": text})
    return read(name, schema, payload, mode="FAILFAST")[0][0]


def test_json_objects_become_columns_of_the_schemas_types():
    rows = read(
        "json",
        FLAT,
        b'{"id": 1, "name": "a", "price": 2, "ok": true, "other": [1, {"x": null}]}',
        b' {"ok":null,"price":-0.5} ',
    )
    assert rows == [(1, "a", 2.0, True), (None, None, -0.5, None)]


def test_no_payloads_make_empty_columns():
    for kind in ("json", "msgpack"):
        assert read(kind, FLAT) == []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (st.ByteType(), b"-128", -128),
        (st.ShortType(), b"32767", 32767),
        (st.IntegerType(), b"-2147483648", -(2**31)),
        (st.LongType(), b"9223372036854775807", 2**63 - 1),
        (st.DoubleType(), b"1", 1.0),
        (st.DoubleType(), b'"-Infinity"', float("-inf")),
        (st.StringType(), b'"\\u00e9\\n"', "é\n"),
        (st.StringType(), b"1.10", "1.10"),
        (st.StringType(), b'{"a": [1]}', '{"a": [1]}'),
        (st.BinaryType(), b'"AAEC"', b"\0\1\2"),
        (st.DateType(), b'"2024-02-29"', dt.date(2024, 2, 29)),
        (
            st.TimestampType(),
            b'"2024-01-31T12:00:00.5+02:00"',
            dt.datetime(2024, 1, 31, 10, 0, 0, 500000, dt.UTC),
        ),
        (st.TimestampType(), b'"2024-01-31T12:00:00"', dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)),
        (st.TimestampType(), b'"2024-01-31"', dt.datetime(2024, 1, 31, tzinfo=dt.UTC)),
        (st.TimestampType(), b"1.5", dt.datetime(1970, 1, 1, 0, 0, 1, 500000, dt.UTC)),
        (st.TimestampNTZType(), b'"2024-01-31 12:00:00"', dt.datetime(2024, 1, 31, 12)),  # noqa: DTZ001
        (st.DecimalType(10, 2), b"1.005", decimal.Decimal("1.01")),
        (st.DecimalType(38, 0), b'"' + b"9" * 38 + b'"', decimal.Decimal("9" * 38)),
        (st.ArrayType(st.IntegerType()), b"[1, null, 2]", [1, None, 2]),
        (st.ArrayType(st.ArrayType(st.StringType())), b'[[], ["a"], null]', [[], ["a"], None]),
        (st.ArrayType(st.DecimalType(5, 1)), b"[1.25, null]", [decimal.Decimal("1.3"), None]),
        (st.MapType(st.StringType(), st.LongType()), b'{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (st.MapType(st.IntegerType(), st.StringType()), b'{"7": 8}', [(7, "8")]),
        (
            st.StructType().add("x", "integer").add("y y", st.ArrayType(FLAT)),
            b'{"y y": [{"id": 3}, null]}',
            {"x": None, "y y": [{"id": 3, "name": None, "price": None, "ok": None}, None]},
        ),
    ],
    ids=lambda each: each.simpleString() if isinstance(each, st.DataType) else None,
)
def test_json_values_of_every_type(kind, text, value):
    assert read_one(kind, text) == value
    assert read_one(kind, b"null") is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (st.ByteType(), b"128"),
        (st.LongType(), b"9223372036854775808"),
        (st.LongType(), b"1.0"),
        (st.LongType(), b'"1"'),
        (st.BooleanType(), b"1"),
        (st.DoubleType(), b'"1"'),
        (st.DoubleType(), b"1e400"),
        (st.BinaryType(), b'"!"'),
        (st.DateType(), b'"2023-02-29"'),
        (st.TimestampType(), b'"yesterday"'),
        (st.TimestampType(), b"1e300"),
        (st.TimestampType(), b"true"),
        (st.TimestampNTZType(), b'"2024-01-31T12:00:00Z"'),
        (st.DecimalType(4, 2), b"99.995"),
        (st.DecimalType(4, 2), b"1e999999"),
        (st.DecimalType(4, 2), b'"NaN"'),
        (st.ArrayType(st.IntegerType(), containsNull=False), b"[null]"),
        (st.ArrayType(st.StringType(), containsNull=False), b"[null]"),
        (st.ArrayType(st.IntegerType()), b"{}"),
        (st.StructType([st.StructField("a", st.StringType(), nullable=False)]), b'{"a": null}'),
        (st.StructType([st.StructField("a", st.StringType(), nullable=False)]), b"{}"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_their_column_make_a_payload_malformed(kind, text):
    with pytest.raises(MalformedPayload):
        read_one(kind, text)


def test_msgpack_has_bytes_times_and_keys_of_its_own():
    moment = dt.datetime(2024, 1, 31, 12, 0, 0, 250000, dt.UTC)
    assert read_one(st.BinaryType(), b"\0\xff", "msgpack") == b"\0\xff"
    assert read_one(st.TimestampType(), moment, "msgpack") == moment
    assert read_one(st.TimestampType(), 2, "msgpack") == dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)
    assert read_one(st.MapType(st.LongType(), st.DoubleType()), {1: 2}, "msgpack") == [(1, 2.0)]
    assert read_one(st.StringType(), [1, "a"], "msgpack") == '[1,"a"]'


BAD = (
    b"",
    b"{",
    b"[]",
    b'{"id": "x"}',
    b'{"name": "\xff"}',
    b"[" * 100_000,
    b'{"id": 1} {}',
    b"\x81\xa2id\x01",
)


def test_permissive_turns_malformed_payloads_into_nulls_and_keeps_them_in_their_column():
    rows = read("json", CORRUPT, b'{"id": 1, "name": "a"}', *BAD, b'{"id": 2}')
    assert rows[0] == (1, None, "a")
    assert rows[-1] == (2, None, None)
    assert rows[1:-1] == [(None, bad.decode(errors="replace"), None) for bad in BAD]


def test_the_column_for_malformed_payloads_can_be_binary_and_have_another_name():
    schema = st.StructType().add("bad", "binary").add("id", "long")
    rows = read("json", schema, b"\xff", b'{"id": 1}', columnNameOfCorruptRecord="bad")
    assert rows == [(b"\xff", None), (None, 1)]


def test_dropmalformed_leaves_them_out_and_says_which():
    made = decoder("json", FLAT, {"MODE": "dropMalformed"})
    items = payloads(b'{"id":1}', b"oops", b'{"id":3}')
    assert [row[0] for row in rows_of(made.decode(items), FLAT)] == [1, 3]
    decoded = made.decode_rows(items)
    assert decoded.kept.to_pylist() == [True, False, True]
    assert [len(column) for column in decoded.columns] == [3] * 4
    assert made.decode_rows(payloads(b"{}")).kept is None


def test_failfast_says_where_the_first_malformed_payload_is():
    made = decoder("json", FLAT, {"mode": "FAILFAST"})
    with pytest.raises(MalformedPayload, match=r"partition 3, offset 101: .*Expected `int") as caught:
        made.decode_rows(
            payloads(b"{}", b'{"id":"x"}', b"["), where=lambda row: f"partition 3, offset {100 + row}"
        )
    assert caught.value.row == 1


def test_a_payload_that_is_null_is_a_row_of_nulls_and_not_malformed():
    made = decoder("json", FLAT, {"mode": "FAILFAST"})
    assert rows_of(made.decode(payloads(None, b'{"id":1}')), FLAT)[0] == (None,) * 4


def test_columns_that_must_not_be_null_are_refused_where_malformed_payloads_would_fill_them():
    schema = st.StructType([st.StructField("id", st.LongType(), nullable=False)])
    with pytest.raises(InvalidOptionValue, match="NOT NULL"):
        decoder("json", schema)
    with pytest.raises(MalformedPayload):
        read("json", schema, b"{}", mode="FAILFAST")
    assert read("json", schema, b"{}", b'{"id":5}', mode="DROPMALFORMED") == [(5,)]


def test_raw_and_text_fill_one_column():
    binary, text = st.StructType().add("value", "binary"), st.StructType().add("value", "string")
    assert read("raw", binary, b"\xff", b"") == [(b"\xff",), (b"",)]
    assert read("text", text, b"a", "é".encode(), b"\xff") == [("a",), ("é",), (None,)]
    with pytest.raises(MalformedPayload, match="row 1"):
        read("text", text, b"a", b"\xff", mode="FAILFAST")
    with pytest.raises(InvalidOptionValue, match="one column of the type string"):
        decoder("text", FLAT)


def test_slices_and_pickled_decoders_read_the_same():
    made = pickle.loads(pickle.dumps(decoder("json", FLAT)))
    part = payloads(b"?", b'{"id":1}', b'{"id":2}').slice(1)
    assert [row[0] for row in rows_of(made.decode(part), FLAT)] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("xml", {}, "format is one of raw, text, json"),
        ("json", {"mode": "LAX"}, "mode is one of PERMISSIVE"),
        ("avro", {}, "needs the option avroSchema"),
        ("avro", {"avroSchema": "{"}, "avroSchema"),
        ("avro", {"avroSchema": '"long"'}, "record"),
        ("avro", {"avroSchema": "{}"}, "it is not the schema of a record"),
        ("protobuf", {"descriptorFile": "/nowhere/at.all", "messageName": "M"}, "cannot be read"),
        ("protobuf", {"messageName": "M"}, "needs the option descriptorFile"),
    ],
)
def test_faults_in_options_are_named(kind, options, says):
    with pytest.raises(InvalidOptionValue, match=says):
        decoder(kind, FLAT, options)


def test_types_that_no_payload_has_are_refused():
    for kind in (st.DayTimeIntervalType(), st.MapType(FLAT, st.LongType()), st.NullType()):
        with pytest.raises(InvalidOptionValue, match="column v"):
            decoder("json", st.StructType().add("v", kind))


AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "raw", "type": "bytes"},
    ],
}


def test_avro_data_are_read_with_their_logical_types():
    fastavro = pytest.importorskip("fastavro")
    moment = dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)
    order = {
        "id": 7,
        "name": None,
        "at": moment,
        "cost": decimal.Decimal("1.235"),
        "tags": ["a", "b"],
        "raw": b"\xff",
    }
    file = io.BytesIO()
    fastavro.schemaless_writer(file, AVRO_SCHEMA, order)
    good = file.getvalue()
    schema = (
        st.StructType()
        .add("cost", st.DecimalType(9, 2))
        .add("id", "long")
        .add("name", "string")
        .add("at", "timestamp")
        .add("tags", st.ArrayType(st.StringType()))
        .add("raw", "binary")
        .add("missing", "integer")
    )
    options = {"avroSchema": json.dumps(AVRO_SCHEMA)}
    wanted = (decimal.Decimal("1.24"), 7, None, moment, ["a", "b"], b"\xff", None)
    nulls = (None,) * 7
    assert read("avro", schema, good, good[:-1], good + b"\0", b"", **options) == [
        wanted,
        nulls,
        nulls,
        nulls,
    ]
    prefixed = b"\0\0\0\0\x2a" + good
    assert read("avro", schema, prefixed, good, b"\0", avroConfluentPrefix="true", **options) == [
        wanted,
        nulls,
        nulls,
    ]


def descriptor_set():
    """What protoc would write for a message of a field of each sort."""
    from google.protobuf import descriptor_pb2, timestamp_pb2

    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    field = descriptor_pb2.FieldDescriptorProto
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    for number, (name, kind, label, type_name) in enumerate(
        [
            ("id", field.TYPE_INT64, field.LABEL_OPTIONAL, ""),
            ("state", field.TYPE_ENUM, field.LABEL_OPTIONAL, ".shop.State"),
            ("at", field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
            ("tags", field.TYPE_STRING, field.LABEL_REPEATED, ""),
            ("counts", field.TYPE_MESSAGE, field.LABEL_REPEATED, ".shop.Order.CountsEntry"),
            ("parent", field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".shop.Order"),
            ("raw", field.TYPE_BYTES, field.LABEL_OPTIONAL, ""),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    return files


def test_protobuf_messages_are_read_by_a_descriptor_set(tmp_path):
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pool, message_factory

    files = descriptor_set()
    path = tmp_path / "order.desc"
    path.write_bytes(files.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(
        id=7, state=1, tags=["a"], counts={"x": 2}, raw=b"\xff"
    )
    order.at.FromJsonString("2024-01-31T12:00:00Z")
    order.parent.id = 5
    schema = (
        st.StructType()
        .add("id", "long")
        .add("state", "string")
        .add("at", "timestamp")
        .add("tags", st.ArrayType(st.StringType()))
        .add("counts", st.MapType(st.StringType(), st.LongType()))
        .add("parent", st.StructType().add("id", "integer").add("at", "timestamp").add("state", "integer"))
        .add("raw", "binary")
    )
    options = {"descriptorFile": str(path), "messageName": "shop.Order"}
    made = decoder("protobuf", schema, options)
    path.unlink()  # a worker has no such file
    made = pickle.loads(pickle.dumps(made))
    rows = rows_of(made.decode(payloads(order.SerializeToString(), b"\xff\xff", b"")), schema)
    assert rows == [
        (
            7,
            "PAID",
            dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC),
            ["a"],
            [("x", 2)],
            {"id": 5, "at": None, "state": 0},
            b"\xff",
        ),
        (None,) * 7,
        (0, "NEW", None, [], [], None, b""),
    ]
    path.write_bytes(files.SerializeToString())
    with pytest.raises(InvalidOptionValue, match="messageName"):
        decoder("protobuf", schema, options | {"messageName": "shop.Nothing"})
    with pytest.raises(InvalidOptionValue, match="no field 'colour'"):
        decoder("protobuf", st.StructType().add("colour", "string"), options)


@given(
    some.lists(
        some.fixed_dictionaries(
            {},
            optional={
                "id": some.none() | some.integers(-(2**63), 2**63 - 1),
                "name": some.none() | some.text(),
                "price": some.none() | some.floats(allow_nan=False, allow_infinity=False),
                "ok": some.none() | some.booleans(),
                "else": some.recursive(some.none() | some.text(), some.lists),
            },
        ),
        max_size=20,
    )
)
def test_what_json_and_msgpack_write_is_read_back(objects):
    names = FLAT.fieldNames()
    wanted = [tuple(each.get(name) for name in names) for each in objects]
    assert read("json", FLAT, *(json.dumps(each).encode() for each in objects)) == wanted
    assert read("msgpack", FLAT, *map(msgspec.msgpack.encode, objects)) == wanted


@given(some.lists(some.binary(max_size=60), max_size=5))
def test_any_bytes_are_either_rows_or_malformed(items):
    kind = st.MapType(st.StringType(), st.ArrayType(st.TimestampType()))
    schema = st.StructType([*CORRUPT.fields, st.StructField("more", kind)])
    for name in ("json", "msgpack"):
        assert len(read(name, schema, *items)) == len(items)
