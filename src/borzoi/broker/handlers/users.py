"""Users: create, change, delete, look at; logins. Passwords are hashed and checked on a thread."""

from functools import partial

from borzoi.broker import events as ev
from borzoi.broker.broker import Broker
from borzoi.broker.groups import ChangeReason
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.options import refuse_options
from borzoi.broker.pending import OnThread
from borzoi.broker.users import User, check_password, check_username, hash_password, is_password
from borzoi.model.errors import (
    CannotChangePermissions,
    CannotDeleteUser,
    InvalidCredentials,
    InvalidPersonalAccessToken,
    PersonalAccessTokenExpired,
    UserAlreadyExists,
    UserInactive,
)
from borzoi.model.replies import UserDetails, UserInfo
from borzoi.model.requests import (
    ChangePassword,
    CreateUser,
    DeleteUser,
    GetUser,
    GetUsers,
    LoginUser,
    LoginWithToken,
    LogoutUser,
    UpdatePermissions,
    UpdateUser,
)
from borzoi.model.values import UserStatus

# Checked when no such user exists, so that the answer takes as long as for one who does.
_NOBODY_HASH = "$argon2id$v=19$m=19456,t=2,p=1$YmFycmVubGFuZHNhbHQ$" + "A" * 43


def log_in(broker: Broker, request: LoginUser) -> OnThread:
    """The user, once the password is found right; the error does not say what was wrong."""
    user = broker.users.find(request.username)
    password_hash = user.password_hash if user is not None else _NOBODY_HASH

    def then(is_right: bool) -> User:
        # Looked up again: the user may have changed while the thread worked.
        current = broker.users.find(request.username)
        if not is_right or current is None or current.password_hash != password_hash:
            raise InvalidCredentials(request.username)
        if current.status is not UserStatus.ACTIVE:
            raise InvalidCredentials(request.username)
        return current

    return OnThread(partial(is_password, password_hash, request.password), then)


def log_in_with_token(broker: Broker, request: LoginWithToken, now_us: int) -> User:
    token = broker.users.find_token(request.token)
    if token is None:
        raise InvalidPersonalAccessToken
    if token.is_expired(now_us):
        raise PersonalAccessTokenExpired(token.name)
    user = broker.users.get(token.user_id)
    if user.status is not UserStatus.ACTIVE:
        raise UserInactive(user.username)
    return user


def log_out(context: Context, _request: LogoutUser) -> None:
    context.broker.commit += 1
    context.broker.end_session(context.session, ChangeReason.LEFT, context.now_us)


def get_user(context: Context, request: GetUser) -> UserDetails | None:
    user = context.broker.users.find(request.user)
    if user is None:
        return None
    if user.id != context.session.user_id:
        context.require()
    return UserDetails(user_info(user), user.permissions)


def get_users(context: Context, _request: GetUsers) -> tuple[UserInfo, ...]:
    context.require()
    users = context.broker.users.by_id
    return tuple(user_info(users[user_id]) for user_id in sorted(users))


def create_user(context: Context, request: CreateUser) -> OnThread:
    broker = context.broker
    context.require()
    check_username(request.username)
    check_password(request.password)
    refuse_options(request.options)
    if broker.users.find(request.username) is not None:
        raise UserAlreadyExists(request.username)

    def then(password_hash: str) -> UserDetails:
        if broker.users.find(request.username) is not None:
            raise UserAlreadyExists(request.username)
        user_id = broker.users.free_id()
        broker.record(
            ev.UserCreated(
                user_id=user_id,
                username=request.username,
                password_hash=password_hash,
                status=request.status,
                permissions=request.permissions,
                at_us=context.now_us,
            )
        )
        user = broker.users.get(user_id)
        return UserDetails(user_info(user), user.permissions)

    return OnThread(partial(hash_password, request.password), then)


def update_user(context: Context, request: UpdateUser) -> None:
    broker = context.broker
    user = broker.users.get(request.user)
    context.require()
    refuse_options(request.options)
    username = user.username if request.username is None else request.username
    check_username(username)
    found = broker.users.find(username)
    if found is not None and found is not user:
        raise UserAlreadyExists(username)
    status = user.status if request.status is None else request.status
    broker.record(ev.UserUpdated(user_id=user.id, username=username, status=status))


def delete_user(context: Context, request: DeleteUser) -> None:
    broker = context.broker
    user = broker.users.get(request.user)
    context.require()
    if user.is_root:
        raise CannotDeleteUser("root")
    broker.record(ev.UserDeleted(user_id=user.id))
    for session in broker.clients.of_user(user.id):
        broker.evict(session, ChangeReason.EVICTED, context.now_us)


def update_permissions(context: Context, request: UpdatePermissions) -> None:
    user = context.broker.users.get(request.user)
    context.require()
    if user.is_root:
        raise CannotChangePermissions("root")
    context.broker.record(ev.PermissionsChanged(user_id=user.id, permissions=request.permissions))


def change_password(context: Context, request: ChangePassword) -> OnThread:
    broker = context.broker
    user = broker.users.get(request.user)
    if user.id != context.session.user_id:
        context.require()
    check_password(request.new_password)
    old_hash = user.password_hash

    def work() -> str | None:
        if not is_password(old_hash, request.current_password):
            return None
        return hash_password(request.new_password)

    def then(new_hash: str | None) -> None:
        if new_hash is None or broker.users.get(user.id).password_hash != old_hash:
            raise InvalidCredentials(user.username)
        broker.record(ev.PasswordChanged(user_id=user.id, password_hash=new_hash))

    return OnThread(work, then)


def user_info(user: User) -> UserInfo:
    return UserInfo(user.id, user.created_at_us, user.status, user.username)


HANDLERS: dict[type, Handler] = {
    LogoutUser: log_out,
    GetUser: get_user,
    GetUsers: get_users,
    CreateUser: create_user,
    UpdateUser: update_user,
    DeleteUser: delete_user,
    UpdatePermissions: update_permissions,
    ChangePassword: change_password,
}
