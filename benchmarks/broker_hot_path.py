"""How much of a bare Python server's speed is left when the whole broker stands in its place.

Borzoi and a bare server (see `bare_server.py`) get the same bytes from the same load generator, in turn,
within one run; what counts is the ratio of their medians, because absolute numbers belong to the machine.
CPU per request is absolute too: between two cores it contains the cost of waking an idle one, which in a
virtual machine can exceed the work itself. Cell `s` repeats cell `d` with everything on one core.
Every round uses a fresh topic and deletes it, the bare file is truncated: no more than one round's data is on
the disk at any time. Memory is touched once before anything is measured, since a virtual machine may pay for
every page on its first use.

    python benchmarks/broker_hot_path.py [--cells a,d] [--rounds 5] [--seconds 0.7] [--json FILE]
"""

import argparse
import json
import mmap
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from frames import HEADER_BYTES, POLL_PREFIX_BYTES, Session, build_batch, receive
from launch import Launched
from load import Measurement, Polls, Sends, measure

STREAM = "benchmark"
MOST_BYTES_PER_ROUND = 5_000_000_000
WARM_UP_S = 0.3
POLLED_BATCHES = 128
BARE_SERVER = Path(__file__).with_name("bare_server.py")


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of work and what is wanted of Borzoi in it."""

    title: str
    messages: int
    payload_bytes: int
    connections: int
    goal_ratio: float
    polls: bool = False
    goal_cpu_us: float | None = None
    one_core: bool = False
    own_core: bool = False


CELLS = {
    "a": Cell("send 1000 x 1 KB, 1 connection", 1000, 1024, 1, 0.8),
    "b": Cell("send 1000 x 1 KB, 4 connections", 1000, 1024, 4, 0.8),
    "c": Cell("send 1000 x 100 B, 1 connection", 1000, 100, 1, 0.7),
    "d": Cell("send 1 x 1 KB, 4 connections", 1, 1024, 4, 0.5, goal_cpu_us=25.0),
    "s": Cell("as d, all on one core", 1, 1024, 4, 0.5, goal_cpu_us=25.0, one_core=True),
    "t": Cell("as d, server on its own core", 1, 1024, 4, 0.5, goal_cpu_us=25.0, own_core=True),
    "e": Cell("poll 1000 x 1 KB, 1 connection", 1000, 1024, 1, 0.8, polls=True),
}


@dataclass(frozen=True, slots=True)
class CellResult:
    """Every round of one cell, and its verdict."""

    cell: Cell
    borzoi: list[Measurement]
    bare: list[Measurement]

    @property
    def ratio(self) -> float:
        return _median_rate(self.borzoi) / _median_rate(self.bare)

    @property
    def passes(self) -> bool:
        affordable = self.cell.goal_cpu_us is None or _median_cpu(self.borzoi) <= self.cell.goal_cpu_us
        return self.ratio >= self.cell.goal_ratio and affordable


class Bench:
    """Both servers and the rounds against them."""

    def __init__(self, home: Path, server_command: Sequence[str]) -> None:
        self._home = home
        self._bare_file = home / "bare.log"
        data = home / "data"
        self._borzoi = Launched(
            [*server_command, "--data", str(data), "--tcp", "127.0.0.1:0"], home / "borzoi.log"
        )
        self._admin = Session(self._borzoi.port)
        self._admin.create_stream(STREAM)
        self._topics = 0

    def close(self) -> None:
        self._borzoi.stop()

    def run(self, cell: Cell, rounds: int, seconds: float) -> CellResult:
        with self._poll_pair(cell) if cell.polls else self._send_pair(cell) as (borzoi, bare):
            borzoi(WARM_UP_S)
            bare(WARM_UP_S)
            pairs = [(borzoi(seconds), bare(seconds)) for _ in range(rounds)]
        return CellResult(cell, [pair[0] for pair in pairs], [pair[1] for pair in pairs])

    @contextmanager
    def _send_pair(self, cell: Cell) -> Iterator[tuple[Callable[[float], Measurement], ...]]:
        batch = build_batch(cell.messages, cell.payload_bytes)
        bare = self._launch_bare("append", str(self._bare_file))

        def send_to_borzoi(seconds: float) -> Measurement:
            topic = self._new_topic(cell.connections)
            work = [Sends(self._borzoi.port, batch, STREAM, topic, n) for n in range(cell.connections)]
            try:
                return self._measure(self._borzoi, work, seconds, cell)
            finally:
                self._admin.delete_topic(STREAM, topic)

        def send_to_bare(seconds: float) -> Measurement:
            work = [Sends(bare.port, batch, STREAM, None, n) for n in range(cell.connections)]
            try:
                return self._measure(bare, work, seconds, cell)
            finally:
                os.truncate(self._bare_file, 0)

        try:
            yield send_to_borzoi, send_to_bare
        finally:
            bare.stop()

    @contextmanager
    def _poll_pair(self, cell: Cell) -> Iterator[tuple[Callable[[float], Measurement], ...]]:
        batch = build_batch(cell.messages, cell.payload_bytes)
        topic = self._new_topic(1)
        self._fill(topic, batch)
        self._bare_file.write_bytes(b"")
        with self._bare_file.open("ab") as file:
            for _ in range(POLLED_BATCHES):
                file.write(batch)
        bare = self._launch_bare("serve", str(self._bare_file), str(len(batch)))
        reply_bytes = HEADER_BYTES + POLL_PREFIX_BYTES + len(batch)

        def poll(server: Launched, name: str | None) -> Callable[[float], Measurement]:
            work = [Polls(server.port, STREAM, name, POLLED_BATCHES, cell.messages, reply_bytes)]
            return lambda seconds: self._measure(server, work, seconds, cell)

        try:
            yield poll(self._borzoi, topic), poll(bare, None)
        finally:
            bare.stop()
            self._admin.delete_topic(STREAM, topic)
            self._bare_file.unlink()

    def _measure(
        self, server: Launched, work: Sequence[Sends | Polls], seconds: float, cell: Cell
    ) -> Measurement:
        everywhere = os.sched_getaffinity(0)
        server_cores = {max(everywhere)} if cell.one_core or cell.own_core else everywhere
        cores = server_cores
        if cell.own_core and len(everywhere) > 1:
            cores = everywhere - server_cores
        server.pin(server_cores)
        try:
            return measure(work, server.cpu_s, seconds=seconds, most_bytes=MOST_BYTES_PER_ROUND, cores=cores)
        finally:
            server.pin(everywhere)

    def _fill(self, topic: str, batch: bytes) -> None:
        session = Session(self._borzoi.port)
        reply = memoryview(bytearray(4096))
        for number in range(POLLED_BATCHES):
            frame = session.send_frame(STREAM, topic, 0, batch)
            frame[168:176] = (number + 2).to_bytes(8, "little")
            session.connection.sendall(frame)
            receive(session.connection, reply)
        session.connection.close()

    def _new_topic(self, partitions: int) -> str:
        self._topics += 1
        topic = f"round-{self._topics}"
        self._admin.create_topic(STREAM, topic, partitions)
        return topic

    def _launch_bare(self, *arguments: str) -> Launched:
        return Launched([sys.executable, str(BARE_SERVER), *arguments], self._home / "bare-output.log")


def touch_memory(gigabytes: float) -> None:
    """Uses every page once in a child process, which then gives them all back."""
    wanted = min(int(gigabytes * 1e9), psutil.virtual_memory().available * 6 // 10)
    if wanted < mmap.PAGESIZE:
        return
    child = os.fork()
    if child == 0:
        block = mmap.mmap(-1, wanted)
        for position in range(0, wanted, mmap.PAGESIZE):
            block[position] = 1
        os._exit(0)
    os.waitpid(child, 0)


def _median_rate(rounds: Sequence[Measurement]) -> float:
    return statistics.median(each.requests_per_s for each in rounds)


def _median_cpu(rounds: Sequence[Measurement]) -> float:
    return statistics.median(each.cpu_us_per_request for each in rounds)


def speed(cell: Cell, requests_per_s: float) -> str:
    if cell.messages == 1:
        return f"{requests_per_s:,.0f} req/s"
    return f"{requests_per_s * cell.messages * cell.payload_bytes / 1e6:,.0f} MB/s"


def print_table(results: dict[str, CellResult]) -> None:
    heads = ("cell", "work", "Borzoi", "bare", "ratio", "goal", "CPU us/request", "verdict")
    rows = []
    for name, result in results.items():
        cell = result.cell
        goal = f">= {cell.goal_ratio}" + (f", <= {cell.goal_cpu_us:.0f} us" if cell.goal_cpu_us else "")
        cpu = f"{_median_cpu(result.borzoi):.1f} / {_median_cpu(result.bare):.1f}"
        borzoi, bare = (speed(cell, _median_rate(rounds)) for rounds in (result.borzoi, result.bare))
        verdict = "PASS" if result.passes else "MISS"
        rows.append((name, cell.title, borzoi, bare, f"{result.ratio:.2f}", goal, cpu, verdict))
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def machine() -> dict[str, object]:
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    return {
        "cores": os.cpu_count(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "bare_server_loop": loop,
    }


def write_json(path: Path, environment: dict[str, object], results: dict[str, CellResult]) -> None:
    cells = {
        name: {
            **asdict(result),
            "ratio": result.ratio,
            "passes": result.passes,
        }
        for name, result in results.items()
    }
    path.write_text(json.dumps({"machine": environment, "cells": cells}, indent=2) + "\n")


def cell_letters(text: str) -> list[str]:
    letters = text.split(",")
    if unknown := set(letters) - set(CELLS):
        raise argparse.ArgumentTypeError(f"no such cell: {', '.join(sorted(unknown))}")
    return letters


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells", type=cell_letters, default=list(CELLS), help="which cells, as in a,d (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per cell and server")
    parser.add_argument("--seconds", type=float, default=0.7, help="length of a round")
    parser.add_argument("--json", type=Path, help="also write every round to this file")
    parser.add_argument("--touch-gb", type=float, default=8.0, help="memory to touch before the first round")
    parser.add_argument("--directory", type=Path, help="where the data goes (default: a temporary directory)")
    parser.add_argument(
        "--server", default=f"{sys.executable} -m borzoi server", help="the command that starts the broker"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    environment = machine()
    print(", ".join(f"{name} {value}" for name, value in environment.items()), flush=True)
    touch_memory(arguments.touch_gb)
    home = Path(tempfile.mkdtemp(prefix="borzoi-benchmark-", dir=arguments.directory))
    results = {}
    try:
        bench = Bench(home, shlex.split(arguments.server))
        try:
            for name in arguments.cells:
                results[name] = bench.run(CELLS[name], arguments.rounds, arguments.seconds)
                print(f"{name}: {results[name].ratio:.2f}", file=sys.stderr, flush=True)
        finally:
            bench.close()
    finally:
        shutil.rmtree(home)
    print_table(results)
    if arguments.json:
        write_json(arguments.json, environment, results)


if __name__ == "__main__":
    main()
