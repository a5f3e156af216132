"""Codecs: what goes over the wire, what comes back, and what becomes of what they cannot read or write."""

import asyncio
import datetime as dt
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from borzoi import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeadLetter,
    Message,
    Partitioning,
    PollingStrategy,
    ReceivedMessage,
    RetryPolicy,
    SendFailed,
    SendMessage,
    UndecodablePayload,
    UnencodableValue,
    codecs,
)
from borzoi.client.payloads import read
from borzoi.model.errors import EmptyMessagePayload, NotFound
from borzoi.testing import Server
from support.received import received

WITHIN_S = 10


@dataclass
class Order:
    number: int
    at: dt.datetime
    lines: list[str]


class Row(msgspec.Struct):
    number: int


class Fields(TypedDict):
    number: int


class Strict(pydantic.BaseModel, strict=True):
    number: int
    at: dt.datetime


@pydantic.dataclasses.dataclass
class Checked:
    number: int


NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
VALUES = [
    (Order, Order(7, NOON, ["a"])),
    (list[Order], [Order(7, NOON, [])]),
    (Row, Row(7)),
    (Fields, {"number": 7}),
    (Strict, Strict(number=7, at=NOON)),
    (list[Strict], [Strict(number=7, at=NOON)]),
    (Checked, Checked(7)),
    (dict[str, int], {"a": 1}),
    (float, 3),
    (int, 3),
]


@pytest.mark.parametrize("form", [codecs.Json, codecs.MsgPack])
@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda value: getattr(value, "__name__", None))
def test_a_value_comes_back_as_it_was(form, kind, value):
    codec = form(kind)
    assert codec.decode(codec.encode(value)) == value


@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists) | st.dictionaries(st.text(), st.text()))
def test_without_a_type_everything_is_taken_that_the_form_can_say(value):
    for codec in (codecs.Json(), codecs.MsgPack()):
        assert codec.decode(codec.encode(value)) == value


def test_json_is_plain_json():
    order = Order(7, NOON, ["a"])
    assert json.loads(codecs.Json(Order).encode(order)) == {
        "number": 7,
        "at": "2026-01-02T12:00:00Z",
        "lines": ["a"],
    }


@given(st.binary())
def test_bytes_are_left_alone(data):
    assert codecs.BYTES.decode(codecs.BYTES.encode(data)) == data


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_utf_8(text):
    assert codecs.TEXT.encode(text) == text.encode()
    assert codecs.TEXT.decode(text.encode()) == text


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codecs.BYTES, "text"),
        (codecs.TEXT, b"bytes"),
        (codecs.Json(Order), {"number": 7}),
        (codecs.Json(Fields), Order(7, NOON, [])),
        (codecs.Json(list[Row]), Row(7)),
        (codecs.Json(Strict), Row(7)),
        (codecs.MsgPack(Row), Order(7, NOON, [])),
        (codecs.MsgPack(Strict), 7),
        (codecs.Json(), object()),
    ],
)
def test_a_value_of_another_type_is_not_encoded(codec, value):
    with pytest.raises(TypeError):
        codec.encode(value)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (codecs.TEXT, b"\xff"),
        (codecs.Json(Order), b"{"),
        (codecs.Json(Row), b'{"number": "7"}'),
        (codecs.Json(Strict), b'{"number": "7"}'),
        (codecs.MsgPack(Row), b"\xc1"),
        (codecs.MsgPack(Strict), b"\x01"),
    ],
)
def test_a_payload_of_another_form_is_not_decoded(codec, data):
    stored = received(data, 5, partition_id=2)
    with pytest.raises(UndecodablePayload, match="partition 2, offset 5: ") as refused:
        read(stored, codec, None)
    assert (refused.value.partition_id, refused.value.offset) == (2, 5)
    assert refused.value.message is stored
    assert isinstance(refused.value.__cause__, ValueError)


