"""What both clients have in common: how they are made, and what they say about themselves."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, get_args

from borzoi.client.recovery import Recovery
from borzoi.client.settings import (
    DEFAULT_HOST,
    Settings,
    credentials_of,
    parse_address,
    parse_connection_string,
)
from borzoi.client.values import ConnectionState

# Event loops and sockets want a finite number; this is three years.
_FOREVER_S = 1e8

StateCallback = Callable[[ConnectionState], None]


class ClientBase:
    """For a connection string, `host:port`, or host and port.

    What is None has its default, or the connection string's value. Nothing is connected yet: the first call
    connects. `on_state_change` is called with every change of `state`, by whoever causes it; it must return
    soon and must not use the client.
    """

    def __init__(
        self,
        host: str = DEFAULT_HOST,
        port: int | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        tls: bool | None = None,
        tls_ca_file: Path | str | None = None,
        tls_domain: str | None = None,
        tls_validate_certificate: bool | None = None,
        deadline_s: float | None = None,
        reconnection_retries: int | None = None,
        reconnection_interval_s: float | None = None,
        reestablish_after_s: float | None = None,
        heartbeat_interval_s: float | None = None,
        nodelay: bool | None = None,
        on_state_change: StateCallback | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "port": port,
            "credentials": credentials_of(username, password, token),
            "tls": tls,
            "tls_ca_file": None if tls_ca_file is None else Path(tls_ca_file),
            "tls_domain": tls_domain,
            "tls_validate_certificate": tls_validate_certificate,
            "deadline_s": deadline_s,
            "reconnection_retries": reconnection_retries,
            "reconnection_interval_s": reconnection_interval_s,
            "reestablish_after_s": reestablish_after_s,
            "heartbeat_interval_s": heartbeat_interval_s,
            "nodelay": nodelay,
        }
        settings = replace(
            parse_connection_string(host) if "://" in host else _at(host, port),
            **{name: value for name, value in given.items() if value is not None},
        )
        self._begin(settings, on_state_change)

    def _begin(self, settings: Settings, on_state_change: StateCallback | None) -> None:
        self._settings = settings
        self._tls = settings.tls_context()
        self._recovery = Recovery(settings, on_state_change)
        self._prepare()

    @classmethod
    def from_connection_string(cls, text: str, *, on_state_change: StateCallback | None = None) -> Self:
        """A client for `iggy://user:password@host:port?option=value`."""
        if "://" not in text:
            parse_connection_string(text)  # to say what is wrong
        return cls(text, on_state_change=on_state_change)

    @property
    def address(self) -> str:
        return self._settings.address

    @property
    def state(self) -> ConnectionState:
        return self._recovery.state

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r}, {self.state.value})"

    def _prepare(self) -> None:
        """Called once, with settings and recovery in place."""

    def _deadline_s(self, deadline_s: float | None) -> float:
        if deadline_s is None:
            return min(self._settings.deadline_s, _FOREVER_S)
        if not deadline_s > 0:
            raise ValueError("deadline_s is a positive number of seconds")
        return min(deadline_s, _FOREVER_S)


def _at(host: str, port: int | None) -> Settings:
    if port is not None:  # the host may then be an IPv6 address without brackets
        return Settings(host, port)
    return Settings(*parse_address(host))


def method_signature(command: Callable[..., Any]) -> inspect.Signature:
    """That of a client's method: `self`, the command's arguments, what the call returns in the end."""
    signature = inspect.signature(command)
    (returned,) = get_args(signature.return_annotation)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return signature.replace(parameters=[me, *signature.parameters.values()], return_annotation=returned)
