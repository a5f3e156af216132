"""Sends, polls and consumer offsets of classic clients: every dialect, and each read by every other.

`support.classic_wire` packs and reads messages by itself, so what is compared here went through the server's
translation once in each direction.
"""

import itertools
import struct
import time
import zlib

import pytest
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from borzoi.model import errors as er
from borzoi.model import requests as rq
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    HeaderKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
)
from borzoi.wire.batch import NewMessage, build, frames, split
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.commands import Code
from support.classic_wire import BALANCED, Message, by_key, logged_in, pack_message, user_headers
from support.in_process import LocalServer, numbered, poll_request
from support.wire_client import WireClient

NUMBERS = itertools.count()
READER = Consumer(ConsumerKind.CONSUMER, 7)
SENDERS = {dialect: dialect.name for dialect in Dialect}


def counts(server, stream):
    return [each.messages_count for each in server.ask(rq.GetTopic(stream, "t")).partitions]


# Where messages go


def test_balanced_sends_go_round_once_per_request(server, client, stream):
    for number in range(4):
        client.send(stream, "t", [b"%d" % number] * (number + 1), BALANCED)
    assert counts(server, stream) == [1 + 4, 2, 3]


@pytest.mark.parametrize("key", [b"a", b"key", b"order-1", b"user_123", b"\x00\xff", bytes(255)])
def test_a_key_decides_the_partition(server, client, stream, key):
    for _ in range(2):
        client.send(stream, "t", [b"x"], by_key(key))
    expected = [0, 0, 0]
    expected[xxh32_intdigest(key) % 3] = 2
    assert counts(server, stream) == expected


def test_the_key_hash_is_that_of_the_specification():
    assert [xxh32_intdigest(key) for key in (b"a", b"key", b"order-1")] == [
        1426945110,
        3017358048,
        3255428072,
    ]


def test_sends_name_what_is_missing(server, client, stream):
    server.ask(rq.CreateTopic(stream, 0, "empty"))
    with pytest.raises(er.StreamIdNotFound):
        client.send("nowhere", "t", [b"x"])
    with pytest.raises(er.TopicIdNotFound):
        client.send(stream, "nothing", [b"x"])
    with pytest.raises(er.PartitionNotFound):
        client.send(stream, "t", [b"x"], 3)
    with pytest.raises(er.PartitionNotFound):
        client.send(stream, "empty", [b"x"], 0)
    with pytest.raises(er.TopicIdNotFound):
        client.send(stream, "empty", [b"x"], BALANCED)


def test_a_stranger_learns_nothing_about_partitions(server, stream, dialect):
    name = f"stranger-{next(NUMBERS)}"
    server.add_user(name)
    with logged_in(server.port, dialect) as client:
        client.log_in(name, "secret")
        for partition in (0, 99):
            with pytest.raises(er.Unauthorized):
                client.send(stream, "t", [b"x"], partition)
            with pytest.raises(er.Unauthorized):
                client.poll(stream, "t", partition=partition)
        with pytest.raises(er.Unauthorized):
            client.poll(stream, "t", partition=None, group="nothing")


# What is read back


def test_a_polled_message_is_whole(client, stream, dialect):
    before_us = time.time_ns() // 1000
    origin_us = 1_700_000_000_000_000
    headers = user_headers(dialect, [("k1", HeaderKind.STRING, b"v1"), ("n", HeaderKind.UINT64, bytes(8))])
    client.send(
        stream,
        "t",
        [Message(b"one", 0, headers, origin_us), Message(b"two", 2**100 + 5, b"", origin_us + 1)],
    )
    after_us = time.time_ns() // 1000
    polled = client.poll(stream, "t")
    assert (polled.partition_id, polled.current_offset) == (dialect.id_base, 1)
    one, two = polled.messages
    assert (one.payload, one.headers, one.offset) == (b"one", headers, 0)
    assert (two.payload, two.headers, two.offset) == (b"two", b"", 1)
    assert one.id != 0
    assert two.id == 2**100 + 5
    assert before_us <= one.timestamp_us == two.timestamp_us <= after_us
    if dialect is Dialect.A:
        assert (one.checksum, two.checksum) == (zlib.crc32(b"one"), zlib.crc32(b"two"))
    else:
        assert (one.origin_us, two.origin_us) == (origin_us, origin_us + 1)
        for message in (one, two):
            record = bytearray(pack_message(message, dialect))
            struct.pack_into("<QQ", record, 24, message.offset, message.timestamp_us)
            assert message.checksum == xxh3_64_intdigest(bytes(record[8:]))


