"""Every command as a method of both clients, once, against a real server; and that none is missing."""

import datetime as dt
import inspect
import io
import subprocess
import sys
import time
import typing
import zipfile

import pytest

import borzoi
from borzoi import (
    AsyncClient,
    Client,
    Compression,
    Consumer,
    GlobalPermissions,
    HeaderKind,
    Partitioning,
    Permissions,
    PollingStrategy,
    SendMessage,
    TypedValue,
    UserStatus,
)
from borzoi.client.settings import Settings
from borzoi.model.errors import (
    ConsumerGroupMemberNotFound,
    ConsumerGroupPartitionNotOwned,
    EmptyMessagePayload,
    EpochMismatch,
    InvalidFormat,
    InvalidIdentifier,
    InvalidKeyValueLength,
    InvalidMessagesCount,
    InvalidOffset,
    InvalidOptionValue,
    StreamIdNotFound,
    StreamNameAlreadyExists,
    TimestampOutOfRange,
    TooBigMessagePayload,
    Unauthenticated,
    Unauthorized,
    UnsupportedOptionKey,
)
from borzoi.model.limits import PAYLOAD_BYTES_MAX, U64_MAX
from borzoi.model.requests import ByteCut, StagedPart
from borzoi.model.values import OptionScope, SnapshotCompression, SnapshotPart, Transport
from borzoi.wire.batch import NewMessage, build, frames
from borzoi.wire.commands import COMMANDS, Answer
from support.client_kinds import HOST, KINDS, Either
from support.in_process import LocalServer

BOTH = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("commands") / "data") as running:
        yield running
        assert running.events.of("request failed unexpectedly") == []


@pytest.fixture(params=KINDS)
async def client(request, server):
    async with Either(request.param, HOST, server.port, username="iggy", password="iggy") as connected:
        yield connected


@pytest.fixture
async def topic(client, request):
    """A topic of its own for each test in a stream of its own: their name, and two partitions."""
    name = request.node.name
    await client.create_stream(name=name)
    await client.create_topic(stream=name, name=name, partitions_count=2)
    return name


# Completeness


@pytest.mark.parametrize("client", KINDS.values())
@pytest.mark.parametrize("command", COMMANDS, ids=lambda row: row.name)
def test_every_command_is_a_method(client, command):
    method = getattr(client, command.name)
    assert inspect.iscoroutinefunction(method) == (client is AsyncClient)
    assert "deadline_s" in inspect.signature(method).parameters
    returned = inspect.signature(method).return_annotation
    may_be_none = type(None) in typing.get_args(returned)
    assert (returned is type(None)) == (command.answer is Answer.NOTHING)
    assert may_be_none == (command.answer is Answer.ONE_OR_NONE)


def public(client):
    return {name for name in dir(client) if not name.startswith("_")}


def test_both_clients_have_the_same_methods():
    assert public(AsyncClient) == public(Client)
    extra = {"connect", "close", "address", "state", "from_connection_string", "poll_batches"}
    assert public(AsyncClient) == {command.name for command in COMMANDS} | extra


@pytest.mark.parametrize("name", sorted(public(AsyncClient) - {"address", "state"}))
def test_methods_have_the_same_signature_in_both_clients(name):
    mine, other = getattr(AsyncClient, name), getattr(Client, name)
    assert inspect.signature(mine) == inspect.signature(other)
    assert inspect.getdoc(mine) == inspect.getdoc(other)


def test_both_clients_are_made_with_the_same_arguments_one_for_each_setting():
    parameters = inspect.signature(AsyncClient).parameters
    assert parameters == inspect.signature(Client).parameters
    settings = set(Settings.__dataclass_fields__) - {"credentials"}
    assert set(parameters) == settings | {"username", "password", "token", "on_state_change"}


SURFACE = """
    AsyncClient AsyncConsumer AsyncProducer BatchHeader BorzoiError ByteCut Cipher Client ClientDetails Codec
    Compression ConnectionState Consumer ConsumerGroupDetails DeadLetter GlobalPermissions HeaderKind
    Message OffsetGap Partitioning Permissions PollingStrategy Producer ReceivedMessage RetryPolicy
    SendFailed SendMessage StagedPart StreamDetails StreamPermissions TopicDetails TopicPermissions TypedValue
    UndecodablePayload UnencodableValue UserDetails UserStatus __version__ codecs
"""


