"""Where a query stands, what is lost, how much is read at a time, and how that is cut into tasks.

Byte counts and cuts come from a real broker; hypothesis chooses the messages and the limits.
"""

import json

import pytest

pytest.importorskip("pyspark", reason="needs borzoi[spark]")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from borzoi.model.errors import InvalidOptionValue
from borzoi.model.replies import PartitionExtent, TopicExtent
from borzoi.spark import plan
from borzoi.spark.offsets import Bound, CheckpointDamaged, Positions, Word, resolve
from borzoi.spark.options import Target
from borzoi.spark.plan import DataLoss, Limits, Split
from borzoi.testing import Server

TOPIC = Target("iggy://a:b@localhost", "orders", "events")


def extent(*partitions, created_at_us=1000):
    """Of partitions given as (first offset, next offset)."""
    found = tuple(
        PartitionExtent(number, first, last, last, 0) for number, (first, last) in enumerate(partitions)
    )
    return TopicExtent(1, 1, created_at_us, found)


def at(*offsets, created_at_us=1000):
    return Positions(created_at_us, dict(enumerate(offsets)))


class Asked:
    """The look-ups that only a server can answer."""

    def __init__(self, times=None, committed=None):
        self.times, self.committed = times or {}, committed or {}

    def offset_at(self, partition_id, timestamp_us):
        return self.times.get(partition_id)

    def committed_offset(self, partition_id, group):
        return self.committed.get(partition_id)


def test_small_splits_share_a_task():
    kb = [
        plan.Split(number, 0, size_kb, 7, 1024) for number, size_kb in enumerate((1, 1, 255, 1, 300, 200, 50))
    ]
    numbers = [[split.partition_id for split in task] for task in plan.tasks(kb, splits_min=None)]
    assert numbers == [[0, 1], [2, 3], [4], [5, 6]]
    assert plan.tasks(kb, splits_min=2) == [(split,) for split in kb]
    assert plan.tasks([], splits_min=None) == []


def test_times_are_shown_to_people():
    assert plan.moment(1_767_225_600_000_001) == "2026-01-01T00:00:00.000001+00:00"
    assert plan.moment(2**64) == "18446744073709551616 us"


class TestPositions:
    def test_equal_positions_have_equal_texts_however_they_came_about(self):
        one = Positions(5, {10: 1, 2: 7})
        other = Positions.from_json(json.loads('{"partitions": {"2": 7, "10": 1}, "created_at": 5}'))
        assert json.dumps(one.to_json()) == json.dumps(other.to_json())
        assert one.to_json() == {"created_at": 5, "partitions": {"2": 7, "10": 1}}

    def test_the_end_of_a_first_batch_says_where_that_began(self):
        end = Positions(5, {0: 7}, began=Positions(4, {0: 3}))
        assert Positions.from_json(json.loads(json.dumps(end.to_json()))) == end
        assert end.is_at(Positions(5, {0: 7}))
        assert not end.is_at(Positions(4, {0: 7}))

    @pytest.mark.parametrize(
        "text",
        [
            "{}",
            "7",
            '{"0": 5}',
            '{"created_at": 1, "partitions": {"x": 1}}',
            '{"created_at": 1, "partitions": {"0": -1}}',
            '{"created_at": "now", "partitions": {}}',
            '{"created_at": 1, "partitions": {}, "began": {"0": 1}}',
        ],
    )
    def test_what_another_source_wrote_is_refused(self, text):
        with pytest.raises(CheckpointDamaged, match="was the checkpoint another query's"):
            Positions.from_json(json.loads(text))


class TestBounds:
    EXTENT = extent((3, 10), (0, 4))

    def resolved(self, bound, asked=None):
        return resolve(bound, self.EXTENT, asked or Asked(), "g")

    def test_earliest_and_latest(self):
        assert self.resolved(Bound(Word.EARLIEST)) == {0: 3, 1: 0}
        assert self.resolved(Bound(Word.LATEST)) == {0: 10, 1: 4}

    def test_partitions_that_are_not_named_are_at_the_default(self):
        assert self.resolved(Bound(each={1: 2})) == {0: 3, 1: 2}
        assert self.resolved(Bound(Word.LATEST, each={1: 2})) == {0: 10, 1: 2}

    def test_a_group_goes_on_behind_what_it_committed_and_starts_early_elsewhere(self):
        assert self.resolved(Bound(Word.GROUP), Asked(committed={0: 6})) == {0: 7, 1: 0}

    def test_a_moment_behind_the_last_message_is_the_end(self):
        assert self.resolved(Bound(timestamp_us=5), Asked(times={0: 8})) == {0: 8, 1: 4}

    def test_an_offset_that_is_not_there_yet_is_refused(self):
        with pytest.raises(InvalidOptionValue, match="partition 1 ends before offset 4; offset 5"):
            self.resolved(Bound(each={1: 5}))
        assert self.resolved(Bound(each={1: 4}))[1] == 4

    def test_a_partition_that_is_not_there_is_refused(self):
        with pytest.raises(InvalidOptionValue, match="partition 2, but the topic has 2 partitions"):
            self.resolved(Bound(each={2: 0}))


