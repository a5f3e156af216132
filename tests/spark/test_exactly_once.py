"""Every message once and in order, although driver, broker, executors and workers are killed all the time.

A feeder sends numbered messages to three partitions. Three queries copy them, one through the source and the
sink, two by the pipe, in small micro-batches, so that something is always half done. SIGKILL comes at chosen
moments of an epoch: when its first batch has been staged; when the broker has just made messages of it, which
Spark has not written down yet; and at any other time. In the end what each query wrote has to be what the
feeder sent: nothing missing, nothing twice, in the order of each partition.

`BORZOI_CRASH_SEED` repeats a run's choices.
"""

import os
import random
import secrets
import time
from collections import Counter

import chaos
import pytest
from chaos_driver import SOURCE, STREAM, TARGETS

from support.server import ServerProcess, fixed_port

SEED_VARIABLE = "BORZOI_CRASH_SEED"
PARTITIONS = 3
ROWS_PER_TRIGGER = 300
START_TIMEOUT_S = 120  # of a session with three queries, on busy cores
MOMENT_TIMEOUT_S = 60
FINISH_TIMEOUT_S = 120

ANY, STAGED, COMMITTED = "any time", "batches staged", "epoch committed"
BROKER, DRIVER, EXECUTOR, WORKER = "broker", "driver", "executor", "worker"
LOCAL, CLUSTER = "local[2,4]", "local-cluster[2,1,1024]"  # both repeat tasks that fail


class Chaos:
    """A broker, a feeder and a driver, and what becomes of them."""

    def __init__(self, directory, masters):
        self.seed = int(os.environ.get(SEED_VARIABLE) or secrets.randbits(32))
        self.rng = random.Random(self.seed)
        self.kills = []
        self.in_doubt = []
        self.failures = []
        self._directory = directory
        self._masters = iter(masters)
        self._server = ServerProcess(directory / "data", port=fixed_port())
        self._staging = chaos.Staging(self._server)
        self._feeder = chaos.Feeder(self._server, PARTITIONS, random.Random(self.seed))
        self._client = self._driver = self._next_driver = None
        self._begin_s = time.monotonic()
        print(f"{SEED_VARIABLE}={self.seed}")

    def __enter__(self):
        self._server.__enter__()
        self._client = self._server.client()
        self._client.create_stream(STREAM)
        for topic in (SOURCE, *TARGETS):
            self._client.create_topic(STREAM, topic, PARTITIONS)
        self._feeder.start()
        self._next_driver = self._new_driver()
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is not None and self._driver is not None:
                print(self._driver.quote())
            print(f"{len(self.kills)} kills: {self.kills}; in doubt: {self.in_doubt}; {self.failures}")
            for driver in (self._driver, self._next_driver):
                if driver is not None:
                    driver.kill()
        finally:
            self._feeder.stop()
            self._client.close()
            self._server.__exit__(kind, error, trace)

    def live(self, *rounds):
        """Let a driver work, and kill one thing after the other, each once the queries get on.

        The next driver gets ready meanwhile, as starting one takes longer than all the rest.
        """
        self._driver, self._next_driver = self._next_driver, self._new_driver()
        self._driver.go()
        for victim, moment in rounds:
            self._wait_for_progress()
            print(f"{time.monotonic() - self._begin_s:6.1f} s: kill {victim} at: {moment}")
            self._wait_for(moment)
            getattr(self, f"_kill_{victim}")()
            self.kills.append((victim, moment))

    def finish(self):
        """Let the queries read what is left."""
        self._wait_for_progress()
        self._feeder.stop()
        self._driver.finish(FINISH_TIMEOUT_S)
        self.failures += self._driver.failures()
        self._driver = None

    def _new_driver(self):
        master = next(self._masters, None)
        if master is None:
            return None
        return chaos.Driver(self._server, master, self._directory, rows=ROWS_PER_TRIGGER)

    def check(self):
        for partition, sent in self._feeder.sent.items():
            source = [(each.payload, each.id) for each in chaos.messages(self._client, SOURCE, partition)]
            assert [number_of(payload) for payload, _ in source] == list(range(sent))
            for topic in TARGETS:
                target = [(each.payload, each.id) for each in chaos.messages(self._client, topic, partition)]
                assert target == source, f"{topic}, partition {partition}: {difference(source, target)}"
        assert min(self._feeder.sent.values()) > 0

    def _wait_for_progress(self):
        """Until all queries have written something more, so that a kill has something to disturb."""
        before = {topic: chaos.end_of(self._client, topic) for topic in TARGETS}

        def is_further():
            assert self._driver.is_running, "the driver ended by itself"
            return all(chaos.end_of(self._client, topic) > before[topic] for topic in TARGETS)

        chaos.wait_until(is_further, START_TIMEOUT_S, "the queries did not get on", poll_s=0.02)

    def _wait_for(self, moment):
        if moment == STAGED:
            self._staging.wait_for_batches(MOMENT_TIMEOUT_S)
        elif moment == COMMITTED:
            self._staging.wait_for_commit(MOMENT_TIMEOUT_S)
        else:
            time.sleep(self.rng.uniform(0, 0.5))

    def _kill_broker(self):
        self._server.kill()
        time.sleep(self.rng.uniform(0, 1))
        if self.rng.random() < 0.5:  # and again while it recovers
            self._server.spawn()
            time.sleep(self.rng.uniform(0, 0.6))
            self._server.kill()
        self._server.start()

    def _kill_driver(self):
        self._driver.kill()
        self.failures += self._driver.failures()
        self._driver = None
        for topic in TARGETS:
            checkpoint = chaos.Checkpoint(self._directory / topic)
            epoch = checkpoint.open_epoch()
            if epoch is not None:
                last = self._client.get_producer_epoch(STREAM, topic, checkpoint.producer())
                is_committed = last is not None and last.epoch >= epoch
                self.in_doubt.append(f"{topic} {epoch}{' committed' if is_committed else ''}")

    def _kill_executor(self):
        self.rng.choice(self._driver.executors()).kill()

    def _kill_worker(self):
        self.rng.choice(chaos.wait_until(self._driver.workers, MOMENT_TIMEOUT_S, "no worker")).kill()


