"""Avro payloads as Python objects, through fastavro; part of `borzoi.spark.formats`.

A payload is one datum without the header of an Avro file. Producers that use a schema registry put five bytes
before it, a zero and the schema's number there; they are passed over if the option says so, and the number is
not looked up: the schema is the one that was given.
"""

import io
import json
from collections.abc import Callable
from typing import Any

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark.java import SparkSetupError


def reader(schema_text: str, prefix_bytes: int) -> Callable[[bytes], Any]:
    """Reads a payload into a dictionary with the values of fastavro: times, dates, decimals, bytes."""
    try:
        import fastavro  # noqa: PLC0415 - only users of this format have it
    except ImportError:
        raise SparkSetupError(
            "the format avro needs the package fastavro here and on every worker: pip install fastavro"
        ) from None
    try:
        schema = fastavro.parse_schema(json.loads(schema_text))
    except (KeyError, TypeError) as error:
        raise InvalidOptionValue(f"avroSchema: it is not the schema of a record: {error!r}") from error
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidOptionValue(f"avroSchema: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidOptionValue("avroSchema: columns need a record")

    def read(payload: bytes) -> Any:
        if prefix_bytes and (len(payload) < prefix_bytes or payload[0] != 0):
            raise ValueError("the five bytes of a schema registry are missing before the datum")
        file = io.BytesIO(payload)
        file.seek(prefix_bytes)
        value = fastavro.schemaless_reader(file, schema, None)
        if file.tell() != len(payload):
            raise ValueError(f"{len(payload) - file.tell()} bytes are left after the datum")
        return value

    return read
