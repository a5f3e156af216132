"""A blocking client of the classic generation for tests: one frame, one reply, nothing hidden.

Bodies of commands come from `borzoi.wire.classic`; messages are packed and read here, straight from the
tables in `borzoi.wire.classic.translate`, so that a test does not compare the translation with itself. User
headers of a `Message` are in the dialect's own form: `user_headers` makes it.
"""

import socket
from collections.abc import Iterable, Sequence
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from borzoi.model.errors import error_for
from borzoi.model.requests import LoginUser, PollMessages
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    HeaderKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
)
from borzoi.wire.classic import codec
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.frames import HEADER_BYTES, pack_request, unpack_reply
from borzoi.wire.classic.ids import IDS
from borzoi.wire.classic.users import encode_login
from borzoi.wire.commands import COMMAND_BY_REQUEST, Code, Generation

HOST = "127.0.0.1"
TIMEOUT_S = 20.0

BALANCED = Partitioning(PartitioningKind.BALANCED)

_U32 = Struct("<I")
_INDEX_ENTRY = Struct("<IIQ")
_MESSAGE = Struct("<Q16sQQQII")
_OLD_SENT = Struct("<16sI")
_OLD_POLLED = Struct("<QBQ16sII")
_POLL_HEAD = Struct("<IQI")


class Message(NamedTuple):
    payload: bytes
    id: int = 0
    headers: bytes = b""
    origin_us: int = 0
    offset: int = 0
    timestamp_us: int = 0
    checksum: int = 0


class Polled(NamedTuple):
    """Numbers as they are on the wire: ids of A and B count from one."""

    partition_id: int
    current_offset: int
    messages: list[Message]

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message in self.messages]


