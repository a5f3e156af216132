"""Consumer offsets: stored, found again, deleted, bounded; a damaged slot costs one consumer only."""

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import borzoi.log.files
import borzoi.log.offsets
from borzoi.log.files import OpenFiles
from borzoi.log.offsets import FILE_NAME, ConsumerOffsets, OffsetKey, consumer_key, group_key
from borzoi.model.errors import TooManyConsumerOffsets
from borzoi.model.values import Consumer, ConsumerKind
from support.logs import flip_bit

SLOT_BYTES = 32


class Opened:
    def __init__(self, directory, files=None):
        self.reports = []
        self.offsets = ConsumerOffsets(directory, files or OpenFiles(), self.reports.append)


def test_offsets_survive_a_reopening_and_kinds_are_told_apart(tmp_path):
    keys = [
        consumer_key(Consumer(ConsumerKind.CONSUMER, 1)),
        consumer_key(Consumer(ConsumerKind.CONSUMER, "1")),
        consumer_key(Consumer(ConsumerKind.CONSUMER, "reader")),
        group_key(1),
    ]
    assert len(set(keys)) == 4
    first = Opened(tmp_path).offsets
    assert first.lowest() is None
    for value, key in enumerate(keys):
        first.store(key, value + 10)
    first.store(keys[0], 2**64 - 1)
    first.close()
    second = Opened(tmp_path)
    assert [second.offsets.get(key) for key in keys] == [2**64 - 1, 11, 12, 13]
    assert second.offsets.lowest() == 11
    assert second.reports == []
    assert (tmp_path / FILE_NAME).stat().st_size == 4 * SLOT_BYTES


def test_reading_makes_no_file(tmp_path):
    offsets = Opened(tmp_path).offsets
    assert offsets.get(group_key(1)) is None
    assert offsets.delete(group_key(1)) is False
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["store", "delete", "reopen", "evict", "clear"]),
            st.integers(0, 5),
            st.integers(0, 99),
        )
    )
)
def test_offsets_agree_with_a_dictionary(tmp_path_factory, steps):
    directory = tmp_path_factory.mktemp("offsets")
    offsets = Opened(directory).offsets
    model = {}
    for action, number, value in steps:
        key = group_key(number)
        match action:
            case "store":
                offsets.store(key, value)
                model[key] = value
            case "delete":
                assert offsets.delete(key) == (key in model)
                model.pop(key, None)
            case "reopen":
                offsets.close()
                offsets = Opened(directory).offsets
            case "evict":
                offsets.close_files()
            case "clear" if number == 0:
                offsets.clear()
                model.clear()
        assert {each: offsets.get(each) for each in map(group_key, range(6))} == {
            each: model.get(each) for each in map(group_key, range(6))
        }
        assert offsets.lowest() == min(model.values(), default=None)
    offsets.close()


@pytest.mark.parametrize("at", [0, 1, 8, 15, 16, 23, 24, 31])
def test_a_damaged_slot_is_reported_and_costs_one_consumer(tmp_path, at):
    offsets = Opened(tmp_path).offsets
    for number in range(3):
        offsets.store(group_key(number), number + 100)
    offsets.close()
    flip_bit(tmp_path / FILE_NAME, SLOT_BYTES + at)
    opened = Opened(tmp_path)
    assert [opened.offsets.get(group_key(number)) for number in range(3)] == [100, None, 102]
    assert len(opened.reports) == 1
    assert "slot 1" in opened.reports[0]
    opened.offsets.store(group_key(1), 7)
    opened.offsets.close()
    assert (tmp_path / FILE_NAME).stat().st_size == 3 * SLOT_BYTES
    again = Opened(tmp_path)
    assert [again.offsets.get(group_key(number)) for number in range(3)] == [100, 7, 102]
    assert again.reports == []


def test_a_file_cut_in_the_middle_of_a_slot_keeps_the_others(tmp_path):
    offsets = Opened(tmp_path).offsets
    for number in range(3):
        offsets.store(group_key(number), number)
    offsets.close()
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-5])
    opened = Opened(tmp_path).offsets
    assert [opened.get(group_key(number)) for number in range(3)] == [0, 1, None]
    opened.store(group_key(9), 9)
    opened.close()
    assert Opened(tmp_path).offsets.get(group_key(9)) == 9


def test_the_number_of_offsets_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(borzoi.log.offsets, "CONSUMER_OFFSETS_PER_PARTITION_MAX", 3)
    offsets = Opened(tmp_path).offsets
    for number in range(3):
        offsets.store(group_key(number), 1)
    with pytest.raises(TooManyConsumerOffsets):
        offsets.store(group_key(3), 1)
    offsets.store(group_key(0), 2)
    offsets.delete(group_key(1))
    offsets.store(group_key(3), 1)
    offsets.close()
    assert (tmp_path / FILE_NAME).stat().st_size == 3 * SLOT_BYTES


def test_a_store_that_fails_changes_nothing(tmp_path, monkeypatch):
    def full(fd, data, position):
        raise OSError(errno.ENOSPC, "full")

    offsets = Opened(tmp_path).offsets
    offsets.store(group_key(1), 5)
    with monkeypatch.context() as patch:
        patch.setattr(borzoi.log.files.os, "pwrite", full)
        for key in (group_key(1), group_key(2)):
            with pytest.raises(OSError, match="full"):
                offsets.store(key, 6)
        with pytest.raises(OSError, match="full"):
            offsets.delete(group_key(1))
    assert (offsets.get(group_key(1)), offsets.get(group_key(2))) == (5, None)
    offsets.store(group_key(2), 7)
    offsets.close()
    again = Opened(tmp_path).offsets
    assert (again.get(group_key(1)), again.get(group_key(2))) == (5, 7)


def test_after_a_failed_sync_all_slots_are_written_again(tmp_path, monkeypatch):
    offsets = Opened(tmp_path).offsets
    offsets.store(group_key(1), 5)
    offsets.store(group_key(2), 6)
    first, waiting = offsets.sync_job(), offsets.sync_job()
    assert first.directory == tmp_path
    assert first.finish(OSError(errno.EIO, "device")).errno == errno.EIO
    assert waiting.finish(None).errno == errno.EIO
    written = []
    pwrite = os.pwrite
    monkeypatch.setattr(
        borzoi.log.files.os,
        "pwrite",
        lambda fd, data, position: written.append((position, len(data))) or pwrite(fd, data, position),
    )
    job = offsets.sync_job()
    assert written == [(0, 2 * SLOT_BYTES)]
    assert job.finish(None) is None
    assert offsets.sync_job().directory is None
    offsets.close()


def test_a_key_is_what_is_written():
    assert group_key(7) == OffsetKey(2, 0, 7)
    assert consumer_key(Consumer(ConsumerKind.CONSUMER, 7)) == OffsetKey(1, 0, 7)
