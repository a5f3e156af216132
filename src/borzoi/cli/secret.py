"""Passwords that are not on the command line: asked for at a terminal, else a line of standard input."""

import sys
from typing import BinaryIO, NoReturn

import typer

from borzoi.cli.options import EXIT_USAGE


def ask_secret(prompt: str, *, repeat: bool = False) -> str:
    if sys.stdin is None:
        _nothing(prompt)
    if sys.stdin.isatty():
        entered: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=repeat, err=True)
        return entered
    # The bytes, not the text: a text stream reads ahead, and the lines after this one may be messages.
    source: BinaryIO = sys.stdin.buffer
    try:
        line = source.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        line = ""
    if not line:
        _nothing(prompt)
    return line


def _nothing(prompt: str) -> NoReturn:
    typer.echo(f"error: {prompt.lower()}: nothing on standard input", err=True)
    raise typer.Exit(EXIT_USAGE)
