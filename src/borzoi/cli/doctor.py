"""`borzoi doctor`: looks at everything that can be in the way, and says what to do about it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.connection import Invocation, register, single_command
from borzoi.cli.options import EXIT_REFUSED
from borzoi.cli.output import print_json, print_table

if TYPE_CHECKING:
    from borzoi.cli.findings import Finding

doctor_command = single_command()


@register(doctor_command, "doctor")
def doctor(
    run: Invocation,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The server's data directory.", show_default="as `borzoi server` finds it"
        ),
    ] = None,
) -> None:
    """Check this machine, the data directory, the ports and the server. Changes nothing.

    Exits with 1 if something is wrong; a warning is no fault. Works without a server.

    \b
        borzoi doctor
        borzoi doctor --data ./local_data --json
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.cli.findings import State

    findings = list(_all(run, data))
    is_well = all(each.state is not State.WRONG for each in findings)
    if run.out.as_json:
        print_json({"ok": is_well, "checks": [_fields(each) for each in findings]})
    else:
        print_table(
            ("Check", "State", "Found"),
            (
                (each.check, each.state.value, f"{each.found}; {each.advice}" if each.advice else each.found)
                for each in findings
            ),
        )
    if not is_well:
        raise typer.Exit(EXIT_REFUSED)


def _fields(finding: "Finding") -> dict[str, str | None]:
    return {
        "check": finding.check,
        "state": finding.state.value,
        "found": finding.found,
        "advice": finding.advice or None,
    }


def _all(run: Invocation, data: Path | None) -> "Iterator[Finding]":
    from borzoi.cli import doctor_machine, doctor_server
    from borzoi.cli.findings import Finding, State
    from borzoi.server.config import ConfigError, load

    yield from doctor_machine.machine()
    if data is None:
        try:
            data = load(path=None, env=os.environ, flags={}).config.system.path
        except ConfigError as error:
            yield Finding(
                "configuration", State.WRONG, "; ".join(error.problems), "see: borzoi config show --origin"
            )
    if data is not None:
        yield from doctor_server.data_directory(data)
    yield from doctor_server.ports()
    yield from doctor_server.server(run)
