"""The TCP listener: accepts connections and looks after them."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import cast

from borzoi.broker.broker import Broker
from borzoi.server.config import Config, split_address
from borzoi.server.tcp.budget import BufferBudget
from borzoi.server.tcp.connection import Connection
from borzoi.server.tcp.tls import TlsError, self_signed, server_context
from borzoi.server.waiting import Worker

_BACKLOG = 1024


class TcpListener:
    def __init__(self, config: Config, broker: Broker, worker: Worker) -> None:
        self.broker = broker
        self.worker = worker
        self.budget = BufferBudget(config.limits.max_buffered_bytes)
        self.connections: set[Connection] = set()
        self.frame_bytes_max = config.limits.max_frame_bytes
        self.connections_max = config.limits.max_connections
        self.frame_timeout_us = config.limits.frame_timeout_us
        self.login_timeout_us = config.limits.login_timeout_us
        self.address = ""  # the real one, once listening
        self._config = config
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None

    def bind(self) -> None:
        """Take the port before anything else is done. Raises OSError."""
        host, port = split_address(self._config.tcp.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        self._socket = listening
        bound = listening.getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if family == socket.AF_INET6 else f"{bound[0]}:{bound[1]}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def start(self) -> None:
        """Accept connections on the port that `bind` took."""
        if self._socket is None:
            self.bind()
        context = self._tls()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self),
            sock=cast("socket.socket", self._socket),
            backlog=_BACKLOG,
            ssl=context,
            ssl_handshake_timeout=self.login_timeout_us / 1_000_000 if context else None,
        )

    def tick(self, now_us: int) -> None:
        for connection in list(self.connections):
            connection.tick(now_us)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()

    @property
    def is_idle(self) -> bool:
        return all(connection.is_idle for connection in self.connections)

    def close_connections(self, reason: str) -> None:
        for connection in list(self.connections):
            connection.close(reason)

    def abort_connections(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _tls(self) -> ssl.SSLContext | None:
        tls = self._config.tcp.tls
        if not tls.enabled:
            return None
        if tls.cert_file and (Path(tls.cert_file).exists() or not tls.self_signed):
            return server_context(Path(tls.cert_file), Path(tls.key_file))
        if not tls.self_signed:
            raise TlsError("tcp.tls.enabled needs tcp.tls.cert_file and key_file, or tcp.tls.self_signed")
        host, _ = split_address(self._config.tcp.address)
        return server_context(*self_signed(self._config.system.path / "tls", host))
