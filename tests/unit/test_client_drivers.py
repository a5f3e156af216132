"""What only one of the drivers has to get right: cancellation and event loops, threads and forks; and TLS."""

import asyncio
import multiprocessing
import random
import signal
import threading
import time
import warnings

import pytest

from borzoi import AsyncClient, Client
from borzoi.client.attachment import (
    async_client_like,
    connection_number,
    forget_group,
    joined_groups,
    settings_in_use,
)
from borzoi.client.memberships import GroupKey
from borzoi.model import requests as rq
from borzoi.model.errors import CannotEstablishConnection, InvalidTlsCertificate, TaskTimeout
from borzoi.wire.commands import Code
from support.client_kinds import HOST, KINDS, Either, ScriptedServer, answer, code_of
from support.forks import in_child
from support.in_process import LocalServer, eventually

LOGIN = {"username": "iggy", "password": "iggy"}
BOTH = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("drivers") / "data") as running:
        running.ask(rq.CreateStream("s"))
        for number in range(10):
            running.ask(rq.CreateTopic("s", 1, f"topic-{number}"))
        yield running


# Cancellation


async def test_the_answer_to_a_cancelled_call_is_not_taken_for_another(server):
    """Hundreds of calls, half of them cancelled at any point; each of the others gets its own answer."""
    chance = random.Random(7)
    async with AsyncClient(HOST, server.port, **LOGIN) as client:

        async def look(name):
            found = await client.get_topic("s", name)
            assert found is not None
            assert found.name == name

        me = await client.get_me()
        for _ in range(30):
            tasks = [asyncio.create_task(look(f"topic-{chance.randrange(10)}")) for _ in range(20)]
            await asyncio.sleep(chance.choice((0, 0, 0.0005, 0.001)))
            for task in chance.sample(tasks, 10):
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert outcome is None or isinstance(outcome, asyncio.CancelledError)
        assert (await client.get_me()).client_id == me.client_id  # all of it on one connection


async def test_a_late_answer_to_a_cancelled_call_is_dropped():
    def script(header, body):
        if code_of(header) is Code.GET_STATS:
            time.sleep(0.2)
            return answer(header, b"not the answer to anything else")
        return answer(header)

    with ScriptedServer(script) as server:
        async with AsyncClient(HOST, server.port, **LOGIN) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get_stats(), 0.05)
            assert await client.get_streams() == ()
        assert server.logins == 1


async def test_cancelling_while_connecting_leaves_a_client_that_can_connect():
    with ScriptedServer(lambda header, body: answer(header), answers_logins=False) as server:
        client = AsyncClient(HOST, server.port, **LOGIN)
        first, second = (asyncio.create_task(client.ping()) for _ in range(2))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0.05)
        server._answers_logins = True
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await client.ping(deadline_s=5)
        await client.close()


async def test_a_call_with_little_time_does_not_wait_for_one_with_much():
    with ScriptedServer(lambda header, body: answer(header), answers_logins=False) as server:
        client = AsyncClient(HOST, server.port, **LOGIN)
        patient = asyncio.create_task(client.ping(deadline_s=20))
        await asyncio.sleep(0.05)
        start_s = time.monotonic()
        with pytest.raises(CannotEstablishConnection):
            await client.ping(deadline_s=0.1)
        assert time.monotonic() - start_s < 0.6
        patient.cancel()
        await asyncio.gather(patient, return_exceptions=True)
        await client.close()


async def test_calls_of_several_tasks_do_not_wait_for_each_other():
    """All requests are on their way before the first is answered."""
    arrived = threading.Semaphore(0)

    def script(header, body):
        arrived.release()
        return answer(header)

    with ScriptedServer(script) as server:
        async with AsyncClient(HOST, server.port, **LOGIN) as client:
            link = client._recovery.link
            tasks = [asyncio.create_task(client.get_streams()) for _ in range(5)]
            await asyncio.sleep(0)
            assert len(link._waiting) == 5
            assert await asyncio.gather(*tasks) == [()] * 5


