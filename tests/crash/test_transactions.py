"""Epochs are committed exactly once although the server is killed again and again while they are.

Two clients stage and commit epoch after epoch, partly of the same content, to the same partitions. What is
left without an answer they ask for again, as Spark does. The server is killed at random moments, sometimes
once more while it recovers. `BORZOI_CRASH_SEED` repeats a run's choices.
"""

import asyncio
import os
import random
import secrets
from collections import defaultdict

import pytest

from borzoi import AsyncClient, PollingStrategy
from borzoi.model.errors import BorzoiError
from borzoi.model.requests import StagedPart
from borzoi.wire.batch import NewMessage, build
from support.server import HOST, ServerProcess, fixed_port

SEED_VARIABLE = "BORZOI_CRASH_SEED"
KILLS = 12
PARTITIONS = 3
TASKS = 3
PRODUCERS = ("orders", "clicks")
EPOCHS_MIN = 30
COMMON = b"the same in every batch"
FILLER = bytes(range(256)) * 512  # so that an epoch takes several steps


class Committed:
    """What every acknowledged epoch consists of, by producer and epoch: payloads per partition."""

    def __init__(self):
        self.epochs = {producer: {} for producer in PRODUCERS}


async def until_done(call, *arguments, **options):
    """The reply, asked for again for as long as the server is away; most of that the client does itself."""
    while True:
        try:
            return await call(*arguments, **options)
        except BorzoiError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(0.02)


async def write_epochs(client, producer, observed, rng, is_over):
    epoch = 0
    while not is_over.is_set():
        epoch += 1
        expected = defaultdict(list)
        parts = []
        for task in range(TASKS):
            attempt = rng.getrandbits(63)
            if rng.random() < 0.3:  # a try that fails
                await stage(client, producer, epoch, task, attempt - 1, 1, rng, defaultdict(list))
            count = rng.randint(0, 3)
            await stage(client, producer, epoch, task, attempt, count, rng, expected)
            parts.append(StagedPart(task, attempt, count))
        rng.shuffle(parts)
        reply = await until_done(client.commit_epoch, "s", "t", producer, epoch, parts)
        assert reply.epoch == epoch
        assert reply.messages_count == sum(map(len, expected.values()))
        observed.epochs[producer][epoch] = expected
        if rng.random() < 0.2:
            assert (await until_done(client.commit_epoch, "s", "t", producer, epoch, parts)).is_repeated


async def stage(client, producer, epoch, task, attempt, count, rng, expected):
    for sequence in range(count):
        partition = rng.randrange(PARTITIONS)
        payloads = [
            f"{producer} {epoch} {task} {sequence} {number}".encode() for number in range(rng.randint(1, 3))
        ]
        payloads += [COMMON, FILLER[: rng.choice((1, 1000, 100_000))]]
        batch = build([NewMessage(payload) for payload in payloads])
        staged = await until_done(
            client.stage_messages, "s", "t", partition, batch, len(payloads),
            producer=producer, epoch=epoch, task=task, attempt=attempt, sequence=sequence,
        )  # fmt: skip
        assert (staged.is_committed, staged.batches_count) == (False, sequence + 1)
        expected[partition] += payloads


async def kill_again_and_again(server, rng):
    for number in range(KILLS):
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        server.kill()
        if number % 3 == 2:
            server.spawn()
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            server.kill()
        await asyncio.to_thread(server.start)


async def stored(client, partition):
    found = []
    while True:
        messages = await client.poll_messages(
            "s", "t", partition, PollingStrategy.Offset(len(found)), 1000, auto_commit=False
        )
        if not messages:
            return found
        found += [message.payload for message in messages]


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_persisted", [True, False], ids=["fsync", "page-cache"])
async def test_every_epoch_is_there_exactly_once_whenever_the_server_is_killed(tmp_path, is_persisted):
    seed = os.environ.get(SEED_VARIABLE) or str(secrets.randbelow(1_000_000))
    print(f"{SEED_VARIABLE}={seed}")
    rng = random.Random(f"{seed} {is_persisted}")
    observed = Committed()
    durability = "persisted" if is_persisted else "replicated"
    with ServerProcess(tmp_path / "data", port=fixed_port()) as server:
        address = f"iggy://iggy:iggy@{HOST}:{server.port}?reconnection_interval=50ms"
        clients = [AsyncClient(address) for _ in PRODUCERS]
        try:
            await clients[0].create_stream("s")
            await clients[0].create_topic("s", "t", PARTITIONS, durability=durability)
            is_over = asyncio.Event()
            async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
                for client, producer in zip(clients, PRODUCERS, strict=True):
                    choices = random.Random(f"{seed} {producer}")
                    tasks.create_task(write_epochs(client, producer, observed, choices, is_over))
                await kill_again_and_again(server, rng)
                while min(len(epochs) for epochs in observed.epochs.values()) < EPOCHS_MIN:
                    await asyncio.sleep(0.05)
                is_over.set()
            logs = [await stored(clients[0], partition) for partition in range(PARTITIONS)]
            for producer, epochs in observed.epochs.items():
                assert (await clients[0].get_producer_epoch("s", "t", producer)).epoch == max(epochs)
        finally:
            for client in clients:
                await client.close()
    for partition, log in enumerate(logs):
        check(partition, log, observed)
    assert not list((tmp_path / "data" / "staging").rglob("*.staged"))


def check(partition, log, observed):
    """Each producer's own messages in order, once; and the others as often as they were written."""
    for producer, epochs in observed.epochs.items():
        mine = [payload for payload in log if payload.startswith(producer.encode())]
        expected = [
            payload
            for epoch in sorted(epochs)
            for payload in epochs[epoch].get(partition, [])
            if payload.startswith(producer.encode())
        ]
        assert mine == expected, f"partition {partition}, {producer}"
    everything = sum(
        len(epoch.get(partition, [])) for epochs in observed.epochs.values() for epoch in epochs.values()
    )
    assert len(log) == everything
    assert log.count(COMMON) == sum(
        epoch.get(partition, []).count(COMMON)
        for epochs in observed.epochs.values()
        for epoch in epochs.values()
    )
