"""The values that users of the client make and get.

They extend the model's: what a user writes (`PollingStrategy.Next()`, a `str` as payload, a `timedelta`)
becomes here what a request carries. What no request can carry is refused here, before anything is sent.

Times are integers of microseconds since 1970, as on the wire.
"""

import datetime as dt
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Self

import msgspec

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
    HeaderObject,
    decode_user_headers,
    encode_user_headers,
    to_python,
)
from borzoi.model.limits import (
    NAME_BYTES_MAX,
    PARTITIONING_KEY_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    U32_MAX,
    U64_MAX,
)
from borzoi.model.units import EXPIRY_NEVER, EXPIRY_SERVER_DEFAULT, parse_byte_size, parse_expiry
from borzoi.model.values import ConsumerKind, Identifier, PartitioningKind, PollingKind, TypedValue
from borzoi.wire.batch import NewMessage

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_ID_BYTES = 16
_IDS = 1 << 8 * _ID_BYTES


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


@dataclass(frozen=True, slots=True)
class SendMessage:
    """A message to send. Without an id it gets a random one."""

    payload: bytes | str
    id: int | None = None
    headers: Mapping[HeaderKey, HeaderField] | None = None


class ReceivedMessage(msgspec.Struct, frozen=True):
    """A message as it is stored. `timestamp` is the server's time, `origin_timestamp` the producer's."""

    payload: bytes
    offset: int
    timestamp: int
    id: int
    origin_timestamp: int
    partition_id: int
    checksum: int
    user_headers: bytes = b""

    @property
    def headers(self) -> dict[HeaderObject, HeaderObject]:
        """The user headers as Python objects, by key."""
        return {to_python(key): to_python(value) for key, value in self.typed_headers.items()}

    @property
    def typed_headers(self) -> dict[TypedValue, TypedValue]:
        """The user headers with their exact kinds."""
        return decode_user_headers(self.user_headers)


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
    if isinstance(messages, str | bytes | bytearray | memoryview):
        raise TypeError("messages is a list of messages; put a single one into a list")
    # One random number for the batch and consecutive ids from there cost less than a random one each.
    first_id = int.from_bytes(os.urandom(_ID_BYTES), "little")
    now_us = time.time_ns() // 1000
    made = []
    for number, message in enumerate(messages, first_id):
        if isinstance(message, SendMessage):
            payload, headers = message.payload, message.headers
            message_id = number % _IDS if message.id is None else message.id
            if not 0 <= message_id < _IDS:
                raise InvalidIdentifier(f"message id {message_id}")
            block = encode_user_headers(headers) if headers else b""
        else:
            payload, message_id, block = message, number % _IDS, b""
        data = payload.encode() if isinstance(payload, str) else payload
        if not data:
            raise EmptyMessagePayload
        if len(data) > PAYLOAD_BYTES_MAX:
            raise TooBigMessagePayload(f"{len(data)} bytes, {PAYLOAD_BYTES_MAX} are allowed")
        made.append(NewMessage(data, message_id, block, now_us))
    if not made:
        raise InvalidMessagesCount("a send has at least one message")
    return made
