"""Carries out what the broker left pending, and hands the outcome back on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from borzoi.broker.broker import Broker
from borzoi.broker.handlers import durable
from borzoi.broker.pending import AfterSync, AfterWork, InSteps, OnThread, Pending, Steps
from borzoi.log.sync import Round, Syncer, SyncJob
from borzoi.model.errors import BorzoiError, CannotSyncFile, Error, IoError

# Hashing a password takes 19 MB of memory; two at a time keep both the memory and the queue short.
_THREADS = 2

Done = Callable[[object], None]


class Worker:
    """`done` gets the reply or, if it went wrong, the error to answer with."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.syncer = Syncer(self._notify)
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="borzoi-worker")
        self._is_closing = False

    def start(self, pending: Pending, done: Done) -> None:
        done = partial(self._hand_over, done)
        match pending:
            case AfterSync():
                self._sync(pending, done)
            case OnThread():
                self._run(pending, done)
            case InSteps():
                self._step(pending.steps, done)
            case AfterWork():
                pending.work.when_over(lambda: self._finish(pending.then, done))

    def _hand_over(self, done: Done, reply: object) -> None:
        """Many wait for one sync; a fault in the answer to one of them must not leave the others waiting."""
        try:
            done(reply)
        except Exception as error:
            self.broker.logger.exception("answer failed unexpectedly", reason=repr(error))

    def run_background(self) -> None:
        """Let a thread do what the broker put aside for later."""
        work, self.broker.background = self.broker.background, []
        for item in work:
            self._threads.submit(self._quietly, item)

    def close(self) -> None:
        """Wait for everything that was started, but for what is done in steps: that ends with its next step.

        What is left of it, the next start does. Steps must not go on when the broker's files are closed.
        """
        self._is_closing = True
        self.run_background()
        self.syncer.close()
        self._threads.shutdown()

    def _notify(self, finished: Round) -> None:
        self._loop.call_soon_threadsafe(finished.apply)

    def _sync(self, pending: AfterSync, done: Done) -> None:
        if not pending.jobs:
            done(pending.reply)
            return

        def finish(error: OSError | None) -> None:
            if error is None:
                done(pending.reply)
                return
            self.broker.logger.error("sync failed", reason=str(error))
            done(CannotSyncFile(error.strerror or str(error)))

        try:
            self.syncer.submit(pending.jobs, finish)
        except OSError as error:
            finish(error)
        except RuntimeError:  # the syncer has ended, and so has everything it was to make durable
            done(Error("the server is stopping"))

    def _run(self, pending: OnThread, done: Done) -> None:
        def finished(future: "asyncio.Future[object]") -> None:
            if future.cancelled():
                done(Error("the server is stopping"))
            else:
                self._finish(lambda: pending.then(future.result()), done)

        self._loop.run_in_executor(self._threads, pending.work).add_done_callback(finished)

    def _step(self, steps: Steps[object], done: Done, error: BorzoiError | None = None) -> None:
        """Do the next step, then what it asks for, then the one after it."""
        if self._is_closing:
            steps.close()
            done(Error("the server is stopping"))
            return
        jobs: list[SyncJob] = []
        ended: list[object] = []

        def advance() -> object:
            try:
                jobs.extend(next(steps) if error is None else steps.throw(error))
            except StopIteration as stop:
                ended.append(stop.value)
            return None

        failure = self._outcome(advance)
        if isinstance(failure, BorzoiError):
            done(failure)
        elif ended:
            self._reply(ended[0], done)
        elif jobs:
            self._sync(AfterSync(None, jobs), lambda outcome: self._step(steps, done, _error_in(outcome)))
        else:
            self._loop.call_soon(self._step, steps, done)

    def _finish(self, make: Callable[[], object], done: Done) -> None:
        """Answer with what `make` returns or raises."""
        self._reply(self._outcome(lambda: durable(self.broker, make())), done)

    def _outcome(self, make: Callable[[], object]) -> object:
        try:
            return make()
        except BorzoiError as error:
            return error
        except OSError as error:
            self.broker.logger.error("request failed", reason=str(error))
            return IoError(error.strerror or str(error))
        except Exception as error:
            self.broker.logger.exception("request failed unexpectedly", reason=repr(error))
            return Error("internal error")

    def _reply(self, reply: object, done: Done) -> None:
        if isinstance(reply, Pending):
            self.start(reply, done)
        else:
            done(reply)

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.broker.logger.warning("clean-up failed", reason=str(error))


def _error_in(outcome: object) -> BorzoiError | None:
    return outcome if isinstance(outcome, BorzoiError) else None
