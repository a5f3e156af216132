"""`Consumer`: an `AsyncConsumer` for programs without an event loop.

The asynchronous consumer lives in a thread of its own, with a connection of its own, for the time of a `with`
block. It polls ahead and shows the group that it is there while the application works. Handlers are called in
the caller's thread; `on_gap` is called in the other.

To pass a message from one thread to the other takes longer than all else. So unless every message is
committed by itself, the caller is lent those that follow, of the same partition, and goes on with them
without asking. What it has not delivered `_LENT_S` later is given back; and before anything else is done.

One thread iterates; `stop` and `commit` may be called by others. In a forked child a consumer of the parent's
cannot be used, and the end of its block does nothing.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self

from borzoi.client.attachment import async_client_like
from borzoi.client.background import Background
from borzoi.client.cipher import Cipher
from borzoi.client.codecs import Codec
from borzoi.client.consumer import AsyncConsumer, Commit, OnGap
from borzoi.client.payloads import Message, T
from borzoi.client.received import ReceivedMessage
from borzoi.client.retry import RetryPolicy
from borzoi.client.sync import Client
from borzoi.client.values import Consumer as ConsumerName
from borzoi.client.values import PollingStrategy
from borzoi.model import values
from borzoi.model.values import Identifier

BlockingHandler = Callable[[Message[T]], object]

_LENT_MAX = 1000
_LENT_S = 0.05
_FIRST = PollingStrategy.First()
_DEFAULT_RETRY = RetryPolicy()


class Consumer(Generic[T]):
    """Reads one topic: as a member of `group`, or as `consumer` one partition. Use it in one `with` block.

    `client` is a `Client`, whose settings and login are used for a connection of the consumer's own, or a
    connection string. Everything else is as in `AsyncConsumer`.

    `Consumer.single(id)` and `Consumer.group(id)` make no consumer: they name one, or a group, for methods of
    a client that take offsets or polls on behalf of it.
    """

    def __init__(
        self,
        client: Client | str,
        stream: Identifier,
        topic: Identifier,
        *,
        group: Identifier | None = None,
        consumer: Identifier | None = None,
        partition_id: int | None = None,
        codec: Codec[T] | None = None,
        cipher: Cipher | None = None,
        create_group: bool = True,
        start: values.PollingStrategy = _FIRST,
        batch_count: int = 100,
        commit: Commit = "after_each",
        prefetch: bool = True,
        on_gap: OnGap = "raise",
        poll_interval_s: float = 0.05,
        deadline_s: float = 30.0,
    ) -> None:
        self._client = async_client_like(client)
        self._consumer: AsyncConsumer[T] = AsyncConsumer(
            self._client,
            stream,
            topic,
            group=group,
            consumer=consumer,
            partition_id=partition_id,
            codec=codec,
            cipher=cipher,
            create_group=create_group,
            start=start,
            batch_count=batch_count,
            commit=commit,
            prefetch=prefetch,
            on_gap=on_gap,
            poll_interval_s=poll_interval_s,
            deadline_s=deadline_s,
        )
        self._deadline_s = deadline_s
        self._lock = threading.Lock()  # for what is lent
        self._lent: deque[ReceivedMessage] = deque()
        self._seen: list[ReceivedMessage] = []  # of those that were lent
        self._lent_until_s = 0.0
        self._is_stopping = False
        self._background = Background("consumer")
        self._is_open = False

    @staticmethod
    def single(id: Identifier) -> ConsumerName:  # noqa: A002 - what it is
        """The name of a consumer, for a client's methods."""
        return ConsumerName.single(id)

    @staticmethod
    def group(id: Identifier) -> ConsumerName:  # noqa: A002 - what it is
        """The name of a group, for a client's methods."""
        return ConsumerName.group(id)

    def __enter__(self) -> Self:
        try:
            self._background.wait(self._enter())
        except BaseException:
            self._background.stop()
            raise
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background.is_inherited:
            return
        self._is_open = False
        try:
            self._background.wait(self._leave(kind, error, trace))
        finally:
            self._background.stop()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[T]:
        """The next message; waits for one. Ends after `stop()`.

        Raises `UndecodablePayload`, once, for a message that cannot be read; it is then in the caller's
        hands like any other, and finished when the next one is asked for.
        """
        self._require_open()
        stored = self._next_lent()
        if stored is None:
            # A message that arrives together with Ctrl-C has not been seen by anybody.
            stored = self._background.wait(self._advance(), undo=self._retreat)
        if stored is None:
            raise StopIteration
        return self._consumer._read(stored)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that messages are delivered from, as far as is known."""
        return self._background.wait(self._partitions()) if self._is_open else ()

    def stop(self) -> None:
        """Let iteration and `run` end after the message that is being worked on. For any thread or signal."""
        self._is_stopping = True
        if self._background.is_running:
            with suppress(RuntimeError):  # the block has ended meanwhile
                self._background.call_soon(self._consumer.stop)
        else:
            self._consumer.stop()

    def commit(self, message: ReceivedMessage | None = None) -> None:
        """Store the offset of a message, or of everything delivered so far, now.

        It covers all earlier messages of the partition. Nothing is stored for a partition that has been given
        to another member.
        """
        self._require_open()
        self._background.wait(self._commit(message))

    def run(
        self,
        handler: BlockingHandler[T],
        *,
        retry: RetryPolicy = _DEFAULT_RETRY,
        dead_letter_topic: str | None = None,
        dead_letter_stream: Identifier | None = None,
    ) -> None:
        """Call the handler with every message until `stop()`, in this thread.

        A handler that raises is called again after a pause, as `retry` says; then the message goes to the
        dead-letter topic, of the same stream if none is named. Without such a topic, or if that fails, the
        error is raised and the message is not committed. The next message waits meanwhile. A message that
        cannot be read is not tried again.
        """
        self._require_open()
        calls: SimpleQueue[_HandlerCall[T] | None] = SimpleQueue()

        async def relay(message: Message[T]) -> None:
            call = _HandlerCall(message)
            calls.put(call)
            await call.outcome()

        async def run() -> None:
            self._settle()
            await self._consumer.run(
                relay,
                retry=retry,
                dead_letter_topic=dead_letter_topic,
                dead_letter_stream=dead_letter_stream,
            )

        job = self._background.submit(run())
        job.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                call.make(handler)
        except BaseException:
            job.interrupt()
            raise
        job.outcome()

    def _require_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("a consumer is used in its `with` block")

    def _next_lent(self) -> ReceivedMessage | None:
        if self._is_stopping or self._background.is_inherited:
            return None
        with self._lock:
            if not self._lent or time.monotonic() >= self._lent_until_s:
                return None
            message = self._lent.popleft()
            self._seen.append(message)
            return message

    # In the background

    async def _advance(self) -> ReceivedMessage | None:
        self._settle()
        message = await self._consumer._next()
        if message is not None:
            with self._lock:
                self._lent.extend(self._consumer._lend(_LENT_MAX))
                self._lent_until_s = time.monotonic() + _LENT_S
        return message

    def _retreat(self) -> None:
        self._settle()
        self._consumer._put_back()

    def _settle(self) -> None:
        """Take back what is lent."""
        with self._lock:
            seen, rest = self._seen, list(self._lent)
            self._seen = []
            self._lent.clear()
        self._consumer._take_back(seen, rest)

    async def _commit(self, message: ReceivedMessage | None) -> None:
        self._settle()
        await self._consumer.commit(message)

    async def _enter(self) -> None:
        try:
            await self._client.connect(deadline_s=self._deadline_s)
            await self._consumer.__aenter__()
        except BaseException:
            await self._client.close()
            raise

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle()
        try:
            await self._consumer.__aexit__(kind, error, trace)
        finally:
            await self._client.close()

    async def _partitions(self) -> tuple[int, ...]:
        return self._consumer.partitions


class _HandlerCall(Generic[T]):
    """A message on its way from the background to the handler, and the handler's outcome on its way back."""

    def __init__(self, message: Message[T]) -> None:
        self._message = message
        self._loop = asyncio.get_running_loop()
        self._error: asyncio.Future[Exception | None] = self._loop.create_future()

    async def outcome(self) -> None:
        error = await self._error
        if error is not None:
            raise error

    def make(self, handler: BlockingHandler[T]) -> None:
        error: Exception | None = None
        try:
            handler(self._message)
        except Exception as raised:  # noqa: BLE001 - it is raised again where it is dealt with
            error = raised
        self._loop.call_soon_threadsafe(self._answer, error)

    def _answer(self, error: Exception | None) -> None:
        if not self._error.done():
            self._error.set_result(error)
