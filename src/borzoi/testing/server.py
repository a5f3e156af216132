"""`Server`: the real broker in the test's process.

    with Server(memory=True) as server, server.client() as client:
        client.create_stream("orders")

It listens on a loopback port that the system chose and keeps over restarts. Its data is in a directory of its
own, which `close` removes, or in the one it is given, which stays. What differs from `borzoi server`: nothing
is read from the environment, the metadata is not synced (unless the settings say so), and the root user's
password is hashed cheaply.

The methods may be called from any thread but the server's own, and from coroutines: they take milliseconds.
"""

import atexit
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from borzoi.client.aio import AsyncClient
from borzoi.client.sync import Client
from borzoi.server.config import Config
from borzoi.testing.faults import Faults
from borzoi.testing.serving import Clock, Run
from borzoi.testing.settings import SettingValue, by_key, configuration

_MEMORY = Path("/dev/shm")  # noqa: S108 - a new directory with a random name is made in it
_SECOND_US = 1_000_000


class Server:
    """`path` is the data directory; without it there is a temporary one, with `memory` in memory.

    `settings` and keyword arguments are configuration keys: `{"heartbeat.interval": "5s"}` or
    `heartbeat__interval="5s"`. Raises ConfigError if one is wrong.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        memory: bool = False,
        settings: Mapping[str, SettingValue] | None = None,
        **keywords: SettingValue,
    ) -> None:
        if path is not None and memory:
            raise ValueError("either a directory or memory")
        texts = by_key(settings, keywords)
        self._temporary = path is None
        self.path = Path(path) if path is not None else _temporary_directory(memory=memory)
        try:
            self._config: Config = configuration(self.path, texts)
        except BaseException:
            self._remove()
            raise
        self._clock = Clock()
        self._faults = Faults()
        self._run: Run | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Start and stop

    @property
    def is_running(self) -> bool:
        return self._run is not None

    def start(self) -> None:
        """Returns when connections are accepted; does nothing if they are already."""
        if self._run is not None:
            return
        self._run = Run.start(self._config, self._clock, self._faults)
        # The next start is to be found at the same address.
        self._config = replace(self._config, tcp=replace(self._config.tcp, address=self._run.address))
        atexit.register(self._leave)

    def stop(self) -> None:
        """Answer what was asked, close all connections, sync. The data stays for the next `start`."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def crash(self) -> None:
        """End at once, as `kill -9` would: nothing is flushed, nobody is told. `start` brings it back."""
        self._running().crash()
        self._run = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the data if it was temporary. Can be repeated."""
        atexit.unregister(self._leave)
        try:
            self.stop()
        finally:
            self._remove()

    # Connecting

    @property
    def address(self) -> str:
        """`host:port`; known from the first start on."""
        if self._config.tcp.address.endswith(":0"):
            raise RuntimeError("the server has no address before it was started")
        return self._config.tcp.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def connection_string(self) -> str:
        """For clients that log in as root."""
        root, tls = self._config.root, self._config.tcp.tls
        options = {}
        if tls.enabled:
            options["tls"] = "true"
            if not tls.cert_file:
                options["tls_ca_file"] = str(self.path / "tls" / "ca.pem")
        credentials = f"{quote(root.username, safe='')}:{quote(root.password, safe='')}"
        query = f"?{urlencode(options, safe='/')}" if options else ""
        return f"iggy://{credentials}@{self.address}{query}"

    def client(self, **options: Any) -> Client:
        """A new client, root's unless `options` (those of `borzoi.Client`) say otherwise. To be closed."""
        return Client(self.connection_string, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """The same for asyncio: a `borzoi.AsyncClient`."""
        return AsyncClient(self.connection_string, **options)

    # Time

    @property
    def now_us(self) -> int:
        """Microseconds since 1970 by the server's clock, which stamps messages."""
        return self._clock.now_us()

    def advance(self, seconds: float, *, silent: bool = False) -> None:
        """Move the server's clock on; when this returns, everything that came due has been done.

        Each chore (retention, expired tokens, overdue rebalances, silent members) that has its turn in that
        time runs once. Connected clients count as heard of throughout, or with `silent` as not heard of, so
        that group members lose their places. The clock stays moved over restarts.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        moved_us = round(seconds * _SECOND_US)

        def move() -> None:
            self._clock.offset_us += moved_us
            if self._run is not None:
                self._run.catch_up(moved_us, silent=silent)

        self._on_loop(move)

    # Faults

    def drop_connections(self) -> int:
        """Cut every connection without a word, also those in the middle of a request. Returns how many."""
        listener = self._running().listener

        def drop() -> int:
            count = len(listener.connections)
            listener.abort_connections()
            return count

        return self._running().call(drop)

    def refuse_writes(self, error: int = errno.ENOSPC) -> None:
        """Fail every write of messages, offsets and metadata, as on a full disk, until `heal`."""
        if error <= 0:
            raise ValueError("a number of the errno module is needed")
        self._on_loop(partial(self._faults.refuse_writes, error))

    def delay_answers(self, seconds: float) -> None:
        """Carry requests out at once and answer them so much later, until `heal`."""
        if seconds < 0:
            raise ValueError("an answer cannot come before its request")
        self._on_loop(partial(self._faults.delay_answers, seconds))

    def heal(self) -> None:
        """No more faults. Answers that are held back still leave when they are due."""
        self._on_loop(self._faults.heal)

    def _on_loop(self, change: Callable[[], None]) -> None:
        if self._run is not None:
            self._run.call(change)
        else:
            change()

    def _running(self) -> Run:
        if self._run is None:
            raise RuntimeError("the server is not running")
        return self._run

    def _leave(self) -> None:
        """The process ends and nobody has closed the server; a proper stop would need new threads."""
        run, self._run = self._run, None
        if run is not None:
            run.crash()
        self._remove()

    def _remove(self) -> None:
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)


def _temporary_directory(*, memory: bool) -> Path:
    """In memory where the system has such a place (Linux), else wherever temporary files go."""
    parent = _MEMORY if memory and os.access(_MEMORY, os.W_OK | os.X_OK) else None
    return Path(tempfile.mkdtemp(prefix="borzoi-test-", dir=parent))
