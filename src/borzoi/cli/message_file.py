"""Messages in a file as Iggy's command line writes and reads them: `poll --output-file`, `send --input-file`.

Messages follow each other without anything between them. Numbers are little-endian:

    offset   size
    0        8      checksum: XXH3 of everything after it
    8        16     id
    24       8      offset
    32       8      time when it was stored, microseconds since 1970
    40       8      time when it was made
    48       4      length of the user headers, h
    52       4      length of the payload, p
    56       8      0
    64       p      payload
    64 + p   h      user headers

The checksum is written and not checked: newer versions of Iggy's command line leave there what their wire
protocol had, which is a checksum of something else. Files of versions before 0.13 have shorter headers and
are refused.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO, cast

from borzoi.model.errors import BorzoiError, InvalidConfiguration
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX

if TYPE_CHECKING:
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.values import SendMessage
    from borzoi.model.headers import HeaderField, HeaderKey

_CHECKSUM = Struct("<Q")
_REST = Struct("<16sQQQIIQ")
_HEADER_BYTES = _CHECKSUM.size + _REST.size


class DamagedMessageFile(InvalidConfiguration, hint=""):
    """The detail says which message it is, and where it starts."""

    def __str__(self) -> str:
        return self.detail


def record(message: "ReceivedMessage") -> bytes:
    from xxhash import xxh3_64_intdigest

    rest = (
        _REST.pack(
            message.id.to_bytes(16, "little"),
            message.offset,
            message.timestamp,
            message.origin_timestamp,
            len(message.user_headers),
            len(message.payload),
            0,
        )
        + message.payload
        + message.user_headers
    )
    return _CHECKSUM.pack(xxh3_64_intdigest(rest)) + rest


def read_records(file: BinaryIO, advance: Callable[[int], None]) -> "Iterator[SendMessage]":
    """The messages of a file, one at a time; `advance` is told how many bytes each had."""
    from borzoi.client.values import SendMessage
    from borzoi.model.headers import decode_user_headers

    start = number = 0
    while header := file.read(_HEADER_BYTES):
        number += 1
        where = f"message {number}, at byte {start}"
        if len(header) < _HEADER_BYTES:
            raise DamagedMessageFile(f"{where}: the file ends in the middle of it")
        message_id, _, _, _, headers_bytes, payload_bytes, reserved = _REST.unpack_from(
            header, _CHECKSUM.size
        )
        if reserved or not 0 < payload_bytes <= PAYLOAD_BYTES_MAX or headers_bytes > USER_HEADERS_BYTES_MAX:
            raise DamagedMessageFile(f"{where}: this is no message that Iggy's command line has written")
        body = file.read(payload_bytes + headers_bytes)
        if len(body) < payload_bytes + headers_bytes:
            raise DamagedMessageFile(f"{where}: the file ends in the middle of it")
        try:
            headers = decode_user_headers(body[payload_bytes:])
        except BorzoiError as error:
            raise DamagedMessageFile(f"{where}: {error}") from None
        size = _HEADER_BYTES + len(body)
        start += size
        advance(size)
        yield SendMessage(
            body[:payload_bytes],
            int.from_bytes(message_id, "little"),
            cast("dict[HeaderKey, HeaderField]", headers) or None,
        )
