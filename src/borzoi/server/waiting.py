"""Carries out what the broker left pending, and hands the outcome back on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from borzoi.broker.broker import Broker
from borzoi.broker.handlers import durable
from borzoi.broker.pending import AfterSync, OnThread, Pending
from borzoi.log.sync import Round, Syncer
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

    def start(self, pending: Pending, done: Done) -> None:
        if isinstance(pending, AfterSync):
            self._sync(pending, partial(self._hand_over, done))
        else:
            self._run(pending, partial(self._hand_over, done))

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
        """Wait for everything that was started."""
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
                return
            try:
                reply = durable(self.broker, pending.then(future.result()))
            except BorzoiError as error:
                done(error)
            except OSError as error:
                self.broker.logger.error("request failed", reason=str(error))
                done(IoError(error.strerror or str(error)))
            except Exception as error:
                self.broker.logger.exception("request failed unexpectedly", reason=repr(error))
                done(Error("internal error"))
            else:
                if isinstance(reply, Pending):
                    self.start(reply, done)
                else:
                    done(reply)

        self._loop.run_in_executor(self._threads, pending.work).add_done_callback(finished)

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.broker.logger.warning("clean-up failed", reason=str(error))
