"""The server is killed and restarted under a running producer and a group of three running consumers."""

import asyncio
import time
from collections import Counter

from borzoi import AsyncClient, AsyncConsumer, AsyncProducer, SendFailed
from support.server import HOST, ServerProcess, fixed_port

PARTITIONS = 6
CONSUMERS = 3
KILLS = 2
DEADLINE_S = 10.0
GRACE_S = 1.0
RUN_S = 1.0
DOWN_S = 0.3


class CommitRecorder(AsyncClient):
    """Notes which offsets are known to be committed, for all consumers together."""

    observed: "Observed"

    async def store_consumer_offset(self, stream, topic, partition_id=None, *, offset, **how):
        started_s = time.monotonic()
        try:
            await super().store_consumer_offset(stream, topic, partition_id, offset=offset, **how)
        finally:
            self.observed.timed(started_s)
        committed = self.observed.committed
        assert offset >= committed.get(partition_id, -1), "a committed offset went back"
        committed[partition_id] = offset


class Observed:
    def __init__(self):
        self.sent = 0
        self.acknowledged = set()
        self.unknown = set()
        self.delivered = []  # payloads, in the order of delivery
        self.delivered_by = Counter()
        self.committed = {}
        self.delivered_again = []  # although committed
        self.slowest_s = 0.0

    def timed(self, started_s):
        self.slowest_s = max(self.slowest_s, time.monotonic() - started_s)


async def produce(producer, observed, is_over):
    async def send(number):
        started_s = time.monotonic()
        try:
            await producer.send_and_wait(str(number))
        except SendFailed as failed:
            observed.unknown.update(int(message.payload) for message in failed.unknown)
        else:
            observed.acknowledged.add(number)
        observed.timed(started_s)

    async with asyncio.TaskGroup() as sends:
        while not is_over.is_set():
            sends.create_task(send(observed.sent))
            observed.sent += 1
            await asyncio.sleep(0.001)


async def consume(consumer, name, observed):
    while True:
        try:
            message = await anext(consumer)
        except StopAsyncIteration:
            return
        if message.offset <= observed.committed.get(message.partition_id, -1):
            observed.delivered_again.append((message.partition_id, message.offset))
        observed.delivered.append(int(message.payload))
        observed.delivered_by[name] += 1
        await asyncio.sleep(0)


async def kill_and_restart(server):
    for _ in range(KILLS):
        await asyncio.sleep(RUN_S)
        server.kill()
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(server.start)
    await asyncio.sleep(RUN_S)


async def test_nothing_is_lost_or_repeated_when_the_server_is_killed_under_producer_and_group(tmp_path):
    observed = Observed()
    with ServerProcess(tmp_path / "data", port=fixed_port()) as server:
        address = f"iggy://iggy:iggy@{HOST}:{server.port}?reconnection_interval=200ms"
        clients = [CommitRecorder(address) for _ in range(CONSUMERS)]
        sending = AsyncClient(address)
        await sending.create_stream("s")
        await sending.create_topic("s", "t", PARTITIONS)
        consumers = []
        try:
            for client in clients:
                client.observed = observed
                consumer = AsyncConsumer(client, "s", "t", group="g", deadline_s=DEADLINE_S, batch_count=20)
                consumers.append(await consumer.__aenter__())
            async with asyncio.timeout(25), asyncio.TaskGroup() as tasks:
                for name, consumer in enumerate(consumers):
                    tasks.create_task(consume(consumer, name, observed))
                is_over = asyncio.Event()
                async with AsyncProducer(sending, "s", "t", linger_s=0.01, deadline_s=DEADLINE_S) as producer:
                    running = tasks.create_task(produce(producer, observed, is_over))
                    await kill_and_restart(server)
                    is_over.set()
                    await running
                while not observed.acknowledged <= set(observed.delivered):
                    await asyncio.sleep(0.02)
                for consumer in consumers:
                    consumer.stop()
        finally:
            for consumer in consumers:
                await consumer.__aexit__(None, None, None)
            for client in (*clients, sending):
                await client.close()

    assert len(observed.acknowledged) > 500
    assert set(observed.delivered) <= observed.acknowledged | observed.unknown
    assert observed.delivered_again == []
    repeated = len(observed.delivered) - len(set(observed.delivered))
    # Committed after each: what is not committed is the one message that each has in its hands.
    assert repeated <= KILLS * CONSUMERS
    assert observed.slowest_s < DEADLINE_S + GRACE_S
    assert len(observed.delivered_by) == CONSUMERS
