"""Which columns the source has: all of a message, those that were chosen, or the payload's own.

    .option("columns", "offset,payload")             these, in this order
    .schema("offset long, payload binary")           the same; types have to be the source's own
    .option("format", "json").option("schema", ...)  the payload's columns, then partition, offset, timestamp,
                                                     or the columns that the option "columns" names ("none")
    .option("format", "json").schema(...)            the same in any order; a column is the message's if it
                                                     has one of those names, otherwise the payload's

A schema may be given as DDL or as JSON. Only the JVM understands DDL, so that is handed to it as text.
"""

import json
import re
from collections.abc import Mapping

from pyspark.sql.types import StructType

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark.options import nearest
from borzoi.spark.rows import ROW_SCHEMA, Rows
from borzoi.spark.source_options import RAW, SourceOptions

_KNOWN = {field.name: field for field in ROW_SCHEMA.fields}
_METADATA = ("partition", "offset", "timestamp")
_NONE = ("none",)
# What stands before, between and within columns of a schema as DDL; nested ones have brackets around them.
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)")
_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:`]+)")


def source_schema(options: SourceOptions) -> StructType | str:
    """The columns that options ask for."""
    metadata = StructType([_KNOWN[name] for name in _metadata(options)])
    if options.format == RAW:
        return metadata
    written = options.schema
    if written is None:
        if options.format != "text":
            raise InvalidOptionValue(
                f"the format {options.format} needs a schema: "
                '.schema("user string, amount double"), or the same as the option "schema"'
            )
        written = "payload string"
    if written.startswith("{"):
        return StructType([*_from_json(written).fields, *metadata.fields])
    _require_different([*_ddl_names(written), *metadata.fieldNames()])
    return ", ".join(
        [written, *(f"{each.name} {each.dataType.simpleString()} NOT NULL" for each in metadata)]
    )


def rows_of(options: SourceOptions, given: Mapping[str, str], schema: StructType) -> Rows:
    """What makes rows of this schema, which is the options' or the user's."""
    names = schema.fieldNames()
    _require_different(names)
    stream, topic = str(options.target.stream), str(options.target.topic)
    if options.format == RAW:
        for name in names:
            _require_known(name)
        _require_types(schema, names)
        return Rows(schema, tuple(names), stream, topic)
    from borzoi.spark.formats import FORMAT_OPTIONS, decoder  # noqa: PLC0415 - most sources have no format

    metadata = tuple(name for name in names if name in _metadata(options))
    _require_types(schema, metadata)
    of_payload = StructType([field for field in schema.fields if field.name not in metadata])
    of_format = {name.lower() for name in FORMAT_OPTIONS}
    wanted = {name: value for name, value in given.items() if name.lower() in of_format}
    return Rows(schema, metadata, stream, topic, decoder(options.format, of_payload, wanted))


def _metadata(options: SourceOptions) -> tuple[str, ...]:
    names = options.columns
    if names is None:
        return tuple(_KNOWN) if options.format == RAW else _METADATA
    if names == _NONE and options.format != RAW:
        return ()
    for name in names:
        _require_known(name)
    _require_different(names)
    return names


def _require_known(name: str) -> None:
    if name not in _KNOWN:
        raise InvalidOptionValue(f'there is no column "{name}"{nearest(name, _KNOWN)}')


def _require_types(schema: StructType, names: tuple[str, ...] | list[str]) -> None:
    for name in names:
        found, expected = schema[name].dataType.simpleString(), _KNOWN[name].dataType.simpleString()
        if found != expected:
            raise InvalidOptionValue(
                f'schema: column "{name}" is {expected}, not {found}; cast it after reading'
            )


def _require_different(names: tuple[str, ...] | list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidOptionValue(
                f'two columns are called "{name}"; if one is the payload\'s, name those of the message that '
                'you want with the option "columns": "partition,offset", or "none"'
            )
        seen.add(name.lower())


def _from_json(text: str) -> StructType:
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOptionValue(f'option "schema" is not the JSON of a schema: {error}') from None


def _ddl_names(text: str) -> list[str]:
    """Of the columns themselves; what they are made of is left out. The JVM finds what is wrong with it."""
    outer = text
    while (shorter := _BRACKETS.sub("", outer)) != outer:
        outer = shorter
    found = [_COLUMN.match(each) for each in outer.split(",")]
    return [each[1].strip("`") for each in found if each is not None]
