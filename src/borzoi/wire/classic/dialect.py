"""The dialects of the classic generation, and how to tell which one a client speaks.

One framing carries four generations of bodies. A login with a password names the version of the client's
SDK, and that names the dialect; a login with a token names nothing, so the dialect has to be told from the
shapes of the frames that follow.

| dialect | SDK version | ids from | ids in creates | partition flag | send index | header | header keys |
|---|---|---|---|---|---|---|---|
| A | below 0.7 | 1 | yes | no | no | its own layout | untyped |
| B | 0.7 | 1 | yes | no | yes | 56 bytes | untyped |
| C | 0.8 | 0 | no | yes | yes | 56 bytes | untyped |
| D | 0.9 and later | 0 | no | yes | yes | 64 bytes | typed |

Shapes, by command code:

| code | A or B | C or D |
|---|---|---|
| 12 | is never sent | is sent after the login |
| 202 | byte 4 is the length less 5 | byte 0 is the length less 1 |
| 100 120 121 122 | 18 4 12 4 bytes after consumer, stream and topic | 19 5 13 5 bytes |
| 101 | A: no metadata length that fits; B: 56 bytes of message header | C: 56 bytes; D: 64 bytes |

The size of a message header is what the first index entry leaves beside headers and payload. A body that
has none of these shapes says nothing; refusing it is left to the codec.
"""

import re
from enum import Enum
from struct import Struct

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.values import BytesLike
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import CONSUMER, IDENTIFIER, PARTITIONING, U32


class Dialect(Enum):
    """`message_header_bytes` is 0 where a message has no header of one piece."""

    #    SDK version, id_base, explicit ids, partition flag, send index, message header, typed keys
    A = ("0.6.202", 1, True, False, False, 0, False)
    B = ("0.7.0", 1, True, False, True, 56, False)
    C = ("0.8.0", 0, False, True, True, 56, False)
    D = ("0.10.0", 0, False, True, True, 64, True)

    def __init__(
        self,
        sdk_version: str,
        id_base: int,
        has_explicit_ids: bool,
        has_partition_flag: bool,
        has_send_index: bool,
        message_header_bytes: int,
        has_typed_header_keys: bool,
    ) -> None:
        self.sdk_version = sdk_version
        self.id_base = id_base
        self.has_explicit_ids = has_explicit_ids
        self.has_partition_flag = has_partition_flag
        self.has_send_index = has_send_index
        self.message_header_bytes = message_header_bytes
        self.has_typed_header_keys = has_typed_header_keys


# Nine digits are more than any version has, and few enough for int() to be cheap.
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?![0-9])")
_FIRST_VERSION = ((Dialect.D, (0, 9)), (Dialect.C, (0, 8)), (Dialect.B, (0, 7)), (Dialect.A, (0, 0)))


def dialect_of_version(text: str) -> Dialect | None:
    """The dialect of an SDK version, by its first two numbers; None for what is no version."""
    match = _VERSION.match(text)
    if match is None:
        return None
    version = (int(match[1]), int(match[2]))
    return next(dialect for dialect, first in _FIRST_VERSION if version >= first)


_AB = frozenset({Dialect.A, Dialect.B})
_CD = frozenset({Dialect.C, Dialect.D})
_BC = frozenset({Dialect.B, Dialect.C})
_NO_CLUE: frozenset[Dialect] = frozenset()

# What to assume among several candidates, the likeliest client first.
_PREFERENCE = (Dialect.D, Dialect.B, Dialect.C, Dialect.A)

# Bytes after consumer, stream and topic in A and B; the partition flag of C and D makes it one more.
_TARGET_SUFFIX_BYTES = {
    Code.POLL_MESSAGES: 18,
    Code.GET_CONSUMER_OFFSET: 4,
    Code.STORE_CONSUMER_OFFSET: 12,
    Code.DELETE_CONSUMER_OFFSET: 4,
}

_INDEX_END = Struct("<4xI8x")
# user_headers_length, payload_length: the same place in both sizes of header
_MESSAGE_LENGTHS = Struct("<48xII")


class DialectSniffer:
    """The dialect of a connection whose login did not tell, narrowed by each request it is shown.

    Show it a request before decoding it. Until a shape says otherwise the dialect is the default. A shape
    that contradicts the earlier ones is believed: the body at hand has to be decoded by it.
    """

    __slots__ = ("_candidates", "_default", "dialect")

    def __init__(self, default: Dialect = Dialect.D) -> None:
        self._default = default
        self._candidates = frozenset(Dialect)
        self.dialect = default

    @property
    def is_settled(self) -> bool:
        """Whether one dialect is left, so that no request can tell more."""
        return len(self._candidates) == 1

    def feed(self, code: int, body: BytesLike) -> Dialect:
        if self.is_settled:
            return self.dialect
        clue = _clue(code, body)
        if clue:
            self._candidates = self._candidates & clue or clue
            if self._default in self._candidates:
                self.dialect = self._default
            else:
                self.dialect = next(dialect for dialect in _PREFERENCE if dialect in self._candidates)
        return self.dialect


def _clue(code: int, body: BytesLike) -> frozenset[Dialect]:
    """The dialects in which a request can have this shape, none if it has no known shape."""
    if code == Code.GET_CLUSTER_METADATA:
        return _CD
    if code == Code.CREATE_STREAM:
        return _create_stream_clue(memoryview(body))
    try:
        if code == Code.SEND_MESSAGES:
            return _send_clue(body)
        if code in _TARGET_SUFFIX_BYTES:
            return _target_clue(body, _TARGET_SUFFIX_BYTES[Code(code)])
    except RemoteProtocolError:
        pass
    return _NO_CLUE


def _create_stream_clue(body: memoryview) -> frozenset[Dialect]:
    size = len(body)
    if size > 1 and body[0] == size - 1:
        return _CD
    if size > 5 and body[4] == size - 5:
        return _AB
    return _NO_CLUE


def _target_clue(body: BytesLike, suffix_bytes: int) -> frozenset[Dialect]:
    cursor = Cursor(body)
    CONSUMER.read(cursor)
    IDENTIFIER.read(cursor)
    IDENTIFIER.read(cursor)
    if cursor.remaining_bytes == suffix_bytes:
        return _AB
    return _CD if cursor.remaining_bytes == suffix_bytes + 1 else _NO_CLUE


def _send_clue(body: BytesLike) -> frozenset[Dialect]:
    messages = _after_metadata(body)
    if messages is None:
        _skip_route(Cursor(body))
        return frozenset({Dialect.A})
    count = U32.read(messages)
    index = Cursor(messages.take(count * _INDEX_END.size))
    (end,) = index.unpack(_INDEX_END)
    headers_bytes, payload_bytes = messages.unpack(_MESSAGE_LENGTHS)
    header_bytes = end - headers_bytes - payload_bytes
    if header_bytes == Dialect.B.message_header_bytes:
        return _BC
    return frozenset({Dialect.D}) if header_bytes == Dialect.D.message_header_bytes else _NO_CLUE


def _after_metadata(body: BytesLike) -> Cursor | None:
    """A cursor at the message count, which ends the metadata; None if there is no metadata."""
    cursor = Cursor(body)
    try:
        metadata_bytes = U32.read(cursor)
        start = cursor.position
        _skip_route(cursor)
    except RemoteProtocolError:
        return None
    return cursor if cursor.position + U32.least_bytes == start + metadata_bytes else None


def _skip_route(cursor: Cursor) -> None:
    IDENTIFIER.read(cursor)
    IDENTIFIER.read(cursor)
    PARTITIONING.read(cursor)