class TestLosses:
    def test_nothing_is_lost_where_everything_is_there(self):
        assert plan.begins(at(3, 4), extent((3, 10), (0, 4))) == ({0: 3, 1: 4}, [])

    def test_a_new_partition_is_read_from_its_first_message(self):
        assert plan.begins(at(3), extent((3, 10), (0, 4))) == ({0: 3, 1: 0}, [])

    def test_retention_that_was_faster_is_named_with_the_exact_gap(self):
        begins, losses = plan.begins(at(3), extent((7, 10)))
        assert begins == {0: 7}
        assert losses == ["partition 0: offsets [3, 7) were deleted by retention before they were read"]

    def test_a_purged_topic_is_read_from_its_start(self):
        begins, (loss,) = plan.begins(at(9), extent((0, 2)))
        assert begins == {0: 0}
        assert "partition 0 was purged: it ends before offset 2, and offset 9 was next" in loss

    def test_a_deleted_partition_is_named(self):
        begins, losses = plan.begins(at(1, 2), extent((0, 1)))
        assert begins == {0: 1}
        assert losses == ["partition 1 was deleted; offset 2 was next"]

    def test_a_topic_that_was_made_anew_is_another_one(self):
        begins, (loss,) = plan.begins(at(5, created_at_us=1), extent((0, 9), created_at_us=2))
        assert begins == {0: 0}
        assert "deleted and created again" in loss

    def test_losses_are_an_error_that_says_what_to_do(self):
        with pytest.raises(DataLoss, match=r"orders/events: gone; too\..*failOnDataLoss.*new checkpoint"):
            plan.lose(TOPIC, ["gone", "too"], fail=True)
        plan.lose(TOPIC, [], fail=True)

    def test_losses_are_warnings_if_the_user_wants_so(self, caplog):
        plan.lose(TOPIC, ["gone"], fail=False)
        assert "failOnDataLoss is off: topic orders/events: gone" in caplog.text


class TestRanges:
    def test_they_are_what_lies_between_two_positions(self):
        assert plan.ranges(at(2, 3), at(5, 3), extent((0, 9), (0, 9))) == ({0: (2, 5)}, [])

    def test_a_new_partition_begins_at_its_first_message(self):
        assert plan.ranges(at(2), at(2, 3), extent((0, 9), (0, 9))) == ({1: (0, 3)}, [])

    def test_what_retention_took_since_it_was_planned_is_named(self):
        found, losses = plan.ranges(at(2), at(8), extent((5, 9)))
        assert found == {0: (5, 8)}
        assert losses == ["partition 0: offsets [2, 5) were deleted by retention before they were read"]

    def test_if_retention_took_all_of_it_only_that_is_named(self):
        found, losses = plan.ranges(at(2), at(4), extent((5, 9)))
        assert found == {}
        assert losses == ["partition 0: offsets [2, 4) were deleted by retention before they were read"]

    def test_a_purge_that_was_planned_for_is_no_loss_again(self):
        assert plan.ranges(at(9), at(2), extent((0, 2))) == ({0: (0, 2)}, [])

    def test_a_purge_since_it_was_planned_is(self):
        found, (loss,) = plan.ranges(at(2), at(9), extent((0, 1)))
        assert found == {}
        assert "purged" in loss

    def test_a_topic_made_anew_that_was_planned_for_is_read_from_its_start(self):
        start, end = at(9, created_at_us=1), at(2, 4, created_at_us=2)
        assert plan.ranges(start, end, extent((0, 2), (1, 5), created_at_us=2)) == (
            {0: (0, 2), 1: (1, 4)},
            [],
        )

    def test_a_topic_made_anew_since_it_was_planned_has_none_of_it(self):
        found, (loss,) = plan.ranges(at(1), at(2), extent((0, 2), created_at_us=2))
        assert found == {}
        assert "deleted and created again" in loss