def test_pydantic_is_not_imported_for_other_classes():
    code = (
        "import sys, dataclasses, borzoi\n"
        "@dataclasses.dataclass\n"
        "class A:\n    n: int\n"
        "borzoi.codecs.MsgPack(A); borzoi.codecs.Json(list[A]).encode([A(1)])\n"
        "assert 'pydantic' not in sys.modules\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_message_has_everything_that_a_received_one_has():
    stored = received(b"7")
    message = read(stored, codecs.Json(int), None)
    assert isinstance(message, ReceivedMessage)
    assert msgspec.structs.asdict(message) == {**msgspec.structs.asdict(stored), "value": 7}
    assert (message.id, message.checksum, message.headers) == (stored.id, stored.checksum, {})
    with pytest.raises(AttributeError):
        message.value = 8
    assert read(stored, None, None).value == b"7"


# Producers and consumers


@pytest.fixture(scope="module")
def server():
    with Server(memory=True) as running:
        with running.client() as client:
            client.create_stream("s")
        yield running


@pytest.fixture
async def client(server):
    async with server.async_client() as connected:
        yield connected


@pytest.fixture
async def topic(client, request):
    await client.create_topic("s", request.node.name, 1)
    return request.node.name


def consumer_of(client, topic, **how):
    return AsyncConsumer(client, "s", topic, **{"consumer": "c", "partition_id": 0, **how})


async def stored_offset(client, topic):
    found = await client.get_consumer_offset("s", topic, 0, consumer=Consumer.single("c"))
    return None if found is None else found.stored_offset


async def test_values_are_sent_and_received(client, topic):
    orders = [Order(number, NOON, ["x"]) for number in range(5)]
    async with AsyncProducer(client, "s", topic, codec=codecs.Json(Order), partitioning=0) as producer:
        for order in orders:
            await producer.send(order)
    async with (
        asyncio.timeout(WITHIN_S),
        consumer_of(client, topic, codec=codecs.Json(Order)) as consumer,
    ):
        messages = [await anext(consumer) for _ in orders]
    assert [message.value for message in messages] == orders
    assert [message.offset for message in messages] == list(range(5))
    assert all(isinstance(message, Message) for message in messages)


async def test_a_value_can_have_an_id_headers_and_a_partitioning(client, topic):
    async with AsyncProducer(client, "s", topic, codec=codecs.Json(Row)) as producer:
        key = Partitioning.key("k")
        await producer.send(Row(1), id=7, headers={"kind": "row"}, partitioning=key)
        await producer.send_and_wait(Row(2), id=8, headers={"kind": "other"})
        await producer.send(SendMessage(b'{"number":3}', id=9))  # made elsewhere
        with pytest.raises(ValueError, match="own"):
            await producer.send(SendMessage(b"{}", id=9), id=10)
    found = await client.poll_messages("s", topic, 0, PollingStrategy.First())
    assert [message.id for message in found] == [7, 8, 9]
    assert [message.headers for message in found] == [{"kind": "row"}, {"kind": "other"}, {}]
    assert [message.payload for message in found] == [b'{"number":%d}' % number for number in (1, 2, 3)]


async def test_what_cannot_be_encoded_is_refused_and_not_buffered(client, topic):
    class Numbers:
        def encode(self, value, /):
            return {0: b"", 1: "text"}[value]

        def decode(self, data, /):
            return 0

    async with AsyncProducer(client, "s", topic, codec=codecs.Json(Row)) as producer:
        with pytest.raises(UnencodableValue, match="Row is expected, not int") as refused:
            await producer.send(7)
        assert isinstance(refused.value.__cause__, TypeError)
        with pytest.raises(UnencodableValue):
            await producer.send_and_wait("seven")
        assert producer.buffered == ()
        await producer.send(Row(7))
    async with AsyncProducer(client, "s", topic, codec=Numbers()) as other:
        with pytest.raises(EmptyMessagePayload):
            await other.send(0)
        with pytest.raises(UnencodableValue, match="made str"):
            await other.send(1)
        with pytest.raises(UnencodableValue, match="2"):
            await other.send(2)
    assert len(await client.poll_messages("s", topic, 0, PollingStrategy.First())) == 1


async def test_what_a_failure_carries_can_be_sent_again_past_the_codec(client, topic):
    codec = codecs.Json(Row)
    with pytest.raises(SendFailed) as failed:
        async with AsyncProducer(client, "s", topic, codec=codec, partitioning=9) as producer:
            await producer.send(Row(7))
    assert isinstance(failed.value.__cause__, NotFound)
    async with AsyncProducer(client, "s", topic, codec=codec) as producer:
        for message in failed.value.unsent:
            await producer.send(message)
    (found,) = await client.poll_messages("s", topic, 0, PollingStrategy.First())
    assert codec.decode(found.payload) == Row(7)


async def fill(client, topic, payloads):
    await client.send_messages("s", topic, 0, payloads)


async def test_what_cannot_be_decoded_is_raised_once_and_passed_when_the_next_is_asked_for(client, topic):
    await fill(client, topic, ["1", "two", "3"])
    async with asyncio.timeout(WITHIN_S), consumer_of(client, topic, codec=codecs.Json(int)) as consumer:
        assert (await anext(consumer)).value == 1
        with pytest.raises(UndecodablePayload) as refused:
            await anext(consumer)
        assert (refused.value.partition_id, refused.value.offset) == (0, 1)
        assert refused.value.message.payload == b"two"
        assert await stored_offset(client, topic) == 0
        assert (await anext(consumer)).value == 3
        assert await stored_offset(client, topic) == 1
    assert await stored_offset(client, topic) == 2


async def test_what_cannot_be_decoded_is_not_committed_if_the_block_ends_with_it(client, topic):
    await fill(client, topic, ["1", "two", "3"])

    async def work():
        async with consumer_of(client, topic, codec=codecs.Json(int), commit=100) as consumer:
            async for _ in consumer:
                pass

    for _ in range(2):
        with pytest.raises(UndecodablePayload):
            await asyncio.wait_for(work(), WITHIN_S)
        assert await stored_offset(client, topic) == 0


async def test_a_payload_that_cannot_be_decoded_goes_to_the_dead_letters_without_retries(client, topic):
    await fill(client, topic, ["1", SendMessage("two", id=2, headers={"a": "b"}), "3", "4"])
    attempts, committed = [], []
    async with consumer_of(client, topic, codec=codecs.Json(int)) as consumer:

        async def handle(message: Message[int]) -> None:
            attempts.append(message.value)
            committed.append(await stored_offset(client, topic))
            if message.value == 3:
                raise OSError("no")
            if message.value == 4:
                consumer.stop()

        async with asyncio.timeout(WITHIN_S):
            await consumer.run(
                handle,
                retry=RetryPolicy(attempts=2, backoff_s=0.001, jitter=0),
                dead_letter_topic=f"{topic}-dlq",
            )
    assert attempts == [1, 3, 3, 4]
    assert committed == [None, 1, 1, 2]
    assert await stored_offset(client, topic) == 3
    found = await client.poll_messages("s", f"{topic}-dlq", 0, PollingStrategy.First())
    undecodable, failed = [DeadLetter.of(message) for message in found]
    assert (undecodable.payload, undecodable.id, undecodable.headers) == (b"two", 2, {"a": "b"})
    assert (undecodable.error, undecodable.attempts, undecodable.offset) == ("UndecodablePayload", 0, 1)
    assert "truncated" in undecodable.cause
    assert (failed.payload, failed.error, failed.cause, failed.attempts) == (b"3", "OSError", "no", 2)


async def test_without_dead_letters_an_undecodable_payload_ends_run_and_is_the_first_of_the_next(
    client, topic
):
    await fill(client, topic, ["1", "two"])
    seen = []

    async def handle(message):
        seen.append(message.value)

    async with asyncio.timeout(WITHIN_S), consumer_of(client, topic, codec=codecs.Json(int)) as consumer:
        for _ in range(2):
            with pytest.raises(UndecodablePayload):
                await consumer.run(handle)
            assert await stored_offset(client, topic) == 0
    assert seen == [1]


async def test_without_a_codec_the_value_is_the_payload(client, topic):
    await fill(client, topic, ["one"])
    async with asyncio.timeout(WITHIN_S), consumer_of(client, topic) as consumer:
        message = await anext(consumer)
    assert (message.value, message.payload) == (b"one", b"one")
