"""What any official client writes, every other one reads back equal; so do frames made by hand.

Six clients and four dialects of raw frames write into a topic each: text, bytes, a single character, a
megabyte, two hundred messages of one size and of many, and messages with user headers (from the newest client
and by hand; no older Python client can set any). Then all of them read all topics.
"""

import hashlib
import json
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from classic_messages import HEADERS, STREAM, as_bytes, batches, expected

from borzoi.model.requests import CreateStream, CreateTopic
from borzoi.model.values import HeaderKind
from borzoi.wire.classic.dialect import Dialect
from support.classic_wire import Message, logged_in, user_headers
from support.clients import OfficialClient, official_client
from support.server import ServerProcess

SCRIPT = Path(__file__).with_name("classic_exchange.py")
DEADLINE_S = 120
NEWEST = ("apache-iggy", "0.9.0")
CLIENTS = (
    ("iggy-py", "0.4.0"),
    *(("apache-iggy", version) for version in ("0.5.0", "0.6.0", "0.7.0", "0.8.0")),
    NEWEST,
)
TEXT_ONLY = {("iggy-py", "0.4.0"), ("apache-iggy", "0.5.0")}
RAW = {dialect: f"raw-{dialect.name}" for dialect in Dialect}

Digests = list[list[object]]


@pytest.mark.conformance
@pytest.mark.timeout(300)
def test_every_client_reads_what_any_other_wrote(tmp_path):
    clients = {key: official_client(*key) for key in CLIENTS}
    topics = {"-".join(key): expected(key not in TEXT_ONLY) for key in CLIENTS}
    topics["-".join(NEWEST)] += [b"with headers", b"and without"]
    topics |= {topic: [*expected(True), b"with headers"] for topic in RAW.values()}
    with ServerProcess(tmp_path / "data") as server, ThreadPoolExecutor() as threads:
        with logged_in(server.port) as root:
            root.request(CreateStream(STREAM))
        written = threads.map(lambda client: run(client, server.address, "write"), clients.values())
        assert [topic.strip() for topic in written] == ["-".join(key) for key in CLIENTS]
        for dialect in Dialect:
            write_raw(server.port, dialect)

        read = threads.map(lambda client: run(client, server.address, "read", *topics), clients.values())
        for key, output in zip(CLIENTS, read, strict=True):
            found: dict[str, Digests] = json.loads(output)
            for topic, payloads in topics.items():
                offsets_and_digests = [entry[:2] for entry in found[topic]]
                assert offsets_and_digests == digests(payloads), f"{key} reads {topic}"
                if key == NEWEST:
                    assert headers_by_payload(payloads, found[topic]) == headers_expected(topic), topic
        for dialect in Dialect:
            read_raw(server.port, dialect, topics)


def run(client: OfficialClient, address: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(client.python), str(SCRIPT), address, *arguments],
        env=client.environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{client} {arguments}:\n{done.stdout[-2000:]}{done.stderr}"
    return done.stdout


def digests(payloads: list[bytes]) -> Digests:
    return [[offset, hashlib.sha256(payload).hexdigest()] for offset, payload in enumerate(payloads)]


def headers_by_payload(payloads: list[bytes], found: Digests) -> dict[bytes, object]:
    return {payload: entry[2] for payload, entry in zip(payloads, found, strict=True) if entry[2] is not None}


def headers_expected(topic: str) -> dict[bytes, object]:
    has_headers = topic == "-".join(NEWEST) or topic in RAW.values()
    return {b"with headers": HEADERS} if has_headers else {}


def raw_headers(dialect: Dialect) -> bytes:
    """The same headers, as a client of this dialect would have them."""
    packed = {
        str: lambda value: (HeaderKind.STRING, value.encode()),
        bool: lambda value: (HeaderKind.BOOL, bytes([value])),
        int: lambda value: (HeaderKind.INT64, struct.pack("<q", value)),
        float: lambda value: (HeaderKind.FLOAT64, struct.pack("<d", value)),
    }
    return user_headers(dialect, [(key, *packed[type(value)](value)) for key, value in HEADERS.items()])


def write_raw(port: int, dialect: Dialect) -> None:
    with logged_in(port, dialect) as client:
        client.request(CreateTopic(STREAM, 1, RAW[dialect]))
        for batch in batches(has_bytes=True):
            client.send(STREAM, RAW[dialect], [as_bytes(payload) for payload in batch])
        client.send(STREAM, RAW[dialect], [Message(b"with headers", 0, raw_headers(dialect))])


def read_raw(port: int, dialect: Dialect, topics: dict[str, list[bytes]]) -> None:
    with logged_in(port, dialect) as client:
        for topic, payloads in topics.items():
            polled = client.poll(STREAM, topic)
            assert polled.payloads == payloads, f"dialect {dialect.name} reads {topic}"
            headers = {message.payload: message.headers for message in polled.messages if message.headers}
            assert decoded(headers.get(b"with headers", b""), dialect) == (
                headers_expected(topic).get(b"with headers", {})
            ), f"dialect {dialect.name} reads the headers of {topic}"


def decoded(block: bytes, dialect: Dialect) -> dict[str, object]:
    """Keys and values of a block of user headers."""
    found: dict[str, object] = {}
    position = 0

    def field() -> bytes:
        nonlocal position
        (size,) = struct.unpack_from("<I", block, position)
        position += 4 + size
        return block[position - size : position]

    while position < len(block):
        if dialect is Dialect.D:
            assert block[position] == HeaderKind.STRING
            position += 1
        key = field().decode()
        kind = HeaderKind(block[position])
        position += 1
        value = field()
        match kind:
            case HeaderKind.STRING:
                found[key] = value.decode()
            case HeaderKind.BOOL:
                found[key] = value == b"\1"
            case HeaderKind.FLOAT32 | HeaderKind.FLOAT64:
                (found[key],) = struct.unpack("<f" if len(value) == 4 else "<d", value)
            case _:
                found[key] = int.from_bytes(value, "little", signed=True)
    return found
