"""The data plane: sends, polls and consumer offsets on resolved targets.

These run once per request and do nothing per message. What resolving a target costs (look-ups, rights)
is paid once per connection and target: a `SendRoute` or `PollRoute` stays good while the metadata keeps
its version. Group membership is not part of that version and is checked on every call.
"""

from dataclasses import dataclass
from typing import TypeVar

from xxhash import xxh32_intdigest

from borzoi.broker.broker import Broker
from borzoi.broker.catalog import Group, Partition, Topic
from borzoi.broker.options import TopicOptions
from borzoi.broker.pending import AfterSync
from borzoi.broker.sessions import Session
from borzoi.log.offsets import OffsetKey, consumer_key, group_key
from borzoi.log.partition import PartitionLog
from borzoi.log.reader import LogDamaged, ReadResult
from borzoi.log.sync import SyncJob
from borzoi.model.access import Access
from borzoi.model.errors import (
    BorzoiError,
    CannotAppendMessage,
    CannotReadMessage,
    CannotWriteToFile,
    ConsumerGroupIdNotFound,
    InvalidOffset,
    PartitionNotFound,
    ResourceNotFound,
)
from borzoi.model.limits import POLL_REPLY_BYTES_MAX
from borzoi.model.replies import Confirmation, ConsumerOffset, PolledMessages
from borzoi.model.values import (
    FENCED_PARTITION_ID,
    Consumer,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    PollingKind,
)
from borzoi.wire.batch import prove, verify_messages

# So few are verified faster than the index entry is written that would have to vouch for them.
_FEW_MESSAGES = 4

_Reply = TypeVar("_Reply")
_FENCED = PolledMessages(FENCED_PARTITION_ID, 0, 0)


@dataclass(slots=True)
class SendRoute:
    """Where a producer's batches go. `partition` is None if it is chosen anew for every batch."""

    version: int
    topic: Topic
    partition: Partition | None
    verify_messages: bool
    # fsync after so many messages or bytes; 0 = never because of an append
    sync_messages: int
    sync_bytes: int


@dataclass(slots=True)
class PollRoute:
    """Whom a consumer's polls and offsets concern."""

    version: int
    topic: Topic
    partition: Partition
    key: OffsetKey
    group: Group | None
    are_offsets_persisted: bool


def resolve_send(
    broker: Broker, session: Session, stream: Identifier, topic: Identifier, partitioning: Partitioning
) -> SendRoute:
    found = broker.data_topic(stream, topic)
    broker.require(session, Access.SEND, found.stream.id, found.id)
    if not found.partitions:
        raise ResourceNotFound(f"topic {found.name} has no partitions")
    partition: Partition | None = None
    if partitioning.kind is PartitioningKind.PARTITION_ID:
        partition_id = int.from_bytes(partitioning.value, "little")
        if partition_id >= len(found.partitions):
            raise ResourceNotFound(f"partition {partition_id} of topic {found.name}")
        partition = found.partitions[partition_id]
    elif partitioning.kind is PartitioningKind.MESSAGES_KEY:
        partition = found.partitions[xxh32_intdigest(partitioning.value) % len(found.partitions)]
    sync_messages, sync_bytes = _sync_thresholds(broker, broker.options_of(found))
    return SendRoute(
        broker.metadata.version,
        found,
        partition,
        # Recovery may have to trust messages' own checksums for what the index does not cover after
        # a power loss; so they are checked on the way in wherever an acknowledgement survives that.
        verify_messages=broker.settings.verify_messages or bool(sync_messages),
        sync_messages=sync_messages,
        sync_bytes=sync_bytes,
    )


def _sync_thresholds(broker: Broker, options: TopicOptions) -> tuple[int, int]:
    if options.is_persisted:
        return 1, 1
    if broker.settings.enforce_fsync:
        return options.messages_required_to_save, options.bytes_required_to_save
    return 0, 0


def send(
    broker: Broker,
    route: SendRoute,
    batch: memoryview,
    expected_count: int,
    now_us: int,
    *,
    is_verified: bool = False,
) -> Confirmation | AfterSync | None:
    """Append a batch; None if all of it was there already.

    The confirmation waits for the device where the topic's durability asks for it. `is_verified` says that
    the messages' own checksums are known to be right.
    """
    layout = prove(batch, expected_count)
    if not is_verified and (route.verify_messages or layout.message_count <= _FEW_MESSAGES):
        verify_messages(batch, layout)
        is_verified = True
    topic = route.topic
    partition = route.partition
    if partition is None:
        partition = topic.partitions[topic.balanced_cursor % len(topic.partitions)]
        topic.balanced_cursor += 1
    log = partition.log
    if partition.dedup is not None:
        admitted = partition.dedup.admit(log, batch, layout, now_us)
        if admitted is None:
            return None
        batch, layout = admitted
    try:
        base_offset = log.append(batch, layout, now_us, is_verified=is_verified)
    except OSError as error:
        broker.logger.error("append failed", path=str(log.directory), reason=str(error))
        raise CannotAppendMessage(error.strerror or str(error)) from error
    if partition.dedup is not None:
        partition.dedup.remember(batch, layout, now_us)
    reply = Confirmation(topic.stream.id, topic.id, partition.id, base_offset)
    if route.sync_messages and (
        log.appended_messages - log.synced_messages >= route.sync_messages
        or log.appended_bytes - log.synced_bytes >= route.sync_bytes
    ):
        return AfterSync(reply, _jobs(broker, partition))
    return reply


