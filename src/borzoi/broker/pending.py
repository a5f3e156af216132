"""Replies that have to wait for something slow. The broker decides, the server carries it out."""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from borzoi.log.files import sync_directory
from borzoi.log.sync import SyncJob
from borzoi.model.errors import CannotSyncFile

_Result = TypeVar("_Result")

# Work in steps. Each names files that have to be on the device before the next one; none of them means: let
# others have their turn. If a sync fails, CannotSyncFile is thrown into it. What it returns is the reply.
Steps = Generator[list[SyncJob], None, _Result]


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


@dataclass(slots=True)
class InSteps:
    """`steps` run on the thread of the broker, others in between; their result may be pending again.

    Whoever does not run them to their end closes them.
    """

    steps: Steps[Any]


class Work:
    """Something under way that others may have to wait for."""

    __slots__ = ("_is_over", "_waiting")

    def __init__(self) -> None:
        self._is_over = False
        self._waiting: list[Callable[[], None]] = []

    def when_over(self, call: Callable[[], None]) -> None:
        """Call this when the work ends; at once if it has ended meanwhile."""
        if self._is_over:
            call()
        else:
            self._waiting.append(call)

    def end(self) -> None:
        self._is_over = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


@dataclass(slots=True)
class AfterWork:
    """`then` makes the reply once somebody else's work is over, however it ended."""

    work: Work
    then: Callable[[], Any]


Pending = AfterSync | OnThread | InSteps | AfterWork


def run_at_once(steps: Steps[_Result]) -> _Result:
    """Run steps to their end on this thread, while nobody else is there: when the server starts."""
    error: CannotSyncFile | None = None
    try:
        while True:
            jobs = next(steps) if error is None else steps.throw(error)
            failure = next((each for job in jobs if (each := _sync(job))), None)
            error = None if failure is None else CannotSyncFile(failure.strerror or str(failure))
    except StopIteration as stop:
        result: _Result = stop.value
        return result


def _sync(job: SyncJob) -> OSError | None:
    failure: OSError | None = None
    fds: list[int] = []
    try:
        fds = job.open_fds()
        for fd in fds:
            os.fdatasync(fd)
        if job.directory is not None:
            sync_directory(job.directory)
    except OSError as error:
        failure = error
    finally:
        for fd in fds:
            os.close(fd)
    return job.finish(failure) or failure
