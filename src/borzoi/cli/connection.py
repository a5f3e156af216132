"""What every command that talks to a server shares: its options, its connection, its errors and exit codes.

A command is a function of an `Invocation` and its own arguments. `register` gives it the options `--server`,
`--deadline` and `--json`, which may also stand before the command, and turns errors into one line on standard
error and an exit code:

    0     done
    1     the server said no, or what was asked for does not exist
    2     wrong usage
    3     the server cannot be reached, or does not answer
    4     wrong credentials
    130   Ctrl-C

The client is imported when a command runs, not when it is registered.
"""

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

import typer

from borzoi.cli.options import (
    DEFAULT_SERVER,
    EXIT_CREDENTIALS,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    SERVER_VARIABLE,
    DeadlineOption,
    JsonOption,
    ServerOption,
)
from borzoi.cli.output import Output, one_line

if TYPE_CHECKING:
    from borzoi.client.sync import Client
    from borzoi.model.errors import BorzoiError

P = ParamSpec("P")
Body = Callable[Concatenate["Invocation", P], None]

# Long enough for a server that is just starting, short enough for somebody who mistyped an address.
_CONNECT_S = 3.0

_OPTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("server", ServerOption, None),
    ("deadline", DeadlineOption, None),
    ("as_json", JsonOption, False),
)


class Invocation:
    """One run of a command: where the server is, and how to print."""

    def __init__(self, server: str | None, deadline: str | None, out: Output) -> None:
        self.out = out
        self._server = server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
        self._deadline_s = None if deadline is None else _seconds(deadline)

    def connect(self, *, log_in: bool = True) -> AbstractContextManager["Client"]:
        """A client that is connected, for a `with` statement."""
        from borzoi.client.settings import Settings, parse_address, parse_connection_string
        from borzoi.client.sync import Client
        from borzoi.model.requests import LoginUser, LoginWithToken

        settings = (
            parse_connection_string(self._server)
            if "://" in self._server
            else Settings(*parse_address(self._server), credentials=LoginUser("iggy", "iggy"))
        )
        credentials: dict[str, Any] = {}
        match settings.credentials if log_in else None:
            case LoginUser(username, password):
                credentials = {"username": username, "password": password}
            case LoginWithToken(token):
                credentials = {"token": token}
        client = Client(
            settings.host,
            settings.port,
            **credentials,
            tls=settings.tls,
            tls_ca_file=settings.tls_ca_file,
            tls_domain=settings.tls_domain,
            tls_validate_certificate=settings.tls_validate_certificate,
            deadline_s=self._deadline_s or settings.deadline_s,
            reconnection_retries=settings.reconnection_retries,
            reconnection_interval_s=settings.reconnection_interval_s,
            nodelay=settings.nodelay,
        )
        try:
            client.connect(deadline_s=self._deadline_s or min(_CONNECT_S, settings.deadline_s))
        except BaseException:
            client.close()
            raise
        return client


def command_group(help_text: str) -> typer.Typer:
    """Without a command it prints its help."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False, help=help_text)


def register(commands: typer.Typer, name: str, *aliases: str) -> Callable[[Body[P]], Body[P]]:
    """Make a function a command. Aliases work but are not listed."""

    def add(body: Body[P]) -> Body[P]:
        command = _command(body)
        commands.command(name)(command)
        for alias in aliases:
            commands.command(alias, hidden=True)(command)
        return body

    return add


def refuse(text: str) -> NoReturn:
    """End with a line that says why the server's answer is a no."""
    fail(text, EXIT_REFUSED)


def wrong_usage(text: str) -> NoReturn:
    fail(text, EXIT_USAGE)


def fail(text: str, code: int) -> NoReturn:
    typer.echo(f"error: {one_line(text)}", err=True)
    raise typer.Exit(code)


def identifier(text: str) -> int | str:
    """Digits are an id, everything else is a name."""
    return int(text) if text.isascii() and text.isdecimal() else text


def _command(body: Callable[..., None]) -> Callable[..., None]:
    @wraps(body)
    def command(
        *args: Any,
        context: typer.Context,
        server: str | None,
        deadline: str | None,
        as_json: bool,
        **kwargs: Any,
    ) -> None:
        before = context.find_root().params
        run = Invocation(
            server or before.get("server"),
            deadline or before.get("deadline"),
            Output(as_json=as_json or bool(before.get("as_json"))),
        )
        _guarded(lambda: body(run, *args, **kwargs))

    signature = inspect.signature(body)
    _, *own = signature.parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter("context", keyword, annotation=typer.Context),
        *(inspect.Parameter(name, keyword, annotation=kind, default=value) for name, kind, value in _OPTIONS),
    ]
    parameters = [*own, *shared]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # Typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    del command.__wrapped__  # or its annotations would be taken
    return command


def _guarded(run: Callable[[], None]) -> None:
    from borzoi.model.errors import BorzoiError

    try:
        run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, as in `| head`. The rest must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except BorzoiError as error:
        text = str(error)
        fail(f"{text.rstrip('.')}. {error.hint}" if error.hint else text, _exit_code(error))
    except UnicodeEncodeError as error:
        wrong_usage(f"{error.object!r} is no text that can be sent")
    except KeyboardInterrupt:
        fail("interrupted", EXIT_INTERRUPTED)


def _exit_code(error: "BorzoiError") -> int:
    from borzoi.model import errors

    match error:
        case errors.InvalidConnectionString() | errors.InvalidServerAddress():
            return EXIT_USAGE
        case errors.Unauthorized():
            return EXIT_REFUSED  # the credentials are right, they do not allow this
        case errors.AccessDenied():
            return EXIT_CREDENTIALS
        case (
            errors.ConnectionFailure()
            | errors.TaskTimeout()
            | errors.RemoteProtocolError()
            | errors.InvalidTlsCertificate()
        ):
            return EXIT_UNREACHABLE
    return EXIT_REFUSED


def _seconds(text: str) -> float:
    from borzoi.model.units import MICROSECONDS_PER_SECOND, parse_duration

    try:
        duration_us = parse_duration(text)
    except ValueError as error:
        wrong_usage(f"--deadline: {error}")
    if not duration_us:
        wrong_usage("--deadline: write a duration longer than zero, for example 5s")
    return duration_us / MICROSECONDS_PER_SECOND
