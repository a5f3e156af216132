"""The single values that bodies are made of, as codecs that read and write the same layout.

A command's body is declared once, as a tree of codecs (`wire.records` puts these together), and used in
both directions: `read` takes a value from a cursor, `write` appends one to a buffer. Invariants:

- `read` raises `RemoteProtocolError` for anything malformed, `write` raises `LocalProtocolError` for a
  value that the layout cannot carry.
- `least_bytes` is the smallest number of bytes a value takes. A count is checked against it before
  anything is read, so a body cannot ask for more memory than it brings.
- Reading consumes exactly the value; whoever reads a whole body calls `Cursor.finish` at the end.

| name | layout |
|---|---|
| U8 U16 U32 U64 F32 | little-endian |
| BOOL | u8, 0 or 1 |
| NAME8 | u8 length 1..255, UTF-8 |
| STR8 | u8 length 0..255, UTF-8 |
| STR32 | u32 length, UTF-8 |
| BYTES32 | u32 length, bytes |
| IDENTIFIER | u8 kind, u8 length, value: 1 number (length 4, u32), 2 name (length 1..255, UTF-8) |
| CONSUMER | u8 kind (1 consumer, 2 group), IDENTIFIER |
| OPTIONAL_PARTITION | u8 flag, u32 id: 1 = present, anything else = absent |
| PARTITIONING | u8 kind, u8 length, value: 1 balanced (0), 2 partition id (4, u32), 3 key (1..255) |
"""

from abc import ABC, abstractmethod
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - the module's own name for it says nothing
from typing import Generic, TypeVar

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.limits import NAME_BYTES_MAX, PARTITIONING_KEY_BYTES_MAX, U32_MAX
from borzoi.model.values import (
    BytesLike,
    Consumer,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
)
from borzoi.wire.cursor import Cursor

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)


class Codec(ABC, Generic[T]):
    least_bytes: int

    @abstractmethod
    def read(self, cursor: Cursor) -> T: ...

    @abstractmethod
    def write(self, out: bytearray, value: T) -> None: ...


class Number(Codec[T]):
    def __init__(self, name: str, layout: str) -> None:
        self._name = name
        self._struct = Struct(layout)
        self.least_bytes = self._struct.size

    def read(self, cursor: Cursor) -> T:
        value: T = cursor.unpack(self._struct)[0]
        return value

    def write(self, out: bytearray, value: T) -> None:
        try:
            out += self._struct.pack(value)
        except (StructError, OverflowError) as error:
            raise LocalProtocolError(f"{value!r} is no {self._name}") from error


U8 = Number[int]("u8", "<B")
U16 = Number[int]("u16", "<H")
U32 = Number[int]("u32", "<I")
U64 = Number[int]("u64", "<Q")
F32 = Number[float]("f32", "<f")


class Flag(Codec[bool]):
    least_bytes = 1

    def read(self, cursor: Cursor) -> bool:
        value = U8.read(cursor)
        if value > 1:
            raise RemoteProtocolError(f"{value} is neither true nor false")
        return value == 1

    def write(self, out: bytearray, value: bool) -> None:
        out.append(1 if value else 0)


BOOL = Flag()


class Enumerated(Codec[E]):
    """A u8 that is one of an enum's values."""

    least_bytes = 1

    def __init__(self, kinds: type[E]) -> None:
        self._kinds = kinds
        self._by_value = {int(kind): kind for kind in kinds}

    def read(self, cursor: Cursor) -> E:
        value = U8.read(cursor)
        kind = self._by_value.get(value)
        if kind is None:
            raise RemoteProtocolError(f"{value} is no {self._kinds.__name__}")
        return kind

    def write(self, out: bytearray, value: E) -> None:
        U8.write(out, int(value))


