"""User headers between the form that is stored, whose keys have a kind, and the older one without it.

    stored, dialect D   u8 key_kind, u32 key_length, key, u8 value_kind, u32 value_length, value
    dialects A, B, C                 u32 key_length, key, u8 value_kind, u32 value_length, value

On the way in every key becomes a string (kind 2), as it was one for the client. On the way out only
string keys can be told to an older client; a header with any other key is left out for it, and nothing
else of the message changes. What is stored may come from a client that was not checked, so a block can be
malformed: the headers before the fault are kept and the rest is left out, because a client that cannot
decode a block fails the whole poll and would be stuck at that message.
"""

from struct import Struct

from borzoi.model.errors import InvalidHeaderKey, InvalidHeaderValue, RemoteProtocolError, TooBigUserHeaders
from borzoi.model.headers import decode_user_headers
from borzoi.model.limits import HEADER_FIELD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import BytesLike, HeaderKind

_LENGTH = Struct("<I")
_TYPED = Struct("<BI")
_STRING_KIND = bytes([HeaderKind.STRING])


def add_key_kinds(untyped: BytesLike) -> bytes:
    """The block of an A, B or C client in the stored form. Raises RemoteProtocolError and nothing else."""
    block = bytes(untyped)
    parts: list[bytes] = []
    position = 0
    while position < len(block):
        key_end = _field_end(block, position, _LENGTH, InvalidHeaderKey.code)
        value_end = _field_end(block, key_end, _TYPED, InvalidHeaderValue.code)
        parts += (_STRING_KIND, block[position:value_end])
        position = value_end
    typed = b"".join(parts)
    if len(typed) > USER_HEADERS_BYTES_MAX:
        raise RemoteProtocolError(f"user headers of {len(typed)} bytes", TooBigUserHeaders.code)
    decode_user_headers(typed)
    return typed


def drop_key_kinds(typed: BytesLike) -> bytes:
    """As much of a stored block as an A, B or C client can be told. Never raises."""
    block = bytes(typed)
    parts: list[bytes] = []
    position = 0
    while position < len(block):
        try:
            key_end = _field_end(block, position, _TYPED, InvalidHeaderKey.code)
            value_end = _field_end(block, key_end, _TYPED, InvalidHeaderValue.code)
            header = block[position:value_end]
            decode_user_headers(header)
        except RemoteProtocolError:
            break
        if header[0] == HeaderKind.STRING:
            parts.append(header[1:])
        position = value_end
    return b"".join(parts)


def _field_end(block: bytes, position: int, prefix: Struct, code: int) -> int:
    """Where the key or value that starts at `position` ends; its length ends its prefix."""
    start = position + prefix.size
    if start > len(block):
        raise RemoteProtocolError(f"user headers end within a field at byte {position}", code)
    size_bytes: int = prefix.unpack_from(block, position)[-1]
    if not 1 <= size_bytes <= HEADER_FIELD_BYTES_MAX or start + size_bytes > len(block):
        raise RemoteProtocolError(f"header field of {size_bytes} bytes at byte {position}", code)
    return start + size_bytes
