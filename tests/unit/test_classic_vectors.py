"""Requests captured from the official clients 0.4.0 to 0.8.0, and replies that they accepted."""

import pytest

from borzoi.model import replies as rp
from borzoi.model import requests as rq
from borzoi.model import values as vl
from borzoi.model.limits import U64_MAX
from borzoi.wire.classic import codec, messages, users
from borzoi.wire.classic.dialect import Dialect, DialectSniffer, dialect_of_version
from borzoi.wire.classic.frames import HEADER_BYTES, frame_size, pack_reply, pack_request, request_code
from borzoi.wire.commands import Code

A, B, C, D = Dialect
GROUP_G1 = vl.Consumer(vl.ConsumerKind.GROUP, "g1")
NONE = vl.TypedValue(vl.HeaderKind.STRING, b"none")
NEVER = vl.TypedValue(vl.HeaderKind.UINT64, U64_MAX.to_bytes(8, "little"))
TOP = rq.CreateTopic("strm", 2, "top", {"compression_algorithm": NONE})
TOP_FOR_EVER = rq.CreateTopic("strm", 2, "top", {"compression_algorithm": NONE, "message_expiry": NEVER})


def plain(id_):
    return vl.Consumer(vl.ConsumerKind.CONSUMER, id_)


def strategy(kind, value=0):
    return vl.PollingStrategy(kind, value)


FIRST, NEXT = strategy(vl.PollingKind.FIRST), strategy(vl.PollingKind.NEXT)
SINCE = strategy(vl.PollingKind.TIMESTAMP, 1_700_000_000_000_000)

REQUESTS = {
    "ping": ([A, B, C, D], "0400000001000000", rq.Ping()),
    "cluster metadata": ([C, D], "040000000c000000", rq.GetClusterMetadata()),
    "create stream with id": ([A, B], "0d000000 ca000000 00000000 047374726d", rq.CreateStream("strm")),
    "create stream": ([C, D], "09000000 ca000000 047374726d", rq.CreateStream("strm")),
    "get stream by name": ([A, B, C, D], "0a000000 c8000000 02047374726d", rq.GetStream("strm")),
    "get stream by id": ([C, D], "0a000000 c8000000 010400000000", rq.GetStream(0)),
    "create topic with id": (
        [A, B],
        "28000000 2e010000 02047374726d 00000000 02000000 01 ffffffffffffffff 0000000000000000 00 03746f70",
        TOP_FOR_EVER,
    ),
    "create topic for ever": (
        [C, D],
        "24000000 2e010000 02047374726d 02000000 01 ffffffffffffffff 0000000000000000 00 03746f70",
        TOP_FOR_EVER,
    ),
    "create topic": (
        [C, D],
        "24000000 2e010000 02047374726d 02000000 01 0000000000000000 0000000000000000 00 03746f70",
        TOP,
    ),
    "get topic": ([A, B, C, D], "0f000000 2c010000 02047374726d 0203746f70", rq.GetTopic("strm", "top")),
    "poll without a flag": (
        [A, B],
        "28000000 64000000 01010401000000 02047374726d 0203746f7001000000 03 0000000000000000 0a000000 01",
        rq.PollMessages(plain(1), "strm", "top", 0, FIRST, 10, auto_commit=True),
    ),
    "poll": (
        [C, D],
        "29000000 64000000 01010400000000 02047374726d 0203746f7001 01000000 03 0000000000000000 0a000000 01",
        rq.PollMessages(plain(0), "strm", "top", 1, FIRST, 10, auto_commit=True),
    ),
    "poll by time": (
        [C, D],
        "29000000 64000000 01010400000000 02047374726d 0203746f7001 01000000 02 00401e18240a0600 0a000000 00",
        rq.PollMessages(plain(0), "strm", "top", 1, SINCE, 10, auto_commit=False),
    ),
    "group poll without a flag": (
        [A, B],
        (
            "31000000 64000000 02 02026731 0209736361336263323837 0209746361336263323837"
            "00000000 05 0000000000000000 05000000 00"
        ),
        rq.PollMessages(GROUP_G1, "sca3bc287", "tca3bc287", None, NEXT, 5, auto_commit=False),
    ),
    "group poll": (
        [C, D],
        (
            "32000000 64000000 02 02026731 0209733530626636373730 0209743530626636373730"
            "00 00000000 05 0000000000000000 05000000 00"
        ),
        rq.PollMessages(GROUP_G1, "s50bf6770", "t50bf6770", None, NEXT, 5, auto_commit=False),
    ),
    "store offset without a flag": (
        [A, B],
        (
            "2b000000 79000000 02 02026731 0209736361336263323837 0209746361336263323837"
            "02000000 0300000000000000"
        ),
        rq.StoreConsumerOffset(GROUP_G1, "sca3bc287", "tca3bc287", 1, 3),
    ),
    "store offset": (
        [C, D],
        (
            "2c000000 79000000 02 02026731 0209736162366164343562 0209746162366164343562"
            "01 02000000 0300000000000000"
        ),
        rq.StoreConsumerOffset(GROUP_G1, "sab6ad45b", "tab6ad45b", 2, 3),
    ),
    "delete offset without a flag": (
        [A, B],
        "23000000 7a000000 02 02026731 0209736361336263323837 0209746361336263323837 03000000",
        rq.DeleteConsumerOffset(GROUP_G1, "sca3bc287", "tca3bc287", 2),
    ),
    "delete offset": (
        [C, D],
        "24000000 7a000000 02 02026731 0209736162366164343562 0209746162366164343562 01 02000000",
        rq.DeleteConsumerOffset(GROUP_G1, "sab6ad45b", "tab6ad45b", 2),
    ),
    "create group with id": (
        [A, B],
        "21000000 5a020000 0209736361336263323837 0209746361336263323837 00000000 026731",
        rq.CreateConsumerGroup("sca3bc287", "tca3bc287", "g1"),
    ),
    "join group": (
        [A, B, C, D],
        "1e000000 5c020000 0209736361336263323837 0209746361336263323837 02026731",
        rq.JoinConsumerGroup("sca3bc287", "tca3bc287", "g1"),
    ),
    "token login": (
        [A, B, C, D],
        "35000000 2c000000 30" + b"token".ljust(48, b"!").hex(),
        rq.LoginWithToken("token".ljust(48, "!")),
    ),
}


