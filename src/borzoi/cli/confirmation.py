"""Asking before something is done that is hard to take back.

A question needs somebody to answer it: without a terminal, and where a program reads the output, `--yes` has
to be given. "No" ends the command with code 1, having changed nothing.
"""

import sys
from typing import Annotated

import typer

from borzoi.cli.connection import Invocation, refuse, wrong_usage

Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.", show_default="ask")]


def require_answerable(run: Invocation, *, is_agreed: bool) -> None:
    """Before anything else is done: whether the question could be asked at all."""
    if not is_agreed and (run.out.as_json or not has_terminal()):
        wrong_usage("nobody can be asked here; add --yes to do it, or --dry-run to see what would be done")


def has_terminal() -> bool:
    return sys.stdin.isatty()


def ask(question: str) -> None:
    if not typer.confirm(question, err=True):
        refuse("not confirmed; nothing was changed")
