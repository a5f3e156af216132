"""Where so many bytes after an offset end: against a plain sum over the batches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.log.extent import cut_after
from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings
from borzoi.log.recovery import open_partition
from borzoi.model.requests import ByteCut
from borzoi.wire.batch import split
from support.logs import NOW_US, append

KB = 1024


def fill(directory, batches, segment_bytes=200 * KB):
    log = open_partition(directory, 0, LogSettings(segment_bytes), OpenFiles(8), lambda repair: None)
    for sizes in batches:
        append(log, sizes, NOW_US)
    return log


def bytes_between(log, start, end):
    result = log.read(start, end - start, 1 << 40)
    return sum(len(batch) for buffer in result.buffers for batch in split(memoryview(buffer)))


def test_of_an_empty_log_there_is_nothing_to_cut(tmp_path):
    assert cut_after(fill(tmp_path, []), 0, 1000) == (0, 0)
    assert cut_after(fill(tmp_path, []), 7, 1000) == (0, 0)


def test_everything_fits(tmp_path):
    log = fill(tmp_path, [[KB] * 20] * 30)
    assert cut_after(log, 0, 1 << 40) == (600, log.size_bytes)
    assert cut_after(log, 599, 1 << 40).offset == 600


def test_even_a_tiny_limit_gets_on(tmp_path):
    log = fill(tmp_path, [[KB] * 20] * 30)
    seen = [0]
    while seen[-1] < 600:
        seen.append(cut_after(log, seen[-1], 1).offset)
        assert seen[-1] > seen[-2]
    assert seen == list(range(0, 601, 20))


def test_offsets_before_the_first_retained_one_start_there(tmp_path):
    log = fill(tmp_path, [[KB] * 20] * 30)
    log.drop_oldest(1)
    first = log.first_offset
    assert first
    assert cut_after(log, 0, 1) == cut_after(log, first, 1)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(1, 30 * KB), min_size=1, max_size=5), min_size=1, max_size=40),
    segment_kb=st.integers(20, 400),
    start=st.integers(0, 200),
    bytes_max=st.integers(1, 1000 * KB),
)
def test_a_cut_is_the_last_run_within_the_limit(tmp_path_factory, batches, segment_kb, start, bytes_max):
    log = fill(tmp_path_factory.mktemp("log"), batches, segment_kb * KB)
    cut = cut_after(log, start, bytes_max)
    if start >= log.next_offset:
        assert cut == (log.next_offset, 0)
        return
    assert start < cut.offset <= log.next_offset
    starts = [offset for segment in log.segments for offset in segment.entries.offsets]
    run = max(offset for offset in starts if offset <= start)
    assert cut.bytes_after == bytes_between(log, run, log.next_offset)
    ends = [offset for offset in (*starts, log.next_offset) if offset > run]
    fitting = [offset for offset in ends if bytes_between(log, run, offset) <= bytes_max]
    assert cut.offset == (fitting[-1] if fitting else ends[0])


def test_a_client_asks_for_all_partitions_at_once(borzoi):
    borzoi.create_stream("s")
    topic = borzoi.create_topic("s", "t", 2)
    for _ in range(10):
        borzoi.send_messages("s", "t", 1, [b"x" * 50 * KB])
    extent = borzoi.get_topic_extent("s", "t", [ByteCut(1, 3, 120 * KB)])
    assert extent.created_at_us == topic.created_at_us
    empty, full = extent.partitions
    assert (empty.first_offset, empty.next_offset, empty.cut_offset, empty.bytes_after) == (0, 0, 0, 0)
    assert (full.first_offset, full.next_offset, full.cut_offset) == (0, 10, 5)
    assert full.bytes_after > 7 * 50 * KB


def test_a_cut_of_a_partition_that_is_not_there_is_refused(borzoi):
    from borzoi.model.errors import PartitionNotFound

    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 1)
    with pytest.raises(PartitionNotFound):
        borzoi.get_topic_extent("s", "t", [ByteCut(1, 0, 1)])
