"""Deduplication: a repeated id is dropped before offsets are given, also after a restart."""

import pytest

from borzoi.log.dedup import Deduplicator, prove_part
from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.wire.batch import NewMessage, build, prove, split, verify_header, verify_messages
from support.logs import NOW_US, flip_bit, log_files, reopen, served

SECOND_US = 1_000_000


@pytest.fixture
def log(tmp_path):
    return PartitionLog(tmp_path, 0, LogSettings(), OpenFiles())


def send(dedup, log, ids, now_us=NOW_US):
    """What a producer's batch with these ids gets: its base offset, or None if nothing of it is new."""
    batch = memoryview(build([NewMessage(b"payload %d" % each, each, b"", each) for each in ids]))
    admitted = dedup.admit(log, batch, prove(batch), now_us)
    if admitted is None:
        return None
    batch, layout = admitted
    verify_header(batch, layout)
    verify_messages(batch, layout)
    base = log.append(batch, layout, now_us)
    dedup.remember(batch, layout, now_us)
    return base


def stored(log):
    messages = served(log.read(0, 10**6, 10**9))
    assert [offset for offset, _, _ in messages] == list(range(len(messages)))
    assert all(payload == b"payload %d" % found for _, found, payload in messages)
    return [found for _, found, _ in messages]


def test_duplicates_are_dropped_and_offsets_stay_gapless(log):
    dedup = Deduplicator(100, SECOND_US)
    assert send(dedup, log, [1, 2, 3]) == 0
    assert send(dedup, log, [1, 2, 3]) is None
    assert send(dedup, log, [3, 4, 2, 5]) == 3
    assert send(dedup, log, [6, 6, 7, 6]) == 5
    assert stored(log) == [1, 2, 3, 4, 5, 6, 7]


def test_origin_times_survive_the_removal_of_a_neighbour(log):
    dedup = Deduplicator(100, SECOND_US)
    send(dedup, log, [5])
    send(dedup, log, [5, 9])
    batch = next(split(memoryview(b"".join(log.read(1, 1, 10**6).buffers))))
    assert int.from_bytes(batch[24:32], "little") + int.from_bytes(batch[256 + 28 : 256 + 32], "little") == 9


def test_messages_without_an_id_are_never_duplicates(log):
    dedup = Deduplicator(100, SECOND_US)
    assert send(dedup, log, [0, 0]) == 0
    assert send(dedup, log, [0, 1, 0]) == 2
    assert send(dedup, log, [0, 1]) == 5
    assert stored(log) == [0, 0, 0, 1, 0, 0]


def test_a_batch_that_was_not_appended_is_not_remembered(log):
    dedup = Deduplicator(100, SECOND_US)
    batch = memoryview(build([NewMessage(b"payload 1", 1)]))
    assert dedup.admit(log, batch, prove(batch), NOW_US) is not None
    assert send(dedup, log, [1]) == 0


def test_ids_are_forgotten_after_their_time(log):
    dedup = Deduplicator(100, SECOND_US)
    send(dedup, log, [1], NOW_US)
    assert send(dedup, log, [1], NOW_US + SECOND_US - 1) is None
    assert send(dedup, log, [1], NOW_US + SECOND_US) == 1


def test_the_window_is_bounded_and_the_oldest_leave_first(log):
    dedup = Deduplicator(3, SECOND_US)
    send(dedup, log, [1, 2, 3, 4, 5])
    assert send(dedup, log, [3, 4, 5]) is None
    assert send(dedup, log, [1, 2]) == 5


@pytest.mark.parametrize("batches", [[[1, 2, 3]], [[1], [2], [3]], [[1, *range(10, 40)], [2, 3]]])
def test_ids_are_recognised_after_a_restart(tmp_path, log, batches):
    for ids in batches:
        send(Deduplicator(100, SECOND_US), log, ids)
    log.close()
    again = reopen(tmp_path).log
    assert send(Deduplicator(100, SECOND_US), again, [3, 1, 99, 2]) == log.next_offset
    assert again.next_offset == log.next_offset + 1


def test_after_a_restart_the_window_is_as_long_as_before(tmp_path, log):
    dedup = Deduplicator(3, SECOND_US)
    send(dedup, log, [1, 2, 3, 4, 5])
    log.close()
    again = reopen(tmp_path).log
    dedup = Deduplicator(3, SECOND_US)
    assert send(dedup, again, [3, 4, 5]) is None
    assert send(dedup, again, [1, 2]) == 5


def test_a_restart_does_not_make_ids_younger(tmp_path, log):
    send(Deduplicator(100, SECOND_US), log, [1], NOW_US)
    log.close()
    again = reopen(tmp_path).log
    dedup = Deduplicator(100, SECOND_US)
    assert send(dedup, again, [1], NOW_US + SECOND_US - 1) is None
    assert send(dedup, again, [1], NOW_US + SECOND_US) == 1


def test_a_cleared_window_knows_nothing_not_even_from_the_log(log):
    dedup = Deduplicator(100, SECOND_US)
    send(dedup, log, [1])
    log.purge()[0].remove_files()
    dedup.clear()
    assert send(dedup, log, [1]) == 0


def test_damage_in_the_log_does_not_stop_producers(tmp_path):
    log = PartitionLog(tmp_path, 0, LogSettings(segment_bytes=1000), OpenFiles())
    for number in range(1, 10):
        send(Deduplicator(100, SECOND_US), log, [number])
    flip_bit(log_files(tmp_path)[0], 300)
    dedup = Deduplicator(100, SECOND_US)
    assert send(dedup, log, [9]) is None
    assert send(dedup, log, [10]) == 9


def test_a_served_part_of_a_batch_has_its_frames_where_they_are(log):
    dedup = Deduplicator(100, SECOND_US)
    send(dedup, log, [1, 20, 300, 4000])
    part = next(split(memoryview(b"".join(log.read(2, 2, 10**6).buffers))))
    layout = prove_part(part)
    assert [layout.position(index) for index in range(3)] == [256, 256 + 48 + 11, len(part)]
