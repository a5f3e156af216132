"""What the exactly-once tests are made of: a feeder, a driver that can be killed, and moments to do it in.

Everything that a driver starts stays in its session (in the sense of setsid), whatever process groups Spark
makes in there: that is how its processes are found, and nobody else's.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
from chaos_driver import SOURCE, STREAM

from borzoi.client.values import PollingStrategy
from borzoi.log.staging import SUFFIX
from borzoi.model.errors import BorzoiError

DRIVER = Path(__file__).with_name("chaos_driver.py")
FILLER = "." * 300
POLL_S = 0.002
TAIL_CHARACTERS = 6000


class Feeder(threading.Thread):
    """Sends messages that are numbered by partition, each once, however often the server is killed."""

    def __init__(self, server, partitions, rng):
        super().__init__(name="feeder")
        self.sent = dict.fromkeys(range(partitions), 0)
        self.error = None
        self._server = server
        self._rng = rng
        self._is_over = threading.Event()

    def run(self):
        try:
            with self._server.client() as client:
                while not self._is_over.wait(self._rng.uniform(0, 0.08)):
                    self._send(client, self._rng.choice(list(self.sent)), self._rng.randint(1, 40))
        except Exception as error:
            self.error = error

    def stop(self):
        self._is_over.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _send(self, client, partition, count):
        first = self.sent[partition]
        payloads = [
            f"{partition}:{number}:{FILLER[: number % 301]}" for number in range(first, first + count)
        ]
        try:
            client.send_messages(STREAM, SOURCE, partition, payloads)
            self.sent[partition] += count
        except BorzoiError as error:
            if not error.retryable:
                raise
            # Whether the request was carried out is seen from where the partition ends: nobody else writes.
            extent = until_there(lambda: client.get_topic_extent(STREAM, SOURCE))
            self.sent[partition] = extent.partitions[partition].next_offset
            if self.sent[partition] not in (first, first + count):
                raise AssertionError(f"part of a request was stored: {first}, {count}, {extent}") from error


class Driver:
    """A process of chaos_driver.py with all that it starts."""

    def __init__(self, server, master, directory, *, rows, config=None):
        given = {
            "connection": server.connection_string,
            "master": master,
            "directory": str(directory),
            "rows": rows,
            "config": {
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.local.dir": f"{directory}/spark",
                **(config or {}),
            },
        }
        self.log = Path(directory, f"driver-{time.monotonic_ns()}.log")
        self.events = []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(given)],
                env={**os.environ, "TMPDIR": str(directory)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="driver events")
        self._reader.start()

    def _read(self):
        with self._process.stdout as lines:
            for line in lines:
                with suppress(ValueError):  # what Spark prints
                    self.events.append(json.loads(line))

    @property
    def is_running(self):
        return self._process.poll() is None

    def failures(self):
        return [f"{each['query']}: {each['error']}" for each in self.events if each["event"] == "failed"]

    def processes(self):
        """All of its session, itself included."""
        return [each for each in psutil.process_iter() if session_of(each.pid) == self._process.pid]

    def executors(self):
        return [each for each in self.processes() if "CoarseGrainedExecutorBackend" in command_of(each)]

    def workers(self):
        """Python processes that run tasks, plan reads or commit; not the one that they are forked from."""
        python = [each for each in self.processes() if " -m pyspark" in command_of(each)]
        parents = {parent_of(each) for each in python}
        return [each for each in python if each.pid not in parents]

    def go(self):
        self._say("go")

    def finish(self, timeout_s):
        self._say("finish")
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver did not finish\n{self.quote()}") from None
        self._forget()
        assert code == 0, self.quote()

    def kill(self):
        """SIGKILL to all at once, in any order; what they still start before they die is killed too."""
        while alive := [each for each in self.processes() if is_alive(each)]:
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            self._process.poll()
            psutil.wait_procs(alive, 5)
        self._process.wait()
        self._forget()

    def quote(self):
        return f"{self.events}\n--- {self.log} ---\n{self.log.read_text(errors='replace')[-TAIL_CHARACTERS:]}"

    def _say(self, word):
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def _forget(self):
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._reader.join()
        for event in self.events:
            if event["event"] == "session":
                # A cluster on one machine puts its workers' files into Spark's own directory.
                work = Path(pyspark.__file__).parent / "work" / event["application"]
                shutil.rmtree(work, ignore_errors=True)


class Staging:
    """What is staged on a server, watched from outside, to kill something in the middle of an epoch."""

    def __init__(self, server):
        self._directory = server.data / "staging"

    def epochs(self):
        found = set()
        for path in self._directory.glob(f"*/*/*/*{SUFFIX}"):
            found.add(path.parent.name)
        return found

    def wait_for_batches(self, timeout_s):
        """Until something is staged for an epoch for which nothing was."""
        before = self.epochs()
        wait_until(lambda: self.epochs() - before, timeout_s, "nothing is staged")

    def wait_for_commit(self, timeout_s):
        """Until what was staged for an epoch has become messages, or was given up."""
        seen = set()

        def is_one_gone():
            now = self.epochs()
            gone = seen - now
            seen.update(now)
            return gone

        wait_until(is_one_gone, timeout_s, "nothing is committed")


class Checkpoint:
    """What Spark has written down about a query."""

    def __init__(self, path):
        self._path = path

    def producer(self):
        return f"spark.{json.loads((self._path / 'metadata').read_text())['id']}"

    def open_epoch(self):
        """The micro-batch that Spark has begun and not ended, as far as it has written down; or None."""
        begun, ended = self._last("offsets"), self._last("commits")
        return begun if begun > ended else None

    def _last(self, directory):
        return max((int(each.name) for each in (self._path / directory).glob("[0-9]*")), default=-1)


def messages(client, topic, partition):
    found = []
    while True:
        start = PollingStrategy.Offset(len(found))
        polled = client.poll_messages(STREAM, topic, partition, start, 1000, auto_commit=False)
        if not polled:
            return found
        found += polled


def end_of(client, topic):
    """How many messages a topic has."""
    extent = until_there(lambda: client.get_topic_extent(STREAM, topic))
    return sum(each.next_offset for each in extent.partitions)


def until_there(request):
    while True:
        try:
            return request()
        except BorzoiError as error:
            if not error.retryable:
                raise
        time.sleep(0.02)


def wait_until(condition, timeout_s, otherwise, poll_s=POLL_S):
    give_up_s = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > give_up_s:
            raise AssertionError(f"{otherwise} within {timeout_s} s")
        time.sleep(poll_s)
    return found


def session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return None


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def parent_of(process):
    try:
        return process.ppid()
    except psutil.Error:
        return None
