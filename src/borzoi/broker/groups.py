"""The members of one consumer group and the partitions they hold: a state machine without I/O.

Theory of operation. Every partition has an *owner*, the member in whose hands it is, and a *target*,
the member who should have it. They are the same except while a revocation is pending:

    owner is target      the owner polls and commits
    owner is not target  the owner may commit but not poll, the target waits; the partition moves when
                         - the owner has committed everything it polled (at once, if nothing is open),
                         - the rebalancing timeout has passed since the revocation was requested,
                         - the owner leaves, or
                         - the topic is purged;
                         the revocation is cancelled if a later change makes the owner the target again

Joining, leaving and a new partition count choose new targets (`assignment.balanced`); committing and
the passing of time let partitions move towards them.

Invariants:

- With at least one member every partition has exactly one owner; without members none has.
- A partition is visible to (may be polled by) one member at most.
- Targets differ by one partition at most between members.
- The generation grows by one with a transition that changes what any member sees, and only then.

Every transition returns what it did to which partition, and why, for the caller to log. Time is an
argument. Names, ids, stored offsets and clients' connections are the business of the caller.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from borzoi.broker.assignment import Slot, balanced
from borzoi.model import limits
from borzoi.model.errors import ConsumerGroupMemberNotFound, FeatureUnavailable
from borzoi.model.replies import GroupAssignment, GroupDetails, GroupInfo, GroupMember


class ChangeReason(Enum):
    """What caused a partition to change its owner or its target."""

    JOINED = "joined"
    LEFT = "left"
    DISCONNECTED = "disconnected"
    EVICTED = "evicted"
    REPLACED = "replaced"
    RESIZED = "resized"
    COMMITTED = "committed"
    TIMED_OUT = "timed_out"
    PURGED = "purged"


class ChangeStage(Enum):
    """How far a partition has come on its way from one member to another."""

    REQUESTED = "requested"  # a revocation is pending from now on
    REDIRECTED = "redirected"  # it still is, in favour of another member
    CANCELLED = "cancelled"  # it is not any more, the owner (`to_member`) keeps the partition
    MOVED = "moved"  # the partition has changed hands


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One partition's step; members are named by slot, None is nobody."""

    reason: ChangeReason
    stage: ChangeStage
    partition: int
    from_member: Slot | None
    to_member: Slot | None


@dataclass(slots=True)
class _Member:
    slot: Slot
    visible: set[int] = field(default_factory=set)


