"""What builds batches fast makes the same bytes as the plain loop that says what a batch is."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from borzoi.client import values as client_values
from borzoi.client.values import SendMessage, new_batch, new_messages
from borzoi.model.errors import (
    EmptyMessagePayload,
    InvalidIdentifier,
    InvalidMessagesCount,
    RemoteProtocolError,
    TooBigMessagePayload,
    TooBigUserHeaders,
)
from borzoi.model.headers import encode_user_headers
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.wire import build as build_module
from borzoi.wire.batch import frames, prove, read_header, verify_header, verify_messages
from borzoi.wire.build import NewMessage, assemble, build, encode_columns

NOW_US = 1_700_000_000_000_000
IDS = 1 << 128
# Around the count from which NumPy is used.
COUNTS = (1, 2, 27, 28, 29, 200)


def plain_build(messages):
    """Frame after frame, as the layout is drawn."""
    origin_us = min(message.origin_timestamp_us for message in messages)
    body = b""
    checksums = b""
    for index, message in enumerate(messages):
        delta_us = message.origin_timestamp_us - origin_us
        lengths = (len(message.user_headers), len(message.payload))
        frame = (
            message.id.to_bytes(16, "little")
            + struct.pack("<IIIIQ", index, delta_us, *lengths, 0)
            + bytes(message.payload)
            + message.user_headers
        )
        checksum = struct.pack("<Q", xxh3_64_intdigest(frame))
        checksums += checksum
        body += checksum + frame
    fields = struct.pack("<5Q", 0, 0, 0, origin_us, 256 + len(body))
    count = struct.pack("<I", len(messages))
    digest = xxh3_64_intdigest(fields + count + checksums)
    return fields + struct.pack("<Q", digest) + count + bytes(204) + body


def some_messages(**fixed):
    fields = {
        "payload": st.binary(min_size=1, max_size=30),
        "id": st.integers(0, IDS - 1),
        "user_headers": st.binary(max_size=9),
        "origin_timestamp_us": st.integers(NOW_US, NOW_US + 2**32 - 1),
    }
    return st.lists(st.builds(NewMessage, **(fields | fixed)), min_size=1, max_size=70)


@settings(max_examples=200)
@given(
    some_messages()
    | some_messages(user_headers=st.just(b""), origin_timestamp_us=st.just(NOW_US))
    | some_messages(payload=st.binary(min_size=8, max_size=8), user_headers=st.just(b""))
)
def test_build_makes_the_bytes_of_the_plain_loop(messages):
    assert build(messages) == plain_build(messages)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("first", [0, 2**64 - 5, 2**127, IDS - 5, IDS - 1])
def test_consecutive_ids_carry_into_the_upper_half_and_begin_again_after_the_last(count, first):
    payloads = [b"payload %d" % number for number in range(count)]
    ids = [(first + number) % IDS for number in range(count)]
    expected = plain_build([NewMessage(*each) for each in zip(payloads, ids, strict=True)])
    assert assemble(payloads, first) == assemble(payloads, ids) == expected
    as_bytes = np.frombuffer(b"".join(each.to_bytes(16, "little") for each in ids), "V16")
    as_halves = as_bytes.view([("low", "<u8"), ("high", "<u8")])
    assert assemble(payloads, as_bytes) == assemble(payloads, as_halves) == expected


@pytest.mark.parametrize("count", COUNTS)
def test_large_payloads_are_hashed_in_pieces_with_the_same_result(count, monkeypatch):
    messages = [
        NewMessage(bytes([number % 251]) * 50, number, b"h" * (number % 3)) for number in range(count)
    ]
    monkeypatch.setattr(build_module, "_PIECES_BYTES_MIN", 1)
    assert build(messages) == plain_build(messages)


@pytest.mark.parametrize("count", COUNTS)
class TestRefusals:
    def test_sizes_out_of_range(self, count):
        fine = [NewMessage(b"x")] * (count - 1)
        for wrong, code in (
            (NewMessage(b""), 4025),
            (NewMessage(bytes(PAYLOAD_BYTES_MAX + 1)), 4022),
            (NewMessage(b"x", user_headers=bytes(USER_HEADERS_BYTES_MAX + 1)), 4017),
        ):
            with pytest.raises(RemoteProtocolError, match=f"message {count - 1}") as caught:
                build([*fine, wrong])
            assert caught.value.code == code

    def test_ids_out_of_range(self, count):
        for wrong in (-1, IDS):
            with pytest.raises(OverflowError):
                build([NewMessage(b"x")] * (count - 1) + [NewMessage(b"x", wrong)])

    def test_ids_that_are_too_few_or_too_short(self, count):
        payloads = [b"x"] * count
        for ids in ([1] * (count + 1), np.zeros(count + 1, "V16"), np.zeros(count, "V8")):
            with pytest.raises(ValueError, match="ids"):
                assemble(payloads, ids)

    def test_origin_times_too_far_apart(self, count):
        messages = [NewMessage(b"x", origin_timestamp_us=NOW_US)] * count
        build([*messages, NewMessage(b"x", origin_timestamp_us=NOW_US + 2**32 - 1)])
        with pytest.raises(ValueError, match="apart"):
            build([*messages, NewMessage(b"x", origin_timestamp_us=NOW_US + 2**32)])


class TestColumns:
    @pytest.mark.parametrize("form", [np.int32, np.int64])
    @pytest.mark.parametrize("is_equal", [True, False])
    @pytest.mark.parametrize("count", COUNTS)
    def test_a_buffer_with_offsets_makes_the_same_batch_as_its_payloads(self, count, is_equal, form):
        payloads = [b"%05d" % number + b"x" * (0 if is_equal else number % 7) for number in range(count)]
        blocks = [b"block" * (number % 2) for number in range(count)]
        origins_us = [NOW_US + 10 * number for number in range(count)][::-1]
        data = b"before" + b"".join(payloads) + b"after"
        offsets = np.cumsum([6, *map(len, payloads)]).astype(form)
        made = encode_columns(data, offsets, ids=7, blocks=blocks, origins_us=np.array(origins_us, np.int64))
        ids = range(7, 7 + count)
        assert made == plain_build(
            [NewMessage(*each) for each in zip(payloads, ids, blocks, origins_us, strict=True)]
        )
        assert encode_columns(memoryview(data), offsets, ids=7) == assemble(payloads, 7)

    @pytest.mark.parametrize("offsets", [[], [0], [0, 11], [-1, 5], [0, 7, 5]])
    def test_offsets_that_do_not_fit(self, offsets):
        with pytest.raises(ValueError):
            encode_columns(bytes(10), np.array(offsets, np.int64))

    def test_empty_payloads_are_refused(self):
        with pytest.raises(RemoteProtocolError, match="message 1 has an empty payload"):
            encode_columns(bytes(10), np.array([0, 5, 5, 10]))

    @pytest.mark.parametrize("count", [1, 40])
    def test_as_many_origin_times_as_messages(self, count):
        with pytest.raises(ValueError, match="origin times"):
            encode_columns(bytes(count), np.arange(count + 1), origins_us=np.zeros(count + 1, np.int64))
        with pytest.raises(ValueError, match="origin times"):
            encode_columns(bytes(count), np.arange(count + 1), origins_us=np.full(count, -1))


# What a user sends


@pytest.fixture
def fixed_chance(monkeypatch):
    """The random number that ids start from, and the time."""
    monkeypatch.setattr(client_values.os, "urandom", lambda size: b"\xff" * (size - 1) + b"\x00")
    monkeypatch.setattr(client_values.time, "time_ns", lambda: NOW_US * 1000)
    return int.from_bytes(b"\xff" * 15 + b"\x00", "little")


def as_sent(payload):
    return payload.encode() if isinstance(payload, str) else bytes(payload)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "make",
    [
        lambda number: b"bytes %d" % number,
        lambda number: f"tëxt {number}",
        lambda number: SendMessage(b"bytes %d" % number),
        lambda number: SendMessage(f"tëxt {number}"),
        lambda number: SendMessage(b"with an id", id=number * 2**80),
        lambda number: SendMessage(b"sometimes", id=number if number % 3 else None),
        lambda number: SendMessage(b"headers", headers={"number": number} if number % 2 else None),
        lambda number: bytearray(b"%d" % number),
        lambda number: memoryview(b"%d" % number),
        lambda number: [b"mixed", "mixed", SendMessage(b"mixed"), bytearray(b"mixed")][number % 4],
    ],
)
def test_every_kind_of_message_is_sent_as_the_plain_loop_would(count, make, fixed_chance):
    given_messages = [make(number) for number in range(count)]
    full = [each if isinstance(each, SendMessage) else SendMessage(each) for each in given_messages]
    expected = plain_build(
        [
            NewMessage(
                as_sent(each.payload),
                (fixed_chance + index) % IDS if each.id is None else each.id,
                encode_user_headers(each.headers) if each.headers else b"",
                NOW_US,
            )
            for index, each in enumerate(full)
        ]
    )
    assert new_batch(given_messages) == (count, expected)
    assert new_batch(iter(given_messages)) == (count, expected)
    assert plain_build(new_messages(given_messages)) == expected


def test_payloads_of_wider_items_are_sent_byte_by_byte():
    numbers = memoryview(np.arange(40, dtype=np.uint32))
    (frame,) = frames(memoryview(new_batch([numbers])[1]))
    assert bytes(frame.payload) == numbers.tobytes()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (b"", EmptyMessagePayload),
        ("", EmptyMessagePayload),
        (SendMessage(b""), EmptyMessagePayload),
        (bytes(PAYLOAD_BYTES_MAX + 1), TooBigMessagePayload),
        (SendMessage(b"x", id=-1), InvalidIdentifier),
        (SendMessage(b"x", id=IDS), InvalidIdentifier),
        (SendMessage(b"x", headers=dict.fromkeys(range(400), b"x" * 255)), TooBigUserHeaders),
        (5, TypeError),
        (SendMessage(None), TypeError),
    ],
)
def test_what_cannot_be_sent_is_named_before_anything_is_sent(count, wrong, error):
    for make in (new_batch, new_messages):
        with pytest.raises(error):
            make([b"fine"] * (count - 1) + [wrong])


def test_no_messages_and_no_list_are_refused():
    for make in (new_batch, new_messages):
        with pytest.raises(InvalidMessagesCount):
            make([])
        for single in (b"one", "one", bytearray(b"one")):
            with pytest.raises(TypeError, match="list"):
                make(single)


def test_the_longest_payload_is_sent():
    _, batch = new_batch([bytes(PAYLOAD_BYTES_MAX)])
    assert read_header(batch).message_count == 1


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_built_passes_every_check(count):
    batch = memoryview(new_batch([b"%d" % number for number in range(count)])[1])
    layout = prove(batch, count)
    verify_header(batch, layout)
    verify_messages(batch, layout)
