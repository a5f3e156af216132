"""Blocking clients, kept for as long as the process lives: one for each server that calls share, and readers.

Spark keeps its Python workers and gives them task after task, so a connection is worth keeping between tasks.
Clients are made when they are first asked for, never while a reader is pickled; a forked process gets
connections of its own (see `borzoi.client.sync`). All are closed when the process ends.
"""

import atexit
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from borzoi.client.sync import Client
from borzoi.spark.options import Target

_lock = threading.Lock()
_Key = tuple[str, float]
_clients: dict[_Key, Client] = {}
_idle: defaultdict[_Key, list[Client]] = defaultdict(list)


def connected(target: Target) -> Client:
    """The client of this process for the target's server; calls of several threads take turns on it."""
    key = target.connection, target.deadline_s
    with _lock:
        if key not in _clients:
            _clients[key] = new_client(target)
        return _clients[key]


@contextmanager
def borrowed(target: Target) -> Iterator[Client]:
    """A client for the target's server that nobody else uses meanwhile."""
    key = target.connection, target.deadline_s
    with _lock:
        client = _idle[key].pop() if _idle[key] else new_client(target)
    try:
        yield client
    finally:
        with _lock:
            _idle[key].append(client)


def new_client(target: Target) -> Client:
    """A client that belongs to the caller, who closes it."""
    return Client(target.connection, deadline_s=target.deadline_s)


def close_all() -> None:
    """Close the clients of this process. The next one that is asked for is new."""
    with _lock:
        clients = [*_clients.values(), *chain.from_iterable(_idle.values())]
        _clients.clear()
        _idle.clear()
    for client in clients:
        client.close()


atexit.register(close_all)
