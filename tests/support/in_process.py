"""A broker without sockets, and a whole server in a thread of the test process.

`LocalBroker` is the broker as handlers see it: time is a number that a test sets, and what the broker leaves
pending is carried out at once. `LocalServer` listens on a free port; its broker can be looked at and changed
through `call`, which runs a function on the server's event loop.

Both hash passwords with the least that Argon2 allows, or a test would spend its time there.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest import mock

from argon2 import PasswordHasher

from borzoi.broker import events as ev
from borzoi.broker import users
from borzoi.broker.broker import Broker
from borzoi.broker.handlers import Context, handle
from borzoi.broker.handlers import durable as made_durable
from borzoi.broker.pending import AfterSync, OnThread
from borzoi.broker.sessions import Session
from borzoi.broker.settings import BrokerSettings
from borzoi.log.directory import DataDirectory
from borzoi.model.permissions import Permissions
from borzoi.model.requests import PollMessages, SendMessages
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    PollingStrategy,
    Transport,
    UserStatus,
)
from borzoi.server import maintenance
from borzoi.server.config import load
from borzoi.server.serving import broker_settings, loop_factory
from borzoi.server.tcp.listener import TcpListener
from borzoi.server.tcp.port import address_of, take_port
from borzoi.server.waiting import Worker
from borzoi.wire.batch import NewMessage, build, frames, read_header, split
from borzoi.wire.commands import COMMAND_BY_REQUEST

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
TICK_S = 0.05
_WAIT_S = 20.0

T = TypeVar("T")


@contextmanager
def cheap_passwords() -> Iterator[None]:
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with mock.patch.object(users, "_hasher", return_value=cheap):
        yield


class Events:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.seen.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.seen.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.seen.append(("error", event, fields))

    def exception(self, event: str, **fields: object) -> None:
        self.seen.append(("exception", event, fields))

    def of(self, event: str) -> list[dict[str, object]]:
        return [fields for _, name, fields in self.seen if name == event]


class LocalBroker:
    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.now_us = NOW_US
        self.settings = BrokerSettings(**settings)
        self.events = Events()
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory(self.path)
        self.directory.open()
        try:
            self.broker = Broker(self.directory, self.settings, self.events, self.now_us)
            with cheap_passwords():
                self.broker.open(self.now_us)
        except BaseException:
            self.directory.close()
            raise
        self.root = self.log_in()

    def close(self) -> None:
        self.broker.close()
        self.directory.close()

    def abandon(self) -> None:
        """Let go of the files as a killed process would: nothing is written any more."""
        self.broker.files.close_all()
        self.broker.metadata.journal.close()
        self.directory.close()

    def reopen(self, **settings: Any) -> None:
        """An orderly stop and a start, maybe with other settings."""
        self.close()
        self.settings = replace(self.settings, **settings)
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log_in(self, user: int | str = 0, client_id: int | None = None) -> Session:
        """A session of this user on a connection of its own."""
        broker = self.broker
        client = broker.clients.connect(Transport.TCP, "127.0.0.1:1", self.now_us)
        return broker.start_session(
            client, client.id if client_id is None else client_id, broker.users.get(user)
        )

    def ask(self, request: Any, session: Session | None = None) -> Any:
        """The reply of a request, with everything done that it had to wait for."""
        access = COMMAND_BY_REQUEST[type(request)].access
        context = Context(self.broker, session or self.root, access, self.now_us)
        with cheap_passwords():
            return carry_out(self.broker, handle(context, request))

    def run_background(self) -> None:
        work, self.broker.background = self.broker.background, []
        for item in work:
            item()

    def send(
        self,
        stream: int | str,
        topic: int | str,
        messages: list[bytes],
        partition: int | None = 0,
        ids: list[int] | None = None,
        session: Session | None = None,
    ) -> Any:
        return self.ask(send_request(stream, topic, messages, partition, ids), session)

    def poll(self, stream: int | str, topic: int | str, session: Session | None = None, **how: Any) -> Any:
        return self.ask(poll_request(stream, topic, **how), session)


def carry_out(broker: Broker, reply: Any) -> Any:
    """Do on this thread what the server would leave to others."""
    while True:
        if isinstance(reply, OnThread):
            reply = made_durable(broker, reply.then(reply.work()))
        elif isinstance(reply, AfterSync):
            for job in reply.jobs:
                fds = job.open_fds()
                for fd in fds:
                    os.fdatasync(fd)
                    os.close(fd)
                job.finish(None)
            reply = reply.reply
        else:
            return reply


def send_request(
    stream: int | str,
    topic: int | str,
    messages: list[bytes],
    partition: int | None = 0,
    ids: list[int] | None = None,
) -> SendMessages:
    ids = ids or [0] * len(messages)
    batch = build([NewMessage(payload, id=number) for payload, number in zip(messages, ids, strict=True)])
    partitioning = (
        Partitioning(PartitioningKind.BALANCED)
        if partition is None
        else Partitioning(PartitioningKind.PARTITION_ID, partition.to_bytes(4, "little"))
    )
    return SendMessages(stream, topic, partitioning, len(messages), batch)


def poll_request(
    stream: int | str,
    topic: int | str,
    *,
    partition: int | None = 0,
    kind: PollingKind = PollingKind.OFFSET,
    value: int = 0,
    count: int = 1000,
    auto_commit: bool = False,
    consumer: int | str = 1,
    group: int | str | None = None,
) -> PollMessages:
    who = Consumer(ConsumerKind.CONSUMER, consumer) if group is None else Consumer(ConsumerKind.GROUP, group)
    return PollMessages(who, stream, topic, partition, PollingStrategy(kind, value), count, auto_commit)


def payloads(polled: Any) -> list[bytes]:
    return [payload for _, payload in numbered(polled)]


def numbered(polled: Any) -> list[tuple[int, bytes]]:
    """(offset, payload) of every message of a poll."""
    found = []
    for batch in split(memoryview(b"".join(polled.batches))):
        base = read_header(batch).base_offset
        found += [(base + frame.offset_delta, bytes(frame.payload)) for frame in frames(batch)]
    assert len(found) == polled.messages_count
    return found


class LocalServer:
    """A listening server in a thread; `settings` are texts by the configuration's key.

    Expired tokens stay unless a test asks for their removal: chores run every few milliseconds here, and one
    that removes them would race with the test that shows one.
    """

    def __init__(self, path: Path, settings: Mapping[str, str] | None = None) -> None:
        flags = {
            "system.path": str(path),
            "tcp.address": "127.0.0.1:0",
            "system.state.enforce_fsync": "false",
            "personal_access_token.cleaner.enabled": "false",
            **(settings or {}),
        }
        self.config = load(path=None, env={}, flags=flags).config
        self.events = Events()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="local-server")

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(_WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive()

    @property
    def port(self) -> int:
        return self.listener.port

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that runs on the server's event loop."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_WAIT_S)

    def ask(self, request: Any) -> Any:
        """Carry out a request as root, without a connection."""

        def run() -> Any:
            client = self.broker.clients.connect(Transport.TCP, "127.0.0.1:1", _now_us())
            session = self.broker.start_session(client, 1, self.broker.users.get(0))
            context = Context(self.broker, session, COMMAND_BY_REQUEST[type(request)].access, _now_us())
            try:
                return carry_out(self.broker, handle(context, request))
            finally:
                self.broker.disconnect(client, _now_us())

        return self.call(run)

    def add_user(
        self,
        username: str,
        permissions: Permissions | None = None,
        *,
        password: str = "secret",
        status: UserStatus = UserStatus.ACTIVE,
        expires_at_us: int = 0,
    ) -> str:
        """Make a user; returns a token to log in with."""
        raw = users.new_token()

        def run() -> None:
            user_id = self.broker.users.free_id()
            self.broker.record(
                ev.UserCreated(
                    user_id=user_id,
                    username=username,
                    password_hash=users.hash_password(password),
                    status=status,
                    permissions=permissions,
                    at_us=_now_us(),
                )
            )
            self.broker.record(
                ev.TokenCreated(
                    user_id=user_id,
                    name="test token",
                    token_hash=users.hash_token(raw),
                    expires_at_us=expires_at_us,
                )
            )

        self.call(run)
        return raw

    def _run(self) -> None:
        with cheap_passwords(), asyncio.Runner(loop_factory=loop_factory()) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._started.done():
                    raise
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        directory = DataDirectory(self.config.system.path)
        directory.open()
        try:
            port = take_port(self.config.tcp.address)
            settings = broker_settings(self.config, address_of(port))
            self.broker = Broker(directory, settings, self.events, _now_us())
            self.worker = Worker(self.broker, self._loop)
            self.listener = TcpListener(self.config, self.broker, self.worker, port)
            self.broker.open(_now_us())
            await self.listener.start()
            tasks = [
                asyncio.create_task(self._repeat(chore))
                for chore in maintenance.chores(self.config, self.broker, self.worker, self.listener)
            ]
            self._started.set_result(None)
            await self._stop.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.listener.stop_accepting()
            for connection in list(self.listener.connections):
                if connection._transport is not None:
                    connection._transport.abort()
            while self.listener.connections:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(self.worker.close)
            self.broker.close()
        finally:
            directory.close()

    async def _repeat(self, chore: maintenance.Chore) -> None:
        """Like `maintenance.run`, but no test waits a second for a chore."""
        while True:
            await asyncio.sleep(min(TICK_S, chore.period_us / SECOND_US))
            chore.run(_now_us())


def _now_us() -> int:
    return time.time_ns() // 1000


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether something that happens on another thread has happened in time."""
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.005)
    return True
