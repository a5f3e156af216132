"""Reads the catalog from a data directory that somebody else may be using, or from a copy of it.

For readers of segment files (`borzoi.log.offline`), who know topics by name and have nobody to ask. Nothing
is changed or locked; with a server at work the answer may be a moment old.
"""

from pathlib import Path

import msgspec

from borzoi.broker import events as ev
from borzoi.broker.catalog import Catalog
from borzoi.broker.metadata import MetadataError, decode_events
from borzoi.log.directory import DataDirectory
from borzoi.log.journal import JournalError, peek

_ATTEMPTS = 3
_NO_MATTER_US = 1  # groups have a rebalancing timeout; here nobody ever joins one


def read_catalog(path: Path) -> Catalog:
    """Streams, topics and partitions by name and id. Their logs are not opened."""
    directory = DataDirectory(path)
    if not directory.metadata.is_dir():
        raise MetadataError(f"{path} is no data directory of Borzoi: it has no metadata")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            events = decode_events(*peek(directory.metadata))
        except (FileNotFoundError, JournalError, msgspec.MsgspecError) as error:
            # A server that writes a snapshot meanwhile takes files away; the next look finds what followed.
            if attempt == _ATTEMPTS:
                raise MetadataError(f"{directory.metadata}: {error}") from error
        else:
            break
    catalog = Catalog(_NO_MATTER_US)
    for event in events:
        if isinstance(event, ev.CatalogEvent):
            catalog.apply(event)
    return catalog
