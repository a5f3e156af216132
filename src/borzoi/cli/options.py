"""The options that say which server to talk to, who logs in and how to print, and how commands end.

Apart from the rest because the top of the command line needs only these, whatever the command. All of them
may stand before the command, most of them also after it; one-letter forms only before it, because commands
have their own.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

DEFAULT_ADDRESS = "127.0.0.1:8090"
SERVER_VARIABLE = "BORZOI_SERVER"
USERNAME_VARIABLE, PASSWORD_VARIABLE = "IGGY_USERNAME", "IGGY_PASSWORD"
EXIT_REFUSED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_CREDENTIALS, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says about the server and the login. None: nothing."""

    server: str | None = None
    address: str | None = None
    transport: str | None = None
    tls: bool | None = None
    tls_domain: str | None = None
    tls_ca_file: str | None = None
    username: str | None = None
    password: str | None = None
    token: str | None = None
    token_name: str | None = None
    encryption_key: str | None = None


def _texts(names: tuple[str, ...], metavar: str, text: str, default: Any = False) -> tuple[Any, Any]:
    """An option in the form for the top, and the one for commands, which do not list it."""
    top = typer.Option(*names, metavar=metavar, help=text, show_default=default)
    command = typer.Option(*(each for each in names if each.startswith("--")), hidden=True, help=text)
    return Annotated[str | None, top], Annotated[str | None, command]


_USERNAME = _texts(("--username", "-u"), "NAME", "Log in as this user.")
_PASSWORD = _texts(
    ("--password", "-p"), "PASSWORD", "Of this user; other users of the machine can see it.", "asked for"
)
_TOKEN = _texts(("--token", "-t"), "TOKEN", "Log in with this personal access token.")
_TOKEN_NAME = _texts(
    ("--token-name", "-n"), "NAME", "Log in with a token stored by `pat create --store-token`."
)
_ADDRESS = _texts(("--tcp-server-address",), "HOST:PORT", "Like --server, without a login in it.")
_TRANSPORT = _texts(("--transport",), "tcp", "How to talk to the server.", "tcp")
_TLS_DOMAIN = _texts(
    ("--tcp-tls-domain",), "NAME", "The name in the server's certificate.", "the server's host"
)
_TLS_CA_FILE = _texts(
    ("--tcp-tls-ca-file",), "FILE", "Trust the authority in this file.", "the system's authorities"
)
_KEY = _texts(
    ("--encryption-key",), "BASE64", "32 bytes: encrypt payloads that are sent, decrypt those that are read."
)
_TLS_NAMES = "--tcp-tls-enabled/--no-tcp-tls-enabled"

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="ADDRESS",
        help="iggy://user:password@host:port, iggy://TOKEN@host:port or host:port.",
        show_default=f"${SERVER_VARIABLE}, the active context, or {DEFAULT_ADDRESS}",
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
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print errors only.", show_default="the result")
]
TlsOption = Annotated[bool | None, typer.Option(_TLS_NAMES, help="Encrypt.", show_default="do not")]
UsernameOption, PasswordOption, TokenOption, TokenNameOption = (
    each[0] for each in (_USERNAME, _PASSWORD, _TOKEN, _TOKEN_NAME)
)
AddressOption, TransportOption, TlsDomainOption, TlsCaFileOption, KeyOption = (
    each[0] for each in (_ADDRESS, _TRANSPORT, _TLS_DOMAIN, _TLS_CA_FILE, _KEY)
)

_QUIET_AFTER = Annotated[bool, typer.Option("--quiet", help="Print errors only.", show_default="the result")]
_TLS_AFTER = Annotated[bool | None, typer.Option(_TLS_NAMES, hidden=True)]

# Name of the parameter, option, default.
PRINTING: tuple[tuple[str, Any, Any], ...] = (
    ("as_json", JsonOption, False),
    ("quiet", _QUIET_AFTER, False),
)
CONNECTING: tuple[tuple[str, Any, Any], ...] = (
    ("server", ServerOption, None),
    ("deadline", DeadlineOption, None),
    *PRINTING,
    ("username", _USERNAME[1], None),
    ("password", _PASSWORD[1], None),
    ("token", _TOKEN[1], None),
    ("token_name", _TOKEN_NAME[1], None),
    ("address", _ADDRESS[1], None),
    ("transport", _TRANSPORT[1], None),
    ("tls", _TLS_AFTER, None),
    ("tls_domain", _TLS_DOMAIN[1], None),
    ("tls_ca_file", _TLS_CA_FILE[1], None),
    ("encryption_key", _KEY[1], None),
)
# For `login`, where who logs in is what the command is about.
LOGGING_IN: tuple[tuple[str, Any, Any], ...] = (
    *(each for each in CONNECTING if each[0] not in ("username", "password", "token", "token_name")),
    ("username", UsernameOption, None),
    ("password", PasswordOption, None),
    ("token", TokenOption, None),
    ("token_name", TokenNameOption, None),
)