def test_the_public_names_are_these_and_no_others():
    assert sorted(borzoi.__all__) == sorted(SURFACE.split())
    assert all(getattr(borzoi, name) is not None for name in borzoi.__all__)


def test_everything_public_can_be_imported_from_the_package():
    assert sorted(borzoi.__all__) == sorted([*borzoi._MODULES, "__version__"])
    assert [name for name in borzoi.__all__ if getattr(borzoi, name, None) is None] == []
    assert dir(borzoi) == sorted(borzoi.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = borzoi.nothing_like_it


def test_the_package_itself_loads_neither_client_nor_numpy():
    script = (
        "import borzoi, sys; print([m for m in sys.modules if m.startswith(('borzoi.', 'numpy', 'asyncio'))])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


# Server


async def test_the_server_says_who_and_how_it_is(client, server):
    assert await client.ping() is None
    stats = await client.get_stats()
    assert stats.process_id > 0
    assert stats.clients_count >= 1
    (node,) = (await client.get_cluster_metadata()).nodes
    assert node.tcp_port == server.port
    specs = await client.describe_options()
    assert "message_expiry" in {spec.key for spec in specs}
    assert await client.describe_options(OptionScope.STREAM) == ()


async def test_the_server_knows_its_clients(client):
    me = await client.get_me()
    assert (me.user_id, me.transport, me.consumer_groups) == (0, Transport.TCP, ())
    assert me.client_id in {other.client_id for other in await client.get_clients()}
    assert await client.get_client(me.client_id) == me
    assert await client.get_client(4_000_000) is None


async def test_a_snapshot_is_an_archive(client):
    taken = await client.snapshot(SnapshotCompression.STORED, [SnapshotPart.TEST])
    assert zipfile.ZipFile(io.BytesIO(taken.archive)).testzip() is None
    assert (await client.snapshot()).archive


# Streams and topics


async def test_streams_come_and_go(client):
    made = await client.create_stream(name="here")
    assert (made.name, made.topics_count, made.topics) == ("here", 0, ())
    with pytest.raises(StreamNameAlreadyExists, match="create_stream, name here"):
        await client.create_stream(name="here")
    assert (await client.get_stream("here")).id == made.id
    assert made.id in {stream.id for stream in await client.get_streams()}
    await client.update_stream("here", "there")
    assert await client.get_stream("here") is None
    assert (await client.get_stream(made.id)).name == "there"
    await client.purge_stream("there")
    await client.delete_stream("there")
    with pytest.raises(StreamIdNotFound) as missing:
        await client.delete_stream("there")
    assert missing.value.code == 1009
    assert missing.value.hint
    assert not missing.value.retryable


async def test_topics_come_and_go(client):
    stream = (await client.create_stream("topics")).id
    made = await client.create_topic(
        stream=stream,
        name="events",
        partitions_count=3,
        compression_algorithm=Compression.GZIP,
        message_expiry=dt.timedelta(days=7),
        max_topic_size="2 GiB",
        segment_size=1 << 20,
        durability="persisted",
        consumer_offset_durability="replicated",
        messages_required_to_save=10,
        size_of_messages_required_to_save="1 MiB",
        preallocate_segments=False,
        options={"message_expiry": TypedValue(HeaderKind.STRING, b"8 days")},
    )
    assert (made.name, made.partitions_count, len(made.partitions)) == ("events", 3, 3)
    assert made.compression is Compression.GZIP
    assert made.message_expiry_us == 8 * 86_400_000_000
    assert made.max_topic_size == 2 << 30
    assert made.explicit_options["durability"] == TypedValue(HeaderKind.STRING, b"persisted")
    assert await client.get_topic(stream, "events") == made
    assert [found.name for found in await client.get_topics(stream)] == ["events"]
    await client.update_topic(
        stream,
        "events",
        "news",
        compression_algorithm="none",
        message_expiry="never_expire",
        max_topic_size="unlimited",
    )
    changed = await client.get_topic(stream, "news")
    assert (changed.compression, changed.message_expiry_us) == (Compression.NONE, U64_MAX)
    assert changed.max_topic_size == U64_MAX
    await client.create_partitions(stream, "news", 2)
    await client.delete_partitions(stream, "news", 4)
    assert (await client.get_topic(stream, "news")).partitions_count == 1
    await client.purge_topic(stream, "news")
    await client.delete_segments(stream, "news", 0, 1)
    await client.delete_topic(stream, "news")
    assert await client.get_topic(stream, "news") is None
    await client.delete_stream(stream)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"message_expiry": "soon"}, InvalidOptionValue),
        ({"message_expiry": dt.timedelta(days=-1)}, InvalidOptionValue),
        ({"max_topic_size": "big"}, InvalidOptionValue),
        ({"segment_size": -1}, InvalidOptionValue),
        ({"messages_required_to_save": 1 << 32}, InvalidOptionValue),
        ({"durability": "maybe"}, InvalidOptionValue),
        ({"options": {"colour": "red"}}, UnsupportedOptionKey),
    ],
)
async def test_options_that_cannot_be_are_refused(client, topic, options, error):
    with pytest.raises(error):
        await client.create_topic(topic, "refused", 1, **options)