def test_ids_that_the_server_gives_are_version_four_and_all_different(client, stream):
    client.send(stream, "t", [b"x"] * 100)
    ids = {message.id for message in client.poll(stream, "t").messages}
    assert len(ids) == 100
    assert {number >> 76 & 0xF for number in ids} == {4}


PAYLOADS = [b"x", "grüße".encode(), bytes(range(256)), bytes(1_000_000), b"same" * 25]
HEADERS = [
    ("k1", HeaderKind.STRING, b"v1"),
    ("raw", HeaderKind.RAW, bytes(range(32))),
    ("yes", HeaderKind.BOOL, b"\1"),
    ("small", HeaderKind.INT8, b"\xff"),
    ("large", HeaderKind.UINT128, bytes(range(16))),
    ("ratio", HeaderKind.FLOAT64, struct.pack("<d", 0.5)),
    ("grüße", HeaderKind.STRING, b"x" * 255),
]


@pytest.mark.parametrize("count", [1, 5, 100], ids=["one", "few", "many"])
@pytest.mark.parametrize("has_headers", [False, True], ids=["plain", "headers"])
@pytest.mark.parametrize("sender", Dialect, ids=lambda dialect: f"from {dialect.name}")
def test_every_dialect_reads_what_any_other_sent(server, stream, sender, has_headers, count):
    chosen = HEADERS if has_headers else []
    sent_headers = user_headers(sender, chosen)
    payloads = [PAYLOADS[number % 3 if count > 5 else number] for number in range(count)]
    with logged_in(server.port, sender) as client:
        client.send(
            stream,
            "t",
            [Message(each, number + 1, sent_headers, 5 + number) for number, each in enumerate(payloads)],
        )
    for reader in Dialect:
        with logged_in(server.port, reader) as client:
            polled = client.poll(stream, "t")
        assert polled.payloads == payloads
        assert [message.id for message in polled.messages] == list(range(1, count + 1))
        assert {message.headers for message in polled.messages} == {user_headers(reader, chosen)}
        if Dialect.A not in (sender, reader):
            assert [message.origin_us for message in polled.messages] == [5 + each for each in range(count)]
    with WireClient(server.port) as vsr:
        vsr.register()
        reply = vsr.request(poll_request(stream, "t"))
        assert [payload for _, payload in numbered(reply)] == payloads
        stored = [frame for batch in split(memoryview(b"".join(reply.batches))) for frame in frames(batch)]
        assert {bytes(frame.user_headers) for frame in stored} == {user_headers(Dialect.D, chosen)}


def test_every_dialect_reads_what_a_vsr_client_sent(server, stream):
    typed = user_headers(Dialect.D, HEADERS)
    # Older clients have no way to say that a key is no string.
    numeric_key = (
        bytes([HeaderKind.UINT8]) + struct.pack("<I", 1) + b"\x07" + bytes([2]) + struct.pack("<I", 1)
    )
    batch = build(
        [NewMessage(b"one", id=1, user_headers=typed + numeric_key + b"v"), NewMessage(b"two", id=2)]
    )
    with WireClient(server.port) as vsr:
        vsr.register()
        partition = Partitioning(PartitioningKind.PARTITION_ID, bytes(4))
        vsr.request(rq.SendMessages(stream, "t", partition, 2, batch))
    for reader in Dialect:
        with logged_in(server.port, reader) as client:
            one, two = client.poll(stream, "t").messages
        assert (one.payload, one.id, two.payload, two.id) == (b"one", 1, b"two", 2)
        kept = typed + numeric_key + b"v" if reader is Dialect.D else user_headers(reader, HEADERS)
        assert (one.headers, two.headers) == (kept, b"")


