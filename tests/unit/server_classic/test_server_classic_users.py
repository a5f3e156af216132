"""Users, tokens and logins of classic clients, and what works without a login, in all four dialects."""

import itertools

import pytest

from borzoi.model import errors as er
from borzoi.model import requests as rq
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from borzoi.model.values import UserStatus
from borzoi.wire.commands import COMMANDS, Code, Generation
from support.classic_wire import ClassicClient, frame

NUMBERS = itertools.count()


def a_name(kind: str) -> str:
    return f"{kind}-{next(NUMBERS)}"


# Users

RIGHTS = Permissions(
    GlobalPermissions(read_servers=True),
    {
        3: StreamPermissions(read_stream=True, topics={0: TopicPermissions(poll_messages=True)}),
        5: StreamPermissions(send_messages=True),
    },
)


def test_a_users_life(server, client, dialect):
    name = a_name("user")
    created = client.request(rq.CreateUser(name, "first secret", UserStatus.ACTIVE, RIGHTS))
    assert created.user.username == name
    assert created.permissions == RIGHTS
    assert client.request(rq.GetUser(name)) == created
    assert client.request(rq.GetUser(created.user.id)) == created
    assert name in {user.username for user in client.request(rq.GetUsers())}
    with pytest.raises(er.UserAlreadyExists):
        client.request(rq.CreateUser(name, "secret", UserStatus.ACTIVE, None))
    client.request(rq.ChangePassword(name, "first secret", "second secret"))
    with pytest.raises(er.InvalidCredentials):
        client.request(rq.ChangePassword(name, "first secret", "third secret"))
    with ClassicClient(server.port, dialect) as own:
        with pytest.raises(er.InvalidCredentials):
            own.log_in(name, "first secret")
        assert own.log_in(name, "second secret") == created.user.id + dialect.id_base
        assert own.request(rq.GetUser(name)) == created
        with pytest.raises(er.Unauthorized):
            own.request(rq.CreateStream("not allowed"))
        client.request(rq.UpdatePermissions(name, Permissions(GlobalPermissions(manage_streams=True))))
        own.request(rq.CreateStream(a_name("allowed")))
        client.request(rq.UpdatePermissions(name, None))
        with pytest.raises(er.Unauthorized):
            own.request(rq.CreateStream("not allowed"))
        client.request(rq.UpdateUser(name, f"{name}-2", UserStatus.INACTIVE))
        with ClassicClient(server.port, dialect) as late:
            with pytest.raises(er.UserInactive):
                late.log_in(f"{name}-2", "second secret")
            with pytest.raises(er.InvalidCredentials):
                late.log_in(f"{name}-2", "wrong secret")
        client.request(rq.DeleteUser(f"{name}-2"))
        with pytest.raises(er.StaleClient):
            own.request(rq.GetMe())
    assert client.request(rq.GetUser(name)) is None


def test_a_user_without_permissions_ends_with_four_zero_bytes(client):
    name = a_name("user")
    client.request(rq.CreateUser(name, "secret", UserStatus.ACTIVE, None))
    body = client.command(Code.GET_USER, bytes([2, len(name)]) + name.encode())
    assert body.endswith(name.encode() + bytes(4))
    assert len(body) == 4 + 8 + 1 + 1 + len(name) + 4


def test_the_root_user_stays(client):
    with pytest.raises(er.CannotDeleteUser):
        client.request(rq.DeleteUser("iggy"))
    with pytest.raises(er.CannotChangePermissions):
        client.request(rq.UpdatePermissions(0, None))


@pytest.mark.parametrize(("username", "password"), [("iggy", "wrong"), ("nobody", "iggy"), ("ab", "iggy")])
def test_wrong_credentials_are_one_answer(server, dialect, username, password):
    with ClassicClient(server.port, dialect) as client:
        with pytest.raises(er.InvalidCredentials):
            client.log_in(username, password)
        assert client.status(Code.GET_STREAMS) == er.Unauthenticated.code


