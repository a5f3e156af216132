"""Entry point of the `borzoi` command: puts the commands together.

Commands import what they need when they run, so that asking for help, or starting the server, does not pay
for the others.
"""

from typing import Annotated

import typer

from borzoi import __version__
from borzoi.cli.config import config_commands
from borzoi.cli.server import server

app = typer.Typer(
    name="borzoi",
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
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", show_default=False)
    ] = False,
) -> None:
    """A persistent message streaming platform that speaks Apache Iggy's wire protocols.

    \b
    Start a server on 127.0.0.1:8090 that keeps its data in ./local_data:
        borzoi server

    \b
    See what it would run with, and where each setting comes from:
        borzoi config show --origin
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    if version:
        print(f"borzoi {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Runs the command line; the installed `borzoi` script calls this."""
    app()
