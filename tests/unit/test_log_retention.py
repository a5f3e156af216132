"""Which segments go, by time and by size, and that the next offset outlives them."""

import pytest

from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog, retire
from borzoi.log.retention import Expiry, deletable, expired, oversized
from borzoi.model.limits import U64_MAX
from support.logs import NOW_US, append, log_files, offsets_of, reopen

BATCH_BYTES = 404


def filled(directory, batches, per_segment=2, start_us=NOW_US, step_us=10):
    """One message of 100 bytes per batch, `step_us` apart."""
    directory.mkdir(exist_ok=True)
    settings = LogSettings(segment_bytes=per_segment * BATCH_BYTES)
    log = PartitionLog(directory, 0, settings, OpenFiles())
    for number in range(batches):
        append(log, [100], start_us + number * step_us)
    return log


@pytest.mark.parametrize(
    ("now_us", "segments", "seal_active"),
    [
        (NOW_US + 110 - 1, 0, False),
        (NOW_US + 110, 1, False),  # its last message is of time 10
        (NOW_US + 130, 2, False),
        (NOW_US + 139, 2, False),
        (NOW_US + 140, 3, True),  # the active one holds time 40
    ],
)
def test_segments_expire_when_their_last_message_does(tmp_path, now_us, segments, seal_active):
    log = filled(tmp_path, 5)
    assert expired(log, 100, now_us) == Expiry(seal_active, segments)
    log.close()
    assert expired(reopen(tmp_path).log, 100, now_us) == Expiry(seal_active, segments)


@pytest.mark.parametrize("never", [0, U64_MAX])
def test_what_never_expires_stays(tmp_path, never):
    assert expired(filled(tmp_path, 5), never, U64_MAX) == Expiry(seal_active=False, segments=0)


def test_an_empty_log_has_nothing_to_expire(tmp_path):
    log = PartitionLog(tmp_path, 0, LogSettings(), OpenFiles())
    assert expired(log, 1, U64_MAX) == Expiry(seal_active=False, segments=0)
    append(log, [1])
    log.seal(NOW_US)
    assert expired(log, 1, U64_MAX - 1) == Expiry(seal_active=False, segments=1)


def test_an_idle_active_segment_is_sealed_then_deleted_and_the_next_offset_survives(tmp_path):
    log = filled(tmp_path, 5)
    decision = expired(log, 100, NOW_US + 10_000)
    assert decision.seal_active
    log.seal(NOW_US + 10_000)
    for path in retire(log.drop_oldest(decision.segments)):
        path.unlink()
    for _ in range(2):
        assert (log.first_offset, log.next_offset, log.messages_count, log.size_bytes) == (5, 5, 0, 0)
        assert offsets_of(log) == []
        assert [path.name for path in log_files(tmp_path)] == [f"{5:020d}.log"]
        log.close()
        log = reopen(tmp_path).log
    assert append(log, [10], NOW_US + 10_001) == 5
    assert offsets_of(log) == [5]


def test_reads_older_than_the_first_retained_message_start_there(tmp_path):
    log = filled(tmp_path, 7)
    retire(log.drop_oldest(2))
    assert log.first_offset == 4
    assert offsets_of(log, 0) == [4, 5, 6]
    assert log.offset_at_or_after(0) == 4
    assert log.size_bytes == 3 * BATCH_BYTES
    log.close()
    assert offsets_of(reopen(tmp_path).log, 1, 2) == [4, 5]


def test_damaged_or_lost_segments_neither_expire_early_nor_stop_the_others(tmp_path):
    log = filled(tmp_path, 7)
    log.close()
    first, second = log_files(tmp_path)[:2]
    first.write_bytes(b"\xff" * first.stat().st_size)
    second.write_bytes(b"")
    opened = reopen(tmp_path).log
    written_us = first.stat().st_mtime_ns // 1000
    assert expired(opened, 100, written_us + 99).segments == 0
    assert expired(opened, 100, written_us + 100) == Expiry(seal_active=True, segments=4)


def test_the_active_segment_is_never_dropped(tmp_path):
    log = filled(tmp_path, 5)
    assert [segment.base_offset for segment in log.drop_oldest(99)] == [0, 2]
    assert log.drop_oldest(1) == []
    assert offsets_of(log) == [4]


def test_an_oversized_topic_loses_its_oldest_segments_over_all_partitions(tmp_path):
    logs = [filled(tmp_path / "a", 6), filled(tmp_path / "b", 6, start_us=NOW_US + 15)]
    total = sum(log.size_bytes for log in logs)
    assert oversized(logs, total * 2) == [0, 0]
    assert oversized(logs, total) == [1, 0]  # to get below 90 % one segment of six has to go
    assert oversized(logs, total * 8 // 10) == [1, 1]
    assert oversized(logs, total * 10 // 9 + 10) == [0, 0]
    assert oversized(logs, total * 10 // 9 - 10) == [1, 0]
    assert oversized(logs, 1) == [2, 2]
    assert oversized(logs, 0) == oversized(logs, U64_MAX) == [0, 0]
    assert oversized([], 5) == []


def test_segments_that_a_consumer_still_needs_are_not_deletable(tmp_path):
    log = filled(tmp_path, 7)
    assert deletable(log, 99, None) == 3
    assert deletable(log, 1, None) == 1
    assert deletable(log, 99, 0) == 0
    assert deletable(log, 99, 1) == 1
    assert deletable(log, 99, 4) == 2
    assert deletable(log, 99, 100) == 3


def test_deleting_is_gapless_after_a_crash_between_two_files(tmp_path):
    log = filled(tmp_path, 8)
    dropped = log.drop_oldest(3)
    retire(dropped[:2])
    log.close()
    opened = reopen(tmp_path)
    assert opened.repairs == []
    assert offsets_of(opened.log) == [4, 5, 6, 7]
