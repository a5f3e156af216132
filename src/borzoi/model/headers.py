"""User headers of a message: typed keys and values.

A block is a sequence of entries without a count, each of them a key and a value in the same form:

    off  size  field
      0     1  key kind      1..15, see HeaderKind
      1     4  key length    1..255
      5     n  key
    5+n     1  value kind
    6+n     4  value length
   10+n     m  value

Numbers are little-endian and exactly as wide as their kind says, a bool is one byte 0 or 1, a string is
UTF-8. The whole block has at most USER_HEADERS_BYTES_MAX bytes; an empty block means no headers. Of entries
with the same key the last one counts.

A `TypedValue` is the exact form of a key or value and the one that decoding returns; plain Python objects are
accepted wherever it is. Bytes that break these rules raise `RemoteProtocolError` and nothing else; a header
of our own that breaks them raises `InvalidHeaderKey`, `InvalidHeaderValue` or `TooBigUserHeaders`.

The older form without a key kind belongs to the classic codecs, not here.
"""

import struct
from collections.abc import Mapping

from borzoi.model.errors import (
    InvalidHeaderKey,
    InvalidHeaderKind,
    InvalidHeaderValue,
    RemoteProtocolError,
    TooBigUserHeaders,
)
from borzoi.model.limits import HEADER_FIELD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import BytesLike, HeaderKind, TypedValue

HeaderObject = bytes | str | bool | int | float
HeaderKey = TypedValue | HeaderObject
HeaderField = TypedValue | HeaderObject

_PREFIX = struct.Struct("<BI")
_FLOATS = {HeaderKind.FLOAT32: struct.Struct("<f"), HeaderKind.FLOAT64: struct.Struct("<d")}
_SIGNED_BYTES = {
    HeaderKind.INT8: 1,
    HeaderKind.INT16: 2,
    HeaderKind.INT32: 4,
    HeaderKind.INT64: 8,
    HeaderKind.INT128: 16,
}
_UNSIGNED_BYTES = {
    HeaderKind.UINT8: 1,
    HeaderKind.UINT16: 2,
    HeaderKind.UINT32: 4,
    HeaderKind.UINT64: 8,
    HeaderKind.UINT128: 16,
}
_EXACT_BYTES = {
    HeaderKind.BOOL: 1,
    **_SIGNED_BYTES,
    **_UNSIGNED_BYTES,
    **{kind: form.size for kind, form in _FLOATS.items()},
}
# A dictionary is several times faster than calling the enum, and this runs twice per header.
_KINDS = {int(kind): kind for kind in HeaderKind}


def encode_user_headers(headers: Mapping[HeaderKey, HeaderField]) -> bytes:
    parts: list[bytes] = []
    for key, value in headers.items():
        parts += _encoded(key, InvalidHeaderKey)
        parts += _encoded(value, InvalidHeaderValue)
    block = b"".join(parts)
    if len(block) > USER_HEADERS_BYTES_MAX:
        raise TooBigUserHeaders(f"{len(block)} bytes")
    return block


def decode_user_headers(data: BytesLike) -> dict[TypedValue, TypedValue]:
    block = bytes(data)
    if len(block) > USER_HEADERS_BYTES_MAX:
        raise RemoteProtocolError(f"user headers of {len(block)} bytes", TooBigUserHeaders.code)
    headers: dict[TypedValue, TypedValue] = {}
    position = 0
    while position < len(block):
        key, position = _decoded(block, position, InvalidHeaderKey)
        headers[key], position = _decoded(block, position, InvalidHeaderValue)
    return headers


def to_python(value: TypedValue) -> HeaderObject:
    """The value as a Python object. Raises `RemoteProtocolError` if the bytes do not fit the kind."""
    kind, data = value.kind, value.data
    if fault := _fault(kind, data):
        raise RemoteProtocolError(fault, InvalidHeaderValue.code)
    if kind is HeaderKind.RAW:
        return data
    if kind is HeaderKind.STRING:
        return data.decode()
    if kind is HeaderKind.BOOL:
        return data == b"\x01"
    if kind in _FLOATS:
        number: float = _FLOATS[kind].unpack(data)[0]
        return number
    return int.from_bytes(data, "little", signed=kind in _SIGNED_BYTES)


