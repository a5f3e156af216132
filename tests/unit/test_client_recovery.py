"""What clients do when connections, sessions and servers end: deadlines, reconnects, what is sent again."""

import asyncio
import logging
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from borzoi import ConnectionState, Consumer, GlobalPermissions, Permissions, PollingStrategy
from borzoi.broker.groups import ChangeReason
from borzoi.model import requests as rq
from borzoi.model.errors import (
    BorzoiError,
    CannotEstablishConnection,
    ClientShutdown,
    ConsumerGroupIdNotFound,
    Disconnected,
    InvalidCredentials,
    InvalidPersonalAccessToken,
    RemoteProtocolError,
    TaskTimeout,
    Unauthenticated,
)
from borzoi.wire.commands import Code
from borzoi.wire.vsr.frames import EvictionReason, pack_eviction
from support.client_kinds import HOST, KINDS, Close, Either, ScriptedServer, answer, code_of
from support.in_process import LocalServer, eventually
from support.server import ServerProcess, fixed_port

LOGIN = {"username": "iggy", "password": "iggy"}
GRACE_S = 0.5


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("recovery") / "data") as running:
        running.ask(rq.CreateStream("s"))
        yield running


@pytest.fixture
def topic(server, request):
    name = request.node.name
    server.ask(rq.CreateTopic("s", 2, name))
    server.ask(rq.CreateConsumerGroup("s", name, "g"))
    return name


@contextmanager
def takes(least_s, most_s):
    start_s = time.monotonic()
    yield
    assert least_s <= time.monotonic() - start_s <= most_s


def in_background(kind, call):
    """A call that runs while the test goes on, whichever client it is of."""
    if kind == "async":
        return asyncio.create_task(call())
    return asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(call())))


