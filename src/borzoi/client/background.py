"""A thread with an event loop of its own, in which a blocking caller lets asyncio code run.

The caller may be any thread, one whose own event loop is running too. It waits for an outcome and can be
interrupted at once, by Ctrl-C: what it waited for is then cancelled, and ends before the caller goes on.

A thread does not survive a fork. `is_inherited` tells a child process that it has the parent's object in its
hands; everything but that raises there.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from borzoi.model.errors import ClientShutdown

T = TypeVar("T")

# How long the end of the thread is waited for; only a host name that is being looked up can take so long.
_END_S = 5.0


class Job(Future[T]):
    """What is carried out in the background, and its outcome."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._begin, coroutine)

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(self._carry_out(coroutine))

    async def _carry_out(self, coroutine: Coroutine[Any, Any, T]) -> None:
        try:
            result = await coroutine
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self.set_exception(error)
        else:
            self.set_result(result)

    def outcome(self) -> T:
        """What it returned or raised. If the thread was stopped meanwhile, nobody knows."""
        try:
            return self.result()
        except asyncio.CancelledError:
            raise ClientShutdown("it was closed meanwhile") from None

    def interrupt(self) -> None:
        """Cancel it, and return when it has ended, one way or the other."""
        self._loop.call_soon_threadsafe(self._cancel)
        self.exception()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Background:
    """Started when it is first needed, and only once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        # Taken again by a signal handler that comes in between and waits for something itself.
        self._lock = threading.RLock()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    @property
    def is_inherited(self) -> bool:
        """Whether this is the parent's, and this process was forked from it."""
        return self._process != os.getpid()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self) -> asyncio.AbstractEventLoop:
        """Can be repeated."""
        if self.is_inherited:
            raise ClientShutdown(f"a {self._name} stays in the process that made it; make one after the fork")
        if self._loop is not None:
            return self._loop
        with self._lock:
            if self._is_stopped:
                raise ClientShutdown(f"the {self._name} is closed")
            if self._loop is None:
                # asyncio's own: a forked child that drops its copy of it leaves the parent's alone.
                loop = asyncio.SelectorEventLoop()
                self._thread = threading.Thread(
                    target=_serve, args=(loop, self._stopping), name=f"borzoi-{self._name}", daemon=True
                )
                # What is submitted before the thread is there waits in the loop.
                self._loop = loop
                self._thread.start()
            return self._loop

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run something short on the loop; nobody waits for it."""
        self.start().call_soon_threadsafe(callback)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Job[T]:
        try:
            self.start()
            self._require_other_thread()
            # Not between what `stop` does: a job that the loop never sees would be waited for without end.
            with self._lock:
                return Job(self.start(), coroutine)
        except BaseException:
            coroutine.close()
            raise

    def wait(self, coroutine: Coroutine[Any, Any, T], undo: Callable[[], object] | None = None) -> T:
        """The outcome. `undo` is for a result that the caller did not get, because it was interrupted."""
        job = self.submit(coroutine)
        try:
            job.exception()
        except BaseException:
            job.interrupt()
            if undo is not None and job.exception() is None:
                self.call_soon(undo)
            raise
        return job.outcome()

    def stop(self) -> None:
        """End the thread; what still runs in it is cancelled. Can be repeated."""
        with self._lock:
            thread, loop = self._thread, self._loop
            self._thread = self._loop = None
            self._is_stopped = True
            if loop is not None:
                loop.call_soon_threadsafe(self._stopping.set)
        if thread is not None:
            thread.join(_END_S)

    def _require_other_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"a callback of the {self._name} cannot wait for the {self._name}")


def _serve(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(_live(stopping))


async def _live(stopping: asyncio.Event) -> None:
    await stopping.wait()
