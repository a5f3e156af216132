"""What every command shares: its options, its connection, its errors and exit codes.

A command is a function of an `Invocation` and its own arguments. `register` gives it the options of
`borzoi.cli.options`, which may also stand before the command, and turns errors into one line on standard
error and an exit code:

    0     done
    1     the server said no, or what was asked for does not exist
    2     wrong usage, or a file of the command line that cannot be used
    3     the server cannot be reached, or does not answer
    4     wrong credentials
    130   Ctrl-C

Notes that a command adds to an error (`add_note`), for example what it had done before, end up in that line.
The client is imported when a command runs, not when it is registered.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

import typer

from borzoi.cli.options import (
    CONNECTING,
    EXIT_CREDENTIALS,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    PRINTING,
    Asked,
)
from borzoi.cli.output import Output, one_line

if TYPE_CHECKING:
    from borzoi.cli.target import Place, Target
    from borzoi.client.cipher import Cipher
    from borzoi.client.sync import Client
    from borzoi.model.errors import BorzoiError

P = ParamSpec("P")
Body = Callable[Concatenate["Invocation", P], None]
Options = tuple[tuple[str, Any, Any], ...]

# Long enough for a server that is just starting, short enough for somebody who mistyped an address.
_CONNECT_S = 3.0
# Sets the parameters of shared options apart from a command's own.
_SHARED = "shared_"
_ASKED = Asked.__slots__
_EPILOG = "Options for the login and for TLS, which may stand here too: borzoi --help"


class Invocation:
    """One run of a command: where the server is, who logs in, and how to print."""

    def __init__(self, asked: Asked, deadline: str | None, out: Output) -> None:
        self.out = out
        self.asked = asked
        self._deadline_s = None if deadline is None else _seconds(deadline)

    def place(self) -> "Place":
        """The server, without looking for a login."""
        from borzoi.cli.target import place

        return place(self.asked)

    def cipher(self) -> "Cipher | None":
        """What payloads are encrypted with, if they are. A wrong key is told before anything is sent."""
        context = self.place().context
        key = self.asked.encryption_key or (context.text("encryption_key") if context is not None else None)
        if key is None:
            return None
        from borzoi.client.cipher import Cipher

        return Cipher.from_base64(key)

    def connect(self, *, log_in: bool = True) -> AbstractContextManager["Client"]:
        """A client that is connected, for a `with` statement."""
        from borzoi.cli.target import Source, Target, resolve

        if not log_in:
            return self.connect_to(Target(self.place().settings, Source.GIVEN), log_in=False)
        return self.connect_to(resolve(self.asked))

    def connect_to(self, target: "Target", *, log_in: bool = True) -> AbstractContextManager["Client"]:
        """Like `connect`. A session that the server does not know any more is forgotten."""
        from borzoi.cli.target import Source

        try:
            return self._connected(target, log_in=log_in)
        except Exception as error:
            if target.source is Source.SESSION and is_session_over(error):
                _forget_session(target, error)
            raise

    def _connected(self, target: "Target", *, log_in: bool) -> "Client":
        from borzoi.client.sync import Client
        from borzoi.model.requests import LoginUser, LoginWithToken

        settings = target.settings
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


def is_session_over(error: BaseException) -> bool:
    """Whether an error at the login says that the server does not take the session's token any more."""
    from borzoi.model import errors

    return isinstance(error, errors.AccessDenied | errors.NotFound)


def command_group(help_text: str) -> typer.Typer:
    """Without a command it prints its help."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False, help=help_text)


def single_command() -> typer.Typer:
    """For a command that is in no group."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


def register(
    commands: typer.Typer, name: str, *aliases: str, options: Options = CONNECTING
) -> Callable[[Body[P]], Body[P]]:
    """Make a function a command. Aliases work but are not listed."""

    def add(body: Body[P]) -> Body[P]:
        command = _command(body, options)
        epilog = _EPILOG if options is CONNECTING else None
        commands.command(name, epilog=epilog)(command)
        for alias in aliases:
            commands.command(alias, hidden=True, epilog=epilog)(command)
        return body

    return add


def register_local(commands: typer.Typer, name: str, *aliases: str) -> Callable[[Body[P]], Body[P]]:
    """Like `register`, for a command that talks to no server."""
    return register(commands, name, *aliases, options=PRINTING)


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


