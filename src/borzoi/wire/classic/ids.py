"""Ids as a dialect writes them.

The model counts everything from zero. Dialects A and B count from one, so their numeric ids of streams,
topics, partitions, groups, members and users are one higher than ours, wherever they stand. The id of a
plain consumer is a name that the application chose and is never shifted. Zero stands for "none" where A
and B have an optional id; anywhere else it is no identifier.

| codec | A, B | C, D |
|---|---|---|
| number | u32, id + 1 | u32 |
| optional_user | u32: 0 = none, else id + 1 | u32: 2^32-1 = none |
| optional_partition | u32: 0 = none, else id + 1 | u8 flag, u32 id: 1 = present, else absent |
| identifier | as in `wire.fields`, numbers shifted | the same, not shifted |
| consumer | u8 kind; 1: identifier as it is, 2: identifier of a group | the same |
| partitioning | as in `wire.fields`, partition id shifted | the same, not shifted |
| permissions | block of `wire.permissions`, ids shifted | the same, not shifted |
| wanted | u32 id wanted for a new thing, 0 = any | nothing: any |
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from borzoi.model.errors import (
    InvalidIdentifier,
    InvalidKeyValueLength,
    LocalProtocolError,
    RemoteProtocolError,
)
from borzoi.model.limits import U32_MAX
from borzoi.model.values import Consumer, ConsumerKind, Identifier, Partitioning, PartitioningKind
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import (
    IDENTIFIER,
    OPTIONAL_PARTITION,
    PARTITIONING,
    U32,
    Codec,
    Enumerated,
)
from borzoi.wire.permissions import PermissionsField
from borzoi.wire.records import NOT_SENT, Nullable

T = TypeVar("T")


class NumberField(Codec[int]):
    least_bytes = U32.least_bytes

    def __init__(self, base: int) -> None:
        self._base = base

    def read(self, cursor: Cursor) -> int:
        return _less(U32.read(cursor), self._base)

    def write(self, out: bytearray, value: int) -> None:
        U32.write(out, _more(value, self._base))


class OptionalNumberField(Codec[int | None]):
    """An id that counts from one, so that zero is none."""

    least_bytes = U32.least_bytes

    def read(self, cursor: Cursor) -> int | None:
        number = U32.read(cursor)
        return number - 1 if number else None

    def write(self, out: bytearray, value: int | None) -> None:
        U32.write(out, 0 if value is None else _more(value, 1))


class IdentifierField(Codec[Identifier]):
    """The codec of `wire.fields` with the status that this generation has for a malformed one."""

    least_bytes = IDENTIFIER.least_bytes

    def __init__(self, base: int) -> None:
        self._base = base

    def read(self, cursor: Cursor) -> Identifier:
        try:
            value = IDENTIFIER.read(cursor)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(error.detail, InvalidIdentifier.code) from None
        return value if isinstance(value, str) else _less(value, self._base)

    def write(self, out: bytearray, value: Identifier) -> None:
        IDENTIFIER.write(out, value if isinstance(value, str) else _more(value, self._base))


class ConsumerField(Codec[Consumer]):
    least_bytes = 1 + IDENTIFIER.least_bytes
    _kind = Enumerated(ConsumerKind)

    def __init__(self, base: int) -> None:
        plain = IdentifierField(0)
        self._identifiers = {ConsumerKind.CONSUMER: plain, ConsumerKind.GROUP: IdentifierField(base)}

    def read(self, cursor: Cursor) -> Consumer:
        kind = self._kind.read(cursor)
        return Consumer(kind, self._identifiers[kind].read(cursor))

    def write(self, out: bytearray, value: Consumer) -> None:
        self._kind.write(out, value.kind)
        self._identifiers[value.kind].write(out, value.id)


class PartitioningField(Codec[Partitioning]):
    least_bytes = PARTITIONING.least_bytes

    def __init__(self, base: int) -> None:
        self._base = base

    def read(self, cursor: Cursor) -> Partitioning:
        try:
            value = PARTITIONING.read(cursor)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(error.detail, InvalidKeyValueLength.code) from None
        if self._base == 0 or value.kind is not PartitioningKind.PARTITION_ID:
            return value
        return _with_partition(_less(_partition_of(value), self._base))

    def write(self, out: bytearray, value: Partitioning) -> None:
        if self._base and value.kind is PartitioningKind.PARTITION_ID:
            value = _with_partition(_more(_partition_of(value), self._base))
        PARTITIONING.write(out, value)


class Ids:
    """The codecs of one dialect for everything that holds an id."""

    def __init__(self, dialect: Dialect) -> None:
        base = dialect.id_base
        self.dialect = dialect
        self.number: Codec[int] = NumberField(base)
        self.optional_user: Codec[int | None] = OptionalNumberField() if base else Nullable(U32, null=U32_MAX)
        self.optional_partition: Codec[int | None] = (
            OPTIONAL_PARTITION if dialect.has_partition_flag else OptionalNumberField()
        )
        self.identifier: Codec[Identifier] = IdentifierField(base)
        self.consumer: Codec[Consumer] = ConsumerField(base)
        self.partitioning: Codec[Partitioning] = PartitioningField(base)
        self.permissions = PermissionsField(self.number)
        self.wanted: Codec[int | None] = OptionalNumberField() if dialect.has_explicit_ids else NOT_SENT


IDS: Mapping[Dialect, Ids] = MappingProxyType({dialect: Ids(dialect) for dialect in Dialect})


def _less(number: int, base: int) -> int:
    if number < base:
        raise RemoteProtocolError(f"ids count from {base}, not {number}", InvalidIdentifier.code)
    return number - base


def _more(id_: int, base: int) -> int:
    """Checked before the shift, which would make a valid number of a negative one."""
    if id_ < 0:
        raise LocalProtocolError(f"{id_} is no id")
    return id_ + base


def _partition_of(partitioning: Partitioning) -> int:
    return int.from_bytes(partitioning.value, "little")


def _with_partition(partition_id: int) -> Partitioning:
    try:
        return Partitioning(PartitioningKind.PARTITION_ID, partition_id.to_bytes(U32.least_bytes, "little"))
    except OverflowError as error:
        raise LocalProtocolError(f"{partition_id} is no partition id") from error
