"""The producer: when it sends, what it holds back, what it says about messages that were not stored."""

import asyncio
import time
from collections import Counter

import pytest

from borzoi import (
    AsyncClient,
    AsyncProducer,
    Partitioning,
    PollingStrategy,
    RetryPolicy,
    SendFailed,
    SendMessage,
)
from borzoi.model import requests as rq
from borzoi.model.errors import (
    CannotEstablishConnection,
    ClientShutdown,
    Disconnected,
    EmptyMessagePayload,
    NotFound,
)
from borzoi.model.replies import Confirmation
from borzoi.wire.commands import Code
from support.client_kinds import HOST, Close, ScriptedServer, answer, code_of
from support.in_process import LocalServer

LOGIN = {"username": "iggy", "password": "iggy"}
STORED = (Confirmation(0, 0, 0, 0),)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"system.message_deduplication.enabled": "true"}
    with LocalServer(tmp_path_factory.mktemp("producer") / "data", settings) as running:
        running.ask(rq.CreateStream("s"))
        yield running


@pytest.fixture
async def client(server):
    async with AsyncClient(HOST, server.port, **LOGIN) as connected:
        yield connected


@pytest.fixture
def topic(server, request):
    server.ask(rq.CreateTopic("s", 3, request.node.name))
    return request.node.name


class Recorder:
    """A client that only sends; `gate` holds answers back, `outcomes` are raised or returned in turn."""

    def __init__(self, *outcomes):
        self.calls = []
        self.outcomes = list(outcomes)
        self.gate = asyncio.Event()
        self.gate.set()

    async def send_messages(self, stream, topic, partitioning, messages, *, deadline_s):
        self.calls.append((partitioning, messages))
        await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else STORED
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def payloads(self):
        return [[message.payload for message in messages] for _, messages in self.calls]


def producer(recorder, **how):
    return AsyncProducer(recorder, "s", "t", **{"linger_s": 60.0, **how})


async def test_a_batch_goes_when_it_has_enough_messages():
    recorder = Recorder()
    async with producer(recorder, batch_messages=3) as sender:
        for number in range(7):
            await sender.send(str(number))
        await asyncio.sleep(0.01)
        assert recorder.payloads == [["0", "1", "2"], ["3", "4", "5"]]
    assert recorder.payloads[2:] == [["6"]]


async def test_a_batch_goes_when_it_has_enough_bytes():
    recorder = Recorder()
    async with producer(recorder, batch_bytes=300) as sender:
        for _ in range(3):
            await sender.send(b"x" * 100)
        await asyncio.sleep(0.01)
        assert list(map(len, recorder.payloads)) == [2]
        await sender.send(b"x" * 1000)  # larger than a batch: goes alone
    assert list(map(len, recorder.payloads)) == [2, 1, 1]


async def test_a_batch_goes_when_its_first_message_has_waited_long_enough():
    recorder = Recorder()
    async with producer(recorder, linger_s=0.05) as sender:
        started_s = time.monotonic()
        await sender.send("one")
        await sender.send("two")
        await asyncio.sleep(0.02)
        assert recorder.calls == []
        await sender.send_and_wait("three")
        assert 0.04 < time.monotonic() - started_s < 1
    assert recorder.payloads == [["one", "two", "three"]]


async def test_send_waits_while_the_buffer_is_full_and_keeps_the_order():
    recorder = Recorder()
    recorder.gate.clear()
    async with producer(recorder, batch_messages=1, buffer_bytes=300) as sender:
        await sender.send(b"a" * 100)
        await sender.send(b"b" * 100)
        waiting = [asyncio.create_task(sender.send(letter * 100)) for letter in (b"c", b"d")]
        await asyncio.sleep(0.02)
        assert not any(task.done() for task in waiting)
        assert len(sender.buffered) == 2
        recorder.gate.set()
        await asyncio.gather(*waiting)
    assert [payload[:1] for (payload,) in recorder.payloads] == [b"a", b"b", b"c", b"d"]


