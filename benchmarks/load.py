"""The load generator: one process per connection, blocking sockets, frames built before the clock starts.

Every connection is a closed loop: send a frame, receive its reply, send the next. All connections wait at a
barrier until the last one is set up. A worker checks the status of every reply, and at its end that the
server really took or gave as many messages as there were requests.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError

from frames import HEADER_BYTES, REQUEST_AT, STATUS_AT, U32, U64, BrokenServerError, Session, dial, receive

BARRIER_TIMEOUT_S = 30
BASE_OFFSET_AT = HEADER_BYTES + 16
POLLED_COUNT_AT = HEADER_BYTES + 12
FIRST_REQUEST_NUMBER = 2
OK = bytes(4)


@dataclass(frozen=True, slots=True)
class Sends:
    """Send this batch again and again to one partition; without a topic the server is the bare one."""

    port: int
    batch: bytes
    stream: str
    topic: str | None
    partition: int

    def run(self, window: "Window") -> "Sample":
        if self.topic is None:
            connection = dial(self.port)
            frame = bytearray(HEADER_BYTES + 32) + self.batch
            U32.pack_into(frame, 48, len(frame))
        else:
            session = Session(self.port)
            connection = session.connection
            frame = session.send_frame(self.stream, self.topic, self.partition, self.batch)
        reply = memoryview(bytearray(1 << 16))
        messages = U32.unpack_from(self.batch, 48)[0]
        number = FIRST_REQUEST_NUMBER
        started, until = window.open()
        limit = FIRST_REQUEST_NUMBER + window.bytes_per_connection // len(frame)
        while (now := time.perf_counter()) < until and number < limit:
            U64.pack_into(frame, REQUEST_AT, number)
            connection.sendall(frame)
            receive(connection, reply)
            if reply[STATUS_AT : STATUS_AT + 4] != OK:
                raise BrokenServerError(f"send refused: {U32.unpack_from(reply, STATUS_AT)[0]}")
            number += 1
        requests = number - FIRST_REQUEST_NUMBER
        if self.topic is not None:
            last = U64.unpack_from(reply, BASE_OFFSET_AT)[0]
            if last != (requests - 1) * messages:
                raise BrokenServerError(f"{requests} sends of {messages}, but the last one got offset {last}")
        return Sample(requests, started, now)


@dataclass(frozen=True, slots=True)
class Polls:
    """Poll one batch after the other, round and round; without a topic the server is the bare one."""

    port: int
    stream: str
    topic: str | None
    batches: int
    messages: int
    reply_bytes: int

    def run(self, window: "Window") -> "Sample":
        if self.topic is None:
            connection = dial(self.port)
            frame = bytearray(HEADER_BYTES + 48)
            U32.pack_into(frame, 48, len(frame))
            frames = [frame] * self.batches
        else:
            session = Session(self.port)
            connection = session.connection
            frames = [
                session.poll_frame(self.stream, self.topic, 0, index * self.messages, self.messages)
                for index in range(self.batches)
            ]
        reply = memoryview(bytearray(self.reply_bytes + 4096))
        requests = 0
        started, until = window.open()
        while (now := time.perf_counter()) < until:
            connection.sendall(frames[requests % self.batches])
            size = receive(connection, reply)
            if reply[STATUS_AT : STATUS_AT + 4] != OK or size != self.reply_bytes:
                raise BrokenServerError(f"a poll brought {size} bytes instead of {self.reply_bytes}")
            requests += 1
        if self.topic is not None and U32.unpack_from(reply, POLLED_COUNT_AT)[0] != self.messages:
            raise BrokenServerError("a poll brought the wrong number of messages")
        return Sample(requests, started, now)


@dataclass(frozen=True, slots=True)
class Window:
    """When and where the connections of a round start and how long, or how much, they may send."""

    barrier: Barrier
    seconds: float
    bytes_per_connection: int
    cores: set[int]

    def open(self) -> tuple[float, float]:
        self.barrier.wait(BARRIER_TIMEOUT_S)
        started = time.perf_counter()
        return started, started + self.seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests of one connection and the clock around them, comparable between processes."""

    requests: int
    started_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """A round: all connections together."""

    requests_per_s: float
    cpu_us_per_request: float


def measure(
    work: Sequence[Sends | Polls],
    cpu_s: Callable[[], float],
    *,
    seconds: float,
    most_bytes: int,
    cores: set[int],
) -> Measurement:
    """Runs one connection per entry of `work`, all at the same time, on these cores."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(work) + 1)
    window = Window(barrier, seconds, most_bytes // len(work), cores)
    workers = []
    for each in work:
        receiver, sender = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(each, window, sender))
        worker.start()
        sender.close()
        workers.append((worker, receiver))
    with suppress(BrokenBarrierError):
        barrier.wait(BARRIER_TIMEOUT_S)
    cpu_before_s = cpu_s()
    results = [_result(receiver) for _, receiver in workers]
    cpu_used_s = cpu_s() - cpu_before_s
    for worker, _ in workers:
        worker.join()
    samples = [result for result in results if isinstance(result, Sample)]
    if len(samples) != len(work):
        raise BrokenServerError(
            "; ".join(str(result) for result in results if not isinstance(result, Sample))
        )
    requests = sum(sample.requests for sample in samples)
    wall_s = max(sample.ended_s for sample in samples) - min(sample.started_s for sample in samples)
    return Measurement(requests / wall_s, cpu_used_s / max(1, requests) * 1e6)


def _work(work: Sends | Polls, window: Window, sender: Connection) -> None:
    os.sched_setaffinity(0, window.cores)
    try:
        sender.send(work.run(window))
    except (OSError, BrokenServerError, BrokenBarrierError) as error:
        window.barrier.abort()
        sender.send(f"{type(error).__name__}: {error}")


def _result(receiver: Connection) -> Sample | str:
    try:
        answer: Sample | str = receiver.recv()
    except EOFError:
        return "a load process died"
    return answer