class ClassicClient:
    def __init__(self, port: int, dialect: Dialect = Dialect.D, *, timeout_s: float = TIMEOUT_S) -> None:
        self.dialect = dialect
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Requests

    def log_in(self, username: str = "iggy", password: str = "iggy", *, version: str | None = None) -> int:
        """The user's id as it is on the wire."""
        told = self.dialect.sdk_version if version is None else version
        body = self.command(Code.LOGIN_USER, encode_login(LoginUser(username, password), told))
        user_id: int = _U32.unpack(body)[0]
        return user_id

    def log_in_with_token(self, token: str) -> None:
        self.command(Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN, bytes([len(token)]) + token.encode())

    def request(self, request: Any) -> Any:
        """The decoded reply; raises the error of the status."""
        code = COMMAND_BY_REQUEST[type(request)].codes[Generation.CLASSIC]
        body = self.command(code, codec.encode_request(request, self.dialect))
        return codec.decode_reply(code, body, self.dialect)

    def send(
        self,
        stream: Identifier,
        topic: Identifier,
        messages: Iterable[Message | bytes],
        partitioning: Partitioning | int = 0,
    ) -> None:
        self.command(Code.SEND_MESSAGES, self.send_body(stream, topic, messages, partitioning))

    def send_body(
        self,
        stream: Identifier,
        topic: Identifier,
        messages: Iterable[Message | bytes],
        partitioning: Partitioning | int = 0,
    ) -> bytes:
        ids = IDS[self.dialect]
        route = bytearray()
        ids.identifier.write(route, stream)
        ids.identifier.write(route, topic)
        ids.partitioning.write(route, to_partition(partitioning))
        records = [pack_message(each, self.dialect) for each in messages]
        if self.dialect is Dialect.A:
            return bytes(route) + b"".join(records)
        index, end = bytearray(), 0
        for record in records:
            end += len(record)
            index += _INDEX_ENTRY.pack(0, end, 0)
        metadata = bytes(route) + _U32.pack(len(records))
        return _U32.pack(len(metadata)) + metadata + bytes(index) + b"".join(records)

    def poll(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        partition: int | None = 0,
        kind: PollingKind = PollingKind.OFFSET,
        value: int = 0,
        count: int = 1000,
        auto_commit: bool = False,
        consumer: Identifier = 7,
        group: Identifier | None = None,
    ) -> Polled:
        who = Consumer(ConsumerKind.CONSUMER, consumer)
        if group is not None:
            who = Consumer(ConsumerKind.GROUP, group)
        request = PollMessages(
            who, stream, topic, partition, PollingStrategy(kind, value), count, auto_commit
        )
        body = self.command(Code.POLL_MESSAGES, codec.encode_request(request, self.dialect))
        return unpack_polled(body, self.dialect)

    # Frames

    def command(self, code: int, body: bytes = b"") -> bytes:
        """Send any body as this command; the bytes that come back, or the error."""
        self.raw(frame(code, body))
        return self.answer()

    def status(self, code: int, body: bytes = b"") -> int:
        """What the command is answered with; 0 is success."""
        self.raw(frame(code, body))
        return self.receive()[0]

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> bytes:
        status, body = self.receive()
        if status:
            raise error_for(status)("answered by the server")
        return body

    def receive(self) -> tuple[int, bytes]:
        """Status and body of the next reply; raises ConnectionError at the end of the connection."""
        head = unpack_reply(self._exactly(HEADER_BYTES))
        return head.status, self._exactly(head.body_bytes)

    def is_closed_by_server(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError(f"the server closed the connection after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)


def logged_in(port: int, dialect: Dialect = Dialect.D) -> ClassicClient:
    client = ClassicClient(port, dialect)
    try:
        client.log_in()
    except BaseException:
        client.close()
        raise
    return client


def frame(code: int, body: bytes = b"") -> bytes:
    return pack_request(code, len(body)) + body


def to_partition(partitioning: Partitioning | int) -> Partitioning:
    if isinstance(partitioning, Partitioning):
        return partitioning
    return Partitioning(PartitioningKind.PARTITION_ID, _U32.pack(partitioning))


def by_key(key: bytes) -> Partitioning:
    return Partitioning(PartitioningKind.MESSAGES_KEY, key)


def user_headers(dialect: Dialect, headers: Sequence[tuple[str, HeaderKind, bytes]]) -> bytes:
    out = bytearray()
    for key, kind, value in headers:
        if dialect is Dialect.D:
            out.append(HeaderKind.STRING)
        out += _U32.pack(len(key.encode())) + key.encode()
        out.append(kind)
        out += _U32.pack(len(value)) + value
    return bytes(out)


def pack_message(message: Message | bytes, dialect: Dialect) -> bytes:
    sent = Message(message) if isinstance(message, bytes) else message
    message_id = sent.id.to_bytes(16, "little")
    if dialect is Dialect.A:
        head = _OLD_SENT.pack(message_id, len(sent.headers))
        return head + sent.headers + _U32.pack(len(sent.payload)) + sent.payload
    head = _MESSAGE.pack(0, message_id, 0, 0, sent.origin_us, len(sent.headers), len(sent.payload))
    reserved = bytes(8) if dialect is Dialect.D else b""
    return head + reserved + sent.payload + sent.headers


def unpack_polled(body: bytes, dialect: Dialect) -> Polled:
    partition_id, current_offset, count = _POLL_HEAD.unpack_from(body)
    unpack = _unpack_old if dialect is Dialect.A else _unpack_message
    messages: list[Message] = []
    position = _POLL_HEAD.size
    while position < len(body):
        message, position = unpack(body, position, dialect)
        messages.append(message)
    if (position, len(messages)) != (len(body), count):
        raise ValueError(f"{len(messages)} of {count} messages in {position} of {len(body)} bytes")
    return Polled(partition_id, current_offset, messages)


def _unpack_message(body: bytes, position: int, dialect: Dialect) -> tuple[Message, int]:
    checksum, message_id, offset, timestamp_us, origin_us, headers, payload = _MESSAGE.unpack_from(
        body, position
    )
    start = position + _MESSAGE.size
    if dialect is Dialect.D:
        if any(body[start : start + 8]):
            raise ValueError("reserved bytes are not zero")
        start += 8
    middle = start + payload
    end = middle + headers
    number = int.from_bytes(message_id, "little")
    return (
        Message(body[start:middle], number, body[middle:end], origin_us, offset, timestamp_us, checksum),
        end,
    )


def _unpack_old(body: bytes, position: int, _: Dialect) -> tuple[Message, int]:
    offset, state, timestamp_us, message_id, checksum, headers = _OLD_POLLED.unpack_from(body, position)
    if state != 1:
        raise ValueError(f"message state {state}")
    start = position + _OLD_POLLED.size
    middle = start + headers
    (payload,) = _U32.unpack_from(body, middle)
    end = middle + _U32.size + payload
    number = int.from_bytes(message_id, "little")
    found = Message(
        body[middle + _U32.size : end], number, body[start:middle], 0, offset, timestamp_us, checksum
    )
    return found, end