async def test_each_partitioning_has_its_batch_and_its_order():
    recorder = Recorder()
    async with producer(recorder, partitioning=0) as sender:
        for number in range(6):
            await sender.send(str(number), partitioning=Partitioning.key("k") if number % 2 else None)
    assert [(how, [m.payload for m in messages]) for how, messages in recorder.calls] == [
        (Partitioning.partition_id(0), ["0", "2", "4"]),
        (Partitioning.key("k"), ["1", "3", "5"]),
    ]


async def test_what_was_not_sent_is_in_the_error_and_the_producer_goes_on():
    recorder = Recorder(NotFound("gone"))
    async with producer(recorder, batch_messages=2) as sender:
        for number in range(5):
            await sender.send(str(number))
        with pytest.raises(SendFailed, match="gone") as failed:
            await sender.flush()
        assert [message.payload for message in failed.value.unsent] == list("01234")
        assert failed.value.unknown == ()
        assert isinstance(failed.value.__cause__, NotFound)
        await sender.flush()
        for message in failed.value.unsent:
            await sender.send(message)
    assert [payload for batch in recorder.payloads[1:] for payload in batch] == list("01234")


async def test_a_failure_stays_with_its_partitioning():
    recorder = Recorder(NotFound("no partition 9"))
    async with producer(recorder, batch_messages=2) as sender:
        await sender.send("a", partitioning=9)
        await sender.send("b", partitioning=1)
        await sender.send("c", partitioning=9)
        await sender.send("d", partitioning=1)
        with pytest.raises(SendFailed) as failed:
            await sender.flush()
    assert [message.payload for message in failed.value.unsent] == ["a", "c"]
    assert recorder.payloads == [["a"], ["b"], ["d"]]


async def test_an_unknown_outcome_is_reported_and_not_repeated():
    recorder = Recorder(Disconnected("lost"))
    sender = producer(recorder, batch_messages=2)
    for number in range(3):
        await sender.send(str(number))
    with pytest.raises(SendFailed) as failed:
        await sender.close()
    assert [message.payload for message in failed.value.unknown] == ["0", "1"]
    assert [message.payload for message in failed.value.unsent] == ["2"]
    assert len(recorder.calls) == 1


async def test_the_next_send_reports_what_nobody_waited_for():
    recorder = Recorder(Disconnected("lost"))
    async with producer(recorder, batch_messages=1) as sender:
        await sender.send("first")
        await asyncio.sleep(0.01)
        with pytest.raises(SendFailed):
            await sender.send("second")
        await sender.send("second")
    assert recorder.payloads == [["first"], ["second"]]


async def test_whoever_waits_for_a_message_gets_its_failure():
    recorder = Recorder(Disconnected("lost"))
    async with producer(recorder, linger_s=0) as sender:
        with pytest.raises(SendFailed) as failed:
            await sender.send_and_wait("mine")
        assert [message.payload for message in failed.value.unknown] == ["mine"]
        assert await sender.send_and_wait("next") == STORED[0]


async def test_an_unknown_outcome_is_repeated_with_the_same_ids_when_asked_for():
    recorder = Recorder(Disconnected("lost"), CannotEstablishConnection("down"), ())
    async with producer(recorder, retry_unknown=True) as sender:
        await sender.send("one")
        await sender.send(SendMessage("two", id=7))
    first, *others = [messages for _, messages in recorder.calls]
    assert others == [first, first]
    assert first[0].id not in (None, 0)
    assert first[1].id == 7
    # A server knows duplicates by partition, so a balanced batch must not move on.
    assert len({where for where, _ in recorder.calls}) == 1
    assert recorder.calls[0][0] != Partitioning.balanced()


async def test_a_message_is_reported_when_its_deadline_passes():
    recorder = Recorder(*[CannotEstablishConnection("down")] * 100)
    started_s = time.monotonic()
    with pytest.raises(SendFailed) as failed:
        async with producer(recorder, deadline_s=0.3) as sender:
            await sender.send("late")
    assert 0.1 < time.monotonic() - started_s < 1
    assert [message.payload for message in failed.value.unsent] == ["late"]
    assert len(recorder.calls) > 1


async def test_cancelling_does_not_wait_and_leaves_what_was_buffered():
    recorder = Recorder()
    recorder.gate.clear()
    sender = producer(recorder, batch_messages=1)

    async def work():
        async with sender:
            await sender.send("on its way")
            await sender.send("behind")
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [message.payload for message in sender.buffered] == ["on its way", "behind"]


