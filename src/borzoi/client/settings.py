"""Where the server is and how to talk to it: settings, and the connection strings that carry them.

    iggy://user:password@host:port?option=value&option=value
    iggy+tcp://...        the same
    iggy://TOKEN@host:port

User, password and token may be percent-encoded. The port may be left out (8090). Options:

    tls                       true | false      encrypt
    tls_ca_file               path              trust the authority in this file instead of the system's
    tls_domain                name              the name in the server's certificate, if it is not the host
    tls_validate_certificate  true | false
    deadline                  duration (30s)    what a call may take
    reconnection_retries      number | unlimited
    reconnection_interval     duration (1s)     longest pause between two attempts
    reestablish_after         duration (0)      shortest time from one connection to the next
    heartbeat_interval        duration (5s)     how often a group member shows that it is there
    nodelay                   true | false      TCP_NODELAY

Durations are written as in the server's configuration: `500ms`, `30s`. Every fault is an
`InvalidConnectionString` (or `InvalidServerAddress`) that quotes the part at fault, never the credentials.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from borzoi.client.dialogue import Credentials
from borzoi.model.errors import (
    InvalidConnectionString,
    InvalidServerAddress,
    InvalidTlsCertificatePath,
)
from borzoi.model.requests import LoginUser, LoginWithToken
from borzoi.model.units import MICROSECONDS_PER_SECOND, parse_duration

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8090
DEFAULT_DEADLINE_S = 30.0

_PORT_MAX = 65_535
_SCHEMES = ("iggy", "iggy+tcp")
_OTHER_TRANSPORTS = ("iggy+quic", "iggy+http", "iggy+ws")


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    credentials: Credentials | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca_file: Path | None = None
    tls_domain: str = ""
    tls_validate_certificate: bool = True
    deadline_s: float = DEFAULT_DEADLINE_S
    reconnection_retries: int | None = None  # None = as long as the deadline allows
    reconnection_interval_s: float = 1.0
    reestablish_after_s: float = 0.0
    heartbeat_interval_s: float = 5.0
    nodelay: bool = True

    def __post_init__(self) -> None:
        if not self.deadline_s > 0 or not self.heartbeat_interval_s > 0:
            raise ValueError("deadline and heartbeat interval are positive numbers of seconds")
        if not 0 < self.port <= _PORT_MAX:
            raise InvalidServerAddress(f"{self.port} is no port; a port is a number from 1 to {_PORT_MAX}")

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def server_name(self) -> str:
        return self.tls_domain or self.host

    def tls_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise InvalidTlsCertificatePath(f"{self.tls_ca_file}: {error}") from error
        if not self.tls_validate_certificate:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_connection_string(text: str) -> Settings:
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise InvalidConnectionString('it starts with "iggy://"')
    if scheme in _OTHER_TRANSPORTS:
        raise InvalidConnectionString(f'this client speaks TCP; use "iggy://" instead of "{scheme}://"')
    if scheme not in _SCHEMES:
        raise InvalidConnectionString(f'it starts with "iggy://", not "{scheme}://"')
    place, _, query = rest.partition("?")
    if place.count("@") != 1:
        raise InvalidConnectionString(
            'exactly one "@" stands between credentials and address; write "%40" for one in a password'
        )
    login, address = place.split("@")
    try:
        host, port = parse_address(address.removesuffix("/"))
    except InvalidServerAddress as error:
        raise InvalidConnectionString(error.detail) from None
    return Settings(host=host, port=port, credentials=_parse_login(login), **_parse_options(query))


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host`, `host:port`, `[v6]` or `[v6]:port`."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidServerAddress(f'"{text}": an IPv6 address stands in brackets, then ":port"')
        port_text = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") > 1:
        raise InvalidServerAddress(f'"{text}": an IPv6 address stands in brackets')
    else:
        host, colon, rest = text.partition(":")
        port_text = rest if colon else str(DEFAULT_PORT)
    if not host:
        raise InvalidServerAddress(f'"{text}" has no host')
    if not (port_text.isascii() and port_text.isdecimal()) or not 0 < int(port_text) <= _PORT_MAX:
        raise InvalidServerAddress(f'"{port_text}" is no port; a port is a number from 1 to {_PORT_MAX}')
    return host, int(port_text)


def credentials_of(username: str | None, password: str | None, token: str | None) -> Credentials | None:
    if token is not None:
        if username is not None or password is not None:
            raise ValueError("log in with a token or with username and password, not with both")
        return LoginWithToken(token)
    if username is None and password is None:
        return None
    if username is None or password is None:
        raise ValueError("username and password belong together")
    return LoginUser(username, password)


def _parse_login(text: str) -> Credentials:
    username, colon, password = text.partition(":")
    if not text or (colon and not (username and password)):
        raise InvalidConnectionString('before the "@" stands user:password or a token')
    return LoginUser(unquote(username), unquote(password)) if colon else LoginWithToken(unquote(text))


def _parse_options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise InvalidConnectionString(f'option "{pair}" is not "name=value"')
        option = _OPTIONS.get(key)
        if option is None:
            raise InvalidConnectionString(f'unknown option "{key}"; known are {", ".join(_OPTIONS)}')
        name, parse = option
        if name in found:
            raise InvalidConnectionString(f'option "{key}" comes twice')
        try:
            found[name] = parse(unquote(value))
        except ValueError as error:
            raise InvalidConnectionString(f"option {key}: {error}") from None
    return found


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f'"{text}" is neither true nor false')
    return text == "true"


def _seconds(text: str) -> float:
    return parse_duration(text) / MICROSECONDS_PER_SECOND


def _positive_seconds(text: str) -> float:
    seconds = _seconds(text)
    if not seconds:
        raise ValueError(f'"{text}" is not longer than zero')
    return seconds


def _retries(text: str) -> int | None:
    if text == "unlimited":
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f'"{text}" is neither a number nor "unlimited"')
    return int(text)


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "tls": ("tls", _flag),
    "tls_ca_file": ("tls_ca_file", Path),
    "tls_domain": ("tls_domain", str),
    "tls_validate_certificate": ("tls_validate_certificate", _flag),
    "deadline": ("deadline_s", _positive_seconds),
    "reconnection_retries": ("reconnection_retries", _retries),
    "reconnection_interval": ("reconnection_interval_s", _seconds),
    "reestablish_after": ("reestablish_after_s", _seconds),
    "heartbeat_interval": ("heartbeat_interval_s", _positive_seconds),
    "nodelay": ("nodelay", _flag),
}