def evict_all(server):
    def evict():
        for session in [c.session for c in server.broker.clients._clients.values() if c.session]:
            server.broker.evict(session, ChangeReason.EVICTED, time.time_ns() // 1000)

    server.call(evict)


# Deadlines


async def test_nobody_listens(kind):
    port = fixed_port()
    client = Either(kind, HOST, port, **LOGIN, deadline_s=0.3)
    with (
        takes(0.3, 0.3 + GRACE_S),
        pytest.raises(CannotEstablishConnection, match=rf"{HOST}:{port} within 0.3 s"),
    ):
        await client.get_streams()
    with takes(0.1, 0.1 + GRACE_S), pytest.raises(CannotEstablishConnection, match="refused"):
        await client.send_messages("s", "t", 0, [b"x"], deadline_s=0.1)
    with takes(0.1, 0.1 + GRACE_S), pytest.raises(CannotEstablishConnection):
        await client.connect(deadline_s=0.1)
    await client.close()


async def test_a_listener_that_never_answers(kind):
    with socket.create_server((HOST, 0)) as listener:
        client = Either(kind, HOST, listener.getsockname()[1], **LOGIN, deadline_s=0.2)
        for call in (client.get_streams, client.connect, lambda: client.login_user("iggy", "iggy")):
            with takes(0.2, 0.2 + GRACE_S), pytest.raises(CannotEstablishConnection, match="does not answer"):
                await call()
        await client.close()


async def test_a_server_that_stops_answering(kind):
    is_silent = True

    def script(header, body):
        return None if is_silent else answer(header)

    with ScriptedServer(script) as server:
        async with Either(kind, HOST, server.port, **LOGIN, deadline_s=0.2) as client:
            with (
                takes(0.2, 0.2 + GRACE_S),
                pytest.raises(TaskTimeout, match=r"get_streams: no answer within 0.2 s"),
            ):
                await client.get_streams()
            with (
                takes(0.1, 0.1 + GRACE_S),
                pytest.raises(Disconnected, match="may or may not have been applied"),
            ):
                await client.delete_stream("s", deadline_s=0.1)
            is_silent = False
            assert await client.get_streams() == ()
        assert server.logins == 3  # a late answer must not be taken for another


async def test_retries_can_be_limited(kind):
    client = Either(kind, HOST, fixed_port(), **LOGIN, reconnection_retries=1)
    with takes(0, 1), pytest.raises(CannotEstablishConnection, match="in 2 attempts"):
        await client.ping()
    await client.close()


async def test_connections_are_not_made_more_often_than_allowed(kind):
    with ScriptedServer(lambda header, body: answer(header)) as server:
        async with Either(kind, HOST, server.port, **LOGIN, reestablish_after_s=0.3) as client:
            await client.ping()
            server.hang_up()
            await asyncio.sleep(0.05)
            with takes(0.15, 0.3 + GRACE_S):
                await client.ping()


# What is sent again


def closes_first(*codes):
    """A script that answers everything except for the first request of each of these codes."""
    left = list(codes)

    def script(header, body):
        code = code_of(header)
        if code in left:
            left.remove(code)
            raise Close
        return answer(header)

    return script


async def test_reads_and_joins_are_sent_again(kind):
    with ScriptedServer(closes_first(Code.GET_STREAMS, Code.JOIN_CONSUMER_GROUP)) as server:
        async with Either(kind, HOST, server.port, **LOGIN) as client:
            assert await client.get_streams() == ()
            await client.join_consumer_group("s", "t", "g")
        assert server.seen == [Code.GET_STREAMS] * 2 + [Code.JOIN_CONSUMER_GROUP] * 2
        assert server.logins == 3


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (Code.SEND_MESSAGES, lambda client: client.send_messages("s", "t", 0, [b"x"])),
        (Code.CREATE_STREAM, lambda client: client.create_stream("s")),
        (Code.STORE_CONSUMER_OFFSET, lambda client: client.store_consumer_offset("s", "t", 0, offset=1)),
        (Code.POLL_MESSAGES, lambda client: client.poll_messages("s", "t", 0, auto_commit=True)),
    ],
)
async def test_changes_whose_outcome_is_unknown_are_not_sent_again(kind, code, call):
    with ScriptedServer(closes_first(code)) as server:
        async with Either(kind, HOST, server.port, **LOGIN) as client:
            with pytest.raises(Disconnected, match="may or may not have been applied") as unknown:
                await call(client)
            assert unknown.value.retryable
            await client.ping()
        assert server.seen == [code, Code.PING]


async def test_a_connection_that_ended_unnoticed_costs_no_answer(kind):
    """The end is seen before the request goes out, so nothing is in doubt."""
    with ScriptedServer(lambda header, body: answer(header)) as server:
        async with Either(kind, HOST, server.port, **LOGIN) as client:
            server.hang_up()
            await asyncio.sleep(0.05)
            assert await client.delete_stream("s") is None
        assert server.logins == 2


@pytest.mark.parametrize(
    "refusal",
    [
        lambda header: answer(header, status=Unauthenticated.code),
        lambda header: pack_eviction(header.client, EvictionReason.STALE_CLIENT),
        lambda header: pack_eviction(header.client, EvictionReason.NO_SESSION),
    ],
    ids=["status", "stale", "no session"],
)
async def test_a_refusal_for_want_of_a_session_is_answered_with_a_new_login(kind, refusal):
    refusals = [refusal]

    def script(header, body):
        return refusals.pop()(header) if refusals else answer(header)

    with ScriptedServer(script) as server:
        async with Either(kind, HOST, server.port, **LOGIN) as client:
            await client.delete_stream("s")
        assert server.seen == [Code.DELETE_STREAM] * 2
        assert server.logins == 2


async def test_a_server_that_refuses_every_session_is_not_asked_for_ever(kind):
    with ScriptedServer(lambda header, body: answer(header, status=Unauthenticated.code)) as server:
        async with Either(kind, HOST, server.port, **LOGIN) as client:
            with takes(0, 2), pytest.raises(Unauthenticated):
                await client.get_streams()
        assert server.logins == 2


