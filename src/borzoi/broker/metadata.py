"""The durable metadata: catalog and users, kept by a journal of events with snapshots.

`record` is the only way to change anything: the event goes to the journal first, then to the tree.
A record that cannot be written leaves the tree as it was.
"""

from collections.abc import Callable

import msgspec

from borzoi.broker import events as ev
from borzoi.broker.catalog import Catalog
from borzoi.broker.users import Users
from borzoi.log.directory import DataDirectory
from borzoi.log.journal import RECORD_BYTES_MAX, Journal, JournalError
from borzoi.model.errors import InvalidFormat

SNAPSHOT_EVERY_RECORDS = 4096

_event_decoder = msgspec.json.Decoder(ev.AnyEvent)
_snapshot_decoder = msgspec.json.Decoder(list[ev.AnyEvent])
_encoder = msgspec.json.Encoder()

Report = Callable[[str], object]


class MetadataError(Exception):
    """The metadata cannot be read; the text says where and what to do."""


def decode_events(snapshot: bytes | None, records: list[bytes]) -> list[ev.AnyEvent]:
    """Everything that happened, from what a journal holds. Raises msgspec's errors."""
    events: list[ev.AnyEvent] = _snapshot_decoder.decode(snapshot) if snapshot is not None else []
    return [*events, *map(_event_decoder.decode, records)]


class Metadata:
    def __init__(self, directory: DataDirectory, rebalancing_timeout_us: int) -> None:
        self.catalog = Catalog(rebalancing_timeout_us)
        self.users = Users()
        self.journal = Journal(directory.metadata)
        self.version = 0  # grows with every change, so that what was resolved before can be told to be stale
        self._snapshot_after_records = SNAPSHOT_EVERY_RECORDS
        self._report: Report = lambda _text: None
        self.is_dirty = False  # something was recorded that is not known to be on the device

    def open(self, report: Report) -> None:
        """Read everything back. `report` hears, now and later, of what went wrong and was coped with."""
        self._report = report
        try:
            snapshot, records = self.journal.open()
        except JournalError as error:
            raise MetadataError(str(error)) from error
        for repair in self.journal.repairs:
            report(repair)
        try:
            for event in decode_events(snapshot, records):
                self._apply(event)
        except (msgspec.MsgspecError, KeyError) as error:
            raise MetadataError(
                f"{self.journal.directory}: a record does not fit the ones before it ({error!r}); it was "
                "written by another version or changed by hand"
            ) from error

    def record(self, event: ev.AnyEvent) -> None:
        """Journal an event and apply it. May raise OSError or InvalidFormat; then nothing has changed."""
        record = _encoder.encode(event)
        if len(record) > RECORD_BYTES_MAX:
            raise InvalidFormat(f"{len(record)} bytes of metadata are too many for one command")
        self.journal.append(record)
        self.is_dirty = True
        self._apply(event)
        if self.journal.records_since_snapshot >= self._snapshot_after_records:
            self._try_snapshot()

    def snapshot(self) -> None:
        self.journal.snapshot(_encoder.encode([*self.users.to_events(), *self.catalog.to_events()]))

    def _try_snapshot(self) -> None:
        """Nothing is lost without one: the journal holds everything, and is only longer to read."""
        self._snapshot_after_records = SNAPSHOT_EVERY_RECORDS
        try:
            self.snapshot()
        except OSError as error:
            self._snapshot_after_records += self.journal.records_since_snapshot
            self._report(f"{self.journal.directory}: no snapshot of the metadata could be written: {error}")

    def close(self) -> None:
        if self.journal.records_since_snapshot:
            self._try_snapshot()
        self.journal.close()

    def _apply(self, event: ev.AnyEvent) -> None:
        self.version += 1
        if isinstance(event, ev.CatalogEvent):
            self.catalog.apply(event)
        else:
            self.users.apply(event)
