"""One face for the official Python clients from 0.4.0 to 0.9.0, for scripts that run with any of them.

What differs between the releases is evened out here and nowhere else. Partitions are numbered from zero
whatever the client's generation does; `FIRST_ID` is where its own ids begin. A capability that a release does
not have is a constant here, so that a script skips a step by name and not by catching an error.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Iterable
from datetime import timedelta
from importlib.metadata import version
from typing import Any

try:
    import apache_iggy as sdk

    PACKAGE = "apache-iggy"
except ModuleNotFoundError:
    import iggy_py as sdk

    PACKAGE = "iggy-py"

VERSION = tuple(int(part) for part in version(PACKAGE).split("."))
NAME = f"{PACKAGE}-{version(PACKAGE)}"

FIRST_ID = 1 if VERSION < (0, 6) else 0
IS_VSR = VERSION >= (0, 9)
HAS_BYTES = VERSION >= (0, 6)
HAS_CONNECTION_STRINGS = hasattr(sdk.IggyClient, "from_connection_string")
HAS_GROUPS = hasattr(sdk.IggyClient, "consumer_group")
HAS_ITERATOR = HAS_GROUPS and hasattr(sdk.IggyConsumer, "iter_messages")

PollingStrategy = sdk.PollingStrategy
USERNAME, PASSWORD = "iggy", "iggy"
# A client dials again no sooner than five seconds after it last did.
RECONNECT_DEADLINE_S = 40.0


def client_at(address: str) -> Any:
    return sdk.IggyClient(address)


def client_from_string(address: str, credentials: str = f"{USERNAME}:{PASSWORD}") -> Any:
    return sdk.IggyClient.from_connection_string(
        f"iggy+tcp://{credentials}@{address}?heartbeat_interval=1s&reconnection_interval=200ms&nodelay=true"
    )


async def logged_in(address: str) -> Any:
    client = client_at(address)
    await client.connect()
    await client.login_user(USERNAME, PASSWORD)
    return client


async def send(client: Any, stream: str, topic: str, partition: int, payloads: Iterable[str | bytes]) -> None:
    await client.send_messages(
        stream, topic, partition + FIRST_ID, [sdk.SendMessage(payload) for payload in payloads]
    )


async def poll(
    client: Any,
    stream: str,
    topic: str,
    partition: int,
    strategy: Any,
    *,
    count: int = 100,
    auto_commit: bool = False,
) -> list[Any]:
    """As the release's default consumer."""
    if IS_VSR:
        found = await client.poll_messages(
            stream,
            topic,
            consumer=sdk.Consumer.Single(0),
            polling_strategy=strategy,
            count=count,
            auto_commit=auto_commit,
            partition_id=partition,
        )
    else:
        found = await client.poll_messages(stream, topic, partition + FIRST_ID, strategy, count, auto_commit)
    return list(found)


async def consumer_of(client: Any, group: str, stream: str, topic: str, **options: Any) -> Any:
    """A high-level consumer that commits with every poll and looks for messages often."""
    made = client.consumer_group(
        group,
        stream,
        topic,
        polling_strategy=PollingStrategy.Next(),
        auto_commit=options.pop("auto_commit", None)
        or sdk.AutoCommit.When(sdk.AutoCommitWhen.PollingMessages()),
        poll_interval=timedelta(milliseconds=10),
        polling_retry_interval=timedelta(milliseconds=100),
        **options,
    )
    return await made if inspect.isawaitable(made) else made


def offsets(messages: Iterable[Any]) -> list[int]:
    return [message.offset() for message in messages]


def payloads(messages: Iterable[Any]) -> list[bytes]:
    return [bytes(message.payload()) for message in messages]


async def refusal(awaitable: Awaitable[object]) -> str:
    """The text of the error that this call ends with; empty if it succeeds."""
    try:
        await awaitable
    except RuntimeError as error:
        return str(error) or repr(error)
    return ""


async def eventually(condition: Any, what: str, within_s: float = 20.0) -> None:
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {within_s} s: {what}")
        await asyncio.sleep(0.02)
