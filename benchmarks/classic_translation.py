"""What it costs to translate the messages of classic clients to a batch and back.

First part: `to_batch` and `from_batches` against a plain loop over the messages that does the same, in turn,
within one run; what counts is the ratio of the medians. Dialect D has the goal, the others are shown beside
it. Before anything is measured the two have to agree on every byte.

Second part, with `--server`: sends and polls of the same messages by a classic client and by a client of the
0.9 generation, in turn, on one server that answers both on its TCP port. It tells how much of the throughput
is left to the classic one, and has no goal.

    python benchmarks/classic_translation.py [--rounds 15] [--json FILE] [--server ["COMMAND"]]
"""

import argparse
import json
import os
import platform
import secrets
import shlex
import shutil
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from xxhash import xxh3_64_intdigest

from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.translate import from_batches, to_batch
from frames import U32, U64, BrokenServerError, Session, build_batch, dial
from launch import Launched
from load import Measurement, Polls, Sample, Sends, Window, measure

GOAL_RATIO = 2.0
NOW_US = 1_700_000_000_000_000
MESSAGES = 1000
PAYLOADS_BYTES = (1024, 100)
SERVER_COMMAND = f"{sys.executable} -m borzoi server"

U64_MAX = 2**64 - 1
# What makes a version 4 UUID of random bits, in the two halves of a little-endian id.
LOW_MASK, LOW_BITS = U64_MAX >> 2, 2 << 62
HIGH_MASK, HIGH_BITS = U64_MAX ^ 0xF000, 0x4000

FRAME = struct.Struct("<QQIIIIQ")
FRAME_SEEN = struct.Struct("<8x16sIIII8x")
RECORD = struct.Struct("<16sQQQII")
RECORD_SEEN = struct.Struct("<8xQQ16xQII")
OLD_SEEN = struct.Struct("<QQII")
OLD_RECORD = struct.Struct("<QBQ16sIII")
HEADER_SEEN = struct.Struct("<8xQQQQ8xI")


@dataclass(frozen=True, slots=True)
class Pair:
    """Medians of one cell, in microseconds per batch."""

    title: str
    translated_us: float
    plain_us: float
    has_goal: bool

    @property
    def ratio(self) -> float:
        return self.plain_us / self.translated_us

    @property
    def verdict(self) -> str:
        return ("PASS" if self.ratio >= GOAL_RATIO else "MISS") if self.has_goal else ""


def head_bytes(dialect: Dialect) -> int:
    return dialect.message_header_bytes or OLD_SEEN.size


def plain_to_batch(messages: memoryview, count: int, dialect: Dialect, random: bytes) -> bytearray:
    """One batch, message by message, for messages without user headers."""
    width, is_old, seen = head_bytes(dialect), dialect is Dialect.A, []
    base_us = NOW_US if is_old else U64_MAX
    position = 0
    for _ in range(count):
        if is_old:
            low, high, _, payload = OLD_SEEN.unpack_from(messages, position)
            origin_us = NOW_US
        else:
            low, high, origin_us, _, payload = RECORD_SEEN.unpack_from(messages, position)
            base_us = min(base_us, origin_us)
        seen.append((low, high, origin_us, position + width, payload))
        position += width + payload
    batch = bytearray(256 + position - count * (width - 48))
    struct.pack_into("<QQ", batch, 24, base_us, len(batch))
    U32.pack_into(batch, 48, count)
    view = memoryview(batch)
    fresh = struct.iter_unpack("<QQ", random)
    start = 256
    for delta, (low, high, origin_us, body, payload) in enumerate(seen):
        end = start + 48 + payload
        if low or high:
            FRAME.pack_into(batch, start + 8, low, high, delta, origin_us - base_us, 0, payload, 0)
        else:
            low_bits, high_bits = next(fresh)
            new_low, new_high = low_bits & LOW_MASK | LOW_BITS, high_bits & HIGH_MASK | HIGH_BITS
            FRAME.pack_into(batch, start + 8, new_low, new_high, delta, origin_us - base_us, 0, payload, 0)
        view[start + 48 : end] = messages[body : body + payload]
        U64.pack_into(batch, start, xxh3_64_intdigest(view[start + 8 : end]))
        start = end
    return batch