class TestRowLimits:
    @given(
        st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), min_size=1, max_size=6),
        st.integers(1, 300),
    )
    def test_they_are_kept_exactly_and_every_round_gets_on(self, partitions, rows_max):
        """To the end of all partitions, in as few rounds as the limit allows."""
        here = extent(*((first, first + count) for first, count in partitions))
        total = sum(count for _, count in partitions)
        starts = {number: first for number, (first, _) in enumerate(partitions)}
        rounds = 0
        while True:
            ends = plan.ends(starts, here, None, Limits(rows_max=rows_max), no_cuts)
            read = sum(ends[number] - starts[number] for number in starts)
            if not read:
                break
            assert all(ends[number] >= starts[number] for number in starts)
            assert read == min(rows_max, total)
            total, rounds, starts = total - read, rounds + 1, ends
        assert total == 0
        assert starts == {each.partition_id: each.next_offset for each in here.partitions}

    def test_rows_are_shared_by_lag(self):
        ends = plan.ends({0: 0, 1: 0}, extent((0, 300), (0, 100)), None, Limits(rows_max=100), no_cuts)
        assert ends == {0: 75, 1: 25}

    def test_no_partition_with_messages_waits_for_ever(self):
        ends = plan.ends({0: 0, 1: 0}, extent((0, 10_000), (0, 1)), None, Limits(rows_max=10), no_cuts)
        assert ends == {0: 9, 1: 1}

    def test_a_target_is_not_passed(self):
        here = extent((0, 9), (0, 9), (0, 9))
        assert plan.ends({0: 2, 1: 5, 2: 0}, here, at(4, 3), Limits(), no_cuts) == {0: 4, 1: 5, 2: 0}


def no_cuts(cuts):
    raise AssertionError("rows need no bytes")


@pytest.fixture(scope="module")
def client():
    with Server(memory=True, settings={"system.segment.size": "1 MiB"}) as server, server.client() as client:
        client.create_stream("s")
        yield client


@pytest.fixture(scope="module")
def new_topic(client):
    """Makes topics of batches, each given by its partition, its number of messages and their size."""
    numbers = iter(range(10_000))

    def make(partitions_count, batches):
        name = f"t{next(numbers)}"
        client.create_topic("s", name, partitions_count)
        for partition_id, count, size in batches:
            client.send_messages("s", name, partition_id % partitions_count, [b"x" * size] * count)
        return lambda cuts=(): client.get_topic_extent("s", name, cuts)

    return make


BATCHES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.sampled_from([10, 300, 2000, 20_000])), max_size=14
)
# A module-wide server, and topics that are made anew for every example.
BROKER = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
RUN_BYTES = 16 * 1024


class TestByteLimits:
    @BROKER
    @given(BATCHES, st.integers(1, 300_000))
    def test_every_round_gets_on_and_exceeds_the_limit_by_a_run_per_partition_at_most(
        self, new_topic, batches, bytes_max
    ):
        ask = new_topic(3, batches)
        here = ask()
        starts = {each.partition_id: 0 for each in here.partitions}
        largest = max((256 + count * (48 + size) for _, count, size in batches), default=0)
        for _ in range(200):
            ends = plan.ends(starts, here, None, Limits(bytes_max=bytes_max), ask)
            behind = [each for each in here.partitions if each.next_offset > starts[each.partition_id]]
            if not behind:
                break
            for each in behind:
                assert starts[each.partition_id] < ends[each.partition_id] <= each.next_offset
            read = bytes_between(ask, starts, ends)
            assert read <= bytes_max + len(behind) * (largest + RUN_BYTES)
            starts = ends
        assert starts == {each.partition_id: each.next_offset for each in here.partitions}

    def test_a_topic_that_fits_is_asked_for_once(self, new_topic):
        ask = new_topic(2, [(0, 10, 100), (1, 10, 100)])
        here = ask()
        assert plan.ends({0: 0, 1: 0}, here, None, Limits(bytes_max=1 << 20), no_cuts) == {0: 10, 1: 10}

    def test_bytes_are_shared_by_lag(self, new_topic):
        ask = new_topic(2, [(0, 1, 20_000)] * 30 + [(1, 1, 20_000)] * 10)
        ends = plan.ends({0: 0, 1: 0}, ask(), None, Limits(bytes_max=400_000), ask)
        assert ends == {0: 14, 1: 4}

    def test_both_limits_count(self, new_topic):
        ask = new_topic(1, [(0, 1, 20_000)] * 30)
        assert plan.ends({0: 0}, ask(), None, Limits(200_000, 3), ask) == {0: 3}
        assert plan.ends({0: 0}, ask(), None, Limits(200_000, 25), ask) == {0: 9}