# Messages


async def test_messages_are_sent_and_polled_with_everything_they_have(client, topic):
    before_us = time.time_ns() // 1000
    sent = await client.send_messages(
        stream=topic,
        topic=topic,
        partitioning=Partitioning.partition_id(1),
        messages=[
            SendMessage(
                "text",
                id=7,
                headers={"kind": "greeting", b"raw": 1, "exact": TypedValue(HeaderKind.INT8, b"\x05")},
            ),
            SendMessage(b"bytes"),
            "just text",
            b"just bytes",
        ],
    )
    (confirmation,) = sent
    assert (confirmation.partition_id, confirmation.base_offset) == (1, 0)
    first, *rest = await client.poll_messages(topic, topic, 1, PollingStrategy.First(), 10, auto_commit=False)
    assert (first.payload, first.offset, first.id, first.partition_id) == (b"text", 0, 7, 1)
    assert first.headers == {"kind": "greeting", b"raw": 1, "exact": 5}
    assert TypedValue(HeaderKind.INT8, b"\x05") in first.typed_headers.values()
    assert before_us <= first.origin_timestamp <= first.timestamp <= time.time_ns() // 1000
    assert first.checksum
    assert [(message.offset, message.payload) for message in rest] == [
        (1, b"bytes"),
        (2, b"just text"),
        (3, b"just bytes"),
    ]
    assert len({message.id for message in rest} - {0}) == 3
    assert rest[0].headers == {}


async def test_the_server_chooses_partitions_in_turn_or_by_key(client, topic):
    async def stored_in(partitioning):
        ((where),) = await client.send_messages(topic, topic, partitioning, [b"m"])
        return where.partition_id

    assert {await stored_in(Partitioning.balanced()) for _ in range(2)} == {0, 1}
    assert len({await stored_in(Partitioning.key("customer 1")) for _ in range(3)}) == 1
    assert await stored_in(Partitioning.key(b"a")) == 1426945110 % 2
    assert await stored_in(1) == 1


async def test_every_strategy_starts_where_it_says(client, topic):
    for text in ("a", "b", "c"):
        await client.send_messages(topic, topic, 0, [text])
        time.sleep(0.002)

    async def polled(strategy, count=10, **more):
        found = await client.poll_messages(topic, topic, 0, strategy, count, **more)
        return b"".join(message.payload for message in found).decode()

    everything = await client.poll_messages(topic, topic, 0, PollingStrategy.First(), auto_commit=False)
    stored_at_us = everything[1].timestamp
    exact = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=stored_at_us)
    assert await polled(PollingStrategy.Offset(1), auto_commit=False) == "bc"
    assert await polled(PollingStrategy.Last(), 1, auto_commit=False) == "c"
    assert await polled(PollingStrategy.Timestamp(stored_at_us), auto_commit=False) == "bc"
    assert await polled(PollingStrategy.Timestamp(exact), auto_commit=False) == "bc"
    assert await polled(PollingStrategy.Next(), 2) == "ab"
    assert await polled(PollingStrategy.Next(), 2) == "c"
    assert await polled(PollingStrategy.Next(), 2) == ""
    assert await polled(PollingStrategy.Next(), consumer=Consumer.single("another")) == "abc"


async def test_batches_come_as_they_are_stored(client, topic):
    for part in (["a", "b"], ["c", "d"]):
        await client.send_messages(topic, topic, 0, part)
    first, second = await client.poll_batches(
        topic, topic, 0, PollingStrategy.Offset(1), 2, auto_commit=False
    )
    assert [first[0].base_offset, first[0].message_count, second[0].base_offset] == [0, 1, 2]
    assert isinstance(second[1], memoryview)
    assert [bytes(frame.payload) for _, batch in (first, second) for frame in frames(batch)] == [b"b", b"c"]