def _jobs(broker: Broker, partition: Partition) -> list[SyncJob]:
    try:
        return partition.log.sync_jobs()
    except OSError as error:
        broker.logger.error("sync failed", path=str(partition.log.directory), reason=str(error))
        raise CannotAppendMessage(error.strerror or str(error)) from error


def resolve_poll(
    broker: Broker,
    session: Session,
    consumer: Consumer,
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None,
) -> PollRoute:
    """For polls and reads of offsets: what is missing is named precisely."""
    found = broker.catalog.topic(stream, topic)
    broker.require(session, Access.POLL, found.stream.id, found.id)
    partition = found.partition(partition_id or 0)
    group = found.group(consumer.id) if consumer.kind is ConsumerKind.GROUP else None
    return PollRoute(
        broker.metadata.version,
        found,
        partition,
        group_key(group.id) if group is not None else consumer_key(consumer),
        group,
        broker.options_of(found).are_offsets_persisted,
    )


def resolve_offset_write(
    broker: Broker,
    session: Session,
    consumer: Consumer,
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None,
) -> PollRoute:
    """Like `resolve_poll`, but every missing target is a ResourceNotFound, as clients expect of writes."""
    broker.data_topic(stream, topic)
    try:
        return resolve_poll(broker, session, consumer, stream, topic, partition_id)
    except (PartitionNotFound, ConsumerGroupIdNotFound) as error:
        raise ResourceNotFound(error.detail) from error


def poll(
    broker: Broker,
    session: Session,
    route: PollRoute,
    kind: int,
    value: int,
    count: int,
    auto_commit: bool,
    now_us: int,
) -> PolledMessages | AfterSync:
    partition, group = route.partition, route.group
    log = partition.log
    if group is not None and not group.members.owner_may_poll(session.client_id, partition.id):
        return _FENCED
    result = read(broker, log, _start(route, kind, value, count), count, POLL_REPLY_BYTES_MAX, now_us)
    reply = PolledMessages(partition.id, log.current_offset, result.count, result.buffers)
    if not result.count:
        return reply
    if group is not None:
        group.members.polled(partition.id, result.last_offset)
    if auto_commit:
        stored = partition.offsets.get(route.key)
        if stored is None or stored < result.last_offset:
            return _store(broker, route, result.last_offset, now_us, reply)
    return reply


def read(
    broker: Broker, log: PartitionLog, offset: int, count: int, bytes_max: int, now_us: int
) -> ReadResult:
    """Messages from `offset` on; what goes wrong is in the server's log as well."""
    try:
        return log.read(offset, count, bytes_max, now_us)
    except LogDamaged as error:
        broker.logger.error(
            "damaged data not served", path=str(error.path), position=error.position, offset=error.offset
        )
        raise
    except OSError as error:
        broker.logger.error("read failed", path=str(log.directory), reason=str(error))
        raise CannotReadMessage(error.strerror or str(error)) from error


def _start(route: PollRoute, kind: int, value: int, count: int) -> int:
    """The offset a poll starts at, by its strategy. Past the end means: nothing to read."""
    log = route.partition.log
    match kind:
        case PollingKind.OFFSET:
            return value
        case PollingKind.NEXT:
            stored = route.partition.offsets.get(route.key)
            return 0 if stored is None else stored + 1
        case PollingKind.FIRST:
            return 0
        case PollingKind.LAST:
            return max(0, log.next_offset - count)
        case _:
            offset = log.offset_at_or_after(value)
            return log.next_offset if offset is None else offset


def store_offset(
    broker: Broker, session: Session, route: PollRoute, offset: int, now_us: int
) -> AfterSync | None:
    _require_owner(session, route)
    log = route.partition.log
    if offset >= log.next_offset:
        raise InvalidOffset(f"{offset}, the partition ends before {log.next_offset}")
    return _store(broker, route, offset, now_us, None)


def delete_offset(broker: Broker, session: Session, route: PollRoute, now_us: int) -> bool:
    """False if there was none."""
    _require_owner(session, route)
    try:
        deleted = route.partition.offsets.delete(route.key)
    except OSError as error:
        raise _write_failed(broker, route, error) from error
    if deleted and route.group is not None:
        changes = route.group.members.committed(route.partition.id, None, now_us)
        broker.log_changes(route.group, changes)
    return deleted


def get_offset(route: PollRoute) -> ConsumerOffset | None:
    stored = route.partition.offsets.get(route.key)
    if stored is None:
        return None
    return ConsumerOffset(route.partition.id, route.partition.log.current_offset, stored)


def _require_owner(session: Session, route: PollRoute) -> None:
    group = route.group
    if group is not None and not group.members.owner_may_commit(session.client_id, route.partition.id):
        raise ResourceNotFound(f"partition {route.partition.id} is not in the hands of this member")


def _store(broker: Broker, route: PollRoute, offset: int, now_us: int, reply: _Reply) -> _Reply | AfterSync:
    try:
        route.partition.offsets.store(route.key, offset)
    except OSError as error:
        raise _write_failed(broker, route, error) from error
    if route.group is not None:
        changes = route.group.members.committed(route.partition.id, offset, now_us)
        if changes:
            broker.log_changes(route.group, changes)
    if route.are_offsets_persisted:
        return AfterSync(reply, [route.partition.offsets.sync_job()])
    return reply


def _write_failed(broker: Broker, route: PollRoute, error: OSError) -> BorzoiError:
    broker.logger.error("offset not stored", path=str(route.partition.log.directory), reason=str(error))
    return CannotWriteToFile(error.strerror or str(error))
