"""Every command of the classic generation over real sockets, in all four dialects, on one server.

Most of these commands are sent by no Python client. Bodies are packed by the client's side of the codecs,
whose layouts `test_classic_vectors` holds against captured bytes; here a conversation is held with captured
frames too, and its answers are written out.
"""

import io
import itertools
import struct
import zipfile

import pytest

from borzoi.model import errors as er
from borzoi.model import requests as rq
from borzoi.model.limits import U64_MAX
from borzoi.model.values import (
    Compression,
    Consumer,
    ConsumerKind,
    HeaderKind,
    SnapshotCompression,
    SnapshotPart,
    TypedValue,
)
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.commands import Code
from support.classic_wire import ClassicClient, logged_in
from support.in_process import LocalServer

NUMBERS = itertools.count()
ANYBODY = Consumer(ConsumerKind.CONSUMER, 7)


@pytest.fixture
def modern(server):
    with logged_in(server.port, Dialect.D) as connected:
        yield connected


def a_name(kind: str) -> str:
    return f"{kind}-{next(NUMBERS)}"


def expiry(micros: int) -> TypedValue:
    return TypedValue(HeaderKind.UINT64, struct.pack("<Q", micros))


# Captured frames

LOGINS = {
    Dialect.A: "1d000000 26000000 0469676779 0469676779 07000000 302e362e323032 00000000",
    Dialect.B: "1b000000 26000000 0469676779 0469676779 05000000 302e372e30 00000000",
    Dialect.C: "1b000000 26000000 0469676779 0469676779 05000000 302e382e30 00000000",
    Dialect.D: "1c000000 26000000 0469676779 0469676779 06000000 302e31302e30 00000000",
}
CREATE_STREAM = {
    Dialect.B: "0d000000 ca000000 00000000 047374726d",
    Dialect.D: "09000000 ca000000 047374726d",
}
CREATE_TOPIC = {
    Dialect.B: "28000000 2e010000 02047374726d 00000000 02000000 01 ffffffffffffffff 0000000000000000"
    "00 03746f70",
    Dialect.C: "24000000 2e010000 02047374726d 02000000 01 ffffffffffffffff 0000000000000000 00 03746f70",
    Dialect.D: "24000000 2e010000 02047374726d 02000000 01 0000000000000000 0000000000000000 00 03746f70",
}
ROUTE = "02047374726d 0203746f70 020401000000"
NO_ID = "00000000000000000000000000000000"
NEW = f"0000000000000000 {NO_ID} 0000000000000000 0000000000000000"
SEND = {
    Dialect.A: f"50000000 65000000 {ROUTE} {NO_ID} 00000000 05000000 68656c6c6f"
    f"{NO_ID} 00000000 06000000 776f726c6421",
    Dialect.B: f"b8000000 65000000 15000000 {ROUTE} 02000000"
    "00000000 3d000000 0000000000000000 00000000 7b000000 0000000000000000"
    f"{NEW} 455f67cc55600600 00000000 05000000 68656c6c6f"
    f"{NEW} 465f67cc55600600 00000000 06000000 776f726c6421",
    Dialect.D: f"c8000000 65000000 15000000 {ROUTE} 02000000"
    "00000000 45000000 0000000000000000 00000000 8b000000 0000000000000000"
    f"{NEW} 455f67cc55600600 00000000 05000000 0000000000000000 68656c6c6f"
    f"{NEW} 465f67cc55600600 00000000 06000000 0000000000000000 776f726c6421",
}
POLL = {
    Dialect.B: "28000000 64000000 01010401000000 02047374726d 0203746f70 01000000 03 0000000000000000"
    "0a000000 01",
    Dialect.D: "29000000 64000000 01010400000000 02047374726d 0203746f70 01 01000000 03 0000000000000000"
    "0a000000 01",
}
GET_TOPIC = "0f000000 2c010000 02047374726d 0203746f70"
OK = "0000000000000000"


def captured(frames: dict[Dialect, str], dialect: Dialect) -> bytes:
    """The dialect's own frame, or that of the one it shares the layout with."""
    shared = {Dialect.A: Dialect.B, Dialect.C: Dialect.B if Dialect.A in frames else Dialect.D}
    return bytes.fromhex(frames[dialect] if dialect in frames else frames[shared[dialect]])


