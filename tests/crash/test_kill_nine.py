"""Acknowledged messages survive `kill -9`, whatever the server was doing at that moment.

Producers and two consumer groups run against a server that is killed again and again at random moments, and
sometimes once more while it recovers. Afterwards the clients' journals are compared with what the server
holds. `BORZOI_CRASH_SEED` repeats a run's choices; the seed of every run is printed.
"""

import json
import os
import random
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from history import (
    AUTOMATIC,
    MANUAL,
    Attempt,
    Deliveries,
    MessageId,
    StoredMessage,
    StoredPartition,
    check_group,
    check_log,
    read_attempts,
    read_deliveries,
)

from support.clients import OfficialClient, official_client
from support.server import ServerProcess, fixed_port

DRIVER = Path(__file__).with_name("driver.py")
SEED_VARIABLE = "BORZOI_CRASH_SEED"

KILLS_PER_MODE = 11
PRODUCERS = 2
MEMBERS = 2
PARTITIONS = 3
SEGMENT_BYTES = 1 << 20
POLL_MESSAGES = 200
TRAFFIC_DEADLINE_S = 20.0
DRAIN_DEADLINE_S = 60.0

FSYNC = {
    "IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC": "true",
    "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": "1",
}
SMALL_SEGMENTS = {"IGGY_SYSTEM_SEGMENT_SIZE": "1 MiB"}


class Crew:
    """The client processes of one run and their journals."""

    def __init__(self, client: OfficialClient, plan: Path) -> None:
        self._client = client
        self._plan = plan
        self._home = plan.parent
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, role: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(role, *arguments), env=self._client.environment(), check=False, timeout=90
        )
        assert done.returncode == 0, f"driver {role} ended with {done.returncode}"

    def start(self, role: str, number: int) -> None:
        command = self._command(role, str(number), str(self.journal(role, number)))
        self._running[f"{role} {number}"] = subprocess.Popen(command, env=self._client.environment())

    def stop(self, role: str, deadline_s: float) -> None:
        """Asks every process of the role to finish; each must do so in time and without an error."""
        ending = {name: self._running.pop(name) for name in list(self._running) if name.startswith(role)}
        for process in ending.values():
            process.terminate()
        for name, process in ending.items():
            try:
                code = process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = "a timeout"
            assert code == 0, f"{name} ended with {code}"

    def assert_alive(self) -> None:
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}"

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def journal(self, role: str, number: int) -> Path:
        return self._home / f"{role}-{number}.journal"

    def lines(self, role: str, number: int) -> list[str]:
        path = self.journal(role, number)
        return path.read_text().splitlines() if path.exists() else []

    def acknowledgements(self) -> int:
        return sum(
            line.startswith("A ") for number in range(PRODUCERS) for line in self.lines("produce", number)
        )

    def _command(self, role: str, *arguments: str) -> list[str]:
        return [str(self._client.python), str(DRIVER), str(self._plan), role, *arguments]


@contextmanager
def crew_at_work(client: OfficialClient, plan: Path) -> Iterator[Crew]:
    crew = Crew(client, plan)
    try:
        crew.run("setup")
        for number in range(PRODUCERS):
            crew.start("produce", number)
        for number in range(MEMBERS):
            crew.start("consume", number)
        yield crew
    finally:
        crew.kill()


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("persisted", [True, False], ids=["fsync", "page-cache"])
def test_acknowledged_messages_survive_kill_nine(persisted, tmp_path, capsys):
    seed = os.environ.get(SEED_VARIABLE) or str(secrets.randbelow(1_000_000))
    rng = random.Random(f"{seed} {persisted}")
    port = fixed_port()
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "address": f"127.0.0.1:{port}",
                "seed": seed,
                "persisted": persisted,
                "partitions": PARTITIONS,
                "segment_bytes": SEGMENT_BYTES,
                "batch_messages": 40,
                "filler_bytes": 2000,
                "pause_s": 0.002,
                "poll_messages": POLL_MESSAGES,
            }
        )
    )
    settings = {**SMALL_SEGMENTS, **(FSYNC if persisted else {})}
    started = time.monotonic()
    kills = 0
    with ServerProcess(tmp_path / "data", port=port, environment=settings) as server:
        with crew_at_work(official_client(), plan) as crew:
            for number in range(KILLS_PER_MODE):
                wait_for_traffic(crew)
                time.sleep(rng.uniform(0.05, 0.6))
                server.kill()
                kills += 1
                if number % 4 == 3:
                    server.spawn()
                    time.sleep(rng.uniform(0.05, 0.6))
                    server.kill()
                    kills += 1
                server.start()
            wait_for_traffic(crew)
            time.sleep(0.5)
            crew.stop("produce", DRAIN_DEADLINE_S)
            crew.stop("consume", DRAIN_DEADLINE_S)
            held = dump(crew, tmp_path / "dump.json")
            server.restart()
            held_after_restart = dump(crew, tmp_path / "dump-after-restart.json")
        attempts = [a for n in range(PRODUCERS) for a in read_attempts(n, crew.lines("produce", n))]
        groups = read_deliveries(crew.lines("consume", number) for number in range(MEMBERS))

    acknowledged = [a for a in attempts if a.base_offset is not None]
    with capsys.disabled():
        print(
            f"\nkill -9 {'with fsync' if persisted else 'without fsync'}: {kills} kills, seed {seed}, "
            f"{sum(a.count for a in acknowledged)} messages in {len(acknowledged)} acknowledged sends, "
            f"{len(attempts) - len(acknowledged)} sends of unknown outcome, "
            f"{max(partition['segments'] for partition in held.values())} segments at most, "
            f"{time.monotonic() - started:.0f} s"
        )
    wrong = problems(held, attempts, groups, kills)
    assert not wrong, f"seed {seed}: {len(wrong)} promises broken\n" + "\n".join(wrong[:40])
    assert held_after_restart == held, f"seed {seed}: an orderly restart changed what is stored"
    assert any(partition["segments"] > 1 for partition in held.values()), (
        "the run was too small to roll a segment"
    )
    assert all(groups[group].messages for group in (MANUAL, AUTOMATIC)), "a group got nothing at all"
    assert groups[MANUAL].commits, "no commit was acknowledged"