def test_tokens_are_made_used_and_revoked(server, client, dialect, stream):
    name = a_name("token")
    token = client.request(rq.CreateToken(name, 0)).token
    assert len(token) <= 100
    assert {each.name: each.expires_at_us for each in client.request(rq.GetTokens())}[name] == 0
    with pytest.raises(er.PersonalAccessTokenAlreadyExists):
        client.request(rq.CreateToken(name, 0))
    with pytest.raises(er.InvalidPersonalAccessTokenName):
        client.request(rq.CreateToken("no", 0))
    with ClassicClient(server.port, dialect) as bearer:
        bearer.log_in_with_token(token)
        assert bearer.command(Code.GET_STREAMS)
    client.request(rq.DeleteToken(name))
    with pytest.raises(er.ResourceNotFound):
        client.request(rq.DeleteToken(name))
    with ClassicClient(server.port, dialect) as bearer:
        with pytest.raises(er.ResourceNotFound):
            bearer.log_in_with_token(token)
        assert bearer.status(Code.GET_STREAMS) == er.Unauthenticated.code


def test_an_expired_token_says_so(server, dialect):
    token = server.add_user(a_name("expired"), expires_at_us=1)
    with ClassicClient(server.port, dialect) as bearer, pytest.raises(er.PersonalAccessTokenExpired):
        bearer.log_in_with_token(token)


# Logins and what needs one

PUBLIC = {
    Code.PING,
    Code.LOGIN_USER,
    Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
    Code.GET_CLUSTER_METADATA,
}
# Consumers that come back may be early with these; a 40 would make their client dial again, without an end.
REJOINING = {Code.GET_CONSUMER_GROUP, Code.JOIN_CONSUMER_GROUP}


def test_nothing_else_works_before_a_login(server, dialect):
    with ClassicClient(server.port, dialect) as stranger:
        for command in COMMANDS:
            code = command.codes.get(Generation.CLASSIC)
            if code is not None and code not in PUBLIC:
                error = er.Unauthorized if code in REJOINING else er.Unauthenticated
                assert stranger.status(code) == error.code, code
                assert stranger.status(code, bytes(40)) == error.code, code
        assert stranger.status(Code.PING) == 0
        stranger.log_in()
        stranger.command(Code.GET_STREAMS)


def test_the_cluster_is_told_to_anyone(server, dialect):
    """Clients that reconnect may ask before they log in; a 40 would make them dial again, without an end."""
    with ClassicClient(server.port, dialect) as stranger:
        nodes = stranger.request(rq.GetClusterMetadata()).nodes
        assert [node.tcp_port for node in nodes] == [server.port]
        assert stranger.status(Code.GET_CLUSTER_METADATA, b"x") == er.InvalidCommand.code


def test_a_logout_ends_what_the_login_began(client):
    client.request(rq.LogoutUser())
    assert client.status(Code.GET_STREAMS) == er.Unauthenticated.code
    client.log_in()
    client.command(Code.GET_STREAMS)


def test_another_login_changes_the_user_and_keeps_the_memberships(server, client, stream):
    client.request(rq.CreateConsumerGroup(stream, "t", "g"))
    client.request(rq.JoinConsumerGroup(stream, "t", "g"))
    name = a_name("user")
    server.add_user(name, Permissions(GlobalPermissions(poll_messages=True)))
    client.log_in(name, "secret")
    assert len(client.request(rq.GetMe()).groups) == 1
    with pytest.raises(er.Unauthorized):
        client.request(rq.GetStreams())
    assert client.poll(stream, "t", partition=None, group="g").messages == []


def test_a_failed_login_leaves_the_connection_as_it_was(client):
    with pytest.raises(er.InvalidCredentials):
        client.log_in("iggy", "wrong")
    client.command(Code.GET_STREAMS)


def test_requests_that_come_together_are_answered_in_order(client, stream):
    target = bytes([2, len(stream)]) + stream.encode()
    client.raw(frame(Code.PING) + frame(Code.GET_STREAM, target) + frame(9999) + frame(Code.LOGOUT_USER))
    answers = [client.receive() for _ in range(4)]
    assert [status for status, _ in answers] == [0, 0, er.InvalidCommand.code, 0]
    assert [bool(body) for _, body in answers] == [False, True, False, False]
