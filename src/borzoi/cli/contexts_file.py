"""Contexts: servers and logins that have a name, kept in two files that Iggy's command line reads and writes.

    contexts.toml        [name]
                         username, password, token, token_name        who logs in
                         tcp_server_address                           host:port
                         transport                                    tcp
                         tcp_tls_enabled, tcp_tls_domain, tcp_tls_ca_file
                         encryption_key
    .active_context      the name of the active one; without the file it is `default`

Keys that are not in this list are kept as they are. A context `default` is always there, and empty unless the
file has something for it; it can be neither made nor deleted.
"""

import re
from dataclasses import dataclass
from typing import Any

from borzoi.cli import home
from borzoi.cli.home import HomeFileError
from borzoi.model.errors import BorzoiError

DEFAULT_NAME = "default"
CONTEXTS_FILE = "contexts.toml"
ACTIVE_FILE = ".active_context"

TEXT_KEYS = (
    "username",
    "password",
    "token",
    "token_name",
    "tcp_server_address",
    "transport",
    "tcp_tls_domain",
    "tcp_tls_ca_file",
    "encryption_key",
)
SECRET_KEYS = ("password", "token", "encryption_key")
_FLAG_KEYS = ("tcp_tls_enabled",)
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class ContextError(BorzoiError):
    """A context that is not there, is there already, or cannot be changed in this way."""

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class Context:
    name: str
    keys: dict[str, Any]

    def text(self, key: str) -> str | None:
        value = self.keys.get(key)
        if value is None or isinstance(value, str):
            return value
        raise HomeFileError(f'{_path()}: {key} of context "{self.name}" is a text, not {value!r}')

    def flag(self, key: str) -> bool | None:
        value = self.keys.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise HomeFileError(f'{_path()}: {key} of context "{self.name}" is true or false, not {value!r}')


def contexts() -> dict[str, Context]:
    """All by name, `default` first."""
    found = {DEFAULT_NAME: Context(DEFAULT_NAME, {})}
    for name, keys in _read().items():
        found[name] = Context(name, keys)
    return found


def active_name() -> str:
    """What the file says, whether there is such a context or not."""
    return (home.read(ACTIVE_FILE) or "").strip() or DEFAULT_NAME


def active() -> Context:
    name = active_name()
    context = contexts().get(name)
    if context is None:
        raise HomeFileError(
            f'{home.home() / ACTIVE_FILE} names context "{name}", which {_path()} does not have; '
            f"choose another: borzoi context use {DEFAULT_NAME}"
        )
    return context


def use(name: str) -> None:
    with home.locked():
        _existing(name)
        home.replace(ACTIVE_FILE, name)


def create(name: str, keys: dict[str, Any]) -> None:
    if not _NAME.fullmatch(name):
        raise ContextError(f'"{name}" is no name; a name has letters, digits, "-" and "_"')
    with home.locked():
        found = _read()
        if name == DEFAULT_NAME or name in found:
            raise ContextError(f'there is a context "{name}" already')
        home.replace(CONTEXTS_FILE, _rendered({**found, name: keys}))


def delete(name: str) -> bool:
    """Whether it was the active one: then `default` is now."""
    if name == DEFAULT_NAME:
        raise ContextError(f'context "{DEFAULT_NAME}" cannot be deleted')
    with home.locked():
        _existing(name)
        found = _read()
        del found[name]
        is_active = active_name() == name
        if is_active:  # first, or a crash between the two would leave a name without a context
            home.replace(ACTIVE_FILE, DEFAULT_NAME)
        home.replace(CONTEXTS_FILE, _rendered(found))
    return is_active


def get(name: str) -> Context:
    return _existing(name)


def _existing(name: str) -> Context:
    found = contexts()
    if name not in found:
        raise ContextError(f'there is no context "{name}"; there are {", ".join(found)}')
    return found[name]


def _read() -> dict[str, dict[str, Any]]:
    text = home.read(CONTEXTS_FILE)
    if not text:
        return {}
    import tomllib

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HomeFileError(f"{_path()} is no TOML: {error}; correct it or move it away") from None
    for name, keys in content.items():
        if not isinstance(keys, dict):
            raise HomeFileError(f"{_path()}: {name} is no table; a context starts with [name]")
    return content


def _rendered(content: dict[str, dict[str, Any]]) -> str:
    from borzoi.cli.toml_text import tables

    return tables(content)


def _path() -> str:
    return str(home.home() / CONTEXTS_FILE)
