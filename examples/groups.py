"""Two workers share the partitions of a topic as a group; a producer feeds them in batches.

Start a server (`borzoi server`), then run `python examples/groups.py [connection string]`.
"""

import asyncio
import sys

from borzoi import AsyncClient, AsyncConsumer, AsyncProducer, Partitioning

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"
ORDERS = 100


async def work(name: str, consumer: AsyncConsumer, done: asyncio.Queue[str]) -> None:
    # A message is committed when the next one is asked for: what fails here is delivered again.
    async for message in consumer:
        await done.put(f"{name} has {message.payload.decode()}")


async def main(server: str = SERVER) -> None:
    # Each member of a group has a connection of its own.
    async with AsyncClient(server) as client, AsyncClient(server) as other:
        if await client.get_stream("shop") is None:
            await client.create_stream(name="shop")
        if await client.get_topic("shop", "parcels") is None:
            await client.create_topic(stream="shop", name="parcels", partitions_count=4)

        async with AsyncProducer(client, "shop", "parcels") as producer:
            for number in range(ORDERS):
                customer = Partitioning.key(f"customer-{number % 10}")
                await producer.send(f"parcel {number}", partitioning=customer)
        print("everything is stored")

        done: asyncio.Queue[str] = asyncio.Queue()
        async with (
            AsyncConsumer(client, "shop", "parcels", group="couriers") as anna,
            AsyncConsumer(other, "shop", "parcels", group="couriers") as ben,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(work("Anna", anna, done))
            tasks.create_task(work("Ben", ben, done))
            for _ in range(ORDERS):
                print(await done.get())
            anna.stop()
            ben.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
