"""Group commit: brings written bytes to the device on a thread, once for everybody who waits.

Requests that arrive while a sync runs are gathered and served by the next one, one `fdatasync` per
file however many producers wait. The thread touches nothing but descriptors of its own and hands a
finished `Round` to `notify`; `Round.apply` then runs where the files are owned.
"""

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from borzoi.log.files import sync_directory

Done = Callable[[OSError | None], None]


@dataclass(slots=True)
class SyncJob:
    """One file to sync.

    `key` tells files apart; of two jobs for one file the later one's `finish` counts, as it knows of more
    written bytes. `open_fds` gives descriptors that the thread may close. `directory` is synced too if
    the file's name is new.
    """

    key: int
    open_fds: Callable[[], list[int]]
    finish: Done
    directory: Path | None = None


@dataclass(slots=True)
class _Pending:
    job: SyncJob
    fds: list[int]


@dataclass(slots=True)
class Round:
    """What one pass of the thread did."""

    results: list[tuple[SyncJob, OSError | None]]
    waiting: list[Done]

    def apply(self) -> None:
        """Let the owners record what is durable now, then wake those who waited."""
        failure: OSError | None = None
        for job, error in self.results:
            job.finish(error)
            failure = failure or error
        for done in self.waiting:
            done(failure)


class Syncer:
    def __init__(self, notify: Callable[[Round], None]) -> None:
        """`notify` runs on the sync thread and must not block."""
        self._notify = notify
        self._condition = threading.Condition()
        self._pending: dict[int, _Pending] = {}
        self._waiting: list[Done] = []
        self._closed = False
        self._thread: threading.Thread | None = None
        self.rounds = 0

    def submit(self, jobs: Iterable[SyncJob], done: Done) -> None:
        """Make the files durable as they are now, then call `done`. Raises OSError if one does not open."""
        with self._condition:
            for job in jobs:
                pending = self._pending.get(job.key)
                if pending is None:
                    self._pending[job.key] = _Pending(job, job.open_fds())
                else:
                    pending.job = job
            self._waiting.append(done)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="borzoi-sync", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._closed:
                    self._condition.wait()
                if not self._waiting:
                    return
                pending, self._pending = list(self._pending.values()), {}
                waiting, self._waiting = self._waiting, []
            results = [(item.job, _sync(item)) for item in pending]
            self.rounds += 1
            self._notify(Round(results, waiting))


def _sync(pending: _Pending) -> OSError | None:
    try:
        for fd in pending.fds:
            os.fdatasync(fd)
        if pending.job.directory is not None:
            sync_directory(pending.job.directory)
    except OSError as error:
        return error
    finally:
        for fd in pending.fds:
            os.close(fd)
    return None
