"""Descriptors stay bounded however many partitions are in use; writes are complete or raise."""

import errno
import os
import random
from contextlib import suppress

import pytest

import borzoi.log.files
from borzoi.log.files import LARGE_BYTES, OpenFiles, make_room, replace_durably, rewrite, write_all
from borzoi.log.offsets import ConsumerOffsets, group_key
from borzoi.log.partition import LogSettings, PartitionLog
from support.logs import append, offsets_of


def descriptors(directory):
    """How many files in this directory are open. Others' come and go while a test runs."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            found += os.readlink(f"/proc/self/fd/{number}").startswith(f"{directory}/")
    return found


def test_three_hundred_partitions_live_with_thirty_files(tmp_path):
    files = OpenFiles(30)
    logs, offsets = [], []
    for number in range(300):
        directory = tmp_path / str(number)
        directory.mkdir()
        logs.append(PartitionLog(directory, number, LogSettings(segment_bytes=100_000), files))
        offsets.append(ConsumerOffsets(directory, files, pytest.fail))
    highest = 0
    for turn in range(3):
        for log, stored in zip(logs, offsets, strict=True):
            append(log, [30_000] * 2)
            stored.store(group_key(1), log.next_offset)
            highest = max(highest, descriptors(tmp_path))
        for log in random.Random(turn).sample(logs, 300):
            assert offsets_of(log) == list(range(log.next_offset))
            highest = max(highest, descriptors(tmp_path))
    assert 0 < highest <= 30
    assert len(files) <= files.owners_max == 10
    assert all(stored.get(group_key(1)) == 6 for stored in offsets)
    files.close_all()
    assert descriptors(tmp_path) == 0
    assert offsets_of(logs[0]) == list(range(6))
    files.close_all()


class Owner:
    def __init__(self, name, closed):
        self.name = name
        self.used = False
        self.closed = closed

    def close_files(self):
        self.closed.append(self.name)


def test_owners_in_use_outlive_those_that_are_not():
    closed = []
    files = OpenFiles(1)  # eight owners at least
    owners = [Owner(number, closed) for number in range(8)]
    for owner in owners:
        files.admit(owner)
        owner.used = False
    owners[0].used = owners[3].used = True
    for number in range(8, 14):
        files.admit(Owner(number, closed))
    assert closed == [1, 2, 4, 5, 6, 7]
    assert len(files) == 8


def test_admitting_twice_counts_once_and_a_forgotten_owner_is_not_closed():
    closed = []
    files = OpenFiles(1)
    owner = Owner(0, closed)
    files.admit(owner)
    files.admit(owner)
    assert len(files) == 1
    files.forget(owner)
    files.forget(owner)
    files.close_all()
    assert closed == []


def test_without_a_limit_half_of_what_the_process_may_open_is_used(monkeypatch):
    monkeypatch.setattr(borzoi.log.files.resource, "getrlimit", lambda _which: (3000, 4000))
    assert OpenFiles().owners_max == 500


@pytest.fixture
def fd(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_short_writes_are_continued(fd, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(borzoi.log.files.os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    write_all(fd, b"0123456789", 5)
    assert os.pread(fd, 100, 5) == b"0123456789"


def test_a_write_that_makes_no_progress_is_an_error(fd, monkeypatch):
    answers = iter([2, 0])
    monkeypatch.setattr(borzoi.log.files.os, "pwrite", lambda *_: next(answers))
    with pytest.raises(OSError, match="progress"):
        write_all(fd, b"0123", 0)


@pytest.mark.parametrize("fallocate", [borzoi.log.files._fallocate, None, lambda *_: -1])
def test_a_file_has_the_size_of_what_was_written_whether_room_was_made_or_not(fd, monkeypatch, fallocate):
    monkeypatch.setattr(borzoi.log.files, "_fallocate", fallocate)
    data = os.urandom(LARGE_BYTES)
    make_room(fd, 0, 10 * LARGE_BYTES)
    assert os.fstat(fd).st_size == 0
    write_all(fd, data, 0)
    write_all(fd, data, LARGE_BYTES)
    assert os.pread(fd, 3 * LARGE_BYTES, 0) == data + data


def test_rewriting_leaves_the_bytes_as_they_are_and_notices_missing_ones(fd):
    data = os.urandom(3_000_000)
    write_all(fd, data, 0)
    rewrite(fd, 10, len(data))
    assert os.pread(fd, len(data) + 1, 0) == data
    with pytest.raises(OSError, match="read back"):
        rewrite(fd, 10, len(data) + 1)


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_durably(path, b"old")

    def failing(fd):
        raise OSError(errno.EIO, "device")

    with monkeypatch.context() as patch:
        patch.setattr(borzoi.log.files.os, "fsync", failing)
        with pytest.raises(OSError, match="device"):
            replace_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new"
