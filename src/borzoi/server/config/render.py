"""Showing configurations: the effective one, a default file, and the reference in docs/configuration.md.

Everything here is derived from the declared keys, so nothing can be forgotten in it. Secrets are shown as
`******`; what is printed for an effective configuration is therefore TOML to read, not to load.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from borzoi.server.config.keys import aliases, all_keys, environment_names, section_of
from borzoi.server.config.kinds import toml_literal
from borzoi.server.config.loader import DEFAULT_ORIGIN, Loaded
from borzoi.server.config.schema import Key, Status
from borzoi.server.config.sources import HIDDEN, shown

_STATUS_NOTES = {
    Status.USED: "",
    Status.LATER: "No effect in this version.",
    Status.REFUSED: "Only the default is accepted in this version.",
}


def effective_toml(loaded: Loaded, *, with_origin: bool = False, everything: bool = False) -> str:
    """The effective configuration as TOML. Without `everything`, keys of no effect appear only if set."""
    lines: list[str] = []
    for section, keys in _sections(_visible(loaded, everything)):
        lines += ["", f"[{section}]"] if section else [""]
        for key in keys:
            name = key.environment_name if key.environment_only else _leaf(key)
            line = f"{name} = {shown(key, loaded.values[key.name])}"
            if with_origin:
                line += f"  # {loaded.origins[key.name]}"
            lines.append(f"# {line}" if key.environment_only else line)
    return "\n".join(lines).strip()


def effective_json(loaded: Loaded, *, with_origin: bool = False, everything: bool = False) -> dict[str, Any]:
    """The effective configuration by full names; with origins each entry is {"value", "origin"}."""
    values = {key.name: _plain(key, loaded.values[key.name]) for key in _visible(loaded, everything)}
    if not with_origin:
        return values
    return {name: {"value": value, "origin": loaded.origins[name]} for name, value in values.items()}


def default_toml() -> str:
    """A file that sets every used key to its default, with what each means; loading it changes nothing."""
    lines = [
        "# Every setting of `borzoi server` with its default.",
        "# Each can be set in the environment as well: tcp.address is IGGY_TCP_ADDRESS.",
    ]
    keys = [key for key in all_keys().values() if key.status is Status.USED and not key.environment_only]
    for section, members in _sections(keys):
        lines += ["", f"[{section}]"]
        for key in members:
            lines += [f"# {key.meaning}", f"{_leaf(key)} = {key.kind.literal(key.default_value)}"]
    return "\n".join(lines)


def reference_markdown() -> str:
    """Every key and every alias as Markdown tables."""
    lines: list[str] = []
    by_top = sorted(all_keys().values(), key=lambda key: _TOP_ORDER.get(_top(key), len(_TOP_ORDER)))
    for top, keys in groupby(by_top, key=_top):
        lines += [f"### `{top}`", "", "| Key | Default | Accepts | Meaning |", "|---|---|---|---|"]
        lines += [_row(key) for key in sorted(keys, key=lambda key: key.status is not Status.USED)]
        lines.append("")
    lines += ["### Other names", "", "| Other name | Key |", "|---|---|"]
    lines += [f"| `{alias}` | `{name}` |" for alias, name in sorted(aliases().items())]
    return "\n".join(lines)


def reference_json() -> list[dict[str, Any]]:
    """Every key as an object."""
    return [
        {
            "key": key.name,
            "default": HIDDEN if key.secret and key.default else key.default,
            "accepts": key.kind.accepts,
            "meaning": key.meaning,
            "status": key.status.value,
            "environment": [variable for variable, name in environment_names().items() if name == key.name],
        }
        for key in all_keys().values()
    ]


def _visible(loaded: Loaded, everything: bool) -> list[Key]:
    return [
        key
        for key in all_keys().values()
        if everything or key.status is Status.USED or loaded.origins[key.name] != DEFAULT_ORIGIN
    ]


def _sections(keys: Iterable[Key]) -> Iterator[tuple[str, Iterator[Key]]]:
    """Keys by their table; those of no table first, where TOML has them."""
    return groupby(
        sorted(keys, key=lambda key: section_of(key.name) != ""), key=lambda key: section_of(key.name)
    )


def _plain(key: Key, value: Any) -> Any:
    if key.secret and value not in {"", "[]"}:
        return HIDDEN
    return key.kind.plain(value)


def _row(key: Key) -> str:
    default = toml_literal(HIDDEN) if key.secret and key.default else toml_literal(key.default)
    name = key.environment_name if key.environment_only else key.name
    notes = [key.meaning, _STATUS_NOTES[key.status]]
    return f"| `{name}` | `{default}` | {key.kind.accepts} | {' '.join(note for note in notes if note)} |"


def _leaf(key: Key) -> str:
    return key.name.rpartition(".")[2]


def _top(key: Key) -> str:
    return key.name.partition(".")[0]


_TOP_ORDER = {_top(key): place for place, key in reversed(list(enumerate(all_keys().values())))}
