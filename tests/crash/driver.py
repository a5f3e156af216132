"""The client side of the kill -9 test: producers and group members that note what they were told.

Run by the interpreter of an official client environment, one process per role:

    driver.py PLAN setup
    driver.py PLAN produce NUMBER JOURNAL       until SIGTERM
    driver.py PLAN consume MEMBER JOURNAL       until SIGTERM, then until everything is consumed
    driver.py PLAN dump FILE

A lost connection is normal here: every role drops its client object and makes a new one, because the client
itself would wait five seconds before it dials the same server again. A send that failed has an unknown
outcome; it is noted as such and never repeated, so every message exists in at most one attempt.

Journals are appended line by line, each line handed to the operating system before the next call is made:

    S seq partition count              about to send
    A seq partition base_offset count  acknowledged
    F seq reason                       failed, outcome unknown
    D group partition offset ids       delivered; one producer.seq.index per message
    C group partition offset           commit acknowledged
    X group reason                     commit refused or poll failed

A payload is `<IIHH` producer, seq, index, count, then filler, then the CRC-32 of everything before it.
"""

import asyncio
import json
import os
import random
import signal
import struct
import sys
import zlib
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from apache_iggy import (
    AutoLogin,
    Consumer,
    Durability,
    IggyClient,
    PollingStrategy,
    ReceiveMessage,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
)

STREAM = "crash"
TOPIC = "ledger"
MANUAL, AUTOMATIC = "manual", "automatic"
IDENTITY = struct.Struct("<IIHH")
FILLER = os.urandom(8192)
STORE_OFFSET, GET_OFFSET = 121, 120
CALL_DEADLINE_S = 15
RETRY_PAUSE_S = 0.02
# Longer than a heartbeat: a member learns from its heartbeat that it was given another partition.
EMPTY_POLLS_WHEN_DRAINED = 150

T = TypeVar("T")
stopping = asyncio.Event()


class Journal:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


async def call(awaitable: Awaitable[T]) -> T:
    """A server that is alive must answer: a call that hangs ends the process and fails the test."""
    try:
        return await asyncio.wait_for(_awaited(awaitable), CALL_DEADLINE_S)
    except TimeoutError:
        print("a call to the server did not return", file=sys.stderr, flush=True)
        os._exit(3)


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def connect(plan: dict[str, Any]) -> IggyClient:
    """Tries until the server is there; the client's own reconnection is switched off."""
    config = TcpConfig(
        server_address=plan["address"],
        auto_login=AutoLogin.username_password("iggy", "iggy"),
        reconnection=TcpReconnectionConfig(enabled=False),
        heartbeat_interval=timedelta(seconds=1),
        nodelay=True,
    )
    while True:
        client = IggyClient(config)
        try:
            await call(client.connect())
        except RuntimeError:
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return client


async def setup(plan: dict[str, Any]) -> None:
    client = await connect(plan)
    durability = Durability.PERSISTED if plan["persisted"] else Durability.REPLICATED
    await client.create_stream(STREAM)
    await client.create_topic(
        STREAM,
        TOPIC,
        plan["partitions"],
        segment_size=plan["segment_bytes"],
        durability=durability,
        consumer_offset_durability=durability,
    )
    for group in (MANUAL, AUTOMATIC):
        await client.create_consumer_group(STREAM, TOPIC, group)


async def produce(plan: dict[str, Any], producer: int, journal: Journal) -> None:
    rng = random.Random(f"{plan['seed']} producer {producer}")
    seq = 0
    while not stopping.is_set():
        client = await connect(plan)
        try:
            while not stopping.is_set():
                partition = rng.randrange(plan["partitions"])
                count = rng.randint(1, plan["batch_messages"])
                sizes = [rng.randint(0, plan["filler_bytes"]) for _ in range(count)]
                messages = [
                    SendMessage(payload(producer, seq, i, count, size)) for i, size in enumerate(sizes)
                ]
                journal.note("S", seq, partition, count)
                answer = await call(client.send_messages(STREAM, TOPIC, partition, messages))
                (confirmed,) = answer.confirmations
                journal.note("A", seq, confirmed.partition_id, confirmed.base_offset, count)
                seq += 1
                await asyncio.sleep(plan["pause_s"])
        except RuntimeError as error:
            journal.note("F", seq, error)
            seq += 1