async def test_cancelling_wakes_everybody_who_waits_for_the_producer():
    recorder = Recorder()
    recorder.gate.clear()
    sender = producer(recorder, batch_messages=1, buffer_bytes=300)

    async def work():
        async with sender:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    calls = [sender.send_and_wait(b"a" * 100), sender.send_and_wait(b"b" * 100), sender.send(b"c" * 100)]
    waiting = [asyncio.create_task(call) for call in (*calls, sender.flush())]
    await asyncio.sleep(0.02)
    task.cancel()
    async with asyncio.timeout(5):
        sent, buffered, blocked, flush = await asyncio.gather(*waiting, return_exceptions=True)
    assert [message.payload[:1] for message in sent.unknown] == [b"a"]
    assert [message.payload[:1] for message in buffered.unsent] == [b"b"]
    assert isinstance(blocked, ClientShutdown)
    assert (len(flush.unknown), len(flush.unsent)) == (1, 1)
    await asyncio.gather(task, return_exceptions=True)


async def test_what_cannot_be_sent_is_refused_at_once_and_nothing_after_the_end():
    recorder = Recorder()
    async with producer(recorder) as sender:
        with pytest.raises(EmptyMessagePayload):
            await sender.send("")
    with pytest.raises(ClientShutdown):
        await sender.send("late")
    assert recorder.calls == []


async def test_flush_returns_although_others_go_on_sending():
    recorder = Recorder()
    async with producer(recorder, batch_messages=1) as sender:

        async def go_on():
            while True:
                await sender.send("more")
                await asyncio.sleep(0)

        other = asyncio.create_task(go_on())
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await sender.flush()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


def test_pauses_grow_to_the_longest_and_end_with_the_attempts():
    policy = RetryPolicy(attempts=5, backoff_s=1, factor=3, longest_backoff_s=5, jitter=0)
    assert [policy.pause_s(failures) for failures in range(1, 6)] == [1, 3, 5, 5, None]
    with pytest.raises(ValueError, match="attempts"):
        RetryPolicy(attempts=0)


async def test_order_is_kept_per_partition(client, topic):
    async with AsyncProducer(client, "s", topic, batch_messages=7) as sender:
        for number in range(300):
            await sender.send(f"{number % 5}:{number}", partitioning=Partitioning.key(f"key {number % 5}"))
    seen = Counter()
    for partition_id in range(3):
        last = {}
        for message in await client.poll_messages("s", topic, partition_id, PollingStrategy.First()):
            key, number = message.payload.split(b":")
            assert int(number) > last.get(key, -1)
            last[key] = int(number)
            seen[key] += 1
    assert set(seen.values()) == {60}


async def test_a_lost_answer_makes_no_duplicate_on_a_server_that_drops_them(server, topic):
    """The connection is cut after the server has stored the batch and before it can say so."""
    async with AsyncClient(HOST, server.port, **LOGIN) as real:

        class Cut:
            is_first = True

            async def send_messages(self, *args, **kwargs):
                stored = await real.send_messages(*args, **kwargs)
                if self.is_first:
                    self.is_first = False
                    raise Disconnected("cut")
                return stored

        async with AsyncProducer(Cut(), "s", topic, retry_unknown=True) as sender:
            for number in range(10):
                await sender.send(str(number))
        stored = []
        for partition_id in range(3):
            stored += await real.poll_messages("s", topic, partition_id, PollingStrategy.First())
    assert [message.payload for message in stored] == [str(number).encode() for number in range(10)]


async def test_a_server_that_hangs_up_leaves_the_outcome_unknown():
    def script(header, _):
        if code_of(header) is Code.SEND_MESSAGES:
            raise Close
        return answer(header)

    with ScriptedServer(script) as server:
        async with AsyncClient(HOST, server.port, **LOGIN) as client:
            with pytest.raises(SendFailed) as failed:
                async with AsyncProducer(client, "s", "t") as sender:
                    await sender.send("one")
    assert [message.payload for message in failed.value.unknown] == ["one"]