def from_python(value: HeaderObject, kind: HeaderKind | None = None) -> TypedValue:
    """The exact form of a Python object, as the given kind or as the one that suits its type.

    Without a kind an int becomes int64, or int128 or uint128 if it needs them; a float becomes float64.
    Raises `InvalidHeaderValue` if the object does not fit the kind.
    """
    if kind is None:
        kind = _kind_for(value)
    try:
        return TypedValue(kind, _packed(value, kind))
    except (OverflowError, UnicodeEncodeError, struct.error) as error:
        raise InvalidHeaderValue(f"{kind.name.lower()}: {error}") from error


def _kind_for(value: HeaderObject) -> HeaderKind:
    if isinstance(value, str):
        return HeaderKind.STRING
    if isinstance(value, bytes):
        return HeaderKind.RAW
    if isinstance(value, bool):
        return HeaderKind.BOOL
    if isinstance(value, float):
        return HeaderKind.FLOAT64
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return HeaderKind.INT64
        return HeaderKind.INT128 if value < 2**127 else HeaderKind.UINT128
    raise InvalidHeaderValue(f"no kind of header holds a {type(value).__name__}")


def _packed(value: HeaderObject, kind: HeaderKind) -> bytes:
    if kind is HeaderKind.RAW and isinstance(value, bytes):
        return value
    if kind is HeaderKind.STRING and isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        # A bool is an int to Python; only its own kind may take it.
        if kind is HeaderKind.BOOL:
            return b"\x01" if value else b"\x00"
    elif isinstance(value, int | float) and kind in _FLOATS:
        return _FLOATS[kind].pack(value)
    elif isinstance(value, int) and kind in _SIGNED_BYTES:
        return value.to_bytes(_SIGNED_BYTES[kind], "little", signed=True)
    elif isinstance(value, int) and kind in _UNSIGNED_BYTES:
        return value.to_bytes(_UNSIGNED_BYTES[kind], "little")
    raise InvalidHeaderValue(f"a {type(value).__name__} is not a {kind.name.lower()}")


def _encoded(field: HeaderField, refusal: type[InvalidHeaderKey | InvalidHeaderValue]) -> tuple[bytes, bytes]:
    if not isinstance(field, TypedValue):
        try:
            field = from_python(field)
        except InvalidHeaderValue as error:
            raise refusal(error.detail) from error
    if not 1 <= len(field.data) <= HEADER_FIELD_BYTES_MAX:
        raise refusal(f"{len(field.data)} bytes")
    if fault := _fault(field.kind, field.data):
        raise refusal(fault)
    return _PREFIX.pack(field.kind, len(field.data)), field.data


def _decoded(
    block: bytes, position: int, refusal: type[InvalidHeaderKey | InvalidHeaderValue]
) -> tuple[TypedValue, int]:
    """Read one key or value and say where the next one starts."""
    start = position + _PREFIX.size
    if start > len(block):
        raise RemoteProtocolError(f"user headers end within a field at byte {position}", refusal.code)
    kind_code, size_bytes = _PREFIX.unpack_from(block, position)
    kind = _KINDS.get(kind_code)
    if kind is None:
        raise RemoteProtocolError(f"header kind {kind_code} at byte {position}", InvalidHeaderKind.code)
    if not 1 <= size_bytes <= HEADER_FIELD_BYTES_MAX:
        raise RemoteProtocolError(f"header field of {size_bytes} bytes at byte {position}", refusal.code)
    end = start + size_bytes
    if end > len(block):
        raise RemoteProtocolError(f"user headers end within a field at byte {position}", refusal.code)
    data = block[start:end]
    if fault := _fault(kind, data):
        raise RemoteProtocolError(f"{fault} at byte {position}", refusal.code)
    return TypedValue(kind, data), end


def _fault(kind: HeaderKind, data: bytes) -> str:
    """Why these bytes are no value of the kind; empty if they are one."""
    if kind is HeaderKind.RAW:
        return ""
    if kind is HeaderKind.STRING:
        try:
            data.decode()
        except UnicodeDecodeError:
            return "string that is not UTF-8"
        return ""
    if len(data) != _EXACT_BYTES[kind]:
        return f"{kind.name.lower()} of {len(data)} bytes"
    if kind is HeaderKind.BOOL and data[0] > 1:
        return f"bool with the value {data[0]}"
    return ""
