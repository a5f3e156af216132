"""The asyncio driver: `AsyncClient`.

Calls of several tasks share one connection and do not wait for each other's answers: requests are written in
the order of the calls, and the server answers in that order. A call that is cancelled leaves its place in the
queue, so that its answer is dropped and not taken for another's. Connecting, logging in and out happen under
a lock; calls that come meanwhile wait.

A client belongs to the event loop that it is first used in.
"""

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from borzoi.client import groups, messages, offsets, streams, system, topics, transactions, users
from borzoi.client.base import ClientBase, method_signature
from borzoi.client.call import Call
from borzoi.client.dialogue import Dialogue, Exchange, Parts
from borzoi.client.incoming import ReplyStream
from borzoi.client.recovery import Alone, DeadlinePassed, Dial, LinkLost, Pause, Steps, Talk
from borzoi.model.errors import InvalidTlsCertificate, RemoteProtocolError
from borzoi.model.requests import JoinConsumerGroup, Ping

T = TypeVar("T")
P = ParamSpec("P")

# Parts of a frame below this are joined into one write; above, copying costs more than a second write.
_JOIN_BYTES = 64 * 1024


class _Link(asyncio.BufferedProtocol):
    def __init__(self, dialogue: Dialogue, on_lost: Callable[["_Link"], None]) -> None:
        self.dialogue = dialogue
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._hang_up: select.poll | None = None  # tells whether the server has closed its side
        self._replies = ReplyStream()
        self._waiting: deque[asyncio.Future[memoryview]] = deque()
        self._end: Exception | None = None  # why nothing can be said any more

    # The event loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._end is not None:
            self._transport.abort()
        if hasattr(select, "POLLRDHUP"):
            self._hang_up = select.poll()
            self._hang_up.register(transport.get_extra_info("socket"), select.POLLRDHUP)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._replies.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._replies.received(nbytes):
                if not self._waiting:
                    # Only an eviction comes unasked, and then the session is over.
                    self._finish(LinkLost("the server ended the session"))
                    return
                answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_result(frame)
        except RemoteProtocolError as error:
            self._finish(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(LinkLost(str(exc) if exc else "the server closed the connection"))
        if not self.closed.done():
            self.closed.set_result(None)

    # The client's side

    async def ask(self, parts: Parts, give_up_s: float) -> memoryview:
        """The answer to a frame, which is written before this first waits."""
        answer = self.write(parts)
        timer = self._loop.call_at(give_up_s, _time_out, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def write(self, parts: Parts) -> asyncio.Future[memoryview]:
        if self._end is not None or self._transport is None:
            raise LinkLost(str(self._end))
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._waiting.append(answer)
        if sum(map(len, parts)) < _JOIN_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.write(b"".join(parts[:-1]))
            self._transport.write(parts[-1])
        return answer

    def ping(self, deadline_s: float) -> None:
        """Ask for a sign of life; give the connection up if there is none in time."""
        answer = self.write(next(self.dialogue.perform(Ping())))
        timer = self._loop.call_later(deadline_s, self.abandon)

        def forget(answer: asyncio.Future[memoryview]) -> None:
            timer.cancel()
            if not answer.cancelled():
                answer.exception()

        answer.add_done_callback(forget)

    def is_usable(self) -> bool:
        """Look at the socket too: the event loop may not have had the time to tell that it has ended."""
        if self._end is not None or self._waiting:
            return self._end is None
        return self._hang_up is None or not self._hang_up.poll(0)

    def abandon(self) -> None:
        self._finish(LinkLost("the connection was given up"))

    def _finish(self, reason: Exception) -> None:
        if self._end is not None:
            return
        self._end = reason
        if self._transport is not None:
            self._transport.abort()
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(LinkLost(str(reason)) if isinstance(reason, LinkLost) else reason)
        self._waiting.clear()
        self._on_lost(self)


def _time_out(answer: asyncio.Future[memoryview]) -> None:
    if not answer.done():
        answer.set_exception(DeadlinePassed())


def _method(
    command: Callable[P, Call[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """A command's function as a method that carries out the call."""

    @wraps(command)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._call(command(*args, **kwargs))

    method.__signature__ = method_signature(command)  # type: ignore[attr-defined] # inspect reads it
    return method


class AsyncClient(ClientBase):
    __doc__ = ClientBase.__doc__

    _loop: asyncio.AbstractEventLoop | None = None
    _lock: asyncio.Lock
    _heartbeat: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self, *, deadline_s: float | None = None) -> None:
        """Connect and log in now, instead of with the first call."""
        loop = self._running_loop()
        deadline_s = self._deadline_s(deadline_s)
        await self._drive(self._recovery.connect(deadline_s), loop.time() + deadline_s)

    async def close(self) -> None:
        """Close the connection. Calls under way and later ones raise `ClientShutdown`. Can be repeated."""
        self._running_loop()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        link = self._recovery.close()
        if isinstance(link, _Link):
            link.abandon()
            await asyncio.wait([link.closed])

    ping = _method(system.ping)
    get_stats = _method(system.get_stats)
    snapshot = _method(system.snapshot)
    get_cluster_metadata = _method(system.get_cluster_metadata)
    describe_options = _method(system.describe_options)
    get_me = _method(system.get_me)
    get_client = _method(system.get_client)
    get_clients = _method(system.get_clients)

    login_user = _method(users.login_user)
    login_with_personal_access_token = _method(users.login_with_personal_access_token)
    logout_user = _method(users.logout_user)
    get_user = _method(users.get_user)
    get_users = _method(users.get_users)
    create_user = _method(users.create_user)
    update_user = _method(users.update_user)
    update_permissions = _method(users.update_permissions)
    change_password = _method(users.change_password)
    delete_user = _method(users.delete_user)
    get_personal_access_tokens = _method(users.get_personal_access_tokens)
    create_personal_access_token = _method(users.create_personal_access_token)
    delete_personal_access_token = _method(users.delete_personal_access_token)

    create_stream = _method(streams.create_stream)
    get_stream = _method(streams.get_stream)
    get_streams = _method(streams.get_streams)
    update_stream = _method(streams.update_stream)
    delete_stream = _method(streams.delete_stream)
    purge_stream = _method(streams.purge_stream)

    create_topic = _method(topics.create_topic)
    get_topic = _method(topics.get_topic)
    get_topics = _method(topics.get_topics)
    update_topic = _method(topics.update_topic)
    delete_topic = _method(topics.delete_topic)
    purge_topic = _method(topics.purge_topic)
    create_partitions = _method(topics.create_partitions)
    delete_partitions = _method(topics.delete_partitions)
    delete_segments = _method(topics.delete_segments)

    send_messages = _method(messages.send_messages)
    poll_messages = _method(messages.poll_messages)
    poll_batches = _method(messages.poll_batches)
    flush_unsaved_buffer = _method(messages.flush_unsaved_buffer)
    get_consumer_offset = _method(offsets.get_consumer_offset)
    store_consumer_offset = _method(offsets.store_consumer_offset)
    delete_consumer_offset = _method(offsets.delete_consumer_offset)

    get_topic_extent = _method(transactions.get_topic_extent)
    stage_messages = _method(transactions.stage_messages)
    stage_copy = _method(transactions.stage_copy)
    commit_epoch = _method(transactions.commit_epoch)
    abort_epoch = _method(transactions.abort_epoch)
    get_producer_epoch = _method(transactions.get_producer_epoch)
    forget_producer = _method(transactions.forget_producer)

    create_consumer_group = _method(groups.create_consumer_group)
    get_consumer_group = _method(groups.get_consumer_group)
    get_consumer_groups = _method(groups.get_consumer_groups)
    delete_consumer_group = _method(groups.delete_consumer_group)
    join_consumer_group = _method(groups.join_consumer_group)
    leave_consumer_group = _method(groups.leave_consumer_group)
    sync_consumer_group = _method(groups.sync_consumer_group)

    async def _call(self, call: Call[T]) -> T:
        loop = self._running_loop()
        deadline_s = self._deadline_s(call.deadline_s)
        steps = self._recovery.call(call.request, deadline_s)
        reply = await self._drive(steps, loop.time() + deadline_s)
        if self._heartbeat is None and isinstance(call.request, JoinConsumerGroup):
            self._schedule_heartbeat(loop)
        return call.convert(reply)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError("this AsyncClient belongs to another event loop; make one for each")
            self._loop = loop
            self._lock = asyncio.Lock()
            self._heartbeat = None
            self._recovery.forget_link()
        return loop

    async def _drive(self, steps: Steps[T], give_up_s: float) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._do(step, give_up_s)
                except BaseException as error:  # noqa: BLE001 - the steps decide, about cancellation too
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as stop:
            return cast("T", stop.value)

    async def _do(self, step: Dial | Talk | Pause | Alone, give_up_s: float) -> Any:
        match step:
            case Talk(link, exchange):
                return await self._talk(link, exchange, give_up_s)
            case Alone(steps):
                return await self._alone(steps, give_up_s)
            case Pause(seconds):
                return await asyncio.sleep(seconds)
            case Dial():
                return await self._dial()

    async def _talk(self, link: _Link, exchange: Exchange[Any], give_up_s: float) -> Any:
        try:
            parts = next(exchange)
            while True:
                parts = exchange.send(await link.ask(parts, give_up_s))
        except StopIteration as stop:
            return stop.value

    async def _alone(self, steps: Steps[T], give_up_s: float) -> T:
        try:
            async with asyncio.timeout_at(give_up_s), self._lock:
                return await self._drive(steps, give_up_s)
        except TimeoutError:
            raise DeadlinePassed from None

    async def _dial(self) -> _Link:
        settings = self._settings
        link = _Link(self._recovery.new_dialogue(), self._recovery.lost)
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: link,
                settings.host,
                settings.port,
                ssl=self._tls,
                server_hostname=settings.server_name if self._tls else None,
            )
        except ssl.SSLCertVerificationError as error:
            raise InvalidTlsCertificate(error.verify_message) from error
        if not settings.nodelay:
            # asyncio switches it on for every connection.
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        return link

    def _schedule_heartbeat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._heartbeat = loop.call_later(self._settings.heartbeat_interval_s, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Show that this member is there, unless it is not: the next call will connect."""
        self._schedule_heartbeat(loop)
        link = self._recovery.link
        if isinstance(link, _Link) and link.is_usable():
            link.ping(self._settings.deadline_s)
