"""A bar on standard error for work that takes long, and only if somebody is looking: at a terminal.

Short work shows none, so that nothing flickers, and does not pay for loading Rich.
"""

import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_AFTER_S = 1.0


class Progress:
    """`total_bytes` is None where nobody knows; the bar then only shows that work goes on."""

    def __init__(self, what: str, total_bytes: int | None, *, is_wanted: bool = True) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._start_s = time.monotonic()
        self._bar: Bar | None = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done_bytes: int, messages: int) -> None:
        """Say how far the work has come."""
        if not self._is_wanted:
            return
        if self._bar is None:
            if time.monotonic() - self._start_s < _AFTER_S:
                return
            self._start(done_bytes, messages)
        elif self._task is not None:
            self._bar.update(self._task, completed=done_bytes, messages=messages)

    def show_now(self) -> None:
        """For a single request of unknown size: the bar appears at once."""
        if self._is_wanted and self._bar is None:
            self._start(0, 0)

    def _start(self, done_bytes: int, messages: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("{task.fields[messages]} messages"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(
            self._what, total=self._total_bytes, completed=done_bytes, messages=messages
        )
        self._bar.start()
