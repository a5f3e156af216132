"""Users, passwords and tokens in the broker."""

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from borzoi.broker import upkeep
from borzoi.broker.handlers import Context, handle
from borzoi.broker.handlers.users import _NOBODY_HASH, log_in, log_in_with_token
from borzoi.broker.users import hash_password, hash_token, is_password, new_token
from borzoi.model import requests as rq
from borzoi.model.access import Access
from borzoi.model.errors import (
    CannotChangePermissions,
    CannotDeleteUser,
    InvalidCredentials,
    InvalidFormat,
    InvalidPassword,
    InvalidPersonalAccessToken,
    InvalidPersonalAccessTokenName,
    InvalidUsername,
    PersonalAccessTokenAlreadyExists,
    PersonalAccessTokenExpired,
    PersonalAccessTokensLimitReached,
    ResourceNotFound,
    UserAlreadyExists,
    UserInactive,
)
from borzoi.model.limits import U64_MAX
from borzoi.model.permissions import ROOT_PERMISSIONS, GlobalPermissions, Permissions, StreamPermissions
from borzoi.model.values import UserStatus
from support.in_process import SECOND_US, LocalBroker, carry_out


@pytest.fixture
def local(tmp_path):
    with LocalBroker(tmp_path / "data", tokens_per_user_max=3) as broker:
        yield broker


def create(local, name, password="secret", status=UserStatus.ACTIVE, permissions=None):
    return local.ask(rq.CreateUser(name, password, status, permissions))


def password_login(local, name, password):
    return carry_out(local.broker, log_in(local.broker, rq.LoginUser(name, password)))


def token_login(local, token):
    return log_in_with_token(local.broker, rq.LoginWithToken(token), local.now_us)


def test_root_is_made_from_the_settings_once(tmp_path):
    with LocalBroker(tmp_path / "data", root_username="boss", root_password="of all") as local:
        assert password_login(local, "boss", "of all").id == 0
        assert local.ask(rq.GetUser(0)).permissions == ROOT_PERMISSIONS
        local.reopen(root_username="iggy", root_password="iggy")
        assert password_login(local, "boss", "of all").is_root
        with pytest.raises(InvalidCredentials):
            password_login(local, "iggy", "iggy")


def test_passwords_are_kept_as_slow_hashes():
    kept = hash_password("secret")
    assert kept.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert is_password(kept, "secret")
    assert not is_password(kept, "Secret")
    assert not is_password("no hash at all", "secret")


def test_an_unknown_user_costs_as_much_as_a_wrong_password():
    """Or the time of an answer would tell which names exist."""
    with pytest.raises(VerifyMismatchError):
        PasswordHasher().verify(_NOBODY_HASH, "anything")
    assert _NOBODY_HASH.split("$")[:4] == hash_password("secret").split("$")[:4]


def test_no_secret_is_found_in_the_data_directory(local):
    create(local, "user", "a rare password")
    token = local.ask(rq.CreateToken("token", 0)).token
    local.close()
    kept = b"".join(path.read_bytes() for path in local.path.rglob("*") if path.is_file())
    assert b"user" in kept
    for secret in (b"a rare password", token.encode()):
        assert secret not in kept
    local.open()


def test_user_ids_are_reused_lowest_first(local):
    assert [create(local, name).user.id for name in ("ann", "bob", "cid")] == [1, 2, 3]
    local.ask(rq.DeleteUser("ann"))
    assert create(local, "dan").user.id == 1


@pytest.mark.parametrize("name", ["ab", "a" * 51, "ä" * 26])
def test_names_have_three_to_fifty_bytes(local, name):
    create(local, "abc")
    create(local, "a" * 50)
    with pytest.raises(InvalidUsername):
        create(local, name)
    with pytest.raises(InvalidUsername):
        local.ask(rq.UpdateUser("abc", username=name))


@pytest.mark.parametrize("password", ["ab", "a" * 101])
def test_passwords_have_three_to_a_hundred_bytes(local, password):
    create(local, "user", "p" * 100)
    with pytest.raises(InvalidPassword):
        create(local, "other", password)
    with pytest.raises(InvalidPassword):
        local.ask(rq.ChangePassword("user", "p" * 100, password))


def test_a_user_can_be_changed_and_stays_changed(local):
    rights = Permissions(GlobalPermissions(read_users=True), {3: StreamPermissions(read_stream=True)})
    create(local, "user")
    create(local, "other")
    local.ask(rq.UpdateUser("user", username="renamed", status=UserStatus.INACTIVE))
    local.ask(rq.UpdatePermissions("renamed", rights))
    with pytest.raises(UserAlreadyExists):
        local.ask(rq.UpdateUser("other", username="renamed"))
    with pytest.raises(UserAlreadyExists):
        create(local, "iggy")
    local.ask(rq.UpdateUser("other", username="other"))
    local.reopen()
    found = local.ask(rq.GetUser("renamed"))
    assert (found.user.status, found.permissions) == (UserStatus.INACTIVE, rights)
    assert local.ask(rq.GetUser("user")) is None
    assert [user.username for user in local.ask(rq.GetUsers())] == ["iggy", "renamed", "other"]


