"""The consumer: what is committed when, what happens to partitions that move, dead letters."""

import asyncio
import logging
import runpy
from datetime import timedelta

import pytest

from borzoi import (
    AsyncClient,
    AsyncConsumer,
    Consumer,
    DeadLetter,
    OffsetGap,
    PollingStrategy,
    RetryPolicy,
    SendMessage,
)
from borzoi.client import ownership
from borzoi.model import requests as rq
from borzoi.model.errors import NotFound
from support.client_kinds import HOST
from support.in_process import LocalServer, send_request
from support.paths import REPOSITORY

LOGIN = {"username": "iggy", "password": "iggy"}
QUICK = RetryPolicy(attempts=3, backoff_s=0.001, jitter=0)
WITHIN_S = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"system.segment.size": "1 MiB"}
    with LocalServer(tmp_path_factory.mktemp("consumer") / "data", settings) as running:
        running.ask(rq.CreateStream("s"))
        yield running


@pytest.fixture
async def client(server):
    async with AsyncClient(HOST, server.port, **LOGIN) as connected:
        yield connected


@pytest.fixture
async def second(server):
    async with AsyncClient(HOST, server.port, **LOGIN) as connected:
        yield connected


@pytest.fixture
def topic(server, request):
    server.ask(rq.CreateTopic("s", 2, request.node.name))
    return request.node.name


def fill(server, topic, partition_id=0, count=10, first=0):
    payloads = [f"{partition_id}:{number}".encode() for number in range(first, first + count)]
    server.ask(send_request("s", topic, payloads, partition_id))


async def take(consumer, count):
    async with asyncio.timeout(WITHIN_S):
        return [await anext(consumer) for _ in range(count)]


async def stored(client, topic, partition_id=0, consumer=None):
    found = await client.get_consumer_offset(
        "s", topic, partition_id, consumer=consumer or Consumer.single("c")
    )
    return None if found is None else found.stored_offset


def single(client, topic, **how):
    return AsyncConsumer(client, "s", topic, **{"consumer": "c", "partition_id": 0, "batch_count": 4, **how})


def offsets(messages):
    return [message.offset for message in messages]


async def test_a_message_is_committed_when_the_next_is_asked_for(server, client, topic):
    fill(server, topic)
    async with single(client, topic) as consumer:
        assert offsets(await take(consumer, 1)) == [0]
        assert await stored(client, topic) is None
        await take(consumer, 5)
        assert await stored(client, topic) == 4
    assert await stored(client, topic) == 5
    async with single(client, topic) as again:
        assert offsets(await take(again, 4)) == [6, 7, 8, 9]


async def test_a_message_whose_work_fails_is_not_committed(server, client, topic):
    fill(server, topic)

    async def work():
        async with single(client, topic, commit=100) as consumer:
            async for message in consumer:
                if message.offset == 3:
                    raise RuntimeError

    with pytest.raises(RuntimeError):
        await work()
    assert await stored(client, topic) == 2


async def test_commits_after_so_many_messages(server, client, topic):
    fill(server, topic)
    async with single(client, topic, commit=3) as consumer:
        seen = []
        for _ in range(8):
            await take(consumer, 1)
            seen.append(await stored(client, topic))
    assert seen == [None, None, None, 2, 2, 2, 5, 5]
    assert await stored(client, topic) == 7


async def test_commits_after_a_time_even_when_nothing_comes(server, client, topic):
    fill(server, topic, count=3)
    async with single(client, topic, commit=timedelta(seconds=0.1), poll_interval_s=0.01) as consumer:
        await take(consumer, 3)
        assert await stored(client, topic) is None
        waiting = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0.2)
        assert await stored(client, topic) == 2
        fill(server, topic, count=1)
        assert (await waiting).offset == 3


async def test_manual_commits_are_the_only_ones(server, client, topic):
    fill(server, topic)
    async with single(client, topic, commit="manual") as consumer:
        messages = await take(consumer, 5)
        assert await stored(client, topic) is None
        await consumer.commit(messages[2])
        assert await stored(client, topic) == 2
        await consumer.commit(messages[1])
        assert await stored(client, topic) == 2
        await consumer.commit()
        assert await stored(client, topic) == 4
        await take(consumer, 2)
    assert await stored(client, topic) == 4