def body_of(frame):
    assert frame_size(frame, 0, len(frame)) == len(frame)
    return memoryview(frame)[HEADER_BYTES:]


def framed(code, body):
    return pack_request(code, len(body)) + body


@pytest.mark.parametrize(
    ("dialect", "capture", "request_"),
    [
        pytest.param(dialect, bytes.fromhex(capture), request, id=f"{name}, {dialect.name}")
        for name, (dialects, capture, request) in REQUESTS.items()
        for dialect in dialects
    ],
)
def test_captured_request_is_understood_and_encoded_to_the_same_bytes(dialect, capture, request_):
    code = Code(request_code(capture))
    assert codec.decode_request(code, body_of(capture), dialect) == request_
    if code is Code.POLL_MESSAGES:
        assert messages.decode_poll(body_of(capture), dialect) == request_
    assert framed(code, codec.encode_request(request_, dialect)) == capture


@pytest.mark.parametrize(
    ("capture", "version", "dialect"),
    [
        ("1d000000 26000000 0469676779 0469676779 07000000 302e362e323032 00000000", "0.6.202", A),
        ("1b000000 26000000 0469676779 0469676779 05000000 302e372e30 00000000", "0.7.0", B),
        ("1b000000 26000000 0469676779 0469676779 05000000 302e382e30 00000000", "0.8.0", C),
        ("1b000000 26000000 0469676779 0469676779 05000000 302e392e30 00000000", "0.9.0", D),
        ("1c000000 26000000 0469676779 0469676779 06000000 302e31302e30 00000000", "0.10.0", D),
    ],
)
def test_captured_login_tells_the_dialect(capture, version, dialect):
    frame = bytes.fromhex(capture)
    login, told = users.decode_login(body_of(frame))
    assert (login, told) == (rq.LoginUser("iggy", "iggy"), version)
    assert dialect_of_version(told) is dialect
    assert framed(Code.LOGIN_USER, users.encode_login(login, told)) == frame
    assert codec.decode_request(Code.LOGIN_USER, body_of(frame), dialect) == login
    if version == dialect.sdk_version:
        assert framed(Code.LOGIN_USER, codec.encode_request(login, dialect)) == frame


