"""Codecs made of codecs: records, lists, optional parts, and the pair of bodies that makes a command.

The invariants of `wire.fields` hold here too. A list's count is checked against the bytes that are left
before its first item is read.

| name | layout |
|---|---|
| Record | the fields of a dataclass, one after the other |
| Details | a record that holds a count, then so many items |
| Many | items up to the end of the body |
| Counted | a count (u32 unless said otherwise), items |
| Flagged | u8 flag, the value if it is 1 |
| Nullable | a number, one value of which means none |
| Sized | u32 length in bytes, the value |
| Prefixed | a value that the model has no place for, the value |
| Implied | no bytes: a field of the model that the layout does not carry |
| OrNothing | the value, or the end of the body |
| NOTHING | no bytes |
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import BOOL, U32, Codec

T = TypeVar("T")
P = TypeVar("P")


class Layout(msgspec.Struct, frozen=True):
    """The two bodies of a command."""

    request: Codec[Any]
    reply: Codec[Any]


class Record(Codec[T]):
    """A Struct, field after field in the order given here (not in the order of the class)."""

    def __init__(self, cls: type[T], /, **layout: Codec[Any]) -> None:
        declared = {field.name for field in msgspec.structs.fields(cls)}  # type: ignore[arg-type] # any Struct
        if declared != set(layout):
            raise TypeError(f"{cls.__name__} has {sorted(declared)}, its layout {sorted(layout)}")
        self._cls = cls
        self._layout = tuple(layout.items())
        self.least_bytes = sum(codec.least_bytes for codec in layout.values())

    def read(self, cursor: Cursor) -> T:
        return self._cls(**{name: codec.read(cursor) for name, codec in self._layout})

    def write(self, out: bytearray, value: T) -> None:
        if not isinstance(value, self._cls):
            raise LocalProtocolError(f"{self._cls.__name__} expected, not {type(value).__name__}")
        for name, codec in self._layout:
            codec.write(out, getattr(value, name))


class Many(Codec[tuple[T, ...]]):
    """Values up to the end of the body, without a count."""

    least_bytes = 0

    def __init__(self, item: Codec[T]) -> None:
        self._item = _of_some_bytes(item)

    def read(self, cursor: Cursor) -> tuple[T, ...]:
        items = []
        while cursor.remaining_bytes:
            items.append(self._item.read(cursor))
        return tuple(items)

    def write(self, out: bytearray, value: tuple[T, ...]) -> None:
        for item in value:
            self._item.write(out, item)


class Counted(Codec[tuple[T, ...]]):
    """Values behind their count. Where a peer may leave an empty list out, the body may just end."""

    def __init__(self, item: Codec[T], count: Codec[int] = U32, *, may_be_missing: bool = False) -> None:
        self._item = _of_some_bytes(item)
        self._count = count
        self._may_be_missing = may_be_missing
        self.least_bytes = 0 if may_be_missing else count.least_bytes

    def read(self, cursor: Cursor) -> tuple[T, ...]:
        if self._may_be_missing and not cursor.remaining_bytes:
            return ()
        return _read_items(cursor, self._item, self._count.read(cursor))

    def write(self, out: bytearray, value: tuple[T, ...]) -> None:
        self._count.write(out, len(value))
        for item in value:
            self._item.write(out, item)


class Details(Codec[T]):
    """A head that says how many items follow it, and the items: a dataclass of these two fields."""

    def __init__(self, cls: type[T], count: str, **layout: Codec[Any]) -> None:
        self._cls = cls
        self._count = count
        (self._head_name, self._head), (self._items_name, item) = layout.items()
        self._item = _of_some_bytes(item)
        self.least_bytes = self._head.least_bytes

    def read(self, cursor: Cursor) -> T:
        head = self._head.read(cursor)
        items = _read_items(cursor, self._item, getattr(head, self._count))
        return self._cls(**{self._head_name: head, self._items_name: items})

    def write(self, out: bytearray, value: T) -> None:
        if not isinstance(value, self._cls):
            raise LocalProtocolError(f"{self._cls.__name__} expected, not {type(value).__name__}")
        head, items = getattr(value, self._head_name), getattr(value, self._items_name)
        if getattr(head, self._count) != len(items):
            raise LocalProtocolError(f"{self._count} is {getattr(head, self._count)} for {len(items)} items")
        self._head.write(out, head)
        for item in items:
            self._item.write(out, item)


class Flagged(Codec[T | None]):
    """A BOOL, and the value if it is true."""

    least_bytes = 1

    def __init__(self, value: Codec[T]) -> None:
        self._value = value

    def read(self, cursor: Cursor) -> T | None:
        return self._value.read(cursor) if BOOL.read(cursor) else None

    def write(self, out: bytearray, value: T | None) -> None:
        BOOL.write(out, value is not None)
        if value is not None:
            self._value.write(out, value)


class Nullable(Codec[int | None]):
    """A number of which one value means None."""

    def __init__(self, number: Codec[int], null: int) -> None:
        self._number = number
        self._null = null
        self.least_bytes = number.least_bytes

    def read(self, cursor: Cursor) -> int | None:
        value = self._number.read(cursor)
        return None if value == self._null else value

    def write(self, out: bytearray, value: int | None) -> None:
        if value == self._null:
            raise LocalProtocolError(f"{value} means none")
        self._number.write(out, self._null if value is None else value)


class Sized(Codec[T]):
    """A value behind its u32 length in bytes, which it fills exactly."""

    def __init__(self, value: Codec[T]) -> None:
        self._value = value
        self.least_bytes = U32.least_bytes + value.least_bytes

    def read(self, cursor: Cursor) -> T:
        section = Cursor(cursor.take(U32.read(cursor)))
        value = self._value.read(section)
        section.finish()
        return value

    def write(self, out: bytearray, value: T) -> None:
        section = bytearray()
        self._value.write(section, value)
        U32.write(out, len(section))
        out += section


class Prefixed(Codec[T], Generic[P, T]):
    """A value behind another that the model has no place for: read and dropped, always written alike."""

    def __init__(self, prefix: Codec[P], written: P, value: Codec[T]) -> None:
        self._prefix = prefix
        self._written = written
        self._value = value
        self.least_bytes = prefix.least_bytes + value.least_bytes

    def read(self, cursor: Cursor) -> T:
        self._prefix.read(cursor)
        return self._value.read(cursor)

    def write(self, out: bytearray, value: T) -> None:
        self._prefix.write(out, self._written)
        self._value.write(out, value)


class Implied(Codec[T]):
    """A field of the model that the layout does not carry; one that matters can only have its usual value."""

    least_bytes = 0

    def __init__(self, make: Callable[[], T], *, may_be_lost: bool = False) -> None:
        self._make = make
        self._may_be_lost = may_be_lost

    def read(self, cursor: Cursor) -> T:  # noqa: ARG002 - a codec's signature
        return self._make()

    def write(self, out: bytearray, value: T) -> None:  # noqa: ARG002 - a codec's signature
        if not self._may_be_lost and value != self._make():
            raise LocalProtocolError(f"this layout has no place for {value!r}")


# For a field that only other generations carry.
NOT_SENT: Codec[Any] = Implied(lambda: None)


class OrNothing(Codec[T | None]):
    """A whole body that is empty when the thing asked for does not exist."""

    least_bytes = 0

    def __init__(self, value: Codec[T]) -> None:
        self._value = _of_some_bytes(value)

    def read(self, cursor: Cursor) -> T | None:
        return self._value.read(cursor) if cursor.remaining_bytes else None

    def write(self, out: bytearray, value: T | None) -> None:
        if value is not None:
            self._value.write(out, value)


class Nothing(Codec[None]):
    """The body of a command that has nothing to answer."""

    least_bytes = 0

    def read(self, cursor: Cursor) -> None:
        pass

    def write(self, out: bytearray, value: None) -> None:  # noqa: ARG002 - a codec's signature
        if value is not None:
            raise LocalProtocolError(f"nothing expected, not {type(value).__name__}")


NOTHING = Nothing()


def _of_some_bytes(codec: Codec[T]) -> Codec[T]:
    """Refuse a layout in which a count is not bounded by the body, or an empty value reads as none."""
    if codec.least_bytes == 0:
        raise TypeError("a value that takes no bytes cannot be counted or left out")
    return codec


def _read_items(cursor: Cursor, item: Codec[T], count: int) -> tuple[T, ...]:
    """So many values; a count that the body cannot hold is refused before any of them is read."""
    if count * item.least_bytes > cursor.remaining_bytes:
        raise RemoteProtocolError(f"{count} items do not fit in {cursor.remaining_bytes} bytes")
    return tuple([item.read(cursor) for _ in range(count)])
