"""Which columns a write needs, whether they have suitable types, and what is done with each.

    payload     binary or string; with a format the payload is made of all columns that are not named here
    headers     map<string, binary> or map<string, string>: the message's user headers
    id          binary of 16 bytes: the message's id
    partition   a whole number, if rows are partitioned by it (option partitionColumn)
    key         binary or string, if rows are partitioned by it (option keyColumn)

Without a format every column must have a use: what would be lost without a word is refused. Only the columns
that every row of the source has are passed over, so that a stream can be copied as it comes. With a format,
`headers` and `id` are what they are called only if they have these types, and are part of the payload
otherwise; a column for partitioning stays part of the payload if it was named by an option.

All of this is decided on the driver, from the schema alone.
"""

from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from borzoi.model.errors import InvalidRequest
from borzoi.spark.routing import PartitioningMode
from borzoi.spark.sink_options import (
    DEFAULT_KEY_COLUMN,
    DEFAULT_PARTITION_COLUMN,
    RAW,
    SinkOptions,
)

PAYLOAD, HEADERS, ID = "payload", "headers", "id"
# Columns of the source's rows that say where a message was; it will be elsewhere.
_PASSED_OVER = frozenset(
    {"stream", "topic", "partition", "offset", "timestamp", "origin_timestamp", "key", "checksum"}
)
_TEXTS: tuple[type[DataType], ...] = (BinaryType, StringType)
_NUMBERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)


class UnsuitableColumns(InvalidRequest, text="The rows do not fit"):
    """The rows of a write lack a column, have one too many, or one of the wrong type. Nothing was written."""

    hint = "Rename, cast or drop the column that is named before writing."


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns to read. `payload` is None if a format makes it, of `encoded`."""

    payload: str | None
    headers: str | None
    id: str | None
    route: str | None
    encoded: tuple[str, ...] = ()


def sink_columns(options: SinkOptions, schema: StructType) -> SinkColumns:
    """What to do with the columns of a schema. Raises `UnsuitableColumns` naming the first that is wrong."""
    types = _types(schema)
    route = _route(options, types)
    if options.format == RAW:
        return _raw(types, route)
    headers = HEADERS if _is_headers(types.get(HEADERS)) else None
    message_id = ID if isinstance(types.get(ID), BinaryType) else None
    used = {headers, message_id}
    if route in (DEFAULT_KEY_COLUMN, DEFAULT_PARTITION_COLUMN):
        used.add(route)
    encoded = tuple(name for name in types if name not in used)
    if not encoded:
        raise UnsuitableColumns(
            f'no column is left that could be the payload in the format "{options.format}"'
        )
    if options.format == "text" and (len(encoded) > 1 or not isinstance(types[encoded[0]], StringType)):
        raise UnsuitableColumns(
            'the format "text" writes one column of type string; left are '
            + ", ".join(f"{name} {types[name].simpleString()}" for name in encoded)
        )
    return SinkColumns(None, headers, message_id, route, encoded)


def _raw(types: dict[str, DataType], route: str | None) -> SinkColumns:
    payload = types.get(PAYLOAD)
    if payload is None:
        raise UnsuitableColumns(
            f'column "{PAYLOAD}" is missing, the columns are {", ".join(types) or "none"}; '
            'select(...alias("payload")), or write all columns with .option("format", "json")'
        )
    if not isinstance(payload, _TEXTS):
        raise _wrong_type(PAYLOAD, payload, "binary or string")
    headers, message_id = types.get(HEADERS), types.get(ID)
    if headers is not None and not _is_headers(headers):
        raise _wrong_type(HEADERS, headers, "map<string,binary> or map<string,string>")
    if message_id is not None and not isinstance(message_id, BinaryType):
        raise _wrong_type(ID, message_id, "binary, of 16 bytes")
    for name in types:
        if name not in (PAYLOAD, HEADERS, ID, route) and name not in _PASSED_OVER:
            raise UnsuitableColumns(
                f'column "{name}" would not be written; drop it, or make a payload of all columns with '
                '.option("format", "json")'
            )
    return SinkColumns(
        PAYLOAD, HEADERS if headers is not None else None, ID if message_id is not None else None, route
    )


def _route(options: SinkOptions, types: dict[str, DataType]) -> str | None:
    if options.partitioning in (PartitioningMode.BALANCED, PartitioningMode.SOURCE):
        return None
    if options.partitioning is PartitioningMode.KEY:
        name, suitable, wanted = options.key_column, _TEXTS, "binary or string"
    else:
        name, suitable, wanted = options.partition_column, _NUMBERS, "a whole number"
    found = types.get(name)
    if found is None:
        raise UnsuitableColumns(
            f'column "{name}" is missing, and rows are to be partitioned by it; '
            f"the columns are {', '.join(types) or 'none'}"
        )
    if not isinstance(found, suitable):
        raise _wrong_type(name, found, wanted)
    return name


def _types(schema: StructType) -> dict[str, DataType]:
    types: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name in types:
            raise UnsuitableColumns(f'two columns have the name "{field.name}"')
        types[field.name] = field.dataType
    return types


def _is_headers(found: DataType | None) -> bool:
    return (
        isinstance(found, MapType)
        and isinstance(found.keyType, StringType)
        and isinstance(found.valueType, _TEXTS)
    )


def _wrong_type(name: str, found: DataType, wanted: str) -> UnsuitableColumns:
    return UnsuitableColumns(f'column "{name}" has the type {found.simpleString()}; it has to be {wanted}')
