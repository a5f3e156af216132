"""`AsyncProducer`: messages are buffered, sent in batches, and reported if they were not stored.

Theory of operation. `send` appends to one buffer; one task takes a *window* from its front, at most
`batch_messages` and `batch_bytes`, when that much is there, when the oldest message has waited `linger_s`, or
when somebody flushes. A window becomes one batch for each partitioning in it; the batches are sent side by
side, and the next window only after them. So messages with the same partitioning are stored in the order of
the sends, and a batch that is sent again cannot overtake another.

    outcome of a batch                            what is done
    stored                                        its waiters get the confirmation
    no connection was made                        sent again until the deadline
    `Disconnected`, the answer is missing         reported as unknown; with `retry_unknown` sent again
    refused                                       reported

A batch that failed takes what is buffered with the same partitioning with it, unsent: sending that would
change the order. A message is stored or reported within `deadline_s` of the time it was buffered.

Messages have their ids from the moment they are buffered, so a server that drops duplicates knows them again.
They are buffered as the codec made them and encrypted when they are sent, so that what an error carries can
be sent again as it is.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Self

from borzoi.client.aio import AsyncClient
from borzoi.client.cipher import Cipher
from borzoi.client.codecs import Codec
from borzoi.client.outgoing import ID_BYTES, Entry, Headers, Outgoing, T
from borzoi.client.retry import RetryPolicy
from borzoi.client.values import Partitioning, SendMessage
from borzoi.model import values
from borzoi.model.errors import (
    BorzoiError,
    CannotEstablishConnection,
    ClientShutdown,
    Disconnected,
    RemoteProtocolError,
    StorageFailure,
    TaskTimeout,
)
from borzoi.model.replies import Confirmation
from borzoi.model.values import Identifier, PartitioningKind

_BALANCED = Partitioning.balanced()
# After these nobody knows whether a batch was stored.
_UNKNOWN = (Disconnected, StorageFailure, ClientShutdown, RemoteProtocolError)
# The deadline ends the attempts, not their number.
_RETRY = RetryPolicy(attempts=1 << 30, backoff_s=0.05, longest_backoff_s=1.0)


class SendFailed(BorzoiError):  # noqa: N818 - named like the platform's other errors
    """Messages were not stored, or nobody knows. The cause is in `__cause__`."""

    def __init__(self, unsent: Iterable[SendMessage], unknown: Iterable[SendMessage], reason: str) -> None:
        self.unsent = tuple(unsent)
        """Not stored."""
        self.unknown = tuple(unknown)
        """May be stored: sent again, they may be there twice unless the server drops duplicates."""
        super().__init__(f"{len(self.unsent)} not sent, {len(self.unknown)} maybe; {reason}")


class AsyncProducer(Generic[T]):
    """Sends to one topic. Use it in an `async with` block, which ends with a flush.

    With a `codec`, what is sent are its values; without one, `bytes` or `str`. With a `cipher` payloads are
    encrypted. A `SendMessage` passes the codec by: its payload is taken as it is.

    `partitioning` is for messages that are sent without one of their own. `retry_unknown` sends a batch again
    when its answer is missing. That is for servers that drop duplicates: with
    `system.message_deduplication.enabled`. Elsewhere such messages may be stored twice.
    """

    def __init__(
        self,
        client: AsyncClient,
        stream: Identifier,
        topic: Identifier,
        *,
        codec: Codec[T] | None = None,
        cipher: Cipher | None = None,
        partitioning: values.Partitioning | int = _BALANCED,
        batch_messages: int = 1000,
        batch_bytes: int = 1 << 20,
        linger_s: float = 0.005,
        buffer_bytes: int = 32 << 20,
        deadline_s: float = 30.0,
        retry_unknown: bool = False,
    ) -> None:
        if min(batch_messages, batch_bytes, buffer_bytes) < 1 or linger_s < 0 or deadline_s <= 0:
            raise ValueError("batches, buffer and deadline have to be positive")
        self._client = client
        self._stream = stream
        self._topic = topic
        self._outgoing = Outgoing(codec, cipher, partitioning)
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._buffer_bytes = buffer_bytes
        self._deadline_s = deadline_s
        self._retry_unknown = retry_unknown
        self._buffer: deque[Entry] = deque()
        self._next_number = 0
        self._waiting_bytes = 0  # in the buffer
        self._held_bytes = 0  # in the buffer and on their way
        self._window: list[Entry] = []  # on their way
        self._flushing = 0
        self._changed = asyncio.Event()  # there may be something to send
        self._settled = asyncio.Condition()  # some messages were stored or reported
        self._turn = asyncio.Lock()  # senders that wait for space get it in the order they came
        self._failure: SendFailed | None = None  # not reported to anybody yet
        self._sender: asyncio.Task[None] | None = None
        self._is_closed = False  # takes no messages
        self._is_stopped = False  # sends no messages

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            await self.close()
        else:
            # Cancelled or interrupted: nobody wants to wait for a server now.
            await self._stop()

    @property
    def buffered(self) -> tuple[SendMessage, ...]:
        """What is not known to be stored yet, or was not when the producer was cancelled."""
        return tuple(entry.message for entry in (*self._window, *self._buffer))

    async def send(
        self,
        message: T | SendMessage,
        *,
        partitioning: values.Partitioning | int | None = None,
        id: int | None = None,  # noqa: A002 - what it is
        headers: Headers | None = None,
    ) -> None:
        """Return when the message is buffered; wait while the buffer is full.

        Raises the `SendFailed` of earlier messages that nobody waits for, if there is one; the message given
        is not taken then.
        """
        await self._accept(self._outgoing.check(message, partitioning, id, headers))

    async def send_and_wait(
        self,
        message: T | SendMessage,
        *,
        partitioning: values.Partitioning | int | None = None,
        id: int | None = None,  # noqa: A002 - what it is
        headers: Headers | None = None,
    ) -> Confirmation | None:
        """Return when the message is stored: where the batch that it was in is.

        None if the server had all messages of the batch already.
        """
        return await self._accept_and_wait(self._outgoing.check(message, partitioning, id, headers))

    async def flush(self) -> None:
        """Return when everything that was buffered is stored; raise `SendFailed` with what is not.

        The producer can be used again after that; what it raised with, it has forgotten.
        """
        end = self._next_number
        self._flushing += 1
        self._changed.set()
        try:
            async with self._settled:
                await self._settled.wait_for(lambda: self._is_stopped or self._is_settled_before(end))
        finally:
            self._flushing -= 1
        if not self._is_settled_before(end):
            raise self._abandoned([*self._window, *self._buffer])
        self._raise_failure()

    async def close(self) -> None:
        """Flush, and take no more messages. Can be repeated."""
        self._is_closed = True
        try:
            await self.flush()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._is_closed = self._is_stopped = True
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.wait([sender])
        for entry in (*self._window, *self._buffer):
            if entry.waiter is not None and not entry.waiter.done():
                entry.waiter.set_exception(self._abandoned([entry]))
        async with self._settled:
            self._settled.notify_all()

    async def _accept_and_wait(self, entry: Entry) -> Confirmation | None:
        entry.waiter = asyncio.get_running_loop().create_future()
        await self._accept(entry)
        return await entry.waiter

    async def _accept(self, entry: Entry) -> None:
        """Buffer a message as soon as there is space."""
        if entry.waiter is None:
            self._raise_failure()
        if self._turn.locked() or not self._has_space(entry.size_bytes):
            async with self._turn, self._settled:
                await self._settled.wait_for(lambda: self._is_closed or self._has_space(entry.size_bytes))
        if self._is_closed:
            raise ClientShutdown("the producer is closed")
        self._put(entry)

    def _put(self, entry: Entry) -> None:
        loop = asyncio.get_running_loop()
        entry.number, entry.give_up_s = self._next_number, loop.time() + self._deadline_s
        self._buffer.append(entry)
        self._next_number += 1
        self._waiting_bytes += entry.size_bytes
        self._held_bytes += entry.size_bytes
        if self._sender is None:
            self._sender = loop.create_task(self._send_windows())
        if len(self._buffer) == 1 or self._is_full():
            self._changed.set()

    def _is_settled_before(self, number: int) -> bool:
        oldest = next(iter(self._window or self._buffer), None)
        return oldest is None or oldest.number >= number

    def _abandoned(self, entries: list[Entry]) -> SendFailed:
        """What to say about messages when nothing is sent any more."""
        on_their_way = {entry.number for entry in self._window}
        return SendFailed(
            (entry.message for entry in entries if entry.number not in on_their_way),
            (entry.message for entry in entries if entry.number in on_their_way),
            "the producer was cancelled",
        )

    def _has_space(self, size_bytes: int) -> bool:
        # A message that is larger than the buffer goes alone.
        return not self._held_bytes or self._held_bytes + size_bytes <= self._buffer_bytes

    def _is_full(self) -> bool:
        return len(self._buffer) >= self._batch_messages or self._waiting_bytes >= self._batch_bytes

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # The sender's task

    async def _send_windows(self) -> None:
        while True:
            await self._wait_for_window()
            self._window = window = self._next_window()
            lanes: dict[values.Partitioning, list[Entry]] = {}
            for entry in window:
                lanes.setdefault(entry.lane, []).append(entry)
            if len(lanes) == 1:
                await self._send_lane(window)
            else:
                async with asyncio.TaskGroup() as tasks:
                    for entries in lanes.values():
                        tasks.create_task(self._send_lane(entries))
            async with self._settled:
                self._window = []
                self._settled.notify_all()

    async def _wait_for_window(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._buffer:
            self._changed.clear()
            await self._changed.wait()
        linger_until_s = self._buffer[0].give_up_s - self._deadline_s + self._linger_s
        while not (self._flushing or self._is_full() or loop.time() >= linger_until_s):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(linger_until_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _next_window(self) -> list[Entry]:
        window: list[Entry] = []
        size_bytes = 0
        while self._buffer and len(window) < self._batch_messages:
            size_bytes += self._buffer[0].size_bytes
            if window and size_bytes > self._batch_bytes:
                break
            entry = self._buffer.popleft()
            self._waiting_bytes -= entry.size_bytes
            window.append(entry)
        return window

    async def _send_lane(self, entries: list[Entry]) -> None:
        """Store a batch or report it, and what is behind it."""
        try:
            confirmations = await self._send_batch(entries)
        except Exception as error:  # noqa: BLE001 - reported to whoever sent the messages
            self._report(entries, error)
            return
        confirmation = confirmations[0] if confirmations else None
        for entry in entries:
            self._held_bytes -= entry.size_bytes
            if entry.waiter is not None and not entry.waiter.done():
                entry.waiter.set_result(confirmation)

    async def _send_batch(self, entries: list[Entry]) -> tuple[Confirmation, ...]:
        loop = asyncio.get_running_loop()
        messages = [self._outgoing.sealed(entry.message) for entry in entries]
        where, give_up_s = entries[0].lane, entries[0].give_up_s
        if self._retry_unknown and where.kind is PartitioningKind.BALANCED:
            # Duplicates are known by partition: sent again, the batch must go where it went before. A key
            # that nothing else has is as good a balance.
            where = Partitioning.key((messages[0].id or 0).to_bytes(ID_BYTES, "little"))
        unknown: BorzoiError | None = None  # once unknown, a later failure to connect makes it no less so
        failures = 0
        while True:
            left_s = give_up_s - loop.time()
            if left_s <= 0:
                raise unknown or TaskTimeout("waited for its turn until its deadline")
            try:
                return await self._client.send_messages(
                    self._stream, self._topic, where, messages, deadline_s=left_s
                )
            except CannotEstablishConnection as error:
                failure: BorzoiError = unknown or error
            except (Disconnected, StorageFailure) as error:
                failure = unknown = error
                if not self._retry_unknown:
                    raise
            except BorzoiError as error:
                if unknown is not None:
                    raise unknown from error
                raise
            failures += 1
            pause_s = _RETRY.pause_s(failures) or 0.0
            if loop.time() + pause_s >= give_up_s:
                raise failure
            await asyncio.sleep(pause_s)

    def _report(self, entries: list[Entry], error: Exception) -> None:
        is_unknown = isinstance(error, _UNKNOWN)
        behind = [entry for entry in self._buffer if entry.lane == entries[0].lane]
        if behind:
            self._buffer = deque(entry for entry in self._buffer if entry.lane != entries[0].lane)
            self._waiting_bytes -= sum(entry.size_bytes for entry in behind)
        unsent: list[SendMessage] = []
        unknown: list[SendMessage] = []
        for number, entry in enumerate((*entries, *behind)):
            is_maybe_stored = is_unknown and number < len(entries)
            self._held_bytes -= entry.size_bytes
            if entry.waiter is None:
                (unknown if is_maybe_stored else unsent).append(entry.message)
            elif not entry.waiter.done():
                mine, nothing = (entry.message,), ()
                failed = (
                    SendFailed(nothing, mine, str(error))
                    if is_maybe_stored
                    else SendFailed(mine, nothing, str(error))
                )
                failed.__cause__ = error
                entry.waiter.set_exception(failed)
        if unsent or unknown:
            earlier = self._failure
            if earlier is not None:
                unsent, unknown = [*earlier.unsent, *unsent], [*earlier.unknown, *unknown]
            self._failure = SendFailed(unsent, unknown, str(error))
            self._failure.__cause__ = error
