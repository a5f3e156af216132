"""Send a few orders and read them back, with asyncio.

Start a server (`borzoi server`), then run `python examples/getting_started.py [connection string]`.
"""

import asyncio
import sys

from borzoi import AsyncClient, Consumer, Partitioning, PollingStrategy, SendMessage

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"


async def main(server: str = SERVER) -> None:
    async with AsyncClient(server) as client:
        if await client.get_stream("orders") is None:
            await client.create_stream(name="orders")
        if await client.get_topic("orders", "order-events") is None:
            await client.create_topic(stream="orders", name="order-events", partitions_count=4)

        # Orders of one customer stay in order: the same key goes to the same partition.
        (stored,) = await client.send_messages(
            stream="orders",
            topic="order-events",
            partitioning=Partitioning.key("customer-7"),
            messages=[SendMessage(f"order {number}", headers={"number": number}) for number in range(3)],
        )
        print(f"stored in partition {stored.partition_id} from offset {stored.base_offset}")

        # Any position can be read from, and nothing is remembered unless asked for.
        messages = await client.poll_messages(
            stream="orders",
            topic="order-events",
            partition_id=stored.partition_id,
            polling_strategy=PollingStrategy.Offset(stored.base_offset),
            count=10,
            auto_commit=False,
        )
        for message in messages:
            print(message.offset, message.payload.decode(), message.headers)

        # A consumer with a name goes on where it left off: its offset is stored once the work is done.
        billing = Consumer.single("billing")
        while messages := await client.poll_messages(
            "orders", "order-events", stored.partition_id, count=2, auto_commit=False, consumer=billing
        ):
            print("billed", len(messages))
            await client.store_consumer_offset(
                "orders",
                "order-events",
                stored.partition_id,
                offset=messages[-1].offset,
                consumer=billing,
            )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
