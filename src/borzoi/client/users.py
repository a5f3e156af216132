"""Commands for users, their logins and their tokens."""

import datetime as dt

from borzoi.client.call import Call, or_none
from borzoi.client.details import UserDetails, user_details
from borzoi.client.values import expiry_us, identifier
from borzoi.model import requests as rq
from borzoi.model.permissions import Permissions
from borzoi.model.replies import LoggedIn, RawToken, TokenInfo, UserInfo
from borzoi.model.values import Identifier, UserStatus


def login_user(username: str, password: str, *, deadline_s: float | None = None) -> Call[LoggedIn]:
    """Log in, or go on as another user; the client logs in like this again after a reconnect."""
    return Call(rq.LoginUser(username, password), deadline_s)


def login_with_personal_access_token(token: str, *, deadline_s: float | None = None) -> Call[LoggedIn]:
    return Call(rq.LoginWithToken(token), deadline_s)


def logout_user(*, deadline_s: float | None = None) -> Call[None]:
    """End the session, leave all groups and forget the credentials. The connection stays."""
    return Call(rq.LogoutUser(), deadline_s)


def get_user(user: Identifier, *, deadline_s: float | None = None) -> Call[UserDetails | None]:
    """The user and their permissions, or None."""
    return Call(rq.GetUser(identifier(user)), deadline_s, or_none(user_details))


def get_users(*, deadline_s: float | None = None) -> Call[tuple[UserInfo, ...]]:
    return Call(rq.GetUsers(), deadline_s)


def create_user(
    username: str,
    password: str,
    *,
    status: UserStatus = UserStatus.ACTIVE,
    permissions: Permissions | None = None,
    deadline_s: float | None = None,
) -> Call[UserDetails]:
    return Call(rq.CreateUser(username, password, status, permissions), deadline_s, user_details)


def update_user(
    user: Identifier,
    *,
    username: str | None = None,
    status: UserStatus | None = None,
    deadline_s: float | None = None,
) -> Call[None]:
    """Rename, activate or deactivate a user. What is None stays as it is."""
    return Call(rq.UpdateUser(identifier(user), username, status), deadline_s)


def update_permissions(
    user: Identifier, permissions: Permissions | None, *, deadline_s: float | None = None
) -> Call[None]:
    """Replace a user's permissions; None takes them all away."""
    return Call(rq.UpdatePermissions(identifier(user), permissions), deadline_s)


def change_password(
    user: Identifier, current_password: str, new_password: str, *, deadline_s: float | None = None
) -> Call[None]:
    return Call(rq.ChangePassword(identifier(user), current_password, new_password), deadline_s)


def delete_user(user: Identifier, *, deadline_s: float | None = None) -> Call[None]:
    return Call(rq.DeleteUser(identifier(user)), deadline_s)


def get_personal_access_tokens(*, deadline_s: float | None = None) -> Call[tuple[TokenInfo, ...]]:
    """The names of one's own tokens and when they expire."""
    return Call(rq.GetTokens(), deadline_s)


def create_personal_access_token(
    name: str, *, expiry: dt.timedelta | int | str | None = None, deadline_s: float | None = None
) -> Call[RawToken]:
    """A new token for oneself, which never expires unless told so. Its text cannot be had again."""
    return Call(rq.CreateToken(name, expiry_us(expiry)), deadline_s)


def delete_personal_access_token(name: str, *, deadline_s: float | None = None) -> Call[None]:
    return Call(rq.DeleteToken(name), deadline_s)