@pytest.mark.parametrize(
    "frame",
    [
        lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 300,
        lambda header: answer(header, b"junk"),
        lambda header: answer(header._replace(operation=128)),
    ],
)
async def test_nonsense_ends_the_connection_but_not_the_client(kind, frame):
    replies = [frame]

    def script(header, body):
        return replies.pop()(header) if replies else answer(header)

    with ScriptedServer(script) as server:
        async with Either(kind, HOST, server.port, **LOGIN) as client:
            with takes(0, 2), pytest.raises(RemoteProtocolError):
                await client.ping()
            await client.ping()
        assert server.logins == 2


async def test_an_answer_nobody_asked_for_ends_the_connection(kind):
    with ScriptedServer(lambda header, body: answer(header) * 2) as server:
        async with Either(kind, HOST, server.port, **LOGIN, reconnection_interval_s=0.05) as client:
            for _ in range(3):
                try:
                    await client.get_streams(deadline_s=0.2)
                except BorzoiError:
                    continue
            await asyncio.sleep(0.05)
            server.script = lambda header, body: answer(header)
            assert await client.get_streams() == ()


# Logins


async def test_wrong_credentials_are_told_at_once(kind, server):
    for wrong, error in (
        ({"username": "iggy", "password": "wrong"}, InvalidCredentials),
        ({"username": "nobody", "password": "wrong"}, InvalidCredentials),
        ({"token": "no such token"}, InvalidPersonalAccessToken),
    ):
        client = Either(kind, HOST, server.port, **wrong)
        with takes(0, 5), pytest.raises(error):
            await client.get_streams()
        await client.close()


async def test_after_a_wrong_password_another_try_is_possible(kind, server):
    async with Either(kind, HOST, server.port) as client:
        assert client.client.state is ConnectionState.CONNECTED
        with pytest.raises(Unauthenticated):
            await client.get_streams()
        with pytest.raises(InvalidCredentials):
            await client.login_user("iggy", "wrong")
        with pytest.raises(Unauthenticated):
            await client.get_streams()
        await client.login_user("iggy", "iggy")
        await client.get_streams()
        with pytest.raises(InvalidCredentials):
            await client.login_user("iggy", "wrong")
        assert client.client.state is ConnectionState.CONNECTED
        with pytest.raises(Unauthenticated):
            await client.get_streams()


async def test_a_login_by_method_is_repeated_after_a_reconnect(kind, server):
    client = Either(kind, HOST, server.port)
    await client.login_user("iggy", "iggy")
    drop_all(server)
    assert (await client.get_me()).user_id == 0
    await client.close()


async def test_own_changes_of_name_and_password_are_remembered(kind, server):
    name = f"erin-{kind}"
    server.add_user(name, Permissions(GlobalPermissions(manage_users=True)))
    root = Either("sync", HOST, server.port, **LOGIN)
    async with root, Either(kind, HOST, server.port, username=name, password="secret") as client:
        await client.change_password(name, "secret", "better")
        drop_all(server)
        me = await client.get_me()
        await client.update_user(me.user_id, username=f"{name}-2")
        drop_all(server)
        assert (await client.get_me()).user_id == me.user_id
        await root.change_password(f"{name}-2", "better", "other")
        drop_all(server)
        with pytest.raises(InvalidCredentials):
            await client.get_me()


def drop_all(server):
    """End all connections, as a restart would."""
    count = server.call(
        lambda: [c._transport.abort() for c in list(server.listener.connections) if c._transport]
    )
    assert count
    assert eventually(lambda: server.call(lambda: len(server.listener.connections)) == 0)


# Groups