def _command(body: Callable[..., None], options: Options) -> Callable[..., None]:
    names = [name for name, _, _ in options]

    @wraps(body)
    def command(*args: Any, context: typer.Context, **kwargs: Any) -> None:
        after = {name: kwargs.pop(_SHARED + name) for name in names}
        before = context.find_root().params
        # A flag that is off and an option that is missing are the same here: what stands before counts.
        said = {name: before.get(name) if value in (None, False) else value for name, value in after.items()}
        if after.get("tls") is False:
            said["tls"] = False
        asked = _asked(after, said)
        out = Output(as_json=bool(said["as_json"]), quiet=bool(said["quiet"]), screen=sys.stdout)
        if out.as_json and out.quiet:
            wrong_usage("give --json or --quiet, not both")
        run = Invocation(asked, said.get("deadline"), out)
        _guarded(lambda: body(run, *args, **kwargs), out)

    signature = inspect.signature(body)
    _, *own = signature.parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter("context", keyword, annotation=typer.Context),
        *(
            inspect.Parameter(_SHARED + name, keyword, annotation=kind, default=value)
            for name, kind, value in options
        ),
    ]
    parameters = [*own, *shared]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # Typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    del command.__wrapped__  # or its annotations would be taken
    return command


def _asked(after: dict[str, Any], said: dict[str, Any]) -> Asked:
    """What stands after the command wins as a whole: a login there replaces another kind of login before."""
    found = {name: said.get(name) for name in _ASKED}
    for kinds in (("username", "token", "token_name"), ("server", "address")):
        if any(after.get(each) for each in kinds):
            found |= {each: after.get(each) for each in kinds}
    if (after.get("token") or after.get("token_name")) and not after.get("password"):
        found["password"] = None
    return Asked(**found)


@contextmanager
def _printing(out: Output) -> Iterator[None]:
    if not out.quiet:
        yield
        return
    from contextlib import redirect_stdout
    from pathlib import Path

    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield


def _guarded(run: Callable[[], None], out: Output) -> None:
    from borzoi.model.errors import BorzoiError

    try:
        with _printing(out):
            run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as in `| head`
        _drop_output()
    except OSError as error:  # files have been dealt with, and the client has errors of its own
        _drop_output()
        fail(_noted(f"{error.filename or 'the output'}: {error.strerror}", error), EXIT_REFUSED)
    except BorzoiError as error:
        text = str(error)
        fail(_noted(f"{text.rstrip('.')}. {error.hint}" if error.hint else text, error), _exit_code(error))
    except UnicodeEncodeError as error:
        wrong_usage(_noted(f"{error.object!r} is no text that can be sent", error))
    except KeyboardInterrupt as error:
        fail(_noted("interrupted", error), EXIT_INTERRUPTED)


def _drop_output() -> None:
    """What is still to be printed must not fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _noted(text: str, error: BaseException) -> str:
    notes = getattr(error, "__notes__", ())
    return f"{text.rstrip('.')}. {' '.join(notes)}" if notes else text


def _exit_code(error: "BorzoiError") -> int:
    from borzoi.cli.home import HomeFileError
    from borzoi.model import errors

    match error:
        case (
            HomeFileError()
            | errors.InvalidConfiguration()
            | errors.InvalidEncryptionKey()
            | errors.InvalidConnectionString()
            | errors.InvalidServerAddress()
        ):
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


def _forget_session(target: "Target", error: BaseException) -> None:
    from borzoi.cli.target import address_key
    from borzoi.cli.tokens_file import forget_session

    settings = target.settings
    forget_session(address_key(settings.host, settings.port), getattr(settings.credentials, "token", None))
    error.add_note(f"The session at {settings.address} has expired or was ended; log in again: borzoi login")


def _seconds(text: str) -> float:
    from borzoi.model.units import MICROSECONDS_PER_SECOND, parse_duration

    try:
        duration_us = parse_duration(text)
    except ValueError as error:
        wrong_usage(f"--deadline: {error}")
    if not duration_us:
        wrong_usage("--deadline: write a duration longer than zero, for example 5s")
    return duration_us / MICROSECONDS_PER_SECOND
