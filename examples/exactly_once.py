"""Every order gets exactly one invoice, even if this program is killed at any moment and started again.

Two rules do it. The id of an invoice is made of its order's place, and a repeated invoice goes to the
partition it went to before, so the server knows it and drops it. And an order is committed after its invoice
is stored.

Start a server that drops duplicates, with a memory that outlasts the time until the program is started again:

    IGGY_SYSTEM_MESSAGE_DEDUPLICATION_ENABLED=true IGGY_SYSTEM_MESSAGE_DEDUPLICATION_EXPIRY=1h borzoi server

then run `python examples/exactly_once.py [connection string]`, and interrupt it as often as you like.
"""

import asyncio
import sys
import uuid
from collections import Counter
from dataclasses import dataclass

from borzoi import AsyncClient, AsyncConsumer, AsyncProducer, Message, PollingStrategy, codecs

SERVER = "iggy://iggy:iggy@127.0.0.1:8090"
NEW_ORDERS = 100
AT_ONCE = 20
INVOICES = uuid.UUID("9d0e6f0c-6a0f-4c1e-9a55-0d6b3f8f7a11")


@dataclass
class Order:
    customer: str
    cents: int


@dataclass
class Invoice:
    order: int
    text: str


def invoice_id(order: Message[Order]) -> int:
    """Always the same for the same order, and for no other."""
    return uuid.uuid5(INVOICES, f"{order.partition_id}:{order.offset}").int


async def take_orders(client: AsyncClient) -> int:
    """Send new orders; return the offset of the last one."""
    if await client.get_stream("once") is None:
        await client.create_stream(name="once")
    for name in ("orders", "invoices"):
        if await client.get_topic("once", name) is None:
            await client.create_topic(stream="once", name=name, partitions_count=1)
    orders = [codecs.Json(Order).encode(Order(f"customer {number}", 100)) for number in range(NEW_ORDERS)]
    (stored,) = await client.send_messages("once", "orders", 0, orders)
    return stored.base_offset + NEW_ORDERS - 1


async def write_invoices(client: AsyncClient, last_offset: int) -> None:
    async with (
        AsyncProducer(
            client, "once", "invoices", codec=codecs.Json(Invoice), partitioning=0, retry_unknown=True
        ) as invoices,
        AsyncConsumer(
            client,
            "once",
            "orders",
            consumer="invoicing",
            partition_id=0,
            codec=codecs.Json(Order),
            commit="manual",
        ) as orders,
    ):
        async for order in orders:
            text = f"{order.value.customer} owes {order.value.cents / 100:.2f}"
            await invoices.send(Invoice(order.offset, text), id=invoice_id(order))
            is_last = order.offset == last_offset
            if is_last or order.offset % AT_ONCE == AT_ONCE - 1:
                await invoices.flush()  # the invoices are stored,
                await orders.commit()  # and only now their orders are done with
                print("invoiced up to", order.offset)
            if is_last:
                return


async def count_invoices(client: AsyncClient) -> Counter[int]:
    found: Counter[int] = Counter()
    next_offset = 0
    while messages := await client.poll_messages(
        "once", "invoices", 0, PollingStrategy.Offset(next_offset), auto_commit=False
    ):
        found.update(codecs.Json(Invoice).decode(message.payload).order for message in messages)
        next_offset = messages[-1].offset + 1
    return found


async def main(server: str = SERVER) -> None:
    async with AsyncClient(server) as client:
        last_offset = await take_orders(client)
        await write_invoices(client, last_offset)
        found = await count_invoices(client)
        print(f"{last_offset + 1} orders, {len(found)} invoiced, {max(found.values())} invoice each")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
