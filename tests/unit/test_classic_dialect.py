"""How the dialect of a classic client is recognised."""

import pytest

from borzoi.model import requests as rq
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from borzoi.wire.classic import codec
from borzoi.wire.classic.dialect import Dialect, DialectSniffer, dialect_of_version
from borzoi.wire.classic.messages import Send, encode_send
from borzoi.wire.commands import COMMAND_BY_REQUEST, Code, Generation

A, B, C, D = Dialect

CONSUMER = Consumer(ConsumerKind.CONSUMER, 1)
TARGETED = [
    rq.PollMessages(CONSUMER, "strm", "top", 1, PollingStrategy(PollingKind.NEXT), 10, auto_commit=True),
    rq.PollMessages(CONSUMER, 3, 4, None, PollingStrategy(PollingKind.NEXT), 10, auto_commit=True),
    rq.GetConsumerOffset(CONSUMER, "strm", "top", 1),
    rq.StoreConsumerOffset(CONSUMER, "strm", "top", 1, 5),
    rq.DeleteConsumerOffset(CONSUMER, "strm", "top", None),
]


def frame(request, dialect):
    """Code and body, as a sniffer is fed."""
    code = COMMAND_BY_REQUEST[type(request)].codes[Generation.CLASSIC]
    return code, codec.encode_request(request, dialect)


ROUTE = ("strm", "top", Partitioning(PartitioningKind.BALANCED))


def send(dialect, *, headers=b"", route=ROUTE):
    """One message, with its headers."""
    payload = b"hello"
    lengths = len(headers).to_bytes(4, "little") + len(payload).to_bytes(4, "little")
    if dialect is A:
        record = bytes(16) + lengths[:4] + headers + lengths[4:] + payload
    else:
        record = bytes(48) + lengths + bytes(dialect.message_header_bytes - 56) + payload + headers
    entry = bytes(4) + len(record).to_bytes(4, "little") + bytes(8)
    return Code.SEND_MESSAGES, encode_send(Send(*route, 1, memoryview(record), memoryview(entry)), dialect)


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("0.6.202", A),
        ("0.0.1", A),
        ("0.7.0", B),
        ("0.7", B),
        ("0.8.0", C),
        ("0.8.99", C),
        ("0.9.0", D),
        ("0.10.0", D),
        ("0.10.0-edge.2", D),
        ("0.70.0", D),
        ("1.0.0", D),
        ("1.7.0", D),
        ("", None),
        ("7", None),
        ("0.", None),
        ("v0.9.0", None),
        ("newest", None),
        ("-1.9", None),
        ("0.\u0669", None),
        ("0." + "9" * 5000, None),
    ],
)
def test_version_tells_the_dialect_by_its_first_two_numbers(version, dialect):
    assert dialect_of_version(version) is dialect


@pytest.mark.parametrize("dialect", Dialect)
def test_dialect_is_that_of_its_own_version(dialect):
    assert dialect_of_version(dialect.sdk_version) is dialect


def test_nothing_seen_is_the_default():
    sniffer = DialectSniffer()
    assert sniffer.dialect is D
    assert not sniffer.is_settled
    assert sniffer.feed(Code.PING, b"") is D
    assert DialectSniffer(C).feed(Code.PING, b"") is C


@pytest.mark.parametrize("request_", [rq.CreateStream("strm"), rq.CreateStream("s"), *TARGETED])
def test_shape_without_ids_and_flags_is_b(request_):
    assert DialectSniffer().feed(*frame(request_, B)) is B
    assert DialectSniffer().feed(*frame(request_, A)) is B


@pytest.mark.parametrize("request_", [rq.CreateStream("strm"), rq.CreateStream("s"), *TARGETED])
def test_shape_with_flags_is_d(request_):
    for dialect in (C, D):
        assert DialectSniffer().feed(*frame(request_, dialect)) is D
        assert DialectSniffer(C).feed(*frame(request_, dialect)) is C
        assert DialectSniffer(B).feed(*frame(request_, dialect)) is D


@pytest.mark.parametrize("headers", [b"", b"\2\1\0\0\0k\2\1\0\0\0v"])
@pytest.mark.parametrize(("sent", "dialect"), [(A, A), (B, B), (C, B), (D, D)])
def test_send_tells_the_dialect_by_its_header(sent, dialect, headers):
    sniffer = DialectSniffer()
    assert sniffer.feed(*send(sent, headers=headers)) is dialect
    assert sniffer.is_settled == (dialect in (A, D))


@pytest.mark.parametrize(
    "route",
    [
        (0, 0, Partitioning(PartitioningKind.PARTITION_ID, bytes(4))),
        (7, "t", Partitioning(PartitioningKind.MESSAGES_KEY, b"key")),
        ("s" * 255, "t" * 255, Partitioning(PartitioningKind.MESSAGES_KEY, b"k" * 255)),
    ],
)
def test_send_tells_the_dialect_wherever_it_goes(route):
    assert [DialectSniffer().feed(*send(sent, route=route)) for sent in Dialect] == [A, B, B, D]


def test_short_header_is_c_once_cluster_metadata_was_asked_for():
    sniffer = DialectSniffer()
    assert sniffer.feed(Code.GET_CLUSTER_METADATA, b"") is D
    assert sniffer.feed(*send(C)) is C
    assert sniffer.is_settled


def test_short_header_is_c_once_a_poll_had_a_flag():
    sniffer = DialectSniffer()
    assert sniffer.feed(*frame(TARGETED[0], C)) is D
    assert sniffer.feed(*send(C)) is C


def test_poll_with_a_flag_after_a_short_header_is_c():
    sniffer = DialectSniffer()
    assert sniffer.feed(*send(C)) is B
    assert sniffer.feed(*frame(TARGETED[0], C)) is C


def test_old_client_is_told_from_the_next_oldest_by_its_send():
    sniffer = DialectSniffer()
    assert sniffer.feed(*frame(rq.CreateStream("strm"), A)) is B
    assert sniffer.feed(*send(A)) is A


def test_shape_that_contradicts_the_earlier_ones_is_believed():
    sniffer = DialectSniffer()
    wanted_id = bytes((9, 0, 0, 0))  # the length of the body less one, so it reads as a name's length
    assert sniffer.feed(Code.CREATE_STREAM, wanted_id + b"\5orders"[:6]) is D
    assert sniffer.feed(*frame(TARGETED[0], B)) is B


@pytest.mark.parametrize("code", [Code.CREATE_STREAM, Code.SEND_MESSAGES, Code.POLL_MESSAGES])
def test_body_without_a_known_shape_says_nothing(code):
    sniffer = DialectSniffer()
    for body in (b"", b"\0", b"\7abc", bytes(40), b"\xff" * 40):
        assert sniffer.feed(code, body) is D
    assert not sniffer.is_settled


def test_send_whose_index_makes_no_sense_says_nothing():
    code, body = send(D)
    damaged = bytearray(body)
    damaged[damaged.index(b"\2\3top") + 15] ^= 1  # the first entry's end
    sniffer = DialectSniffer(B)
    assert sniffer.feed(code, damaged) is B
    assert not sniffer.is_settled