def test_the_vector_with_user_headers_is_stored(server):
    name = "raw46ab75"
    server.ask(rq.CreateStream(name))
    server.ask(rq.CreateTopic(name, 1, "t"))
    new = "0000000000000000 {} 0000000000000000 0000000000000000"
    body = bytes.fromhex(
        f"14000000 0209{name.encode().hex()} 020174 0100 02000000"
        "00000000 64000000 0000000000000000 00000000 a7000000 0000000000000000"
        + new.format("00" * 16)
        + "00401e18240a0600 21000000 03000000 0000000000000000"
        "6f6e65 02 02000000 6b31 02 02000000 7631 02 01000000 6e 0c 08000000 0700000000000000"
        + new.format("05" + "00" * 15)
        + "01401e18240a0600 00000000 03000000 0000000000000000 74776f"
    )
    with logged_in(server.port) as client:
        assert client.command(Code.SEND_MESSAGES, body) == b""
        one, two = client.poll(name, "t").messages
    assert one.headers == bytes.fromhex(
        "02020000006b31 02020000007631 02010000006e 0c08000000 0700000000000000"
    )
    assert (one.payload, one.origin_us) == (b"one", 1_700_000_000_000_000)
    assert (two.payload, two.id, two.origin_us) == (b"two", 5, 1_700_000_000_000_001)


# Polling


def test_the_five_strategies(client, stream):
    for number in range(3):
        client.send(stream, "t", [b"%d" % number] * 4)
    times = {message.timestamp_us for message in client.poll(stream, "t").messages}
    assert client.poll(stream, "t", kind=PollingKind.OFFSET, value=5, count=3).offsets == [5, 6, 7]
    assert client.poll(stream, "t", kind=PollingKind.OFFSET, value=12).offsets == []
    assert client.poll(stream, "t", kind=PollingKind.FIRST, count=2).offsets == [0, 1]
    assert client.poll(stream, "t", kind=PollingKind.LAST, count=5).offsets == [7, 8, 9, 10, 11]
    assert client.poll(stream, "t", kind=PollingKind.LAST, count=50).offsets == list(range(12))
    assert client.poll(stream, "t", kind=PollingKind.NEXT, count=2).offsets == [0, 1]
    assert client.poll(stream, "t", kind=PollingKind.NEXT, count=2).offsets == [0, 1]
    by_time = client.poll(stream, "t", kind=PollingKind.TIMESTAMP, value=max(times))
    assert by_time.offsets == [8, 9, 10, 11]
    assert client.poll(stream, "t", kind=PollingKind.TIMESTAMP, value=max(times) + 1).offsets == []
    assert client.poll(stream, "t", count=0).messages == []


def test_an_empty_partition_is_an_empty_head_and_a_missing_one_an_error(client, stream, dialect):
    empty = client.poll(stream, "t", partition=1)
    assert (empty.partition_id, empty.current_offset, empty.messages) == (1 + dialect.id_base, 0, [])
    with pytest.raises(er.PartitionNotFound):
        client.poll(stream, "t", partition=3)
    with pytest.raises(er.TopicIdNotFound):
        client.poll(stream, "nothing")
    with pytest.raises(er.StreamIdNotFound):
        client.poll("nowhere", "t")


def test_a_plain_consumer_without_a_partition_reads_the_first(client, stream, dialect):
    client.send(stream, "t", [b"first"], 0)
    polled = client.poll(stream, "t", partition=None)
    assert (polled.partition_id, polled.payloads) == (dialect.id_base, [b"first"])


