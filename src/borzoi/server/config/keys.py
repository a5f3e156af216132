"""Every key there is, and every other name it is known by.

Guides and older releases put some keys elsewhere. Such a name is an alias: it works in files and, in its
upper-case form, in the environment, and errors show the name that was written.
"""

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

from borzoi.server.config.later import LATER_KEYS
from borzoi.server.config.schema import METADATA, Key, environment_name
from borzoi.server.config.sections import Config

MOVED_SECTIONS = {
    "system.partition.message_saver": "message_saver",
    "encryption": "system.encryption",
    "logging": "system.logging",
    "memory_pool": "system.memory_pool",
    "runtime": "system.runtime",
    "sharding": "system.sharding",
    "archiver": "data_maintenance.archiver",
    "metrics": "http.metrics",
}
MOVED_KEYS = {
    "path": "system.path",
    "topic.max_topic_size": "system.topic.max_size",
    "topic.delete_oldest_segments": "system.topic.delete_oldest_segments",
    "system.segment.message_expiry": "system.topic.message_expiry",
    "system.segment.validate_checksum": "system.partition.validate_checksum",
    "system.logging.max_size": "system.logging.max_file_size",
    "tracing.enabled": "telemetry.enabled",
    "tracing.endpoint": "telemetry.traces.endpoint",
    "data_maintenance.archiver.path": "data_maintenance.archiver.disk.path",
    "data_maintenance.archiver.archive_expired": "system.segment.archive_expired",
    "data_maintenance.archiver.s3.key_id": "data_maintenance.archiver.s3.access_key_id",
    "data_maintenance.archiver.s3.key_secret": "data_maintenance.archiver.s3.secret_access_key",
}


@cache
def all_keys() -> dict[str, Key]:
    """Every key by its full name; keys of one section stand together, the used ones first."""
    declared = [*_declared(Config, ""), *LATER_KEYS]
    order: dict[str, int] = {}
    for key in declared:
        order.setdefault(section_of(key.name), len(order))
    return {key.name: key for key in sorted(declared, key=lambda key: order[section_of(key.name)])}


@cache
def aliases() -> dict[str, str]:
    """Every other name of a key, and the key's own."""
    names = dict.fromkeys(all_keys(), "") | MOVED_KEYS
    moved = {
        old + name.removeprefix(new): target or name
        for old, new in MOVED_SECTIONS.items()
        for name, target in names.items()
        if name.startswith(new + ".")
    }
    return MOVED_KEYS | moved


@cache
def section_names() -> frozenset[str]:
    """The names of all tables, under the keys' own names and the aliases."""
    names = [*all_keys(), *aliases()]
    return frozenset(
        ".".join(parts[:length])
        for parts in (name.split(".") for name in names)
        for length in range(1, len(parts))
    )


@cache
def environment_names() -> dict[str, str]:
    """The key's name for each environment variable."""
    own = {environment_name(name): name for name in all_keys()}
    return {environment_name(alias): name for alias, name in aliases().items()} | own


def section_of(name: str) -> str:
    return name.rpartition(".")[0]


def _declared(section: type[Any], prefix: str) -> Iterator[Key]:
    for item in fields(section):
        key: Key | None = item.metadata.get(METADATA)
        if key is None:
            yield from _declared(item.type, f"{prefix}{item.name}.")  # type: ignore[arg-type]
        else:
            yield key._replace(name=prefix + key.name)
