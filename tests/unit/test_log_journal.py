"""The metadata journal: what was appended comes back, a torn end is dropped, other damage stops the start."""

import errno
import os
import random

import pytest

import borzoi.log.files
from borzoi.log.journal import RECORD_BYTES_MAX, Journal, JournalError
from borzoi.log.sync import Round, Waiting
from support.logs import flip_bit

HEADER_BYTES = 20


def write(directory, records, snapshots=()):
    """Append `records`; after those whose number is in `snapshots`, write a snapshot of all so far."""
    journal = Journal(directory)
    state, later = journal.open()
    done = state.split(b",") if state else []
    done += later
    for record in records:
        journal.append(record)
        done.append(record)
        if len(done) in snapshots:
            journal.snapshot(b",".join(done))
    journal.close()


def read(directory):
    """All records as the snapshot and the journals give them, and what had to be repaired."""
    journal = Journal(directory)
    state, later = journal.open()
    journal.close()
    return (state.split(b",") if state else []) + later, journal.repairs


def records(count, start=1):
    return [b"record %d" % number for number in range(start, start + count)]


def newest(directory, kind):
    return max(directory.glob(f"{kind}-*"))


def test_records_come_back_in_order(tmp_path):
    write(tmp_path, records(5))
    write(tmp_path, records(3, 6))
    assert read(tmp_path) == (records(8), [])


def test_an_empty_directory_has_no_records(tmp_path):
    assert read(tmp_path) == ([], [])
    assert read(tmp_path) == ([], [])


@pytest.mark.parametrize("snapshots", [(3,), (3, 5), (1, 2, 3, 4, 5, 6, 7), (8,)])
def test_a_snapshot_takes_the_place_of_the_records_before_it(tmp_path, snapshots):
    write(tmp_path, records(8), snapshots)
    assert read(tmp_path) == (records(8), [])
    assert len(list(tmp_path.glob("snapshot-*"))) <= 2
    assert len(list(tmp_path.glob("journal-*"))) <= 3


def test_an_empty_record_is_a_record(tmp_path):
    write(tmp_path, [b"", b"a", b""])
    assert read(tmp_path) == ([b"", b"a", b""], [])


@pytest.mark.parametrize("snapshots", [(), (3,)])
def test_a_last_record_torn_at_any_byte_is_dropped_and_reported(tmp_path, snapshots):
    write(tmp_path, records(6), snapshots)
    path = newest(tmp_path, "journal")
    data = path.read_bytes()
    length = HEADER_BYTES + len(b"record 6")
    for missing in range(1, length):
        path.write_bytes(data[:-missing])
        found, repairs = read(tmp_path)
        assert found == records(5)
        assert len(repairs) == 1
    path.write_bytes(data[:-length])
    assert read(tmp_path) == (records(5), [])
    write(tmp_path, records(2, 6))
    assert read(tmp_path) == (records(7), [])


@pytest.mark.parametrize("zeros", [1, 4, 20, 1000])
def test_zeros_at_the_end_are_dropped(tmp_path, zeros):
    write(tmp_path, records(3))
    with newest(tmp_path, "journal").open("ab") as file:
        file.write(bytes(zeros))
    found, repairs = read(tmp_path)
    assert found == records(3)
    assert len(repairs) == 1


def test_every_flipped_bit_before_the_last_record_stops_the_start(tmp_path):
    write(tmp_path, records(4))
    path = newest(tmp_path, "journal")
    data = path.read_bytes()
    length = HEADER_BYTES + len(b"record 1")
    for position in range(3 * length):
        flip_bit(path, position, position % 8)
        with pytest.raises(JournalError) as caught:
            read(tmp_path)
        assert str(path) in str(caught.value)
        assert f"record {position // length + 1} " in str(caught.value)
        path.write_bytes(data)
    assert read(tmp_path) == (records(4), [])


def test_a_damaged_last_record_is_dropped_and_a_copy_kept(tmp_path):
    write(tmp_path, records(2))
    path = newest(tmp_path, "journal")
    flip_bit(path, path.stat().st_size - 1)
    damaged = path.read_bytes()[HEADER_BYTES + 8 :]
    found, repairs = read(tmp_path)
    assert found == records(1)
    assert "copy" in repairs[0]
    assert next(tmp_path.glob("dropped-*")).read_bytes() == damaged


@pytest.mark.parametrize("harm", ["remove", "flip", "cut", "empty"])
@pytest.mark.parametrize("snapshots", [(3,), (3, 5), (2, 4, 6)])
def test_a_lost_or_damaged_newest_snapshot_costs_nothing(tmp_path, snapshots, harm):
    write(tmp_path, records(7), snapshots)
    path = newest(tmp_path, "snapshot")
    match harm:
        case "remove":
            path.unlink()
        case "flip":
            flip_bit(path, random.Random(0).randrange(path.stat().st_size))
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "empty":
            path.write_bytes(b"")
    found, repairs = read(tmp_path)
    assert found == records(7)
    assert bool(repairs) == (harm != "remove")
    assert read(tmp_path) == (records(7), [])
    write(tmp_path, records(3, 8), (9,))
    assert read(tmp_path) == (records(10), [])


