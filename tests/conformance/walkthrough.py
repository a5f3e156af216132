"""A walk through a server with the official client, every step checked where it is made.

Run by the interpreter of an official client environment: `walkthrough.py HOST:PORT`. Prints one line
`ok NAME` per step. At `restart please` it waits for a line on standard input, during which the caller
restarts the server on the same directory and port. `walkthrough.py HOST:PORT member` is the second group
member, which the walk starts and kills by itself.
"""

import asyncio
import io
import os
import struct
import sys
import time
import zipfile
from collections.abc import Awaitable, Callable
from datetime import timedelta

from apache_iggy import (
    AutoLogin,
    Consumer,
    Durability,
    GlobalPermissions,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
    Partitioning,
    Permissions,
    PollingStrategy,
    ReceiveMessage,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
    UserStatus,
)

STREAM = "walk"
PLAIN, SETTINGS, SHARED = "plain", "settings", "shared"
GROUP = "pair"
PAT_NAME = "walk-token"
SNAPSHOT, ME, CLIENTS = 11, 20, 22
GET_OFFSET, STORE_OFFSET, DELETE_OFFSET = 120, 121, 122
CREATE_PAT, LIST_PATS, DELETE_PAT = 42, 41, 43
ASSIGNMENT_DEADLINE_S = 20.0

Step = Callable[[IggyClient, str], Awaitable[None]]


def client_for(address: str, login: AutoLogin | None = None) -> IggyClient:
    return IggyClient(
        TcpConfig(
            server_address=address,
            auto_login=login or AutoLogin.disabled(),
            reconnection=TcpReconnectionConfig(
                interval=timedelta(milliseconds=100), reestablish_after=timedelta(0), max_retries=100
            ),
            heartbeat_interval=timedelta(seconds=1),
            nodelay=True,
        )
    )


async def poll(
    client: IggyClient,
    strategy: PollingStrategy,
    *,
    topic: str = PLAIN,
    count: int = 100,
    partition: int | None = 0,
    consumer: Consumer | None = None,
    auto_commit: bool = False,
) -> list[ReceiveMessage]:
    return await client.poll_messages(
        STREAM,
        topic,
        consumer=consumer or Consumer.Single("walker"),
        polling_strategy=strategy,
        count=count,
        auto_commit=auto_commit,
        partition_id=partition,
    )


def texts(messages: list[ReceiveMessage]) -> list[str]:
    return [message.payload().decode() for message in messages]


async def refused(awaitable: Awaitable[object]) -> bool:
    try:
        await awaitable
    except RuntimeError:
        return True
    return False


def names(*parts: str) -> bytes:
    return b"".join(bytes([2, len(part)]) + part.encode() for part in parts)


def offset_target(consumer: str, partition: int) -> bytes:
    return b"\x01" + names(consumer, STREAM, PLAIN) + struct.pack("<BI", 1, partition)


async def login(client: IggyClient, address: str) -> None:
    await client.ping()
    assert await refused(client.get_streams()), "a stranger may list streams"
    assert await refused(client.login_user("iggy", "wrong password"))
    await client.login_user("iggy", "iggy")
    await client.login_user("iggy", "iggy")


async def token_login(client: IggyClient, address: str) -> None:
    request = bytes([len(PAT_NAME)]) + PAT_NAME.encode() + struct.pack("<Q", 0)
    answer = await client.send_binary_request(CREATE_PAT, request)
    token = answer[1 : 1 + answer[0]].decode()
    assert PAT_NAME.encode() in await client.send_binary_request(LIST_PATS, b"")
    bearer = client_for(address, AutoLogin.personal_access_token(token))
    await bearer.connect()
    await bearer.get_streams()
    await client.send_binary_request(DELETE_PAT, bytes([len(PAT_NAME)]) + PAT_NAME.encode())
    late = client_for(address, AutoLogin.personal_access_token(token))
    assert await refused(late.connect()), "a deleted token still logs in"


async def streams(client: IggyClient, address: str) -> None:
    await client.create_stream("walk-draft")
    assert await refused(client.create_stream("walk-draft")), "a stream name was given twice"
    await client.update_stream("walk-draft", STREAM)
    found = await client.get_stream(STREAM)
    assert found is not None
    assert found.topics_count == 0
    assert await client.get_stream("walk-draft") is None
    assert [stream.name for stream in await client.get_streams()] == [STREAM]