@pytest.mark.parametrize("prefetch", [True, False])
async def test_iteration_ends_after_stop(server, client, topic, prefetch):
    fill(server, topic)
    seen = []
    async with single(client, topic, prefetch=prefetch) as consumer:
        async for message in consumer:
            seen.append(message.offset)
            if message.offset == 6:
                consumer.stop()
        assert await stored(client, topic) == 6
    assert seen == list(range(7))


@pytest.mark.parametrize(
    ("start", "first"),
    [(PollingStrategy.First(), 0), (PollingStrategy.Offset(7), 7), (PollingStrategy.Last(), 6)],
)
async def test_starts_where_it_is_told_if_nothing_is_stored(server, client, topic, start, first):
    fill(server, topic)
    async with single(client, topic, start=start) as consumer:
        assert offsets(await take(consumer, 2)) == [first, first + 1]


async def test_the_last_of_nothing_is_everything_new(server, client, topic):
    async with single(client, topic, start=PollingStrategy.Last(), poll_interval_s=0.01) as consumer:
        waiting = asyncio.create_task(take(consumer, 9))
        await asyncio.sleep(0.05)
        fill(server, topic)
        assert offsets(await waiting) == list(range(9))


@pytest.fixture
async def gap(server, client, topic):
    """Messages 0..2 are consumed, then the first segment expires; returns where the log starts now."""
    for _ in range(30):
        server.ask(send_request("s", topic, [b"x" * 100_000], 0))
    async with single(client, topic) as consumer:
        await take(consumer, 3)
    log = server.broker.catalog.topic("s", topic).partitions[0].log
    server.call(lambda: server.broker.remove_segments(log.drop_oldest(1)))  # as retention does
    (first,) = await client.poll_messages("s", topic, 0, PollingStrategy.First(), 1, auto_commit=False)
    assert first.offset > 3
    return first.offset


async def test_a_gap_is_raised_once_and_not_jumped_over(client, topic, gap):
    async with single(client, topic) as consumer:
        with pytest.raises(OffsetGap) as raised:
            await take(consumer, 1)
        assert (raised.value.partition_id, raised.value.expected_offset, raised.value.offset) == (0, 3, gap)
        assert offsets(await take(consumer, 2)) == [gap, gap + 1]


async def test_a_gap_can_be_skipped_with_a_callback(client, topic, gap):
    told = []
    async with single(client, topic, on_gap=told.append) as consumer:
        assert offsets(await take(consumer, 1)) == [gap]
    assert [(found.expected_offset, found.offset) for found in told] == [(3, gap)]


async def test_a_consumer_has_a_group_or_a_partition(client):
    for how in (
        {},
        {"group": "g", "consumer": "c", "partition_id": 0},
        {"consumer": "c"},
        {"group": "g", "partition_id": 1},
    ):
        with pytest.raises(ValueError, match="group"):
            AsyncConsumer(client, "s", "t", **how)


# Groups


def member(client, topic, **how):
    return AsyncConsumer(
        client, "s", topic, **{"group": "g", "batch_count": 4, "poll_interval_s": 0.01, **how}
    )


GROUP = Consumer.group("g")


async def test_a_group_is_made_joined_and_left(server, client, topic):
    fill(server, topic, 0)
    fill(server, topic, 1)
    async with member(client, topic) as consumer:
        messages = await take(consumer, 20)
        assert consumer.partitions == (0, 1)
        with pytest.raises(RuntimeError, match="already"):
            await member(client, topic).__aenter__()
    for partition_id in (0, 1):
        mine = [message.offset for message in messages if message.partition_id == partition_id]
        assert mine == list(range(10))
        assert await stored(client, topic, partition_id, GROUP) == 9
    assert (await client.get_consumer_group("s", topic, "g")).members_count == 0


