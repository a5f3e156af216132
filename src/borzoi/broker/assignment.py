"""Who should have which partition of a consumer group: the arithmetic, without any state.

`balanced` names a target for every partition. Its promises:

- with members, every partition has a target, and no member is the target of more than one partition
  more than another;
- no balanced outcome takes fewer partitions out of the hands they are in: a member loses only what
  exceeds its share, from the end of its list, and the larger shares go to those who hold the most;
- among the outcomes with that few moves it prefers what was decided before: a partition already on its
  way is given up before one that is not, and stays on its way to the same member if that has room;
- everything else is dealt in partition order to the member with the fewest, the lowest slot first, so
  a group that starts from nothing is dealt round-robin in slot order;
- equal arguments give equal results.

It does not know whether a partition can change hands now; that is the subject of `groups`.
"""

import heapq
from collections.abc import Collection, Sequence

Slot = int
"""The number of a member within its group."""


def balanced(
    owners: Sequence[Slot | None], headings: Sequence[Slot | None], slots: Collection[Slot]
) -> list[Slot | None]:
    """The target of each partition, given who holds it (`owners`) and to whom it was going (`headings`).

    Both are indexed by partition and name only members of `slots`, or None.
    """
    targets: list[Slot | None] = [None] * len(owners)
    if not slots:
        return targets
    held: dict[Slot, list[int]] = {slot: [] for slot in slots}
    headed = dict.fromkeys(slots, 0)
    for partition, (owner, heading) in enumerate(zip(owners, headings, strict=True)):
        if owner is not None:
            held[owner].append(partition)
        if heading is not None:
            headed[heading] += 1

    room = _shares(len(owners), {slot: (len(held[slot]), headed[slot]) for slot in slots})
    shares = dict(room)
    for slot, partitions in held.items():
        # A stable sort: what is already on its way elsewhere comes last and is given up first.
        partitions.sort(key=lambda partition: headings[partition] != slot)
        for partition in partitions[: room[slot]]:
            targets[partition] = slot
        room[slot] -= min(room[slot], len(partitions))

    homeless = []
    for partition, heading in enumerate(headings):
        if targets[partition] is not None:
            continue
        if heading is not None and room[heading]:
            targets[partition] = heading
            room[heading] -= 1
        else:
            homeless.append(partition)

    fewest_first = [(shares[slot] - free, slot) for slot, free in room.items() if free]
    heapq.heapify(fewest_first)
    for partition in homeless:
        count, slot = fewest_first[0]
        targets[partition] = slot
        if count + 1 < shares[slot]:
            heapq.heapreplace(fewest_first, (count + 1, slot))
        else:
            heapq.heappop(fewest_first)
    return targets


def _shares(partitions_count: int, held_and_headed: dict[Slot, tuple[int, int]]) -> dict[Slot, int]:
    """How many partitions each member gets; the remainder goes to those that hold the most already."""
    fair, remainder = divmod(partitions_count, len(held_and_headed))

    def rank(slot: Slot) -> tuple[int, int, Slot]:
        held, headed = held_and_headed[slot]
        return -held, -headed, slot

    return {slot: fair + (place < remainder) for place, slot in enumerate(sorted(held_and_headed, key=rank))}
