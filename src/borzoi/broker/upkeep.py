"""What has to be done now and then: retention, expired tokens, silent members, overdue rebalances, epochs.

Each function looks at the state as of `now_us` and does what is due; when they are called is the
server's business.
"""

from borzoi.broker import events as ev
from borzoi.broker.broker import Broker
from borzoi.broker.catalog import Partition, Topic
from borzoi.broker.groups import ChangeReason
from borzoi.broker.pending import InSteps
from borzoi.log.retention import expired, oversized

# A member may be this much later than the heartbeat interval, in percent of it.
_HEARTBEAT_GRACE_PERCENT = 120


def clean_messages(broker: Broker, now_us: int) -> int:
    """Delete segments that are too old or too many; returns how many."""
    return sum(_clean_topic(broker, topic, now_us) for topic in broker.catalog.topics())


def _clean_topic(broker: Broker, topic: Topic, now_us: int) -> int:
    options = broker.options_of(topic)
    dropped = []
    for partition in topic.partitions:
        due = expired(partition.log, options.message_expiry_us, now_us)
        if due.seal_active:
            _seal(broker, partition, now_us)
        dropped += partition.log.drop_oldest(due.segments)
    if broker.settings.delete_oldest_segments:
        logs = [partition.log for partition in topic.partitions]
        for log, count in zip(logs, oversized(logs, options.max_topic_bytes), strict=True):
            dropped += log.drop_oldest(count)
    if dropped:
        broker.remove_segments(dropped)
        broker.logger.info(
            "segments deleted", stream=topic.stream.name, topic=topic.name, segments=len(dropped)
        )
    return len(dropped)


def _seal(broker: Broker, partition: Partition, now_us: int) -> None:
    """Needs a new file. On a full disk there is none, and deleting what is sealed matters all the more."""
    try:
        partition.log.seal(now_us)
    except OSError as error:
        path = str(partition.log.directory)
        broker.logger.error("expired segment not sealed", path=path, reason=str(error))


def clean_tokens(broker: Broker, now_us: int) -> int:
    tokens = broker.users.expired_tokens(now_us)
    for token in tokens:
        broker.record(ev.TokenDeleted(user_id=token.user_id, name=token.name))
    return len(tokens)


def drop_idle_epochs(broker: Broker, now_us: int) -> int:
    """Drop what is staged for epochs that nobody seems to be going to commit; returns how many epochs."""
    return broker.transactions.drop_idle(now_us)


def unfinished_epochs(broker: Broker, now_us: int) -> list[InSteps]:
    """Work on epochs that are committed but could not be appended yet, because the disk was full, say."""
    return broker.transactions.unfinished(now_us)


def evict_silent_members(broker: Broker, now_us: int) -> int:
    """Group members that were not heard of lose their session, so that others get their partitions."""
    interval_us = broker.settings.heartbeat_interval_us
    if not interval_us:
        return 0
    sessions = broker.clients.silent_members(now_us - interval_us * _HEARTBEAT_GRACE_PERCENT // 100)
    for session in sessions:
        broker.evict(session, ChangeReason.EVICTED, now_us)
    return len(sessions)


def expire_rebalances(broker: Broker, now_us: int) -> None:
    """Move partitions whose owner had its time to commit."""
    for topic in broker.catalog.topics():
        for group in topic.groups.values():
            deadline_us = group.members.next_deadline_us()
            if deadline_us is not None and deadline_us <= now_us:
                broker.log_changes(group, group.members.expire(now_us))
