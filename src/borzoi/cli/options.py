"""The options that say which server to talk to and how to print, and the codes that commands end with.

Apart from the rest because the top of the command line needs only these, whatever the command.
"""

from typing import Annotated

import typer

DEFAULT_SERVER = "iggy://iggy:iggy@127.0.0.1:8090"
SERVER_VARIABLE = "BORZOI_SERVER"
EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_CREDENTIALS, EXIT_INTERRUPTED = 1, 2, 3, 4, 130

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="ADDRESS",
        help="iggy://user:password@host:port, iggy://TOKEN@host:port or host:port.",
        show_default=f"${SERVER_VARIABLE}, or {DEFAULT_SERVER}",
    ),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="DURATION",
        help="Longest wait for a connection, and for each answer.",
        show_default="3s for a connection, 30s for an answer",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default="text")]