async def test_messages_larger_than_any_buffer_come_back_whole(client, topic):
    payloads = [bytes([number]) * 300_000 for number in range(5)]
    await client.send_messages(topic, topic, 0, payloads)
    await client.send_messages(topic, topic, 0, [b"small"])
    polled = await client.poll_messages(topic, topic, 0, auto_commit=False)
    assert [message.payload for message in polled] == [*payloads, b"small"]
    assert await client.ping() is None


@BOTH
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.send_messages("s", "t", 0, []), InvalidMessagesCount),
        (lambda c: c.send_messages("s", "t", 0, [b""]), EmptyMessagePayload),
        (lambda c: c.send_messages("s", "t", 0, "text"), TypeError),
        (lambda c: c.send_messages("s", "t", 0, [bytes(PAYLOAD_BYTES_MAX + 1)]), TooBigMessagePayload),
        (lambda c: c.send_messages("s", "t", 0, [SendMessage("x", id=-1)]), InvalidIdentifier),
        (lambda c: c.send_messages("s", "t", -1, ["x"]), InvalidIdentifier),
        (lambda c: c.send_messages("s", "t", Partitioning.key(""), ["x"]), InvalidKeyValueLength),
        (lambda c: c.send_messages("", "t", 0, ["x"]), InvalidIdentifier),
        (lambda c: c.get_stream(-1), InvalidIdentifier),
        (lambda c: c.get_stream("n" * 256), InvalidIdentifier),
        (lambda c: c.get_stream(None), InvalidIdentifier),
        (lambda c: c.poll_messages("s", "t", count=0), InvalidMessagesCount),
        (lambda c: c.poll_messages("s", "t", polling_strategy=PollingStrategy.Offset(-1)), InvalidOffset),
        (
            lambda c: c.poll_messages("s", "t", polling_strategy=PollingStrategy.Timestamp(-1)),
            TimestampOutOfRange,
        ),
        (lambda c: c.ping(deadline_s=0), ValueError),
        (lambda c: c.ping(deadline_s=float("nan")), ValueError),
    ],
)
async def test_what_no_server_would_take_is_not_sent(kind, call, error):
    with pytest.raises(error):
        await call(Either(kind, HOST, 1))


async def test_what_the_wire_cannot_carry_is_told_and_harms_nothing(client):
    for broken in (
        lambda: client.create_stream(""),
        lambda: client.create_stream("n" * 256),
        lambda: client.create_topic("s", "t", -1),
        lambda: client.create_user("u" * 300, "secret"),
    ):
        with pytest.raises(InvalidFormat):
            await broken()
    await client.ping()


async def test_flushing_is_possible(client, topic):
    await client.send_messages(topic, topic, 0, ["x"])
    assert await client.flush_unsaved_buffer(topic, topic, 0) is None
    assert await client.flush_unsaved_buffer(topic, topic, 0, fsync=True) is None


async def test_offsets_are_stored_read_and_deleted(client, topic):
    await client.send_messages(topic, topic, 1, ["a", "b", "c"])
    who = Consumer.single("reader")
    assert await client.get_consumer_offset(topic, topic, 1, consumer=who) is None
    await client.store_consumer_offset(topic, topic, 1, offset=1, consumer=who)
    found = await client.get_consumer_offset(topic, topic, 1, consumer=who)
    assert (found.partition_id, found.current_offset, found.stored_offset) == (1, 2, 1)
    (message,) = await client.poll_messages(topic, topic, 1, consumer=who)
    assert message.payload == b"c"
    await client.delete_consumer_offset(topic, topic, 1, consumer=who)
    assert await client.get_consumer_offset(topic, topic, 1, consumer=who) is None


# Groups


async def test_groups_come_and_go(client, topic):
    made = await client.create_consumer_group(stream=topic, topic=topic, name="payments")
    assert (made.name, made.partitions_count, made.members) == ("payments", 2, ())
    assert [group.id for group in await client.get_consumer_groups(topic, topic)] == [made.id]
    assert await client.sync_consumer_group(topic, topic, "payments") is None
    with pytest.raises(ConsumerGroupMemberNotFound):
        await client.poll_messages(topic, topic, consumer=Consumer.group("payments"))
    await client.join_consumer_group(stream=topic, topic=topic, consumer_group="payments")
    assert (await client.sync_consumer_group(topic, topic, "payments")).partitions == (0, 1)
    (member,) = (await client.get_consumer_group(topic, topic, made.id)).members
    assert member.partitions == (0, 1)
    assert len((await client.get_me()).consumer_groups) == 1
    await client.leave_consumer_group(topic, topic, "payments")
    assert (await client.get_consumer_group(topic, topic, "payments")).members == ()
    await client.delete_consumer_group(topic, topic, "payments")
    assert await client.get_consumer_group(topic, topic, "payments") is None


