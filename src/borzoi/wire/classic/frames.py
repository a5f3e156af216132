"""Frames of the classic generation.

    request (client to server)               reply (server to client)
    off size                                 off size
      0    4  length: code and body            0    4  status: 0 or an error code
      4    4  command code                     4    4  length of the body
      8       body                             8       body

Clients do not read a body behind an error, nor one of a single byte: whatever followed would be taken for
the next reply, so `pack_reply` refuses both. There is no correlation; replies go out in the order of the
requests. A connection of this generation starts with a length, which is never zero; one of the vsr
generation starts with four zero bytes.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - the module's own name for it says nothing
from typing import NamedTuple

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.values import BytesLike

HEADER_BYTES = 8
LENGTH_BYTES = 4
CODE_BYTES = 4

_LENGTH = Struct("<I")
_HEADER = Struct("<II")


class ReplyHeader(NamedTuple):
    status: int
    body_bytes: int


def frame_size(data: BytesLike, position: int, size_max: int) -> int:
    """The length of the whole request frame at `position`, of which at least the first 4 bytes are there."""
    (length,) = _LENGTH.unpack_from(data, position)
    if length < CODE_BYTES:
        raise RemoteProtocolError(f"a frame of {length} bytes has no room for a command code")
    if LENGTH_BYTES + length > size_max:
        raise RemoteProtocolError(f"frame size {LENGTH_BYTES + length} exceeds the limit of {size_max} bytes")
    return LENGTH_BYTES + int(length)


def request_code(data: BytesLike, position: int = 0) -> int:
    """The command code of a request frame; its body follows the 8 bytes of the header."""
    return int(_HEADER.unpack_from(data, position)[1])


def pack_request(code: int, body_bytes: int) -> bytes:
    return _packed(CODE_BYTES + body_bytes, code)


def pack_reply(status: int, body_bytes: int = 0) -> bytes:
    """The header of a reply: an error without a body, or a success with none or at least two bytes."""
    if body_bytes and (status or body_bytes == 1):
        raise LocalProtocolError(f"no client reads a body of {body_bytes} bytes behind status {status}")
    return _packed(status, body_bytes)


def unpack_reply(data: BytesLike, position: int = 0) -> ReplyHeader:
    return ReplyHeader._make(_HEADER.unpack_from(data, position))


def _packed(first: int, second: int) -> bytes:
    try:
        return _HEADER.pack(first, second)
    except StructError as error:
        raise LocalProtocolError(f"{first} or {second} is no u32") from error