class Blob(Codec[bytes]):
    """Bytes behind their length, which may have narrower limits than its number."""

    def __init__(self, length: Codec[int], *, least: int = 0, most: int = U32_MAX) -> None:
        self._length = length
        self._least = least
        self._most = most
        self.least_bytes = length.least_bytes + least

    def read(self, cursor: Cursor) -> bytes:
        length = self._length.read(cursor)
        if not self._least <= length <= self._most:
            raise RemoteProtocolError(f"a length of {length} where {self._least} to {self._most} are allowed")
        return bytes(cursor.take(length))

    def write(self, out: bytearray, value: bytes) -> None:
        if not self._least <= len(value) <= self._most:
            raise LocalProtocolError(f"{len(value)} bytes where {self._least} to {self._most} are allowed")
        self._length.write(out, len(value))
        out += value


class Text(Codec[str]):
    """A blob that is UTF-8."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self.least_bytes = blob.least_bytes

    def read(self, cursor: Cursor) -> str:
        return _decoded(self._blob.read(cursor))

    def write(self, out: bytearray, value: str) -> None:
        self._blob.write(out, _encoded(value))


NAME8 = Text(Blob(U8, least=1, most=NAME_BYTES_MAX))
STR8 = Text(Blob(U8))
STR32 = Text(Blob(U32))
BYTES32 = Blob(U32)


class IdentifierField(Codec[Identifier]):
    least_bytes = 3
    _NUMBER, _NAME = 1, 2

    def read(self, cursor: Cursor) -> Identifier:
        kind, length = cursor.take(2)
        if kind == self._NUMBER and length == U32.least_bytes:
            return U32.read(cursor)
        if kind == self._NAME and length > 0:
            return _decoded(cursor.take(length))
        raise RemoteProtocolError(f"no identifier has kind {kind} and {length} bytes")

    def write(self, out: bytearray, value: Identifier) -> None:
        if isinstance(value, int):
            out += bytes((self._NUMBER, U32.least_bytes))
            U32.write(out, value)
            return
        data = _encoded(value)
        if not 1 <= len(data) <= NAME_BYTES_MAX:
            raise LocalProtocolError(f"a name has 1 to {NAME_BYTES_MAX} bytes, not {len(data)}")
        out += bytes((self._NAME, len(data)))
        out += data


IDENTIFIER = IdentifierField()


class ConsumerField(Codec[Consumer]):
    least_bytes = 1 + IDENTIFIER.least_bytes
    _kind = Enumerated(ConsumerKind)

    def read(self, cursor: Cursor) -> Consumer:
        return Consumer(self._kind.read(cursor), IDENTIFIER.read(cursor))

    def write(self, out: bytearray, value: Consumer) -> None:
        self._kind.write(out, value.kind)
        IDENTIFIER.write(out, value.id)


CONSUMER = ConsumerField()


class OptionalPartition(Codec[int | None]):
    least_bytes = 5
    _struct = Struct("<BI")

    def read(self, cursor: Cursor) -> int | None:
        flag, partition_id = cursor.unpack(self._struct)
        return int(partition_id) if flag == 1 else None

    def write(self, out: bytearray, value: int | None) -> None:
        BOOL.write(out, value is not None)
        U32.write(out, value or 0)


OPTIONAL_PARTITION = OptionalPartition()


class PartitioningField(Codec[Partitioning]):
    least_bytes = 2
    _kind = Enumerated(PartitioningKind)
    _lengths = {  # noqa: RUF012 - never changed
        PartitioningKind.BALANCED: range(1),
        PartitioningKind.PARTITION_ID: range(4, 5),
        PartitioningKind.MESSAGES_KEY: range(1, PARTITIONING_KEY_BYTES_MAX + 1),
    }

    def read(self, cursor: Cursor) -> Partitioning:
        kind = self._kind.read(cursor)
        length = U8.read(cursor)
        if length not in self._lengths[kind]:
            raise RemoteProtocolError(f"no {kind.name} has {length} bytes")
        return Partitioning(kind, bytes(cursor.take(length)))

    def write(self, out: bytearray, value: Partitioning) -> None:
        if len(value.value) not in self._lengths[value.kind]:
            raise LocalProtocolError(f"no {value.kind.name} has {len(value.value)} bytes")
        out += bytes((value.kind, len(value.value)))
        out += value.value


PARTITIONING = PartitioningField()


def _decoded(data: BytesLike) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("text is not UTF-8") from error


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError("text has no UTF-8 form") from error