class TestSplits:
    @BROKER
    @given(
        BATCHES,
        st.tuples(st.floats(0, 1), st.floats(0, 1)),
        st.one_of(st.none(), st.integers(1, 200_000)),
        st.one_of(st.none(), st.integers(1, 20)),
    )
    def test_they_are_the_ranges_without_gap_or_overlap(
        self, new_topic, batches, part, bytes_max, splits_min
    ):
        ask = new_topic(3, batches)
        low, high = sorted(part)
        wanted = {
            each.partition_id: (int(each.next_offset * low), int(each.next_offset * high))
            for each in ask().partitions
            if int(each.next_offset * low) < int(each.next_offset * high)
        }
        found = plan.splits(wanted, 7, ask, split_bytes_max=bytes_max, splits_min=splits_min)
        joined: dict[int, tuple[int, int]] = {}
        for split in found:
            assert split.start < split.end
            assert split.created_at_us == 7
            first, last = joined.get(split.partition_id, (split.start, split.start))
            assert last == split.start
            joined[split.partition_id] = first, split.end
        assert joined == wanted
        assert len(found) >= len(wanted)

    def test_wishes_for_tiny_splits_cost_a_bounded_number_of_requests(self, new_topic):
        ask = new_topic(1, [(0, 10, 20_000)] * 5)
        asked = []

        def count(cuts):
            asked.append(cuts)
            return ask(cuts)

        found = plan.splits({0: (0, 50)}, 7, count, split_bytes_max=1, splits_min=None)
        assert [split.start for split in found] == [0, 10, 20, 30, 40]
        assert len(asked) <= 2 + 1_100_000 // (16 << 10)
        huge = plan._parts(1 << 60, 1)
        assert huge <= 1000

    def test_without_wishes_a_range_is_one_split(self, new_topic):
        ask = new_topic(1, [(0, 10, 1000)] * 5)
        (split,) = plan.splits({0: (0, 50)}, 7, ask, split_bytes_max=None, splits_min=None)
        assert split == Split(0, 0, 50, 7, 1073)

    def test_they_are_of_about_equal_size_and_begin_where_the_index_does(self, new_topic):
        ask = new_topic(1, [(0, 10, 2000)] * 40)
        found = plan.splits({0: (0, 400)}, 7, ask, split_bytes_max=250_000, splits_min=None)
        assert [split.end - split.start for split in found] == [100, 100, 100, 100]
        assert all(split.start % 10 == 0 for split in found)

    @pytest.mark.parametrize(("bytes_max", "count"), [(170_000, 1), (160_000, 2)])
    def test_a_range_is_cut_if_it_is_more_than_a_quarter_too_large(self, new_topic, bytes_max, count):
        ask = new_topic(1, [(0, 10, 2000)] * 10)  # 207,360 bytes
        found = plan.splits({0: (0, 100)}, 7, ask, split_bytes_max=bytes_max, splits_min=None)
        assert len(found) == count

    def test_there_are_at_least_as_many_as_wanted_where_the_index_allows(self, new_topic):
        ask = new_topic(2, [(0, 10, 2000)] * 30 + [(1, 10, 2000)] * 10)
        found = plan.splits({0: (0, 300), 1: (0, 100)}, 7, ask, split_bytes_max=None, splits_min=8)
        assert len(found) >= 8
        assert sum(split.partition_id == 0 for split in found) > sum(
            split.partition_id == 1 for split in found
        )

    def test_an_end_before_the_end_of_the_log_counts(self, new_topic):
        ask = new_topic(1, [(0, 10, 2000)] * 40)
        found = plan.splits({0: (0, 100)}, 7, ask, split_bytes_max=110_000, splits_min=None)
        assert [(split.start, split.end) for split in found] == [(0, 50), (50, 100)]

    def test_nothing_is_no_split(self):
        assert plan.splits({}, 7, no_cuts, split_bytes_max=1, splits_min=5) == []


def bytes_between(ask, starts, ends):
    from borzoi.model.requests import ByteCut

    def after(offsets):
        found = ask([ByteCut(number, offset, 0) for number, offset in offsets.items()])
        return sum(each.bytes_after for each in found.partitions)

    return after(starts) - after(ends)