def wait_for_traffic(crew: Crew) -> None:
    """Returns when the server has acknowledged something more than it had before."""
    before = crew.acknowledgements()
    give_up = time.monotonic() + TRAFFIC_DEADLINE_S
    while crew.acknowledgements() == before:
        crew.assert_alive()
        assert time.monotonic() < give_up, "producers got no acknowledgement from the restarted server"
        time.sleep(0.02)


def dump(crew: Crew, target: Path) -> dict[str, dict]:
    crew.run("dump", str(target))
    return json.loads(target.read_text())


def problems(
    held: dict[str, dict], attempts: Sequence[Attempt], groups: dict[str, Deliveries], kills: int
) -> list[str]:
    wrong = []
    for key, content in held.items():
        partition = int(key)
        log = tuple(
            StoredMessage(offset, MessageId(producer, seq, index), count, bool(intact))
            for offset, producer, seq, index, count, intact in content["log"]
        )
        stored = StoredPartition(log, content["committed"])
        wrong += check_log(partition, stored, attempts)
        for group, deliveries in groups.items():
            wrong += check_group(
                group, deliveries, partition, stored, kills=kills, poll_messages=POLL_MESSAGES
            )
    return wrong


def stored_partition(*messages: tuple[int, int, int], committed: int | None = None) -> StoredPartition:
    """A partition from (producer, seq, index) triples at consecutive offsets."""
    log = tuple(
        StoredMessage(offset, MessageId(*each), 1, intact=True) for offset, each in enumerate(messages)
    )
    return StoredPartition(log, {MANUAL: committed, AUTOMATIC: committed})


@pytest.mark.parametrize(
    ("stored", "attempts", "complaint"),
    [
        (stored_partition(), [Attempt(0, 0, 0, 1, 0)], "acknowledged"),
        (stored_partition((0, 0, 0), (0, 0, 0)), [Attempt(0, 0, 0, 1, 0)], "more than once"),
        (stored_partition((0, 1, 0), (0, 0, 0)), [Attempt(0, 0, 0, 1, 1), Attempt(0, 1, 0, 1, 0)], "behind"),
        (stored_partition((0, 0, 0)), [Attempt(0, 0, 0, 2)], "1 of 2 messages"),
        (stored_partition((7, 0, 0)), [], "nobody sent"),
    ],
)
def test_the_check_notices_a_broken_log(stored, attempts, complaint):
    assert any(complaint in sentence for sentence in check_log(0, stored, attempts))


def test_the_check_accepts_a_sound_log_with_an_unanswered_send():
    stored = stored_partition((0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 2, 0))
    attempts = [Attempt(0, 0, 0, 1, 0), Attempt(1, 0, 0, 2), Attempt(0, 1, 0, 5), Attempt(0, 2, 0, 1, 3)]
    assert check_log(0, stored, attempts) == []


def test_the_check_notices_a_commit_ahead_of_the_deliveries():
    stored = stored_partition((0, 0, 0), (0, 1, 0), committed=1)
    groups = read_deliveries([["D manual 0 0 0.0.0", "C manual 0 0"]])
    wrong = check_group(MANUAL, groups[MANUAL], 0, stored, kills=1, poll_messages=1)
    assert any("nothing beyond 0" in sentence for sentence in wrong)


def test_the_check_notices_a_lost_commit():
    stored = stored_partition((0, 0, 0), (0, 1, 0), committed=0)
    groups = read_deliveries([["D manual 0 0 0.0.0,0.1.0", "C manual 0 1"]])
    wrong = check_group(MANUAL, groups[MANUAL], 0, stored, kills=1, poll_messages=1)
    assert any("commit 1 was acknowledged" in sentence for sentence in wrong)
