"""`borzoi config`: shows, checks and documents the server's configuration without starting it."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

_EXIT_UNUSABLE = 2

config_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show and check the configuration of `borzoi server`.\n\nExample: borzoi config show --origin",
)

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default="text")]


@config_commands.command()
def show(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings in TOML.", show_default="what IGGY_CONFIG_PATH names, or none"
        ),
    ] = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Tell where each value comes from.", show_default="values only")
    ] = False,
    as_json: _Json = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Include keys that have no effect in this version.",
            show_default="only if they are set",
        ),
    ] = False,
) -> None:
    """Print what a server started here and now would run with.

    Secrets are shown as ******. Warnings go to standard error.

    \b
    Which values did I change, and where?
        borzoi config show --config server.toml --origin | grep -v "# default"
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.server.config import ConfigError, load
    from borzoi.server.config.render import effective_json, effective_toml

    try:
        loaded = load(path=config, env=os.environ, flags={})
    except ConfigError as error:
        _print_lines("error: ", error.problems)
        raise typer.Exit(_EXIT_UNUSABLE) from error
    _print_lines("warning: ", loaded.warnings)
    if as_json:
        _print_json(effective_json(loaded, with_origin=origin, everything=everything))
    else:
        print(effective_toml(loaded, with_origin=origin, everything=everything))


@config_commands.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Settings in TOML.", show_default=False)],
    *,
    as_json: _Json = False,
) -> None:
    """Check a configuration file by itself, without the environment.

    Prints "ok" and exits with 0, or prints everything that is wrong and exits with 2.

    \b
    Before a restart:
        borzoi config check server.toml && systemctl restart borzoi
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.server.config import ConfigError, load

    problems: list[str] = []
    warnings: list[str] = []
    try:
        warnings = load(path=file, env={}, flags={}).warnings
    except ConfigError as error:
        problems = list(error.problems)
    if as_json:
        _print_json({"ok": not problems, "errors": problems, "warnings": warnings})
    else:
        _print_lines("error: ", problems)
        _print_lines("warning: ", warnings)
        if not problems:
            print("ok")
    if problems:
        raise typer.Exit(_EXIT_UNUSABLE)


@config_commands.command()
def default(*, as_json: _Json = False) -> None:
    """Print a configuration file with every setting at its default and what it means.

    \b
    Start from it:
        borzoi config default > server.toml
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.server.config.render import default_toml, reference_json

    if as_json:
        _print_json(
            {entry["key"]: entry["default"] for entry in reference_json() if entry["status"] == "used"}
        )
    else:
        print(default_toml())


@config_commands.command()
def reference(*, as_json: _Json = False) -> None:
    """Print every key with its default, what it accepts and what it means, as Markdown tables.

    \b
    What may I set for segments?
        borzoi config reference | grep system.segment
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.server.config.render import reference_json, reference_markdown

    if as_json:
        _print_json(reference_json())
    else:
        print(reference_markdown())


def _print_lines(prefix: str, lines: list[str] | tuple[str, ...]) -> None:
    for line in lines:
        typer.echo(prefix + line, err=True)


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))
