"""A blocking vsr client for tests, built on `borzoi.wire`: one request, one reply, nothing hidden.

It does what the official client does on the wire (numbers requests, echoes its session, sends checksums)
and lets a test do it wrong: `number`, `session` and `checksum` can be given, `raw` sends any bytes. It does
not reconnect, retry or keep anything alive.
"""

import socket
import ssl
import uuid
from types import TracebackType
from typing import Any, NamedTuple, Self

from xxhash import xxh3_64_intdigest

from borzoi.model.errors import error_for
from borzoi.model.requests import LoginUser, LoginWithToken
from borzoi.wire.commands import COMMAND_BY_REQUEST, Code, Generation
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.frames import (
    COMMAND_EVICTION,
    COMMAND_REPLY,
    HEADER_BYTES,
    EvictionReason,
    ReplyHeader,
    pack_request,
    unpack_eviction,
    unpack_reply,
)
from borzoi.wire.vsr.login import (
    PROTOCOL_VERSION,
    ClientVersion,
    Register,
    RegisterReply,
    decode_register_reply,
    encode_register,
)
from borzoi.wire.vsr.operations import OPERATION_BY_CODE, Operation, is_result_framed

HOST = "127.0.0.1"
TIMEOUT_S = 20.0


class Evicted(Exception):  # noqa: N818 - the protocol calls it an eviction
    """The server ended the session, or refused to begin one."""

    def __init__(self, reason: EvictionReason, version_max: int, version_min: int) -> None:
        super().__init__(reason.name)
        self.reason = reason
        self.version_max = version_max
        self.version_min = version_min


class Reply(NamedTuple):
    header: ReplyHeader
    body: bytes


class WireClient:
    def __init__(
        self,
        port: int,
        *,
        host: str = HOST,
        tls: ssl.SSLContext | None = None,
        server_name: str = HOST,
        timeout_s: float = TIMEOUT_S,
        receive_buffer_bytes: int = 0,
    ) -> None:
        self.client_id = uuid.uuid4().bytes
        self.session = 0
        self.number = 0  # of the last numbered request
        connected = socket.socket()
        if receive_buffer_bytes:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connected.settimeout(timeout_s)
        connected.connect((host, port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(connected, server_hostname=server_name) if tls else connected

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Logging in

    def register(
        self,
        username: str = "iggy",
        password: str = "iggy",
        *,
        version: int = PROTOCOL_VERSION,
        client_id: bytes | None = None,
    ) -> RegisterReply:
        """Log in under a new client id, as every login does, unless one is given."""
        return self._register(LoginUser(username, password), version, client_id)

    def register_with_token(self, token: str) -> RegisterReply:
        return self._register(LoginWithToken(token), PROTOCOL_VERSION, None)

    def _register(
        self, credentials: LoginUser | LoginWithToken, version: int, client_id: bytes | None
    ) -> RegisterReply:
        self.client_id = client_id or uuid.uuid4().bytes
        self.raw(self.login_frame(credentials, version))
        reply = decode_register_reply(self.result(self.receive()))
        self.session, self.number = reply.session, 0
        return reply

    def login_frame(self, credentials: LoginUser | LoginWithToken, version: int = PROTOCOL_VERSION) -> bytes:
        body = encode_register(Register(ClientVersion(version, "test", "0.0.1"), credentials))
        return self.frame(Operation.REGISTER, body, number=0, session=0)

    # Requests

    def request(
        self,
        request: Any,
        *,
        number: int | None = None,
        session: int | None = None,
        checksum: int | None = None,
    ) -> Any:
        """The decoded reply; raises the error class of the status, or Evicted."""
        code = COMMAND_BY_REQUEST[type(request)].codes[Generation.VSR]
        self.raw(self.frame_of(request, number=number, session=session, checksum=checksum))
        return codec.decode_reply(code, self.result(self.receive()))

    def frame_of(
        self,
        request: Any,
        *,
        number: int | None = None,
        session: int | None = None,
        checksum: int | None = None,
    ) -> bytes:
        code = COMMAND_BY_REQUEST[type(request)].codes[Generation.VSR]
        body = codec.encode_request(request)
        operation = OPERATION_BY_CODE[code]
        return self.frame(operation, body, code=code, number=number, session=session, checksum=checksum)

    def frame(
        self,
        operation: int,
        body: bytes = b"",
        *,
        code: int = 0,
        number: int | None = None,
        session: int | None = None,
        checksum: int | None = None,
    ) -> bytes:
        """A whole request frame; what is not given is as the official client has it."""
        is_read = operation == Operation.NON_REPLICATED
        if number is None:
            if not is_read:
                self.number += 1
            number = self.number + is_read
        if checksum is None:
            checksum = 0 if is_read or operation >= Operation.SEND_MESSAGES else xxh3_64_intdigest(body)
        header = pack_request(
            len(body),
            client=self.client_id,
            operation=operation,
            request=number,
            session=self.session if session is None else session,
            code=code if is_read else 0,
            request_checksum=checksum.to_bytes(16, "little"),
        )
        return header + body

    def command(self, code: Code, body: bytes = b"") -> bytes:
        """Send any body as this command; the bytes that come back, or the error."""
        self.raw(self.frame(OPERATION_BY_CODE[code], body, code=code))
        return self.result(self.receive())

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    # Replies

    def receive(self) -> Reply:
        """The next reply frame as it came; raises Evicted for an eviction, ConnectionError at the end."""
        header = self._exactly(HEADER_BYTES)
        if header[60] == COMMAND_EVICTION:
            client, reason, version_max, version_min = unpack_eviction(header)
            assert client == self.client_id
            raise Evicted(reason, version_max, version_min)
        assert header[60] == COMMAND_REPLY
        reply = unpack_reply(header)
        return Reply(reply, self._exactly(reply.size - HEADER_BYTES))

    def result(self, reply: Reply) -> bytes:
        """The payload of a reply; raises the error that it carries."""
        header, body = reply
        if header.status:
            raise error_for(header.status)("answered by the server")
        if not is_result_framed(header.operation):
            return body
        error_code, payload = codec.split_result(body)
        if error_code:
            raise error_for(error_code)("answered by the server")
        return bytes(payload)

    def is_closed_by_server(self) -> bool:
        """Whether the server has ended the connection, after at most the timeout."""
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
