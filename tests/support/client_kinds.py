"""For tests of the client: both drivers behind one face, and servers that misbehave on demand.

`Either` makes one test body run with `AsyncClient` and `Client`. `ScriptedServer` speaks just enough of the
protocol to be logged in to; what it does with everything else, a test says.
"""

import inspect
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

from borzoi import AsyncClient, Client
from borzoi.wire.commands import Code
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.frames import HEADER_BYTES, RequestHeader, pack_reply, unpack_request
from borzoi.wire.vsr.login import PROTOCOL_VERSION, RegisterReply, encode_register_reply
from borzoi.wire.vsr.operations import CODE_BY_OPERATION, Operation, is_result_framed

HOST = "127.0.0.1"
KINDS = {"async": AsyncClient, "sync": Client}


class Either:
    """A client whose methods are all awaited, whichever it is."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        self.client: Any = KINDS[kind](*args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return call

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Close(Exception):  # noqa: N818 - what a script asks for
    """Raised by a script: close the connection without an answer."""


Script = Callable[[RequestHeader, bytes], bytes | None]


def answer(header: RequestHeader, body: bytes = b"", status: int = 0) -> bytes:
    """A reply frame; a result section is put in front where one belongs."""
    if not status and is_result_framed(header.operation):
        body = codec.frame_result(body)
    return pack_reply(header, len(body), 0, status) + body


def code_of(header: RequestHeader) -> Code:
    return (
        Code(header.code)
        if header.operation == Operation.NON_REPLICATED
        else CODE_BY_OPERATION[header.operation]
    )


class ScriptedServer:
    """Answers logins and logouts; `script` answers the rest with bytes, None for silence, or `Close`."""

    def __init__(self, script: Script, *, answers_logins: bool = True) -> None:
        self.script = script
        self.seen: list[Code] = []
        self.logins = 0
        self._answers_logins = answers_logins
        self._listener = socket.create_server((HOST, 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_stopping = False

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        with socket.socket() as waker:
            waker.connect((HOST, self.port))
        for connection in self._connections:
            _hang_up(connection)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def hang_up(self) -> None:
        """End every connection there is."""
        for connection in self._connections:
            _hang_up(connection)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_stopping:
                connection.close()
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while True:
                    header = unpack_request(_exactly(connection, HEADER_BYTES))
                    body = _exactly(connection, header.size - HEADER_BYTES)
                    reply = self._reply(header, body)
                    if reply is not None:
                        connection.sendall(reply)
            except (Close, OSError):
                return

    def _reply(self, header: RequestHeader, body: bytes) -> bytes | None:
        if header.operation == Operation.REGISTER:
            if not self._answers_logins:
                return None
            self.logins += 1
            reply = RegisterReply(0, self.logins, PROTOCOL_VERSION, "0.9.0")
            return answer(header, encode_register_reply(reply))
        self.seen.append(code_of(header))
        if header.operation == Operation.LOGOUT:
            return answer(header)
        return self.script(header, body)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise Close
        data += chunk
    return data


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already