def test_a_captured_conversation_is_held(tmp_path, dialect):
    first = dialect.id_base
    with LocalServer(tmp_path / "data") as fresh, ClassicClient(fresh.port, dialect) as client:

        def answer(data: bytes) -> str:
            client.raw(data)
            status, body = client.receive()
            return (struct.pack("<II", status, len(body)) + body).hex()

        assert answer(bytes.fromhex("0400000001000000")) == OK
        assert answer(captured(LOGINS, dialect)) == f"00000000040000000{first}000000"
        created = answer(captured(CREATE_STREAM, dialect))
        assert created[:24] == f"00000000250000000{first}000000"
        assert created[40:] == "00000000" + "0000000000000000" * 2 + "047374726d"
        made = answer(captured(CREATE_TOPIC, dialect))
        assert made[:24] == f"00000000860000000{first}000000"
        rest = "02000000ffffffffffffffff01ffffffffffffffff0100000000000000000000000000000000" + "03746f70"
        assert made[40 : 40 + len(rest)] == rest
        partitions = made[40 + len(rest) :]
        for number, record in enumerate((partitions[:80], partitions[80:])):
            assert record[:8] == f"0{first + number}000000"
            assert record[24:] == "01000000" + "0000000000000000" * 3
        assert answer(captured(SEND, dialect)) == OK
        client.raw(captured(POLL, dialect))
        status, body = client.receive()
        assert status == 0
        assert body[:16].hex() == "01000000" + "0100000000000000" + "02000000"
        assert body.count(b"hello") == body.count(b"world!") == 1
        # The poll committed: the consumer is 1 in A and B and 0 in C and D, the partition is number 1.
        consumer = Consumer(ConsumerKind.CONSUMER, first)
        stored = client.request(rq.GetConsumerOffset(consumer, "strm", "top", 1 - first))
        assert (stored.current_offset, stored.stored_offset) == (1, 1)
        # The partition that 1 stands for is the first one in A and B.
        counts = [p.messages_count for p in fresh.ask(rq.GetTopic("strm", "top")).partitions]
        assert counts == ([2, 0] if first else [0, 2])


# Ids


def test_ids_count_from_one_in_a_and_b_and_from_zero_in_c_and_d(server, client, dialect, modern, stream):
    modern.request(rq.CreateConsumerGroup(stream, "t", "g"))
    zero_based = modern.request(rq.GetStream(stream)).stream.id
    body = client.command(Code.GET_STREAM, bytes([2, len(stream)]) + stream.encode())
    number = struct.unpack_from("<I", body)[0]
    assert number == zero_based + dialect.id_base
    by_number = bytes([1, 4]) + struct.pack("<I", number)
    assert client.command(Code.GET_STREAM, by_number) == body
    topic_number = bytes([1, 4]) + struct.pack("<I", dialect.id_base)
    topic = client.command(Code.GET_TOPIC, by_number + topic_number)
    assert struct.unpack_from("<I", topic)[0] == dialect.id_base
    partitions = [struct.unpack_from("<I", topic, len(topic) - 40 * left)[0] for left in (3, 2, 1)]
    assert partitions == [dialect.id_base + each for each in range(3)]
    group_number = topic_number  # the first of its topic as well
    client.command(Code.JOIN_CONSUMER_GROUP, by_number + topic_number + group_number)
    group = client.command(Code.GET_CONSUMER_GROUP, by_number + topic_number + group_number)
    assert struct.unpack("<III", group[:12]) == (dialect.id_base, 3, 1)
    member = struct.unpack("<IIIII", group[14:])
    assert member == (dialect.id_base, 3, *(dialect.id_base + each for each in range(3)))
    me = client.command(Code.GET_ME)
    assert struct.unpack_from("<I", me, 4)[0] == dialect.id_base  # the root user
    assert struct.unpack("<III", me[-12:]) == (number, dialect.id_base, dialect.id_base)
    assert client.log_in() == dialect.id_base


@pytest.mark.parametrize("old", [Dialect.A, Dialect.B], ids=lambda dialect: dialect.name)
def test_zero_is_no_identifier_in_a_and_b(server, old):
    with logged_in(server.port, old) as client:
        assert client.status(Code.GET_STREAM, bytes([1, 4, 0, 0, 0, 0])) == er.InvalidIdentifier.code


# Nothing is not an error

MISSING = (
    rq.GetStream("nowhere"),
    rq.GetTopic("nowhere", "t"),
    rq.GetConsumerGroup("nowhere", "t", "g"),
    rq.GetConsumerOffset(ANYBODY, "nowhere", "t", 0),
    rq.GetUser("nobody"),
    rq.GetClient(99_999_999),
)


@pytest.mark.parametrize("request_", MISSING, ids=lambda request: type(request).__name__)
def test_what_is_missing_is_an_empty_body(client, request_):
    assert client.request(request_) is None


def test_what_is_missing_in_something_is_an_empty_body(client, stream):
    assert client.request(rq.GetTopic(stream, "nothing")) is None
    assert client.request(rq.GetConsumerGroup(stream, "t", "nothing")) is None
    assert client.request(rq.GetConsumerGroup(stream, "nothing", "g")) is None
    assert client.request(rq.GetConsumerOffset(ANYBODY, stream, "t", 0)) is None
    assert client.request(rq.GetConsumerOffset(ANYBODY, stream, "t", 99)) is None
    assert client.request(rq.GetTopics("nowhere")) == ()
    assert client.request(rq.GetConsumerGroups(stream, "t")) == ()


