"""How much goes through topics and groups: rates from two samples. Needs neither server nor clock.

What came in is counted by offsets, which only grow, not by the messages that are kept, which retention takes
away. A partition that was purged between two samples starts anew. Bytes are counted by what a topic keeps; if
retention removed some of it between two samples, the average size of what is kept stands in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from borzoi.cli.positions import Bounds

_SECOND_US = 1_000_000

TopicName = tuple[str, str]
GroupName = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class TopicCount:
    """`bounds` by partition."""

    bounds: Mapping[int, Bounds]
    messages_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ServerUse:
    cpu_percent: float
    memory_bytes: int
    clients_count: int
    messages_count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the server. `groups` have the stored offsets by partition, where there are any."""

    now_us: int
    server: ServerUse
    topics: Mapping[TopicName, TopicCount]
    groups: Mapping[GroupName, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicRate:
    stream: str
    topic: str
    messages_per_s: float
    bytes_per_s: float
    messages_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GroupRate:
    stream: str
    topic: str
    group: str
    messages_per_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Busiest first."""

    now_us: int
    interval_s: float
    server: ServerUse
    topics: tuple[TopicRate, ...]
    groups: tuple[GroupRate, ...]


def rates(before: Sample, after: Sample) -> Rates:
    """What happened between two samples, per second. What is new in the second counts from nothing."""
    # Two samples within the same microsecond would divide by zero.
    interval_s = max(after.now_us - before.now_us, 1) / _SECOND_US
    topics = [
        _topic_rate(name, before.topics.get(name), count, interval_s) for name, count in after.topics.items()
    ]
    groups = [
        GroupRate(*name, _consumed(name, before, stored) / interval_s)
        for name, stored in after.groups.items()
    ]
    topics.sort(key=lambda each: (-each.messages_per_s, -each.bytes_per_s, each.stream, each.topic))
    groups.sort(key=lambda each: (-each.messages_per_s, each.stream, each.topic, each.group))
    return Rates(after.now_us, interval_s, after.server, tuple(topics), tuple(groups))


def rate_fields(found: Rates) -> dict[str, Any]:
    """What JSON says of it."""
    return {
        "now_us": found.now_us,
        "interval_s": found.interval_s,
        "server": _fields(found.server),
        "topics": [_fields(each) for each in found.topics],
        "groups": [_fields(each) for each in found.groups],
    }


def _topic_rate(
    name: TopicName, before: TopicCount | None, after: TopicCount, interval_s: float
) -> TopicRate:
    if before is None:
        before = TopicCount({}, 0, 0)
    messages = sum(
        _since(before.bounds[partition].next_offset if partition in before.bounds else 0, bounds.next_offset)
        for partition, bounds in after.bounds.items()
    )
    if after.messages_count - before.messages_count == messages:
        size_bytes = max(0, after.size_bytes - before.size_bytes)
    else:
        size_bytes = messages * after.size_bytes // max(1, after.messages_count)
    return TopicRate(
        *name, messages / interval_s, size_bytes / interval_s, after.messages_count, after.size_bytes
    )


def _since(before: int, after: int) -> int:
    return after - before if after >= before else after


def _consumed(name: GroupName, before: Sample, stored: Mapping[int, int]) -> int:
    """Only forwards: a group that was reset to an earlier offset has not consumed anything by that."""
    stored_before = before.groups.get(name)
    topic = before.topics.get(name[:2])
    if stored_before is None or topic is None:
        return 0
    total = 0
    for partition, offset in stored.items():
        if partition in stored_before:
            total += max(0, offset - stored_before[partition])
        elif partition in topic.bounds:  # it began with the first message there was
            total += max(0, offset + 1 - topic.bounds[partition].first_offset)
    return total


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
