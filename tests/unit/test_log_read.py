"""Reads over batch, run and segment borders compared with a list; damage is reported and never served."""

import errno
import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from borzoi.log.files import OpenFiles
from borzoi.log.index import ENTRY_BYTES, RUN_BYTES
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.reader import LogDamaged
from borzoi.wire.batch import prove
from support.logs import NOW_US, append, flip_bit, log_files, make_batch, offsets_of, reopen, served


def new_log(directory, segment_bytes=1 << 30, **settings_given):
    return PartitionLog(directory, 0, LogSettings(segment_bytes=segment_bytes, **settings_given), OpenFiles())


class Model:
    """The same log as a list of batches: (base offset, size in bytes of each message, time)."""

    def __init__(self):
        self.batches = []
        self.next_offset = 0

    def append(self, sizes, now_us):
        self.batches.append((self.next_offset, [48 + size for size in sizes], now_us))
        self.next_offset += len(sizes)

    def read(self, offset, count_max, bytes_max):
        taken, size_bytes = [], 0
        for base, sizes, _ in self.batches:
            if base + len(sizes) <= offset:
                continue
            if len(taken) >= count_max or size_bytes >= bytes_max:
                break
            skip = max(0, offset - base)
            chosen = range(skip, min(len(sizes), skip + count_max - len(taken)))
            taken += [base + index for index in chosen]
            size_bytes += 256 + sum(sizes[index] for index in chosen)
        return taken

    def at_or_after(self, timestamp_us):
        return next((base for base, _, now_us in self.batches if now_us >= timestamp_us), None)


