"""Everything a user does with an older official client, every step checked where it is made.

Run by the interpreter of a client's environment: `classic_scenario.py HOST:PORT TOKEN`. Prints one line
`ok NAME` per step, or `no NAME` for a step that the release has no calls for. At `restart please` it waits
for a line on standard input, during which the caller restarts the server on the same directory and port.
`classic_scenario.py HOST:PORT member STREAM` is the second group member, which the scenario starts and kills.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from classic_client import (
    FIRST_ID,
    HAS_BYTES,
    HAS_CONNECTION_STRINGS,
    HAS_GROUPS,
    HAS_ITERATOR,
    NAME,
    PASSWORD,
    RECONNECT_DEADLINE_S,
    USERNAME,
    PollingStrategy,
    client_at,
    client_from_string,
    consumer_of,
    eventually,
    logged_in,
    offsets,
    payloads,
    poll,
    refusal,
    sdk,
    send,
)

STREAM = f"scenario-{NAME}"
PLAIN, SHARED, KEPT = "plain", "shared", "kept"


class Scenario:
    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.token = token
        self.client: Any = None

    async def connect(self) -> None:
        self.client = client_at(self.address)
        await self.client.connect()
        await self.client.ping()
        assert await refusal(self.client.get_stream(STREAM)), "a stranger may look at streams"

    async def login(self) -> None:
        assert "InvalidCredentials" in await refusal(self.client.login_user(USERNAME, "wrong password"))
        await self.client.login_user(USERNAME, PASSWORD)
        await self.client.login_user(USERNAME, PASSWORD)
        await self.client.ping()

    async def login_by_connection_string(self) -> None:
        if not HAS_CONNECTION_STRINGS:
            raise NotImplementedError
        self.client = client_from_string(self.address)
        await self.client.connect()
        assert await self.client.get_stream(STREAM) is None

    async def login_by_token(self) -> None:
        """The token tells no version: the server learns the dialect from what the client sends."""
        if not HAS_CONNECTION_STRINGS:
            raise NotImplementedError
        bearer = client_from_string(self.address, self.token)
        await bearer.connect()
        stream = f"{STREAM}-token"
        await bearer.create_stream(stream)
        await bearer.create_topic(stream, PLAIN, 1)
        await send(bearer, stream, PLAIN, 0, ["by token", "twice"])
        polled = await poll(bearer, stream, PLAIN, 0, PollingStrategy.First())
        assert payloads(polled) == [b"by token", b"twice"]
        wrong = client_from_string(self.address, "no-such-token")
        assert await refusal(asyncio.wait_for(wrong.connect(), 10)), "a wrong token logs in"

    async def streams(self) -> None:
        assert await self.client.get_stream(STREAM) is None
        await self.client.create_stream(STREAM)
        assert "StreamNameAlreadyExists" in await refusal(self.client.create_stream(STREAM))
        found = await self.client.get_stream(STREAM)
        assert (found.name, found.topics_count, found.messages_count) == (STREAM, 0, 0)
        assert found.id >= FIRST_ID
        again = await self.client.get_stream(found.id)
        assert (again.id, again.name) == (found.id, STREAM)

    async def topics(self) -> None:
        assert await self.client.get_topic(STREAM, PLAIN) is None
        await self.client.create_topic(STREAM, PLAIN, 3)
        await self.client.create_topic(STREAM, SHARED, 4)
        await self.client.create_topic(STREAM, KEPT, 1)
        assert "TopicNameAlreadyExists" in await refusal(self.client.create_topic(STREAM, PLAIN, 1))
        found = await self.client.get_topic(STREAM, PLAIN)
        assert (found.id, found.name, found.messages_count) == (FIRST_ID, PLAIN, 0)
        second = await self.client.get_topic(STREAM, FIRST_ID + 1)
        assert second.name == SHARED
        stream = await self.client.get_stream(STREAM)
        assert stream.topics_count == 3
        assert await refusal(self.client.create_topic("nowhere", "topic", 1))

    async def sends(self) -> None:
        await send(self.client, STREAM, PLAIN, 0, [f"text {number} grüße" for number in range(10)])
        await send(self.client, STREAM, PLAIN, 1, ["x"])
        if HAS_BYTES:
            await send(self.client, STREAM, PLAIN, 1, [bytes(range(256))])
        await send(self.client, STREAM, PLAIN, 2, ["m" * (1 + number) for number in range(1000)])
        topic = await self.client.get_topic(STREAM, PLAIN)
        assert topic.messages_count == 1011 + HAS_BYTES
        assert "PartitionNotFound" in await refusal(send(self.client, STREAM, PLAIN, 3, ["lost"]))
        assert await refusal(send(self.client, "nowhere", PLAIN, 0, ["lost"]))
        assert await refusal(send(self.client, STREAM, "nothing", 0, ["lost"]))

    async def strategies(self) -> None:
        client = self.client
        first = await poll(client, STREAM, PLAIN, 0, PollingStrategy.First(), count=3)
        assert payloads(first) == [f"text {number} grüße".encode() for number in range(3)]
        assert offsets(first) == [0, 1, 2]
        assert len({message.id() for message in first}) == 3
        assert all(message.id() and message.checksum() for message in first)
        at_offset = await poll(client, STREAM, PLAIN, 0, PollingStrategy.Offset(value=4), count=2)
        assert offsets(at_offset) == [4, 5]
        last = await poll(client, STREAM, PLAIN, 0, PollingStrategy.Last(), count=4)
        assert offsets(last) == [6, 7, 8, 9]
        await asyncio.sleep(0.01)
        between_us = time.time_ns() // 1000
        await send(client, STREAM, PLAIN, 0, ["late", "later"])
        by_time = await poll(client, STREAM, PLAIN, 0, PollingStrategy.Timestamp(value=between_us))
        assert payloads(by_time) == [b"late", b"later"]
        assert all(message.timestamp() >= between_us for message in by_time)
        twice = [await poll(client, STREAM, PLAIN, 0, PollingStrategy.Next(), count=2) for _ in range(2)]
        assert [offsets(each) for each in twice] == [[0, 1], [0, 1]], "a poll without commit moved on"
        assert await poll(client, STREAM, PLAIN, 0, PollingStrategy.Offset(value=12)) == []
        if HAS_BYTES:
            (binary,) = await poll(client, STREAM, PLAIN, 1, PollingStrategy.Last(), count=1)
            assert payloads([binary]) == [bytes(range(256))]
        many = await poll(client, STREAM, PLAIN, 2, PollingStrategy.First(), count=1000)
        assert payloads(many) == [b"m" * (1 + number) for number in range(1000)]
        assert "PartitionNotFound" in await refusal(poll(client, STREAM, PLAIN, 3, PollingStrategy.First()))

    async def auto_commit(self) -> None:
        seen = []
        while got := await poll(
            self.client, STREAM, PLAIN, 0, PollingStrategy.Next(), count=5, auto_commit=True
        ):
            seen.append(offsets(got))
        assert seen == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
        await send(self.client, STREAM, PLAIN, 0, ["one more"])
        (more,) = await poll(self.client, STREAM, PLAIN, 0, PollingStrategy.Next(), auto_commit=True)
        assert payloads([more]) == [b"one more"]

    async def offsets(self) -> None:
        """Store and delete through a consumer that does not commit by itself."""
        if not HAS_GROUPS:
            raise NotImplementedError
        await send(self.client, STREAM, KEPT, 0, [f"kept {number}" for number in range(6)])
        consumer = await consumer_of(
            self.client, "bookkeeper", STREAM, KEPT, auto_commit=sdk.AutoCommit.Disabled()
        )
        got = await take(consumer, 6)
        assert payloads(got) == [b"kept %d" % number for number in range(6)]
        assert consumer.get_last_consumed_offset(FIRST_ID) == 5
        await consumer.store_offset(2, FIRST_ID)
        assert consumer.get_last_stored_offset(FIRST_ID) == 2
        again = await consumer_of(
            self.client, "bookkeeper", STREAM, KEPT, auto_commit=sdk.AutoCommit.Disabled()
        )
        assert offsets(await take(again, 3)) == [3, 4, 5]
        await again.delete_offset(FIRST_ID)
        assert await refusal(again.delete_offset(FIRST_ID)), "a deleted offset was deleted again"
        anew = await consumer_of(
            self.client, "bookkeeper", STREAM, KEPT, auto_commit=sdk.AutoCommit.Disabled()
        )
        assert offsets(await take(anew, 6)) == list(range(6))

    async def consumer(self) -> None:
        """The high-level consumer, with commits by interval, and as an iterator where there is one."""
        if not HAS_GROUPS:
            raise NotImplementedError
        interval = sdk.AutoCommit.Interval(timedelta(milliseconds=50))
        consumer = await consumer_of(self.client, "high", STREAM, PLAIN, auto_commit=interval)
        assert (consumer.name(), consumer.stream(), consumer.topic()) == ("high", STREAM, PLAIN)
        total = 1014 + HAS_BYTES
        got = await take(consumer, total)
        assert len(payloads(got)) == total
        by_partition = [consumer.get_last_consumed_offset(number + FIRST_ID) for number in range(3)]
        assert by_partition == [12, HAS_BYTES, 999]
        stored = [12, HAS_BYTES, 999]
        await eventually(
            lambda: [consumer.get_last_stored_offset(number + FIRST_ID) for number in range(3)] == stored,
            "offsets stored by interval",
        )
        if HAS_ITERATOR:
            iterated = await consumer_of(self.client, "iterator", STREAM, KEPT)
            found = []
            async for message in iterated.iter_messages():
                found.append(message)
                if len(found) == 6:
                    break
            assert offsets(found) == list(range(6))

    async def groups(self) -> None:
        """Two members share a topic; one is killed and the other takes over what it had."""
        if not HAS_GROUPS:
            raise NotImplementedError
        mine: list[bytes] = []
        stop = asyncio.Event()
        consumer = await consumer_of(self.client, "pair", STREAM, SHARED)
        task = asyncio.ensure_future(consumer.consume_messages(collector(mine), stop))
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, self.address, "member", STREAM), stdout=asyncio.subprocess.PIPE
        )
        theirs: list[bytes] = []
        reader = asyncio.ensure_future(read_lines(other.stdout, theirs))
        await eventually(lambda: theirs[:1] == [b"joined"], "the second member has joined")
        # Its first polls tell the server nothing yet; the assignment is there at once.
        expected = set()
        for partition in range(4):
            sent = [f"p{partition} m{number}" for number in range(5)]
            expected |= {text.encode() for text in sent}
            await send(self.client, STREAM, SHARED, partition, sent)
        await eventually(lambda: len(mine) + len(theirs) - 1 >= 20, f"20 messages: {mine} {theirs}")
        assert sorted(mine + theirs[1:]) == sorted(expected), "lost or delivered twice"
        assert {text[:2] for text in mine}.isdisjoint({text[:2] for text in theirs[1:]})
        assert len({text[:2] for text in mine}) == 2, mine
        other.kill()
        await other.wait()
        await reader
        mine.clear()
        for partition in range(4):
            await send(self.client, STREAM, SHARED, partition, [f"p{partition} after"])
        await eventually(lambda: len(mine) >= 4, f"the survivor has all partitions: {mine}")
        assert sorted(mine) == [b"p%d after" % partition for partition in range(4)]
        stop.set()
        await asyncio.wait_for(task, 20)

    async def restart(self) -> None:
        """Over a restart of the server the client comes back, and everything is where it was."""
        lasting: list[bytes] = []
        if HAS_CONNECTION_STRINGS:
            await self.consume_lastingly(lasting)
        before = [await self.everything(partition) for partition in range(3)]
        print("restart please", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await self.come_back()
        after = [await self.everything(partition) for partition in range(3)]
        assert after == before
        assert await poll(self.client, STREAM, PLAIN, 0, PollingStrategy.Next()) == [], "the commit is lost"
        await send(self.client, STREAM, PLAIN, 0, ["after the restart"])
        (late,) = await poll(self.client, STREAM, PLAIN, 0, PollingStrategy.Next(), auto_commit=True)
        assert payloads([late]) == [b"after the restart"]
        if HAS_GROUPS:
            await send(self.client, STREAM, SHARED, 0, ["after the restart"])
            consumer = await consumer_of(self.client, "pair", STREAM, SHARED)
            assert payloads(await take(consumer, 1)) == [b"after the restart"]
        if HAS_CONNECTION_STRINGS:
            await send(self.client, STREAM, KEPT, 0, ["after the restart"])
            await eventually(
                lambda: lasting == [b"after the restart"],
                f"a consumer from before the restart goes on: {lasting}",
                RECONNECT_DEADLINE_S,
            )

    async def consume_lastingly(self, into: list[bytes]) -> None:
        """A consumer that is left running; only a client that logs in by itself can bring it back."""
        consumer = await consumer_of(self.client, "lasting", STREAM, KEPT)
        self.lasting = asyncio.ensure_future(consumer.consume_messages(collector(into), asyncio.Event()))
        await eventually(lambda: len(into) == 6, "everything before the restart")
        into.clear()

    async def come_back(self) -> None:
        """A client with a connection string logs in by itself; one without has to be told."""
        give_up = time.monotonic() + RECONNECT_DEADLINE_S
        while True:
            try:
                if not HAS_CONNECTION_STRINGS:
                    await asyncio.wait_for(self.client.login_user(USERNAME, PASSWORD), 15)
                assert await asyncio.wait_for(self.client.get_stream(STREAM), 15) is not None
            except (RuntimeError, TimeoutError):
                assert time.monotonic() < give_up, "the client did not come back"
                await asyncio.sleep(0.2)
            else:
                return

    async def everything(self, partition: int) -> list[bytes]:
        found = await poll(self.client, STREAM, PLAIN, partition, PollingStrategy.First(), count=2000)
        return payloads(found)

    def steps(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self.connect,
            self.login,
            self.login_by_connection_string,
            self.login_by_token,
            self.streams,
            self.topics,
            self.sends,
            self.strategies,
            self.auto_commit,
            self.offsets,
            self.consumer,
            self.groups,
            self.restart,
        )

    async def run(self) -> None:
        for step in self.steps():
            try:
                await step()
            except NotImplementedError:
                print(f"no {step.__name__}", flush=True)
            else:
                print(f"ok {step.__name__}", flush=True)
        print("done", flush=True)


def collector(into: list[bytes]) -> Callable[[Any], Awaitable[None]]:
    async def collect(message: Any) -> None:
        into.append(bytes(message.payload()))

    return collect


async def take(consumer: Any, count: int) -> list[Any]:
    """So many messages of a high-level consumer, which is then left."""
    stop = asyncio.Event()
    found: list[Any] = []

    async def collect(message: Any) -> None:
        found.append(message)
        if len(found) >= count:
            stop.set()

    try:
        await asyncio.wait_for(consumer.consume_messages(collect, stop), 30)
    except TimeoutError:
        raise AssertionError(f"{len(found)} of {count} messages came") from None
    return found


async def read_lines(stream: asyncio.StreamReader | None, into: list[bytes]) -> None:
    assert stream is not None
    while line := await stream.readline():
        into.append(line.rstrip(b"\n"))


async def second_member(address: str, stream: str) -> None:
    client = await logged_in(address)
    consumer = await consumer_of(client, "pair", stream, SHARED)
    found: list[bytes] = []
    task = asyncio.ensure_future(consumer.consume_messages(collector(found), asyncio.Event()))
    # The older releases join with the first poll, which follows the init by this much.
    await asyncio.sleep(0.5)
    print("joined", flush=True)
    while not task.done():
        await asyncio.sleep(0.01)
        while found:
            print(found.pop(0).decode(), flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "member":
        asyncio.run(second_member(sys.argv[1], sys.argv[3]))
    else:
        asyncio.run(Scenario(sys.argv[1], sys.argv[2]).run())
    # The client may abort the interpreter at exit while its background threads still run.
    os._exit(0)