async def test_a_partition_is_handed_over_when_what_was_polled_is_done(
    server, client, second, topic, monkeypatch
):
    """The first member finishes what it has of the partition it loses; the second goes on after that."""
    monkeypatch.setattr(ownership, "_PROOF_S", 0.0)
    fill(server, topic, 0, 40)
    fill(server, topic, 1, 40)
    seen = []

    async def work(consumer):
        async for message in consumer:
            seen.append((message.partition_id, message.offset))
            await asyncio.sleep(0.001)
            if len(seen) == 80:
                first.stop()
                other.stop()

    first, other = member(client, topic), member(second, topic, batch_count=8)
    async with asyncio.timeout(WITHIN_S), first:
        while len(seen) < 10:
            message = await anext(first)
            seen.append((message.partition_id, message.offset))
        async with other:
            await asyncio.gather(work(first), work(other))
            assert len(first.partitions) == len(other.partitions) == 1
    assert sorted(seen) == [(partition_id, offset) for partition_id in (0, 1) for offset in range(40)]


async def test_commits_in_larger_steps_hand_over_without_duplicates_too(
    server, client, second, topic, monkeypatch
):
    monkeypatch.setattr(ownership, "_PROOF_S", 0.0)
    fill(server, topic, 0, 30)
    fill(server, topic, 1, 30)
    seen = []
    first, other = member(client, topic, commit=1000), member(second, topic, commit=1000)
    async with asyncio.timeout(WITHIN_S), first:
        for _ in range(5):
            message = await anext(first)
            seen.append((message.partition_id, message.offset))

        async def work(consumer):
            async for message in consumer:
                seen.append((message.partition_id, message.offset))
                await asyncio.sleep(0.001)
                if len(seen) == 60:
                    first.stop()
                    other.stop()

        async with other:
            await asyncio.gather(work(first), work(other))
    assert sorted(seen) == [(partition_id, offset) for partition_id in (0, 1) for offset in range(30)]


@pytest.mark.parametrize("prefetch", [True, False])
async def test_what_another_member_committed_is_not_delivered(server, client, second, topic, prefetch):
    """The connection ends; another member takes over and finishes; the first comes back with a buffer."""
    fill(server, topic, 0, 4)
    async with member(client, topic, batch_count=10, prefetch=prefetch) as first:
        assert offsets(await take(first, 1)) == [0]
        client._recovery.link.abandon()
        async with member(second, topic) as other:
            assert offsets(await take(other, 4)) == [0, 1, 2, 3]
        fill(server, topic, 0, 2)
        assert offsets(await take(first, 2)) == [4, 5]
        assert await stored(client, topic, 0, GROUP) == 4


async def test_goes_on_after_a_reconnect_without_repeating(server, client, topic):
    fill(server, topic, 0, 10)
    async with member(client, topic) as consumer:
        seen = []
        for _ in range(10):
            seen += offsets(await take(consumer, 1))
            client._recovery.link.abandon()
    assert seen == list(range(10))
    assert await stored(client, topic, 0, GROUP) == 9


async def test_a_member_that_was_removed_joins_again(server, client, topic):
    fill(server, topic, 0, 6)
    async with member(client, topic) as consumer:
        await take(consumer, 2)
        await consumer.commit()
        await client.leave_consumer_group("s", topic, "g")
        assert offsets(await take(consumer, 4)) == [2, 3, 4, 5]


async def test_a_group_that_is_gone_is_an_error(server, client, topic):
    async with member(client, topic) as consumer:
        fill(server, topic, 0, 1)
        await take(consumer, 1)
        await consumer.commit()
        await client.delete_consumer_group("s", topic, "g")
        with pytest.raises(NotFound):
            await take(consumer, 1)


# Handlers


async def letters(client, topic):
    found = await client.poll_messages("s", topic, 0, PollingStrategy.First(), auto_commit=False)
    return [DeadLetter.of(message) for message in found]


