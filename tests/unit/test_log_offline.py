"""Reading segment files and metadata that somebody else owns."""

import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.broker.metadata import MetadataError
from borzoi.broker.offline import read_catalog
from borzoi.log.files import OpenFiles
from borzoi.log.offline import SegmentDamaged, list_segments, offset_at_or_after, read_runs
from borzoi.log.partition import LogSettings
from borzoi.log.recovery import open_partition
from borzoi.wire.batch import frames, read_header, split
from support.logs import NOW_US, append

KB = 1024


def fill(directory, batches, segment_bytes=100 * KB):
    log = open_partition(directory, 0, LogSettings(segment_bytes), OpenFiles(8), lambda repair: None)
    for number, sizes in enumerate(batches):
        append(log, sizes, NOW_US + number)
    return log


def offsets_in(buffers):
    return [
        read_header(batch).base_offset + frame.offset_delta
        for buffer in buffers
        for batch in split(buffer)
        for frame in frames(batch)
    ]


def read_all(directory, start=0, end=10**9, chunk_bytes=50 * KB, **options):
    return [
        offset
        for segment in list_segments(directory, **options)
        for offset in offsets_in(read_runs(segment, start, end, chunk_bytes))
    ]


def test_an_empty_directory_has_no_segments(tmp_path):
    assert list_segments(tmp_path) == []


def test_everything_is_read_in_order_while_the_owner_is_at_work(tmp_path):
    log = fill(tmp_path, [[KB] * 7] * 60)
    assert len(log.segments) > 3
    assert read_all(tmp_path) == list(range(420))
    sealed = list_segments(tmp_path, sealed_only=True)
    assert [segment.base_offset for segment in sealed] == [each.base_offset for each in log.segments[:-1]]
    assert all(segment.is_sealed for segment in sealed)


def test_single_messages_that_the_index_does_not_cover_yet_are_read(tmp_path):
    log = fill(tmp_path, [])
    for number in range(5):
        batch_sizes = [100 + number]
        append(log, batch_sizes)
    assert read_all(tmp_path) == [0, 1, 2, 3, 4]


def test_a_torn_tail_is_left_out_and_left_alone(tmp_path):
    fill(tmp_path, [[KB] * 7] * 10)
    (path,) = tmp_path.glob("*.log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)
    size = path.stat().st_size
    assert read_all(tmp_path) == list(range(63))
    assert path.stat().st_size == size


def test_a_segment_without_an_index_is_read_all_the_same(tmp_path):
    log = fill(tmp_path, [[KB] * 7] * 60)
    log.segments[0].index.path.unlink()
    assert read_all(tmp_path) == list(range(420))
    assert not log.segments[0].index.path.exists()


def test_damage_is_reported_and_not_served(tmp_path):
    fill(tmp_path, [[KB] * 7] * 60)
    first = list_segments(tmp_path)[0]
    data = bytearray(first.path.read_bytes())
    data[len(data) // 2] ^= 1
    first.path.write_bytes(data)
    with pytest.raises(SegmentDamaged, match=first.path.name):
        read_all(tmp_path)


def test_a_deleted_file_stays_readable_for_whoever_reads_it(tmp_path):
    fill(tmp_path, [[KB] * 7] * 60)
    segment = list_segments(tmp_path)[0]
    chunks = read_runs(segment, 0, 10**9, 10 * KB)
    first = next(chunks)
    shutil.rmtree(tmp_path)
    assert offsets_in([first, *chunks]) == list(range(segment.next_offset))


def test_a_file_that_is_cut_short_while_it_is_read_is_damaged(tmp_path):
    fill(tmp_path, [[KB] * 7] * 60)
    segment = list_segments(tmp_path)[0]
    chunks = read_runs(segment, 0, 10**9, 10 * KB)
    first = next(chunks)
    os.truncate(segment.path, len(first) + 100)
    with pytest.raises(SegmentDamaged, match=f"{segment.path.name}: {len(first) + 100} bytes are left of"):
        list(chunks)


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(1, 9 * KB), min_size=1, max_size=4), min_size=1, max_size=50),
    start=st.integers(0, 150),
    length=st.integers(1, 150),
    chunk_kb=st.integers(1, 200),
)
def test_a_range_is_covered_without_gaps_or_repetitions(tmp_path_factory, batches, start, length, chunk_kb):
    directory = tmp_path_factory.mktemp("log")
    log = fill(directory, batches)
    found = read_all(directory, start, start + length, chunk_kb * KB)
    assert found == sorted(set(found))
    wanted = range(start, min(start + length, log.next_offset))
    assert set(wanted) <= set(found)


def test_times_are_found_as_fine_as_the_index_is(tmp_path):
    log = fill(tmp_path, [[20 * KB]] * 30)
    segments = list_segments(tmp_path)
    for offset in range(30):
        found = offset_at_or_after(segments, NOW_US + offset)
        assert found <= offset
        assert offset - found <= 1
    assert offset_at_or_after(segments, NOW_US + 1000) == log.next_offset - 1
    assert offset_at_or_after([], NOW_US) == 0


def test_the_catalog_is_read_beside_a_running_server_and_from_a_copy(borzoi, borzoi_server, tmp_path):
    borzoi.create_stream("orders")
    borzoi.create_topic("orders", "events", 3)
    borzoi.create_consumer_group("orders", "events", "billing")
    topic = read_catalog(borzoi_server.path).topic("orders", "events")
    assert (topic.id, len(topic.partitions)) == (0, 3)
    shutil.copytree(borzoi_server.path, tmp_path / "copy")
    borzoi.create_topic("orders", "later", 1)
    assert read_catalog(tmp_path / "copy").find_topic("orders", "later") is None
    assert read_catalog(borzoi_server.path).find_topic("orders", "later") is not None


def test_what_is_no_data_directory_is_refused(tmp_path):
    with pytest.raises(MetadataError, match="no data directory"):
        read_catalog(tmp_path)