def plain_from_batch(batch: memoryview, dialect: Dialect) -> bytearray:
    """The records, message by message, for messages without user headers."""
    base_offset, base_us, origin_us, length, count = HEADER_SEEN.unpack_from(batch)
    is_old = dialect is Dialect.A
    width = OLD_RECORD.size if is_old else dialect.message_header_bytes
    out = bytearray(length - 256 + count * (width - 48))
    view = memoryview(out)
    position, start = 256, 0
    for _ in range(count):
        message_id, delta, delta_us, headers, payload = FRAME_SEEN.unpack_from(batch, position)
        body = batch[position + 48 : position + 48 + payload]
        end = start + width + payload
        view[start + width : end] = body
        if is_old:
            checksum = zlib.crc32(body)
            OLD_RECORD.pack_into(
                out, start, base_offset + delta, 1, base_us, message_id, checksum, headers, payload
            )
        else:
            RECORD.pack_into(
                out,
                start + 8,
                message_id,
                base_offset + delta,
                base_us,
                origin_us + delta_us,
                headers,
                payload,
            )
            U64.pack_into(out, start, xxh3_64_intdigest(view[start + 8 : end]))
        position += 48 + payload
        start = end
    return out


def sent_records(sizes: list[int], dialect: Dialect) -> tuple[bytes, bytes]:
    """Records and index of a send without ids, as classic clients send them."""
    records, index, end = [], [], 0
    for number, size in enumerate(sizes):
        if dialect is Dialect.A:
            head = OLD_SEEN.pack(0, 0, 0, size)
        else:
            head = bytes(8) + RECORD.pack(bytes(16), 0, 0, NOW_US + number, 0, size)
        record = head.ljust(head_bytes(dialect), b"\0") + secrets.token_bytes(size)
        records.append(record)
        end += len(record)
        index.append(struct.pack("<IIQ", 0, end, 0))
    return b"".join(records), b"".join(index)