async def test_groups_are_joined_again_after_a_reconnect(kind, server, topic):
    async with Either(kind, HOST, server.port, **LOGIN) as client:
        await client.join_consumer_group("s", topic, "g")
        await client.send_messages("s", topic, 0, ["a", "b"])
        (message,) = await client.poll_messages("s", topic, count=1)
        drop_all(server)
        payloads = []
        for _ in range(3):
            payloads += [
                m.payload for m in await client.poll_messages("s", topic, consumer=Consumer.group("g"))
            ]
        assert (message.payload, payloads) == (b"a", [b"b"])
        await client.leave_consumer_group("s", topic, "g")
        drop_all(server)
        assert (await client.get_me()).consumer_groups == ()


async def test_groups_are_joined_again_after_an_eviction(kind, server, topic):
    async with Either(kind, HOST, server.port, **LOGIN) as client:
        await client.join_consumer_group("s", topic, "g")
        evict_all(server)
        await client.send_messages("s", topic, 0, ["x"])
        assert len((await client.get_me()).consumer_groups) == 1
        evict_all(server)
        polled = await client.poll_messages("s", topic) + await client.poll_messages("s", topic)
        assert [message.payload for message in polled] == [b"x"]


async def test_a_group_that_is_gone_does_not_keep_a_client_from_coming_back(kind, server, topic, caplog):
    async with Either(kind, HOST, server.port, **LOGIN) as client:
        await client.join_consumer_group("s", topic, "g")
        server.ask(rq.DeleteConsumerGroup("s", topic, "g"))
        drop_all(server)
        with caplog.at_level(logging.WARNING, "borzoi.client"):
            await client.get_streams()
        assert "cannot join group g" in caplog.text
        with pytest.raises(ConsumerGroupIdNotFound):
            await client.join_consumer_group("s", topic, "g")


async def test_a_working_member_is_not_taken_for_gone(kind, tmp_path):
    with LocalServer(
        tmp_path / "data", {"heartbeat.enabled": "true", "heartbeat.interval": "200ms"}
    ) as server:
        server.ask(rq.CreateStream("s"))
        server.ask(rq.CreateTopic("s", 1, "t"))
        server.ask(rq.CreateConsumerGroup("s", "t", "g"))
        async with Either(kind, HOST, server.port, **LOGIN, heartbeat_interval_s=0.05) as client:
            await client.join_consumer_group("s", "t", "g")
            await asyncio.sleep(0.6)
            assert server.events.of("session evicted") == []
        async with Either(kind, HOST, server.port, **LOGIN, heartbeat_interval_s=60) as client:
            await client.join_consumer_group("s", "t", "g")
            assert eventually(lambda: server.events.of("session evicted") != [])
            assert len((await client.get_me()).consumer_groups) == 1


async def test_a_heartbeat_without_an_answer_ends_the_connection(kind):
    def script(header, body):
        return None if code_of(header) is Code.PING else answer(header)

    states = []
    with ScriptedServer(script) as server:
        client = Either(
            kind,
            HOST,
            server.port,
            **LOGIN,
            heartbeat_interval_s=0.05,
            deadline_s=0.2,
            on_state_change=states.append,
        )
        await client.join_consumer_group("s", "t", "g")
        for _ in range(100):
            if ConnectionState.DISCONNECTED in states:
                break
            await asyncio.sleep(0.01)
        assert ConnectionState.DISCONNECTED in states
        await client.close()


# States and the end


async def test_states_are_told(kind, server):
    states = []
    client = Either(kind, HOST, server.port, **LOGIN, on_state_change=states.append)
    assert client.client.state is ConnectionState.DISCONNECTED
    await client.ping()
    await client.logout_user()
    await client.login_user("iggy", "iggy")
    drop_all(server)
    await asyncio.sleep(0.05)
    await client.ping()
    await client.close()
    s = ConnectionState
    connect = [s.CONNECTING, s.CONNECTED, s.AUTHENTICATED]
    assert states == [*connect, s.CONNECTED, s.AUTHENTICATED, s.DISCONNECTED, *connect, s.CLOSED]


