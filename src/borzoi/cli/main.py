"""Entry point of the `borzoi` command: puts the commands together.

Commands are imported when they are asked for, and import what they need when they run, so that asking for
help, or starting the server, does not pay for the others.
"""

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from borzoi import __version__
from borzoi.cli.coercion import spare
from borzoi.cli.config import config_commands
from borzoi.cli.options import (
    EXIT_INTERRUPTED,
    AddressOption,
    DeadlineOption,
    JsonOption,
    KeyOption,
    PasswordOption,
    QuietOption,
    ServerOption,
    TlsCaFileOption,
    TlsDomainOption,
    TlsOption,
    TokenNameOption,
    TokenOption,
    TransportOption,
    UsernameOption,
)
from borzoi.cli.server import server

# Command: where it is.
_MODULES = {
    "ping": "borzoi.cli.system:ping_command",
    "stats": "borzoi.cli.system:stats_command",
    "me": "borzoi.cli.system:me_command",
    "snapshot": "borzoi.cli.system:snapshot_command",
    "stream": "borzoi.cli.stream:stream_commands",
    "topic": "borzoi.cli.topic:topic_commands",
    "partition": "borzoi.cli.partition:partition_commands",
    "segment": "borzoi.cli.segment:segment_commands",
    "message": "borzoi.cli.message:message_commands",
    "consumer-group": "borzoi.cli.consumer_group:group_commands",
    "consumer-offset": "borzoi.cli.consumer_offset:offset_commands",
    "client": "borzoi.cli.client:client_commands",
    "user": "borzoi.cli.user:user_commands",
    "pat": "borzoi.cli.pat:token_commands",
    "lag": "borzoi.cli.lag:lag_command",
    "top": "borzoi.cli.top:top_command",
    "dlq": "borzoi.cli.dlq:dlq_commands",
    "context": "borzoi.cli.context:context_commands",
    "login": "borzoi.cli.login:login_command",
    "logout": "borzoi.cli.login:logout_command",
    "session": "borzoi.cli.login:session_commands",
    "cluster": "borzoi.cli.cluster:cluster_commands",
    "options": "borzoi.cli.describe:options_command",
    "doctor": "borzoi.cli.doctor:doctor_command",
}
_ALIASES = {
    "s": "stream",
    "t": "topic",
    "p": "partition",
    "seg": "segment",
    "m": "message",
    "g": "consumer-group",
    "group": "consumer-group",
    "o": "consumer-offset",
    "c": "client",
    "u": "user",
    "ctx": "context",
    "li": "login",
    "lo": "logout",
    "sess": "session",
    "cl": "cluster",
}
# What does not talk to a server has no use for the options that say how.
_LOCAL = ("server", "config")
_SHELLS = ("bash", "zsh", "fish", "powershell")

# Its module has a different name in different versions of Typer.
_UsageError: Any = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """The top of the command line: finds commands when they are needed, and ends in one line on misuse."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spare(self)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_MODULES]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = _ALIASES.get(cmd_name, cmd_name)
        if name not in _MODULES:
            return super().get_command(ctx, name)
        module, _, attribute = _MODULES[name].partition(":")
        return spare(typer.main.get_command(getattr(import_module(module), attribute)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            # The inherited suggestions know only commands that are loaded.
            from difflib import get_close_matches

            close = get_close_matches(args[0], _MODULES)
            if close:
                error.message = f"{error.message.rstrip('.')}. Did you mean '{close[0]}'?"
            raise

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Like the inherited one; `standalone_mode` ends the process."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            print("error: interrupted", file=sys.stderr)
            code = EXIT_INTERRUPTED
        except _UsageError as error:
            _explain(error)
            code = error.exit_code
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


app = typer.Typer(
    name="borzoi",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("server")(server)
app.add_typer(config_commands, name="config")


@app.callback(invoke_without_command=True)
def borzoi(
    context: typer.Context,
    *,
    server: ServerOption = None,
    deadline: DeadlineOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    username: UsernameOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
    token_name: TokenNameOption = None,
    address: AddressOption = None,
    transport: TransportOption = None,
    tls: TlsOption = None,
    tls_domain: TlsDomainOption = None,
    tls_ca_file: TlsCaFileOption = None,
    encryption_key: KeyOption = None,
    generate: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            help="Print what makes bash, zsh, fish or powershell complete commands, and exit.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", show_default=False)
    ] = False,
) -> None:
    """A persistent message streaming platform that speaks Apache Iggy's wire protocols.

    \b
    Start a server on 127.0.0.1:8090 that keeps its data in ./local_data:
        borzoi server

    \b
    See what it would run with, and where each setting comes from:
        borzoi config show --origin

    \b
    Send and read a message:
        borzoi stream create orders
        borzoi topic create orders events
        borzoi message send orders events "hello"
        borzoi message poll orders events 0 --first

    \b
    Find out why something does not work:
        borzoi doctor
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    if version:
        print(f"borzoi {__version__}")
        raise typer.Exit
    if generate is not None:
        _print_completion(generate)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        return
    about_server = (server, deadline, address, transport, tls, tls_domain, tls_ca_file, encryption_key)
    about_login = (username, password, token, token_name)
    if context.invoked_subcommand in _LOCAL and any((*about_server, *about_login, as_json, quiet)):
        raise typer.BadParameter(
            f'"{context.invoked_subcommand}" does not talk to a server; write its options after it'
        )


def main() -> None:
    """Runs the command line; the installed `borzoi` script calls this."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A letter that the terminal does not know is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    app()


def _print_completion(shell: str) -> None:
    if shell not in _SHELLS:
        raise typer.BadParameter(f"--generate {shell}: there is completion for {', '.join(_SHELLS)}")
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # where it came from is

    print(get_completion_script(prog_name="borzoi", complete_var="_BORZOI_COMPLETE", shell=shell))


def _explain(error: Any) -> None:
    text = error.format_message()
    if "\n" in text:  # a group without a command: its help
        print(text)
        return
    path = error.ctx.command_path if error.ctx is not None else "borzoi"
    print(f"error: {text.rstrip('.')}. See: {path} --help", file=sys.stderr)
