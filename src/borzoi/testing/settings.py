"""Configuration keys as Python values.

A key is written as in `server.toml`, with dots: `{"heartbeat.interval": "5s"}`, or as a keyword argument with
two underscores for each dot: `heartbeat__interval="5s"`. Neither files nor the environment are looked at, so
that a test does the same on every machine.
"""

import difflib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from borzoi.model.units import render_duration
from borzoi.server.config import Config, is_loopback, load, split_address
from borzoi.server.config.errors import ConfigError
from borzoi.server.config.keys import aliases, all_keys

SettingValue = str | int | bool | timedelta | Path

_MICROSECOND = timedelta(microseconds=1)
_OWN_KEYS = {"system.path": "pass the directory as `path`", "tcp.enabled": "it is always on"}
# Nothing of a test has to survive a power loss, and syncing takes longer than most tests.
_DEFAULTS = {"tcp.address": "127.0.0.1:0", "system.state.enforce_fsync": "false"}


def by_key(
    settings: Mapping[str, SettingValue] | None, keywords: Mapping[str, SettingValue]
) -> dict[str, str]:
    """Texts by the keys' full names. Raises ConfigError for a name that is not a key."""
    given = dict(settings or {}) | {name.replace("__", "."): value for name, value in keywords.items()}
    texts: dict[str, str] = {}
    for written, value in given.items():
        name = aliases().get(written, written)
        if name not in all_keys():
            matches = difflib.get_close_matches(written, [*all_keys(), *aliases()], n=1)
            hint = f"; did you mean {matches[0]}?" if matches else ""
            raise ConfigError(f"{written}: no such key{hint}")
        if name in _OWN_KEYS:
            raise ConfigError(f"{written} cannot be set for a test server: {_OWN_KEYS[name]}")
        texts[name] = _text(value)
    return texts


def configuration(path: Path, texts: Mapping[str, str]) -> Config:
    """The whole configuration of a server with its data in `path`. Raises ConfigError."""
    config = load(path=None, env={}, flags={**_DEFAULTS, **texts, "system.path": str(path)}).config
    host, _ = split_address(config.tcp.address)
    if not is_loopback(host):
        raise ConfigError(
            f"tcp.address {config.tcp.address}: a test server has a known password and listens on "
            "loopback addresses only"
        )
    return config


def _text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return render_duration(value // _MICROSECOND) if isinstance(value, timedelta) else str(value)