@pytest.mark.parametrize("end", ["", "00000000", "0000000000000000"])
def test_login_may_tell_no_version(end):
    login = users.decode_login(bytes.fromhex("0469676779 0469676779" + end))
    assert login == (rq.LoginUser("iggy", "iggy"), None)


ID_AND_OFFSETS = bytes(40)
SEND_D = bytes.fromhex(
    "c8000000 65000000  15000000 02047374726d 0203746f70 020401000000 02000000"
    "00000000 45000000 0000000000000000   00000000 8b000000 0000000000000000"
    + ID_AND_OFFSETS.hex()
    + "455f67cc55600600 00000000 05000000 0000000000000000 68656c6c6f"
    + ID_AND_OFFSETS.hex()
    + "465f67cc55600600 00000000 06000000 0000000000000000 776f726c6421"
)
SEND_BC = bytes.fromhex(
    "b8000000 65000000  15000000 02047374726d 0203746f70 020401000000 02000000"
    "00000000 3d000000 0000000000000000   00000000 7b000000 0000000000000000"
    + ID_AND_OFFSETS.hex()
    + "455f67cc55600600 00000000 05000000 68656c6c6f"
    + ID_AND_OFFSETS.hex()
    + "465f67cc55600600 00000000 06000000 776f726c6421"
)
SEND_A = bytes.fromhex(
    "50000000 65000000 02047374726d 0203746f70 020401000000"
    "00000000000000000000000000000000 00000000 05000000 68656c6c6f"
    "00000000000000000000000000000000 00000000 06000000 776f726c6421"
)
SEND_WITH_HEADERS = bytes.fromhex(
    "e3000000 65000000 14000000 0209726177343661623735 020174 0100 02000000"
    "00000000 64000000 0000000000000000  00000000 a7000000 0000000000000000"
    + ID_AND_OFFSETS.hex()
    + "00401e18240a0600 21000000 03000000 0000000000000000"
    "6f6e65  02 02000000 6b31 02 02000000 7631  02 01000000 6e 0c 08000000 0700000000000000"
    "0000000000000000 05000000000000000000000000000000 0000000000000000 0000000000000000"
    "01401e18240a0600 00000000 03000000 0000000000000000 74776f"
)


def partition(id_):
    return vl.Partitioning(vl.PartitioningKind.PARTITION_ID, id_.to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("frame", "dialect", "route", "count", "messages_bytes"),
    [
        (SEND_A, A, ("strm", "top", partition(0)), None, 59),
        (SEND_BC, B, ("strm", "top", partition(0)), 2, 123),
        (SEND_BC, C, ("strm", "top", partition(1)), 2, 123),
        (SEND_D, D, ("strm", "top", partition(1)), 2, 139),
        (
            SEND_WITH_HEADERS,
            D,
            ("raw46ab75", "t", vl.Partitioning(vl.PartitioningKind.BALANCED)),
            2,
            167,
        ),
    ],
)
def test_captured_send_is_taken_apart_and_put_together(frame, dialect, route, count, messages_bytes):
    send = messages.decode_send(body_of(frame), dialect)
    assert send[:3] == route
    assert send.messages_count == count
    assert len(send.messages) == messages_bytes
    assert send.messages == frame[-messages_bytes:]
    if count is None:
        assert send.index_entries is None
    else:
        assert len(send.index_entries) == 16 * count
        last_end = int.from_bytes(send.index_entries[-12:-8], "little")
        assert last_end == messages_bytes
    assert framed(Code.SEND_MESSAGES, messages.encode_send(send, dialect)) == frame


@pytest.mark.parametrize(
    ("frame", "dialect"), [(SEND_A, A), (SEND_BC, B), (SEND_D, D), (SEND_WITH_HEADERS, D)]
)
def test_captured_send_tells_the_dialect(frame, dialect):
    assert DialectSniffer().feed(Code.SEND_MESSAGES, body_of(frame)) is dialect


def test_captured_poll_reply_is_taken_apart():
    body = bytes.fromhex("00000000 0500000000000000 06000000 110f17cde5119530")
    assert messages.decode_poll_reply(body, D) == (0, 5, 6, bytes.fromhex("110f17cde5119530"))
    assert messages.poll_reply_prefix(0, 5, 6, D) == body[:16]


