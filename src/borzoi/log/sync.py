"""Group commit: brings written bytes to the device on a thread, once for everybody who waits.

Requests that arrive while a sync runs are gathered and served by the next one, one `fdatasync` per
file however many producers wait. The thread touches nothing but descriptors of its own and hands a
finished `Round` to `notify`; `Round.apply` then runs where the files are owned.

A job carries duplicates of its owner's descriptors, as those see every write error since they were
opened. When very many files are to be synced at once, the rest is opened by name on the thread.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from borzoi.log.files import sync_directory

# How many duplicated descriptors may be open for the thread; those of one more job may come on top.
FDS_MAX = 128

Done = Callable[[OSError | None], None]
Finish = Callable[[OSError | None], OSError | None]


@dataclass(slots=True)
class SyncJob:
    """One file to sync.

    `key` tells files apart; of two jobs for one file the later one's `finish` counts, as it knows of more
    written bytes. `finish` records what is durable now, and may answer with an error of its own for those
    who wait. `open_fds` gives descriptors that the thread may close. `directory` is synced too if the
    file's name is new. `paths` are the same files by name; without them descriptors are always opened.
    """

    key: Hashable
    open_fds: Callable[[], list[int]]
    finish: Finish
    directory: Path | None = None
    paths: Sequence[Path] = ()


@dataclass(slots=True)
class _Pending:
    job: SyncJob
    fds: list[int]


@dataclass(slots=True)
class Waiting:
    """Somebody who waits for some files."""

    done: Done
    keys: list[Hashable]


@dataclass(slots=True)
class Round:
    """What one pass of the thread did."""

    results: list[tuple[SyncJob, OSError | None]]
    waiting: list[Waiting]

    def apply(self) -> None:
        """Let the owners record what is durable now, then wake those who waited, each for its files."""
        failures: dict[Hashable, OSError] = {}
        for job, error in self.results:
            failure = job.finish(error) or error
            if failure is not None:
                failures[job.key] = failure
        for item in self.waiting:
            failure = None
            if failures:
                failure = next((failures[key] for key in item.keys if key in failures), None)
            item.done(failure)


class Syncer:
    def __init__(self, notify: Callable[[Round], None]) -> None:
        """`notify` runs on the sync thread and must not block."""
        self._notify = notify
        self._condition = threading.Condition()
        self._pending: dict[Hashable, _Pending] = {}
        self._open_fds = 0
        self._waiting: list[Waiting] = []
        self._closed = False
        self._thread: threading.Thread | None = None
        self.rounds = 0

    def submit(self, jobs: Iterable[SyncJob], done: Done) -> None:
        """Make the files durable as they are now, then call `done`.

        Raises OSError if one does not open; then nothing was submitted. Not to be called after `close`.
        """
        with self._condition:
            if self._closed:
                raise RuntimeError("the syncer is closed")
            jobs = list(jobs)
            self._open_new(jobs)
            for job in jobs:
                self._pending[job.key].job = job
            self._waiting.append(Waiting(done, [job.key for job in jobs]))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="borzoi-sync", daemon=True)
                self._thread.start()
            self._condition.notify()

    def _open_new(self, jobs: list[SyncJob]) -> None:
        """Give every job whose file is not pending yet its descriptors: all of them or none."""
        opened: list[_Pending] = []
        try:
            for job in jobs:
                if job.key in self._pending:
                    continue
                by_name = job.paths and self._open_fds >= FDS_MAX
                pending = _Pending(job, [] if by_name else job.open_fds())
                self._pending[job.key] = pending
                self._open_fds += len(pending.fds)
                opened.append(pending)
        except OSError:
            for pending in opened:
                del self._pending[pending.job.key]
                self._open_fds -= len(pending.fds)
                _close(pending.fds)
            raise

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
            results = [(item.job, error) for item, error in zip(pending, _sync_all(pending), strict=True)]
            with self._condition:
                self._open_fds -= sum(len(item.fds) for item in pending)
            self.rounds += 1
            self._notify(Round(results, waiting))


def _sync_all(pending: list[_Pending]) -> list[OSError | None]:
    directories: dict[Path, OSError | None] = {}
    errors: list[OSError | None] = []
    for item in pending:
        error = _sync(item)
        directory = item.job.directory
        if directory is not None and error is None:
            if directory not in directories:
                directories[directory] = _attempt(sync_directory, directory)
            error = directories[directory]
        errors.append(error)
    return errors


def _sync(pending: _Pending) -> OSError | None:
    if not pending.fds:
        return next((error for path in pending.job.paths if (error := _sync_path(path))), None)
    try:
        return next((error for fd in pending.fds if (error := _attempt(os.fdatasync, fd))), None)
    finally:
        _close(pending.fds)


def _sync_path(path: Path) -> OSError | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # deleted meanwhile: nothing is left that could be lost
    except OSError as error:
        return error
    try:
        return _attempt(os.fdatasync, fd)
    finally:
        os.close(fd)


def _attempt(sync: Callable[..., None], target: int | Path) -> OSError | None:
    try:
        sync(target)
    except OSError as error:
        return error
    return None


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
