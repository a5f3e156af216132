"""Configuration: what can be set, where it is read from, and how it is shown.

    schema, kinds       how a key is declared, and what values it can hold (addresses: host:port)
    sections, later     the keys this version acts on, and those it only accepts
    keys                all of them by name, with their aliases and environment variables
    sources, checks     reading a file, the environment and flags; rules across keys
    loader              puts the sources together: `load`
    render              shows the result, a default file and the reference in docs/configuration.md

Invariant: a `Config` that `load` returned satisfies every rule; nothing later needs to check a setting again.
`borzoi.server.config.render` is imported by those who show a configuration, not by the server.
"""

from borzoi.server.config.addresses import is_loopback, split_address
from borzoi.server.config.checks import forbids_default_password
from borzoi.server.config.errors import ConfigError
from borzoi.server.config.loader import Loaded, load
from borzoi.server.config.sections import Config

__all__ = [
    "Config",
    "ConfigError",
    "Loaded",
    "forbids_default_password",
    "is_loopback",
    "load",
    "split_address",
]
