"""Protobuf payloads as Python objects, through Google's package; part of `borzoi.spark.formats`.

The messages are described by a descriptor set, the file that `protoc --include_imports --descriptor_set_out`
writes. Only the fields that the Spark schema names are looked at. What becomes of a field:

    an enumeration              its name; its number for a column of integers or for a number without a name
    google.protobuf.Timestamp   a time, and Duration a number of seconds
    the wrappers, as Int64Value the value inside
    a field that is not there   null if its presence is known (messages, `optional`), otherwise its default
"""

import datetime as dt
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import types as st

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark.java import SparkSetupError

Convert = Callable[[Any], Any]
_INTEGERS: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def reader(descriptors: bytes, message_name: str, schema: st.StructType) -> Callable[[bytes], Any]:
    """Reads a payload into a dictionary of the fields that the schema names."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory  # noqa: PLC0415
    except ImportError:
        raise SparkSetupError(
            "the format protobuf needs the package protobuf here and on every worker: pip install protobuf"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(message_name)
    except KeyError:
        raise InvalidOptionValue(f"messageName: descriptorFile has no message {message_name!r}") from None
    except (message.DecodeError, TypeError) as error:
        raise InvalidOptionValue(
            f"descriptorFile: not a descriptor set with its imports (protoc --include_imports): {error}"
        ) from error
    kind = message_factory.GetMessageClass(descriptor)
    convert = _message(descriptor, schema)

    def read(payload: bytes) -> Any:
        try:
            return convert(kind.FromString(payload))
        except message.DecodeError as error:
            raise ValueError(str(error)) from error

    return read


def _message(descriptor: Any, kind: st.DataType) -> Convert:
    if not isinstance(kind, st.StructType):
        raise InvalidOptionValue(
            f"schema: the message {descriptor.full_name} cannot be read as {kind.simpleString()}"
        )
    steps = []
    for field in kind.fields:
        source = descriptor.fields_by_name.get(field.name)
        if source is None:
            raise InvalidOptionValue(f"schema: {descriptor.full_name} has no field {field.name!r}")
        steps.append((field.name, source.has_presence, _field(source, field.dataType)))

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else of(getattr(message, name))
            for name, has_presence, of in steps
        }

    return convert


def _field(source: Any, kind: st.DataType) -> Convert:
    if source.message_type is not None and source.message_type.GetOptions().map_entry:
        if not isinstance(kind, st.MapType):
            raise InvalidOptionValue(f"schema: the field {source.full_name} is a map")
        of = _value(source.message_type.fields_by_name["value"], kind.valueType)
        return lambda pairs: {key: of(value) for key, value in pairs.items()}
    if _is_repeated(source):
        if not isinstance(kind, st.ArrayType):
            raise InvalidOptionValue(f"schema: the field {source.full_name} is an array")
        element = _value(source, kind.elementType)
        return lambda values: [element(value) for value in values]
    return _value(source, kind)


def _is_repeated(source: Any) -> bool:
    # Older versions of the package have only the label, newer ones deprecate it.
    known: bool | None = getattr(source, "is_repeated", None)
    return bool(source.label == source.LABEL_REPEATED) if known is None else known


def _value(source: Any, kind: st.DataType) -> Convert:
    if source.enum_type is not None:
        if isinstance(kind, _INTEGERS):
            return int
        names = {number: value.name for number, value in source.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    if source.message_type is None:
        return _as_it_is
    match source.message_type.full_name:
        case "google.protobuf.Timestamp":
            return lambda value: value.ToDatetime(tzinfo=dt.UTC)
        case "google.protobuf.Duration":
            return lambda value: value.ToTimedelta().total_seconds()
        case name if name in _WRAPPERS:
            return lambda value: value.value
        case _:
            return _message(source.message_type, kind)


def _as_it_is(value: Any) -> Any:
    return value
