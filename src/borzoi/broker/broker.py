"""The broker: the state of the platform and the ways in which it changes.

It owns the metadata, every partition's log, the clients and their sessions. It has no thread, no clock
and no socket: callers pass the time, run what is `Pending`, and carry out `background` work (removing
files) when they have a moment. Handlers (`borzoi.broker.handlers`) turn requests into calls to this.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from borzoi.broker import events as ev
from borzoi.broker.access import allows
from borzoi.broker.catalog import Group, Partition, Topic
from borzoi.broker.groups import ChangeReason, GroupChange
from borzoi.broker.metadata import Metadata, MetadataError
from borzoi.broker.options import TopicOptions, effective_options
from borzoi.broker.rebuild import check_directories, rebuild_catalog
from borzoi.broker.sessions import Client, Clients, Session
from borzoi.broker.settings import BrokerSettings
from borzoi.broker.transactions import Transactions
from borzoi.broker.users import ROOT_ID, User, root_created
from borzoi.log.dedup import Deduplicator
from borzoi.log.directory import DataDirectory
from borzoi.log.files import OpenFiles, sync_directory
from borzoi.log.offsets import ConsumerOffsets, group_key
from borzoi.log.partition import LogSettings, PartitionLog, retire
from borzoi.log.recovery import Repair, open_partition
from borzoi.log.segment import Segment
from borzoi.model.access import Access
from borzoi.model.errors import ResourceNotFound, Unauthenticated, Unauthorized


class Logger(Protocol):
    def info(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...
    def exception(self, event: str, **fields: object) -> object: ...


class Broker:
    def __init__(
        self, directory: DataDirectory, settings: BrokerSettings, logger: Logger, now_us: int
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.logger = logger
        self.started_at_us = now_us
        self.metadata = Metadata(directory, settings.rebalancing_timeout_us)
        self.catalog = self.metadata.catalog
        self.users = self.metadata.users
        self.clients = Clients()
        self.files = OpenFiles(settings.open_files_max)
        self.transactions = Transactions(self)
        # Work that may run on any thread at any time, in order.
        self.background: list[Callable[[], None]] = []
        # Grows with every login, logout and metadata write; session numbers are taken from it.
        self.commit = 0

    # Start and stop

    def open(self, now_us: int) -> None:
        """Read everything back. Raises MetadataError or OSError with a text for the operator."""
        self._open_metadata()
        self.commit = self.metadata.journal.index
        if self.users.find(ROOT_ID) is None:
            self.metadata.record(
                root_created(self.settings.root_username, self.settings.root_password, now_us)
            )
        if self.settings.recreate_missing_state:
            rebuild_catalog(self.metadata, self.directory, self.logger, now_us)
        check_directories(
            self.catalog, self.directory, self.logger, may_create=self.settings.recreate_missing_state
        )
        self._remove_leftovers()
        for topic in self.catalog.topics():
            self.attach(topic, topic.partitions)
        self.transactions.open(now_us)

    def _open_metadata(self) -> None:
        try:
            self.metadata.open(self._report_text)
        except MetadataError as error:
            if not self.settings.recreate_missing_state:
                raise
            target = self.directory.set_aside(self.directory.metadata)
            self.logger.error("metadata set aside, to be rebuilt", reason=str(error), target=str(target))
            self.directory.metadata.mkdir()
            self.metadata = Metadata(self.directory, self.settings.rebalancing_timeout_us)
            self.catalog, self.users = self.metadata.catalog, self.metadata.users
            self.metadata.open(self._report_text)

    def close(self) -> None:
        """Sync and close everything. Call with no client connected. One bad file does not stop the others."""
        for partition in self.catalog.partitions():
            try:
                _close(partition)
            except OSError as error:
                path = str(partition.log.directory)
                self.logger.error("partition not closed properly", path=path, reason=str(error))
        self.metadata.close()

    def attach(self, topic: Topic, partitions: Iterable[Partition]) -> None:
        """Open what these partitions of a topic have on disk."""
        options = self.options_of(topic)
        for partition in partitions:
            log = self.open_log(topic.stream.id, topic.id, partition.id, options)
            self.attach_log(partition, log)

    def open_log(
        self, stream_id: int, topic_id: int, partition_id: int, options: TopicOptions
    ) -> PartitionLog:
        log_settings = LogSettings(
            options.segment_bytes,
            self.settings.segment_age_us,
            options.preallocate_segments,
            self.settings.verify_reads,
        )
        path = self.directory.partition(stream_id, topic_id, partition_id)
        return open_partition(path, partition_id, log_settings, self.files, self._report)

    def attach_log(self, partition: Partition, log: PartitionLog) -> None:
        partition.log = log
        partition.offsets = ConsumerOffsets(log.directory, self.files, self._report_text, log.next_offset)
        partition.dedup = (
            Deduplicator(self.settings.dedup_entries, self.settings.dedup_expiry_us)
            if self.settings.dedup_entries
            else None
        )

    def _report(self, repair: Repair) -> None:
        self.logger.warning(
            "log repaired",
            path=str(repair.path),
            what=repair.what,
            offset=repair.offset,
            size_bytes=repair.size_bytes,
        )

    def _report_text(self, text: str) -> None:
        self.logger.error("damage found", what=text)

    # Metadata

    def record(self, event: ev.AnyEvent) -> None:
        self.metadata.record(event)
        self.commit += 1
        if isinstance(event, ev.TopicDeleted):
            self.transactions.staged.forget_topic(event.stream_id, event.topic_id)
        elif isinstance(event, ev.StreamDeleted):
            self.transactions.staged.forget_stream(event.stream_id)

    def options_of(self, topic: Topic) -> TopicOptions:
        return effective_options(topic.options, self.settings)

    # Rights

    def user_of(self, session: Session) -> User:
        user = self.users.find(session.user_id)
        if user is None:
            raise Unauthenticated("the user of this session is gone")
        return user

    def require(
        self, session: Session, access: Access, stream_id: int | None = None, topic_id: int | None = None
    ) -> None:
        user = self.user_of(session)
        if not user.is_root and not allows(user.permissions, access, stream_id, topic_id):
            raise Unauthorized(f"{user.username} lacks the right to {access.name.lower().replace('_', ' ')}")

    # Sessions

    def start_session(self, client: Client, client_id: int, user: User) -> Session:
        """Bind a login to a connection; the connection's earlier session, if any, ends.

        So does one of the same client on another connection, which it has lost: when that is noticed, the
        client must not be taken out of the groups that it has joined again.
        """
        self.commit += 1
        if client.session is not None:
            self.end_session(client.session, ChangeReason.LEFT, client.last_seen_us)
        for other in self.clients.with_id(client_id):
            self.evict(other, ChangeReason.REPLACED, client.last_seen_us)
        session = Session(client, client_id, self.commit, user)
        client.session = session
        self.logger.info("logged in", user=user.username, client=client.id, address=client.address)
        return session

    def end_session(self, session: Session, reason: ChangeReason, now_us: int) -> None:
        if not session.is_alive:
            return
        session.is_alive = False
        if session.client.session is session:
            session.client.session = None
        for group in list(session.groups.values()):
            self.leave_group(session, group, reason, now_us)
        session.groups.clear()

    def evict(self, session: Session, reason: ChangeReason, now_us: int) -> None:
        """End a session on the broker's own account; its client learns it with its next request."""
        session.is_evicted = True
        self.end_session(session, reason, now_us)
        self.logger.warning(
            "session evicted", client=session.client.id, user=session.username, reason=reason.value
        )

    def disconnect(self, client: Client, now_us: int) -> None:
        if client.session is not None:
            self.end_session(client.session, ChangeReason.DISCONNECTED, now_us)
        self.clients.disconnect(client)

    # Groups

    def join_group(self, session: Session, group: Group, now_us: int) -> None:
        self.log_changes(group, group.members.join(session.client_id, now_us))
        topic = group.topic
        session.groups[topic.stream.id, topic.id, group.id] = group

    def leave_group(self, session: Session, group: Group, reason: ChangeReason, now_us: int) -> None:
        if group.members.is_member(session.client_id):
            self.log_changes(group, group.members.leave(session.client_id, now_us, reason))
        topic = group.topic
        session.groups.pop((topic.stream.id, topic.id, group.id), None)

    def forget_group(self, group: Group) -> None:
        """Take a deleted group out of every session."""
        topic = group.topic
        key = (topic.stream.id, topic.id, group.id)
        for client in self.clients:
            if client.session is not None and client.session.groups.get(key) is group:
                del client.session.groups[key]

    def drop_group_offsets(self, group: Group) -> None:
        """Nobody will ask for them again, as ids are not reused; so a failure costs 32 bytes and no more."""
        for partition in group.topic.partitions:
            try:
                partition.offsets.delete(group_key(group.id))
            except OSError as error:
                path = str(partition.log.directory)
                self.logger.warning("offset of a deleted group not removed", path=path, reason=str(error))

    def log_changes(self, group: Group, changes: list[GroupChange]) -> None:
        if not changes:
            return
        self.logger.info(
            "group rebalanced",
            stream=group.topic.stream.name,
            topic=group.topic.name,
            group=group.name,
            reason=changes[0].reason.value,
            generation=group.members.generation,
            partitions=[
                f"{change.partition}:{change.from_member}>{change.to_member} {change.stage.value}"
                for change in changes[:32]
            ],
        )

    def resize_groups(self, topic: Topic, now_us: int) -> None:
        for group in topic.groups.values():
            self.log_changes(group, group.members.resize(len(topic.partitions), now_us))

    # Files

    def make_logs(
        self, stream_id: int, topic_id: int, partitions: range, options: TopicOptions
    ) -> list[PartitionLog]:
        """Directories and empty logs of partitions to come. If this raises, there are none.

        Made before the event that needs them, so that a missing one always means damage, and so that
        nothing can fail once the event is recorded.
        """
        try:
            for partition_id in partitions:
                path = self.directory.partition(stream_id, topic_id, partition_id)
                if path.exists() and any(path.iterdir()):
                    self.directory.set_aside(path)
                path.mkdir(parents=True, exist_ok=True)
            if partitions and self.settings.metadata_fsync:
                for parent in path.parents[:5]:  # up to the directory of streams
                    sync_directory(parent)
            return [self.open_log(stream_id, topic_id, number, options) for number in partitions]
        except OSError:
            self.unmake_logs(stream_id, topic_id, partitions)
            raise

    def unmake_logs(self, stream_id: int, topic_id: int, partitions: range) -> None:
        """Remove what `make_logs` made; directories that hold something stay."""
        paths = [self.directory.partition(stream_id, topic_id, number) for number in partitions]
        paths += [*paths[0].parents][:4] if paths else []
        for path in paths:
            with suppress(OSError):
                path.rmdir()

    def drop_partitions(self, partitions: Iterable[Partition]) -> None:
        """Close partitions that are no longer in the catalog; their directories are removed by the caller."""
        for partition in partitions:
            partition.log.purge()
            partition.offsets.close()

    def remove_directory(self, path: Path) -> None:
        """Move a directory out of the way at once and remove it in the background."""
        deleted = self.directory.path / "deleted"
        deleted.mkdir(exist_ok=True)
        number = 0
        while (target := deleted / str(number)).exists():
            number += 1
        try:
            path.rename(target)
        except OSError as error:
            if path.exists():
                # The metadata does not know it any more; the next start sets it aside.
                self.logger.error("directory not removed", path=str(path), reason=str(error))
            return
        self.background.append(partial(shutil.rmtree, target, ignore_errors=True))

    def remove_segments(self, segments: list[Segment]) -> None:
        self.background.extend(partial(path.unlink, missing_ok=True) for path in retire(segments))

    def purge(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self.remove_segments(partition.log.purge())
            partition.offsets.clear()
            if partition.dedup is not None:
                partition.dedup.clear()
        for group in topic.groups.values():
            self.log_changes(group, group.members.purged())
        self.transactions.settle(topic)

    def _remove_leftovers(self) -> None:
        # Each of them, not their parent: that is where the next ones go, maybe while these are removed.
        for leftover in (self.directory.path / "deleted").glob("*"):
            self.background.append(partial(shutil.rmtree, leftover, ignore_errors=True))

    # Look-ups that the data plane reports in its own way

    def data_topic(self, stream: int | str, topic: int | str) -> Topic:
        """For sends and offset writes, where every missing target is a ResourceNotFound."""
        found = self.catalog.find_topic(stream, topic)
        if found is None:
            raise ResourceNotFound(f"topic {topic} of stream {stream}")
        return found


def _close(partition: Partition) -> None:
    for segment in partition.log.dirty.values():
        segment.flush_index()
        fds = segment.dup_for_sync(index=True)
        try:
            for fd in fds:
                os.fsync(fd)
        finally:
            for fd in fds:
                os.close(fd)
    if partition.offsets.is_dirty:
        partition.offsets.sync()
    partition.log.close()
    partition.offsets.close()
