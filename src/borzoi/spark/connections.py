"""One blocking client for each process and server.

Spark keeps its Python workers and gives them task after task, so a connection is worth keeping between tasks.
Clients are made when they are first asked for, never while a reader is pickled; a forked process gets
connections of its own (see `borzoi.client.sync`). All are closed when the process ends.
"""

import atexit
import threading

from borzoi.client.sync import Client
from borzoi.spark.options import Target

_lock = threading.Lock()
_clients: dict[tuple[str, float], Client] = {}


def connected(target: Target) -> Client:
    """The client of this process for the target's server; calls of several threads take turns on it."""
    key = target.connection, target.deadline_s
    with _lock:
        if key not in _clients:
            _clients[key] = new_client(target)
        return _clients[key]


def new_client(target: Target) -> Client:
    """A client that belongs to the caller, who closes it."""
    return Client(target.connection, deadline_s=target.deadline_s)


def close_all() -> None:
    """Close the clients of this process. The next one that is asked for is new."""
    with _lock:
        clients = list(_clients.values())
        _clients.clear()
    for client in clients:
        client.close()


atexit.register(close_all)