async def consume(plan: dict[str, Any], journal: Journal) -> None:
    """One member of each group: one commits by hand after it noted a delivery, one lets the poll commit."""
    await asyncio.gather(*(member(plan, group, journal) for group in (MANUAL, AUTOMATIC)))


async def member(plan: dict[str, Any], group: str, journal: Journal) -> None:
    empty_polls = 0
    while True:
        client = await connect(plan)
        try:
            await call(client.join_consumer_group(STREAM, TOPIC, group))
            while True:
                messages = await call(
                    client.poll_messages(
                        STREAM,
                        TOPIC,
                        consumer=Consumer.Group(group),
                        polling_strategy=PollingStrategy.Next(),
                        count=plan["poll_messages"],
                        auto_commit=group == AUTOMATIC,
                    )
                )
                if not messages:
                    empty_polls += 1
                    if stopping.is_set() and empty_polls > EMPTY_POLLS_WHEN_DRAINED:
                        return
                    await asyncio.sleep(0.01)
                    continue
                empty_polls = 0
                partition = messages[0].partition_id()
                ids = ",".join(".".join(map(str, identity(m)[:3])) for m in messages)
                journal.note("D", group, partition, messages[0].offset(), ids)
                if group == MANUAL:
                    await commit(client, group, partition, messages[-1].offset(), journal)
        except RuntimeError as error:
            journal.note("X", group, error)
            await asyncio.sleep(RETRY_PAUSE_S)


async def commit(client: IggyClient, group: str, partition: int, offset: int, journal: Journal) -> None:
    request = offset_target(group, partition) + struct.pack("<QB", offset, 1)
    try:
        await call(client.send_binary_request(STORE_OFFSET, request))
    except RuntimeError as error:
        # A member that lost the partition to a rebalance is refused and simply goes on polling;
        # when the connection is gone the ping fails as well.
        journal.note("X", group, error)
        await call(client.ping())
    else:
        journal.note("C", group, partition, offset)


async def dump(plan: dict[str, Any], target: Path) -> None:
    """Writes what the server holds: every message in offset order and both groups' offsets."""
    client = await connect(plan)
    topic = await client.get_topic(STREAM, TOPIC)
    if topic is None:
        sys.exit("the topic is gone")
    partitions = {}
    for partition in topic.partitions:
        log: list[list[int]] = []
        while True:
            messages = await call(
                client.poll_messages(
                    STREAM,
                    TOPIC,
                    consumer=Consumer.Single("auditor"),
                    polling_strategy=PollingStrategy.Offset(log[-1][0] + 1 if log else 0),
                    count=1000,
                    auto_commit=False,
                    partition_id=partition.id,
                )
            )
            if not messages:
                break
            log += [[message.offset(), *identity(message)] for message in messages]
        committed = {}
        for group in (MANUAL, AUTOMATIC):
            stored = await call(client.send_binary_request(GET_OFFSET, offset_target(group, partition.id)))
            committed[group] = struct.unpack("<IQQ", stored)[2] if stored else None
        partitions[partition.id] = {
            "log": log,
            "committed": committed,
            "segments": partition.segments_count,
            "messages": partition.messages_count,
        }
    target.write_text(json.dumps(partitions))


def payload(producer: int, seq: int, index: int, count: int, filler_bytes: int) -> bytes:
    start = (producer * 31 + seq * 7 + index) % 64
    body = IDENTITY.pack(producer, seq, index, count) + FILLER[start : start + filler_bytes]
    return body + zlib.crc32(body).to_bytes(4, "little")


def identity(message: ReceiveMessage) -> tuple[int, int, int, int, int]:
    """Producer, seq, index, count, and 1 when the payload is intact."""
    body, digest = message.payload()[:-4], message.payload()[-4:]
    return *IDENTITY.unpack_from(body), int(zlib.crc32(body).to_bytes(4, "little") == digest)


def offset_target(group: str, partition: int) -> bytes:
    names = b"".join(bytes([2, len(name)]) + name.encode() for name in (group, STREAM, TOPIC))
    return b"\x02" + names + struct.pack("<BI", 1, partition)


async def main(plan_file: str, role: str, *rest: str) -> None:
    plan = json.loads(Path(plan_file).read_text())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    if role == "setup":
        await setup(plan)
    elif role == "produce":
        await produce(plan, int(rest[0]), Journal(rest[1]))
    elif role == "consume":
        await consume(plan, Journal(rest[1]))
    else:
        await dump(plan, Path(rest[0]))
    # The client may abort the interpreter at exit while its background threads still run.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
