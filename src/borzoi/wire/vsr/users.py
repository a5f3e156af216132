"""Bodies of the commands for users and their personal access tokens.

    create              name8 username, str8 password, u8 status (1 active, 2 inactive), permissions?, options
    update              identifier user, u8 flag [name8 username], u8 flag [u8 status], options
    get, delete         identifier user
    update permissions  identifier user, permissions?
    change password     identifier user, str8 current, str8 new
    list, list tokens   -
    create token        name8 name, u64 expiry_us (0 or 2^64-1 = never)
    delete token        name8 name
    logout              -

    permissions?  u8 flag [u32 length, block of `wire.permissions`]

    UserInfo     u32 id, u64 created_at_us, u8 status, name8 username, u32 length + options
    UserDetails  UserInfo, then u8 1, u32 length, block of `wire.permissions`; or, without permissions, u32 0
    TokenInfo    name8 name, u64 expires_at_us (0 = never)
    RawToken     name8 token

Create answers UserDetails, get UserDetails or an empty body, the lists UserInfo or TokenInfo to the end of
the body, create token RawToken, the others nothing. Logins are in `vsr.login`.
"""

from borzoi.model.replies import RawToken, TokenInfo, UserDetails, UserInfo
from borzoi.model.requests import (
    ChangePassword,
    CreateToken,
    CreateUser,
    DeleteToken,
    DeleteUser,
    GetTokens,
    GetUser,
    GetUsers,
    LogoutUser,
    UpdatePermissions,
    UpdateUser,
)
from borzoi.model.values import UserStatus
from borzoi.wire.commands import Code
from borzoi.wire.fields import IDENTIFIER, NAME8, STR8, U32, U64, Enumerated
from borzoi.wire.permissions import PERMISSIONS, PermissionsTail
from borzoi.wire.records import NOTHING, Flagged, Layout, Many, OrNothing, Record, Sized
from borzoi.wire.vsr.options import OPTIONS, OPTIONS32

_STATUS = Enumerated(UserStatus)
_PERMISSIONS = Flagged(Sized(PERMISSIONS))

USER_INFO = Record(UserInfo, id=U32, created_at_us=U64, status=_STATUS, username=NAME8, options=OPTIONS32)
USER_DETAILS = Record(UserDetails, user=USER_INFO, permissions=PermissionsTail())
TOKEN_INFO = Record(TokenInfo, name=NAME8, expires_at_us=U64)

LAYOUTS = {
    Code.GET_USER: Layout(Record(GetUser, user=IDENTIFIER), OrNothing(USER_DETAILS)),
    Code.GET_USERS: Layout(Record(GetUsers), Many(USER_INFO)),
    Code.CREATE_USER: Layout(
        Record(
            CreateUser,
            username=NAME8,
            password=STR8,
            status=_STATUS,
            permissions=_PERMISSIONS,
            options=OPTIONS,
        ),
        USER_DETAILS,
    ),
    Code.DELETE_USER: Layout(Record(DeleteUser, user=IDENTIFIER), NOTHING),
    Code.UPDATE_USER: Layout(
        Record(
            UpdateUser,
            user=IDENTIFIER,
            username=Flagged(NAME8),
            status=Flagged(_STATUS),
            options=OPTIONS,
        ),
        NOTHING,
    ),
    Code.UPDATE_PERMISSIONS: Layout(
        Record(UpdatePermissions, user=IDENTIFIER, permissions=_PERMISSIONS), NOTHING
    ),
    Code.CHANGE_PASSWORD: Layout(
        Record(ChangePassword, user=IDENTIFIER, current_password=STR8, new_password=STR8), NOTHING
    ),
    Code.LOGOUT_USER: Layout(Record(LogoutUser), NOTHING),
    Code.GET_PERSONAL_ACCESS_TOKENS: Layout(Record(GetTokens), Many(TOKEN_INFO)),
    Code.CREATE_PERSONAL_ACCESS_TOKEN: Layout(
        Record(CreateToken, name=NAME8, expiry_us=U64), Record(RawToken, token=NAME8)
    ),
    Code.DELETE_PERSONAL_ACCESS_TOKEN: Layout(Record(DeleteToken, name=NAME8), NOTHING),
}