class Moments:
    """Chooses when to kill: all moments come up for each victim before one comes up again."""

    def __init__(self, rng):
        self._rng = rng
        self._left = {}

    def kill(self, victim):
        if not self._left.get(victim):
            self._left[victim] = self._rng.sample((ANY, STAGED, COMMITTED), 3)
        return victim, self._left[victim].pop()


def number_of(payload):
    return int(payload.split(b":")[1])


def difference(source, target):
    numbers = Counter(number_of(payload) for payload, _ in target)
    missing = [number for number in range(len(source)) if not numbers[number]]
    twice = sorted(number for number, count in numbers.items() if count > 1)
    at = next((n for n, pair in enumerate(zip(source, target, strict=False)) if pair[0] != pair[1]), None)
    return (
        f"{len(source)} sent, {len(target)} written; {len(missing)} missing: {missing[:5]}..{missing[-5:]}; "
        f"{len(twice)} twice: {twice[:5]}..{twice[-5:]}; the first difference is at {at}"
    )


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_written_twice_whatever_is_killed(tmp_path):
    """The queries move between a local master and a cluster; the checkpoint knows nothing of it."""
    with Chaos(tmp_path, (LOCAL, CLUSTER, LOCAL, LOCAL)) as chaos_:
        moments = Moments(chaos_.rng)
        first, last = chaos_.rng.sample((BROKER, WORKER), 2)
        chaos_.live(moments.kill(first), moments.kill(last), moments.kill(DRIVER))
        chaos_.live(
            moments.kill(EXECUTOR), moments.kill(BROKER), moments.kill(EXECUTOR), moments.kill(DRIVER)
        )
        chaos_.live(moments.kill(last), moments.kill(first), moments.kill(DRIVER))
        chaos_.live(moments.kill(BROKER))
        chaos_.finish()
        chaos_.check()
        assert len(chaos_.kills) == 11
        assert chaos_.in_doubt, "no driver was killed in the middle of an epoch"
