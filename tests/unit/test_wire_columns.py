"""Batches as columns: the same as message by message, and nothing but a protocol error for other bytes."""

import mmap
import struct
import tempfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.client.received import append_messages, messages_of
from borzoi.log.batch import cut, stamp
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.replies import PolledMessages
from borzoi.wire.batch import frames, prove, read_header, split
from borzoi.wire.build import NewMessage, build
from borzoi.wire.columns import columns


def stored(messages, partition_id=3, base_offset=1000, base_us=10**15):
    batch = memoryview(build(messages))
    stamp(batch, prove(batch), partition_id, base_offset, base_us)
    return bytes(batch)


def equal_sized(count, size=5, headers=b""):
    return [NewMessage(b"%0*d" % (size, n), 2**100 + n, headers, 10**15 + n) for n in range(count)]


def mixed(count):
    return [
        NewMessage(b"p" * (1 + number % 7), number * 2**70, b"h" * (number % 4), 10**15 - number)
        for number in range(count)
    ]


def rows(buffer):
    """Message by message, with what reads single batches."""
    found = []
    for batch in split(memoryview(buffer)):
        header = read_header(batch)
        found += [
            (
                header.partition_id,
                header.base_offset + frame.offset_delta,
                header.base_timestamp_us,
                header.origin_timestamp_us + frame.timestamp_delta_us,
                frame.id,
                frame.checksum,
                bytes(frame.payload),
                bytes(frame.user_headers),
            )
            for frame in frames(batch)
        ]
    return found


def columns_as_rows(found):
    data = bytes(found.buffer)
    payload_bounds = zip(found.payload_starts.tolist(), found.payload_ends.tolist(), strict=True)
    headers_bounds = zip(found.payload_ends.tolist(), found.headers_ends.tolist(), strict=True)
    payloads, blocks = found.payloads(), found.header_blocks()
    assert payloads == [data[start:end] for start, end in payload_bounds]
    assert blocks == [data[start:end] for start, end in headers_bounds]
    assert found.has_headers == any(blocks)
    ids = [int.from_bytes(each, "little") for each in found.ids.tolist()]
    assert [each[8:] for each in found.checksums_and_ids.tolist()] == found.ids.tolist()
    return list(
        zip(
            found.partition_ids.tolist(),
            found.offsets.tolist(),
            found.timestamps_us.tolist(),
            found.origin_timestamps_us.tolist(),
            ids,
            found.checksums.tolist(),
            payloads,
            blocks,
            strict=True,
        )
    )


def part_of(batch, first, count):
    header, frames_part = cut(memoryview(batch), first, count)
    return bytes(header) + bytes(frames_part)


