"""What type checkers make of the client: checked by mypy and pyright in `make lint`, never run.

`assert_type` says what is inferred. A line that must be refused carries the ignores of both; both report an
ignore that is not needed, so such a line fails as soon as it is accepted.
"""

from dataclasses import dataclass
from typing import Any, assert_type

from borzoi import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    Client,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    StreamDetails,
    TopicDetails,
    codecs,
)


@dataclass
class Order:
    number: int


async def an_asynchronous_consumer_yields_what_its_codec_makes(client: AsyncClient) -> None:
    async with AsyncConsumer(client, "s", "t", group="g", codec=codecs.Json(Order)) as consumer:
        assert_type(consumer, AsyncConsumer[Order])
        async for message in consumer:
            assert_type(message, Message[Order])
            assert_type(message.value, Order)
            assert_type(message.value.number, int)
            assert_type(message.payload, bytes)


async def without_a_codec_values_are_payloads(client: AsyncClient) -> None:
    async with AsyncConsumer(client, "s", "t", group="g") as consumer:
        async for message in consumer:
            assert_type(message, Message[bytes])
            assert_type(message.value, bytes)


async def an_asynchronous_producer_takes_what_its_codec_encodes(client: AsyncClient) -> None:
    async with AsyncProducer(client, "s", "t", codec=codecs.MsgPack(Order)) as producer:
        assert_type(producer, AsyncProducer[Order])
        await producer.send(Order(1))
        await producer.send("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        await producer.send(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def without_a_codec_texts_and_bytes_are_sent(client: AsyncClient) -> None:
    async with AsyncProducer(client, "s", "t") as producer:
        await producer.send("one")
        await producer.send(b"two")
        await producer.send(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def a_handler_gets_typed_messages(client: AsyncClient) -> None:
    async def handle(message: Message[Order]) -> None: ...

    async def mishandle(message: Message[str]) -> None: ...

    async with AsyncConsumer(client, "s", "t", group="g", codec=codecs.Json(Order)) as consumer:
        await consumer.run(handle)
        await consumer.run(mishandle)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def the_blocking_twins_have_the_same_types(client: Client) -> None:
    with Consumer(client, "s", "t", group="g", codec=codecs.TEXT) as consumer:
        assert_type(consumer, Consumer[str])
        for message in consumer:
            assert_type(message, Message[str])
            assert_type(message.value, str)
    with Producer(client, "s", "t", codec=codecs.TEXT) as producer:
        assert_type(producer, Producer[str])
        producer.send("one")
        producer.send(b"two")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def codecs_know_their_types() -> None:
    assert_type(codecs.Json(Order).decode(b""), Order)
    assert_type(codecs.Json(list[Order]).decode(b""), list[Order])
    assert_type(codecs.MsgPack(Order).encode(Order(1)), bytes)
    assert_type(codecs.Json().decode(b""), Any)
    codecs.Json(Order).encode("one")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def every_command_has_its_type(client: AsyncClient, blocking: Client) -> None:
    assert_type(await client.create_stream("s"), StreamDetails)
    assert_type(await client.get_topic("s", "t"), TopicDetails | None)
    assert_type(await client.poll_messages("s", "t", 0), list[ReceivedMessage])
    assert_type(blocking.create_stream("s"), StreamDetails)
    assert_type(blocking.get_topic("s", "t"), TopicDetails | None)
    assert_type(blocking.poll_messages("s", "t", 0), list[ReceivedMessage])
    blocking.create_stream(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    blocking.create_topic("s")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
