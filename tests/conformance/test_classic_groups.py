"""Old and new official clients as members of one consumer group: every message to one of them, once."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from borzoi.model.requests import CreateConsumerGroup, CreateStream, CreateTopic, GetConsumerGroup
from support.classic_wire import ClassicClient, logged_in
from support.clients import OfficialClient, official_client
from support.server import ServerProcess

SCRIPT = Path(__file__).with_name("classic_scenario.py")
VERSIONS = ("0.5.0", "0.6.0", "0.7.0", "0.8.0", "0.9.0")
STREAM, TOPIC, GROUP = "mixed", "shared", "pair"  # as the script has them
PARTITIONS = 10
DEADLINE_S = 60.0


class Member:
    def __init__(self, client: OfficialClient, address: str) -> None:
        self.client = client
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [str(client.python), str(SCRIPT), address, "member", STREAM],
            env=client.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    @property
    def received(self) -> list[str]:
        return self.lines[1:]

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def kill(self) -> None:
        self.process.kill()
        self._thread.join()
        self.process.stdout.close()
        self.process.wait()


@pytest.mark.conformance
@pytest.mark.timeout(200)
def test_old_and_new_clients_share_a_group(tmp_path):
    clients = [official_client("apache-iggy", version) for version in VERSIONS]
    with ServerProcess(tmp_path / "data") as server, logged_in(server.port) as root:
        root.request(CreateStream(STREAM))
        root.request(CreateTopic(STREAM, PARTITIONS, TOPIC))
        root.request(CreateConsumerGroup(STREAM, TOPIC, GROUP))
        members: list[Member] = []
        try:
            members += [Member(client, server.address) for client in clients]
            wait(lambda: all(member.lines for member in members), members)
            wait(lambda: shares(root) == [2] * 5, members)
            sent = send(root, "first")
            wait(lambda: count(members) >= len(sent), members)
            assert sorted(text for member in members for text in member.received) == sent
            for member in members:
                assert len({text.split()[1] for text in member.received}) == 2, member.client
            # One of the older and the newest go without a word; the rest has everything.
            for member in (members[1], members[4]):
                member.kill()
            wait(lambda: shares(root) == [3, 3, 4], members)
            before = count(members)
            sent += send(root, "second")
            wait(lambda: count(members) >= len(sent), members)
            assert sorted(text for member in members for text in member.received) == sorted(sent)
            assert before == len(sent) // 2
        finally:
            for member in members:
                member.kill()


def send(root: ClassicClient, label: str) -> list[str]:
    """Twenty messages into each partition, in four requests; their texts in order."""
    texts = []
    for partition in range(PARTITIONS):
        for request in range(4):
            batch = [f"{label} p{partition} r{request} m{number}" for number in range(5)]
            root.send(STREAM, TOPIC, [text.encode() for text in batch], partition)
            texts += batch
    return sorted(texts)


def shares(root: ClassicClient) -> list[int]:
    found = root.request(GetConsumerGroup(STREAM, TOPIC, GROUP))
    return sorted(len(member.partitions) for member in found.members)


def count(members: list[Member]) -> int:
    return sum(len(member.received) for member in members)


def wait(condition, members: list[Member]) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail("\n".join(f"{member.client}: {member.lines[:3]}" for member in members))
        time.sleep(0.02)
    # Long enough for a second delivery of the same message to be seen.
    time.sleep(0.2)