async def test_a_member_polls_its_partitions_in_turn(client, topic):
    await client.create_consumer_group(topic, topic, "g")
    await client.join_consumer_group(topic, topic, "g")
    for partition in (0, 1):
        await client.send_messages(topic, topic, partition, [f"{partition}a", f"{partition}b"])
    polled = [await client.poll_messages(topic, topic, count=1) for _ in range(5)]
    assert [[message.payload for message in found] for found in polled] == [
        [b"0a"],
        [b"1a"],
        [b"0b"],
        [b"1b"],
        [],
    ]
    stored = await client.get_consumer_offset(topic, topic, 0, consumer=Consumer.group("g"))
    assert stored.stored_offset == 1
    # A partition, or another consumer, means what it says.
    assert len(await client.poll_messages(topic, topic, 0)) == 2
    assert len(await client.poll_messages(topic, topic, consumer=Consumer.single(9))) == 2


async def test_a_member_learns_of_a_new_assignment(client, topic, server):
    await client.create_consumer_group(topic, topic, "g")
    await client.join_consumer_group(topic, topic, "g")
    who = Consumer.group("g")
    await client.send_messages(topic, topic, 0, ["zero"])
    await client.send_messages(topic, topic, 1, ["one"])
    assert await client.poll_messages(topic, topic, consumer=who, count=1)
    async with Either("sync", HOST, server.port, username="iggy", password="iggy") as other:
        await other.join_consumer_group(topic, topic, "g")
        # The second partition is now the other's: the fence sends this member back to its own.
        assert await client.poll_messages(topic, topic, consumer=who) == []
        with pytest.raises(ConsumerGroupPartitionNotOwned):
            await client.poll_messages(topic, topic, 1, consumer=who)
        (message,) = await other.poll_messages(topic, topic)
        assert message.payload == b"one"


@BOTH
async def test_a_member_without_partitions_polls_nothing(kind, server):
    async with (
        Either(kind, HOST, server.port, username="iggy", password="iggy") as first,
        Either(kind, HOST, server.port, username="iggy", password="iggy") as second,
    ):
        name = f"narrow-{kind}"
        await first.create_stream(name)
        await first.create_topic(name, "t")
        await first.create_consumer_group(name, "t", "g")
        await first.send_messages(name, "t", 0, ["x"])
        await first.join_consumer_group(name, "t", "g")
        await second.join_consumer_group(name, "t", "g")
        assert await second.poll_messages(name, "t") == []
        await first.leave_consumer_group(name, "t", "g")
        assert [message.payload for message in await second.poll_messages(name, "t")] == [b"x"]


# Users


async def test_users_come_and_go(client):
    made = await client.create_user(
        "carol", "secret", permissions=Permissions(GlobalPermissions(read_streams=True))
    )
    assert (made.username, made.status, made.permissions.general.read_streams) == (
        "carol",
        UserStatus.ACTIVE,
        True,
    )
    assert made.id in {user.id for user in await client.get_users()}
    await client.update_permissions("carol", None)
    assert (await client.get_user("carol")).permissions is None
    await client.update_user("carol", username="caroline", status=UserStatus.INACTIVE)
    assert (await client.get_user(made.id)).status is UserStatus.INACTIVE
    await client.change_password("caroline", "secret", "secret2")
    await client.delete_user("caroline")
    assert await client.get_user("caroline") is None


async def test_one_connection_serves_several_users_one_after_the_other(client, server):
    await client.create_user("dora", "secret", permissions=None)
    try:
        assert (await client.login_user("dora", "secret")).user_id > 0
        with pytest.raises(Unauthorized):
            await client.create_stream("forbidden")
        token = (await client.create_personal_access_token("for tests", expiry=dt.timedelta(hours=1))).token
        (kept,) = await client.get_personal_access_tokens()
        assert kept.name == "for tests"
        assert kept.expires_at_us > time.time_ns() // 1000
        await client.logout_user()
        with pytest.raises(Unauthenticated):
            await client.get_streams()
        await client.ping()
        await client.login_with_personal_access_token(token)
        assert (await client.get_me()).user_id != 0
        await client.delete_personal_access_token("for tests")
        assert await client.get_personal_access_tokens() == ()
    finally:
        await client.login_user("iggy", "iggy")
        await client.delete_user("dora")


