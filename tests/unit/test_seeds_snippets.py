"""The platform's own introduction is written against its Python client; what it shows works here too.

The snippets are the calls of the core-concepts document as they stand there: same names, same keywords, same
order; only the import and the address differ. They run against `borzoi server`. Prose that claims something
of a call has a test beside it.
"""

import ast
import inspect

import pytest

from borzoi import AsyncClient, PollingStrategy, SendMessage
from support.server import ServerProcess

CREATE_STREAM = """
await client.create_stream(name="orders")
"""

CREATE_TOPIC = """
await client.create_topic(
    stream="orders",
    name="order-events",
    partitions_count=4,
)
"""

CONSUMER_GROUP = """
await client.create_consumer_group(
    stream="orders",
    topic="order-events",
    name="payment-service",
)
await client.join_consumer_group(
    stream="orders",
    topic="order-events",
    consumer_group="payment-service",
)
"""


async def run(snippet, **names):
    """Execute a snippet as it stands, with `await` at its top level."""
    code = compile(snippet, "<snippet>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)
    if inspect.isawaitable(running):
        await running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("snippets")) as running:
        yield running


@pytest.fixture
async def client(server):
    async with AsyncClient.from_connection_string(f"iggy://iggy:iggy@{server.address}") as connected:
        yield connected
        for stream in await connected.get_streams():
            await connected.delete_stream(stream.id)


async def test_streams_are_made_explicitly(client):
    await run(CREATE_STREAM, client=client)
    (stream,) = await client.get_streams()
    assert (stream.name, stream.topics_count) == ("orders", 0)


async def test_topics_have_the_partitions_they_are_made_with(client):
    await run(CREATE_STREAM + CREATE_TOPIC, client=client)
    topic = await client.get_topic("orders", "order-events")
    assert [partition.id for partition in topic.partitions] == [0, 1, 2, 3]


async def test_once_joined_polls_consume_from_the_partitions_of_the_group(client):
    await run(CREATE_STREAM + CREATE_TOPIC + CONSUMER_GROUP, client=client)
    group = await client.get_consumer_group("orders", "order-events", "payment-service")
    assert group.members_count == 1
    for partition in range(4):
        await client.send_messages("orders", "order-events", partition, [SendMessage(f"order {partition}")])
    polled = [
        message.payload
        for _ in range(8)
        for message in await client.poll_messages("orders", "order-events", count=10)
    ]
    assert sorted(polled) == [b"order 0", b"order 1", b"order 2", b"order 3"]


async def test_an_integer_partitioning_sends_to_that_partition(client):
    await run(CREATE_STREAM + CREATE_TOPIC, client=client)
    snippet = """
await client.send_messages(stream="orders", topic="order-events", partitioning=1, messages=[SendMessage("a")])
"""
    await run(snippet, client=client, SendMessage=SendMessage)
    (message,) = await client.poll_messages("orders", "order-events", 1, PollingStrategy.First())
    assert (message.payload, message.partition_id, message.offset) == (b"a", 1, 0)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("PollingStrategy.First()", [0, 1]),
        ("PollingStrategy.Offset(3)", [3, 4]),
        ("PollingStrategy.Last()", [4, 5]),
        ("PollingStrategy.Next()", [0, 1]),
    ],
)
async def test_every_polling_strategy_of_the_document(client, strategy, expected):
    await run(CREATE_STREAM + CREATE_TOPIC, client=client)
    await client.send_messages("orders", "order-events", 0, [SendMessage(str(n)) for n in range(6)])
    names = {"client": client, "PollingStrategy": PollingStrategy, "seen": []}
    snippet = f"""
messages = await client.poll_messages(
    stream="orders",
    topic="order-events",
    partition_id=0,
    polling_strategy={strategy},
    count=2,
    auto_commit=False,
)
seen += [message.offset for message in messages]
"""
    await run(snippet, **names)
    assert names["seen"] == expected


async def test_auto_commit_moves_the_cursor_and_is_the_default(client):
    await run(CREATE_STREAM + CREATE_TOPIC, client=client)
    await client.send_messages("orders", "order-events", 0, [SendMessage(str(n)) for n in range(6)])

    async def next_offsets(**options):
        polled = await client.poll_messages("orders", "order-events", 0, PollingStrategy.Next(), 2, **options)
        return [message.offset for message in polled]

    assert await next_offsets(auto_commit=False) == [0, 1]
    assert await next_offsets(auto_commit=True) == [0, 1]
    assert await next_offsets() == [2, 3]
    assert await next_offsets() == [4, 5]
