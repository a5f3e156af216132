"""A handler fails on one message: it is tried again, then put aside with its cause, and the others go on.

Start a server (`borzoi server`), then run `python examples/dead_letters.py [connection string]`.
"""

import asyncio
import sys

from borzoi import AsyncClient, AsyncConsumer, AsyncProducer, DeadLetter, ReceivedMessage, RetryPolicy

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"


async def main(server: str = SERVER) -> None:
    async with AsyncClient(server) as client:
        if await client.get_stream("shop") is None:
            await client.create_stream(name="shop")
        if await client.get_topic("shop", "payments") is None:
            await client.create_topic(stream="shop", name="payments", partitions_count=1)

        async with AsyncProducer(client, "shop", "payments") as producer:
            for amount in ("10", "20", "a lot", "30"):
                await producer.send(amount)

        total = 0
        async with AsyncConsumer(client, "shop", "payments", consumer="ledger", partition_id=0) as consumer:

            async def book(message: ReceivedMessage) -> None:
                nonlocal total
                total += int(message.payload)
                if message.payload == b"30":
                    consumer.stop()

            await consumer.run(
                book,
                retry=RetryPolicy(attempts=3, backoff_s=0.05),
                dead_letter_topic="payments-dead",
            )
        print("booked", total)

        async with AsyncConsumer(
            client, "shop", "payments-dead", consumer="clerk", partition_id=0
        ) as dead_letters:
            letter = DeadLetter.of(await anext(dead_letters))
            if letter is not None:
                print(f"put aside after {letter.attempts} attempts: {letter.payload!r}, {letter.cause}")
                print(f"it was {letter.topic}, partition {letter.partition_id}, offset {letter.offset}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
