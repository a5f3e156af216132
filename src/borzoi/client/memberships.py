"""The groups a client has joined, and what it knows about its partitions in each.

A membership belongs to a connection's session. This is what outlives it: after a reconnect every group in
`joined` is joined again and every assignment has to be asked for anew.

Polls go round the assigned partitions. An assignment is asked for again when it is `period_s` old, because
partitions that were added to it are not noticed otherwise; those that were taken away answer a fence.
"""

from dataclasses import dataclass
from typing import NamedTuple

from borzoi.model.replies import GroupAssignment
from borzoi.model.values import Identifier


class GroupKey(NamedTuple):
    """A group as the user named it; other names for the same one are other keys."""

    stream: Identifier
    topic: Identifier
    group: Identifier


@dataclass(slots=True)
class _Assignment:
    generation: int
    partitions: tuple[int, ...]
    synced_at_s: float
    turn: int = 0


class Memberships:
    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._joined: dict[GroupKey, None] = {}
        self._assignments: dict[GroupKey, _Assignment] = {}

    @property
    def joined(self) -> tuple[GroupKey, ...]:
        return tuple(self._joined)

    def join(self, key: GroupKey) -> None:
        self._joined[key] = None
        self._assignments.pop(key, None)

    def leave(self, key: GroupKey) -> None:
        self._joined.pop(key, None)
        self._assignments.pop(key, None)

    def leave_all(self) -> None:
        self._joined.clear()
        self._assignments.clear()

    def forget_assignments(self) -> None:
        self._assignments.clear()

    def forget_assignment(self, key: GroupKey) -> None:
        self._assignments.pop(key, None)

    def only_group_of(self, stream: Identifier, topic: Identifier) -> Identifier | None:
        """The group joined in this topic, if it is one."""
        found = [key.group for key in self._joined if key[:2] == (stream, topic)]
        return found[0] if len(found) == 1 else None

    def is_due(self, key: GroupKey, now_s: float) -> bool:
        """Whether to ask for the assignment before the next poll."""
        known = self._assignments.get(key)
        return known is None or not known.partitions or now_s - known.synced_at_s >= self._period_s

    def learn(self, key: GroupKey, assignment: GroupAssignment, now_s: float) -> None:
        known = self._assignments.get(key)
        if known is not None and known.generation == assignment.generation:
            known.synced_at_s = now_s
        else:
            self._assignments[key] = _Assignment(assignment.generation, assignment.partitions, now_s)

    def next_partition(self, key: GroupKey) -> int | None:
        known = self._assignments.get(key)
        if known is None or not known.partitions:
            return None
        partition = known.partitions[known.turn % len(known.partitions)]
        known.turn += 1
        return partition
