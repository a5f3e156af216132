"""Group commit: few syncs for many producers, errors reach those who wait, lost bytes are written again."""

import errno
import os
import threading

import pytest

import borzoi.log.files
import borzoi.log.sync
from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.sync import FDS_MAX, Syncer, SyncJob
from support.logs import NOW_US, append, offsets_of, reopen


class Device:
    """Stands in for `os.fdatasync`; counts, waits at a gate, and fails when told to."""

    def __init__(self):
        self.synced = []
        self.failures = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def __call__(self, fd):
        self.entered.set()
        assert self.gate.wait(10)
        self.synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        if self.failures:
            raise OSError(self.failures.pop(0), "device")


class Rounds:
    """Takes finished rounds from the sync thread and applies them here, as an event loop would."""

    def __init__(self):
        self.finished = []
        self.arrived = threading.Semaphore(0)
        self.syncer = Syncer(self.notify)

    def notify(self, finished):
        self.finished.append(finished)
        self.arrived.release()

    def apply_one(self):
        assert self.arrived.acquire(timeout=10)
        self.finished.pop(0).apply()


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(borzoi.log.sync.os, "fdatasync", device)
    return device


@pytest.fixture
def rounds(device):
    rounds = Rounds()
    yield rounds
    device.gate.set()
    rounds.syncer.close()


@pytest.fixture
def log(tmp_path):
    return PartitionLog(tmp_path, 0, LogSettings(), OpenFiles())


def test_many_waiting_producers_share_few_syncs(log, device, rounds):
    device.gate.clear()
    answers = []
    for _ in range(100):
        append(log, [10])
        rounds.syncer.submit(log.sync_jobs(), answers.append)
    assert device.entered.wait(10)
    assert answers == []
    device.gate.set()
    rounds.apply_one()
    if len(answers) < 100:
        rounds.apply_one()
    assert answers == [None] * 100
    assert len(device.synced) <= 2
    assert rounds.syncer.rounds <= 2
    assert log.synced_messages == log.appended_messages == 100
    assert log.synced_bytes == log.appended_bytes == log.size_bytes
    assert log.dirty == {}


def test_the_answer_comes_only_after_the_owner_knows_what_is_durable(log, rounds):
    append(log, [10])
    seen = []
    rounds.syncer.submit(log.sync_jobs(), lambda error: seen.append((error, log.synced_messages)))
    rounds.apply_one()
    assert seen == [(None, 1)]


def test_bytes_appended_while_a_sync_runs_stay_unsynced(log, device, rounds):
    append(log, [10])
    device.gate.clear()
    rounds.syncer.submit(log.sync_jobs(), lambda _error: None)
    assert device.entered.wait(10)
    append(log, [10])
    device.gate.set()
    rounds.apply_one()
    assert (log.synced_messages, log.appended_messages) == (1, 2)
    assert len(log.dirty) == 1


def test_a_failed_sync_reaches_those_who_wait_and_its_bytes_are_written_again(
    log, device, rounds, monkeypatch
):
    append(log, [10])
    rounds.syncer.submit(log.sync_jobs(), lambda _error: None)
    rounds.apply_one()
    durable_bytes = log.size_bytes
    append(log, [20])
    append(log, [30])
    device.failures = [errno.EIO]
    answers = []
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    rounds.apply_one()
    if len(answers) < 2:
        rounds.apply_one()
    assert [answer.errno for answer in answers] == [errno.EIO, errno.EIO]
    assert log.synced_messages == 1

    written = []
    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(
            borzoi.log.files.os,
            "pwrite",
            lambda fd, data, position: written.append((position, len(data))) or pwrite(fd, data, position),
        )
        rounds.syncer.submit(log.sync_jobs(), answers.append)
    assert written == [(durable_bytes, log.size_bytes - durable_bytes)]
    rounds.apply_one()
    assert answers[2] is None
    assert log.synced_messages == 3
    assert log.dirty == {}
    assert offsets_of(log) == [0, 1, 2]


def test_a_sync_asked_for_before_a_failure_was_known_does_not_count_as_success(log, device, rounds):
    """The kernel reports a write error once and forgets the pages; the next sync would say all is well."""
    append(log, [10])
    device.gate.clear()
    device.failures = [errno.EIO]
    answers = []
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    assert device.entered.wait(10)
    append(log, [10])
    rounds.syncer.submit(log.sync_jobs(), answers.append)  # waits behind the sync that will fail
    device.gate.set()
    rounds.apply_one()
    rounds.apply_one()
    assert [answer.errno for answer in answers] == [errno.EIO, errno.EIO]
    assert log.synced_messages == 0
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    rounds.apply_one()
    assert answers[2] is None
    assert log.synced_messages == 2


