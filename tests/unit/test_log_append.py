"""Appending: rolling, sealing, purging, and disks that are full or fail in the middle."""

import errno
import os

import pytest

import borzoi.log.files
from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog, retire
from borzoi.log.segment import Segment
from borzoi.model.limits import U64_MAX
from support.logs import NOW_US, append, log_files, offsets_of, reopen


def new_log(directory, **settings_given):
    return PartitionLog(directory, 0, LogSettings(**settings_given), OpenFiles())


class Disk:
    """Stands in for `os.pwrite`: lets `budget` bytes pass, then fails; part of a write may get through."""

    def __init__(self, error=errno.ENOSPC):
        self.budget = None
        self.error = error
        self.pwrite = os.pwrite

    def __call__(self, fd, data, position):
        if self.budget is None:
            return self.pwrite(fd, data, position)
        if not self.budget:
            raise OSError(self.error, os.strerror(self.error))
        written = self.pwrite(fd, bytes(data)[: self.budget], position)
        self.budget -= written
        return written


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    monkeypatch.setattr(borzoi.log.files.os, "pwrite", disk)
    return disk


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("sizes", [[100], [5000] * 4])
def test_a_disk_that_fails_after_any_number_of_bytes_leaves_the_log_as_it_was(tmp_path, disk, error, sizes):
    disk.error = error
    log = new_log(tmp_path)
    append(log, [50])
    append(log, [60])
    batch_bytes = 256 + sum(48 + size for size in sizes)
    for budget in [*range(0, batch_bytes, max(1, batch_bytes // 60)), *range(batch_bytes, batch_bytes + 32)]:
        before = (log.next_offset, log.size_bytes, log.appended_messages, log.last_timestamp_us)
        disk.budget = budget
        with pytest.raises(OSError) as caught:
            append(log, sizes, NOW_US + 5)
        assert caught.value.errno == error
        assert (log.next_offset, log.size_bytes, log.appended_messages, log.last_timestamp_us) == before
        assert log_files(tmp_path)[0].stat().st_size == log.size_bytes
        assert offsets_of(log, max(0, log.next_offset - 20)) == list(
            range(max(0, log.next_offset - 20), log.next_offset)
        )
        disk.budget = None
        copy = reopen(tmp_path)  # as after a crash right now
        assert copy.log.next_offset == log.next_offset
        copy.log.close()
        append(log, [7])
    log.close()
    assert offsets_of(reopen(tmp_path).log) == list(range(log.next_offset))


def test_an_index_entry_that_cannot_be_restored_is_mended_on_the_next_load(tmp_path, disk):
    log = new_log(tmp_path)
    append(log, [50])
    append(log, [60])
    size = log.size_bytes
    disk.budget = 256 + 48 + 70 + 24  # the log gets through, three quarters of the index entry too
    with pytest.raises(OSError, match="space"):
        append(log, [70])
    disk.budget = None
    assert log.size_bytes == size
    append(log, [80])
    log.close()
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0, 1, 2]


def test_a_failed_cut_after_a_failed_append_is_overwritten_by_the_next_one(tmp_path, disk, monkeypatch):
    log = new_log(tmp_path)
    append(log, [50])
    disk.budget = 400

    def no_truncate(fd, size):
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(borzoi.log.files.os, "ftruncate", no_truncate)
        with pytest.raises(OSError, match="space"):
            append(log, [3000])
    disk.budget = None
    append(log, [20])
    log.close()
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0, 1]
    assert opened.log.next_offset == 2


def test_a_segment_that_cannot_be_created_leaves_no_files_and_the_log_usable(tmp_path, monkeypatch):
    log = new_log(tmp_path, segment_bytes=1000)
    append(log, [1000])
    real_open = os.open

    def failing(path, *rest, **named):
        if str(path).endswith(f"{1:020d}.index"):
            raise OSError(errno.ENOSPC, "full")
        return real_open(path, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(OSError, match="full"):
            append(log, [10])
    assert [path.name for path in log_files(tmp_path)] == [f"{0:020d}.log"]
    assert append(log, [10]) == 1
    assert offsets_of(log) == [0, 1]


def test_creating_a_segment_never_touches_files_that_are_there(tmp_path):
    log = new_log(tmp_path)
    append(log, [100])
    before = log_files(tmp_path)[0].read_bytes()
    with pytest.raises(FileExistsError):
        Segment.create(tmp_path, 0, OpenFiles(), NOW_US)
    assert log_files(tmp_path)[0].read_bytes() == before
    assert offsets_of(log) == [0]


def test_segments_roll_by_size(tmp_path):
    log = new_log(tmp_path, segment_bytes=1000)
    for _ in range(10):
        append(log, [196])  # 500 bytes a batch: two reach the size
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    assert log.size_bytes == 5000 == sum(path.stat().st_size for path in log_files(tmp_path))


def test_segments_roll_by_age_of_their_first_message(tmp_path):
    log = new_log(tmp_path, segment_age_us=100)
    append(log, [1], NOW_US)
    append(log, [1], NOW_US + 99)
    append(log, [1], NOW_US + 100)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.close()
    log = reopen(tmp_path, log.settings).log
    append(log, [1], NOW_US + 199)
    append(log, [1], NOW_US + 200)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_an_empty_segment_that_waited_long_does_not_roll_after_its_first_message(tmp_path):
    log = new_log(tmp_path, segment_age_us=100)
    append(log, [1], NOW_US)
    log.seal(NOW_US)
    log.close()
    log = reopen(tmp_path, log.settings).log
    append(log, [1], NOW_US + 10_000)
    append(log, [1], NOW_US + 10_001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_sealing_twice_makes_one_empty_segment(tmp_path):
    log = new_log(tmp_path)
    log.seal(NOW_US)
    assert log.segments == []
    append(log, [1])
    log.seal(NOW_US)
    log.seal(NOW_US)
    log.roll(NOW_US)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_broker_time_never_goes_back_not_even_over_a_restart_with_an_empty_segment(tmp_path):
    log = new_log(tmp_path)
    append(log, [1], NOW_US)
    log.seal(NOW_US)
    log.close()
    log = reopen(tmp_path).log
    assert log.last_timestamp_us == NOW_US
    append(log, [1], NOW_US - 1000)
    assert log.last_timestamp_us == NOW_US
    assert log.offset_at_or_after(NOW_US) == 0


def test_purge_restarts_at_zero_and_old_files_are_gone(tmp_path):
    log = new_log(tmp_path, segment_bytes=500)
    for _ in range(5):
        append(log, [400])
    leftover = retire(log.purge())
    assert (log.next_offset, log.size_bytes, log.messages_count, log.first_offset) == (0, 0, 0, 0)
    assert offsets_of(log) == []
    assert append(log, [10]) == 0
    assert len(leftover) == 10
    assert all(path.exists() for path in leftover)
    log.close()
    opened = reopen(tmp_path)  # before anybody removed the leftovers
    assert offsets_of(opened.log) == [0]
    assert not any(path.exists() for path in leftover)


def test_retiring_twice_under_the_same_name_keeps_the_files_apart(tmp_path):
    log = new_log(tmp_path)
    leftover = []
    for _ in range(3):
        append(log, [10])
        leftover += retire(log.purge())
    assert len(set(leftover)) == 6
    assert all(path.exists() for path in leftover)


def test_preallocated_space_is_given_back_when_sealed_and_when_closed(tmp_path):
    log = new_log(tmp_path, segment_bytes=1 << 20, preallocate=True)
    append(log, [100])
    assert log_files(tmp_path)[0].stat().st_size == 1 << 20
    log.seal(NOW_US)
    assert log_files(tmp_path)[0].stat().st_size == log.size_bytes
    append(log, [100])
    log.close()
    assert log_files(tmp_path)[1].stat().st_size == 404
    opened = reopen(tmp_path)
    assert opened.repairs == []
    assert offsets_of(opened.log) == [0, 1]


def test_preallocated_space_after_a_crash_is_not_taken_for_messages(tmp_path):
    log = new_log(tmp_path, segment_bytes=1 << 20, preallocate=True)
    append(log, [100])
    opened = reopen(tmp_path, log.settings)
    assert offsets_of(opened.log) == [0]
    assert append(opened.log, [5]) == 1
    assert log_files(tmp_path, "torn") == []


def test_failing_preallocation_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(fd, offset, length):
        raise OSError(errno.ENOSPC, "full")

    log = new_log(tmp_path, preallocate=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="full"):
            append(log, [1])
    assert list(tmp_path.iterdir()) == []
    log.settings = LogSettings()
    assert append(log, [1]) == 0


def test_ageless_is_the_default():
    assert LogSettings().segment_age_us == U64_MAX
