"""The blocking producer and consumer: the asynchronous ones' promises, without an event loop of one's own."""

import asyncio
import inspect
import threading

import pytest

from borzoi import AsyncConsumer, AsyncProducer, Cipher, Consumer, Producer, UnencodableValue, codecs
from borzoi.client.background import Background
from borzoi.model.errors import ClientShutdown
from support.blocking import (  # noqa: F401
    WITHIN_S,
    _client,
    _no_threads_are_left,
    _server,
    _topic,
    ctrl_c_when,
    payloads,
    single,
    stored,
)


@pytest.mark.parametrize(("twin", "original"), [(Producer, AsyncProducer), (Consumer, AsyncConsumer)])
def test_twins_have_the_same_names_and_arguments(twin, original):
    def public(kind):
        return {
            name: member
            for name, member in vars(kind).items()
            if not name.startswith("_") and name not in ("single", "group")
        }

    assert set(public(twin)) == set(public(original))
    pairs = [(twin.__init__, original.__init__)]
    pairs += [(public(twin)[name], found) for name, found in public(original).items() if callable(found)]
    for mine, theirs in pairs:
        ours, others = inspect.signature(mine).parameters, inspect.signature(theirs).parameters
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in others.values()
        ]


def test_values_ids_headers_and_encryption(client, topic):
    cipher = Cipher(bytes(32))
    with Producer(
        client, "s", topic, codec=codecs.Json(list[int]), cipher=cipher, partitioning=0
    ) as producer:
        producer.send([1], id=7, headers={"kind": "list"})
        confirmation = producer.send_and_wait([2])
        assert confirmation.partition_id == 0
        with pytest.raises(UnencodableValue):
            producer.send("no list")
        assert producer.buffered == ()
    assert [cipher.decrypt(payload) for payload in payloads(client, topic)] == [b"[1]", b"[2]"]
    first = stored(client, topic)[0]
    assert (first.id, first.headers) == (7, {"kind": "list"})
    with single(client, topic, codec=codecs.Json(list[int]), cipher=cipher) as consumer:
        assert [next(consumer).value, next(consumer).value] == [[1], [2]]


async def test_a_running_event_loop_in_the_callers_thread_does_not_matter(client, topic):
    assert asyncio.get_running_loop().is_running()
    with Producer(client, "s", topic, partitioning=0) as producer:
        producer.send("one")
        producer.flush()
        assert payloads(client, topic) == [b"one"]
    with single(client, topic) as consumer:
        assert next(consumer).payload == b"one"


# The thread behind them


def test_a_result_that_nobody_got_is_undone():
    background = Background("producer")
    is_waiting, undone = threading.Event(), threading.Event()

    async def stubborn():
        is_waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7

    try:
        with ctrl_c_when(is_waiting.is_set), pytest.raises(KeyboardInterrupt):
            background.wait(stubborn(), undo=undone.set)
        assert undone.wait(WITHIN_S)
    finally:
        background.stop()


def test_whoever_waits_is_told_when_the_thread_is_stopped():
    background = Background("producer")
    is_waiting = threading.Event()

    async def endless():
        is_waiting.set()
        await asyncio.Event().wait()

    job = background.submit(endless())
    assert is_waiting.wait(WITHIN_S)
    background.stop()
    with pytest.raises(ClientShutdown):
        job.outcome()
    with pytest.raises(ClientShutdown):
        background.wait(endless())
    background.stop()


def test_a_callback_that_would_wait_for_itself_is_refused():
    background = Background("consumer")

    async def nested():
        background.wait(asyncio.sleep(0))

    try:
        with pytest.raises(RuntimeError, match="callback"):
            background.wait(nested())
    finally:
        background.stop()
