"""The arithmetic of partition assignment: balance, fewest moves, stability, order of dealing."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from borzoi.broker.assignment import balanced


def spread(targets, slots):
    counts = Counter(targets)
    return max(counts[slot] for slot in slots) - min(counts[slot] for slot in slots)


def moves(owners, targets):
    return sum(owner not in (None, target) for owner, target in zip(owners, targets, strict=True))


@st.composite
def situations(draw, partitions_max=40, members_max=8):
    slots = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=members_max)))
    holder = st.one_of(st.none(), st.sampled_from(slots))
    owners = draw(st.lists(holder, max_size=partitions_max))
    headings = [draw(st.one_of(st.just(owner), holder)) for owner in owners]
    return owners, headings, slots


def test_nobody_is_the_target_without_members():
    assert balanced([None] * 3, [None] * 3, []) == [None] * 3


def test_members_without_partitions_get_none():
    assert balanced([], [], [0, 1]) == []


def test_a_first_member_takes_everything():
    assert balanced([None] * 4, [None] * 4, [0]) == [0, 0, 0, 0]


def test_partitions_in_nobodys_hands_are_dealt_round_robin_in_slot_order():
    assert balanced([None] * 5, [None] * 5, [0, 1]) == [0, 1, 0, 1, 0]


def test_a_newcomer_gets_the_excess_from_the_end():
    assert balanced([0] * 5, [0] * 5, [0, 1]) == [0, 0, 0, 1, 1]


def test_a_newcomer_takes_from_each_member_only_its_excess():
    owners = [0, 0, 0, 1, 1, 1]
    assert balanced(owners, owners, [0, 1, 2]) == [0, 0, 2, 1, 1, 2]


def test_partitions_of_a_leaver_go_to_those_with_the_fewest():
    owners = [0, 0, 1, None, None]
    assert balanced(owners, owners, [0, 1, 2]) == [0, 0, 1, 2, 1]


def test_nobody_moves_for_the_sake_of_a_tie():
    owners = [1, 1, 0]
    assert balanced(owners, owners, [0, 1]) == owners


def test_a_partition_on_its_way_keeps_its_way():
    assert balanced([0] * 4, [0, 0, 2, 1], [0, 1, 2]) == [0, 0, 2, 1]


def test_a_partition_on_its_way_is_given_up_before_one_that_is_not():
    assert balanced([0] * 3, [1, 0, 0], [0, 1]) == [1, 0, 0]


def test_a_partition_on_its_way_returns_when_its_owner_has_room_again():
    assert balanced([0, 0, 0, None], [0, 0, 1, None], [0, 1, 2]) == [0, 0, 1, 2]
    assert balanced([0, 0, 0], [0, 0, None], [0]) == [0, 0, 0]


@given(situations())
def test_every_partition_has_a_target_and_shares_differ_by_one_at_most(situation):
    owners, headings, slots = situation
    targets = balanced(owners, headings, slots)
    assert len(targets) == len(owners)
    assert set(targets) <= set(slots)
    assert spread(targets, slots) <= 1


@given(situations(partitions_max=6, members_max=3))
def test_no_balanced_outcome_moves_fewer_partitions(situation):
    owners, headings, slots = situation
    fewest = min(
        moves(owners, outcome)
        for outcome in product(slots, repeat=len(owners))
        if spread(outcome, slots) <= 1
    )
    assert moves(owners, balanced(owners, headings, slots)) == fewest


@given(situations())
def test_a_decision_carried_out_is_not_revised(situation):
    owners, headings, slots = situation
    targets = balanced(owners, headings, slots)
    assert balanced(targets, targets, slots) == targets


@given(situations())
def test_a_member_loses_from_the_end_of_what_it_may_poll(situation):
    owners, headings, slots = situation
    targets = balanced(owners, headings, slots)
    for slot in slots:
        settled = [p for p, owner in enumerate(owners) if owner == headings[p] == slot]
        kept = [p for p in settled if targets[p] == slot]
        assert kept == settled[: len(kept)]