async def test_a_message_that_always_fails_goes_to_the_dead_letters(server, client, topic, caplog):
    await client.send_messages(
        "s",
        topic,
        0,
        [SendMessage(f"m{number}", id=100 + number, headers={"number": number}) for number in range(5)],
    )
    attempts, committed = [], []
    async with single(client, topic) as consumer:

        async def handle(message):
            attempts.append(message.offset)
            committed.append(await stored(client, topic))
            if message.offset == 2:
                raise ValueError("cannot parse " + "é" * 300)
            if message.offset == 4:
                consumer.stop()

        with caplog.at_level(logging.WARNING, "borzoi.client"):
            await consumer.run(handle, retry=QUICK, dead_letter_topic=f"{topic}-dlq")
    assert attempts == [0, 1, 2, 2, 2, 3, 4]
    assert committed == [None, 0, 1, 1, 1, 2, 3]
    assert await stored(client, topic) == 4
    assert "after 3 attempts" in caplog.text
    (letter,) = await letters(client, f"{topic}-dlq")
    assert (letter.payload, letter.id, letter.headers) == (b"m2", 102, {"number": 2})
    assert letter.cause.startswith("cannot parse éé")
    assert letter.error == "ValueError"
    assert (letter.stream, letter.topic, letter.partition_id, letter.offset) == ("s", topic, 0, 2)
    assert letter.attempts == 3
    (original,) = await client.poll_messages("s", topic, 0, PollingStrategy.Offset(2), 1, auto_commit=False)
    assert letter.timestamp == original.timestamp
    assert DeadLetter.of(original) is None


async def test_a_handler_that_recovers_makes_no_dead_letter(server, client, topic):
    fill(server, topic, 0, 3)
    failures = iter([True, True, False])
    async with single(client, topic) as consumer:

        async def handle(message):
            if message.offset == 1 and next(failures):
                raise OSError
            if message.offset == 2:
                consumer.stop()

        await consumer.run(handle, retry=QUICK, dead_letter_topic=f"{topic}-dlq")
    assert await letters(client, f"{topic}-dlq") == []
    assert await stored(client, topic) == 2


async def test_without_a_dead_letter_topic_the_error_is_raised_and_nothing_passed(server, client, topic):
    fill(server, topic, 0, 3)
    seen = []

    async def handle(message):
        seen.append(message.offset)
        if message.offset == 1:
            raise OSError("the database is down")

    async with single(client, topic) as consumer:
        for _ in range(2):
            with pytest.raises(OSError, match="database"):
                await consumer.run(handle, retry=RetryPolicy(attempts=1))
            assert await stored(client, topic) == 0
    assert seen == [0, 1, 1]
    assert await stored(client, topic) == 0


async def test_stop_ends_the_waiting_between_two_attempts(server, client, topic):
    fill(server, topic, 0, 3)
    async with single(client, topic) as consumer:

        async def handle(_message):
            asyncio.get_running_loop().call_later(0.02, consumer.stop)
            raise OSError

        async with asyncio.timeout(WITHIN_S):
            await consumer.run(handle, retry=RetryPolicy(attempts=2, backoff_s=60))
    assert await stored(client, topic) is None


# Examples


async def run_example(name, server, capsys):
    main = runpy.run_path(str(REPOSITORY / "examples" / name))["main"]
    async with asyncio.timeout(WITHIN_S):
        await main(f"iggy://iggy:iggy@{HOST}:{server.port}")
    return capsys.readouterr().out.splitlines()


async def test_the_groups_example_shares_the_work(server, capsys):
    for _ in range(2):
        shown = await run_example("groups.py", server, capsys)
        assert shown[0] == "everything is stored"
        assert sorted(line.split()[-1] for line in shown[1:]) == sorted(map(str, range(100)))
        assert {line.split()[0] for line in shown[1:]} == {"Anna", "Ben"}


async def test_the_dead_letters_example_puts_one_message_aside(server, capsys):
    for offset in (2, 6):
        shown = await run_example("dead_letters.py", server, capsys)
        assert shown[0] == "booked 60"
        assert "after 3 attempts: b'a lot', invalid literal" in shown[1]
        assert shown[2] == f"it was payments, partition 0, offset {offset}"
