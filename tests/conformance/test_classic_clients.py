"""Five older official clients walk through one server on one port at the same time, across its restart."""

import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from borzoi.model.requests import CreateToken
from support.classic_wire import logged_in
from support.clients import OfficialClient, official_client
from support.server import ServerProcess, fixed_port

SCRIPT = Path(__file__).with_name("classic_scenario.py")
DEADLINE_S = 180.0
RESTART, DONE = "restart please", "done"

STEPS = [
    "connect",
    "login",
    "login_by_connection_string",
    "login_by_token",
    "streams",
    "topics",
    "sends",
    "strategies",
    "auto_commit",
    "offsets",
    "consumer",
    "groups",
    "restart",
]
BY_STRING = {"login_by_connection_string", "login_by_token"}
IN_GROUPS = {"offsets", "consumer", "groups"}
# The releases, and the steps that they have no calls for.
CLIENTS = {
    ("iggy-py", "0.4.0"): BY_STRING | IN_GROUPS,
    ("apache-iggy", "0.5.0"): BY_STRING,
    ("apache-iggy", "0.6.0"): set(),
    ("apache-iggy", "0.7.0"): set(),
    ("apache-iggy", "0.8.0"): set(),
}


class Walk:
    """One client's process; its lines go into a queue that all of them share."""

    def __init__(self, client: OfficialClient, address: str, token: str, said: queue.Queue) -> None:
        self.client = client
        self.lines: list[str] = []
        self._said = said
        self._process = subprocess.Popen(
            [str(client.python), str(SCRIPT), address, token],
            env=client.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._said.put((self, self.lines[-1]))
        self._said.put((self, None))

    def go_on(self) -> None:
        self._process.stdin.write("restarted\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._thread.join()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextmanager
def walks(
    clients: list[OfficialClient], address: str, token: str
) -> Iterator[tuple[list[Walk], queue.Queue]]:
    said: queue.Queue = queue.Queue()
    started = [Walk(client, address, token, said) for client in clients]
    try:
        yield started, said
    finally:
        for walk in started:
            walk.close()


def wait_for(line: str, started: list[Walk], said: queue.Queue, give_up: float) -> None:
    """Until every client has said this; a client that ends before is a failure."""
    waiting = [walk for walk in started if line not in walk.lines]
    while waiting:
        try:
            walk, text = said.get(timeout=max(0.0, give_up - time.monotonic()))
        except queue.Empty:
            pytest.fail("\n\n".join(f"{each.client} hangs:\n" + "\n".join(each.lines) for each in waiting))
        if text == line:
            waiting.remove(walk)
        elif text is None and walk in waiting:
            pytest.fail(f"{walk.client} gave up:\n" + "\n".join(walk.lines))


@pytest.mark.conformance
@pytest.mark.timeout(300)
def test_five_older_clients_walk_through_one_server_at_the_same_time(tmp_path):
    clients = [official_client(package, version) for package, version in CLIENTS]
    with ServerProcess(tmp_path / "data", port=fixed_port()) as server:
        with logged_in(server.port) as root:
            token = root.request(CreateToken("scenario", 0)).token
        give_up = time.monotonic() + DEADLINE_S
        with walks(clients, server.address, token) as (started, said):
            wait_for(RESTART, started, said, give_up)
            server.restart()
            for walk in started:
                walk.go_on()
            wait_for(DONE, started, said, give_up)
        for walk, missing in zip(started, CLIENTS.values(), strict=True):
            verdicts = [f"no {step}" if step in missing else f"ok {step}" for step in STEPS]
            assert [line for line in walk.lines if line[:3] in {"ok ", "no "}] == verdicts, walk.client
