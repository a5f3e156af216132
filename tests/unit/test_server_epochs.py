"""Epochs over a real server: others while one is committed, a stop in the middle, a disk that recovers."""

import asyncio
import errno
import os

import pytest

from borzoi import AsyncClient, PollingStrategy
from borzoi.broker import application
from borzoi.model.errors import BorzoiError, CannotAppendMessage
from borzoi.model.requests import StagedPart
from borzoi.wire.batch import NewMessage, build
from support.in_process import LocalServer, eventually

BATCHES = 40


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    monkeypatch.setattr(application, "STEP_BATCHES", 1)


def client_of(server):
    return AsyncClient("127.0.0.1", server.port, username="iggy", password="iggy")


async def stage_epoch(client, epoch=1):
    for sequence in range(BATCHES):
        batch = build([NewMessage(b"%d.%d" % (epoch, sequence))])
        await client.stage_messages(
            "s", "t", 0, batch, 1, producer="p", epoch=epoch, task=0, attempt=0, sequence=sequence
        )


async def stored(client):
    messages = await client.poll_messages("s", "t", 0, PollingStrategy.First(), 1000, auto_commit=False)
    return [message.payload for message in messages]


async def make_topic(client, **how):
    await client.create_stream("s")
    await client.create_topic("s", "t", 1, **how)


PARTS = [StagedPart(0, 0, BATCHES)]
EXPECTED = [b"1.%d" % sequence for sequence in range(BATCHES)]


@pytest.mark.parametrize("durability", ["replicated", "persisted"])
async def test_of_many_commits_at_once_one_does_it_and_all_are_answered_when_it_is_done(tmp_path, durability):
    with LocalServer(tmp_path / "data", {"system.state.enforce_fsync": "true"}) as server:
        clients = [client_of(server) for _ in range(5)]
        try:
            await make_topic(clients[0], durability=durability)
            await stage_epoch(clients[0])
            assert await stored(clients[0]) == []

            async def commit(client):
                reply = await client.commit_epoch("s", "t", "p", 1, PARTS)
                assert await stored(client) == EXPECTED
                return reply.is_repeated

            repeated = await asyncio.gather(*map(commit, clients))
            assert sorted(repeated) == [False, True, True, True, True]
            assert server.events.of("request failed unexpectedly") == []
        finally:
            for client in clients:
                await client.close()


async def test_other_requests_are_served_while_an_epoch_is_appended(tmp_path, monkeypatch):
    """Every step lets a ping of another client through before the next one is made."""
    with LocalServer(tmp_path / "data") as server:
        async with client_of(server) as client, client_of(server) as other:
            await make_topic(client)
            await stage_epoch(client)
            appended = server.call(lambda: server.broker.catalog.topic("s", "t").partition(0).log)
            seen = set()
            committing = asyncio.create_task(client.commit_epoch("s", "t", "p", 1, PARTS))
            while not committing.done():
                await other.ping()
                seen.add(appended.next_offset)
            await committing
            assert await stored(client) == EXPECTED
            assert seen - {0, BATCHES}


async def test_a_server_that_is_stopped_while_it_appends_goes_on_at_its_next_start(tmp_path, monkeypatch):
    with LocalServer(tmp_path / "data") as server:
        async with client_of(server) as client:
            await make_topic(client)
            await stage_epoch(client)

            def begin():
                topic = server.broker.catalog.topic("s", "t")
                work = server.broker.transactions.commit(topic, "p", 1, PARTS, server.broker.started_at_us)
                server.worker.start(work, outcomes.append)
                server.worker._is_closing = True  # as `close` does, in the middle of it
                return topic

            outcomes = []
            topic = server.call(begin)
            assert eventually(lambda: bool(outcomes))
            assert isinstance(outcomes[0], BorzoiError)
            assert not topic.epochs["p"].is_applied
            assert topic.messages_count < BATCHES
    with LocalServer(tmp_path / "data") as server:
        async with client_of(server) as client:
            assert await stored(client) == EXPECTED
            assert (await client.commit_epoch("s", "t", "p", 1, PARTS)).is_repeated


async def test_a_full_disk_is_told_to_the_client_and_upkeep_finishes_the_epoch_when_there_is_room(
    tmp_path, monkeypatch
):
    room = [None]
    write = os.pwrite

    def pwrite(fd, data, position):
        if room[0] is not None and os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            room[0] -= 1
            if room[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with LocalServer(tmp_path / "data") as server:
        async with client_of(server) as client:
            await make_topic(client)
            await stage_epoch(client)
            room[0] = BATCHES // 2
            with pytest.raises(CannotAppendMessage) as refused:
                await client.commit_epoch("s", "t", "p", 1, PARTS)
            assert refused.value.retryable
            assert (await client.get_producer_epoch("s", "t", "p")).epoch == 1
            assert eventually(lambda: bool(server.events.of("epoch is tried again later")))
            room[0] = None
            topic = server.call(lambda: server.broker.catalog.topic("s", "t"))
            assert eventually(lambda: topic.epochs["p"].is_applied)
            assert await stored(client) == EXPECTED


async def test_retention_of_idle_epochs_is_a_chore(tmp_path):
    with LocalServer(tmp_path / "data", {"system.staging.expiry": "1ms"}) as server:
        async with client_of(server) as client:
            await make_topic(client)
            batch = build([NewMessage(b"x")])
            await client.stage_messages(
                "s", "t", 0, batch, 1, producer="p", epoch=1, task=0, attempt=0, sequence=0
            )
            assert eventually(lambda: server.broker.transactions.staged.size_bytes == 0)
            assert eventually(lambda: not list((tmp_path / "data" / "staging").rglob("*.staged")))