def test_root_stays(local):
    with pytest.raises(CannotDeleteUser):
        local.ask(rq.DeleteUser("iggy"))
    with pytest.raises(CannotChangePermissions):
        local.ask(rq.UpdatePermissions(0, None))
    for missing in (rq.DeleteUser("nobody"), rq.UpdateUser(9), rq.UpdatePermissions("nobody", None)):
        with pytest.raises(ResourceNotFound):
            local.ask(missing)


def test_a_password_is_changed_by_who_knows_it(local):
    create(local, "user", "before")
    with pytest.raises(InvalidCredentials):
        local.ask(rq.ChangePassword("user", "wrong", "after"))
    local.ask(rq.ChangePassword("user", "before", "after"))
    local.reopen()
    assert password_login(local, "user", "after").username == "user"
    with pytest.raises(InvalidCredentials):
        password_login(local, "user", "before")


def test_a_login_counts_only_if_nothing_changed_while_it_was_checked(local):
    create(local, "user", "before")
    pending = log_in(local.broker, rq.LoginUser("user", "before"))
    is_right = pending.work()
    assert is_right
    local.ask(rq.ChangePassword("user", "before", "after"))
    with pytest.raises(InvalidCredentials):
        pending.then(is_right)
    pending = log_in(local.broker, rq.LoginUser("user", "after"))
    is_right = pending.work()
    local.ask(rq.DeleteUser("user"))
    with pytest.raises(InvalidCredentials):
        pending.then(is_right)


def test_two_who_create_the_same_user_at_once_make_one(local):
    context = Context(local.broker, local.root, Access.MANAGE_USERS, local.now_us)
    first, second = [
        handle(context, rq.CreateUser("user", "secret", UserStatus.ACTIVE, None)) for _ in range(2)
    ]
    hashes = first.work(), second.work()
    assert first.then(hashes[0]).user.id == 1
    with pytest.raises(UserAlreadyExists):
        second.then(hashes[1])


# Tokens


def test_a_token_is_shown_once_and_logs_in_its_owner(local):
    create(local, "user")
    session = local.log_in("user")
    token = local.ask(rq.CreateToken("token", 0), session).token
    assert len(token) <= 100
    assert token_login(local, token).username == "user"
    (listed,) = local.ask(rq.GetTokens(), session)
    assert (listed.name, listed.expires_at_us) == ("token", 0)
    assert local.ask(rq.GetTokens()) == ()  # root has none
    local.reopen()
    assert token_login(local, token).username == "user"
    local.ask(rq.UpdateUser("user", status=UserStatus.INACTIVE))
    with pytest.raises(UserInactive):
        token_login(local, token)
    local.ask(rq.DeleteUser("user"))
    with pytest.raises(InvalidPersonalAccessToken):
        token_login(local, token)


def test_a_token_expires_at_its_time_and_is_then_cleaned_away(local):
    token = local.ask(rq.CreateToken("short", 10 * SECOND_US)).token
    forever = local.ask(rq.CreateToken("forever", U64_MAX)).token
    local.ask(rq.CreateToken("almost forever", U64_MAX - 1))
    started_us = local.now_us
    local.now_us = started_us + 10 * SECOND_US - 1
    assert token_login(local, token).is_root
    assert upkeep.clean_tokens(local.broker, local.now_us) == 0
    local.now_us += 1
    with pytest.raises(PersonalAccessTokenExpired):
        token_login(local, token)
    assert upkeep.clean_tokens(local.broker, local.now_us) == 1
    with pytest.raises(InvalidPersonalAccessToken):
        token_login(local, token)
    local.reopen()
    assert [listed.name for listed in local.ask(rq.GetTokens())] == ["almost forever", "forever"]
    assert token_login(local, forever).is_root


def test_a_user_holds_so_many_tokens_and_no_more(local):
    for number in range(3):
        local.ask(rq.CreateToken(f"token {number}", 0))
    with pytest.raises(PersonalAccessTokensLimitReached):
        local.ask(rq.CreateToken("one more", 0))
    with pytest.raises(PersonalAccessTokenAlreadyExists):
        local.ask(rq.CreateToken("token 0", 0))
    local.ask(rq.DeleteToken("token 0"))
    local.ask(rq.CreateToken("one more", 0))
    with pytest.raises(ResourceNotFound):
        local.ask(rq.DeleteToken("token 0"))


@pytest.mark.parametrize("name", ["ab", "a" * 31])
def test_token_names_have_three_to_thirty_bytes(local, name):
    local.ask(rq.CreateToken("abc", 0))
    local.ask(rq.CreateToken("a" * 30, 0))
    with pytest.raises(InvalidPersonalAccessTokenName):
        local.ask(rq.CreateToken(name, 0))


def test_tokens_are_long_random_and_kept_as_hashes():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert len({hash_token(token) for token in tokens}) == 100
    assert all(token not in hash_token(token) for token in tokens)


def test_permissions_too_large_to_be_kept_are_refused(local, monkeypatch):
    monkeypatch.setattr("borzoi.broker.metadata.RECORD_BYTES_MAX", 2000)
    large = Permissions(streams={number: StreamPermissions() for number in range(1000)})
    create(local, "user")
    with pytest.raises(InvalidFormat):
        local.ask(rq.UpdatePermissions("user", large))
    assert local.ask(rq.GetUser("user")).permissions is None
