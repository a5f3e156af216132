"""Replies that have to wait for something slow. The broker decides, the server carries it out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from borzoi.log.sync import SyncJob


@dataclass(slots=True)
class AfterSync:
    """The reply goes out once these files are on the device; if that fails, an error goes out instead."""

    reply: Any
    jobs: list[SyncJob]


@dataclass(slots=True)
class OnThread:
    """`work` runs on a worker thread and touches no broker state; `then` makes the reply of its result."""

    work: Callable[[], Any]
    then: Callable[[Any], Any]


Pending = AfterSync | OnThread
