"""Users and their personal access tokens, as the metadata says they are.

Passwords are kept as Argon2id hashes, tokens as BLAKE2b hashes: a token is 50 random bytes, so a fast
hash is enough to keep it from being read out of the metadata. Hashing a password takes tens of
milliseconds by design; callers run it off the event loop.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from borzoi.broker import events as ev
from borzoi.model.errors import InvalidPassword, InvalidUsername, ResourceNotFound
from borzoi.model.limits import (
    PASSWORD_BYTES_MAX,
    PASSWORD_BYTES_MIN,
    TOKEN_BYTES_MAX,
    USERNAME_BYTES_MAX,
    USERNAME_BYTES_MIN,
)
from borzoi.model.permissions import ROOT_PERMISSIONS, Permissions
from borzoi.model.values import Identifier, UserStatus

if TYPE_CHECKING:
    from argon2 import PasswordHasher

ROOT_ID = 0
TOKEN_RANDOM_BYTES = 50


class Token:
    __slots__ = ("expires_at_us", "hash", "name", "user_id")

    def __init__(self, event: ev.TokenCreated) -> None:
        self.user_id = event.user_id
        self.name = event.name
        self.hash = event.token_hash
        self.expires_at_us = event.expires_at_us

    def is_expired(self, now_us: int) -> bool:
        return 0 < self.expires_at_us <= now_us


class User:
    __slots__ = ("created_at_us", "id", "password_hash", "permissions", "status", "tokens", "username")

    def __init__(self, event: ev.UserCreated) -> None:
        self.id = event.user_id
        self.username = event.username
        self.password_hash = event.password_hash
        self.status = event.status
        self.permissions: Permissions | None = event.permissions
        self.created_at_us = event.at_us
        self.tokens: dict[str, Token] = {}

    @property
    def is_root(self) -> bool:
        return self.id == ROOT_ID


class Users:
    def __init__(self) -> None:
        self.by_id: dict[int, User] = {}
        self._ids: dict[str, int] = {}
        self._tokens: dict[str, Token] = {}

    def find(self, user: Identifier) -> User | None:
        return self.by_id.get(user if isinstance(user, int) else self._ids.get(user, -1))

    def get(self, user: Identifier) -> User:
        found = self.find(user)
        if found is None:
            raise ResourceNotFound(f"user {user}")
        return found

    def find_token(self, raw: str) -> Token | None:
        return self._tokens.get(hash_token(raw)) if len(raw) <= TOKEN_BYTES_MAX else None

    def free_id(self) -> int:
        number = 0
        while number in self.by_id:
            number += 1
        return number

    def expired_tokens(self, now_us: int) -> list[Token]:
        return [token for token in self._tokens.values() if token.is_expired(now_us)]

    def apply(self, event: ev.UserEvent) -> None:
        match event:
            case ev.UserCreated():
                self.by_id[event.user_id] = User(event)
                self._ids[event.username] = event.user_id
            case ev.UserUpdated():
                user = self.by_id[event.user_id]
                del self._ids[user.username]
                user.username, user.status = event.username, event.status
                self._ids[event.username] = event.user_id
            case ev.UserDeleted():
                user = self.by_id.pop(event.user_id)
                del self._ids[user.username]
                for token in user.tokens.values():
                    del self._tokens[token.hash]
            case ev.PasswordChanged():
                self.by_id[event.user_id].password_hash = event.password_hash
            case ev.PermissionsChanged():
                self.by_id[event.user_id].permissions = event.permissions
            case ev.TokenCreated():
                token = Token(event)
                self.by_id[event.user_id].tokens[event.name] = token
                self._tokens[event.token_hash] = token
            case ev.TokenDeleted():
                del self._tokens[self.by_id[event.user_id].tokens.pop(event.name).hash]

    def to_events(self) -> Iterator[ev.UserEvent]:
        """Events that make these users out of none."""
        for user in self.by_id.values():
            yield ev.UserCreated(
                user_id=user.id,
                username=user.username,
                password_hash=user.password_hash,
                status=user.status,
                permissions=user.permissions,
                at_us=user.created_at_us,
            )
            for token in user.tokens.values():
                yield ev.TokenCreated(
                    user_id=user.id,
                    name=token.name,
                    token_hash=token.hash,
                    expires_at_us=token.expires_at_us,
                )


def root_created(username: str, password: str, now_us: int) -> ev.UserCreated:
    return ev.UserCreated(
        user_id=ROOT_ID,
        username=username,
        password_hash=hash_password(password),
        status=UserStatus.ACTIVE,
        permissions=ROOT_PERMISSIONS,
        at_us=now_us,
    )


def check_username(username: str) -> None:
    if not USERNAME_BYTES_MIN <= len(username.encode()) <= USERNAME_BYTES_MAX:
        raise InvalidUsername(f"between {USERNAME_BYTES_MIN} and {USERNAME_BYTES_MAX} bytes are allowed")


def check_password(password: str) -> None:
    if not PASSWORD_BYTES_MIN <= len(password.encode()) <= PASSWORD_BYTES_MAX:
        raise InvalidPassword(f"between {PASSWORD_BYTES_MIN} and {PASSWORD_BYTES_MAX} bytes are allowed")


def hash_password(password: str) -> str:
    return _hasher().hash(password)


def is_password(password_hash: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - see _hasher

    try:
        return _hasher().verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


def _hasher() -> "PasswordHasher":
    """Imported on first use: a start-up that neither makes a user nor logs one in does without."""
    from argon2 import PasswordHasher  # noqa: PLC0415

    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def new_token() -> str:
    return base64.b64encode(secrets.token_bytes(TOKEN_RANDOM_BYTES)).decode()


def hash_token(raw: str) -> str:
    return hashlib.blake2b(raw.encode(), digest_size=32).hexdigest()
