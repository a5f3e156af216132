"""The TCP listener: accepts connections and looks after them."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from borzoi.broker.broker import Broker
from borzoi.server.config import Config, split_address
from borzoi.server.tcp.budget import BufferBudget
from borzoi.server.tcp.connection import Connection, wall_clock_us
from borzoi.server.tcp.port import BACKLOG, address_of
from borzoi.server.tcp.tls import TlsError, self_signed, server_context
from borzoi.server.waiting import Worker


class TcpListener:
    def __init__(
        self,
        config: Config,
        broker: Broker,
        worker: Worker,
        port: socket.socket,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self.broker = broker
        self.worker = worker
        self.budget = BufferBudget(config.limits.max_buffered_bytes)
        self.connections: set[Connection] = set()
        self.frame_bytes_max = config.limits.max_frame_bytes
        self.connections_max = config.limits.max_connections
        self.frame_timeout_us = config.limits.frame_timeout_us
        self.login_timeout_us = config.limits.login_timeout_us
        self.now_us = now_us
        self.address = address_of(port)
        self._config = config
        self._server: asyncio.Server | None = None
        self._socket = port

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def start(self) -> None:
        """Accept connections, those first that came while the server started."""
        context = self._tls()
        self._server = await asyncio.get_running_loop().create_server(
            self.new_connection,
            sock=self._socket,
            backlog=BACKLOG,
            ssl=context,
            ssl_handshake_timeout=self.login_timeout_us / 1_000_000 if context else None,
        )

    def new_connection(self) -> Connection:
        return Connection(self)

    def tick(self, now_us: int) -> None:
        for connection in list(self.connections):
            connection.tick(now_us)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        else:
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
