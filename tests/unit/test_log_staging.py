"""The files of staged batches: what is written is read back, and what is not whole is cut off."""

import errno
import os

import pytest

from borzoi.broker.pending import run_at_once
from borzoi.log.places import Place, PlacesFile
from borzoi.log.staging import (
    RECORD_BYTES,
    StagedDamageError,
    StagedFile,
    StagedHead,
    boot_id,
    epoch_name,
    open_staged,
)
from borzoi.model.errors import CannotSyncFile
from support.logs import flip_bit

HEAD = StagedHead(123, "queries/é", 2**64 - 1, 7, 2**63)


def batch_of(number, size=300):
    return memoryview(bytes([number]) * size)


@pytest.fixture
def file(tmp_path):
    file = StagedFile(tmp_path, HEAD)
    for number in range(3):
        file.append(batch_of(number), number + 1, number * 10, is_verified=bool(number % 2))
    return file


def test_what_is_staged_is_read_back(file):
    reports = []
    for opened in (file, open_staged(file.path, reports.append)):
        assert opened.head == HEAD
        assert opened.size_bytes == file.path.stat().st_size
        assert [
            (batch.partition_id, batch.message_count, batch.length, batch.is_verified)
            for batch in opened.batches
        ] == [(0, 1, 300, False), (10, 2, 300, True), (20, 3, 300, False)]
        assert [bytes(opened.read(number)) for number in range(3)] == [bytes(batch_of(n)) for n in range(3)]
        assert not opened.read(0).readonly
    assert reports == []


def test_the_last_record_cut_off_at_every_byte_leaves_the_ones_before_it(file, tmp_path):
    whole = file.path.read_bytes()
    start = file.batches[2].position
    for length in range(start, len(whole)):
        file.path.write_bytes(whole[:length])
        reports = []
        opened = open_staged(file.path, reports.append)
        assert len(opened.batches) == 2
        assert len(reports) == (1 if length > start else 0)
        assert opened.size_bytes == file.path.stat().st_size == start
        opened.append(batch_of(9), 1, 1, is_verified=False)
        again = open_staged(file.path, reports.append)
        assert bytes(again.read(2)) == bytes(batch_of(9))


def test_a_head_cut_off_at_every_byte_is_no_file(file):
    whole = file.path.read_bytes()
    for length in range(file.batches[0].position):
        file.path.write_bytes(whole[:length])
        reports = []
        assert open_staged(file.path, reports.append) is None
        assert len(reports) == 1


def test_a_flipped_bit_anywhere_never_yields_other_bytes(file):
    whole = file.path.read_bytes()
    for position in range(len(whole)):
        file.path.write_bytes(whole)
        flip_bit(file.path, position)
        before = [slot for slot, batch in enumerate(file.batches) if batch.position + 340 <= position]
        opened = open_staged(file.path, lambda _text: None)
        if position < file.batches[0].position:
            assert opened is None
        else:
            assert len(opened.batches) == len(before)


def test_damage_that_comes_later_is_found_when_a_batch_is_read(file):
    flip_bit(file.path, file.batches[1].position + RECORD_BYTES + 5)
    assert bytes(file.read(0)) == bytes(batch_of(0))
    with pytest.raises(StagedDamageError, match="batch 1"):
        file.read(1)
    os.truncate(file.path, file.batches[2].position + 50)
    with pytest.raises(StagedDamageError, match="batch 2"):
        file.read(2)
    file.path.unlink()
    with pytest.raises(StagedDamageError, match="missing"):
        file.read(0)


def test_a_file_under_another_name_is_not_taken_for_what_it_is_not(file, tmp_path):
    other = tmp_path / "8-1.staged"
    file.path.rename(other)
    assert open_staged(other, lambda _text: None) is None


@pytest.mark.parametrize("room_bytes", [0, 20, 90, 100, 250])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch, room_bytes):
    write = os.pwrite
    room = [None]

    def pwrite(fd, data, position):
        if room[0] is None:
            return write(fd, data, position)
        taken = min(room[0], len(data))
        room[0] -= taken
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, memoryview(data)[:taken], position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    file = StagedFile(tmp_path, HEAD)
    for count in range(3):
        room[0] = room_bytes
        with pytest.raises(OSError, match="No space"):
            file.append(batch_of(count), 1, 0, is_verified=False)
        assert file.path.stat().st_size == file.size_bytes
        room[0] = None
        file.append(batch_of(count), 1, 0, is_verified=False)
        assert len(open_staged(file.path, pytest.fail).batches) == count + 1


def test_after_a_failed_fsync_the_bytes_are_written_again_before_the_next(file, monkeypatch):
    failing = [True]
    written = []

    def fdatasync(_fd):
        if failing[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync():
        yield [file.sync_job()]

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises(CannotSyncFile):
        run_at_once(sync())
    failing[0] = False
    write = os.pwrite

    def pwrite(fd, data, position):
        written.append((position, len(data)))
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    run_at_once(sync())
    assert written == [(0, file.size_bytes)]
    written.clear()
    run_at_once(sync())
    assert written == []


def test_names_of_epochs_differ_and_tell_nothing_but_the_number():
    names = {epoch_name(producer, epoch) for producer in ("a", "b", "../x") for epoch in (1, 11)}
    assert len(names) == 6
    assert all("/" not in name for name in names)


def test_the_run_of_the_machine_stays_the_same():
    assert boot_id() == boot_id()


# Places


def test_places_are_read_back_and_the_later_ones_count(tmp_path):
    places = PlacesFile(tmp_path)
    assert places.known == {}
    places.note([Place(0, 1, 5), Place(1, 2, 2**63)])
    places.note([Place(1, 2, 7), Place(2, 0, 0), Place(3, 0, 1)])
    places.revoke([Place(3, 0, 1)])
    assert PlacesFile(tmp_path).known == {0: Place(0, 1, 5), 1: Place(1, 2, 7), 2: Place(2, 0, 0)}


def test_places_that_are_not_whole_were_never_acted_upon(tmp_path):
    places = PlacesFile(tmp_path)
    places.note([Place(0, 1, 5)])
    start = places.path.stat().st_size
    places.note([Place(1, 1, 6), Place(2, 1, 7)])
    whole = places.path.read_bytes()
    for length in range(start, len(whole)):
        places.path.write_bytes(whole[:length])
        again = PlacesFile(tmp_path)
        assert again.known == {0: Place(0, 1, 5)}
        again.note([Place(4, 4, 4)])
        assert PlacesFile(tmp_path).known.keys() == {0, 4}


def test_a_full_disk_notes_no_place(tmp_path, monkeypatch):
    places = PlacesFile(tmp_path)
    places.note([Place(0, 1, 5)])

    def full(_fd, _data, _position):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            places.note([Place(1, 1, 6)])
    places.note([Place(2, 1, 6)])
    assert PlacesFile(tmp_path).known.keys() == {0, 2}