def test_one_partitions_failure_is_not_anothers(tmp_path, device, rounds):
    logs = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        logs.append(PartitionLog(tmp_path / str(number), number, LogSettings(), OpenFiles()))
        append(logs[-1], [10])
    answers = {}
    device.gate.clear()
    rounds.syncer.submit([], lambda _error: None)
    device.failures = [errno.EIO]
    for number, log in enumerate(logs):
        rounds.syncer.submit(log.sync_jobs(), lambda error, number=number: answers.update({number: error}))
    device.gate.set()
    while len(answers) < 2:
        rounds.apply_one()
    assert answers[0].errno == errno.EIO
    assert answers[1] is None


def test_a_rolled_segment_is_synced_too_and_its_directory_once(tmp_path, device, rounds, monkeypatch):
    directories = []
    monkeypatch.setattr(borzoi.log.sync, "sync_directory", directories.append)
    log = PartitionLog(tmp_path, 0, LogSettings(segment_bytes=300), OpenFiles())
    for _ in range(3):
        append(log, [10])
    rounds.syncer.submit(log.sync_jobs(indexes=True), lambda _error: None)
    rounds.apply_one()
    assert sorted(set(device.synced)) == sorted(str(path) for path in tmp_path.iterdir())
    assert directories == [tmp_path]
    append(log, [10])
    rounds.syncer.submit(log.sync_jobs(), lambda _error: None)
    rounds.apply_one()
    assert directories == [tmp_path, tmp_path]
    log.close()


def test_a_segment_dropped_while_its_sync_runs_harms_nobody(log, device, rounds):
    append(log, [10])
    device.gate.clear()
    answers = []
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    assert device.entered.wait(10)
    for segment in log.purge():
        segment.remove_files()
    append(log, [10])
    device.gate.set()
    rounds.apply_one()
    assert answers == [None]
    assert list(log.dirty) == [0]


def test_descriptors_waiting_for_the_thread_are_bounded(tmp_path, device, rounds):
    files = OpenFiles(30)
    logs = []
    for number in range(FDS_MAX + 100):
        (tmp_path / str(number)).mkdir()
        logs.append(PartitionLog(tmp_path / str(number), number, LogSettings(), files))
        append(logs[-1], [10])
    device.gate.clear()
    before = len(os.listdir("/proc/self/fd"))
    answers = []
    for log in logs:
        rounds.syncer.submit(log.sync_jobs(), answers.append)
    assert len(os.listdir("/proc/self/fd")) <= before + FDS_MAX + 35
    device.gate.set()
    while len(answers) < len(logs):
        rounds.apply_one()
    assert set(answers) == {None}
    assert len(set(device.synced)) == len(logs)
    assert all(log.dirty == {} for log in logs)
    files.close_all()


def test_a_file_that_does_not_open_leaves_nothing_half_submitted(log, rounds):
    append(log, [10])

    def cannot_open():
        raise OSError(errno.EMFILE, "too many")

    before = len(os.listdir("/proc/self/fd"))
    broken = SyncJob("broken", cannot_open, lambda error: error)
    with pytest.raises(OSError, match="too many"):
        rounds.syncer.submit([*log.sync_jobs(), broken], lambda _error: pytest.fail("was not submitted"))
    assert len(os.listdir("/proc/self/fd")) == before
    answers = []
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    rounds.apply_one()
    assert answers == [None]


def test_closing_finishes_what_was_submitted_and_takes_nothing_more(log, device):
    rounds = Rounds()
    append(log, [10])
    answers = []
    rounds.syncer.submit(log.sync_jobs(), answers.append)
    rounds.syncer.close()
    rounds.apply_one()
    assert answers == [None]
    with pytest.raises(RuntimeError):
        rounds.syncer.submit([], answers.append)


def test_closing_without_ever_having_been_used_is_fine():
    Syncer(lambda _round: None).close()


def test_after_a_real_sync_everything_is_found_again(tmp_path):
    rounds = Rounds()
    log = PartitionLog(tmp_path, 0, LogSettings(), OpenFiles())
    for _ in range(5):
        append(log, [10], NOW_US)
    rounds.syncer.submit(log.sync_jobs(indexes=True), lambda error: error and pytest.fail(str(error)))
    rounds.apply_one()
    rounds.syncer.close()
    assert offsets_of(reopen(tmp_path).log) == [0, 1, 2, 3, 4]
    log.close()
