"""Opening what a crash left behind: everything acknowledged is there, nothing is served twice or made up."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from borzoi.log.files import OpenFiles
from borzoi.log.index import ENTRY_BYTES
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.reader import LogDamaged
from support.logs import NOW_US, Opened, append, flip_bit, log_files, offsets_of, reopen


def write_log(directory, batches, segment_bytes=1 << 30):
    directory.mkdir(exist_ok=True)
    log = PartitionLog(directory, 0, LogSettings(segment_bytes=segment_bytes), OpenFiles())
    for index, sizes in enumerate(batches):
        append(log, sizes, NOW_US + index)
    log.close()
    return log


def cut_log(path, size):
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("last", [[40], [3, 70, 11], [1] * 24], ids=["single", "mixed", "uniform"])
@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "unindexed"])
def test_a_tail_torn_at_any_byte_costs_the_last_batch_and_nothing_else(tmp_path, last, is_indexed):
    """With the index entry for the torn batch (power loss) and without it (killed in the middle)."""
    source = tmp_path / "source"
    before = write_log(source, [[100], [20, 30], [500]])
    index = log_files(source, "index")[0].read_bytes()
    whole = tmp_path / "whole"
    after = write_log(whole, [[100], [20, 30], [500], last])
    name = log_files(whole)[0].name
    log_bytes = (whole / name).read_bytes()
    if is_indexed:
        index = log_files(whole, "index")[0].read_bytes()
    for size in range(before.size_bytes, after.size_bytes):
        (source / name).write_bytes(log_bytes[:size])
        log_files(source, "index")[0].write_bytes(index)
        opened = reopen(source)
        assert opened.log.next_offset == 4
        assert opened.log.size_bytes == before.size_bytes == (source / name).stat().st_size
        assert offsets_of(opened.log) == [0, 1, 2, 3]
        assert bool(opened.repairs) == (is_indexed or size > before.size_bytes)
        assert append(opened.log, [12], NOW_US + 9) == 4
        opened.log.close()
        if size % 5:
            continue
        again = reopen(source)
        assert again.repairs == []
        assert offsets_of(again.log) == [0, 1, 2, 3, 4]
        again.log.close()
    (source / name).write_bytes(log_bytes)
    log_files(source, "index")[0].write_bytes(index)
    assert offsets_of(reopen(source).log) == list(range(4 + len(last)))


@pytest.mark.parametrize("zeros", [1, 255, 256, 4096, 100_000])
def test_a_tail_of_zeros_is_cut_off(tmp_path, zeros):
    log = write_log(tmp_path, [[100], [200]])
    with log_files(tmp_path)[0].open("ab") as file:
        file.write(bytes(zeros))
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0, 1]
    assert opened.repairs[-1].size_bytes == zeros
    assert log_files(tmp_path)[0].stat().st_size == log.size_bytes
    assert log_files(tmp_path, "torn") == []


@pytest.mark.parametrize("keep", [0, 16, 256, 300])
def test_a_last_batch_zeroed_by_a_power_loss_is_cut_off_and_what_is_left_of_it_kept(tmp_path, keep):
    before = write_log(tmp_path, [[100]])
    log = reopen(tmp_path).log
    append(log, [400])
    log.close()
    path = log_files(tmp_path)[0]
    data = path.read_bytes()
    path.write_bytes(data[: before.size_bytes + keep] + bytes(len(data) - before.size_bytes - keep))
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0]
    torn = log_files(tmp_path, "torn")
    assert bool(torn) == bool(keep)
    if torn:
        assert torn[0].read_bytes() == (data[before.size_bytes :][:keep]).ljust(704, b"\0")
    assert append(opened.log, [3]) == 1
    assert offsets_of(opened.log) == [0, 1]


def test_every_flipped_bit_of_the_last_batch_is_found_and_the_bytes_are_kept(tmp_path):
    source = tmp_path / "source"
    before = write_log(source, [[100], [20]])
    log = reopen(source).log
    append(log, [30, 5])
    log.close()
    data = log_files(source)[0].read_bytes()
    for position in range(before.size_bytes, len(data)):
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        flip_bit(log_files(copy)[0], position, position % 8)
        opened = reopen(copy)
        assert offsets_of(opened.log) == [0, 1]
        assert opened.log.next_offset == 2
        assert len(log_files(copy, "torn")[0].read_bytes()) == len(data) - before.size_bytes
        assert any("kept" in what for what in opened.reported)
        assert append(opened.log, [1]) == 2
        opened.log.close()
        shutil.rmtree(copy)


def harm(data, paths):
    """Do something bad to one of these files."""
    path = data.draw(st.sampled_from(paths))
    content = path.read_bytes()
    if not content:
        return
    match data.draw(st.sampled_from(["flip", "cut", "zero", "empty", "extend"])):
        case "flip":
            flip_bit(path, data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7)))
        case "cut":
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        case "zero":
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))].ljust(len(content), b"\0"))
        case "extend":
            path.write_bytes(content + data.draw(st.binary(max_size=300)))
        case "empty" if path.suffix == ".index":
            path.write_bytes(b"")


sizes_of_batches = st.lists(
    st.one_of(st.tuples(st.integers(1, 3000)), st.tuples(st.integers(1, 200), st.integers(1, 200))),
    min_size=1,
    max_size=60,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_the_files_what_is_served_was_written(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("log")
    log = write_log(directory, data.draw(sizes_of_batches), data.draw(st.sampled_from([5000, 1 << 30])))
    for _ in range(data.draw(st.integers(1, 3))):
        harm(data, log_files(directory) + log_files(directory, "index"))
    opened = reopen(directory)
    assert opened.log.next_offset <= log.next_offset
    offset = 0
    while offset < opened.log.next_offset:
        try:
            found = offsets_of(opened.log, offset, 7)  # checks that every message is the one written
        except LogDamaged:
            offset += 1
            continue
        if found != list(range(offset, offset + len(found))) or not found:
            assert any("missing" in what for what in opened.reported)
        if not found:
            break
        offset = found[-1] + 1
    assert append(opened.log, [1], NOW_US + 1000) == opened.log.next_offset - 1
    opened.log.close()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_happens_to_the_indexes_every_message_is_served(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("log")
    batches = data.draw(sizes_of_batches)
    log = write_log(directory, batches, data.draw(st.sampled_from([20_000, 1 << 30])))
    for _ in range(data.draw(st.integers(1, 3))):
        harm(data, log_files(directory, "index"))
    opened = reopen(directory).log
    assert opened.next_offset == log.next_offset
    for _ in range(5):
        offset = data.draw(st.integers(0, log.next_offset - 1))
        count = data.draw(st.integers(1, log.next_offset))
        assert offsets_of(opened, offset, count) == list(range(offset, min(offset + count, log.next_offset)))
        batch = data.draw(st.integers(0, len(batches) - 1))
        assert opened.offset_at_or_after(NOW_US + batch) == sum(map(len, batches[:batch]))
    opened.close()


@pytest.mark.parametrize("size", [0, 1, ENTRY_BYTES - 1, ENTRY_BYTES, ENTRY_BYTES + 7, None])
@pytest.mark.parametrize("which", [0, 1], ids=["sealed", "active"])
def test_an_index_that_is_missing_or_short_is_completed_from_the_log(tmp_path, which, size):
    write_log(tmp_path, [[1000]] * 60, segment_bytes=40_000)
    assert len(log_files(tmp_path)) == 2
    path = log_files(tmp_path, "index")[which]
    whole = path.read_bytes()
    if size is None:
        path.unlink()
    else:
        path.write_bytes(whole[:size])
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == list(range(60))
    assert opened.log.offset_at_or_after(NOW_US + 17) == 17
    assert len(path.read_bytes()) % ENTRY_BYTES == 0
    assert opened.repairs
    opened.log.close()
    again = reopen(tmp_path)
    assert again.repairs == []
    assert offsets_of(again.log) == list(range(60))


def test_a_stale_last_entry_of_a_sealed_index_is_extended_and_nothing_skipped(tmp_path):
    write_log(tmp_path, [[100]] * 3)
    stale = log_files(tmp_path, "index")[0].read_bytes()
    log = reopen(tmp_path).log
    append(log, [100])
    log.seal(NOW_US)
    append(log, [100])
    log.close()
    log_files(tmp_path, "index")[0].write_bytes(stale)
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0, 1, 2, 3, 4]
    assert opened.reported == ["index was behind its log, extended"]


def test_the_rest_of_a_failed_append_in_a_sealed_segment_is_not_served_twice(tmp_path):
    """A whole batch that was never acknowledged, whose offsets then went to the next segment."""
    other = tmp_path / "other"
    write_log(other, [[100], [50]])
    write_log(tmp_path, [[100]])
    log = reopen(tmp_path).log
    log.seal(NOW_US)
    append(log, [60])
    append(log, [70])
    log.close()
    first = log_files(tmp_path)[0]
    first.write_bytes(log_files(other)[0].read_bytes())
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0, 1, 2]
    assert opened.reported == ["rest of a failed append cut off"]
    opened.log.close()
    log_files(tmp_path, "index")[0].unlink()
    first.write_bytes(log_files(other)[0].read_bytes())
    assert offsets_of(reopen(tmp_path).log) == [0, 1, 2]


def test_missing_messages_are_reported_and_those_behind_them_served(tmp_path):
    write_log(tmp_path, [[100]] * 9, segment_bytes=1200)
    assert len(log_files(tmp_path)) == 3
    log_files(tmp_path)[1].unlink()
    opened = reopen(tmp_path)
    assert opened.reported == ["the messages 3 to 5 are missing"]
    assert offsets_of(opened.log) == [0, 1, 2, 6, 7, 8]
    assert opened.log.next_offset == 9


@pytest.mark.parametrize("keep_bytes", [0, 404, 500, 808])
def test_a_sealed_log_that_lost_its_end_is_reported(tmp_path, keep_bytes):
    write_log(tmp_path, [[100]] * 6, segment_bytes=1200)
    cut_log(log_files(tmp_path)[0], keep_bytes)
    for _ in range(2):
        opened = reopen(tmp_path)
        first = keep_bytes // 404
        assert f"the messages {first} to 2 are missing" in opened.reported
        assert offsets_of(opened.log) == [*range(first), 3, 4, 5]
        opened.log.close()


@pytest.mark.parametrize("is_indexed", [True, False])
def test_damage_in_a_sealed_segment_is_never_stepped_over(tmp_path, is_indexed):
    write_log(tmp_path, [[100]] * 6, segment_bytes=1200)
    path = log_files(tmp_path)[0]
    flip_bit(path, 404 + 300)
    if not is_indexed:
        path.with_suffix(".index").unlink()
    size = path.stat().st_size
    for _ in range(2):
        opened = reopen(tmp_path)
        assert any("damaged" in what for what in opened.reported)
        assert offsets_of(opened.log) == [0]
        for offset in (1, 2):
            with pytest.raises(LogDamaged) as caught:
                opened.log.read(offset, 100, 10**9)
            assert (caught.value.offset, caught.value.position) == (1, 404)
        assert offsets_of(opened.log, 3) == [3, 4, 5]
        assert path.stat().st_size == size
        opened.log.close()


def test_files_of_another_partition_are_not_taken_in(tmp_path):
    write_log(tmp_path, [[100]])
    log_files(tmp_path, "index")[0].unlink()
    opened = reopen(tmp_path)
    opened.log.close()
    log_files(tmp_path, "index")[0].unlink()
    other = Opened(tmp_path, partition_id=5)
    assert other.log.next_offset == 0
    assert log_files(tmp_path, "torn")


def test_leftovers_are_removed_and_strangers_left_alone(tmp_path):
    write_log(tmp_path, [[100]])
    (tmp_path / f"{7:020d}.index").write_bytes(bytes(32))
    (tmp_path / f"{3:020d}.log.5.retired").write_bytes(b"x")
    strangers = ["offsets", "notes.log", f"{1:019d}.log", f"{0:020d}.log.900.torn"]
    for name in strangers:
        (tmp_path / name).write_bytes(b"")
    opened = reopen(tmp_path)
    assert offsets_of(opened.log) == [0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{0:020d}.log", f"{0:020d}.index", *strangers]
    )


def test_an_empty_directory_is_an_empty_log(tmp_path):
    opened = reopen(tmp_path)
    assert (opened.log.next_offset, opened.log.segments, opened.repairs) == (0, [], [])
    assert append(opened.log, [1]) == 0


def test_a_directory_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        reopen(tmp_path / "missing")


def test_opening_holds_no_descriptors(tmp_path):
    write_log(tmp_path, [[1000]] * 50, segment_bytes=5000)
    before = len(os.listdir("/proc/self/fd"))
    opened = reopen(tmp_path)
    assert len(opened.log.segments) > 10
    assert len(os.listdir("/proc/self/fd")) == before
