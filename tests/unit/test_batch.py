"""The gate for batches: what `build` makes passes, every broken rule is named, nothing else is raised."""

import random
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from borzoi.log.batch import cut, stamp
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.wire.batch import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    Layout,
    NewMessage,
    _walk,
    batch_checksum,
    build,
    frames,
    prove,
    read_header,
    split,
    verify_header,
    verify_messages,
)

XXH3_OF_COUNTING_BYTES = {
    0: "2d06800538d394c2",
    1: "c44bdff4074eecdb",
    3: "5f4299fc161c9cbb",
    4: "60dab036a58211f2",
    8: "3a1c2d7c85af88f8",
    9: "e9612598145bb9dc",
    16: "8355e3a6f61770db",
    17: "9ef341a99de37328",
    32: "3523581fe96e4c05",
    64: "6187eb9089b0ed55",
    65: "6928c76ce90422d0",
    128: "85c6174c7ff4c46b",
    129: "ec7642b431ba3e5a",
    160: "5bea9075ec9401b8",
    200: "f42a8864feaf0703",
    240: "375a384d957fe865",
    241: "02e8cd95421c6d02",
    256: "9408a4433b952d71",
    1024: "a870f92984398d22",
    1025: "78c86e91ee939852",
    2048: "dd420471ff96bd00",
}

# The batch of a send captured from the official client: "hello" id 1, "world!" id 2 with a header k=v.
CAPTURED = (
    bytes.fromhex(
        "0000000000000000 0000000000000000 0000000000000000 6a5ca50a56600600 7701000000000000"
        "f8c70d2755a73020 02000000"
    )
    + bytes(204)
    + bytes.fromhex(
        "8e5ca59edbbdbfb9 01000000000000000000000000000000 00000000 00000000 00000000 05000000"
        "0000000000000000 68656c6c6f"
        "b94a09fe5af1e5e1 02000000000000000000000000000000 01000000 15000000 0c000000 06000000"
        "0000000000000000 776f726c6421 02010000006b020100000076"
    )
)

messages = st.lists(
    st.builds(
        NewMessage,
        payload=st.binary(min_size=1, max_size=40),
        id=st.integers(0, 2**128 - 1),
        user_headers=st.binary(max_size=12),
        origin_timestamp_us=st.integers(10**15, 10**15 + 2**32 - 1),
    ),
    min_size=1,
    max_size=60,
)


def uniform(count, size=8):
    return bytearray(build([NewMessage(bytes([index % 256]) * size, id=index) for index in range(count)]))


def mixed(count):
    return bytearray(build([NewMessage(b"x" * (1 + index % 5), id=index) for index in range(count)]))


def refusal(batch, expected_count=None):
    with pytest.raises(RemoteProtocolError) as caught:
        prove(memoryview(batch), expected_count)
    return caught.value


@pytest.mark.parametrize("length", XXH3_OF_COUNTING_BYTES)
def test_xxh3_agrees_with_the_protocols_vectors(length):
    data = bytes(index % 256 for index in range(length))
    assert f"{xxh3_64_intdigest(data):016x}" == XXH3_OF_COUNTING_BYTES[length]


def test_captured_batch_is_proven_and_its_checksums_are_right():
    batch = memoryview(CAPTURED)
    layout = prove(batch, 2)
    assert (layout.message_count, layout.length) == (2, 375)
    verify_header(batch, layout)
    verify_messages(batch, layout)
    assert batch_checksum(batch, layout).to_bytes(8, "little").hex() == "f8c70d2755a73020"
    first, second = frames(batch)
    assert (first.id, bytes(first.payload), first.checksum.to_bytes(8, "little").hex()) == (
        1,
        b"hello",
        "8e5ca59edbbdbfb9",
    )
    assert (second.id, bytes(second.payload), second.timestamp_delta_us) == (2, b"world!", 21)
    assert bytes(second.user_headers) == bytes.fromhex("02010000006b020100000076")


def test_build_makes_the_captured_batch_byte_for_byte():
    origin_us = 1794772522327146
    made = build(
        [
            NewMessage(b"hello", 1, b"", origin_us),
            NewMessage(b"world!", 2, bytes.fromhex("02010000006b020100000076"), origin_us + 21),
        ]
    )
    assert bytes(made) == CAPTURED


