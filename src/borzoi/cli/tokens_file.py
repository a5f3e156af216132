"""Tokens kept by the command line: the session that `login` makes, and those stored by `pat create`.

    borzoi_tokens.json   {"sessions": {"127.0.0.1:8090": "TOKEN"},
                          "tokens":   {"127.0.0.1:8090": {"NAME": "TOKEN"}}}

A token belongs to the server that made it, so it is kept, and found, by the server's address. Tokens are in
plain text: whoever can read the owner's files can use them until they expire or are deleted.
"""

import json
from typing import Any

from borzoi.cli import home
from borzoi.cli.home import HomeFileError

TOKENS_FILE = "borzoi_tokens.json"


def session(address: str) -> str | None:
    found = _read()["sessions"].get(address)
    return found if isinstance(found, str) else None


def store_session(address: str, token: str) -> None:
    with home.locked():
        content = _read()
        content["sessions"][address] = token
        _write(content)


def forget_session(address: str, token: str | None = None) -> bool:
    """Whether there was one. With `token`, only that one: another may have taken its place meanwhile."""
    with home.locked():
        content = _read()
        found = content["sessions"].get(address)
        if found is None or (token is not None and found != token):
            return False
        del content["sessions"][address]
        _write(content)
        return True


def token(address: str, name: str) -> str | None:
    found = _read()["tokens"].get(address, {}).get(name)
    return found if isinstance(found, str) else None


def store_token(address: str, name: str, value: str) -> None:
    with home.locked():
        content = _read()
        content["tokens"].setdefault(address, {})[name] = value
        _write(content)


def forget_token(address: str, name: str) -> bool:
    """Whether it was stored here."""
    if token(address, name) is None:
        return False
    with home.locked():
        content = _read()
        found = content["tokens"].get(address, {}).pop(name, None) is not None
        if not content["tokens"].get(address):
            content["tokens"].pop(address, None)
        _write(content)
        return found


def _read() -> dict[str, dict[str, Any]]:
    text = home.read(TOKENS_FILE)
    try:
        content = json.loads(text) if text else {}
        sessions, tokens = content.get("sessions", {}), content.get("tokens", {})
        is_right = isinstance(sessions, dict) and all(isinstance(each, dict) for each in tokens.values())
    except (ValueError, AttributeError):
        is_right = False
    if not is_right:
        raise HomeFileError(
            f"{home.home() / TOKENS_FILE} is damaged; remove it, then log in again: borzoi login"
        )
    return {**content, "sessions": sessions, "tokens": tokens}


def _write(content: dict[str, dict[str, Any]]) -> None:
    home.replace(TOKENS_FILE, json.dumps(content, indent=2) + "\n")