def test_auto_commit_is_stored_before_the_answer(server, client, stream):
    client.send(stream, "t", [b"x"] * 10)
    key = "reader"
    consumer = Consumer(ConsumerKind.CONSUMER, key)

    def stored():
        found = client.request(rq.GetConsumerOffset(consumer, stream, "t", 0))
        return None if found is None else found.stored_offset

    def poll(kind, value=0, count=3):
        return client.poll(
            stream, "t", kind=kind, value=value, count=count, consumer=key, auto_commit=True
        ).offsets

    assert poll(PollingKind.NEXT) == [0, 1, 2]
    assert stored() == 2
    assert poll(PollingKind.NEXT) == [3, 4, 5]
    assert poll(PollingKind.LAST, count=1) == [9]
    assert stored() == 9
    assert poll(PollingKind.NEXT) == []
    assert stored() == 9, "nothing was returned, so nothing is stored"
    assert poll(PollingKind.FIRST) == [0, 1, 2]
    assert stored() == 2, "what was returned is stored, also if it is a step back"
    assert poll(PollingKind.OFFSET, 4, 2) == [4, 5]
    assert poll(PollingKind.TIMESTAMP, 0, 1) == [0]
    assert poll(PollingKind.NEXT, count=50) == list(range(1, 10))


@pytest.mark.parametrize("consumer", [7, "somebody"], ids=["number", "name"])
def test_a_plain_consumer_is_the_same_in_every_dialect(server, stream, client, consumer):
    who = Consumer(ConsumerKind.CONSUMER, consumer)
    client.send(stream, "t", [b"x"] * 3)
    client.request(rq.StoreConsumerOffset(who, stream, "t", 0, 1))
    for reader in Dialect:
        with logged_in(server.port, reader) as other:
            assert other.request(rq.GetConsumerOffset(who, stream, "t", 0)).stored_offset == 1
    with WireClient(server.port) as vsr:
        vsr.register()
        assert vsr.request(rq.GetConsumerOffset(who, stream, "t", 0)).stored_offset == 1


# Offsets


def test_offsets_are_stored_read_and_deleted(client, stream):
    client.send(stream, "t", [b"x"] * 4, 1)
    client.request(rq.StoreConsumerOffset(READER, stream, "t", 1, 3))
    found = client.request(rq.GetConsumerOffset(READER, stream, "t", 1))
    assert (found.partition_id, found.current_offset, found.stored_offset) == (1, 3, 3)
    client.request(rq.StoreConsumerOffset(READER, stream, "t", 1, 0))
    assert client.poll(stream, "t", partition=1, kind=PollingKind.NEXT).offsets == [1, 2, 3]
    client.request(rq.DeleteConsumerOffset(READER, stream, "t", 1))
    assert client.request(rq.GetConsumerOffset(READER, stream, "t", 1)) is None
    with pytest.raises(er.ConsumerOffsetNotFound):
        client.request(rq.DeleteConsumerOffset(READER, stream, "t", 1))


def test_offset_writes_name_what_is_wrong(client, stream):
    client.send(stream, "t", [b"x"])
    for request, error in (
        (rq.StoreConsumerOffset(READER, stream, "t", 0, 1), er.InvalidOffset),
        (rq.StoreConsumerOffset(READER, stream, "t", 1, 0), er.InvalidOffset),
        (rq.StoreConsumerOffset(READER, stream, "t", 9, 0), er.PartitionNotFound),
        (rq.StoreConsumerOffset(READER, stream, "nothing", 0, 0), er.TopicIdNotFound),
        (rq.StoreConsumerOffset(READER, "nowhere", "t", 0, 0), er.StreamIdNotFound),
        (rq.DeleteConsumerOffset(READER, stream, "t", 9), er.PartitionNotFound),
    ):
        with pytest.raises(error):
            client.request(request)


