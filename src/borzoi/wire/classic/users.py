"""Bodies of the commands for users, their personal access tokens and their logins.

    create              name8 username, str8 password, u8 status (1 active, 2 inactive), permissions?
    update              identifier user, u8 flag [name8 username], u8 flag [u8 status]
    get, delete         identifier user
    update permissions  identifier user, permissions?
    change password     identifier user, str8 current, str8 new
    list, list tokens   -
    create token        name8 name, u64 expiry_us (0 or 2^64-1 = never)
    delete token        name8 name
    login               name8 username, str8 password, [str32 version, [str32 context]]
    login with token    name8 token
    logout              -

    permissions?  u8 flag [u32 length, block of `wire.permissions`]

    UserInfo     u32 id, u64 created_at_us, u8 status, name8 username
    UserDetails  UserInfo, then u8 1, u32 length, block of `wire.permissions`; or, without permissions, u32 0
    TokenInfo    name8 name, u64 expires_at_us (0 = never)
    RawToken     name8 token
    LoggedIn     u32 user_id

Create answers UserDetails, get UserDetails or an empty body, the lists UserInfo or TokenInfo to the end of
the body, create token RawToken, the logins LoggedIn, the others nothing.

The version of a login is that of the client's SDK and decides the dialect; the context is not used. Very old
clients send neither.
"""

from borzoi.model.replies import LoggedIn, RawToken, TokenInfo, UserDetails, UserInfo
from borzoi.model.requests import (
    ChangePassword,
    CreateToken,
    CreateUser,
    DeleteToken,
    DeleteUser,
    GetTokens,
    GetUser,
    GetUsers,
    LoginUser,
    LoginWithToken,
    LogoutUser,
    UpdatePermissions,
    UpdateUser,
)
from borzoi.model.values import BytesLike, Options, UserStatus
from borzoi.wire.classic.ids import Ids
from borzoi.wire.commands import Code
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import NAME8, STR8, STR32, U64, Codec, Enumerated
from borzoi.wire.permissions import PermissionsTail
from borzoi.wire.records import NOTHING, Flagged, Implied, Layout, Many, OrNothing, Record, Sized

_STATUS = Enumerated(UserStatus)
_CREDENTIALS = Record(LoginUser, username=NAME8, password=STR8)
_NO_CONTEXT = ""


def decode_login(body: BytesLike) -> tuple[LoginUser, str | None]:
    """Who wants in, and the version of the client's SDK if it tells one. The same in every dialect."""
    cursor = Cursor(body)
    login = _read_login(cursor)
    cursor.finish()
    return login


def encode_login(login: LoginUser, version: str | None) -> bytes:
    out = bytearray()
    _CREDENTIALS.write(out, login)
    STR32.write(out, version or "")
    STR32.write(out, _NO_CONTEXT)
    return bytes(out)


class LoginBody(Codec[LoginUser]):
    """A login without its version, which is read by `decode_login` and written as the dialect's own."""

    least_bytes = _CREDENTIALS.least_bytes

    def __init__(self, version: str) -> None:
        self._version = version

    def read(self, cursor: Cursor) -> LoginUser:
        return _read_login(cursor)[0]

    def write(self, out: bytearray, value: LoginUser) -> None:
        out += encode_login(value, self._version)


def layouts(ids: Ids) -> dict[Code, Layout]:
    user = {"user": ids.identifier}
    permissions = Flagged(Sized(ids.permissions))
    no_options = Implied[Options](dict)
    info = Record(
        UserInfo,
        id=ids.number,
        created_at_us=U64,
        status=_STATUS,
        username=NAME8,
        options=Implied(dict, may_be_lost=True),
    )
    details = Record(UserDetails, user=info, permissions=PermissionsTail(ids.permissions))
    logged_in = Record(LoggedIn, user_id=ids.number)
    return {
        Code.GET_USER: Layout(Record(GetUser, **user), OrNothing(details)),
        Code.GET_USERS: Layout(Record(GetUsers), Many(info)),
        Code.CREATE_USER: Layout(
            Record(
                CreateUser,
                username=NAME8,
                password=STR8,
                status=_STATUS,
                permissions=permissions,
                options=no_options,
            ),
            details,
        ),
        Code.DELETE_USER: Layout(Record(DeleteUser, **user), NOTHING),
        Code.UPDATE_USER: Layout(
            Record(UpdateUser, **user, username=Flagged(NAME8), status=Flagged(_STATUS), options=no_options),
            NOTHING,
        ),
        Code.UPDATE_PERMISSIONS: Layout(Record(UpdatePermissions, **user, permissions=permissions), NOTHING),
        Code.CHANGE_PASSWORD: Layout(
            Record(ChangePassword, **user, current_password=STR8, new_password=STR8), NOTHING
        ),
        Code.LOGIN_USER: Layout(LoginBody(ids.dialect.sdk_version), logged_in),
        Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: Layout(Record(LoginWithToken, token=NAME8), logged_in),
        Code.LOGOUT_USER: Layout(Record(LogoutUser), NOTHING),
        Code.GET_PERSONAL_ACCESS_TOKENS: Layout(
            Record(GetTokens), Many(Record(TokenInfo, name=NAME8, expires_at_us=U64))
        ),
        Code.CREATE_PERSONAL_ACCESS_TOKEN: Layout(
            Record(CreateToken, name=NAME8, expiry_us=U64), Record(RawToken, token=NAME8)
        ),
        Code.DELETE_PERSONAL_ACCESS_TOKEN: Layout(Record(DeleteToken, name=NAME8), NOTHING),
    }


def _read_login(cursor: Cursor) -> tuple[LoginUser, str | None]:
    credentials = _CREDENTIALS.read(cursor)
    version = STR32.read(cursor) if cursor.remaining_bytes else ""
    if cursor.remaining_bytes:
        STR32.read(cursor)
    return credentials, version or None
