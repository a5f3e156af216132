"""Borzoi's Python clients against the official Rust-backed one, on the same Borzoi server.

Three workers, one process each: the official `apache-iggy` in an environment of its own, `AsyncClient` and
`Client`. They do the same work in turn, in many short rounds, against one server process; what counts is the
ratio of medians over all calls, because absolute numbers belong to the machine and outliers to whatever else
it does. Every message is made anew, as a producer does, and the payload of every received one is looked at.

    send N x S        make N messages of S bytes and send them as one batch: messages per second
    poll N x S        poll N messages of S bytes and look at their payloads: messages per second
    send 1, poll 1    a single message there or back: microseconds, p50 and p99

A worker is this file with another interpreter; it reads jobs and writes results, a line of JSON each.

    python benchmarks/client.py [--rounds 20] [--json FILE] [--uvloop]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

STREAM = "benchmark"
OFFICIAL, ASYNC, BLOCKING = "official", "AsyncClient", "Client"
WORKERS = (OFFICIAL, ASYNC, BLOCKING)
# title, job, messages per call, payload bytes, calls per round
CELLS = (
    ("send 1000 x 1 KB", "send", 1000, 1024, 10),
    ("send 1000 x 100 B", "send", 1000, 100, 20),
    ("poll 1000 x 1 KB", "poll", 1000, 1024, 10),
    ("poll 1000 x 100 B", "poll", 1000, 100, 20),
    ("send 1 x 100 B", "send", 1, 100, 250),
    ("poll 1 x 100 B", "poll", 1, 100, 250),
)
FILLED_BATCHES = 64
GOAL_THROUGHPUT, GOAL_LATENCY = 1.0, 2.0


def new_payloads(count, payload_bytes, call):
    filler = b"x" * (payload_bytes - 16)
    return [b"%08d%08d" % (call, number) + filler for number in range(count)]


def look_at(payloads):
    found = 0
    for payload in payloads:
        found += len(payload) + payload[-1]
    return found


# The workers


async def official_worker(port):
    from apache_iggy import Consumer, IggyClient, PollingStrategy, SendMessage

    client = IggyClient.from_connection_string(f"iggy+tcp://iggy:iggy@127.0.0.1:{port}")
    await client.connect()
    consumer = Consumer.Single(1)

    async def send(topic, count, payload_bytes, call):
        messages = [SendMessage(payload) for payload in new_payloads(count, payload_bytes, call)]
        await client.send_messages(STREAM, topic, 0, messages)

    async def poll(topic, count, offset):
        polled = await client.poll_messages(
            STREAM,
            topic,
            consumer=consumer,
            polling_strategy=PollingStrategy.Offset(offset),
            count=count,
            auto_commit=False,
            partition_id=0,
        )
        return look_at([message.payload() for message in polled])

    await serve_async(send, poll)


async def async_worker(port):
    from borzoi import AsyncClient, Consumer, PollingStrategy, SendMessage

    consumer = Consumer.single(1)
    async with AsyncClient(f"iggy://iggy:iggy@127.0.0.1:{port}") as client:

        async def send(topic, count, payload_bytes, call):
            messages = [SendMessage(payload) for payload in new_payloads(count, payload_bytes, call)]
            await client.send_messages(STREAM, topic, 0, messages)

        async def poll(topic, count, offset):
            polled = await client.poll_messages(
                STREAM, topic, 0, PollingStrategy.Offset(offset), count, False, consumer=consumer
            )
            return look_at([message.payload for message in polled])

        await serve_async(send, poll)


def blocking_worker(port):
    from borzoi import Client, Consumer, PollingStrategy, SendMessage

    consumer = Consumer.single(1)
    with Client(f"iggy://iggy:iggy@127.0.0.1:{port}") as client:

        def send(topic, count, payload_bytes, call):
            messages = [SendMessage(payload) for payload in new_payloads(count, payload_bytes, call)]
            client.send_messages(STREAM, topic, 0, messages)

        def poll(topic, count, offset):
            polled = client.poll_messages(
                STREAM, topic, 0, PollingStrategy.Offset(offset), count, False, consumer=consumer
            )
            return look_at([message.payload for message in polled])

        for kind, topic, count, payload_bytes, calls in jobs():
            laps = []
            for call in range(calls):
                begin = time.perf_counter()
                if kind == "send":
                    send(topic, count, payload_bytes, call)
                else:
                    expect(poll(topic, count, call % FILLED_BATCHES * count), count, payload_bytes)
                laps.append(time.perf_counter() - begin)
            report(laps)


async def serve_async(send, poll):
    for kind, topic, count, payload_bytes, calls in jobs():
        laps = []
        for call in range(calls):
            begin = time.perf_counter()
            if kind == "send":
                await send(topic, count, payload_bytes, call)
            else:
                expect(await poll(topic, count, call % FILLED_BATCHES * count), count, payload_bytes)
            laps.append(time.perf_counter() - begin)
        report(laps)


def jobs():
    for line in sys.stdin:
        yield json.loads(line)


def expect(found, count, payload_bytes):
    if found != count * (payload_bytes + ord("x")):
        raise SystemExit("a poll brought other messages than expected")


def report(laps):
    print(json.dumps(laps), flush=True)


def work(name, port, with_uvloop):
    if name == BLOCKING:
        blocking_worker(port)
    elif name == OFFICIAL:
        asyncio.run(official_worker(port))
    elif with_uvloop:
        import uvloop

        uvloop.run(async_worker(port))
    else:
        asyncio.run(async_worker(port))


# The side that measures


class Worker:
    def __init__(self, python, name, port, with_uvloop):
        command = [str(python), __file__, "--worker", name, "--port", str(port)]
        hidden = ("IGGY_", "BORZOI_", "PYTHONPATH", "VIRTUAL_ENV")
        self._process = subprocess.Popen(
            [*command, "--uvloop"] if with_uvloop else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(hidden)},
        )

    def do(self, *job):
        """How long each call took, in seconds."""
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker ended; its error is above")
        return json.loads(line)

    def close(self):
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def fill(port):
    """Topics to poll from, and topics to send to."""
    from borzoi import Client

    with Client(f"iggy://iggy:iggy@127.0.0.1:{port}") as client:
        client.create_stream(STREAM)
        for _, kind, count, payload_bytes, _ in CELLS:
            if kind == "send":
                for worker in WORKERS:
                    client.create_topic(STREAM, topic_of(kind, count, payload_bytes, worker), 1)
            else:
                topic = topic_of(kind, count, payload_bytes, "")
                client.create_topic(STREAM, topic, 1)
                for call in range(FILLED_BATCHES):
                    client.send_messages(STREAM, topic, 0, new_payloads(count, payload_bytes, call))


def topic_of(kind, count, payload_bytes, worker):
    return "-".join((kind, str(count), str(payload_bytes), worker if kind == "send" else "all"))


def measure(workers, rounds):
    """For every cell and worker the laps of every round."""
    results = {}
    for title, kind, count, payload_bytes, calls in CELLS:
        laps = {name: [] for name in workers}
        for number in range(rounds + 1):  # the first one warms up
            for name, worker in workers.items():
                topic = topic_of(kind, count, payload_bytes, name)
                found = worker.do(kind, topic, count, payload_bytes, calls)
                if number:
                    laps[name].append(found)
        results[title] = laps
        print(title, "done", file=sys.stderr, flush=True)
    return results


def print_throughput(results):
    print(f"{'messages per second':22}" + "".join(f"{name:>14}" for name in WORKERS) + "   ratios")
    for title, _, count, _, _ in CELLS:
        if count == 1:
            continue
        rates = {name: count / statistics.median(chain(*results[title][name])) for name in WORKERS}
        row = "".join(f"{rates[name]:>14,.0f}" for name in WORKERS)
        ratios = [rates[name] / rates[OFFICIAL] for name in (ASYNC, BLOCKING)]
        verdicts = ["PASS" if ratio > GOAL_THROUGHPUT else "MISS" for ratio in ratios]
        print(f"{title:22}{row}   " + ", ".join(map("{:.2f} {}".format, ratios, verdicts)))


def print_latencies(results):
    print(f"\n{'us, p50 / p99':22}" + "".join(f"{name:>14}" for name in WORKERS) + "   ratios of p50")
    for title, _, count, _, _ in CELLS:
        if count > 1:
            continue
        found = {}
        for name in WORKERS:
            cuts = statistics.quantiles(chain(*results[title][name]), n=100)
            found[name] = (cuts[49] * 1e6, cuts[98] * 1e6)
        row = "".join(f"{p50:>8.0f} /{p99:>4.0f}" for p50, p99 in found.values())
        ratios = [found[name][0] / found[OFFICIAL][0] for name in (ASYNC, BLOCKING)]
        verdicts = ["PASS" if ratio <= GOAL_LATENCY else "MISS" for ratio in ratios]
        print(f"{title:22}{row}   " + ", ".join(map("{:.2f} {}".format, ratios, verdicts)))


def compare(arguments):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from launch import Launched
    from support.clients import official_client

    official = official_client()
    pythons = {OFFICIAL: official.python, ASYNC: sys.executable, BLOCKING: sys.executable}
    with tempfile.TemporaryDirectory(prefix="borzoi-benchmark-", dir=arguments.directory) as home:
        command = [sys.executable, "-m", "borzoi", "server", "--data", f"{home}/data", "--tcp", "127.0.0.1:0"]
        server = Launched(command, Path(home) / "server.log")
        workers = {}
        try:
            fill(server.port)
            for name in WORKERS:
                workers[name] = Worker(pythons[name], name, server.port, arguments.uvloop and name == ASYNC)
            results = measure(workers, arguments.rounds)
        finally:
            for worker in workers.values():
                worker.close()
            server.stop()
    print(f"official: {official}; AsyncClient on {'uvloop' if arguments.uvloop else 'asyncio'}; ", end="")
    print(f"{arguments.rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print_throughput(results)
    print_latencies(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="measured rounds per cell and client")
    parser.add_argument("--json", type=Path, help="also write every call's time to this file")
    parser.add_argument("--uvloop", action="store_true", help="run AsyncClient on uvloop")
    parser.add_argument("--directory", type=Path, help="where the data goes (default: a temporary directory)")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.port, arguments.uvloop)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
