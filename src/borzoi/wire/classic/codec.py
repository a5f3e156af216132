"""Bodies of the classic generation, from and to the requests and replies of the model.

The layouts are in one module per command domain, made once per dialect; this one finds the right layout.
Two bodies are not here, because the messages in them have to be translated: the request of a send and the
reply to a poll are taken apart and put together by `classic.messages` and `classic.translate`. A login is
here, but its version is not: see `users.decode_login`.

`encode_request` and `decode_reply` are the client's side. What a dialect cannot express is refused with a
`LocalProtocolError`: options other than a topic's settings, or an offset stored without acknowledgement.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.requests import Request
from borzoi.model.values import BytesLike
from borzoi.wire.classic import groups, messages, offsets, streams, system, topics, users
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.ids import IDS, Ids
from borzoi.wire.commands import COMMAND_BY_CODE, COMMAND_BY_REQUEST, Code, Generation
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import Codec
from borzoi.wire.records import Layout

_Codecs = Mapping[Code, Codec[Any]]


def decode_request(code: Code, body: BytesLike, dialect: Dialect) -> Request:
    request: Request = _decode(_codec(REQUESTS[dialect], code), body)
    return request


def encode_request(request: Request, dialect: Dialect) -> bytes:
    command = COMMAND_BY_REQUEST.get(type(request))
    code = command.codes.get(Generation.CLASSIC) if command else None
    if code is None:
        raise LocalProtocolError(f"{type(request).__name__} is no request of this generation")
    out = bytearray()
    _codec(REQUESTS[dialect], code).write(out, request)
    return bytes(out)


def decode_reply(code: Code, body: BytesLike, dialect: Dialect) -> Any:
    """The reply as `Command.answer` of the code's row says: None, one reply, or a tuple of them."""
    return _decode(_codec(REPLIES[dialect], code), body)


def encode_reply(code: Code, reply: object | None, dialect: Dialect) -> bytes:
    codec = _codec(REPLIES[dialect], code)
    if reply is None:
        if codec.least_bytes:
            raise LocalProtocolError(f"{code.name} has no empty reply")
        return b""
    out = bytearray()
    codec.write(out, reply)
    return bytes(out)


def _layouts(ids: Ids) -> dict[Code, Layout]:
    domains = (system, users, messages, offsets, streams, topics, groups)
    return {code: layout for domain in domains for code, layout in domain.layouts(ids).items()}


def _requests(ids: Ids) -> _Codecs:
    codecs: dict[Code, Codec[Any]] = {code: layout.request for code, layout in _layouts(ids).items()}
    return MappingProxyType(codecs | {Code.POLL_MESSAGES: messages.poll_request(ids)})


def _replies(ids: Ids) -> _Codecs:
    codecs: dict[Code, Codec[Any]] = {code: layout.reply for code, layout in _layouts(ids).items()}
    return MappingProxyType(codecs | {Code.SEND_MESSAGES: messages.SEND_REPLY})


REQUESTS: Mapping[Dialect, _Codecs] = MappingProxyType({d: _requests(ids) for d, ids in IDS.items()})
REPLIES: Mapping[Dialect, _Codecs] = MappingProxyType({d: _replies(ids) for d, ids in IDS.items()})


def _codec(codecs: _Codecs, code: Code) -> Codec[Any]:
    codec = codecs.get(code)
    if codec is not None:
        return codec
    if COMMAND_BY_CODE[code].codes.get(Generation.CLASSIC) is code:
        raise LocalProtocolError(f"{code.name} carries messages, see classic.messages")
    raise RemoteProtocolError(f"{code.name} is no command of this generation")


def _decode(codec: Codec[Any], body: BytesLike) -> Any:
    cursor = Cursor(body)
    value = codec.read(cursor)
    cursor.finish()
    return value
