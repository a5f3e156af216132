"""Verified small batches do not write their index entry at once; nothing may depend on it."""

import shutil

import pytest

from borzoi.log.files import OpenFiles
from borzoi.log.index import ENTRY_BYTES, RUN_BYTES
from borzoi.log.offsets import FILE_NAME, ConsumerOffsets, consumer_key, group_ids, group_key
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.recovery import open_partition
from borzoi.model.values import Consumer, ConsumerKind
from borzoi.wire.batch import prove
from support.logs import NOW_US, make_batch, offsets_of


def append_verified(log, sizes):
    batch = make_batch(sizes, log.next_offset + 1)
    return log.append(batch, prove(batch), NOW_US, is_verified=True)


@pytest.fixture
def log(tmp_path):
    directory = tmp_path / "partition"
    directory.mkdir()
    return PartitionLog(directory, 0, LogSettings(), OpenFiles())


def index_bytes(log):
    return log.segments[-1].index.path.stat().st_size


def reopened_copy(log, tmp_path):
    """What a server would find that was killed at this moment."""
    target = tmp_path / "killed"
    shutil.copytree(log.directory, target)
    repairs = []
    return open_partition(target, 0, LogSettings(), OpenFiles(), repairs.append), repairs


def test_the_index_is_not_written_for_every_verified_append(log):
    for _ in range(5):
        append_verified(log, [100])
    assert index_bytes(log) == 0


def test_a_full_run_is_written_at_once(log):
    while log.size_bytes < RUN_BYTES:
        append_verified(log, [1000])
    assert index_bytes(log) == ENTRY_BYTES


def test_an_unverified_append_covers_the_lagging_ones_before_it(log):
    append_verified(log, [100])
    batch = make_batch([100], 2)
    log.append(batch, prove(batch), NOW_US)
    assert index_bytes(log) == ENTRY_BYTES


def test_lagging_messages_are_read(log):
    for _ in range(5):
        append_verified(log, [100])
    assert offsets_of(log) == [0, 1, 2, 3, 4]
    append_verified(log, [100])
    assert offsets_of(log, 4) == [4, 5]


@pytest.mark.parametrize("appends", [1, 7, 60])
def test_a_killed_process_loses_no_lagging_message(log, tmp_path, appends):
    for _ in range(appends):
        append_verified(log, [400])
    found, repairs = reopened_copy(log, tmp_path)
    assert offsets_of(found) == list(range(appends))
    assert not [repair for repair in repairs if "torn" in repair.what]


def test_closing_sealing_and_syncing_flush_the_index(log):
    append_verified(log, [100])
    log.sync_jobs(indexes=True)
    assert index_bytes(log) == ENTRY_BYTES
    append_verified(log, [100])
    first = log.segments[0]
    log.seal(NOW_US)
    assert first.index.path.stat().st_size == ENTRY_BYTES
    append_verified(log, [100])
    log.close()
    assert index_bytes(log) == ENTRY_BYTES
    assert offsets_of(log) == [0, 1, 2]


def test_files_closed_for_others_keep_the_index_whole(log):
    append_verified(log, [100])
    log.segments[-1].close_files()
    append_verified(log, [100])
    assert offsets_of(log) == [0, 1]


def test_offsets_past_a_shortened_log_are_taken_back(tmp_path):
    reader, group = consumer_key(Consumer(ConsumerKind.CONSUMER, "reader")), group_key(3)
    offsets = ConsumerOffsets(tmp_path, OpenFiles(), pytest.fail)
    offsets.store(reader, 9)
    offsets.store(group, 2)
    offsets.close()
    reports = []
    shortened = ConsumerOffsets(tmp_path, OpenFiles(), reports.append, next_offset=5)
    assert (shortened.get(reader), shortened.get(group)) == (4, 2)
    assert len(reports) == 1
    shortened.close()
    # Not only in memory: the log may be longer again at the next start.
    assert ConsumerOffsets(tmp_path, OpenFiles(), pytest.fail, next_offset=100).get(reader) == 4


def test_offsets_of_an_emptied_log_are_forgotten(tmp_path):
    key = consumer_key(Consumer(ConsumerKind.CONSUMER, 7))
    offsets = ConsumerOffsets(tmp_path, OpenFiles(), pytest.fail)
    offsets.store(key, 0)
    offsets.close()
    emptied = ConsumerOffsets(tmp_path, OpenFiles(), lambda _text: None, next_offset=0)
    assert emptied.get(key) is None
    emptied.close()


def test_the_groups_that_stored_offsets_can_be_listed(tmp_path):
    offsets = ConsumerOffsets(tmp_path, OpenFiles(), pytest.fail)
    assert group_ids(tmp_path) == set()
    offsets.store(group_key(4), 0)
    offsets.store(consumer_key(Consumer(ConsumerKind.CONSUMER, 9)), 0)
    offsets.close()
    assert group_ids(tmp_path) == {4}
    assert (tmp_path / FILE_NAME).exists()


def test_stored_offsets_are_dirty_until_synced(tmp_path):
    offsets = ConsumerOffsets(tmp_path, OpenFiles(), pytest.fail)
    assert not offsets.is_dirty
    offsets.store(group_key(1), 0)
    assert offsets.is_dirty
    job = offsets.sync_job()
    offsets.store(group_key(1), 1)
    assert job.finish(None) is None
    assert offsets.is_dirty
    offsets.sync()
    assert not offsets.is_dirty
    offsets.close()
