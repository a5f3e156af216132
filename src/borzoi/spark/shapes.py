"""What a row of a Spark schema looks like in Python: as a msgspec type that is read, and as Arrow columns.

Rows are read by msgspec into generated structs, one class per `StructType`, so that types are checked while
the payload is parsed and not afterwards. `Shapes` makes the classes; `columns_of` turns a list of their
instances into Arrow arrays, column by column, of exactly the types that Spark expects.

There are two types for a schema. The strict one takes what nearly every row is. The lenient one takes more,
costs more, and is tried only on rows that the strict one refused:

    Spark               strict                          lenient also takes
    boolean             true, false
    byte .. long        an integer in range
    float, double       a number                        "NaN", "Infinity", "-Infinity"
    string              a text                          any other value, as its JSON text
    binary              base64 in JSON, otherwise bytes
    date                "2024-01-31"
    timestamp           RFC 3339; without a zone: UTC   other forms of ISO 8601; a number: seconds since 1970
    timestamp_ntz       RFC 3339 without a zone         other forms of ISO 8601 without one
    decimal             a number or a text, rounded half up to the scale
    array, map, struct  of the above; keys of a map are strict and neither booleans nor compound

A field that is missing is null; where the schema says NOT NULL, that makes the row malformed. Fields that the
schema does not name are passed over.
"""

import datetime as dt
import decimal
import enum
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from types import GenericAlias, SimpleNamespace
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_type

from borzoi.model.errors import InvalidOptionValue

Refine = Callable[[Any], Any]

_BITS: Final[dict[type[st.DataType], int]] = {
    st.ByteType: 8,
    st.ShortType: 16,
    st.IntegerType: 32,
    st.LongType: 64,
}
_PLAIN: Final[dict[type[st.DataType], type]] = {
    st.BooleanType: bool,
    st.BinaryType: bytes,
    st.DateType: dt.date,
}
_NOT_FINITE = Literal["NaN", "Infinity", "-Infinity"]
_COMPOUND: Final = (st.ArrayType, st.MapType, st.StructType, st.BooleanType)
# More digits than Spark has, so that only the rounding asked for takes place; the default of 28 is too few.
_EXACT: Final = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_json_text = msgspec.json.Encoder().encode
_json_str = msgspec.json.Decoder(str).decode


class Dialect(enum.Enum):
    """Where values come from: bytes that msgspec reads itself, or objects that another library has made."""

    JSON = enum.auto()
    MSGPACK = enum.auto()
    OBJECTS = enum.auto()


def arrow_type(kind: st.DataType) -> pa.DataType:
    """The Arrow type that Spark compares with when a source hands over a column of this type."""
    return to_arrow_type(kind, timezone="UTC")


class Shapes:
    """Makes msgspec types of Spark types."""

    def __init__(self, dialect: Dialect, *, is_lenient: bool) -> None:
        self._dialect = dialect
        self._is_lenient = is_lenient

    def row_type(self, schema: st.StructType) -> type[msgspec.Struct]:
        """A struct with the fields f0, f1, ...: what a column is called need not be a name in Python."""
        fields: list[Any] = []
        refines: list[tuple[str, Refine, bool]] = []
        for number, field in enumerate(schema.fields):
            kind, refine = self._type_of(field.dataType, field.name)
            name = f"f{number}"
            # Raw and Any hold null as it is, and msgspec has no union of them.
            fields.append((name, _nullable(kind), None) if field.nullable else (name, kind))
            if refine is not None:
                refines.append((name, refine, field.nullable))
        return msgspec.defstruct(
            "Row",
            fields,
            rename={f"f{number}": field.name for number, field in enumerate(schema.fields)},
            kw_only=True,  # fields that have to be there may follow fields that need not
            namespace={"__post_init__": _refining(refines)} if refines else None,
        )

    def _type_of(self, kind: st.DataType, where: str) -> tuple[Any, Refine | None]:
        """The type, and what turns a value that was read as it into the column's value; None: nothing."""
        if plain := _PLAIN.get(type(kind)):
            return plain, None
        if bits := _BITS.get(type(kind)):
            limit = 1 << (bits - 1)
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)], None
        match kind:
            case st.FloatType() | st.DoubleType():
                return (float | _NOT_FINITE, float) if self._is_lenient else (float, None)
            case st.StringType():
                return self._text()
            case st.TimestampType():
                return (Any, _instant) if self._is_lenient else (dt.datetime, None)
            case st.TimestampNTZType():
                strict = Annotated[dt.datetime, msgspec.Meta(tz=False)]
                return (Any, _local_time) if self._is_lenient else (strict, None)
            case st.DecimalType():
                return decimal.Decimal, _rounding(kind.precision, kind.scale)
            case st.ArrayType():
                return self._array(kind, where)
            case st.MapType():
                return self._map(kind, where)
            case st.StructType():
                return self.row_type(kind), None
        raise InvalidOptionValue(f"schema: no payload can be read as {kind.simpleString()} (column {where})")

    def _text(self) -> tuple[Any, Refine | None]:
        if not self._is_lenient:
            return str, None
        return (msgspec.Raw, _raw_text) if self._dialect is Dialect.JSON else (Any, _any_text)

    def _array(self, kind: st.ArrayType, where: str) -> tuple[Any, Refine | None]:
        element, refine = self._type_of(kind.elementType, f"{where}[]")
        if kind.containsNull:
            element = _nullable(element)
        if refine is None:
            return GenericAlias(list, element), None
        refine_one = _keeping_null(refine, kind.containsNull)
        return GenericAlias(list, element), lambda values: [refine_one(value) for value in values]

    def _map(self, kind: st.MapType, where: str) -> tuple[Any, Refine | None]:
        if isinstance(kind.keyType, _COMPOUND):
            raise InvalidOptionValue(
                f"schema: keys of a map cannot be {kind.keyType.simpleString()} (column {where})"
            )
        key, refine_key = Shapes(self._dialect, is_lenient=False)._type_of(kind.keyType, f"{where} (key)")
        value, refine = self._type_of(kind.valueType, f"{where}{{}}")
        if kind.valueContainsNull:
            value = _nullable(value)
        if refine is None and refine_key is None:
            return GenericAlias(dict, (key, value)), None
        refine_one = _keeping_null(refine or _as_it_is, kind.valueContainsNull)
        key_of = refine_key or _as_it_is
        return GenericAlias(dict, (key, value)), lambda pairs: {
            key_of(k): refine_one(v) for k, v in pairs.items()
        }