# Borzoi's own: extents and epochs


async def test_the_extent_of_a_topic_says_how_far_its_partitions_reach(client, topic):
    await client.send_messages(topic, topic, 1, [SendMessage(b"x")] * 3)
    extent = await client.get_topic_extent(topic, topic, [ByteCut(1, 0, 1)])
    assert [(each.first_offset, each.next_offset) for each in extent.partitions] == [(0, 0), (0, 3)]
    assert extent.created_at_us == (await client.get_topic(topic, topic)).created_at_us


async def test_staged_batches_become_messages_when_their_epoch_is_committed(client, topic):
    who = {"producer": "query", "epoch": 5, "task": 0, "attempt": 2**63}
    for sequence in range(2):
        batch = build([NewMessage(b"%d" % sequence), NewMessage(b"x")])
        staged = await client.stage_messages(topic, topic, 1, batch, 2, **who, sequence=sequence)
        assert (staged.is_committed, staged.batches_count) == (False, sequence + 1)
    assert await client.get_producer_epoch(topic, topic, "query") is None
    polled = await client.poll_messages(topic, topic, 1, PollingStrategy.First(), auto_commit=False)
    assert list(polled) == []
    with pytest.raises(EpochMismatch):
        await client.commit_epoch(topic, topic, "query", 5, [StagedPart(0, 2**63, 3)])
    parts = [StagedPart(0, 2**63, 2)]
    committed = await client.commit_epoch(topic, topic, "query", 5, parts)
    assert (committed.epoch, committed.is_repeated, committed.messages_count) == (5, False, 4)
    assert (await client.commit_epoch(topic, topic, "query", 5, parts)).is_repeated
    assert (await client.get_producer_epoch(topic, topic, "query")).epoch == 5
    polled = await client.poll_messages(topic, topic, 1, PollingStrategy.First(), auto_commit=False)
    assert [message.payload for message in polled] == [b"0", b"x", b"1", b"x"]
    assert (await client.stage_messages(topic, topic, 1, batch, 2, **who, sequence=0)).is_committed


async def test_messages_can_be_copied_within_the_server(client, topic):
    await client.send_messages(topic, topic, 0, [SendMessage(b"%d" % n, n + 1) for n in range(5)])
    who = {"producer": "copier", "epoch": 1, "task": 0, "attempt": 3}
    copied = await client.stage_copy(topic, topic, 1, topic, topic, 0, 1, 3, **who, sequence=0)
    assert (copied.is_committed, copied.batches_count, copied.messages_count) == (False, 1, 3)
    await client.commit_epoch(topic, topic, "copier", 1, [StagedPart(0, 3, 1)])
    polled = await client.poll_messages(topic, topic, 1, PollingStrategy.First(), auto_commit=False)
    assert [(message.payload, message.id) for message in polled] == [(b"1", 2), (b"2", 3), (b"3", 4)]


async def test_an_aborted_epoch_can_be_staged_again(client, topic):
    who = {"producer": "query", "epoch": 1, "task": 0, "attempt": 0, "sequence": 0}
    await client.stage_messages(topic, topic, 0, build([NewMessage(b"old")]), 1, **who)
    await client.abort_epoch(topic, topic, "query", 1)
    await client.stage_messages(topic, topic, 0, build([NewMessage(b"new")]), 1, **who)
    await client.commit_epoch(topic, topic, "query", 1, [StagedPart(0, 0, 1)])
    polled = await client.poll_messages(topic, topic, 0, PollingStrategy.First(), auto_commit=False)
    assert [message.payload for message in polled] == [b"new"]


async def test_a_producer_that_is_done_can_be_forgotten(client, topic):
    await client.commit_epoch(topic, topic, "once", 1, [])
    await client.forget_producer(topic, topic, "once")
    assert await client.get_producer_epoch(topic, topic, "once") is None


async def test_a_producer_without_a_name_is_refused_before_anything_is_sent(client, topic):
    with pytest.raises(InvalidIdentifier, match="producer"):
        await client.get_producer_epoch(topic, topic, "")
    with pytest.raises(InvalidIdentifier, match="producer"):
        await client.commit_epoch(topic, topic, "x" * 256, 1, [])
