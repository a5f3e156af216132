"""Register, the vsr login: who the client is, which protocol it speaks, and its session.

    version info   u32 protocol_version, name8 sdk_name, name8 sdk_version
    password form  version info, name8 username, str8 password, u32 length + context
    token form     version info, str8 token, u32 length + context

    reply          u32 user_id, u64 session, u32 protocol_version, name8 server_version

Nothing in the frame tells the two forms apart. The password form is tried first and must fill the body to
its last byte; a body that fits both is kept as both, and the broker tries one after the other. The version
is judged before the credentials, so it can be read on its own: a client of another version may well have a
body that makes no sense here. The context is not used. The reply is result-framed like a command's.

A protocol version is packed as major << 20 | minor << 10 | patch.
"""

from typing import TypeVar

import msgspec

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.requests import LoginUser, LoginWithToken
from borzoi.model.values import BytesLike
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import BYTES32, NAME8, STR8, U32, U64
from borzoi.wire.records import Record

T = TypeVar("T")

_PART_BITS = 10
_PART_MAX = (1 << _PART_BITS) - 1


def pack_version(major: int, minor: int, patch: int) -> int:
    return major << 2 * _PART_BITS | minor << _PART_BITS | patch


def unpack_version(version: int) -> tuple[int, int, int]:
    return version >> 2 * _PART_BITS, version >> _PART_BITS & _PART_MAX, version & _PART_MAX


PROTOCOL_VERSION = pack_version(0, 11, 0)
PROTOCOL_VERSION_MIN = PROTOCOL_VERSION


def is_version_accepted(
    version: int, lowest: int = PROTOCOL_VERSION_MIN, highest: int = PROTOCOL_VERSION
) -> bool:
    """Patches newer than our own are welcome; they do not change the wire."""
    return version >= lowest and version >> _PART_BITS <= highest >> _PART_BITS


class ClientVersion(msgspec.Struct, frozen=True):
    protocol_version: int
    sdk_name: str
    sdk_version: str


class Register(msgspec.Struct, frozen=True):
    """A login. `alternative` is the other reading of a body that fits both forms."""

    version: ClientVersion
    credentials: LoginUser | LoginWithToken
    alternative: LoginWithToken | None = None


class RegisterReply(msgspec.Struct, frozen=True):
    user_id: int
    session: int  # never 0
    protocol_version: int
    server_version: str


_VERSION = Record(ClientVersion, protocol_version=U32, sdk_name=NAME8, sdk_version=NAME8)
_PASSWORD_FORM = Record(LoginUser, username=NAME8, password=STR8)
_TOKEN_FORM = Record(LoginWithToken, token=STR8)
_REPLY = Record(RegisterReply, user_id=U32, session=U64, protocol_version=U32, server_version=NAME8)
_NO_CONTEXT = b""


def decode_client_version(body: BytesLike) -> ClientVersion:
    """The version info alone, whatever follows it."""
    return _VERSION.read(Cursor(body))


def decode_register(body: BytesLike) -> Register:
    cursor = Cursor(body)
    version = _VERSION.read(cursor)
    rest = cursor.rest()
    by_password = _credentials(rest, _PASSWORD_FORM)
    by_token = _credentials(rest, _TOKEN_FORM)
    if by_password is not None:
        return Register(version, by_password, by_token)
    if by_token is not None:
        return Register(version, by_token)
    raise RemoteProtocolError("a login with neither a password nor a token")


def encode_register(register: Register) -> bytes:
    out = bytearray()
    _VERSION.write(out, register.version)
    if isinstance(register.credentials, LoginUser):
        _PASSWORD_FORM.write(out, register.credentials)
    else:
        _TOKEN_FORM.write(out, register.credentials)
    BYTES32.write(out, _NO_CONTEXT)
    return bytes(out)


def decode_register_reply(payload: BytesLike) -> RegisterReply:
    cursor = Cursor(payload)
    reply = _REPLY.read(cursor)
    cursor.finish()
    return reply


def encode_register_reply(reply: RegisterReply) -> bytes:
    out = bytearray()
    _REPLY.write(out, reply)
    return bytes(out)


def _credentials(rest: memoryview, form: Record[T]) -> T | None:
    cursor = Cursor(rest)
    try:
        credentials = form.read(cursor)
        BYTES32.read(cursor)
        cursor.finish()
    except RemoteProtocolError:
        return None
    return credentials