# Sends that break a rule


def replaced(body: bytes, at: int, data: bytes) -> bytes:
    return body[:at] + data + body[at + len(data) :]


INDEXED = [Dialect.B, Dialect.C, Dialect.D]


@pytest.mark.parametrize("dialect", INDEXED, indirect=True, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("count", [2, 64], ids=["few", "many"])
def test_a_broken_index_or_record_is_refused(client, stream, dialect, count):
    body = client.send_body(stream, "t", [b"payload"] * count)
    metadata = 4 + struct.unpack_from("<I", body)[0]
    count_at, index, records = metadata - 4, metadata, metadata + 16 * count
    for at, data, error in (
        (count_at, struct.pack("<I", 0), er.InvalidMessagesCount),
        (count_at, struct.pack("<I", 0xFFFF_FFFF), er.InvalidIndexesByteSize),
        (index, struct.pack("<I", 1), er.NonZeroOffset),
        (index + 8, struct.pack("<Q", 1), er.NonZeroTimestamp),
        (index + 4, struct.pack("<I", 1), er.InvalidMessagesSize),
        (records + 52, struct.pack("<I", 6), er.InvalidMessagesSize),
        (records + 52, struct.pack("<I", 0), er.InvalidMessagePayloadLength),
        (records + 52, struct.pack("<I", PAYLOAD_BYTES_MAX + 1), er.TooBigMessagePayload),
        (records + 48, struct.pack("<I", USER_HEADERS_BYTES_MAX + 1), er.TooBigUserHeaders),
    ):
        status = client.status(Code.SEND_MESSAGES, replaced(body, at, data))
        assert status == error.code, (at, data)
    # One more or one less moves everything that follows the index.
    for wrong in (count - 1, count + 1):
        assert client.status(Code.SEND_MESSAGES, replaced(body, count_at, struct.pack("<I", wrong))) != 0
    if dialect is Dialect.D:
        broken = replaced(body, records + 56, b"\1")
        assert client.status(Code.SEND_MESSAGES, broken) == er.InvalidReservedField.code
    assert client.poll(stream, "t").messages == []
    assert client.status(Code.SEND_MESSAGES, body) == 0


@pytest.mark.parametrize("kind", [2, 3])
def test_a_partitioning_without_a_value_is_refused(client, stream, kind):
    body = client.send_body(stream, "t", [b"x"], BALANCED)
    at = body.index(b"\x01\x00", len(stream))
    assert client.status(Code.SEND_MESSAGES, replaced(body, at, bytes([kind, 0]))) == (
        er.InvalidKeyValueLength.code
    )


def test_broken_user_headers_of_an_untyped_dialect_are_refused(server, stream):
    good = user_headers(Dialect.C, [("k", HeaderKind.STRING, b"v")])
    with logged_in(server.port, Dialect.C) as client:
        for broken, error in (
            (good[:-1], er.InvalidHeaderValue),
            (bytes(4) + good[4:], er.InvalidHeaderKey),
            (good[:3], er.InvalidHeaderKey),
            (good.replace(b"k", b"\xff"), er.InvalidHeaderKey),
        ):
            with pytest.raises(error):
                client.send(stream, "t", [Message(b"x", 0, broken)])
        assert client.poll(stream, "t").messages == []


def test_a_message_just_at_the_limit_is_carried(tmp_path):
    with LocalServer(tmp_path / "data") as fresh, logged_in(fresh.port) as client:
        fresh.ask(rq.CreateStream("s"))
        fresh.ask(rq.CreateTopic("s", 1, "t"))
        payload = bytes(PAYLOAD_BYTES_MAX)
        client.send("s", "t", [payload])
        with pytest.raises(er.TooBigMessagePayload):
            client.send("s", "t", [payload + b"x"])
        assert client.poll("s", "t").payloads == [payload]
