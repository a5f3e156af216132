"""The 256-byte headers of the vsr generation, and how the byte stream is cut into frames.

    request (client to server)                  reply (server to client)
    off size                                    off size
     48    4  size, header included              48    4  size, header included
     60    1  command = 5                        60    1  command = 8 (13 = eviction)
    128   16  client id                         128   16  request_checksum, echoed
    144   16  request_checksum                  160   16  client id, echoed
    160    8  timestamp                         176    8  op
    168    8  request number                    184    8  commit
    176    1  operation                         192    8  timestamp, echoed
    184    8  session                           200    8  request number, echoed
    196    4  command code (operation 2)        208    1  operation, echoed
                                                216    4  status: 0 or an error code

    eviction (server to client, ends the session, no body)
     48 size = 256   60 command = 13   128 client id
    144 highest and 148 lowest protocol version accepted (reason 14)   255 reason

Everything not drawn is zero when sent and ignored when received. The generation is recognised by
four zero bytes at the start of a connection: an older frame starts with its length, never zero.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.values import BytesLike

HEADER_BYTES = 256
PREAMBLE = bytes(4)

COMMAND_REQUEST = 5
COMMAND_REPLY = 8
COMMAND_EVICTION = 13

# Size and command of a request, for whoever cuts a stream into frames.
SIZE_AND_COMMAND = struct.Struct("<48xI8xB")
# The fields of a RequestHeader.
REQUEST = struct.Struct("<48xI8xB67x16s16sQQB7xQ4xI56x")
_REPLY = struct.Struct("<48xI8xB67x16s16x16sQQQQB7xI36x")
_EVICTION = struct.Struct("<48xI8xB67x16sII103xB")


class EvictionReason(IntEnum):
    NO_SESSION = 1
    CLIENT_RELEASE_TOO_LOW = 2
    CLIENT_RELEASE_TOO_HIGH = 3
    INVALID_REQUEST_OPERATION = 4
    INVALID_REQUEST_BODY = 5
    INVALID_REQUEST_BODY_SIZE = 6
    SESSION_TOO_LOW = 7
    SESSION_RELEASE_MISMATCH = 8
    INVALID_CREDENTIALS = 9
    INVALID_TOKEN = 10
    USER_INACTIVE = 11
    SESSION_ERROR = 12
    STALE_CLIENT = 13
    INCOMPATIBLE_PROTOCOL = 14
    MALFORMED_LOGIN = 15


class RequestHeader(NamedTuple):
    size: int
    command: int
    client: bytes
    request_checksum: bytes
    timestamp_us: int
    request: int
    operation: int
    session: int
    code: int


class ReplyHeader(NamedTuple):
    size: int
    command: int
    request_checksum: bytes
    client: bytes
    op: int
    commit: int
    timestamp_us: int
    request: int
    operation: int
    status: int


def frame_size(data: BytesLike, position: int, size_max: int) -> int:
    """The length of the frame whose header starts at `position`; refuses what is no request.

    Like the `unpack` functions it wants the whole header at hand: receiving 256 bytes is the caller's part.
    """
    size, command = SIZE_AND_COMMAND.unpack_from(data, position)
    if command != COMMAND_REQUEST:
        raise RemoteProtocolError(f"frame command is {command}, not {COMMAND_REQUEST} (request)")
    if size < HEADER_BYTES:
        raise RemoteProtocolError(f"frame size {size} is smaller than its header")
    if size > size_max:
        raise RemoteProtocolError(f"frame size {size} exceeds the limit of {size_max} bytes")
    return int(size)


def unpack_request(data: BytesLike, position: int = 0) -> RequestHeader:
    return RequestHeader._make(REQUEST.unpack_from(data, position))


def pack_request(
    body_bytes: int,
    *,
    client: bytes,
    operation: int,
    request: int = 0,
    session: int = 0,
    code: int = 0,
    request_checksum: bytes = bytes(16),
) -> bytes:
    return REQUEST.pack(
        HEADER_BYTES + body_bytes,
        COMMAND_REQUEST,
        client,
        request_checksum,
        0,
        request,
        operation,
        session,
        code,
    )


def pack_reply(header: RequestHeader, body_bytes: int, commit: int, status: int = 0) -> bytes:
    """The header of the answer to `header`; it echoes what other SDKs may check."""
    _, _, client, checksum, timestamp_us, request, operation, session, _ = header
    return _REPLY.pack(
        HEADER_BYTES + body_bytes,
        COMMAND_REPLY,
        checksum,
        client,
        session,
        commit,
        timestamp_us,
        request,
        operation,
        status,
    )


def unpack_reply(data: BytesLike, position: int = 0) -> ReplyHeader:
    return ReplyHeader._make(_REPLY.unpack_from(data, position))


def pack_eviction(client: bytes, reason: EvictionReason, version_max: int = 0, version_min: int = 0) -> bytes:
    return _EVICTION.pack(HEADER_BYTES, COMMAND_EVICTION, client, version_max, version_min, reason)


def unpack_eviction(data: BytesLike) -> tuple[bytes, EvictionReason, int, int]:
    """Client id, reason, highest and lowest version accepted."""
    _, _, client, version_max, version_min, reason = _EVICTION.unpack_from(data)
    try:
        return client, EvictionReason(reason), version_max, version_min
    except ValueError:
        raise RemoteProtocolError(f"unknown eviction reason {reason}") from None
