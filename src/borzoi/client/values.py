"""The values that users of the client make and get.

They extend the model's: what a user writes (`PollingStrategy.Next()`, a `str` as payload, a `timedelta`)
becomes here what a request carries. What no request can carry is refused here, before anything is sent.

Times are integers of microseconds since 1970, as on the wire.
"""

import datetime as dt
import os
import time
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import repeat
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from borzoi.model import values
from borzoi.model.errors import (
    EmptyMessagePayload,
    InvalidIdentifier,
    InvalidKeyValueLength,
    InvalidMessagesCount,
    InvalidOffset,
    InvalidOptionValue,
    TimestampOutOfRange,
    TooBigMessagePayload,
)
from borzoi.model.headers import (
    HeaderField,
    HeaderKey,
    encode_user_headers,
)
from borzoi.model.limits import (
    NAME_BYTES_MAX,
    PARTITIONING_KEY_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    U32_MAX,
    U64_MAX,
)
from borzoi.model.units import EXPIRY_NEVER, EXPIRY_SERVER_DEFAULT, parse_byte_size, parse_expiry
from borzoi.model.values import ConsumerKind, Identifier, PartitioningKind, PollingKind
from borzoi.wire.build import NewMessage, assemble

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_ID_BYTES = 16
_IDS = 1 << 8 * _ID_BYTES
# Below this many messages a Python loop beats the fixed cost of NumPy calls.
_VECTOR_MIN = 28


