"""Bodies of the vsr generation, from and to the requests and replies of the model.

The layouts are in one module per command domain; this one finds the right layout. It knows neither frames
(`vsr.frames`) nor logins (`vsr.login`), whose body is told by its shape and not by a code.

The reply to a result-framed operation (`vsr.operations`) starts with a result section:

    off  size  field
      0     4  count      0 = success, the payload follows
      4     4  index      of the rejected part, 0      once per count;
      8     4  code       why                          no payload follows

`encode_reply` and `decode_reply` deal with the payload alone; `frame_result`, `reject_result` and
`split_result` with the section around it.
"""

from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.requests import Request
from borzoi.model.values import BytesLike
from borzoi.wire.commands import COMMAND_BY_REQUEST, Code, Generation
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import U32, Codec
from borzoi.wire.records import Layout
from borzoi.wire.vsr import (
    extents,
    groups,
    messages,
    offsets,
    streams,
    system,
    topics,
    transactions,
    users,
)

LAYOUTS: Mapping[Code, Layout] = MappingProxyType(
    system.LAYOUTS
    | users.LAYOUTS
    | messages.LAYOUTS
    | offsets.LAYOUTS
    | streams.LAYOUTS
    | topics.LAYOUTS
    | groups.LAYOUTS
    | extents.LAYOUTS
    | transactions.LAYOUTS
)

RESULT_OK = bytes(4)
_RESULT_ENTRY = Struct("<II")


def decode_request(code: Code, body: BytesLike) -> Request:
    request: Request = _decode(_layout(code).request, body)
    return request


def encode_request(request: Request) -> bytes:
    command = COMMAND_BY_REQUEST.get(type(request))
    if command is None:
        raise LocalProtocolError(f"{type(request).__name__} is no request")
    layout = LAYOUTS.get(command.codes[Generation.VSR])
    if layout is None:
        raise LocalProtocolError(f"{command.name} has no body of its own; it travels in a Register")
    out = bytearray()
    layout.request.write(out, request)
    return bytes(out)


def decode_reply(code: Code, body: BytesLike) -> Any:
    """The reply as `Command.answer` of the code's row says: None, one reply, or a tuple of them."""
    return _decode(_layout(code).reply, body)


def encode_reply(code: Code, reply: object | None) -> bytes:
    codec = _layout(code).reply
    if reply is None:
        if codec.least_bytes:
            raise LocalProtocolError(f"{code.name} has no empty reply")
        return b""
    out = bytearray()
    codec.write(out, reply)
    return bytes(out)


def frame_result(payload: BytesLike) -> bytes:
    """A success, before the payload of a result-framed operation."""
    return RESULT_OK + bytes(payload)


def reject_result(error_code: int) -> bytes:
    """A rejection, the whole body of its reply."""
    out = bytearray()
    for number in (1, 0, error_code):
        U32.write(out, number)
    return bytes(out)


def split_result(body: BytesLike) -> tuple[int, memoryview]:
    """The error code, or 0 and the payload."""
    cursor = Cursor(body)
    count = U32.read(cursor)
    if count == 0:
        return 0, cursor.rest()
    if count * _RESULT_ENTRY.size != cursor.remaining_bytes:
        raise RemoteProtocolError(f"{count} rejections in {cursor.remaining_bytes} bytes")
    _, error_code = cursor.unpack(_RESULT_ENTRY)
    if error_code == 0:
        raise RemoteProtocolError("a rejection without a code")
    return int(error_code), memoryview(b"")


def _layout(code: Code) -> Layout:
    layout = LAYOUTS.get(code)
    if layout is None:
        raise RemoteProtocolError(f"{code.name} is no command of this generation")
    return layout


def _decode(codec: Codec[Any], body: BytesLike) -> Any:
    cursor = Cursor(body)
    value = codec.read(cursor)
    cursor.finish()
    return value