@given(messages)
def test_what_build_makes_is_proven_and_reads_back_as_given(given_messages):
    batch = memoryview(build(given_messages))
    layout = prove(batch, len(given_messages))
    verify_header(batch, layout)
    verify_messages(batch, layout)
    origin_us = read_header(batch).origin_timestamp_us
    assert given_messages == [
        NewMessage(
            bytes(frame.payload), frame.id, bytes(frame.user_headers), origin_us + frame.timestamp_delta_us
        )
        for frame in frames(batch)
    ]
    assert [frame.offset_delta for frame in frames(batch)] == list(range(len(given_messages)))


def test_build_refuses_what_the_layout_cannot_hold():
    with pytest.raises(ValueError, match="at least one"):
        build([])
    with pytest.raises(ValueError, match="apart"):
        build([NewMessage(b"a"), NewMessage(b"b", origin_timestamp_us=2**32)])
    build([NewMessage(b"a"), NewMessage(b"b", origin_timestamp_us=2**32 - 1)])


@pytest.mark.parametrize("count", [1, 23, 24, 25, 4096, 5000])
def test_uniform_and_walked_layouts_agree(count):
    batch = memoryview(uniform(count))
    proven, walked = prove(batch), _walk(batch, count)
    assert [proven.position(index) for index in range(count + 1)] == [
        walked.position(index) for index in range(count + 1)
    ]
    assert batch_checksum(batch, proven) == batch_checksum(batch, walked)


def test_equal_frame_sizes_with_different_parts_are_walked():
    batch = memoryview(
        build([NewMessage(b"abcd"), NewMessage(b"ab", user_headers=b"cd")] + [NewMessage(b"abcd")] * 30)
    )
    assert prove(batch).stride == 0


@pytest.mark.parametrize("make", [uniform, mixed])
@pytest.mark.parametrize("count", [1, 3, 40])
class TestRefusals:
    def test_message_count_other_than_announced(self, make, count):
        error = refusal(make(count), count + 1)
        assert "message_count" in error.detail
        assert error.code == 3

    def test_message_count_zero(self, make, count):
        batch = make(count)
        struct.pack_into("<I", batch, 48, 0)
        assert refusal(batch).code == 4009

    @pytest.mark.parametrize("wrong", [-1, 1, 1000, 2**32 - 1000])
    def test_message_count_other_than_frames(self, make, count, wrong):
        batch = make(count)
        if count + wrong:
            struct.pack_into("<I", batch, 48, count + wrong)
            refusal(batch)

    @pytest.mark.parametrize("wrong", [-1, 1, 2**40])
    def test_length_field(self, make, count, wrong):
        batch = make(count)
        struct.pack_into("<Q", batch, 32, len(batch) + wrong)
        assert "batch_length" in refusal(batch).detail

    def test_reserved_bytes_of_the_batch(self, make, count):
        for position in (52, 255):
            batch = make(count)
            batch[position] = 1
            assert "reserved" in refusal(batch).detail

    def test_reserved_bytes_of_a_frame(self, make, count):
        batch = make(count)
        batch[prove(memoryview(bytes(batch))).position(count - 1) + 47] = 1
        assert "reserved" in refusal(batch).detail

    def test_offset_delta(self, make, count):
        batch = make(count)
        struct.pack_into("<I", batch, prove(memoryview(bytes(batch))).position(count - 1) + 24, count)
        assert "offset_delta" in refusal(batch).detail

    @pytest.mark.parametrize(("field", "wrong"), [(32, 1), (36, 1), (36, -1)])
    def test_lengths_that_do_not_tile(self, make, count, field, wrong):
        batch = make(count)
        at = prove(memoryview(bytes(batch))).position(count - 1) + field
        (value,) = struct.unpack_from("<I", batch, at)
        struct.pack_into("<I", batch, at, value + wrong)
        refusal(batch)

    def test_cut_short_or_continued(self, make, count):
        batch = make(count)
        refusal(batch[:-1])
        refusal(batch + b"\0")
        struct.pack_into("<Q", batch, 32, len(batch) + 1)
        refusal(batch + b"\0")


@pytest.mark.parametrize("count", [1, 30])
def test_empty_payload_is_refused(count):
    batch = uniform(count, 4)
    for index in range(count):
        struct.pack_into("<II", batch, HEADER_BYTES + index * 52 + 32, 4, 0)
    assert refusal(batch).code == 4025


def with_lengths(headers, payload):
    frame = struct.pack("<QQQIIIIQ", 0, 0, 0, 0, 0, headers, payload, 0) + bytes(headers + payload)
    return struct.pack("<6QI204x", 0, 0, 0, 0, HEADER_BYTES + len(frame), 0, 1) + frame