# System


def test_the_server_tells_about_itself(client, stream):
    client.send(stream, "t", [b"one", b"two"])
    stats = client.request(rq.GetStats())
    assert stats.process_id > 0
    assert stats.messages_count >= 2
    assert stats.total_disk_bytes >= stats.free_disk_bytes > 0
    cluster = client.request(rq.GetClusterMetadata())
    assert len(cluster.nodes) == 1
    assert cluster.nodes[0].ip == "127.0.0.1"


@pytest.mark.parametrize(
    "parts", [(SnapshotPart.ALL,), (SnapshotPart.TEST, SnapshotPart.SERVER_CONFIG)], ids=["all", "two"]
)
def test_a_snapshot_is_a_plain_archive(client, parts):
    found = client.request(rq.GetSnapshot(SnapshotCompression.DEFLATED, parts))
    with zipfile.ZipFile(io.BytesIO(found.archive)) as archive:
        assert archive.testzip() is None
        assert archive.namelist()


def test_a_snapshot_of_all_and_more_is_refused(client):
    assert client.status(Code.SNAPSHOT, bytes([1, 2, 100, 1])) == er.InvalidCommand.code


def test_clients_see_themselves_and_each_other(server, client, modern):
    me = client.request(rq.GetMe())
    assert me.client.user_id == 0
    assert me.client.address == "{}:{}".format(*client.socket.getsockname())
    assert client.request(rq.GetClient(me.client.client_id)) == me
    other = modern.request(rq.GetMe()).client
    with ClassicClient(server.port) as stranger:
        stranger.command(Code.PING)
        listed = client.request(rq.GetClients())
        assert {me.client.client_id, other.client_id} <= {each.client_id for each in listed}
        assert None in {each.user_id for each in listed}
    assert len({each.client_id for each in listed}) == len(listed)


# Streams


def test_a_streams_life(client, dialect):
    name = a_name("life")
    made = client.request(rq.CreateStream(name))
    assert made.topics == ()
    with pytest.raises(er.StreamNameAlreadyExists):
        client.request(rq.CreateStream(name))
    client.request(rq.UpdateStream(name, f"{name}-2"))
    assert client.request(rq.GetStream(name)) is None
    client.request(rq.CreateTopic(f"{name}-2", 1, "t"))
    client.send(f"{name}-2", "t", [b"x"])
    client.request(rq.StoreConsumerOffset(ANYBODY, f"{name}-2", "t", 0, 0))
    found = client.request(rq.GetStream(f"{name}-2"))
    assert (found.stream.id, found.stream.topics_count, found.stream.messages_count) == (made.stream.id, 1, 1)
    assert [topic.name for topic in found.topics] == ["t"]
    client.request(rq.PurgeStream(f"{name}-2"))
    assert client.poll(f"{name}-2", "t").messages == []
    assert client.request(rq.GetConsumerOffset(ANYBODY, f"{name}-2", "t", 0)) is None
    client.request(rq.DeleteStream(f"{name}-2"))
    assert f"{name}-2" not in {stream.name for stream in client.request(rq.GetStreams())}
    for request in (rq.DeleteStream(name), rq.PurgeStream(name), rq.UpdateStream(name, "other")):
        with pytest.raises(er.StreamIdNotFound):
            client.request(request)


# Topics, partitions and segments


def test_a_topics_life(client, stream):
    options = {
        "compression_algorithm": TypedValue(HeaderKind.STRING, b"gzip"),
        "message_expiry": expiry(10**12),
    }
    made = client.request(rq.CreateTopic(stream, 2, "kept", options))
    assert (made.topic.compression, made.topic.message_expiry_us) == (Compression.GZIP, 10**12)
    assert made.topic.max_topic_size == U64_MAX
    assert len(made.partitions) == 2
    assert client.request(rq.GetTopic(stream, "kept")) == made
    assert [topic.name for topic in client.request(rq.GetTopics(stream))] == ["t", "kept"]
    with pytest.raises(er.TopicNameAlreadyExists):
        client.request(rq.CreateTopic(stream, 1, "kept"))
    client.request(rq.UpdateTopic(stream, "kept", "renamed", {"max_topic_size": expiry(4 << 30)}))
    changed = client.request(rq.GetTopic(stream, "renamed")).topic
    assert (changed.id, changed.compression, changed.max_topic_size) == (
        made.topic.id,
        Compression.NONE,
        4 << 30,
    )
    assert changed.message_expiry_us == U64_MAX, "0 in an update is the server's default, not what was"
    client.send(stream, "renamed", [b"x"])
    client.request(rq.PurgeTopic(stream, "renamed"))
    assert client.request(rq.GetTopic(stream, "renamed")).topic.messages_count == 0
    client.request(rq.DeleteTopic(stream, "renamed"))
    for request in (
        rq.DeleteTopic(stream, "renamed"),
        rq.PurgeTopic(stream, "renamed"),
        rq.UpdateTopic(stream, "renamed", "x"),
        rq.CreatePartitions(stream, "renamed", 1),
        rq.DeleteSegments(stream, "renamed", 0, 1),
    ):
        with pytest.raises(er.TopicIdNotFound):
            client.request(request)
    with pytest.raises(er.StreamIdNotFound):
        client.request(rq.CreateTopic("nowhere", 1, "t"))