class ConnectionState(Enum):
    """Where a client stands. `CONNECTED` is without a login, `CLOSED` is for good."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    AUTHENTICATED = "authenticated"
    CLOSED = "closed"


class PollingStrategy(values.PollingStrategy, frozen=True):
    """Where a poll starts."""

    @classmethod
    def Next(cls) -> Self:  # noqa: N802 - the name that users of the platform know
        """After the offset that is stored for the consumer; at the start if there is none."""
        return cls(PollingKind.NEXT)

    @classmethod
    def First(cls) -> Self:  # noqa: N802
        return cls(PollingKind.FIRST)

    @classmethod
    def Last(cls) -> Self:  # noqa: N802
        """So that the last `count` messages are returned."""
        return cls(PollingKind.LAST)

    @classmethod
    def Offset(cls, value: int) -> Self:  # noqa: N802
        if not 0 <= value <= U64_MAX:
            raise InvalidOffset(f"{value}")
        return cls(PollingKind.OFFSET, value)

    @classmethod
    def Timestamp(cls, value: dt.datetime | int) -> Self:  # noqa: N802
        """At the first batch stored at this time or later. Integers are microseconds since 1970."""
        return cls(PollingKind.TIMESTAMP, timestamp_us(value))


class Partitioning(values.Partitioning, frozen=True):
    """Which partition a send goes to. Balanced and by key, the server chooses."""

    @classmethod
    def balanced(cls) -> Self:
        return cls(PartitioningKind.BALANCED)

    @classmethod
    def partition_id(cls, number: int) -> Self:
        return cls(PartitioningKind.PARTITION_ID, partition_number(number).to_bytes(4, "little"))

    @classmethod
    def key(cls, key: bytes | str) -> Self:
        """Messages with the same key go to the same partition, as long as their number stays the same."""
        data = key.encode() if isinstance(key, str) else bytes(key)
        if not 1 <= len(data) <= PARTITIONING_KEY_BYTES_MAX:
            raise InvalidKeyValueLength(f"a key has 1 to {PARTITIONING_KEY_BYTES_MAX} bytes, not {len(data)}")
        return cls(PartitioningKind.MESSAGES_KEY, data)


class Consumer(values.Consumer, frozen=True):
    """On whose behalf is polled: offsets are stored by consumer, or by group."""

    @classmethod
    def single(cls, id: Identifier) -> Self:  # noqa: A002 - what it is
        return cls(ConsumerKind.CONSUMER, identifier(id))

    @classmethod
    def group(cls, id: Identifier) -> Self:  # noqa: A002 - what it is
        return cls(ConsumerKind.GROUP, identifier(id))


# Stands for "no consumer was named"; told from an equal one by identity.
UNNAMED_CONSUMER = Consumer(ConsumerKind.CONSUMER, 0)


class SendMessage(msgspec.Struct, frozen=True):
    """A message to send. Without an id it gets a random one."""

    payload: bytes | str
    id: int | None = None
    headers: Mapping[HeaderKey, HeaderField] | None = None


def identifier(value: Identifier) -> Identifier:
    """A numeric id as `int` or a name as `str`, unchanged if a request can carry it."""
    if isinstance(value, int):
        if not 0 <= value <= U32_MAX:
            raise InvalidIdentifier(f"{value}")
    elif not isinstance(value, str) or not 1 <= len(value.encode()) <= NAME_BYTES_MAX:
        raise InvalidIdentifier(f"{value!r}")
    return value


def partition_number(value: int) -> int:
    if not 0 <= value <= U32_MAX:
        raise InvalidIdentifier(f"no partition has the id {value}")
    return value


def timestamp_us(value: dt.datetime | int) -> int:
    """Microseconds since 1970; a `datetime` without a zone is local time."""
    if isinstance(value, dt.datetime):
        value = (value.astimezone(dt.UTC) - _EPOCH) // _MICROSECOND
    if not 0 <= value <= U64_MAX:
        raise TimestampOutOfRange(f"{value}")
    return value


def expiry_us(value: dt.timedelta | int | str | None) -> int:
    """Microseconds until something expires, from a `timedelta`, an integer of them, or a text ("7 days").

    None is the server's default, "never_expire" is never.
    """
    if value is None:
        return EXPIRY_SERVER_DEFAULT
    if isinstance(value, dt.timedelta):
        value = value // _MICROSECOND
    elif isinstance(value, str):
        try:
            value = parse_expiry(value)
        except ValueError as error:
            raise InvalidOptionValue(str(error)) from None
    if not 0 <= value <= EXPIRY_NEVER:
        raise InvalidOptionValue(f"{value} us is no time until something expires")
    return value


def size_bytes(value: int | str) -> int:
    """Bytes, from their number or a text ("1 GiB")."""
    if isinstance(value, str):
        try:
            return parse_byte_size(value)
        except ValueError as error:
            raise InvalidOptionValue(str(error)) from None
    if not 0 <= value <= U64_MAX:
        raise InvalidOptionValue(f"{value} is no size")
    return value


def partitioning_of(value: values.Partitioning | int) -> values.Partitioning:
    return Partitioning.partition_id(value) if isinstance(value, int) else value


def new_messages(messages: Iterable[SendMessage | bytes | str]) -> list[NewMessage]:
    """What a batch is built of. All messages of a call have the same origin time."""
    payloads, _, ids, blocks = _parts(messages)
    now_us = time.time_ns() // 1000
    if isinstance(ids, int):
        ids = [number % _IDS for number in range(ids, ids + len(payloads))]
    return [
        NewMessage(*each, now_us) for each in zip(payloads, ids, blocks or repeat(b"", len(ids)), strict=True)
    ]


def new_batch(messages: Iterable[SendMessage | bytes | str]) -> tuple[int, bytearray]:
    """The number of messages and their batch, as a send request has them."""
    payloads, sizes, ids, blocks = _parts(messages)
    return len(payloads), assemble(payloads, ids, blocks, time.time_ns() // 1000, sizes)


def _parts(
    messages: Iterable[SendMessage | bytes | str],
) -> tuple[list[bytes], NDArray[np.int64] | None, int | list[int], list[bytes] | None]:
    """Payloads, their sizes if they are many, ids or the first of consecutive ones, encoded headers if any.

    One random number for the batch and consecutive ids from there cost less than a random one each.
    """
    if isinstance(messages, str | bytes | bytearray | memoryview):
        raise TypeError("messages is a list of messages; put a single one into a list")
    given = messages if isinstance(messages, list) else list(messages)
    first_id = int.from_bytes(os.urandom(_ID_BYTES), "little")
    ids: int | list[int] = first_id
    blocks: list[bytes] | None = None
    payloads: list[Any] = given
    kinds = set(map(type, given))
    if not kinds:
        raise InvalidMessagesCount("a send has at least one message")
    if kinds not in ({bytes}, {str}):
        full: list[Any] = given
        if kinds != {SendMessage}:
            full = [each if isinstance(each, SendMessage) else SendMessage(each) for each in given]
        payloads = [each.payload for each in full]
        ids = _ids([each.id for each in full], first_id)
        if any(each.headers for each in full):
            blocks = [encode_user_headers(each.headers) if each.headers else b"" for each in full]
        kinds = set(map(type, payloads))
    if kinds == {str}:
        payloads = list(map(str.encode, payloads))
    elif kinds != {bytes}:
        payloads = list(map(_payload, payloads))
    sizes = None
    if len(payloads) < _VECTOR_MIN:
        shortest, longest = min(map(len, payloads)), max(map(len, payloads))
    else:
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
        shortest, longest = int(sizes.min()), int(sizes.max())
    if not shortest:
        raise EmptyMessagePayload
    if longest > PAYLOAD_BYTES_MAX:
        raise TooBigMessagePayload(f"{longest} bytes, {PAYLOAD_BYTES_MAX} are allowed")
    return payloads, sizes, ids, blocks


def _ids(given: list[int | None], first_id: int) -> int | list[int]:
    """The given ids, and consecutive ones for messages without; the first of those if there are no others."""
    if not any(each is not None for each in given):
        return first_id
    numbers = [number % _IDS if each is None else each for number, each in enumerate(given, first_id)]
    for number in numbers:
        if not 0 <= number < _IDS:
            raise InvalidIdentifier(f"message id {number}")
    return numbers


def _payload(value: object) -> bytes | bytearray:
    if isinstance(value, bytes | bytearray):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, memoryview):
        return value.tobytes()
    raise TypeError(f"a payload is bytes or str, not {type(value).__name__}")
