"""Codecs: what a producer makes of a value, and a consumer of a payload.

A codec has two methods, `encode` and `decode`; anything that has them will do. Here are

    BYTES, TEXT          a payload as it is, and as UTF-8
    Json(T), MsgPack(T)  any type that msgspec knows: dataclasses, `msgspec.Struct`, `TypedDict`, lists of
                         them; and pydantic's models, which pydantic checks itself

Both sides have to agree; nothing in a message says how its payload was made. `encode` refuses a value of
another type; whether a dataclass's fields hold what they say is for a type checker. `decode` checks
everything. What they raise is passed on by producers and consumers as `UnencodableValue` and
`UndecodablePayload`.

Pydantic is not needed and not imported, unless a class is one of its own.
"""

import importlib
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, get_args, get_origin, is_typeddict, overload

import msgspec

T = TypeVar("T")

_json_encoder = msgspec.json.Encoder()
_msgpack_encoder = msgspec.msgpack.Encoder()


class Codec(Protocol[T]):
    """Makes payloads of values and values of payloads. Both raise what they like if they cannot."""

    def encode(self, value: T, /) -> bytes: ...

    def decode(self, data: bytes, /) -> T: ...


class _Bytes:
    def encode(self, value: bytes, /) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"bytes are expected, not {type(value).__name__}")
        return bytes(value)

    def decode(self, data: bytes, /) -> bytes:
        return data


class _Text:
    def encode(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"str is expected, not {type(value).__name__}")
        return value.encode()

    def decode(self, data: bytes, /) -> str:
        return data.decode()


BYTES: Final[Codec[bytes]] = _Bytes()
TEXT: Final[Codec[str]] = _Text()


class Json(Generic[T]):
    """JSON, of values of one type; without one, of whatever JSON can say."""

    @overload
    def __init__(self: "Json[Any]") -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._class = _class_of(kind)
        self._adapter = _pydantic_adapter(kind)
        self._decode: Callable[[bytes], Any] = (
            msgspec.json.Decoder(kind).decode if self._adapter is None else self._adapter.validate_json
        )

    def encode(self, value: T, /) -> bytes:
        _require(value, self._class)
        if self._adapter is not None:
            dumped: bytes = self._adapter.dump_json(value, warnings="error")
            return dumped
        return _json_encoder.encode(value)

    def decode(self, data: bytes, /) -> T:
        value: T = self._decode(data)
        return value

    def __repr__(self) -> str:
        return f"Json({_name(self._kind)})"


class MsgPack(Generic[T]):
    """MessagePack, of values of one type; without one, of whatever MessagePack can say.

    Pydantic's models are written as what they are in JSON.
    """

    @overload
    def __init__(self: "MsgPack[Any]") -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._class = _class_of(kind)
        self._adapter = _pydantic_adapter(kind)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            Any if self._adapter is not None else kind
        )

    def encode(self, value: T, /) -> bytes:
        _require(value, self._class)
        if self._adapter is not None:
            return _msgpack_encoder.encode(self._adapter.dump_python(value, mode="json", warnings="error"))
        return _msgpack_encoder.encode(value)

    def decode(self, data: bytes, /) -> T:
        value: T = self._decoder.decode(data)
        if self._adapter is not None:
            # As JSON, because a strict model takes a text for a date there and nowhere else.
            value = self._adapter.validate_json(_json_encoder.encode(value))
        return value

    def __repr__(self) -> str:
        return f"MsgPack({_name(self._kind)})"


def _pydantic_adapter(kind: Any) -> Any:
    """Pydantic's way to and from a type that is one of its models, or made of such; None for any other."""
    if not _is_pydantic(kind):
        return None
    return importlib.import_module("pydantic").TypeAdapter(kind)


def _is_pydantic(kind: Any) -> bool:
    if isinstance(kind, type) and hasattr(kind, "__pydantic_validator__"):
        return True
    return any(map(_is_pydantic, get_args(kind)))


def _class_of(kind: Any) -> type | None:
    """What values of the type are instances of; None if that cannot be said."""
    origin = get_origin(kind) or kind
    if is_typeddict(origin):
        return dict
    # Where a float is asked for, an int is as good.
    return origin if isinstance(origin, type) and origin not in (Any, float) else None


def _require(value: object, wanted: type | None) -> None:
    if wanted is not None and not isinstance(value, wanted):
        raise TypeError(f"{wanted.__name__} is expected, not {type(value).__name__}")


def _name(kind: Any) -> str:
    return "" if kind is Any else getattr(kind, "__name__", repr(kind))
