"""One TCP connection: bytes into a buffer, whole frames to the conversation, answers out.

Requests are received straight into the buffer that is later written to disk. While a large frame is
arriving, reads stop exactly at its end, so that nothing of the next one has to be moved. Everything that
became answerable by one read is answered with one write.

A connection handles one request at a time. While an answer waits for something slow, or the client does
not take what it asked for, frames stay in the buffer and, when that is full, in the client's hands.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, cast

from borzoi.broker.broker import Broker
from borzoi.broker.sessions import Client
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import FRAME_BYTES_UNAUTHENTICATED
from borzoi.model.values import BytesLike, Transport
from borzoi.server.conversation import Answer, Conversation, Waiting
from borzoi.server.generations import PREAMBLE_BYTES, recognise
from borzoi.server.tcp.budget import BufferBudget
from borzoi.server.waiting import Worker

# Size of a connection's buffer once it is logged in and has nothing larger to receive.
BUFFER_BYTES = 64 * 1024
# A request may take this much longer than the frame timeout per byte, so that slow networks can send
# large ones: 1 us per byte is 1 MB/s.
_GRACE_US_PER_BYTE = 1
# Frames above this are read to their end and no further.
_BOUNDED_READ_BYTES = 256 * 1024
# Pieces of an answer below this are joined into one; above, they are written as they are.
_JOIN_BYTES = 64 * 1024


class ConnectionHost(Protocol):
    """What the listener gives its connections."""

    broker: Broker
    worker: Worker
    budget: BufferBudget
    connections: set["Connection"]
    frame_bytes_max: int
    connections_max: int
    frame_timeout_us: int
    login_timeout_us: int
    now_us: Callable[[], int]


class Connection(asyncio.BufferedProtocol):
    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._now_us = host.now_us
        self._transport: asyncio.Transport | None = None
        self._client: Client | None = None
        self._conversation: Conversation | None = None
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = self._end = 0  # the received, unanswered bytes
        self._frame_bytes = 0  # size of the frame at `_start` as far as it is known, else 0
        self._is_waiting = False  # for something slow, before the next frame may be looked at
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_closing = False
        self._frame_started_us = 0  # when the first byte of an incomplete frame came, 0 = none
        self._used_bytes = 0  # the largest frame since the last tick
        self._has_full_buffer = False  # it starts small and gets its real size with the login

    # The event loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host = self._host
        self._transport = cast("asyncio.Transport", transport)
        if len(host.connections) >= host.connections_max:
            host.broker.logger.warning("connection refused, there are too many", limit=host.connections_max)
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        address = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        host.connections.add(self)
        self._client = host.broker.clients.connect(Transport.TCP, address, self._now_us())
        self._resize(FRAME_BYTES_UNAUTHENTICATED)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        host = self._host
        self._is_closing = True
        if self._client is not None:
            host.connections.discard(self)
            host.broker.disconnect(self._client, self._now_us())
            self._client = None
            host.budget.forget(self, len(self._buffer))
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer) or self._start + self._frame_bytes > len(self._buffer):
            self._compact()
        frame_end = self._start + self._frame_bytes
        if self._frame_bytes > _BOUNDED_READ_BYTES and frame_end > self._end:
            return self._view[self._end : frame_end]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._pump()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._pump()

    # The server's side

    @property
    def is_idle(self) -> bool:
        return not self._is_waiting and self._start == self._end

    def tick(self, now_us: int) -> None:
        """Once a second: close what takes too long, give back memory."""
        host = self._host
        client = self._client
        if client is None or self._is_waiting:
            return
        grace_us = self._frame_bytes * _GRACE_US_PER_BYTE
        if self._frame_started_us and now_us - self._frame_started_us > host.frame_timeout_us + grace_us:
            self.close("request not complete in time")
        elif not self._is_authenticated and now_us - client.last_seen_us > host.login_timeout_us:
            self.close("no login in time")
        elif self.is_idle and len(self._buffer) > BUFFER_BYTES and self._used_bytes <= BUFFER_BYTES:
            self._resize(BUFFER_BYTES)
        self._used_bytes = 0

    def close(self, reason: str) -> None:
        """Write what was answered so far and close."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._client is not None:
            self._host.broker.logger.info(
                "connection closed", client=self._client.id, address=self._client.address, reason=reason
            )
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without waiting for the client to take what is still to be written."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def budget_granted(self) -> None:
        """Memory for the frame at hand has become free, and is reserved for it."""
        self._is_waiting = False
        self._resize(_buffer_bytes_for(self._frame_bytes), is_reserved=True)
        self._resume_reading()

    @property
    def _is_authenticated(self) -> bool:
        return self._conversation is not None and self._conversation.is_authenticated

    def _pump(self) -> None:
        """Answer every whole frame in the buffer, then write all answers at once."""
        answers: list[BytesLike] = []
        now_us = self._now_us()
        was_large = False
        try:
            while self._start != self._end and not (
                self._is_waiting or self._is_writing_paused or self._is_closing
            ):
                conversation = self._conversation or self._recognise()
                if conversation is None or not self._is_frame_complete(conversation):
                    break
                end = self._start + self._frame_bytes
                answer = conversation.receive(self._view, self._start, end, now_us)
                self._start = end
                was_large = self._frame_bytes > BUFFER_BYTES
                self._frame_bytes = self._frame_started_us = 0
                if isinstance(answer, list):
                    answers += answer
                else:
                    self._wait(answer)
        except RemoteProtocolError as error:
            self.close(str(error))
        if was_large and self._start == self._end and self._host.budget.is_contended:
            self._resize(BUFFER_BYTES)  # others wait for what this connection would only keep in case
        if self._start != self._end and not self._frame_started_us:
            self._frame_started_us = now_us
        if answers:
            self._write(answers)
        if self._start != self._end or self._is_reading_paused or not self._has_full_buffer:
            self._adjust_reading()

    def _recognise(self) -> Conversation | None:
        """Choose the generation by the first bytes, once they are there."""
        client = self._client
        if client is None or self._end - self._start < PREAMBLE_BYTES:
            return None
        preamble = bytes(self._view[self._start : self._start + PREAMBLE_BYTES])
        self._conversation = recognise(preamble, self._host.broker, client, self._host.frame_bytes_max)
        return self._conversation

    def _is_frame_complete(self, conversation: Conversation) -> bool:
        """Whether the frame at the start of the buffer is all there; if not, make room for it."""
        available = self._end - self._start
        size = self._frame_bytes
        if not size:
            if available < conversation.header_bytes:
                return False
            size = self._frame_bytes = conversation.frame_size(self._buffer, self._start)
            self._used_bytes = max(self._used_bytes, size)
        if available >= size:
            return True
        if size > len(self._buffer):
            self._grow(size)
        return False

    def _wait(self, waiting: Waiting) -> None:
        """Answer nothing else before this answer is there."""
        self._is_waiting = True

        def done(outcome: object) -> None:
            self._is_waiting = False
            if self._is_closing:
                return
            try:
                answer = waiting.finish(outcome)
            except Exception as error:
                self._host.broker.logger.exception("answer failed unexpectedly", reason=repr(error))
                self.close("internal error")  # or the client would wait for the answer
                return
            self._write(answer)
            self._pump()

        self._host.worker.start(waiting.pending, done)

    def _write(self, pieces: Answer) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(pieces) == 1:
            transport.write(pieces[0])
            return
        small: list[BytesLike] = []
        for piece in pieces:
            if len(piece) < _JOIN_BYTES:
                small.append(piece)
                continue
            if small:
                transport.write(b"".join(small))
                small = []
            transport.write(piece)
        if small:
            transport.write(b"".join(small))

    # The buffer

    def _compact(self) -> None:
        """Move the unanswered bytes to the front."""
        size = self._end - self._start
        self._view[:size] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, size

    def _grow(self, size: int) -> None:
        wanted = _buffer_bytes_for(size)
        if self._host.budget.reserve(self, wanted - len(self._buffer)):
            self._resize(wanted, is_reserved=True)
        else:
            self._is_waiting = True

    def _resize(self, size: int, *, is_reserved: bool = False) -> None:
        budget = self._host.budget
        change = size - len(self._buffer)
        if change > 0 and not is_reserved:
            budget.take(change)
        elif change < 0:
            budget.release(self, -change)
        buffer = bytearray(size)
        received = self._end - self._start
        buffer[:received] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, received

    def _adjust_reading(self) -> None:
        if self._is_closing:
            return
        if not self._has_full_buffer and self._is_authenticated and not self._is_waiting:
            self._has_full_buffer = True
            if len(self._buffer) < BUFFER_BYTES:
                self._resize(BUFFER_BYTES)
        if (self._is_waiting or self._is_writing_paused) and self._end == len(self._buffer):
            self._pause_reading()
        else:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_reading_paused and self._transport is not None and not self._transport.is_closing():
            self._is_reading_paused = False
            self._transport.resume_reading()


def _buffer_bytes_for(frame_bytes: int) -> int:
    """Room past the end of a middling frame: a read that fills its buffer makes the loop try once more."""
    return _BOUNDED_READ_BYTES if BUFFER_BYTES <= frame_bytes < _BOUNDED_READ_BYTES else frame_bytes


def wall_clock_us() -> int:
    return time.time_ns() // 1000
