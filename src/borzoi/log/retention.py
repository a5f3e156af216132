"""Decides which segments have had their time. Pure arithmetic over what segments are and when it is.

Whole sealed segments only, oldest first, never one with a later neighbour that stays. Carrying a
decision out is the broker's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from borzoi.log.partition import PartitionLog
from borzoi.model.limits import U64_MAX

# A topic is trimmed when it has reached this share of its maximum size.
SIZE_TRIGGER_PERCENT = 90


@dataclass(frozen=True, slots=True)
class Expiry:
    """What time-based retention wants of one partition."""

    seal_active: bool
    segments: int


def expired(log: PartitionLog, expiry_us: int, now_us: int) -> Expiry:
    """How many leading segments are expired, and whether the active one is and should be sealed first.

    Sealing an expired, idle active segment is what lets small topics expire at all.
    """
    if expiry_us in (0, U64_MAX) or not log.segments:
        return Expiry(seal_active=False, segments=0)
    count = 0
    for segment in log.segments:
        if segment.size_bytes:
            if segment.last_timestamp_us() + expiry_us > now_us:
                break
        elif segment is log.segments[-1]:
            break
        count += 1
    return Expiry(seal_active=count == len(log.segments), segments=count)


def oversized(logs: Sequence[PartitionLog], max_bytes: int) -> list[int]:
    """How many leading sealed segments each partition of a topic should lose to get below the trigger.

    The oldest segment of the whole topic goes first, by the time of its last message.
    """
    drops = [0] * len(logs)
    if max_bytes in (0, U64_MAX):
        return drops
    trigger = max_bytes * SIZE_TRIGGER_PERCENT // 100
    total = sum(log.size_bytes for log in logs)
    while total >= trigger:
        oldest = -1
        oldest_us = U64_MAX
        for slot, log in enumerate(logs):
            if drops[slot] < len(log.segments) - 1:
                timestamp_us = log.segments[drops[slot]].last_timestamp_us()
                if timestamp_us < oldest_us:
                    oldest, oldest_us = slot, timestamp_us
        if oldest < 0:
            break
        total -= logs[oldest].segments[drops[oldest]].size_bytes
        drops[oldest] += 1
    return drops


def deletable(log: PartitionLog, wanted: int, lowest_committed: int | None) -> int:
    """How many of the `wanted` oldest sealed segments may go without passing the slowest consumer."""
    count = 0
    for slot in range(min(wanted, len(log.segments) - 1)):
        last_offset = log.segments[slot + 1].base_offset - 1
        if lowest_committed is not None and last_offset > lowest_committed:
            break
        count += 1
    return count