async def test_many_tasks_connect_once(server):
    async with AsyncClient(HOST, server.port, **LOGIN) as client:
        await asyncio.gather(*(client.get_streams() for _ in range(50)))
        assert len(await client.get_clients()) == 1


# Event loops


def test_a_client_goes_with_its_event_loop(server):
    client = AsyncClient(HOST, server.port, **LOGIN)

    async def use_and_disconnect():
        assert len(await client.get_streams()) == 1
        client._recovery.link.abandon()
        await asyncio.sleep(0)

    asyncio.run(use_and_disconnect())
    asyncio.run(use_and_disconnect())  # the first loop is gone, so this one takes over

    async def elsewhere():
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(client.ping()))

    async def main():
        await client.ping()
        await elsewhere()
        await client.close()

    asyncio.run(main())


# Threads


def test_threads_share_a_client(server):
    failures = []
    with Client(HOST, server.port, **LOGIN) as client:

        def look():
            try:
                for number in range(40):
                    name = f"topic-{number % 10}"
                    assert client.get_topic("s", name).name == name
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(client.get_clients()) == 1


def test_a_thread_that_finds_no_turn_is_told_in_time():
    with ScriptedServer(lambda header, body: None) as server:
        client = Client(HOST, server.port, **LOGIN)
        client.connect()

        def wait():
            with pytest.raises(TaskTimeout):
                client.ping(deadline_s=1.0)

        slow = threading.Thread(target=wait)
        slow.start()
        time.sleep(0.1)
        start_s = time.monotonic()
        with pytest.raises(TaskTimeout, match="other threads"):
            client.ping(deadline_s=0.2)
        assert time.monotonic() - start_s < 0.7
        slow.join()
        client.close()


def test_an_interrupted_call_leaves_no_answer_for_the_next():
    class Interrupted(Exception):  # noqa: N818 - what happened
        pass

    def interrupt(number, frame):
        raise Interrupted

    def script(header, body):
        if code_of(header) is Code.GET_STATS:
            time.sleep(0.3)
            return answer(header, b"not the answer to anything else")
        return answer(header)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with ScriptedServer(script) as server, Client(HOST, server.port, **LOGIN) as client:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                client.get_stats()
            assert client.get_streams() == ()
            assert server.logins == 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Forks


def test_a_forked_process_connects_for_itself(server):
    server.ask(rq.CreateConsumerGroup("s", "topic-0", "forked"))
    with Client(HOST, server.port, **LOGIN) as client:
        client.join_consumer_group("s", "topic-0", "forked")
        mine = client.get_me().client_id

        def child():
            with client:
                me = client.get_me()
                assert me.client_id != mine
                assert len(me.consumer_groups) == 1  # a member of its own
                assert client.get_client(mine) is not None

        assert in_child(child) == 0
        assert client.get_me().client_id == mine
        assert eventually(lambda: len(client.get_clients()) == 1)


def test_a_fork_in_the_middle_of_a_call_does_not_block_the_child(server):
    with Client(HOST, server.port, **LOGIN) as client:
        client.ping()
        with client._lock:  # as another thread would hold it
            assert in_child(lambda: client.ping(deadline_s=5)) == 0
        client.ping()


def test_workers_of_a_pool_use_the_client_they_inherit(server):
    global _inherited  # noqa: PLW0603 - what a pool's workers inherit is a global
    with Client(HOST, server.port, **LOGIN) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _inherited = client
        client.ping()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(_look, [f"topic-{number}" for number in range(10)])
            pool.close()
            pool.join()
        assert found == [f"topic-{number}" for number in range(10)]
        client.ping()


_inherited: Client


def _look(name):
    return _inherited.get_topic("s", name).name


# What others build on


async def test_connections_are_counted_and_a_lost_one_has_no_number(server):
    client = AsyncClient(HOST, server.port, **LOGIN)
    assert connection_number(client) is None
    async with client:
        assert connection_number(client) == 1
        await client.login_user(**LOGIN)  # on the same connection
        assert connection_number(client) == 1
        client._recovery.link.abandon()
        assert connection_number(client) is None
        await client.ping()
        assert connection_number(client) == 2
    assert connection_number(client) is None


