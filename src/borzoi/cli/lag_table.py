"""How far consumer groups are behind: the numbers, and how they are shown. Needs neither server nor clock.

A group without a stored offset has everything before it that the partition keeps. Messages that retention has
removed count no more: nobody can read them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from borzoi.cli.output import print_table
from borzoi.cli.positions import Bounds

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """`end_offset` is that of the last message; None if there never was one. `lag_s` is 0 if caught up."""

    partition_id: int
    committed_offset: int | None
    end_offset: int | None
    lag: int
    lag_s: float
    member_id: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    stream: str
    topic: str
    group: str
    members_count: int
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)

    @property
    def lag_s(self) -> float:
        """Of the partition that is furthest behind."""
        return max((each.lag_s for each in self.partitions), default=0.0)


def next_unread(bounds: Bounds, committed_offset: int | None) -> int | None:
    """Offset of the first message that was not consumed; None if the group is caught up."""
    next_offset = 0 if committed_offset is None else committed_offset + 1
    next_offset = max(next_offset, bounds.first_offset)
    return next_offset if next_offset < bounds.next_offset else None


def partition_lag(
    partition_id: int,
    bounds: Bounds,
    committed_offset: int | None,
    unread_since_us: int | None,
    now_us: int,
    member_id: int | None,
) -> PartitionLag:
    """`unread_since_us` is when the first unread message was stored; None if it is gone or there is none."""
    unread = next_unread(bounds, committed_offset)
    age_us = 0 if unread is None or unread_since_us is None else max(0, now_us - unread_since_us)
    return PartitionLag(
        partition_id,
        committed_offset,
        bounds.next_offset - 1 if bounds.next_offset else None,
        0 if unread is None else bounds.next_offset - unread,
        age_us / _SECOND_US,
        member_id,
    )


def owners(members: Iterable[tuple[int, Sequence[int]]]) -> dict[int, int]:
    """Which member has a partition, from the partitions of each member."""
    return {partition: member for member, partitions in members for partition in partitions}


def exceeding(groups: Iterable[GroupLag], max_lag: int) -> list[GroupLag]:
    return [group for group in groups if group.lag > max_lag]


def print_lag(groups: Sequence[GroupLag]) -> None:
    """A row for each partition, and a total for each group that has several."""
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        name = (group.stream, group.topic, group.group)
        rows += [
            (
                *name,
                str(each.partition_id),
                _number(each.committed_offset),
                _number(each.end_offset),
                each.lag,
                shown_seconds(each.lag_s),
                _number(each.member_id),
            )
            for each in group.partitions
        ]
        if len(group.partitions) != 1:
            rows.append(
                (
                    *name,
                    "total",
                    "",
                    "",
                    group.lag,
                    shown_seconds(group.lag_s),
                    f"{group.members_count} in all",
                )
            )
    print_table(
        ("Stream", "Topic", "Group", "Partition", "Committed", "End", "Lag", "Behind", "Member"), rows
    )


def lag_fields(groups: Sequence[GroupLag]) -> list[dict[str, Any]]:
    """What JSON says of it."""
    return [
        {
            "stream": group.stream,
            "topic": group.topic,
            "group": group.group,
            "members_count": group.members_count,
            "lag": group.lag,
            "lag_s": group.lag_s,
            "partitions": [
                {
                    "partition_id": each.partition_id,
                    "committed_offset": each.committed_offset,
                    "end_offset": each.end_offset,
                    "lag": each.lag,
                    "lag_s": each.lag_s,
                    "member_id": each.member_id,
                }
                for each in group.partitions
            ],
        }
        for group in groups
    ]


def shown_seconds(seconds: float) -> str:
    """Short, for a column: `0s`, `4.2s`, `3m 05s`, `2h 10m`, `5d 3h`."""
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds else "0s"
    minutes, whole = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {whole:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02}m"
    return f"{hours // 24}d {hours % 24}h"


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