async def topics(client: IggyClient, address: str) -> None:
    await client.create_topic(STREAM, PLAIN, 2)
    await client.create_topic(STREAM, SHARED, 4)
    await client.create_topic(
        STREAM,
        SETTINGS,
        1,
        compression_algorithm="gzip",
        message_expiry=IggyExpiry.ExpireDuration(timedelta(days=7)),
        max_topic_size=MaxTopicSize.Custom(2 << 30),
        segment_size=1 << 20,
        durability=Durability.PERSISTED,
        consumer_offset_durability=Durability.PERSISTED,
        messages_required_to_save=1,
        size_of_messages_required_to_save=4096,
        preallocate_segments=False,
    )
    found = await client.get_topic(STREAM, SETTINGS)
    assert found is not None
    chosen = {str(key): str(value) for key, value in found.options.to_scalar_dict().items()}
    assert chosen["durability"] == chosen["consumer_offset_durability"] == "persisted", chosen
    assert chosen["segment_size"] == str(1 << 20), chosen
    assert found.compression_algorithm == "gzip"
    await client.send_messages(STREAM, SETTINGS, 0, [SendMessage("on the device")])
    assert texts(await poll(client, PollingStrategy.First(), topic=SETTINGS)) == ["on the device"]
    await client.update_topic(STREAM, SETTINGS, "renamed", max_topic_size=MaxTopicSize.Unlimited())
    assert await client.get_topic(STREAM, SETTINGS) is None
    renamed = await client.get_topic(STREAM, "renamed")
    assert renamed is not None
    assert renamed.messages_count == 1
    await client.purge_topic(STREAM, "renamed")
    assert await poll(client, PollingStrategy.First(), topic="renamed") == []
    await client.delete_topic(STREAM, "renamed")
    assert sorted(topic.name for topic in await client.get_topics(STREAM)) == [PLAIN, SHARED]
    assert await refused(client.create_topic(STREAM, "odd", 1, options={"no_such_option": "1"}))


async def partitions(client: IggyClient, address: str) -> None:
    await client.create_partitions(STREAM, PLAIN, 2)
    await client.delete_partitions(STREAM, PLAIN, 1)
    found = await client.get_topic(STREAM, PLAIN)
    assert found is not None
    assert [partition.id for partition in found.partitions] == [0, 1, 2]


async def sends(client: IggyClient, address: str) -> None:
    headers = {"trace": "abc", "attempt": 3, "ratio": 0.5, "final": True}
    first = [SendMessage("zero", headers, 7), SendMessage("one", None, 2**100), SendMessage("two")]
    (confirmed,) = (await client.send_messages(STREAM, PLAIN, 0, first)).confirmations
    assert (confirmed.partition_id, confirmed.base_offset) == (0, 0)
    (confirmed,) = (await client.send_messages(STREAM, PLAIN, 0, [SendMessage("three")])).confirmations
    assert confirmed.base_offset == 3

    got = await poll(client, PollingStrategy.First())
    assert texts(got) == ["zero", "one", "two", "three"]
    assert [message.id() for message in got][:2] == [7, 2**100]
    received = got[0].user_headers()
    assert received is not None
    assert received.to_scalar_dict() == headers
    assert got[1].user_headers() is None

    balanced = [
        (
            await client.send_messages(STREAM, PLAIN, Partitioning.balanced(), [SendMessage(f"b{i}")])
        ).confirmations
        for i in range(3)
    ]
    assert sorted(each[0].partition_id for each in balanced) == [0, 1, 2]
    keyed = [
        (
            await client.send_messages(STREAM, PLAIN, Partitioning.messages_key("k"), [SendMessage("k")])
        ).confirmations
        for _ in range(2)
    ]
    assert keyed[0][0].partition_id == keyed[1][0].partition_id
    assert await refused(client.send_messages(STREAM, PLAIN, 99, [SendMessage("nowhere")]))


async def strategies(client: IggyClient, address: str) -> None:
    (confirmed,) = (await client.send_messages(STREAM, PLAIN, 1, [SendMessage("early")] * 3)).confirmations
    base = confirmed.base_offset
    await asyncio.sleep(0.01)
    between_us = time.time_ns() // 1000
    await asyncio.sleep(0.01)
    await client.send_messages(STREAM, PLAIN, 1, [SendMessage("late")] * 2)

    at_offset = await poll(client, PollingStrategy.Offset(base + 1), partition=1, count=2)
    assert [message.offset() for message in at_offset] == [base + 1, base + 2]
    by_time = await poll(client, PollingStrategy.Timestamp(between_us), partition=1)
    assert [message.offset() for message in by_time] == [base + 3, base + 4]
    assert texts(by_time) == ["late", "late"]
    assert [m.offset() for m in await poll(client, PollingStrategy.First(), partition=1, count=2)] == [0, 1]
    last = await poll(client, PollingStrategy.Last(), partition=1, count=3)
    assert [message.offset() for message in last] == [base + 2, base + 3, base + 4]
    assert await poll(client, PollingStrategy.Offset(base + 5), partition=1) == []
    reader = Consumer.Single("reader")
    twice = [
        await poll(client, PollingStrategy.Next(), partition=1, count=2, consumer=reader) for _ in range(2)
    ]
    assert [[m.offset() for m in got] for got in twice] == [[0, 1], [0, 1]], "a poll without commit moved on"