@BOTH
async def test_a_group_that_was_forgotten_is_not_joined_again(server, kind):
    key = GroupKey("s", "topic-0", f"forgotten-{kind}")
    server.ask(rq.CreateConsumerGroup(*key))
    async with Either(kind, HOST, server.port, **LOGIN) as either:
        await either.join_consumer_group(*key)
        assert joined_groups(either.client) == (key,)
        forget_group(either.client, key)
        assert joined_groups(either.client) == ()
        either.client._recovery.link.abandon()
        assert (await either.get_me()).consumer_groups_count == 0


async def test_another_client_connects_as_the_first_does_with_the_login_used_last(server):
    with Client(HOST, server.port, deadline_s=7) as client:
        assert settings_in_use(client).credentials is None
        client.login_user(**LOGIN)
        assert "iggy" not in repr(settings_in_use(client))
        async with async_client_like(client) as other:
            assert (await other.get_me()).user_id == client.get_me().user_id
            assert settings_in_use(other) == settings_in_use(client)
            assert settings_in_use(other).deadline_s == 7


# TLS


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "data"
    settings = {"tcp.tls.enabled": "true", "tcp.tls.self_signed": "true"}
    with LocalServer(path, settings) as running:
        running.ask(rq.CreateStream("s"))
        running.ask(rq.CreateTopic("s", 1, "t"))
        yield running, path / "tls" / "ca.pem"


@BOTH
async def test_tls_with_an_authority_of_ones_own(kind, tls_server):
    server, ca_file = tls_server
    text = f"iggy://iggy:iggy@{HOST}:{server.port}?tls=true&tls_ca_file={ca_file}"
    for options in ("", "&tls_domain=localhost"):
        async with Either(kind, text + options) as client:
            payload = bytes(200_000)
            await client.send_messages("s", "t", 0, [payload, b"small"])
            polled = await client.poll_messages("s", "t", 0, auto_commit=False)
            assert polled[0].payload == payload
            for _ in range(20):
                await client.ping()
            assert (await client.get_me()).user_id == 0


@BOTH
async def test_tls_survives_a_lost_connection(kind, tls_server):
    server, ca_file = tls_server
    async with Either(kind, HOST, server.port, **LOGIN, tls=True, tls_ca_file=ca_file) as client:
        await client.ping()
        server.call(lambda: [c._transport.abort() for c in list(server.listener.connections)])
        await asyncio.sleep(0.05)
        assert await client.get_streams()


@BOTH
async def test_a_certificate_that_cannot_be_trusted_is_refused_at_once(kind, tls_server):
    server, ca_file = tls_server
    for options in ({}, {"tls_ca_file": ca_file, "tls_domain": "elsewhere.example"}):
        client = Either(kind, HOST, server.port, **LOGIN, tls=True, **options)
        start_s = time.monotonic()
        with pytest.raises(InvalidTlsCertificate):
            await client.ping()
        assert time.monotonic() - start_s < 5
        await client.close()
    async with Either(kind, HOST, server.port, **LOGIN, tls=True, tls_validate_certificate=False) as careless:
        await careless.ping()


@BOTH
async def test_tls_on_one_side_only_ends_with_the_deadline(kind, server, tls_server):
    for port, tls in ((tls_server[0].port, False), (server.port, True)):
        client = Either(kind, HOST, port, **LOGIN, tls=tls, deadline_s=0.5)
        start_s = time.monotonic()
        with pytest.raises(CannotEstablishConnection):
            await client.get_streams()
        assert time.monotonic() - start_s < 1.0
        await client.close()


@BOTH
async def test_the_delay_of_small_writes_can_be_asked_for(kind, server):
    for nodelay in (True, False):
        async with Either(kind, HOST, server.port, **LOGIN, nodelay=nodelay) as client:
            await client.ping()
