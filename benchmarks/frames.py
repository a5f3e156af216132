"""Prebuilt request frames of the 0.9 generation, and the few exchanges a benchmark needs before it starts.

Independent of Borzoi's own codecs on purpose: a mistake there cannot cancel out here. The layout of a frame,
little-endian, every byte not named is zero:

    request   0..255  header: 48 u32 size, 60 u8 command = 5, 128 u128 client, 144 u64 xxh3 of the body,
                      168 u64 request number, 176 u8 operation, 184 u64 session, 196 u32 code (operation 2)
              256..   body
    reply     0..255  header: 48 u32 size, 216 u32 status
              256..   body; metadata operations start it with a u32 count of errors
    batch     0..255  header: 24 u64 origin time, 32 u64 length, 40 u64 checksum, 48 u32 messages
              256..   per message: u64 xxh3 of the rest, u128 id, u32 offset delta, u32 time delta,
                      u32 headers length, u32 payload length, u64 zero, payload
"""

import secrets
import socket
import struct
from collections.abc import Iterator

from xxhash import xxh3_64_intdigest

HEADER_BYTES = 256
SIZE_AT, STATUS_AT, REQUEST_AT = 48, 216, 168
FRAME_HEADER_BYTES = 48
ACKNOWLEDGEMENT_BYTES = HEADER_BYTES + 24
POLL_PREFIX_BYTES = 16

REGISTER, QUERY, CREATE_STREAM, CREATE_TOPIC, DELETE_TOPIC, SEND = 1, 2, 128, 132, 134, 160
POLL_CODE = 100
PROTOCOL_VERSION = 0x2C00
RECEIVE_TIMEOUT_S = 20

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


class BrokenServerError(Exception):
    """The server answered something that makes a measurement meaningless."""


def dial(port: int) -> socket.socket:
    """A blocking connection; the receive timeout is the kernel's, so the calls stay plain blocking calls."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", RECEIVE_TIMEOUT_S, 0))
    return connection


def receive(connection: socket.socket, view: memoryview) -> int:
    """Receives one reply into `view` and returns its size; on a lock-step connection nothing follows."""
    received = connection.recv_into(view)
    while received < HEADER_BYTES or received < U32.unpack_from(view, SIZE_AT)[0]:
        got = connection.recv_into(view[received:])
        if got == 0:
            raise BrokenServerError("the server closed the connection")
        received += got
    return received


class Session:
    """A logged-in connection that can ask for things and build frames in its own name."""

    def __init__(self, port: int) -> None:
        self.connection = dial(port)
        self._client = secrets.token_bytes(16)
        self._session = 0
        self._number = 0
        self._reply = memoryview(bytearray(1 << 20))
        version = U32.pack(PROTOCOL_VERSION) + _name("benchmark") + _name("0.11.0")
        reply = self.ask(REGISTER, version + _name("iggy") + _name("iggy") + U32.pack(0))
        self._session = U64.unpack_from(reply, 8)[0]
        self._number = 1

    def ask(self, operation: int, body: bytes) -> bytes:
        self.connection.sendall(self.frame(operation, body))
        if operation != QUERY:
            self._number += 1
        size = receive(self.connection, self._reply)
        status = U32.unpack_from(self._reply, STATUS_AT)[0]
        reply = bytes(self._reply[HEADER_BYTES:size])
        if status != 0 or reply[:4] != bytes(4):
            raise BrokenServerError(f"operation {operation}: status {status}, answer {reply[:12].hex()}")
        return reply

    def frame(self, operation: int, body: bytes, code: int = 0) -> bytearray:
        header = bytearray(HEADER_BYTES)
        U32.pack_into(header, SIZE_AT, HEADER_BYTES + len(body))
        header[60] = 5
        header[128:144] = self._client
        if operation not in {QUERY, SEND}:
            U64.pack_into(header, 144, xxh3_64_intdigest(body))
        U64.pack_into(header, REQUEST_AT, self._number)
        header[176] = operation
        U64.pack_into(header, 184, self._session)
        U32.pack_into(header, 196, code)
        return header + body

    def create_stream(self, stream: str) -> None:
        self.ask(CREATE_STREAM, _name(stream))

    def create_topic(self, stream: str, topic: str, partitions: int) -> None:
        self.ask(CREATE_TOPIC, _identifier(stream) + U32.pack(partitions) + _name(topic))

    def delete_topic(self, stream: str, topic: str) -> None:
        self.ask(DELETE_TOPIC, _identifier(stream) + _identifier(topic))

    def send_frame(self, stream: str, topic: str, partition: int, batch: bytes) -> bytearray:
        count = batch[48:52]
        routing = _identifier(stream) + _identifier(topic) + struct.pack("<BBI", 2, 4, partition) + count
        return self.frame(SEND, U32.pack(len(routing)) + routing + batch)

    def poll_frame(self, stream: str, topic: str, partition: int, offset: int, count: int) -> bytearray:
        target = b"\x01" + _identifier("reader") + _identifier(stream) + _identifier(topic)
        choice = struct.pack("<BIBQIB", 1, partition, 1, offset, count, 0)
        return self.frame(QUERY, target + choice, POLL_CODE)


def build_batch(messages: int, payload_bytes: int, *, base_offset: int = 0) -> bytes:
    """A complete batch with right checksums; a producer leaves the offset 0."""
    frames = list(_frames(messages, payload_bytes))
    header = bytearray(HEADER_BYTES)
    length = HEADER_BYTES + sum(map(len, frames))
    struct.pack_into("<QQQQQ", header, 0, 0, base_offset, 0, 1_700_000_000_000_000, length)
    U32.pack_into(header, 48, messages)
    covered = bytes(header[:40]) + bytes(header[48:52]) + b"".join(frame[:8] for frame in frames)
    U64.pack_into(header, 40, xxh3_64_intdigest(covered))
    return bytes(header) + b"".join(frames)


def _frames(messages: int, payload_bytes: int) -> Iterator[bytes]:
    payload = secrets.token_bytes(payload_bytes)
    for index in range(messages):
        fields = struct.pack("<IIIIQ", index, 0, 0, payload_bytes, 0)
        rest = secrets.token_bytes(16) + fields + payload
        yield U64.pack(xxh3_64_intdigest(rest)) + rest


def _name(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _identifier(text: str) -> bytes:
    return b"\x02" + _name(text)
