"""Writes or reads the messages of `classic_messages` with whatever client this interpreter has.

    classic_exchange.py HOST:PORT write            into a topic named after the client; prints the topic
    classic_exchange.py HOST:PORT read TOPIC...    prints JSON: by topic a list of [offset, digest, headers]

Headers are written and read where the client can, which is the newest one; elsewhere they are null.
"""

import asyncio
import hashlib
import json
import os
import sys
from typing import Any

from classic_client import HAS_BYTES, IS_VSR, NAME, PollingStrategy, logged_in, poll, sdk, send
from classic_messages import HEADERS, STREAM, batches


async def write(address: str) -> None:
    client = await logged_in(address)
    await client.create_topic(STREAM, NAME, 1)
    for batch in batches(HAS_BYTES):
        await send(client, STREAM, NAME, 0, batch)
    if IS_VSR:
        messages = [sdk.SendMessage("with headers", HEADERS), sdk.SendMessage("and without")]
        await client.send_messages(STREAM, NAME, 0, messages)
    print(NAME, flush=True)


async def read(address: str, topics: list[str]) -> None:
    client = await logged_in(address)
    found = {}
    for topic in topics:
        messages = await poll(client, STREAM, topic, 0, PollingStrategy.First(), count=1000)
        found[topic] = [
            [message.offset(), hashlib.sha256(message.payload()).hexdigest(), headers_of(message)]
            for message in messages
        ]
    print(json.dumps(found), flush=True)


def headers_of(message: Any) -> dict[str, Any] | None:
    headers = message.user_headers() if IS_VSR else None
    return None if headers is None else dict(headers.to_scalar_dict())


if __name__ == "__main__":
    task = write(sys.argv[1]) if sys.argv[2] == "write" else read(sys.argv[1], sys.argv[3:])
    asyncio.run(task)
    # The client may abort the interpreter at exit while its background threads still run.
    os._exit(0)