def test_every_flipped_bit_of_a_snapshot_is_noticed(tmp_path):
    write(tmp_path, records(4), (2,))
    path = newest(tmp_path, "snapshot")
    data = path.read_bytes()
    for position in range(len(data)):
        flip_bit(path, position, position % 8)
        found, repairs = read(tmp_path)
        assert found == records(4)
        assert len(repairs) == 1
        next(tmp_path.glob("damaged-*")).unlink()
        path.write_bytes(data)


def test_missing_records_stop_the_start_and_the_text_says_which(tmp_path):
    write(tmp_path, records(7), (2, 4, 6))
    for path in tmp_path.glob("snapshot-*"):
        path.unlink()
    with pytest.raises(JournalError, match=r"records 1 to .* missing"):
        read(tmp_path)


class TestFullDisk:
    @pytest.fixture
    def journal(self, tmp_path):
        journal = Journal(tmp_path)
        journal.open()
        for record in records(3):
            journal.append(record)
        yield journal
        journal.close()

    @pytest.fixture
    def disk(self, monkeypatch):
        pwrite = os.pwrite
        state = {"budget": None}

        def limited(fd, data, position):
            if state["budget"] is None:
                return pwrite(fd, data, position)
            if not state["budget"]:
                raise OSError(errno.ENOSPC, "full")
            written = pwrite(fd, data[: state["budget"]], position)
            state["budget"] -= written
            return written

        monkeypatch.setattr(borzoi.log.files.os, "pwrite", limited)
        return state

    @pytest.mark.parametrize("budget", [0, 1, 19, 20, 25])
    def test_a_record_that_does_not_fit_is_not_there(self, tmp_path, journal, disk, budget):
        disk["budget"] = budget
        with pytest.raises(OSError, match="full"):
            journal.append(b"record 4")
        assert journal.index == 3
        assert read(tmp_path) == (records(3), [])
        disk["budget"] = None
        journal.append(b"record 4")
        assert read(tmp_path) == (records(4), [])

    def test_a_snapshot_that_does_not_fit_leaves_the_journal_going(self, tmp_path, journal, disk):
        disk["budget"] = 5
        with pytest.raises(OSError, match="full"):
            journal.snapshot(b",".join(records(3)))
        disk["budget"] = None
        journal.append(b"record 4")
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"journal-{1:020d}"]
        assert read(tmp_path) == (records(4), [])

    def test_a_journal_that_cannot_be_started_leaves_the_old_one_going(self, tmp_path, journal, monkeypatch):
        real_open = os.open

        def failing(path, *rest, **named):
            if "journal-" in str(path):
                raise OSError(errno.EMFILE, "too many")
            return real_open(path, *rest, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", failing)
            with pytest.raises(OSError, match="too many"):
                journal.snapshot(b",".join(records(3)))
        journal.append(b"record 4")
        assert read(tmp_path) == (records(4), [])
        journal.snapshot(b",".join(records(4)))
        journal.append(b"record 5")
        newest(tmp_path, "snapshot").unlink()
        assert read(tmp_path) == (records(5), [])

    def test_after_a_failed_sync_the_bytes_are_written_again(self, journal, monkeypatch):
        answers = []

        def sync(error):
            job = journal.sync_job()
            for fd in job.open_fds():
                os.close(fd)
            Round([(job, error)], [Waiting(answers.append, [job.key])]).apply()

        sync(None)
        journal.append(b"record 4")
        sync(OSError(errno.EIO, "device"))
        written = []
        pwrite = os.pwrite
        monkeypatch.setattr(
            borzoi.log.files.os,
            "pwrite",
            lambda fd, data, position: written.append((position, len(data))) or pwrite(fd, data, position),
        )
        sync(None)
        sync(None)
        assert written == [(3 * 28, 28)]
        assert [answer and answer.errno for answer in answers] == [None, errno.EIO, None, None]


def test_a_record_may_be_as_long_as_the_limit_and_not_longer(tmp_path):
    journal = Journal(tmp_path)
    journal.open()
    journal.append(bytes(RECORD_BYTES_MAX))
    with pytest.raises(ValueError, match="exceeds"):
        journal.append(bytes(RECORD_BYTES_MAX + 1))
    journal.close()
    found, repairs = read(tmp_path)
    assert (len(found), len(found[0]), repairs) == (1, RECORD_BYTES_MAX, [])


def test_leftovers_of_an_unfinished_snapshot_are_removed(tmp_path):
    write(tmp_path, records(2))
    (tmp_path / f"snapshot-{2:020d}.new").write_bytes(b"half")
    assert read(tmp_path) == (records(2), [])
    assert list(tmp_path.glob("*.new")) == []
