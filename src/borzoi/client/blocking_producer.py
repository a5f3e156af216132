"""`Producer`: an `AsyncProducer` for programs without an event loop.

Theory of operation. The asynchronous producer lives in a thread of its own with a connection of its own;
everything it says here, it says there. A send that has to wait for nothing does not wait for that thread
either: the message is checked in the caller's thread and left in `_intake`, and the thread moves what it
finds there into the buffer, in order. A message is in one or the other, and both count for `buffer_bytes`.

A producer that is still open when the interpreter exits is closed then: what is buffered is stored within its
deadline, or a warning says how much was not.

In a forked child a producer of the parent's cannot be used, and closing it does nothing: what is buffered is
the parent's to send.
"""

import atexit
import os
import threading
import warnings
from collections import deque
from types import TracebackType
from typing import Any, Generic, Self

from borzoi.client.attachment import async_client_like
from borzoi.client.background import Background
from borzoi.client.cipher import Cipher
from borzoi.client.codecs import Codec
from borzoi.client.outgoing import Entry, Headers, T
from borzoi.client.producer import AsyncProducer, SendFailed
from borzoi.client.sync import Client
from borzoi.client.values import Partitioning, SendMessage
from borzoi.model import values
from borzoi.model.errors import ClientShutdown
from borzoi.model.replies import Confirmation
from borzoi.model.values import Identifier

_BALANCED = Partitioning.balanced()


class Producer(Generic[T]):
    """Sends to one topic. Use it in a `with` block, which ends with a flush.

    `client` is a `Client`, whose settings and login are used for a connection of the producer's own, or a
    connection string. Everything else is as in `AsyncProducer`. Threads may share a producer.
    """

    def __init__(
        self,
        client: Client | str,
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
        self._client = async_client_like(client)
        self._producer: AsyncProducer[T] = AsyncProducer(
            self._client,
            stream,
            topic,
            codec=codec,
            cipher=cipher,
            partitioning=partitioning,
            batch_messages=batch_messages,
            batch_bytes=batch_bytes,
            linger_s=linger_s,
            buffer_bytes=buffer_bytes,
            deadline_s=deadline_s,
            retry_unknown=retry_unknown,
        )
        self._where = f"{stream}/{topic}"
        self._buffer_bytes = buffer_bytes
        self._background = Background("producer")
        self._lock = threading.Lock()  # for the intake, and to move it
        self._intake: deque[Entry] = deque()
        self._intake_bytes = 0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kind, error, trace)

    @property
    def buffered(self) -> tuple[SendMessage, ...]:
        """What is not known to be stored yet, or was not when the producer was interrupted."""
        if self._background.is_inherited:
            return ()
        if self._background.is_running:
            return self._background.wait(self._look())
        return self._producer.buffered

    def send(
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
        entry = self._producer._outgoing.check(message, partitioning, id, headers)
        self._open()
        with self._lock:
            is_taken = self._is_free_for(entry)
            if is_taken:
                self._intake.append(entry)
                self._intake_bytes += entry.size_bytes
                if len(self._intake) == 1:
                    self._background.call_soon(self._move)
        if not is_taken:
            self._background.wait(self._accept(entry))

    def send_and_wait(
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
        entry = self._producer._outgoing.check(message, partitioning, id, headers)
        self._open()
        return self._background.wait(self._accept_and_wait(entry))

    def flush(self) -> None:
        """Return when everything that was buffered is stored; raise `SendFailed` with what is not.

        The producer can be used again after that; what it raised with, it has forgotten.
        """
        if self._background.is_running:
            self._background.wait(self._flush())

    def close(self) -> None:
        """Flush, and take no more messages. Can be repeated."""
        self._end(None, None, None)

    # In the caller's thread

    def _open(self) -> None:
        if self._is_closed:
            raise ClientShutdown("the producer is closed")
        if not self._background.is_running or self._background.is_inherited:
            self._background.start()
            _open_producers.add(self)

    def _is_free_for(self, entry: Entry) -> bool:
        """Whether a message can be taken without asking. The producer's numbers may change meanwhile."""
        producer = self._producer
        if self._is_closed or producer._failure is not None or producer._turn.locked():
            return False
        held_bytes = producer._held_bytes + self._intake_bytes
        return not held_bytes or held_bytes + entry.size_bytes <= self._buffer_bytes

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background.is_inherited:
            return
        with self._lock:
            self._is_closed = True
        if not self._background.is_running:
            return
        try:
            self._background.wait(self._leave(kind, error, trace))
        finally:
            self._background.stop()
            _open_producers.discard(self)

    def _end_with_interpreter(self) -> None:
        """Close; say so if something was not stored."""
        try:
            self.close()
        except SendFailed as failed:
            lost, why = len(failed.unsent) + len(failed.unknown), str(failed)
        except BaseException as error:  # noqa: BLE001 - Ctrl-C too: the interpreter is going to exit anyway
            lost, why = len(self.buffered), repr(error)
        else:
            return
        warnings.warn(
            f"{lost} messages for {self._where} were not stored: {why}", RuntimeWarning, stacklevel=1
        )

    # In the background

    def _move(self) -> None:
        """From the intake to the buffer."""
        with self._lock:
            for entry in self._intake:
                self._producer._put(entry)
            self._intake.clear()
            self._intake_bytes = 0

    async def _look(self) -> tuple[SendMessage, ...]:
        self._move()
        return self._producer.buffered

    async def _accept(self, entry: Entry) -> None:
        self._move()
        await self._producer._accept(entry)

    async def _accept_and_wait(self, entry: Entry) -> Confirmation | None:
        self._move()
        return await self._producer._accept_and_wait(entry)

    async def _flush(self) -> None:
        self._move()
        await self._producer.flush()

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._move()
        try:
            await self._producer.__aexit__(kind, error, trace)
        finally:
            await self._client.close()


# Those that may have something to send. They are kept until they are closed, or what nobody refers to any
# more could be lost in silence.
_open_producers: set[Producer[Any]] = set()


@atexit.register
def _at_exit() -> None:
    for producer in list(_open_producers):
        producer._end_with_interpreter()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_producers.clear)