shapes = st.lists(
    st.one_of(
        st.tuples(st.just(1), st.integers(1, 2000)),
        st.tuples(st.integers(1, 60), st.integers(1, 100)),
        st.tuples(st.integers(1, 4), st.sampled_from([RUN_BYTES - 304, RUN_BYTES, 40_000])),
    ),
    min_size=1,
    max_size=120,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=shapes,
    segment_bytes=st.sampled_from([4096, 50_000, 1 << 30]),
    verify=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_reads_agree_with_a_list_of_messages(tmp_path_factory, shapes, segment_bytes, verify, seed):
    directory = tmp_path_factory.mktemp("log")
    log = new_log(directory, segment_bytes, verify_reads=verify)
    model = Model()
    chooser = random.Random(seed)
    now_us = NOW_US
    for count, size in shapes:
        sizes = [size + (chooser.randrange(3) if seed % 2 else 0) for _ in range(count)]
        now_us += chooser.choice([0, 0, 1, 10])
        model.append(sizes, now_us)
        append(log, sizes, now_us)
        if chooser.random() < 0.1:
            log.read(chooser.randrange(log.next_offset), 10, 10**6)  # loads the index in between
    for opened in (log, reopen(directory, LogSettings(segment_bytes=segment_bytes)).log):
        assert opened.next_offset == model.next_offset
        for _ in range(15):
            offset = chooser.randrange(model.next_offset + 3)
            count_max = chooser.choice([1, 2, 100, 10**9, chooser.randrange(1, model.next_offset + 2)])
            bytes_max = chooser.choice([1, 1000, 20_000, 200_000, 10**12])
            assert offsets_of(opened, offset, count_max, bytes_max) == model.read(
                offset, count_max, bytes_max
            ), (offset, count_max, bytes_max)
        for _ in range(8):
            timestamp_us = chooser.randrange(NOW_US - 5, now_us + 5)
            assert opened.offset_at_or_after(timestamp_us) == model.at_or_after(timestamp_us)
        opened.close()


def test_nothing_is_read_past_the_end_or_for_no_messages(tmp_path):
    log = new_log(tmp_path)
    assert offsets_of(log) == []
    append(log, [5, 5])
    assert offsets_of(log, 2) == offsets_of(log, 10**18) == offsets_of(log, 0, 0) == []
    assert log.offset_at_or_after(NOW_US + 1) is None


def test_a_look_up_by_time_is_not_misled_by_an_empty_active_segment(tmp_path):
    log = new_log(tmp_path)
    append(log, [5], NOW_US)
    append(log, [5], NOW_US + 10)
    log.seal(NOW_US + 20)
    for opened in (log, reopen(tmp_path).log):
        assert opened.offset_at_or_after(NOW_US) == 0
        assert opened.offset_at_or_after(NOW_US + 1) == 1
        assert opened.offset_at_or_after(NOW_US + 11) is None


def test_a_reply_has_at_least_one_batch_however_small_the_limit(tmp_path):
    log = new_log(tmp_path)
    append(log, [1000] * 3)
    append(log, [1000])
    assert offsets_of(log, 0, 100, 1) == [0, 1, 2]


def test_a_payload_that_looks_like_batches_is_never_taken_for_one(tmp_path):
    inner = make_batch([40] * 3, first_id=1)
    log = new_log(tmp_path)
    for _ in range(100):
        batch = make_batch([len(inner)], log.next_offset + 1, fill=bytes(inner))
        log.append(batch, prove(batch), NOW_US)
    for first in range(0, 100, 7):
        messages = served(log.read(first, 50, 10**9))
        assert [each[0] for each in messages] == list(range(first, min(first + 50, 100)))
        assert all(payload == bytes(inner) for _, _, payload in messages)


def test_views_stay_valid_after_the_segment_is_closed_and_removed(tmp_path):
    log = new_log(tmp_path, segment_bytes=200_000)
    for _ in range(300):
        append(log, [1000])
    result = log.read(0, 120, 10**9)
    for segment in log.drop_oldest(1):
        segment.remove_files()
    log.close()
    assert [each[0] for each in served(result)] == list(range(120))


def test_a_read_sees_what_was_appended_since_the_last_one(tmp_path):
    log = new_log(tmp_path)
    for expected in range(1, 400):
        append(log, [700])
        assert offsets_of(log, max(0, expected - 150)) == list(range(max(0, expected - 150), expected))


@pytest.fixture
def stored(tmp_path):
    """200 single-message batches of 1 KB: 1304 bytes each, 13 to a run."""
    log = new_log(tmp_path)
    for index in range(200):
        append(log, [1000], NOW_US + index)
    log.close()
    return tmp_path


BATCH_BYTES = 1304


@pytest.mark.parametrize("at", [0, 8, 32, 40, 48, 60, 256, 280, 300, BATCH_BYTES - 1])
def test_a_flipped_bit_is_reported_with_its_place_and_never_served(stored, at):
    path = log_files(stored)[0]
    damaged = 100
    flip_bit(path, damaged * BATCH_BYTES + at)
    opened = reopen(stored)
    assert opened.repairs == []
    assert opened.log.next_offset == 200
    assert offsets_of(opened.log) == list(range(damaged))
    assert offsets_of(opened.log, damaged - 1) == [damaged - 1]
    assert offsets_of(opened.log, 10, 90) == list(range(10, 100))
    with pytest.raises(LogDamaged) as caught:
        opened.log.read(damaged, 10, 10**9)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (
        path,
        damaged * BATCH_BYTES,
        damaged,
    )
    assert str(path) in str(caught.value)
    # Behind the run that holds the damage everything is as before.
    assert offsets_of(opened.log, 104) == list(range(104, 200))


def test_damage_in_one_segment_ends_a_read_before_the_next(tmp_path):
    log = new_log(tmp_path, segment_bytes=13 * BATCH_BYTES)
    for _ in range(39):
        append(log, [1000])
    flip_bit(log_files(tmp_path)[1], 5 * BATCH_BYTES + 500)
    assert offsets_of(log, 0) == list(range(18))
    assert offsets_of(log, 26) == list(range(26, 39))
    with pytest.raises(LogDamaged):
        log.read(18, 1, 10**9)


def test_a_look_up_by_time_reports_damage_instead_of_guessing(stored):
    flip_bit(log_files(stored)[0], 100 * BATCH_BYTES + 17, 7)
    log = reopen(stored).log
    with pytest.raises(LogDamaged):
        log.offset_at_or_after(NOW_US + 101)
    assert log.offset_at_or_after(NOW_US + 99) == 99
    assert log.offset_at_or_after(NOW_US + 150) == 150


def test_without_verification_a_broken_chain_of_headers_is_still_reported(stored):
    flip_bit(log_files(stored)[0], 100 * BATCH_BYTES + 8)
    log = reopen(stored, LogSettings(verify_reads=False)).log
    assert offsets_of(log, 95, 5) == [95, 96, 97, 98, 99]
    with pytest.raises(LogDamaged):
        log.read(100, 1, 10**9)


@pytest.mark.parametrize("field", range(0, ENTRY_BYTES, 4))
@pytest.mark.parametrize("slot", [0, 7, 14])
def test_a_flipped_bit_in_the_index_costs_nothing(stored, slot, field):
    for bit in (0, 5):
        flip_bit(log_files(stored, "index")[0], slot * ENTRY_BYTES + field, bit)
        opened = reopen(stored)
        chooser = random.Random(field)
        for _ in range(5):
            offset = chooser.randrange(200)
            assert offsets_of(opened.log, offset) == list(range(offset, 200))
        assert opened.log.offset_at_or_after(NOW_US + 120) == 120
        append(opened.log, [1000], NOW_US + 200)
        assert offsets_of(opened.log, 150) == list(range(150, 201))
        opened.log.close()
        path = log_files(stored)[0]
        path.write_bytes(path.read_bytes()[:-BATCH_BYTES])


def test_an_index_that_does_not_fit_its_log_is_made_anew_once_and_reported(stored):
    flip_bit(log_files(stored, "index")[0], 3 * ENTRY_BYTES + 16, 3)
    opened = reopen(stored)
    assert offsets_of(opened.log) == list(range(200))
    assert opened.reported == ["index does not fit its log, made anew"]
    append(opened.log, [10])
    opened.log.close()
    again = reopen(stored)
    assert offsets_of(again.log) == list(range(201))
    assert again.repairs == []


def test_an_index_and_a_log_damaged_in_the_same_place_still_serve_the_rest_up_to_it(stored):
    flip_bit(log_files(stored, "index")[0], 3 * ENTRY_BYTES + 16, 3)
    flip_bit(log_files(stored)[0], 100 * BATCH_BYTES + 700)
    log = reopen(stored).log
    assert offsets_of(log) == list(range(100))
    with pytest.raises(LogDamaged) as caught:
        log.read(150, 1, 10**9)
    assert caught.value.offset == 100
    assert append(log, [10]) == 200
    assert offsets_of(log, 200) == [200]


def test_a_log_file_that_shrank_while_open_is_an_error_and_not_the_end_of_the_process(stored):
    log = reopen(stored).log
    path = log_files(stored)[0]
    path.write_bytes(path.read_bytes()[: 50 * BATCH_BYTES])
    for count in (1, 200):
        with pytest.raises(OSError, match="shorter") as caught:
            log.read(60, count, 10**9)
        assert caught.value.errno == errno.EIO


def test_offsets_in_a_reply_follow_each_other_over_many_segments(tmp_path):
    log = new_log(tmp_path, segment_bytes=3000)
    for sizes in itertools.islice(itertools.cycle([[10], [500] * 3, [2000], [1, 2, 3]]), 80):
        append(log, sizes)
    assert log.segments_count > 20
    assert offsets_of(log) == list(range(log.next_offset))