async def auto_commit(client: IggyClient, address: str) -> None:
    reader = Consumer.Single("auto-reader")
    seen = []
    while got := await poll(client, PollingStrategy.Next(), count=2, consumer=reader, auto_commit=True):
        seen += [message.offset() for message in got]
    assert seen == list(range(len(seen)))
    assert len(seen) >= 4


async def offsets(client: IggyClient, address: str) -> None:
    target = offset_target("bookkeeper", 0)
    assert await client.send_binary_request(GET_OFFSET, target) == b""
    await client.send_binary_request(STORE_OFFSET, target + struct.pack("<QB", 2, 1))
    stored = struct.unpack("<IQQ", await client.send_binary_request(GET_OFFSET, target))
    assert (stored[0], stored[2]) == (0, 2)
    keeper = Consumer.Single("bookkeeper")
    assert [m.offset() for m in await poll(client, PollingStrategy.Next(), count=1, consumer=keeper)] == [3]
    beyond = client.send_binary_request(STORE_OFFSET, target + struct.pack("<QB", 10**6, 1))
    assert await refused(beyond), "an offset past the end was stored"
    await client.send_binary_request(DELETE_OFFSET, target + b"\x01")
    assert await client.send_binary_request(GET_OFFSET, target) == b""
    await client.send_binary_request(STORE_OFFSET, target + struct.pack("<QB", 1, 1))