TOPIC = rp.TopicInfo(
    0, 0x0006_6055_FA0B_8C0C, 2, U64_MAX, vl.Compression.NONE, U64_MAX, 0, 0, "top"
)  # fmt: skip
PARTITIONS = (
    rp.PartitionInfo(0, 0x0006_6055_FA0B_8C10, 1, 0, 0, 0),
    rp.PartitionInfo(1, 0x0006_6055_FA0B_8C13, 1, 0, 0, 0),
)
ME = rp.ClientDetails(rp.ClientInfo(7, 0, vl.Transport.TCP, "127.0.0.1:54726", 1), (rp.ClientGroup(3, 0, 0),))
NODE = rp.ClusterNode("iggy-node", "127.0.0.1", 18190, 0, 0, 0)

REPLIES = {
    "empty": (Code.PING, "0000000000000000", None),
    "login": (Code.LOGIN_USER, "00000000 04000000 00000000", rp.LoggedIn(0)),
    "stream": (
        Code.CREATE_STREAM,
        "00000000 26000000 03000000 8f8b0bfa55600600 00000000 0000000000000000 0000000000000000 057639613166",
        rp.StreamDetails(rp.StreamInfo(3, 0x0006_6055_FA0B_8B8F, 0, 0, 0, "v9a1f"), ()),
    ),
    "topic": (
        Code.CREATE_TOPIC,
        (
            "00000000 86000000 00000000 0c8c0bfa55600600 02000000 ffffffffffffffff 01 ffffffffffffffff 01"
            "0000000000000000 0000000000000000 03746f70"
            "00000000 108c0bfa55600600 01000000 0000000000000000 0000000000000000 0000000000000000"
            "01000000 138c0bfa55600600 01000000 0000000000000000 0000000000000000 0000000000000000"
        ),
        rp.TopicDetails(TOPIC, PARTITIONS),
    ),
    "created group": (
        Code.CREATE_CONSUMER_GROUP,
        "00000000 10000000 00000000 02000000 00000000 03677270",
        rp.GroupDetails(rp.GroupInfo(0, 2, 0, "grp"), ()),
    ),
    "group with a member": (
        Code.GET_CONSUMER_GROUP,
        "00000000 20000000 00000000 02000000 01000000 03677270  00000000 02000000 00000000 01000000",
        rp.GroupDetails(rp.GroupInfo(0, 2, 1, "grp"), (rp.GroupMember(0, (0, 1)),)),
    ),
    "offset": (
        Code.GET_CONSUMER_OFFSET,
        "00000000 14000000 01000000 0000000000000000 0300000000000000",
        rp.ConsumerOffset(1, 0, 3),
    ),
    "me": (
        Code.GET_ME,
        (
            "00000000 2c000000 07000000 00000000 01 0f000000 3132372e302e302e313a3534373236"
            "01000000 03000000 00000000 00000000"
        ),
        ME,
    ),
    "cluster": (
        Code.GET_CLUSTER_METADATA,
        (
            "00000000 3a000000 0e000000 73696e676c652d636c7573746572 01000000 09000000 696767792d6e6f6465"
            "09000000 3132372e302e302e31 0e47 0000 0000 0000 00 00"
        ),
        rp.ClusterMetadata("single-cluster", (NODE,)),
    ),
}


@pytest.mark.parametrize("dialect", [C, D])
@pytest.mark.parametrize("name", REPLIES)
def test_reply_is_encoded_as_clients_accept_it(name, dialect):
    code, accepted, reply = REPLIES[name]
    body = codec.encode_reply(code, reply, dialect)
    assert pack_reply(0, len(body)) + body == bytes.fromhex(accepted)
    assert codec.decode_reply(code, body, dialect) == reply


@pytest.mark.parametrize("dialect", [C, D])
def test_empty_poll_still_has_its_sixteen_bytes(dialect):
    body = messages.poll_reply_prefix(0, 0, 0, dialect)
    assert pack_reply(0, len(body)) + body == bytes.fromhex(
        "00000000 10000000 00000000 0000000000000000 00000000"
    )


def test_error_is_a_header_alone():
    assert pack_reply(1012) == bytes.fromhex("f403000000000000")
