"""One run of a test server: an event loop in a thread, and the broker, listener and chores that live on it.

What `borzoi.server.serving` does for the command line this does for a test, without signals and without
changing the process: no log handlers, no garbage collector settings. The clock is an argument, and the chores
can be asked to catch up with it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from borzoi.log.directory import DataDirectory
from borzoi.server import maintenance
from borzoi.server.config import Config
from borzoi.server.serving import broker_settings, loop_factory
from borzoi.server.tcp.connection import wall_clock_us
from borzoi.server.tcp.port import address_of, take_port
from borzoi.server.waiting import Worker
from borzoi.testing.faults import Faults, FaultyBroker, FaultyListener

# Nothing here takes as long unless it hangs, and then the test should say so.
_PATIENCE_S = 30.0
_DRAIN_S = 5.0
_POLL_S = 0.001
_SECOND_US = 1_000_000

T = TypeVar("T")


class Clock:
    """The time of day, and what it was moved by."""

    def __init__(self) -> None:
        self.offset_us = 0

    def now_us(self) -> int:
        return wall_clock_us() + self.offset_us


class EventsToLogging:
    """The server's events as messages of the standard library's logging, which test runners show."""

    def __init__(self) -> None:
        self.is_muted = False
        self._logger = logging.getLogger("borzoi.testing.server")

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, object], *, exc_info: bool = False) -> None:
        if not self.is_muted and self._logger.isEnabledFor(level):
            text = " ".join([event, *(f"{key}={value!r}" for key, value in fields.items())])
            self._logger.log(level, "%s", text, exc_info=exc_info)


class Run:
    """From start to stop or crash. Made by `Run.start`, which returns when connections are accepted."""

    def __init__(self, config: Config, clock: Clock, faults: Faults) -> None:
        self._config = config
        self._clock = clock
        self._faults = faults
        self._logger = EventsToLogging()
        self._is_crash = False
        self._finished_us: dict[str, int] = {}
        self._failure: BaseException | None = None
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="borzoi-test-server", daemon=True)

    @classmethod
    def start(cls, config: Config, clock: Clock, faults: Faults) -> "Run":
        """Raises what kept the server from starting."""
        run = cls(config, clock, faults)
        run._thread.start()
        run._started.result(_PATIENCE_S)
        return run

    @property
    def address(self) -> str:
        return self.listener.address

    def stop(self) -> None:
        """Finish what was begun, sync, let go."""
        self._end()

    def crash(self) -> None:
        """End as `kill -9` would end a server of its own."""
        self.call(self._mark_crashed)
        self._end()

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that runs on the server's event loop."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_PATIENCE_S)

    def catch_up(self, moved_us: int, *, silent: bool) -> None:
        """Do what is due after the clock was moved. To be run by `call`."""
        if not silent:
            for client in self.broker.clients:
                client.last_seen_us += moved_us
            for connection in self.listener.connections:
                if connection._frame_started_us:
                    connection._frame_started_us += moved_us
        now_us = self._clock.now_us()
        for chore in self._chores:
            if now_us - self._finished_us[chore.name] >= chore.period_us:
                self._carry_out(chore)
        self.worker.run_background()  # what the chores put aside

    def _mark_crashed(self) -> None:
        self._is_crash = self._logger.is_muted = True  # the dead complain of nothing
        self.listener.stop_accepting()
        self.listener.abort_connections()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the test server did not stop within {_PATIENCE_S} s")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001 - raised by whoever waits for this thread
                if self._started.done():
                    self._failure = error
                else:
                    self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        directory = DataDirectory(self._config.system.path)
        directory.open()
        try:
            await self._open(directory)
            try:
                async with asyncio.TaskGroup() as tasks:
                    repeated = [tasks.create_task(self._repeat(chore)) for chore in self._chores]
                    self._started.set_result(None)
                    await self._stop.wait()
                    for task in repeated:
                        task.cancel()
            finally:
                await self._close()
        finally:
            directory.close()

    async def _open(self, directory: DataDirectory) -> None:
        port = take_port(self._config.tcp.address)
        now_us = self._clock.now_us()
        settings = broker_settings(self._config, address_of(port))
        self.broker = FaultyBroker(directory, settings, self._logger, now_us, self._faults)
        self.worker = Worker(self.broker, self._loop)
        self.listener = FaultyListener(
            self._config, self.broker, self.worker, port, self._clock.now_us, self._faults
        )
        try:
            self.broker.open(now_us)
            await self.listener.start()
        except BaseException:
            self.listener.stop_accepting()
            self.worker.close()
            raise
        self._chores = maintenance.chores(self._config, self.broker, self.worker, self.listener)
        self._finished_us = {chore.name: now_us for chore in self._chores}

    async def _close(self) -> None:
        listener = self.listener
        if not self._is_crash:
            listener.stop_accepting()
            await _until(lambda: listener.is_idle)
            listener.close_connections("server is stopping")
            await _until(lambda: not listener.connections)
        listener.abort_connections()
        await _until(lambda: not listener.connections)
        if self._is_crash:
            self.broker.abandon()
            self.worker.close()  # here: at the end of a process no other thread can be had to wait on
        else:
            await asyncio.to_thread(self.worker.close)
            self.broker.close()

    async def _repeat(self, chore: maintenance.Chore) -> None:
        while True:
            await asyncio.sleep(chore.period_us / _SECOND_US)
            self._carry_out(chore)

    def _carry_out(self, chore: maintenance.Chore) -> None:
        now_us = self._finished_us[chore.name] = self._clock.now_us()
        try:
            chore.run(now_us)
        except Exception as error:
            self._logger.exception("chore failed", chore=chore.name, reason=repr(error))


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for something that signals nothing, but not forever."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + _DRAIN_S
    while not condition() and loop.time() < give_up_s:  # noqa: ASYNC110 - see the docstring
        await asyncio.sleep(_POLL_S)