def test_topics_have_their_limits(client, stream):
    with pytest.raises(er.TooManyPartitions):
        client.request(rq.CreateTopic(stream, 1001, "many"))
    with pytest.raises(er.InvalidTopicSize):
        client.request(rq.CreateTopic(stream, 1, "small", {"max_topic_size": expiry(1000)}))
    assert client.request(rq.CreateTopic(stream, 0, "empty")).partitions == ()


def test_partitions_come_and_go_at_the_end(client, stream):
    client.request(rq.CreatePartitions(stream, "t", 2))
    assert len(client.request(rq.GetTopic(stream, "t")).partitions) == 5
    client.request(rq.DeletePartitions(stream, "t", 4))
    assert [each.id for each in client.request(rq.GetTopic(stream, "t")).partitions] == [0]
    with pytest.raises(er.InvalidPartitionsCount):
        client.request(rq.DeletePartitions(stream, "t", 2))
    for count in (0, 1001):
        with pytest.raises(er.TooManyPartitions):
            client.request(rq.CreatePartitions(stream, "t", count))


def test_a_flush_is_answered_and_the_active_segment_is_never_deleted(client, stream):
    client.send(stream, "t", [b"kept"])
    for fsync in (False, True):
        client.request(rq.FlushUnsavedBuffer(stream, "t", 0, fsync))
    client.request(rq.DeleteSegments(stream, "t", 0, 1))
    assert client.poll(stream, "t").payloads == [b"kept"]
    with pytest.raises(er.PartitionNotFound):
        client.request(rq.FlushUnsavedBuffer(stream, "t", 99, True))
    with pytest.raises(er.PartitionNotFound):
        client.request(rq.DeleteSegments(stream, "t", 99, 1))


def test_sealed_segments_are_deleted_from_the_front(tmp_path):
    settings = {"system.segment.size": "1 MiB"}
    with LocalServer(tmp_path / "data", settings) as small, logged_in(small.port) as client:
        client.request(rq.CreateStream("s"))
        client.request(rq.CreateTopic("s", 1, "t"))
        for _ in range(12):
            client.send("s", "t", [bytes(400_000)])
        (before,) = client.request(rq.GetTopic("s", "t")).partitions
        assert before.segments_count > 2
        client.request(rq.DeleteSegments("s", "t", 0, 1))
        (after,) = client.request(rq.GetTopic("s", "t")).partitions
        assert after.segments_count == before.segments_count - 1
        assert client.poll("s", "t", count=1).offsets[0] > 0
        assert after.current_offset == before.current_offset == 11


def test_a_command_that_answers_nothing_has_an_empty_body(client, stream):
    """Clients take a body that they do not expect for the next reply."""
    assert client.command(Code.CREATE_PARTITIONS, target(stream, "t") + struct.pack("<I", 1)) == b""
    assert client.command(Code.PURGE_TOPIC, target(stream, "t")) == b""
    assert client.command(Code.DELETE_STREAM, target(stream)) == b""


def target(*names: str) -> bytes:
    return b"".join(bytes([2, len(name)]) + name.encode() for name in names)


@pytest.mark.parametrize("dialect", [Dialect.A, Dialect.B])
def test_a_client_of_the_old_dialects_may_choose_the_ids_of_what_it_creates(server, dialect):
    name = f"chosen-{dialect.name}"
    wanted_id = 40 + dialect.id_base + ord(dialect.name)
    with logged_in(server.port, dialect) as client:
        made = client.request(rq.CreateStream(name, wanted_id=wanted_id))
        assert made.stream.id == wanted_id
        assert client.request(rq.CreateTopic(name, 1, "topic", wanted_id=6)).topic.id == 6
        assert client.request(rq.CreateConsumerGroup(name, 6, "group", wanted_id=8)).group.id == 8
        with pytest.raises(er.InvalidStreamId):
            client.request(rq.CreateStream(f"{name}-again", wanted_id=wanted_id))
        assert client.request(rq.CreateTopic(name, 1, "another")).topic.id == 0
