"""Rounds: the same question to the server again and again, each answer shown in place of the last.

On a terminal the picture is redrawn; otherwise every round is a block of lines, or with `--json` one line. A
server that goes away is told once, and asked again every round until it is back, until it has been away for
as long as `--deadline` says, or until Ctrl-C. If it is not there at the beginning the command fails as any
other.
"""

import io
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import count as numbers
from typing import TYPE_CHECKING, Any, Self, TypeVar

from typer.core import TyperCommand

from borzoi.cli.connection import Invocation
from borzoi.cli.output import one_line, print_json_line

if TYPE_CHECKING:
    from borzoi.client.sync import Client

T = TypeVar("T")
Show = Callable[[str], None]

DEFAULT_INTERVAL_S = 2.0
# How long a server that does not answer is waited for in each round.
_ANSWER_S = 3.0
_WATCH = "--watch"


class WatchCommand(TyperCommand):
    """A command whose option `--watch` may stand without its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_watch_value(args))


def with_watch_value(arguments: list[str]) -> list[str]:
    """The default put in after a `--watch` that is not followed by a number."""
    made = []
    for number, argument in enumerate(arguments):
        made.append(argument)
        if argument == _WATCH and not _is_number(arguments[number + 1 : number + 2]):
            made.append(f"{DEFAULT_INTERVAL_S:g}")
    return made


def watch(
    run: Invocation,
    take: Callable[["Client"], T],
    *,
    render: Callable[[T], None],
    fields: Callable[[T], Any],
    interval_s: float,
    count: int | None = None,
) -> None:
    """Take and show, `count` times or until Ctrl-C. `render` prints for people, `fields` are for programs."""
    from borzoi.model.errors import ConnectionFailure, TaskTimeout

    shown: str | None = None  # what is on the screen; None before the first round
    away_since_s: float | None = None
    with _Connection(run) as connection, _screen(run) as show:
        for number in numbers(1):
            try:
                taken = take(connection.client())
            except (ConnectionFailure, TaskTimeout) as error:
                connection.drop()
                now_s = time.monotonic()
                if shown is None or _is_overdue(run, away_since_s, now_s):
                    raise
                if away_since_s is None:
                    away_since_s = now_s
                    show_away(show, run, one_line(str(error)), shown)
            else:
                away_since_s = None
                shown = _show(run, show, taken, render, fields)
            if number == count:
                return
            pause(interval_s)


class _Connection:
    """A client that is replaced when the server was away: a new one does not wait before it tries again."""

    def __init__(self, run: Invocation) -> None:
        self._run = run
        self._open = ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def client(self) -> "Client":
        """Connected, and just heard of."""
        if self._client is None:
            self._client = self._open.enter_context(self._run.connect())
        else:
            deadline_s = self._run._deadline_s
            self._client.ping(deadline_s=_ANSWER_S if deadline_s is None else min(_ANSWER_S, deadline_s))
        return self._client

    def drop(self) -> None:
        self._client = None
        self._open.close()


def _is_overdue(run: Invocation, away_since_s: float | None, now_s: float) -> bool:
    deadline_s = run._deadline_s
    return away_since_s is not None and deadline_s is not None and now_s - away_since_s >= deadline_s


def _show(
    run: Invocation, show: Show, taken: T, render: Callable[[T], None], fields: Callable[[T], Any]
) -> str:
    if run.out.as_json:
        print_json_line(fields(taken))
        sys.stdout.flush()
        return ""
    text = io.StringIO()
    with redirect_stdout(text):
        render(taken)
    show(text.getvalue())
    return text.getvalue()


def show_away(show: Show, run: Invocation, why: str, last: str) -> None:
    """Beside the last picture where it stays, else on standard error."""
    line = f"the server is away, trying again: {why}"
    if _is_terminal(run):
        show(f"{line}\n\n{last}")
    else:
        print(line, file=sys.stderr, flush=True)


def pause(seconds: float) -> None:
    """Between two rounds; tests put something else in its place."""
    time.sleep(seconds)


def _is_terminal(run: Invocation) -> bool:
    return not run.out.as_json and sys.stdout.isatty()


@contextmanager
def _screen(run: Invocation) -> Iterator[Show]:
    if not _is_terminal(run):
        yield _print_block
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # Refreshed by us only: a picture is drawn when there is a new one, and no thread is needed.
    with Live(console=Console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda text: live.update(
            Text(text.rstrip("\n"), no_wrap=True, overflow="ellipsis"), refresh=True
        )


def _print_block(text: str) -> None:
    print(text, flush=True)


def _is_number(texts: list[str]) -> bool:
    try:
        return bool(texts) and math.isfinite(float(texts[0]))
    except ValueError:
        return False
