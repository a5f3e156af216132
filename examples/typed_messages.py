"""Messages with values instead of bytes: a dataclass as JSON, and a pydantic model if pydantic is installed.

Start a server (`borzoi server`), then run `python examples/typed_messages.py [connection string]`.
"""

import asyncio
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from borzoi import AsyncClient, AsyncConsumer, AsyncProducer, Message, UndecodablePayload, codecs

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"


@dataclass
class Order:
    customer: str
    cents: int


async def with_a_dataclass(client: AsyncClient) -> None:
    orders = codecs.Json(Order)
    async with AsyncProducer(client, "typed", "orders", codec=orders) as producer:
        await producer.send(Order("Anna", 1250))
        await producer.send(Order("Ben", 800), headers={"priority": 1})
        await producer.send_and_wait(Order("Carla", 0))

    async with AsyncConsumer(
        client, "typed", "orders", consumer="reader", partition_id=0, codec=orders
    ) as consumer:
        for _ in range(3):
            show(await anext(consumer))

        # Somebody else's message in the topic is an error, once, and then passed over.
        await client.send_messages("typed", "orders", 0, ["no order at all"])
        try:
            await anext(consumer)
        except UndecodablePayload as error:
            print(f"offset {error.offset} is no order: {error.__cause__}")


def show(message: Message[Order]) -> None:
    order = message.value  # an Order, to type checkers too
    print(f"{message.offset}: {order.customer} pays {order.cents / 100:.2f} {message.headers}")


async def with_pydantic(client: AsyncClient) -> None:
    from pydantic import BaseModel, PositiveInt  # noqa: PLC0415 - only if it is installed

    class Payment(BaseModel):
        customer: str
        cents: PositiveInt

    payments = codecs.MsgPack(Payment)
    async with AsyncProducer(client, "typed", "payments", codec=payments) as producer:
        await producer.send_and_wait(Payment(customer="Anna", cents=1250))
    async with AsyncConsumer(
        client, "typed", "payments", consumer="reader", partition_id=0, codec=payments
    ) as consumer:
        message = await anext(consumer)
        print("checked by pydantic:", message.value.model_dump())


async def main(server: str = SERVER) -> None:
    async with AsyncClient(server) as client:
        if await client.get_stream("typed") is None:
            await client.create_stream(name="typed")
            await client.create_topic(stream="typed", name="orders", partitions_count=1)
            await client.create_topic(stream="typed", name="payments", partitions_count=1)
        await with_a_dataclass(client)
        if find_spec("pydantic") is not None:
            await with_pydantic(client)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
