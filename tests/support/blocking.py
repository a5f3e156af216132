"""For tests of the blocking producer and consumer: a server in memory, its topics, signals and forks."""

import os
import signal
import threading
from contextlib import contextmanager

import pytest

from borzoi import Consumer, PollingStrategy
from borzoi.testing import Server

WITHIN_S = 20

# Each file that imports these fixtures has a server of its own. The functions are not called what the
# fixtures are, or every test that takes one would hide an import.


@pytest.fixture(scope="module", name="server")
def _server():
    with Server(memory=True) as running:
        with running.client() as client:
            client.create_stream("s")
        yield running


@pytest.fixture(name="client")
def _client(server):
    with server.client() as connected:
        yield connected


@pytest.fixture(name="topic")
def _topic(client, request):
    client.create_topic("s", request.node.name, 2)
    return request.node.name


@pytest.fixture(autouse=True)
def _no_threads_are_left():
    yield
    names = [thread.name for thread in threading.enumerate()]
    left = [name for name in names if name.startswith(("borzoi-pro", "borzoi-con"))]
    assert left == [], left  # pytest does not explain assertions outside of test files


def stored(client, topic, partition_id=0):
    return client.poll_messages("s", topic, partition_id, PollingStrategy.First(), 10_000, auto_commit=False)


def payloads(client, topic, partition_id=0):
    return [message.payload for message in stored(client, topic, partition_id)]


def single(client, topic, **how):
    return Consumer(
        client, "s", topic, **{"consumer": "c", "partition_id": 0, "poll_interval_s": 0.01, **how}
    )


@contextmanager
def ctrl_c_when(condition):
    """Interrupts the main thread as soon as something is so."""
    done = threading.Event()

    def watch():
        while not done.wait(0.02):
            if condition():
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