async def test_a_callback_that_fails_is_logged_and_harms_nothing(kind, server, caplog):
    def fail(state):
        raise ValueError("mine")

    async with Either(kind, HOST, server.port, **LOGIN, on_state_change=fail) as client:
        await client.get_streams()
    assert "mine" in caplog.text


async def test_a_closed_client_refuses_and_can_be_closed_again(kind, server):
    client = Either(kind, HOST, server.port, **LOGIN)
    await client.get_streams()
    await client.close()
    await client.close()
    assert client.client.state is ConnectionState.CLOSED
    for call in (client.ping, client.connect, client.logout_user, lambda: client.login_user("iggy", "iggy")):
        with pytest.raises(ClientShutdown):
            await call()
    never_used = Either(kind, HOST, server.port)
    await never_used.close()
    assert eventually(lambda: server.call(lambda: len(server.listener.connections)) == 0)


@pytest.mark.parametrize("call", ["ping", "delete"])
async def test_closing_ends_calls_under_way(kind, call):
    with ScriptedServer(lambda header, body: None) as server:
        client = Either(kind, HOST, server.port, **LOGIN)
        await client.connect()
        waiting = in_background(kind, client.ping if call == "ping" else lambda: client.delete_stream("s"))
        await asyncio.sleep(0.1)
        with takes(0, 2):
            await client.close()
            with pytest.raises(ClientShutdown):
                await waiting


async def test_closing_ends_logins_under_way(kind):
    with ScriptedServer(lambda header, body: None, answers_logins=False) as server:
        client = Either(kind, HOST, server.port, **LOGIN)
        waiting = in_background(kind, client.ping)
        await asyncio.sleep(0.1)
        with takes(0, 2):
            await client.close()
            with pytest.raises(ClientShutdown):
                await waiting


async def test_closing_ends_calls_that_wait_for_a_server(kind):
    client = Either(kind, HOST, fixed_port(), **LOGIN)
    waiting = in_background(kind, client.ping)
    await asyncio.sleep(0.2)
    with takes(0, 3):
        await client.close()
        with pytest.raises(ClientShutdown):
            await waiting


async def test_no_thread_is_left_behind(kind, server, topic):
    before = set(threading.enumerate())
    async with Either(kind, HOST, server.port, **LOGIN) as client:
        await client.join_consumer_group("s", topic, "g")
    assert set(threading.enumerate()) - before == set()


# A real server, killed and started again


async def test_calls_wait_for_a_server_that_is_started_again(tmp_path):
    with ServerProcess(tmp_path / "data", port=fixed_port()) as server:
        clients = {kind: Either(kind, HOST, server.port, **LOGIN) for kind in KINDS}
        first = clients["sync"]
        await first.create_stream("s")
        for kind, client in clients.items():
            await client.create_topic("s", kind, 2)
            await client.create_consumer_group("s", kind, "g")
            await client.join_consumer_group("s", kind, "g")
            await client.send_messages("s", kind, 0, ["before"])
        server.kill()
        waiting = [
            in_background(
                kind, lambda client=client, kind=kind: client.send_messages("s", kind, 0, ["after"])
            )
            for kind, client in clients.items()
            if kind == "async"
        ]
        for client in clients.values():
            with takes(0.2, 0.2 + GRACE_S), pytest.raises((CannotEstablishConnection, Disconnected)):
                await client.get_streams(deadline_s=0.2)
        assert not any(task.done() for task in waiting)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*waiting)
        await first.send_messages("s", "sync", 0, ["after"])
        for kind, client in clients.items():
            polled = [message for _ in range(2) for message in await client.poll_messages("s", kind)]
            assert [message.payload for message in polled] == [b"before", b"after"]
            assert len((await client.get_me()).consumer_groups) == 1
            assert await client.poll_messages("s", kind, 0, PollingStrategy.Offset(2)) == []
            await client.close()
