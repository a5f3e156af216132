"""The consumer group state machine: who may poll what, when partitions change hands, and why."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from borzoi.broker.groups import ChangeReason, ChangeStage, ConsumerGroup, GroupChange
from borzoi.model import limits
from borzoi.model.errors import ConsumerGroupMemberNotFound, FeatureUnavailable
from borzoi.model.replies import GroupAssignment, GroupDetails, GroupInfo, GroupMember

TIMEOUT_US = 30_000_000
ANN, BOB, CID, DAN = 1 << 100, 2, 3, 4


def visible(group, *client_ids):
    return [list(group.assignment(client_id).partitions) for client_id in client_ids]


def group_of(*client_ids, partitions_count):
    group = ConsumerGroup(partitions_count, TIMEOUT_US)
    for client_id in client_ids:
        group.join(client_id, 0)
    return group


def group_with_pending_revocation():
    """Ann has 0 and 1 and waits for nothing; 2 and 3, polled up to 9, are on their way to Bob."""
    group = group_of(ANN, partitions_count=4)
    group.polled(2, 9)
    group.polled(3, 9)
    group.join(BOB, 100)
    return group


def test_a_first_member_takes_all_partitions():
    group = ConsumerGroup(3, TIMEOUT_US)
    assert group.join(ANN, 0) == [
        GroupChange(ChangeReason.JOINED, ChangeStage.MOVED, partition, None, 0) for partition in range(3)
    ]
    assert group.assignment(ANN) == GroupAssignment(1, (0, 1, 2))


def test_a_second_member_gets_only_the_excess():
    group = group_of(ANN, BOB, partitions_count=5)
    assert visible(group, ANN, BOB) == [[0, 1, 2], [3, 4]]


def test_joining_twice_changes_nothing():
    group = group_of(ANN, BOB, partitions_count=5)
    before = group.assignment(ANN)
    assert group.join(ANN, 5) == []
    assert group.assignment(ANN) == before
    assert group.members_count == 2


def test_more_members_than_partitions_leaves_some_idle():
    group = group_of(ANN, BOB, CID, partitions_count=2)
    assert visible(group, ANN, BOB, CID) == [[0], [1], []]


def test_members_that_came_before_the_partitions_are_dealt_round_robin():
    group = group_of(ANN, BOB, partitions_count=0)
    group.resize(5, 0)
    assert visible(group, ANN, BOB) == [[0, 2, 4], [1, 3]]


def test_partitions_of_a_leaver_go_to_the_others_who_keep_theirs():
    group = group_of(ANN, BOB, CID, partitions_count=6)
    assert visible(group, ANN, BOB, CID) == [[0, 1], [3, 4], [2, 5]]
    changes = group.leave(CID, 1, ChangeReason.DISCONNECTED)
    assert visible(group, ANN, BOB) == [[0, 1, 2], [3, 4, 5]]
    assert changes == [
        GroupChange(ChangeReason.DISCONNECTED, ChangeStage.MOVED, 2, 2, 0),
        GroupChange(ChangeReason.DISCONNECTED, ChangeStage.MOVED, 5, 2, 1),
    ]


def test_partitions_of_the_last_leaver_are_nobodys():
    group = group_of(ANN, partitions_count=1)
    assert group.leave(ANN, 1) == [GroupChange(ChangeReason.LEFT, ChangeStage.MOVED, 0, 0, None)]
    assert group.assignment(ANN) is None
    assert not group.owner_may_poll(ANN, 0)
    assert not group.owner_may_commit(ANN, 0)
    group.join(BOB, 2)
    assert visible(group, BOB) == [[0]]


def test_a_leaver_hands_over_at_once_what_it_did_not_commit():
    group = group_of(ANN, BOB, partitions_count=2)
    group.polled(0, 9)
    group.leave(ANN, 1)
    assert visible(group, BOB) == [[0, 1]]
    assert group.next_deadline_us() is None


def test_leaving_without_being_a_member_is_an_error():
    group = group_of(ANN, partitions_count=1)
    with pytest.raises(ConsumerGroupMemberNotFound):
        group.leave(BOB, 0)
    assert group.generation == 1


def test_a_newcomer_gets_the_lowest_free_slot():
    group = group_of(ANN, BOB, CID, partitions_count=1)
    group.leave(BOB, 0)
    group.leave(ANN, 0)
    slots = []
    for client_id in (DAN, BOB, ANN):
        group.join(client_id, 0)
        slots.append([member.id for member in group.details(1, "g").members])
    assert slots == [[0, 2], [0, 1, 2], [0, 1, 2, 3]]


def test_the_number_of_members_is_limited(monkeypatch):
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 2)
    group = group_of(ANN, BOB, partitions_count=2)
    with pytest.raises(FeatureUnavailable):
        group.join(CID, 0)
    assert group.join(ANN, 0) == []
    assert group.members_count == 2
    assert not group.is_member(CID)


@pytest.mark.parametrize(("partitions_count", "timeout_us"), [(-1, 1), (1, 0), (1, -1)])
def test_impossible_settings_are_refused(partitions_count, timeout_us):
    with pytest.raises(ValueError):
        ConsumerGroup(partitions_count, timeout_us)


def test_a_partition_polled_and_not_committed_is_fenced_but_stays_with_its_owner():
    group = group_with_pending_revocation()
    assert visible(group, ANN, BOB) == [[0, 1], []]
    for partition in (2, 3):
        assert not group.owner_may_poll(ANN, partition)
        assert not group.owner_may_poll(BOB, partition)
        assert group.owner_may_commit(ANN, partition)
        assert not group.owner_may_commit(BOB, partition)
    assert group.details(7, "g") == GroupDetails(
        GroupInfo(7, 4, 2, "g"), (GroupMember(0, (0, 1, 2, 3)), GroupMember(1, ()))
    )


def test_only_open_partitions_wait_the_others_move_at_once():
    group = group_of(ANN, partitions_count=4)
    group.polled(3, 9)
    changes = group.join(BOB, 100)
    assert changes == [
        GroupChange(ChangeReason.JOINED, ChangeStage.MOVED, 2, 0, 1),
        GroupChange(ChangeReason.JOINED, ChangeStage.REQUESTED, 3, 0, 1),
    ]
    assert visible(group, ANN, BOB) == [[0, 1], [2]]


def test_a_partition_moves_with_the_commit_of_the_last_polled_offset():
    group = group_with_pending_revocation()
    generation = group.generation
    assert group.committed(2, 8, 200) == []
    assert group.generation == generation
    assert group.committed(2, 9, 300) == [GroupChange(ChangeReason.COMMITTED, ChangeStage.MOVED, 2, 0, 1)]
    assert group.generation == generation + 1
    assert visible(group, ANN, BOB) == [[0, 1], [2]]
    assert not group.owner_may_commit(ANN, 2)


def test_a_partition_committed_before_it_was_wanted_moves_at_once():
    group = group_of(ANN, partitions_count=2)
    group.polled(1, 9)
    assert group.committed(1, 9, 0) == []
    group.join(BOB, 0)
    assert visible(group, ANN, BOB) == [[0], [1]]


def test_a_deleted_offset_commits_nothing():
    group = group_of(ANN, partitions_count=2)
    group.polled(1, 9)
    group.committed(1, 9, 0)
    group.committed(1, None, 0)
    group.join(BOB, 0)
    assert visible(group, ANN, BOB) == [[0], []]


def test_polling_back_does_not_forget_what_was_polled_before():
    group = group_of(ANN, partitions_count=2)
    group.polled(1, 9)
    group.polled(1, 3)
    group.committed(1, 3, 0)
    group.join(BOB, 0)
    assert visible(group, ANN, BOB) == [[0], []]


def test_what_a_former_owner_polled_does_not_bind_the_next():
    group = group_with_pending_revocation()
    group.expire(100 + TIMEOUT_US)
    group.join(CID, 100 + TIMEOUT_US)
    assert group.next_deadline_us() is None


def test_a_revocation_is_forced_exactly_at_the_timeout():
    group = group_with_pending_revocation()
    assert group.next_deadline_us() == 100 + TIMEOUT_US
    assert group.expire(100 + TIMEOUT_US - 1) == []
    assert group.expire(100 + TIMEOUT_US) == [
        GroupChange(ChangeReason.TIMED_OUT, ChangeStage.MOVED, partition, 0, 1) for partition in (2, 3)
    ]
    assert visible(group, ANN, BOB) == [[0, 1], [2, 3]]
    assert group.next_deadline_us() is None


def test_a_commit_after_the_timeout_does_not_save_a_partition():
    group = group_with_pending_revocation()
    assert group.committed(2, 5, 100 + TIMEOUT_US) == [
        GroupChange(ChangeReason.TIMED_OUT, ChangeStage.MOVED, 2, 0, 1)
    ]


def test_a_revocation_in_favour_of_a_leaver_is_cancelled():
    group = group_with_pending_revocation()
    generation = group.generation
    assert group.leave(BOB, 200) == [
        GroupChange(ChangeReason.LEFT, ChangeStage.CANCELLED, partition, 1, 0) for partition in (2, 3)
    ]
    assert visible(group, ANN) == [[0, 1, 2, 3]]
    assert group.next_deadline_us() is None
    assert group.generation == generation + 1


def test_a_cancelled_revocation_still_knows_what_was_polled():
    group = group_with_pending_revocation()
    group.leave(BOB, 200)
    group.join(BOB, 300)
    assert visible(group, ANN, BOB) == [[0, 1], []]
    assert group.next_deadline_us() == 300 + TIMEOUT_US


def test_a_redirected_revocation_keeps_its_deadline():
    group = group_with_pending_revocation()
    changes = group.join(CID, 200)
    assert changes == [GroupChange(ChangeReason.JOINED, ChangeStage.REDIRECTED, 3, 0, 2)]
    assert group.expire(100 + TIMEOUT_US) == [
        GroupChange(ChangeReason.TIMED_OUT, ChangeStage.MOVED, 2, 0, 1),
        GroupChange(ChangeReason.TIMED_OUT, ChangeStage.MOVED, 3, 0, 2),
    ]


def test_a_leaving_owner_hands_a_pending_partition_to_its_target():
    group = group_of(ANN, partitions_count=4)
    for partition in range(4):
        group.polled(partition, 9)
    group.join(BOB, 100)
    group.leave(ANN, 200, ChangeReason.EVICTED)
    assert visible(group, BOB) == [[0, 1, 2, 3]]
    assert group.next_deadline_us() is None


def test_new_partitions_go_to_those_with_the_fewest():
    group = group_of(ANN, BOB, partitions_count=3)
    assert visible(group, ANN, BOB) == [[0, 1], [2]]
    group.resize(5, 0)
    assert visible(group, ANN, BOB) == [[0, 1, 4], [2, 3]]


def test_deleted_partitions_vanish_and_the_rest_is_levelled():
    group = group_of(ANN, BOB, partitions_count=4)
    changes = group.resize(2, 0)
    assert visible(group, ANN, BOB) == [[0], [1]]
    assert changes == [
        GroupChange(ChangeReason.RESIZED, ChangeStage.MOVED, 2, 1, None),
        GroupChange(ChangeReason.RESIZED, ChangeStage.MOVED, 3, 1, None),
        GroupChange(ChangeReason.RESIZED, ChangeStage.MOVED, 1, 0, 1),
    ]
    assert not group.owner_may_commit(BOB, 3)
    assert not group.owner_may_commit(BOB, -1)


def test_a_partition_made_again_remembers_nothing():
    group = group_of(ANN, partitions_count=2)
    group.polled(1, 9)
    group.resize(1, 0)
    group.resize(2, 0)
    group.join(BOB, 0)
    assert visible(group, ANN, BOB) == [[0], [1]]


def test_deleting_a_partition_nobody_sees_is_no_new_generation():
    group = group_of(ANN, partitions_count=2)
    group.polled(1, 9)
    group.join(BOB, 0)
    before = group.generation
    assert group.resize(1, 0) == [GroupChange(ChangeReason.RESIZED, ChangeStage.MOVED, 1, 0, None)]
    assert group.generation == before
    assert group.next_deadline_us() is None


def test_the_same_partition_count_changes_nothing():
    group = group_with_pending_revocation()
    before = group.generation
    assert group.resize(4, 0) == []
    assert group.generation == before


def test_a_purge_leaves_nothing_to_wait_for():
    group = group_with_pending_revocation()
    assert group.purged() == [
        GroupChange(ChangeReason.PURGED, ChangeStage.MOVED, partition, 0, 1) for partition in (2, 3)
    ]
    assert visible(group, ANN, BOB) == [[0, 1], [2, 3]]


def test_a_purge_forgets_stored_offsets():
    group = group_of(ANN, partitions_count=2)
    group.committed(1, 100, 0)
    group.purged()
    group.polled(1, 9)
    group.join(BOB, 0)
    assert visible(group, ANN, BOB) == [[0], []]


def test_an_idle_member_coming_and_going_is_a_new_generation():
    group = group_of(ANN, partitions_count=1)
    group.join(BOB, 0)
    assert group.generation == 2
    group.leave(BOB, 0)
    assert group.generation == 3


CLIENTS = st.integers(1, 7)
PARTITIONS = st.integers(0, 11)
OFFSETS = st.integers(0, 5)


class GroupMachine(RuleBasedStateMachine):
    """Drives a group at random beside a model that knows only what was polled, committed and when.

    Everything is observed through the public queries; owners and views are keyed by client id.
    """

    def __init__(self):
        super().__init__()
        self.group = ConsumerGroup(5, TIMEOUT_US)
        self.now_us = 0
        self.slots = {}
        self.last_polled = {}
        self.stored = {}
        self.revoked_at_us = {}
        self.last_generation = 0
        self.last_view = {}

    def view(self):
        return {client: self.group.assignment(client).partitions for client in self.slots}

    def owners(self):
        members = self.group.details(0, "g").members
        clients = {slot: client for client, slot in self.slots.items()}
        return {p: clients[member.id] for member in members for p in member.partitions}

    def is_open(self, partition):
        last = self.last_polled.get(partition)
        return last is not None and self.stored.get(partition, -1) < last

    def is_overdue(self, partition):
        since_us = self.revoked_at_us.get(partition)
        return since_us is not None and self.now_us >= since_us + TIMEOUT_US

    def observe(self, slots_before, owners_before, changes, *, reasons, purged=False):
        """Check one transition that has just happened against the state before it."""
        slots = {**slots_before, **self.slots}
        owners = self.owners()
        moved = {c.partition: c for c in changes if c.stage is ChangeStage.MOVED}
        assert {c.reason for c in changes} <= reasons
        assert len({c.partition for c in changes}) == len(changes) or ChangeReason.RESIZED in reasons

        for partition in owners_before.keys() | owners.keys():
            before, after = owners_before.get(partition), owners.get(partition)
            if before == after:
                continue
            change = moved.pop(partition)
            assert change.from_member == slots.get(before)
            assert change.to_member == slots.get(after)
            if before in self.slots and after is not None:
                assert purged or not self.is_open(partition) or self.is_overdue(partition)
            self.last_polled.pop(partition, None)
        assert not moved

        view = self.view()
        for partition in list(self.revoked_at_us):
            if partition not in owners or partition in view[owners[partition]]:
                del self.revoked_at_us[partition]
        for partition, owner in owners.items():
            if partition not in view[owner]:
                self.revoked_at_us.setdefault(partition, self.now_us)

    def observe_moves(self, owners_before):
        """No partition leaves a member that stays unless balance asks for it."""
        count, members = self.group.partitions_count, len(self.slots)
        if not members:
            return
        view = self.view()
        remaining = {p: c for p, c in owners_before.items() if c in self.slots and p < count}
        taken = sum(p not in view[client] for p, client in remaining.items())
        fair, larger = divmod(count, members)
        held = sorted((Counter(remaining.values())[client] for client in self.slots), reverse=True)
        fewest = sum(max(0, n - fair - (place < larger)) for place, n in enumerate(held))
        assert taken == fewest

    @rule(client=CLIENTS)
    def join(self, client):
        slots, owners, known = dict(self.slots), self.owners(), client in self.slots
        changes = self.group.join(client, self.now_us)
        if known:
            assert changes == []
            return
        self.slots[client] = next(n for n in range(100) if n not in slots.values())
        self.observe(slots, owners, changes, reasons={ChangeReason.JOINED})
        self.observe_moves(owners)

    @precondition(lambda self: self.slots)
    @rule(
        data=st.data(),
        reason=st.sampled_from([ChangeReason.LEFT, ChangeReason.DISCONNECTED, ChangeReason.EVICTED]),
    )
    def leave(self, data, reason):
        client = data.draw(st.sampled_from(sorted(self.slots)))
        slots, owners = dict(self.slots), self.owners()
        changes = self.group.leave(client, self.now_us, reason)
        del self.slots[client]
        self.observe(slots, owners, changes, reasons={reason})
        self.observe_moves(owners)

    @rule(partitions_count=st.integers(0, 12))
    def resize(self, partitions_count):
        slots, owners, same = dict(self.slots), self.owners(), partitions_count == self.group.partitions_count
        changes = self.group.resize(partitions_count, self.now_us)
        self.observe(slots, owners, changes, reasons={ChangeReason.RESIZED})
        for known in (self.last_polled, self.stored):
            for partition in [p for p in known if p >= partitions_count]:
                del known[partition]
        if same:
            assert changes == []
        else:
            self.observe_moves(owners)

    @rule(client=CLIENTS, partition=PARTITIONS, offset=OFFSETS)
    def poll(self, client, partition, offset):
        if self.group.owner_may_poll(client, partition):
            self.group.polled(partition, offset)
            self.last_polled[partition] = max(offset, self.last_polled.get(partition, 0))

    @precondition(lambda self: self.owners())
    @rule(data=st.data(), offset=OFFSETS)
    def poll_what_is_assigned(self, data, offset):
        partition, owner = data.draw(st.sampled_from(sorted(self.owners().items())))
        self.poll(owner, partition, offset)

    @precondition(lambda self: self.owners())
    @rule(data=st.data(), offset=st.one_of(st.none(), OFFSETS))
    def commit(self, data, offset):
        partition, owner = data.draw(st.sampled_from(sorted(self.owners().items())))
        assert self.group.owner_may_commit(owner, partition)
        slots, owners = dict(self.slots), self.owners()
        changes = self.group.committed(partition, offset, self.now_us)
        self.stored[partition] = -1 if offset is None else offset
        self.observe(slots, owners, changes, reasons={ChangeReason.COMMITTED, ChangeReason.TIMED_OUT})
        assert {c.partition for c in changes} <= {partition}

    @rule(elapsed_us=st.integers(0, TIMEOUT_US + 1))
    def expire(self, elapsed_us):
        self.now_us += elapsed_us
        slots, owners = dict(self.slots), self.owners()
        changes = self.group.expire(self.now_us)
        self.observe(slots, owners, changes, reasons={ChangeReason.TIMED_OUT})
        assert not any(self.is_overdue(partition) for partition in self.revoked_at_us)

    @rule(elapsed_us=st.integers(0, TIMEOUT_US))
    def wait(self, elapsed_us):
        self.now_us += elapsed_us

    @rule()
    def purge(self):
        slots, owners = dict(self.slots), self.owners()
        changes = self.group.purged()
        self.observe(slots, owners, changes, reasons={ChangeReason.PURGED}, purged=True)
        self.last_polled.clear()
        self.stored.clear()
        assert self.group.next_deadline_us() is None

    @invariant()
    def every_partition_has_one_owner_while_there_are_members(self):
        held = [p for member in self.group.details(0, "g").members for p in member.partitions]
        assert sorted(held) == list(range(self.group.partitions_count if self.slots else 0))

    @invariant()
    def no_partition_is_visible_to_two_and_only_to_its_owner(self):
        owners, view = self.owners(), self.view()
        seen = [p for partitions in view.values() for p in partitions]
        assert len(seen) == len(set(seen))
        for client in range(1, 8):
            for partition in range(13):
                may_poll = self.group.owner_may_poll(client, partition)
                may_commit = self.group.owner_may_commit(client, partition)
                assert may_poll == (partition in view.get(client, ()))
                assert may_commit == (partition in owners and owners[partition] == client)
                assert may_commit or not may_poll

    @invariant()
    def members_differ_by_one_at_most_once_nothing_is_pending(self):
        if self.slots and not self.revoked_at_us:
            counts = [len(partitions) for partitions in self.view().values()]
            assert max(counts) - min(counts) <= 1

    @invariant()
    def only_open_partitions_are_pending_and_the_first_deadline_is_known(self):
        assert all(self.is_open(partition) for partition in self.revoked_at_us)
        deadlines = [since_us + TIMEOUT_US for since_us in self.revoked_at_us.values()]
        assert self.group.next_deadline_us() == min(deadlines, default=None)

    @invariant()
    def the_generation_grows_exactly_when_someone_sees_a_change(self):
        view = self.view()
        assert self.group.generation == self.last_generation + (view != self.last_view)
        self.last_generation, self.last_view = self.group.generation, view

    @invariant()
    def members_are_known_by_their_slots(self):
        assert [m.id for m in self.group.details(0, "g").members] == sorted(self.slots.values())
        assert self.group.members_count == len(self.slots)
        assert all(self.group.is_member(client) == (client in self.slots) for client in range(1, 8))


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroupMachine = GroupMachine.TestCase