def columns_of(rows: Sequence[Any], schema: st.StructType) -> list[pa.Array]:
    """The columns of rows that are instances of a `row_type` of this schema; None is a row of nulls."""
    nothing = SimpleNamespace(**{f"f{number}": None for number in range(len(schema.fields))})
    present = [nothing if row is None else row for row in rows]
    return [
        _column(list(map(attrgetter(f"f{number}"), present)), field.dataType)
        for number, field in enumerate(schema.fields)
    ]


def _column(values: list[Any], kind: st.DataType) -> pa.Array:
    if not isinstance(kind, _COMPOUND) or isinstance(kind, st.BooleanType):
        return pa.array(values, type=arrow_type(kind))
    wanted = arrow_type(kind)
    absent = pa.array([value is None for value in values], type=pa.bool_())
    if isinstance(kind, st.StructType):
        fields = [wanted.field(number) for number in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(columns_of(values, kind), fields=fields, mask=absent)
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    present = [value for value in values if value is not None]
    if isinstance(kind, st.ArrayType):
        elements = _column(list(chain.from_iterable(present)), kind.elementType)
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=wanted, mask=absent)
    assert isinstance(kind, st.MapType)  # noqa: S101 - the last of the compound types
    keys = _column(list(chain.from_iterable(present)), kind.keyType)
    items = _column([item for value in present for item in value.values()], kind.valueType)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=wanted, mask=absent)


def _nullable(kind: Any) -> Any:
    return kind if kind is Any or kind is msgspec.Raw else kind | None


def _refining(refines: list[tuple[str, Refine, bool]]) -> Callable[[Any], None]:
    # A ValueError in here becomes an error of the row with the path to the field, as if msgspec had found it.
    steps = [(name, _keeping_null(refine, is_nullable)) for name, refine, is_nullable in refines]

    def refine_fields(row: Any) -> None:
        for name, refine in steps:
            setattr(row, name, refine(getattr(row, name)))

    return refine_fields


def _keeping_null(refine: Refine, is_nullable: bool) -> Refine:
    def refine_value(value: Any) -> Any:
        refined = None if value is None else refine(value)
        if refined is None and not is_nullable:
            raise ValueError("null, where the schema says NOT NULL")
        return refined

    return refine_value


def _as_it_is(value: Any) -> Any:
    return value


def _raw_text(raw: msgspec.Raw) -> str | None:
    data = bytes(raw)
    if data.startswith(b'"'):
        return _json_str(data)
    return None if data == b"null" else data.decode()


def _any_text(value: Any) -> str:
    return value if isinstance(value, str) else _json_text(value).decode()


def _instant(value: Any) -> dt.datetime:
    if isinstance(value, bool) or not isinstance(value, str | int | float | dt.datetime):
        raise ValueError(f"a {type(value).__name__} is not a time")  # noqa: TRY004 - see _refining
    if isinstance(value, int | float):
        try:
            # Not through a float: it has too few digits for microseconds after the year 2242 or so.
            return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=value)
        except OverflowError:
            raise ValueError(f"{value} seconds since 1970 are out of range") from None
    return dt.datetime.fromisoformat(value) if isinstance(value, str) else value


def _local_time(value: Any) -> dt.datetime:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if not isinstance(value, dt.datetime) or value.tzinfo is not None:
        raise ValueError("not a time without a zone")
    return value


def _rounding(precision: int, scale: int) -> Refine:
    unit = decimal.Decimal(1).scaleb(-scale)
    limit = decimal.Decimal(10) ** (precision - scale)

    def rounded(value: decimal.Decimal) -> decimal.Decimal:
        # Compared first: a number like 1e999999 must not be written out in digits.
        if not value.is_finite() or value.copy_abs() >= limit:
            raise ValueError(f"{value} does not fit decimal({precision},{scale})")
        exact = value.quantize(unit, context=_EXACT)
        if exact.copy_abs() >= limit:
            raise ValueError(f"{value} does not fit decimal({precision},{scale})")
        return exact

    return rounded