async def groups(client: IggyClient, address: str) -> None:
    await client.create_consumer_group(STREAM, SHARED, GROUP)
    assert await refused(client.create_consumer_group(STREAM, SHARED, GROUP))
    for partition in range(4):
        await client.send_messages(STREAM, SHARED, partition, [SendMessage(f"p{partition}")] * 5)
    await client.join_consumer_group(STREAM, SHARED, GROUP)
    other = await asyncio.create_subprocess_exec(
        sys.executable, __file__, address, "member", stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"joined\n"
    await assignment(client, [2, 2])
    mine = {message.partition_id() for message in await drain_group(client, 10)}
    assert len(mine) == 2, mine
    other.kill()
    await other.wait()
    await assignment(client, [4])
    rest = {message.partition_id() for message in await drain_group(client, 10)}
    assert rest == {0, 1, 2, 3} - mine, (mine, rest)
    await client.leave_consumer_group(STREAM, SHARED, GROUP)
    await assignment(client, [])
    listed = await client.get_consumer_groups(STREAM, SHARED)
    assert [group.name for group in listed] == [GROUP]


async def assignment(client: IggyClient, expected: list[int]) -> None:
    """Waits until the group's members have this many partitions each."""
    give_up = time.monotonic() + ASSIGNMENT_DEADLINE_S
    while True:
        group = await client.get_consumer_group(STREAM, SHARED, GROUP)
        assert group is not None
        shares = sorted(member.partitions_count for member in group.members)
        if shares == expected:
            return
        assert time.monotonic() < give_up, f"members have {shares} partitions, expected {expected}"
        await asyncio.sleep(0.05)


async def drain_group(client: IggyClient, wanted: int) -> list[ReceiveMessage]:
    """Polls as a group member until so many messages came: an assignment is noticed by the heartbeat."""
    got: list[ReceiveMessage] = []
    give_up = time.monotonic() + ASSIGNMENT_DEADLINE_S
    while len(got) < wanted:
        assert time.monotonic() < give_up, f"the group delivered {len(got)} of {wanted} messages"
        got += await poll(
            client,
            PollingStrategy.Next(),
            topic=SHARED,
            partition=None,
            consumer=Consumer.Group(GROUP),
            auto_commit=True,
        )
        await asyncio.sleep(0.02)
    assert len(got) == wanted
    return got


async def second_member(address: str) -> None:
    client = client_for(address, AutoLogin.username_password("iggy", "iggy"))
    await client.connect()
    await client.join_consumer_group(STREAM, SHARED, GROUP)
    print("joined", flush=True)
    await asyncio.sleep(ASSIGNMENT_DEADLINE_S)


async def users(client: IggyClient, address: str) -> None:
    nobody = Permissions(global_permissions=GlobalPermissions())
    created = await client.create_user("walker", "first secret", UserStatus.Active, nobody)
    assert created.username == "walker"
    assert await refused(client.create_user("walker", "again", UserStatus.Active, nobody))
    await client.change_password("walker", "first secret", "second secret")
    assert sorted(user.username for user in await client.get_users()) == ["iggy", "walker"]

    guest = client_for(address, AutoLogin.username_password("walker", "second secret"))
    await guest.connect()
    assert await refused(guest.get_streams()), "a user without permissions may list streams"
    assert await refused(guest.send_messages(STREAM, PLAIN, 0, [SendMessage("intruder")]))
    await client.update_permissions(
        "walker", Permissions(global_permissions=GlobalPermissions(read_streams=True))
    )
    assert [stream.name for stream in await guest.get_streams()] == [STREAM]
    assert await refused(guest.create_stream("not-allowed"))

    await client.update_user("walker", status=UserStatus.Inactive)
    late = client_for(address, AutoLogin.username_password("walker", "second secret"))
    assert await refused(late.connect()), "an inactive user logs in"
    await client.delete_user("walker")
    assert await client.get_user("walker") is None
    assert await refused(client.delete_user("iggy")), "the root user was deleted"


async def system(client: IggyClient, address: str) -> None:
    stats = await client.get_stats()
    assert stats.streams_count == 1
    assert stats.topics_count == 2
    assert stats.messages_count >= 20
    assert stats.process_id > 0
    archive = zipfile.ZipFile(io.BytesIO(await client.send_binary_request(SNAPSHOT, bytes([2, 1, 100]))))
    assert archive.namelist()
    assert archive.testzip() is None
    assert await client.send_binary_request(ME, b"")
    assert await client.send_binary_request(CLIENTS, b"")
    assert {spec.key for spec in await client.describe_options("topic")} >= {"durability", "segment_size"}


async def after_restart(client: IggyClient, address: str) -> None:
    before = [texts(await poll(client, PollingStrategy.First(), partition=p)) for p in range(3)]
    topic_before = await client.get_topic(STREAM, PLAIN)
    print("restart please", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    # While its heartbeat is busy reconnecting, the client refuses other calls as `Disconnected`.
    for attempt in range(100):
        try:
            await client.get_streams()
            break
        except RuntimeError:
            assert attempt < 99, "the client did not come back"
            await asyncio.sleep(0.1)
    after = [texts(await poll(client, PollingStrategy.First(), partition=p)) for p in range(3)]
    assert after == before
    topic_after = await client.get_topic(STREAM, PLAIN)
    assert topic_before is not None
    assert topic_after is not None
    assert topic_after.created_at == topic_before.created_at
    assert topic_after.messages_count == topic_before.messages_count
    stored = await client.send_binary_request(GET_OFFSET, offset_target("bookkeeper", 0))
    assert struct.unpack("<IQQ", stored)[2] == 1
    (confirmed,) = (await client.send_messages(STREAM, PLAIN, 0, [SendMessage("after")])).confirmations
    assert confirmed.base_offset == len(before[0])
    assert texts(await poll(client, PollingStrategy.Last(), count=1)) == ["after"]


async def purge_and_delete(client: IggyClient, address: str) -> None:
    await client.purge_stream(STREAM)
    assert await poll(client, PollingStrategy.First()) == []
    (confirmed,) = (await client.send_messages(STREAM, PLAIN, 0, [SendMessage("anew")])).confirmations
    assert confirmed.base_offset == 0
    await client.delete_consumer_group(STREAM, SHARED, GROUP)
    await client.delete_stream(STREAM)
    assert await client.get_streams() == []
    await client.logout_user()
    assert await refused(client.get_streams())


STEPS: tuple[Step, ...] = (
    login,
    token_login,
    streams,
    topics,
    partitions,
    sends,
    strategies,
    auto_commit,
    offsets,
    groups,
    users,
    system,
    after_restart,
    purge_and_delete,
)


async def walk(address: str) -> None:
    client = client_for(address)
    await client.connect()
    for step in STEPS:
        await step(client, address)
        print(f"ok {step.__name__}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(second_member(sys.argv[1]) if sys.argv[2:] else walk(sys.argv[1]))
    # The client may abort the interpreter at exit while its background threads still run.
    os._exit(0)