BUFFERS = {
    "nothing": b"",
    "one message": stored(equal_sized(1)),
    "few": stored(equal_sized(7)),
    "equal": stored(equal_sized(40)),
    "equal with headers": stored(equal_sized(40, headers=b"abc")),
    "equal of two sizes": b"".join(
        [
            stored(equal_sized(40), base_offset=0),
            stored(equal_sized(24, size=90, headers=b"abc"), base_offset=40),
            stored(equal_sized(30), 4, base_offset=64, base_us=10**15 + 1),
        ]
    ),
    "mixed": stored(mixed(50)),
    "singles": b"".join(stored(equal_sized(1), base_offset=n, base_us=n) for n in range(30)),
    "all of it": b"".join(
        [
            part_of(stored(equal_sized(60), base_offset=0), 20, 40),
            stored(mixed(3), 3, 60),
            stored(equal_sized(24), 3, 63),
            stored(mixed(30), 4, 87, 10**15 + 1),
            part_of(stored(mixed(30), base_offset=117), 0, 11),
        ]
    ),
    "a part of equal ones": part_of(stored(equal_sized(60)), 30, 30),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_columns_are_what_is_read_message_by_message(name):
    buffer = BUFFERS[name]
    found = columns(buffer)
    assert columns_as_rows(found) == rows(buffer)
    assert len(found) == len(rows(buffer))


@pytest.mark.parametrize("name", BUFFERS)
def test_offsets_are_a_range_unless_some_are_left_out(name):
    found = columns(BUFFERS[name])
    offsets = found.offsets.tolist()
    is_range = bool(offsets) and offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert list(found.offset_range or ()) == (offsets if is_range else [])


@pytest.mark.parametrize("name", BUFFERS)
def test_a_part_has_the_messages_of_its_range(name):
    found, expected = columns(BUFFERS[name]), rows(BUFFERS[name])
    count = len(found)
    for first in {0, 1, count // 3, count // 2, count}:
        for last in {first, min(first + 1, count), (first + count) // 2, count}:
            if first <= last <= count:
                assert columns_as_rows(found.part(first, last)) == expected[first:last]


@given(
    st.lists(
        st.lists(
            st.builds(
                NewMessage,
                payload=st.binary(min_size=1, max_size=6),
                id=st.integers(0, 2**128 - 1),
                user_headers=st.binary(max_size=3),
            ),
            min_size=1,
            max_size=40,
        ),
        max_size=4,
    )
)
def test_columns_of_any_batches(batches):
    buffer = b"".join(map(stored, batches))
    assert columns_as_rows(columns(buffer)) == rows(buffer)


def test_a_mapped_file_is_as_good_as_memory():
    with tempfile.TemporaryFile() as file:
        file.write(BUFFERS["all of it"])
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            found = columns(mapped)
            assert columns_as_rows(found) == rows(BUFFERS["all of it"])
            found.buffer.release()
            del found


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize("count_says", [1, 10**6])
def test_polled_messages_are_the_same_with_and_without_columns(name, count_says):
    buffer = BUFFERS[name]
    found = messages_of(PolledMessages(3, 0, count_says, [memoryview(buffer)]))
    assert [
        (
            each.partition_id,
            each.offset,
            each.timestamp,
            each.origin_timestamp,
            each.id,
            each.checksum,
            each.payload,
            each.user_headers,
        )
        for each in found
    ] == rows(buffer)


def look_at(data):
    """Everything that reads batches from somebody else; raises RemoteProtocolError or agrees with itself."""
    found = columns(data)
    columns_as_rows(found)
    one_by_one = []
    for batch in split(memoryview(data)):
        append_messages(one_by_one, read_header(batch), bytes(batch))
    assert [each.payload for each in one_by_one] == found.payloads()


@given(st.binary(max_size=900))
def test_random_bytes_raise_nothing_but_a_protocol_error(data):
    with suppress(RemoteProtocolError):
        look_at(data)


@settings(max_examples=400)
@given(st.sampled_from(sorted(set(BUFFERS) - {"nothing"})), st.data())
def test_mutated_batches_raise_nothing_but_a_protocol_error(name, data):
    buffer = bytearray(BUFFERS[name])
    for _ in range(data.draw(st.integers(0, 4))):
        # Lengths and counts of the first batch and frames are what matters most.
        position = data.draw(st.integers(0, len(buffer) - 1) | st.integers(32, min(300, len(buffer) - 1)))
        buffer[position] = data.draw(st.integers(0, 255))
    with suppress(RemoteProtocolError):
        look_at(bytes(buffer[: data.draw(st.just(len(buffer)) | st.integers(0, len(buffer)))]))


@pytest.mark.parametrize("name", ["one message", "few", "equal", "mixed"])
@pytest.mark.parametrize(
    ("at", "form", "wrong"),
    [
        (32, "<Q", 0),
        (32, "<Q", 255),
        (32, "<Q", 2**64 - 1),
        (32, "<Q", 2**63),
        (48, "<I", 2**32 - 1),
        (48, "<I", 0),
        (256 + 32, "<I", 2**32 - 1),
        (256 + 36, "<I", 2**32 - 1),
        (256 + 36, "<Q", 2**64 - 1),
    ],
)
def test_lengths_and_counts_that_lie_are_refused(name, at, form, wrong):
    buffer = bytearray(BUFFERS[name])
    struct.pack_into(form, buffer, at, wrong)
    with pytest.raises(RemoteProtocolError):
        columns(buffer)
    with pytest.raises(RemoteProtocolError):
        messages_of(PolledMessages(3, 0, 1, [memoryview(buffer)]))


@pytest.mark.parametrize("name", ["one message", "few", "equal", "mixed"])
def test_every_cut_is_noticed(name):
    buffer = BUFFERS[name]
    for end in range(1, len(buffer)):
        with pytest.raises(RemoteProtocolError):
            columns(buffer[:end])


@pytest.mark.parametrize("count", [3, 40])
def test_empty_payloads_of_a_careless_server_are_empty(count):
    buffer = bytearray(stored(equal_sized(count, size=5)))
    for number in range(count):
        struct.pack_into("<II", buffer, 256 + 53 * number + 32, 5, 0)  # the payload becomes user headers
    found = columns(buffer)
    assert columns_as_rows(found) == rows(buffer)
    assert found.payloads() == [b""] * count


def test_no_column_is_signed():
    found = columns(BUFFERS["mixed"])
    for column in (found.offsets, found.timestamps_us, found.origin_timestamps_us, found.checksums):
        assert column.dtype == np.uint64