def compare(rounds: int) -> Iterator[Pair]:
    source = secrets.SystemRandom()
    for payload_bytes in PAYLOADS_BYTES:
        spread = range(payload_bytes // 2, payload_bytes * 3 // 2)
        equal, various = [payload_bytes] * MESSAGES, [source.choice(spread) for _ in range(MESSAGES)]
        for dialect in sorted(Dialect, key=lambda each: each is not Dialect.D):
            yield from compare_one(equal, f"{MESSAGES} x {payload_bytes} B", dialect, rounds)
        about = f"{MESSAGES} x about {payload_bytes} B"
        yield from compare_one(various, about, Dialect.D, rounds, has_goal=False)
    yield from compare_one([1024], "1 x 1024 B", Dialect.D, rounds, has_goal=False)


def compare_one(
    sizes: list[int], title: str, dialect: Dialect, rounds: int, *, has_goal: bool = True
) -> Iterator[Pair]:
    records, index = (memoryview(part) for part in sent_records(sizes, dialect))
    count = len(sizes)
    said = (None, None) if dialect is Dialect.A else (count, index)

    def translated_in() -> memoryview:
        return to_batch(records, *said, dialect, now_us=NOW_US, random_bytes=os.urandom)[0]

    def plain_in() -> bytearray:
        return plain_to_batch(records, count, dialect, os.urandom(16 * count))

    fixed = secrets.token_bytes(16 * count)
    batch, _ = to_batch(records, *said, dialect, now_us=NOW_US, random_bytes=lambda _: fixed)

    def translated_out() -> memoryview:
        return from_batches([batch], dialect)[0]

    def plain_out() -> bytearray:
        return plain_from_batch(batch, dialect)

    if plain_to_batch(records, count, dialect, fixed) != batch or plain_out() != translated_out():
        raise AssertionError(f"{title}, {dialect.name}: the two disagree")
    for direction, ours, theirs in (("in", translated_in, plain_in), ("out", translated_out, plain_out)):
        yield Pair(
            f"{title}, {dialect.name}, {direction}",
            *interleaved(ours, theirs, rounds),
            has_goal=has_goal and dialect is Dialect.D,
        )


def interleaved(
    first: Callable[[], object], second: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Median microseconds per call of both, measured in turn after a warm-up."""
    times: tuple[list[float], list[float]] = ([], [])
    repeats = max(1, int(0.02 / clock(second, 3)))
    for number in range(rounds + 2):
        for work, taken in zip((first, second), times, strict=True):
            spent = clock(work, repeats)
            if number >= 2:
                taken.append(spent)
    return statistics.median(times[0]) * 1e6, statistics.median(times[1]) * 1e6


def clock(work: Callable[[], object], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - started) / repeats


LOGIN, POLL, SEND = 38, 100, 101
STREAM = "benchmark"
MOST_BYTES_PER_ROUND = 2_000_000_000
WARM_UP_S = 0.3
ROUND_S = 0.7
POLLED_BATCHES = 128
REPLY_HEADER_BYTES = 8
POLL_PREFIX_BYTES = 16


@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests per second of one kind of work, by a classic and by a 0.9 client."""

    title: str
    classic: list[Measurement]
    vsr: list[Measurement]

    @property
    def ratio(self) -> float:
        return self.rate(self.classic) / self.rate(self.vsr)

    @staticmethod
    def rate(rounds: list[Measurement]) -> float:
        return statistics.median(each.requests_per_s for each in rounds)


class ClassicConnection:
    """A logged-in connection of dialect D, one request at a time."""

    def __init__(self, port: int, reply_bytes: int = 4096) -> None:
        self._socket = dial(port)
        self.reply = memoryview(bytearray(reply_bytes))
        names = b"\x04iggy\x04iggy"
        self.ask(frame(LOGIN, names + U32.pack(6) + b"0.10.0" + U32.pack(0)))

    def ask(self, request: bytes) -> int:
        """Send a frame and receive its reply; returns the size of the reply."""
        self._socket.sendall(request)
        received = self._socket.recv_into(self.reply)
        while (
            received < REPLY_HEADER_BYTES or received < REPLY_HEADER_BYTES + U32.unpack_from(self.reply, 4)[0]
        ):
            got = self._socket.recv_into(self.reply[received:])
            if got == 0:
                raise BrokenServerError("the server closed the connection")
            received += got
        status = U32.unpack_from(self.reply)[0]
        if status:
            raise BrokenServerError(f"code {U32.unpack_from(request, 4)[0]} refused: {status}")
        return received


def frame(code: int, body: bytes) -> bytes:
    return struct.pack("<II", 4 + len(body), code) + body


def identifier(text: str) -> bytes:
    return bytes([2, len(text)]) + text.encode()


@dataclass(frozen=True, slots=True)
class ClassicSends:
    """Send the same messages again and again to partition 0."""

    port: int
    topic: str
    records: bytes
    index: bytes

    def run(self, window: Window) -> Sample:
        connection = ClassicConnection(self.port)
        count = len(self.index) // 16
        routing = identifier(STREAM) + identifier(self.topic) + struct.pack("<BBII", 2, 4, 0, count)
        request = frame(SEND, U32.pack(len(routing)) + routing + self.index + self.records)
        requests = 0
        started, until = window.open()
        limit = window.bytes_per_connection // len(request)
        while (now := time.perf_counter()) < until and requests < limit:
            connection.ask(request)
            requests += 1
        stored = poll_newest(self.port, self.topic) + 1
        if stored != requests * count:
            raise BrokenServerError(f"{requests} sends of {count}, but {stored} messages are there")
        return Sample(requests, started, now)


@dataclass(frozen=True, slots=True)
class ClassicPolls:
    """Poll one batch after the other, round and round."""

    port: int
    topic: str
    messages: int
    payload_bytes: int

    def run(self, window: Window) -> Sample:
        expected = REPLY_HEADER_BYTES + POLL_PREFIX_BYTES + self.messages * (64 + self.payload_bytes)
        connection = ClassicConnection(self.port, expected + 4096)
        wanted = [
            poll_frame(self.topic, number * self.messages, self.messages) for number in range(POLLED_BATCHES)
        ]
        requests = 0
        started, until = window.open()
        while (now := time.perf_counter()) < until:
            size = connection.ask(wanted[requests % POLLED_BATCHES])
            if size != expected:
                raise BrokenServerError(f"a poll brought {size} bytes instead of {expected}")
            requests += 1
        return Sample(requests, started, now)


def poll_frame(topic: str, offset: int, count: int) -> bytes:
    target = b"\x01" + identifier("reader") + identifier(STREAM) + identifier(topic)
    return frame(POLL, target + struct.pack("<BIBQIB", 1, 0, 1, offset, count, 0))


def poll_newest(port: int, topic: str) -> int:
    """The offset of the newest message, which every poll reply names."""
    connection = ClassicConnection(port, 1 << 20)
    connection.ask(poll_frame(topic, 1 << 60, 1))
    newest: int = U64.unpack_from(connection.reply, REPLY_HEADER_BYTES + 4)[0]
    return newest


def compare_on_server(command: list[str], rounds: int) -> Iterator[Throughput]:
    home = Path(tempfile.mkdtemp(prefix="borzoi-benchmark-"))
    try:
        server = Launched(
            [*command, "--data", str(home / "data"), "--tcp", "127.0.0.1:0"], home / "server.log"
        )
        try:
            admin = Session(server.port)
            admin.create_stream(STREAM)
            for payload_bytes in PAYLOADS_BYTES:
                title = f"{MESSAGES} x {payload_bytes} B"
                yield compare_sends(server, admin, f"send {title}", payload_bytes, rounds)
                yield compare_polls(server, admin, f"poll {title}", payload_bytes, rounds)
        finally:
            server.stop()
    finally:
        shutil.rmtree(home)


@contextmanager
def topic_on(admin: Session, name: str) -> Iterator[str]:
    admin.create_topic(STREAM, name, 1)
    try:
        yield name
    finally:
        admin.delete_topic(STREAM, name)


def compare_sends(
    server: Launched, admin: Session, title: str, payload_bytes: int, rounds: int
) -> Throughput:
    records, index = sent_records([payload_bytes] * MESSAGES, Dialect.D)
    batch = build_batch(MESSAGES, payload_bytes)

    def classic(seconds: float) -> Measurement:
        with topic_on(admin, "sends") as topic:
            return run(server, ClassicSends(server.port, topic, records, index), seconds)

    def vsr(seconds: float) -> Measurement:
        with topic_on(admin, "sends") as topic:
            return run(server, Sends(server.port, batch, STREAM, topic, 0), seconds)

    return in_turn(title, classic, vsr, rounds)


def compare_polls(
    server: Launched, admin: Session, title: str, payload_bytes: int, rounds: int
) -> Throughput:
    batch = build_batch(MESSAGES, payload_bytes)
    reply_bytes = 256 + POLL_PREFIX_BYTES + len(batch)
    with topic_on(admin, "polls") as topic:
        fill = Sends(server.port, batch, STREAM, topic, 0)
        # The limit ends the sends when there is exactly what will be polled.
        frame_bytes = len(admin.send_frame(STREAM, topic, 0, batch))
        measure([fill], server.cpu_s, seconds=60, most_bytes=POLLED_BATCHES * frame_bytes, cores=all_cores())
        classic = ClassicPolls(server.port, topic, MESSAGES, payload_bytes)
        vsr = Polls(server.port, STREAM, topic, POLLED_BATCHES, MESSAGES, reply_bytes)
        return in_turn(
            title,
            lambda seconds: run(server, classic, seconds),
            lambda seconds: run(server, vsr, seconds),
            rounds,
        )


def run(server: Launched, work: ClassicSends | ClassicPolls | Sends | Polls, seconds: float) -> Measurement:
    return measure([work], server.cpu_s, seconds=seconds, most_bytes=MOST_BYTES_PER_ROUND, cores=all_cores())


def in_turn(
    title: str, classic: Callable[[float], Measurement], vsr: Callable[[float], Measurement], rounds: int
) -> Throughput:
    classic(WARM_UP_S)
    vsr(WARM_UP_S)
    pairs = [(classic(ROUND_S), vsr(ROUND_S)) for _ in range(rounds)]
    return Throughput(title, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def all_cores() -> set[int]:
    return os.sched_getaffinity(0)


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds per cell")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument(
        "--server", nargs="?", const=SERVER_COMMAND, help="measure a server too (default: this Borzoi)"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    environment = machine()
    print(", ".join(f"{name} {value}" for name, value in environment.items()), flush=True)
    pairs = []
    print(f"{'messages, dialect, direction':36}{'translate':>12}{'plain loop':>12}{'ratio':>8}")
    for pair in compare(arguments.rounds):
        pairs.append(pair)
        times = f"{pair.translated_us:9.1f} us{pair.plain_us:9.1f} us"
        print(f"{pair.title:36}{times}{pair.ratio:8.2f}  {pair.verdict}", flush=True)
    print(f"goal for dialect D, equal sizes: {GOAL_RATIO} times as fast as the plain loop")
    throughputs = []
    if arguments.server:
        print(f"\n{'work on one server':36}{'classic':>12}{'0.9':>12}{'ratio':>8}")
        for each in compare_on_server(shlex.split(arguments.server), max(3, arguments.rounds // 3)):
            throughputs.append(each)
            classic, vsr = each.rate(each.classic), each.rate(each.vsr)
            print(
                f"{each.title:36}{classic:8.0f} r/s{vsr:8.0f} r/s{each.ratio:8.2f}",
                flush=True,
            )
    if arguments.json:
        report = {
            "machine": environment,
            "translation": [{**asdict(pair), "ratio": pair.ratio, "verdict": pair.verdict} for pair in pairs],
            "throughput": [{**asdict(each), "ratio": each.ratio} for each in throughputs],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
