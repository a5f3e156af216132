"""`AsyncConsumer`: messages one after the other, committed when they have been dealt with.

Theory of operation. A consumer has a `Holding` for each of its partitions. It is polled for the next batch,
ahead of time and by a task with `prefetch`; messages are taken from it; and what is finished is stored.
Polling and storing take turns, by a lock. A message is finished when the next one is asked for, or when the
`async with` block ends well.

As a member of a group it polls every batch together with its assignment, and proves before every delivery and
every store that the partition is still its own; `client.ownership` says how, and what becomes of partitions
that are not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Generic, Literal, Self

from borzoi.client.aio import AsyncClient
from borzoi.client.cipher import Cipher
from borzoi.client.codecs import Codec
from borzoi.client.dead_letters import DeadLetterTopic
from borzoi.client.holdings import Holding, OffsetGap
from borzoi.client.ownership import Ownership
from borzoi.client.payloads import Message, T, UndecodablePayload, read
from borzoi.client.received import ReceivedMessage
from borzoi.client.retry import RetryPolicy
from borzoi.client.values import PollingStrategy
from borzoi.model import values
from borzoi.model.errors import BorzoiError, ConsumerGroupPartitionNotOwned
from borzoi.model.values import Identifier

Commit = Literal["after_each", "manual"] | int | timedelta
OnGap = Literal["raise", "skip"] | Callable[[OffsetGap], None]
Handler = Callable[[Message[T]], Awaitable[None]]

_FIRST = PollingStrategy.First()
_DEFAULT_RETRY = RetryPolicy()
_logger = logging.getLogger("borzoi.client")


class AsyncConsumer(Generic[T]):
    """Reads one topic: as a member of `group`, or as `consumer` one partition.

    With a `codec`, messages have the values that it makes of their payloads; without one, the payloads. With
    a `cipher` payloads are decrypted. One that cannot be is an `UndecodablePayload`.

    `start` counts where no offset is stored. `commit` says when offsets are stored: after each message, after
    so many, after a time, or only by `commit()`. `on_gap` says what happens when messages are missing.
    A client can be a member of a group once: consumers of the same group need clients of their own.
    """

    def __init__(
        self,
        client: AsyncClient,
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
        if (group is None) == (consumer is None) or (group is None) == (partition_id is None):
            raise ValueError("a consumer has either a group, or a consumer id and a partition")
        if batch_count < 1 or (isinstance(commit, int) and commit < 1):
            raise ValueError("batches and commits are of at least one message")
        self._owned = Ownership(
            client,
            stream,
            topic,
            group=group,
            consumer=0 if consumer is None else consumer,
            partition_id=partition_id or 0,
            start=start,
            deadline_s=deadline_s,
        )
        self._client = client
        self._stream = stream
        self._topic = topic
        self._group = group
        self._codec = codec
        self._cipher = cipher
        self._create_group = create_group
        self._batch_count = batch_count
        self._commit = commit
        self._prefetch = prefetch
        self._on_gap = on_gap
        self._poll_interval_s = poll_interval_s
        self._deadline_s = deadline_s
        self._turn = 0
        self._empty_polls = 0  # in a row
        self._current: tuple[Holding, ReceivedMessage] | None = None  # in the application's hands
        self._finished_count = 0  # since offsets were last stored
        self._stored_at_s = 0.0
        self._lock = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._owned.join(create_group=self._create_group)
        self._stored_at_s = asyncio.get_running_loop().time()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end_fetch()
            if kind is None:
                self._finish_current()
                await self._store_finished()
            elif issubclass(kind, Exception):
                await self._store_in_passing()
        finally:
            await self._owned.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        """The next message; waits for one. Ends after `stop()`.

        Raises `UndecodablePayload`, once, for a message that cannot be read; it is then in the caller's
        hands like any other, and finished when the next one is asked for.
        """
        message = await self._next()
        if message is None:
            raise StopAsyncIteration
        return self._read(message)

    async def _next(self) -> ReceivedMessage | None:
        """The next message as it is stored; None after `stop()`."""
        self._finish_current()
        while True:
            await self._store_due()
            if self._stopping.is_set():
                await self._store_finished()
                return None
            message = await self._deliver()
            if message is not None:
                if self._prefetch and self._ahead is None and self._buffered() < self._batch_count:
                    self._ahead = asyncio.create_task(self._fetch())
                return message
            ahead, self._ahead = self._ahead, None
            await (ahead or self._fetch())
            if self._empty_polls >= max(1, len(self._owned.holdings)) and not self._buffered():
                self._empty_polls = 0
                await self._pause(self._poll_interval_s)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that messages are delivered from, as far as is known."""
        return tuple(sorted(self._owned.holdings))

    def stop(self) -> None:
        """Let iteration and `run` end after the message that is being worked on."""
        self._stopping.set()

    async def commit(self, message: ReceivedMessage | None = None) -> None:
        """Store the offset of a message, or of everything delivered so far, now.

        It covers all earlier messages of the partition. Nothing is stored for a partition that has been given
        to another member.
        """
        if message is None:
            for held in self._owned.holdings.values():
                held.finish(held.delivered_offset)
            await self._store_finished()
            return
        holding = self._owned.holdings.get(message.partition_id)
        if holding is not None:
            holding.finish(message.offset)
            async with self._lock:
                await self._owned.store(holding)

    async def run(
        self,
        handler: Handler[T],
        *,
        retry: RetryPolicy = _DEFAULT_RETRY,
        dead_letter_topic: str | None = None,
        dead_letter_stream: Identifier | None = None,
    ) -> None:
        """Call the handler with every message until `stop()`.

        A handler that raises is called again after a pause, as `retry` says; then the message goes to the
        dead-letter topic, of the same stream if none is named. Without such a topic, or if that fails, the
        error is raised and the message is not committed. The next message waits meanwhile. A message that
        cannot be read is not tried again.
        """
        dead_letters = None
        if dead_letter_topic is not None:
            stream = self._stream if dead_letter_stream is None else dead_letter_stream
            dead_letters = DeadLetterTopic(self._client, stream, dead_letter_topic, self._deadline_s)
            await dead_letters.make()
        while (message := await self._next()) is not None:
            try:
                is_done = await self._handle(handler, message, retry, dead_letters)
            except BaseException:
                self._put_back()
                raise
            if not is_done:
                self._put_back()

    # Handling

    async def _handle(
        self,
        handler: Handler[T],
        stored: ReceivedMessage,
        retry: RetryPolicy,
        dead_letters: DeadLetterTopic | None,
    ) -> bool:
        """False if it was stopped between two attempts."""
        failures = 0
        cause: Exception
        try:
            message = self._read(stored)
        except UndecodablePayload as error:
            # No attempt will make it readable.
            if dead_letters is None:
                raise
            cause = error
        else:
            while True:
                try:
                    await handler(message)
                except Exception as error:
                    failures += 1
                    pause_s = retry.pause_s(failures)
                    if pause_s is None:
                        if dead_letters is None:
                            raise
                        cause = error
                        break
                else:
                    return True
                if await self._pause(pause_s):
                    return False
        await dead_letters.put(stored, self._stream, self._topic, cause, failures)
        return True

    def _read(self, stored: ReceivedMessage) -> Message[T]:
        return read(stored, self._codec, self._cipher)

    def _put_back(self) -> None:
        current, self._current, self._owned.in_hand = self._current, None, None
        if current is not None:
            current[0].put_back(current[1])

    async def _pause(self, pause_s: float) -> bool:
        """Whether it was ended by `stop()`."""
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    # Delivering

    def _buffered(self) -> int:
        return sum(len(holding.buffer) for holding in self._owned.holdings.values())

    async def _deliver(self) -> ReceivedMessage | None:
        if not self._buffered():
            return None
        if not self._owned.is_proved:
            async with self._lock:
                await self._owned.prove()
        # From here on nothing is awaited, so the proof holds; a batch that is being polled does not matter.
        holdings = self._owned.holdings.values()
        # What another member waits for comes first.
        for holding in sorted(holdings, key=lambda holding: not holding.is_leaving):
            while holding.buffer:
                try:
                    message = holding.take()
                except OffsetGap as gap:
                    if self._on_gap == "raise":
                        raise
                    _logger.warning("%s", gap)
                    if callable(self._on_gap):
                        self._on_gap(gap)
                else:
                    self._current, self._owned.in_hand = (holding, message), holding
                    return message
        return None

    # Lending, to the blocking consumer: there a message costs more to hand over than to poll.

    def _lend(self, count: int) -> list[ReceivedMessage]:
        """What comes after the current message and can be delivered without asking, for a moment."""
        if self._current is None or self._commit == "after_each":
            return []
        if isinstance(self._commit, int):
            count = min(count, self._commit - self._finished_count - 1)
        return self._current[0].lend(count)

    def _take_back(self, seen: Sequence[ReceivedMessage], rest: Sequence[ReceivedMessage]) -> None:
        """What became of lent messages: as if those that were seen had been asked for one by one."""
        if self._current is None or not (seen or rest):
            return
        holding, last = self._current
        for message in seen:
            self._finish_current()
            self._current, self._owned.in_hand = (holding, message), holding
            last = message
        holding.give_back(last, rest)

    async def _fetch(self) -> None:
        """Poll the next partition that has room."""
        async with self._lock:
            await self._owned.prove()
            holding = self._next_to_poll()
            self._empty_polls += 1
            if holding is None:
                return
            poll = self._client.poll_messages(
                self._stream,
                self._topic,
                holding.partition_id,
                holding.next_poll,
                self._batch_count,
                auto_commit=False,
                consumer=self._owned.who,
                deadline_s=self._deadline_s,
            )
            if self._group is None:
                self._add(holding, await poll)
                return
            polled, assignment = await asyncio.gather(
                poll, self._owned.ask_assignment(), return_exceptions=True
            )
            if isinstance(polled, ConsumerGroupPartitionNotOwned):
                polled = []
            if isinstance(polled, BaseException):
                raise polled
            if isinstance(assignment, BaseException):
                raise assignment
            # Kept before the assignment is looked at: what was polled of a partition that has to be given
            # up is delivered, and if somebody else has it already, the holding goes with it.
            self._add(holding, polled)
            await self._owned.adapt(assignment)

    def _add(self, holding: Holding, messages: list[ReceivedMessage]) -> None:
        holding.add(messages)
        if messages:
            self._empty_polls = 0

    def _next_to_poll(self) -> Holding | None:
        ready = [
            holding
            for holding in self._owned.holdings.values()
            if not holding.is_leaving and len(holding.buffer) < self._batch_count
        ]
        self._turn += 1
        return ready[self._turn % len(ready)] if ready else None

    async def _end_fetch(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    # Storing offsets

    def _finish_current(self) -> None:
        current, self._current, self._owned.in_hand = self._current, None, None
        if current is not None and self._commit != "manual":
            holding, message = current
            holding.finish(message.offset)
            self._finished_count += 1

    async def _store_due(self) -> None:
        """Store what is finished, if it is time, or if another member waits for it."""
        match self._commit:
            case "after_each":
                is_due = True
            case "manual":
                return
            case timedelta():
                period_s = self._commit.total_seconds()
                is_due = asyncio.get_running_loop().time() - self._stored_at_s >= period_s
            case count:
                is_due = self._finished_count >= count
        if is_due:
            await self._store_finished()
        elif any(holding.is_leaving for holding in self._owned.holdings.values()):
            async with self._lock:
                for holding in [found for found in self._owned.holdings.values() if found.is_leaving]:
                    await self._owned.store(holding)

    async def _store_finished(self) -> None:
        if not all(holding.is_settled for holding in self._owned.holdings.values()):
            async with self._lock:
                for holding in list(self._owned.holdings.values()):
                    await self._owned.store(holding)
        self._finished_count = 0
        self._stored_at_s = asyncio.get_running_loop().time()

    async def _store_in_passing(self) -> None:
        """Store what was finished before an error that is on its way to the caller."""
        try:
            await self._store_finished()
        except BorzoiError as error:
            _logger.warning("offsets of %s/%s were not stored: %s", self._stream, self._topic, error)