@pytest.mark.parametrize(
    ("headers", "payload", "code"),
    [
        (0, PAYLOAD_BYTES_MAX, None),
        (0, PAYLOAD_BYTES_MAX + 1, 4022),
        (USER_HEADERS_BYTES_MAX, 1, None),
        (USER_HEADERS_BYTES_MAX + 1, 1, 4017),
    ],
)
def test_sizes_at_the_limit_pass_and_one_past_it_do_not(headers, payload, code):
    batch = with_lengths(headers, payload)
    if code is None:
        assert prove(memoryview(batch)).message_count == 1
    else:
        assert refusal(batch).code == code


@given(st.binary(max_size=600))
def test_random_bytes_raise_nothing_but_a_protocol_error(data):
    for look_at in (prove, lambda view: list(frames(view)), lambda view: list(split(view))):
        with suppress(RemoteProtocolError):
            look_at(memoryview(data))


@settings(max_examples=300)
@given(st.sampled_from([1, 5, 30]), st.booleans(), st.data())
def test_mutated_batches_are_proven_or_refused_and_what_is_proven_tiles(count, is_uniform, data):
    batch = (uniform if is_uniform else mixed)(count)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    cut_at = data.draw(st.one_of(st.just(len(batch)), st.integers(0, len(batch))))
    view = memoryview(bytes(batch[:cut_at]))
    try:
        layout = prove(view)
    except RemoteProtocolError:
        return
    found = list(frames(view))
    sizes = [FRAME_HEADER_BYTES + len(each.payload) + len(each.user_headers) for each in found]
    assert HEADER_BYTES + sum(sizes) == len(view) == layout.position(layout.message_count)
    assert [each.offset_delta for each in found] == list(range(layout.message_count))


def check_all(batch):
    layout = prove(batch)
    verify_header(batch, layout)
    verify_messages(batch, layout)


def test_every_flipped_bit_of_a_stored_batch_is_noticed():
    batch = bytearray(build([NewMessage(b"ab", 1), NewMessage(b"cdef", 2, b"k")]))
    stamp(memoryview(batch), prove(memoryview(batch)), 3, 1000, 99)
    for position in range(len(batch)):
        batch[position] ^= 1 << (position % 8)
        with pytest.raises(RemoteProtocolError):
            check_all(memoryview(batch))
        batch[position] ^= 1 << (position % 8)


def naive_part(batch, first, count):
    """The frames taken one by one behind a header made by hand."""
    header = read_header(batch)
    chosen = []
    position = HEADER_BYTES
    for index, frame in enumerate(frames(batch)):
        end = position + FRAME_HEADER_BYTES + len(frame.payload) + len(frame.user_headers)
        if first <= index < first + count:
            chosen.append(bytes(batch[position:end]))
        position = end
    length = HEADER_BYTES + sum(map(len, chosen))
    fields = struct.pack("<5Q", *header[:4], length)
    digest = xxh3_64_intdigest(fields + struct.pack("<I", count) + b"".join(each[:8] for each in chosen))
    return fields + struct.pack("<QI204x", digest, count) + b"".join(chosen)


@pytest.mark.parametrize("make", [uniform, mixed])
@pytest.mark.parametrize("count", [1, 7, 40])
def test_cut_equals_the_naive_rebuild(make, count):
    batch = memoryview(make(count))
    stamp(batch, prove(batch), 2, 500, 77)
    chooser = random.Random(count)
    for _ in range(50):
        first = chooser.randrange(count)
        taken = chooser.randint(1, count - first)
        header, part = cut(batch, first, taken)
        assert bytes(header) + bytes(part) == naive_part(batch, first, taken)


def test_stamp_writes_place_time_and_checksum_and_nothing_else():
    batch = memoryview(mixed(3))
    before = bytes(batch)
    stamp(batch, prove(batch), 7, 10**12, 10**15)
    header = read_header(batch)
    assert header[:3] == (7, 10**12, 10**15)
    assert bytes(batch[24:40]) == before[24:40]
    assert bytes(batch[48:]) == before[48:]
    verify_header(batch, prove(batch))


def test_split_gives_every_batch_and_refuses_a_rest():
    batches = [bytes(uniform(1)), bytes(mixed(4)), bytes(uniform(30))]
    assert [bytes(each) for each in split(memoryview(b"".join(batches)))] == batches
    for rest in (b"\0", bytes(255), bytes(256), batches[0][:-1]):
        with pytest.raises(RemoteProtocolError):
            list(split(memoryview(batches[0] + rest)))


def test_layout_positions_end_with_the_batch():
    assert Layout(3, 1000, 0, [256, 400, 500]).position(3) == 1000
    assert Layout(3, 256 + 3 * 60, 60).position(3) == 256 + 3 * 60
