"""How a configuration key is declared.

Everything known about a key stands in one place: its name in TOML, its kind, its default as one would write
it, what it means and whether this version acts on it. The loader, the names of the environment variables,
`borzoi config` and docs/configuration.md are all derived from these declarations.

Keys that this version acts on are fields of the dataclasses in `sections`; their metadata is a `Key`. Keys
that are accepted but have no effect yet are rows in `later`. A section's class is declared with `section`.
"""

from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple

from borzoi.server.config.kinds import Kind, Plain

METADATA = "key"


class Status(Enum):
    USED = "used"
    LATER = "later"
    """Accepted and checked, without effect in this version; anything but the default is warned about."""
    REFUSED = "refused"
    """Only the default is accepted, because ignoring another value would put data at risk."""


class Key(NamedTuple):
    """One configuration key. `name` is relative to its section until `keys.all_keys` completes it."""

    name: str
    kind: Kind
    default: Plain
    meaning: str
    status: Status = Status.USED
    secret: bool = False
    environment_only: bool = False

    @property
    def environment_name(self) -> str:
        return environment_name(self.name)

    @property
    def default_value(self) -> Any:
        """The default as the program uses it."""
        return self.kind.parse(self.default)


def environment_name(name: str) -> str:
    """`tcp.address` is `IGGY_TCP_ADDRESS`."""
    return "IGGY_" + name.replace(".", "_").upper()


def key(
    name: str,
    kind: Kind,
    default: Plain,
    meaning: str,
    *,
    secret: bool = False,
    environment_only: bool = False,
) -> Any:
    """A dataclass field for a key this version acts on."""
    declared = Key(name, kind, default, meaning, secret=secret, environment_only=environment_only)
    return field(default=kind.parse(default), metadata={METADATA: declared}, repr=not secret)


def section(factory: type[Any]) -> Any:
    """A dataclass field for a nested section; its name in TOML is the field's."""
    return field(default_factory=factory)