class ConsumerGroup:
    """See the module's docstring. Lists are indexed by partition."""

    __slots__ = (
        "_by_slot",
        "_changes",
        "_committed_offsets",
        "_free_slots",
        "_last_polled_offsets",
        "_members",
        "_owners",
        "_rebalancing_timeout_us",
        "_revoked_at_us",
        "_targets",
        "_view_changed",
        "generation",
    )

    def __init__(self, partitions_count: int, rebalancing_timeout_us: int) -> None:
        if partitions_count < 0:
            raise ValueError(f"a topic cannot have {partitions_count} partitions")
        if rebalancing_timeout_us <= 0:
            raise ValueError(f"the rebalancing timeout must be positive, not {rebalancing_timeout_us} us")
        self.generation = 0
        self._rebalancing_timeout_us = rebalancing_timeout_us
        self._members: dict[int, _Member] = {}
        self._by_slot: dict[Slot, _Member] = {}
        # A heap of the numbers below len(members) + len(free_slots) that nobody has.
        self._free_slots: list[Slot] = []
        self._owners: list[Slot | None] = [None] * partitions_count
        self._targets: list[Slot | None] = [None] * partitions_count
        # By the present owner, since it became the owner.
        self._last_polled_offsets: list[int | None] = [None] * partitions_count
        self._committed_offsets: list[int | None] = [None] * partitions_count
        # The partitions with a pending revocation, and since when.
        self._revoked_at_us: dict[int, int] = {}
        # What the transition under way has done so far.
        self._changes: list[GroupChange] = []
        self._view_changed = False

    @property
    def partitions_count(self) -> int:
        return len(self._owners)

    @property
    def members_count(self) -> int:
        return len(self._members)

    def is_member(self, client_id: int) -> bool:
        return client_id in self._members

    def owner_may_poll(self, client_id: int, partition: int) -> bool:
        member = self._members.get(client_id)
        return member is not None and partition in member.visible

    def owner_may_commit(self, client_id: int, partition: int) -> bool:
        """Unlike polling, committing stays allowed while a revocation is pending."""
        member = self._members.get(client_id)
        return (
            member is not None
            and 0 <= partition < len(self._owners)
            and self._owners[partition] == member.slot
        )

    def assignment(self, client_id: int) -> GroupAssignment | None:
        """What the client may poll; None if it is not a member."""
        member = self._members.get(client_id)
        return None if member is None else GroupAssignment(self.generation, tuple(sorted(member.visible)))

    def details(self, group_id: int, name: str) -> GroupDetails:
        """The members by slot; a partition with a pending revocation is still its owner's."""
        held: dict[Slot, list[int]] = {slot: [] for slot in sorted(self._by_slot)}
        for partition, owner in enumerate(self._owners):
            if owner is not None:
                held[owner].append(partition)
        return GroupDetails(
            GroupInfo(group_id, len(self._owners), len(self._members), name),
            tuple(GroupMember(slot, tuple(partitions)) for slot, partitions in held.items()),
        )

    def next_deadline_us(self) -> int | None:
        """When `expire` next has something to do; None while no revocation is pending."""
        if not self._revoked_at_us:
            return None
        return min(self._revoked_at_us.values()) + self._rebalancing_timeout_us

    def join(self, client_id: int, now_us: int) -> list[GroupChange]:
        """Admit a client under the lowest free slot; nothing happens if it is a member already."""
        if client_id in self._members:
            return []
        if len(self._members) >= limits.GROUP_MEMBERS_MAX:
            raise FeatureUnavailable(f"a consumer group has at most {limits.GROUP_MEMBERS_MAX} members")
        slot = heapq.heappop(self._free_slots) if self._free_slots else len(self._members)
        self._members[client_id] = self._by_slot[slot] = _Member(slot)
        self._view_changed = True
        self._rebalance(ChangeReason.JOINED, now_us)
        return self._finish()

    def leave(
        self, client_id: int, now_us: int, reason: ChangeReason = ChangeReason.LEFT
    ) -> list[GroupChange]:
        """Dismiss a member; what it held goes to others at once, committed or not."""
        member = self._members.pop(client_id, None)
        if member is None:
            raise ConsumerGroupMemberNotFound(f"client {client_id} is not a member of the consumer group")
        del self._by_slot[member.slot]
        heapq.heappush(self._free_slots, member.slot)
        self._view_changed = True
        self._rebalance(reason, now_us)
        return self._finish()

    def resize(self, partitions_count: int, now_us: int) -> list[GroupChange]:
        """Follow the topic to a new partition count; partitions come and go at the high end."""
        if partitions_count < 0:
            raise ValueError(f"a topic cannot have {partitions_count} partitions")
        if partitions_count == len(self._owners):
            return []
        for partition in range(partitions_count, len(self._owners)):
            if self._owners[partition] is not None:
                self._move(partition, None, ChangeReason.RESIZED)
        added = max(0, partitions_count - len(self._owners))
        for column in (self._owners, self._targets, self._last_polled_offsets, self._committed_offsets):
            del column[partitions_count:]
            column.extend([None] * added)
        self._rebalance(ChangeReason.RESIZED, now_us)
        return self._finish()

    def polled(self, partition: int, last_offset: int) -> None:
        """The owner was handed messages up to `last_offset`.

        To be called in the same step as `owner_may_poll`, or the poll may be charged to a new owner.
        """
        before = self._last_polled_offsets[partition]
        if before is None or last_offset > before:
            self._last_polled_offsets[partition] = last_offset

    def committed(self, partition: int, offset: int | None, now_us: int) -> list[GroupChange]:
        """The group's stored offset has become `offset`, or was deleted if that is None."""
        self._committed_offsets[partition] = offset
        revoked_at_us = self._revoked_at_us.get(partition)
        if revoked_at_us is None:
            return []
        if self._is_settled(partition):
            self._move(partition, self._targets[partition], ChangeReason.COMMITTED)
        elif now_us >= revoked_at_us + self._rebalancing_timeout_us:
            self._move(partition, self._targets[partition], ChangeReason.TIMED_OUT)
        return self._finish()

    def expire(self, now_us: int) -> list[GroupChange]:
        """Force the revocations that have been pending for the rebalancing timeout."""
        revoked_until_us = now_us - self._rebalancing_timeout_us
        overdue = [p for p, revoked_at_us in self._revoked_at_us.items() if revoked_at_us <= revoked_until_us]
        return self._force(overdue, ChangeReason.TIMED_OUT)

    def purged(self) -> list[GroupChange]:
        """The topic's messages and stored offsets are gone, so nothing is left to be committed."""
        self._last_polled_offsets = [None] * len(self._owners)
        self._committed_offsets = [None] * len(self._owners)
        return self._force(list(self._revoked_at_us), ChangeReason.PURGED)

    def _force(self, partitions: Iterable[int], reason: ChangeReason) -> list[GroupChange]:
        for partition in sorted(partitions):
            self._move(partition, self._targets[partition], reason)
        return self._finish()

    def _finish(self) -> list[GroupChange]:
        """End a transition: one that changed what someone sees makes a new generation."""
        if self._view_changed:
            self.generation += 1
            self._view_changed = False
        changes, self._changes = self._changes, []
        return changes

    def _rebalance(self, reason: ChangeReason, now_us: int) -> None:
        present = self._by_slot
        owners = [slot if slot in present else None for slot in self._owners]
        headings = [slot if slot in present else None for slot in self._targets]
        for partition, target in enumerate(balanced(owners, headings, present)):
            owner = owners[partition]
            if owner is None:
                if target is not None or self._owners[partition] is not None:
                    self._move(partition, target, reason)
            elif target != self._targets[partition]:
                self._redirect(partition, owner, target, reason, now_us)

    def _redirect(
        self, partition: int, owner: Slot, target: Slot | None, reason: ChangeReason, now_us: int
    ) -> None:
        """Give a partition in a member's hands another target than it had."""
        former = self._targets[partition]
        if target == owner:
            self._targets[partition] = owner
            del self._revoked_at_us[partition]
            self._show(partition, owner)
            self._changes.append(GroupChange(reason, ChangeStage.CANCELLED, partition, former, owner))
        elif self._is_settled(partition):
            self._move(partition, target, reason)
        elif former == owner:
            self._targets[partition] = target
            self._revoked_at_us[partition] = now_us
            self._hide(partition, owner)
            self._changes.append(GroupChange(reason, ChangeStage.REQUESTED, partition, owner, target))
        else:
            # The owner has had its time since the first request; another target does not extend it.
            self._targets[partition] = target
            self._changes.append(GroupChange(reason, ChangeStage.REDIRECTED, partition, owner, target))

    def _is_settled(self, partition: int) -> bool:
        last_polled_offset = self._last_polled_offsets[partition]
        if last_polled_offset is None:
            return True
        committed_offset = self._committed_offsets[partition]
        return committed_offset is not None and committed_offset >= last_polled_offset

    def _move(self, partition: int, to_slot: Slot | None, reason: ChangeReason) -> None:
        from_slot = self._owners[partition]
        self._owners[partition] = self._targets[partition] = to_slot
        self._last_polled_offsets[partition] = None
        self._revoked_at_us.pop(partition, None)
        if from_slot is not None:
            self._hide(partition, from_slot)
        if to_slot is not None:
            self._show(partition, to_slot)
        self._changes.append(GroupChange(reason, ChangeStage.MOVED, partition, from_slot, to_slot))

    def _show(self, partition: int, slot: Slot) -> None:
        self._by_slot[slot].visible.add(partition)
        self._view_changed = True

    def _hide(self, partition: int, slot: Slot) -> None:
        member = self._by_slot.get(slot)
        if member is not None and partition in member.visible:
            member.visible.remove(partition)
            self._view_changed = True
