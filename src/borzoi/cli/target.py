"""Which server a command talks to, and as whom: from the command line, the environment, and what is kept.

The address, the first that there is:

    --server or --tcp-server-address, BORZOI_SERVER, the active context, 127.0.0.1:8090

The login, the first that there is:

    1. --username and --password, --token, --token-name
    2. the login in --server or BORZOI_SERVER
    3. the session that `borzoi login` made at this address
    4. IGGY_USERNAME and IGGY_PASSWORD, which go together
    5. the active context
    6. iggy/iggy, if the server is on this machine

A context is for one server: if the command line or BORZOI_SERVER names another, nothing of the context is
used, so that a password never goes to a server that it is not for.
"""

import ipaddress
import os
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from borzoi.cli import contexts_file, home, tokens_file
from borzoi.cli.contexts_file import Context
from borzoi.cli.home import HomeFileError
from borzoi.cli.options import (
    DEFAULT_ADDRESS,
    PASSWORD_VARIABLE,
    SERVER_VARIABLE,
    USERNAME_VARIABLE,
    Asked,
)
from borzoi.cli.secret import ask_secret
from borzoi.client.dialogue import Credentials
from borzoi.client.settings import Settings, parse_address, parse_connection_string
from borzoi.model.errors import InvalidConfiguration, InvalidServerAddress, Unauthenticated
from borzoi.model.requests import LoginUser, LoginWithToken

_TRANSPORTS = ("tcp", "quic", "http", "ws", "websocket")


class WrongOptions(InvalidConfiguration, hint=""):
    """Options that exclude each other, or that this version does not have."""

    def __str__(self) -> str:
        return self.detail


class NoCredentials(Unauthenticated, hint=""):
    """Nothing says who logs in."""

    def __str__(self) -> str:
        return self.detail


class Source(Enum):
    """Where a login comes from."""

    GIVEN = "the command line"
    SESSION = "the session"
    ENVIRONMENT = "the environment"
    CONTEXT = "the context"
    DEFAULT = "the default"


@dataclass(frozen=True, slots=True)
class Target:
    settings: Settings
    source: Source


@dataclass(frozen=True, slots=True)
class Place:
    """A server. Its settings have credentials only if they were written into the address."""

    settings: Settings
    context: Context | None  # the active one, if it is for this server

    @property
    def key(self) -> str:
        """The address that tokens are kept by."""
        return address_key(self.settings.host, self.settings.port)


def address_key(host: str, port: int) -> str:
    return Settings("127.0.0.1" if host.lower() == "localhost" else host.lower(), port).address


def place(asked: Asked) -> Place:
    """The server, without a login."""
    active = contexts_file.active()
    context: Context | None = active
    _check_transport(asked.transport, "--transport")
    if asked.server and asked.address:
        raise WrongOptions("give --server or --tcp-server-address, not both")
    own = _own_settings(active)
    given = asked.server or asked.address or os.environ.get(SERVER_VARIABLE)
    if given is None or given == "":
        settings = own
    else:
        settings = parse_connection_string(given) if "://" in given else Settings(*parse_address(given))
        if address_key(settings.host, settings.port) != address_key(own.host, own.port):
            context = None
        elif not settings.tls and own.tls:
            settings = replace(settings, tls=True, tls_domain=own.tls_domain, tls_ca_file=own.tls_ca_file)
    if context is not None:
        _check_transport(context.text("transport"), f'context "{context.name}": transport')
    if asked.tls is not None:
        settings = replace(settings, tls=asked.tls)
    if asked.tls_domain is not None:
        settings = replace(settings, tls_domain=asked.tls_domain)
    if asked.tls_ca_file is not None:
        settings = replace(settings, tls_ca_file=Path(asked.tls_ca_file))
    return Place(settings, context)


def resolve(asked: Asked, *, use_session: bool = True) -> Target:
    """The server and who logs in; asks for a password that is missing."""
    at = place(asked)
    credentials, source = _credentials(asked, at, use_session=use_session)
    return Target(replace(at.settings, credentials=credentials), source)


def _credentials(asked: Asked, at: Place, *, use_session: bool) -> tuple[Credentials, Source]:
    given = _given(asked.username, asked.password, asked.token, asked.token_name, at)
    if given is None:
        given = at.settings.credentials
    if given is not None:
        return given, Source.GIVEN
    session = tokens_file.session(at.key) if use_session else None
    if session is not None:
        return LoginWithToken(session), Source.SESSION
    username, password = os.environ.get(USERNAME_VARIABLE), os.environ.get(PASSWORD_VARIABLE)
    if username and password:
        return LoginUser(username, password), Source.ENVIRONMENT
    if at.context is not None:
        text = at.context.text
        kept = _given(text("username"), text("password"), text("token"), text("token_name"), at)
        if kept is not None:
            return kept, Source.CONTEXT
    if is_loopback(at.settings.host):
        return LoginUser("iggy", "iggy"), Source.DEFAULT
    raise NoCredentials(
        f"nothing says who logs in at {at.settings.address}; give --username or --token, "
        f"set {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}, use a context, or: borzoi login --username NAME"
    )


def _given(
    username: str | None, password: str | None, token: str | None, token_name: str | None, at: Place
) -> Credentials | None:
    if sum(each is not None for each in (username, token, token_name)) > 1:
        raise WrongOptions("log in with --username, --token or --token-name, with one of them")
    if token is not None:
        return LoginWithToken(token)
    if token_name is not None:
        found = tokens_file.token(at.key, token_name)
        if found is None:
            raise NoCredentials(
                f'no token "{token_name}" is stored for {at.key}; '
                f"make one: borzoi pat create {token_name} --store-token"
            )
        return LoginWithToken(found)
    if username is None:
        if password is not None:
            raise WrongOptions("--password needs --username")
        return None
    return LoginUser(username, ask_secret("Password") if password is None else password)


def _own_settings(context: Context) -> Settings:
    """The server of a context."""
    address = context.text("tcp_server_address") or DEFAULT_ADDRESS
    ca_file = context.text("tcp_tls_ca_file")
    try:
        host, port = parse_address(address)
    except InvalidServerAddress as error:
        where = home.home() / contexts_file.CONTEXTS_FILE
        raise HomeFileError(
            f'{where}: tcp_server_address of context "{context.name}": {error.detail}'
        ) from None
    return Settings(
        host,
        port,
        tls=context.flag("tcp_tls_enabled") or False,
        tls_domain=context.text("tcp_tls_domain") or "",
        tls_ca_file=None if ca_file is None else Path(ca_file),
    )


def _check_transport(name: str | None, where: str) -> None:
    if name in (None, "tcp"):
        return
    if name in _TRANSPORTS:
        raise WrongOptions(f"{where} {name}: this command line speaks TCP only; write tcp")
    raise WrongOptions(f"{where} {name}: there is no such transport; write tcp")


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
