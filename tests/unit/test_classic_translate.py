"""Messages of every dialect to batches and back, byte for byte against a plain per-message implementation."""

import random
import struct
import uuid
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from borzoi.log.batch import cut, stamp
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.headers import decode_user_headers, encode_user_headers
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import HeaderKind, TypedValue
from borzoi.wire.batch import NewMessage, build, frames, prove, read_header, split, verify_messages
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.translate import from_batches, to_batch
from borzoi.wire.classic.user_headers import add_key_kinds, drop_key_kinds

NOW_US = 1_800_000_000_000_000
ORIGIN_US = 1_700_000_000_000_000
A, B, C, D = Dialect
ALL = pytest.mark.parametrize("dialect", list(Dialect), ids=lambda dialect: dialect.name)
# A loop below, NumPy from here on: both sides of the border and well away from it.
COUNTS = pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 200])

SHAPES = {
    "equal": lambda number: NewMessage(bytes([number % 251] * 20), number, b"", ORIGIN_US + number),
    "various": lambda number: NewMessage(
        bytes([number % 251] * (1 + number * 7 % 40)), number, b"", ORIGIN_US + number * 5 % 13
    ),
    "no ids": lambda number: NewMessage(bytes([number % 251] * (1 + number % 3)), 0, b"", ORIGIN_US),
    "some ids": lambda number: NewMessage(b"x" * 9, number % 2 << 100, b"", ORIGIN_US - number),
    "equal, with headers": lambda number: NewMessage(
        b"payload", 1 << 127, encode_user_headers({"key": number}), ORIGIN_US
    ),
    "various, with headers": lambda number: NewMessage(
        b"p" * (1 + number % 5), 7, encode_user_headers({f"k{i}": "v" for i in range(number % 4)}), ORIGIN_US
    ),
    "various, as large as the first on average": lambda number: NewMessage(
        b"x" * (20 + (number % 2 * 2 - 1 if number else 0)), number, b"", ORIGIN_US
    ),
    "various, none small": lambda number: NewMessage(
        random.Random(number).randbytes(16 + number * 7 % 90), number, b"", ORIGIN_US
    ),
    "various, all large": lambda number: NewMessage(
        random.Random(number).randbytes(700 + number * 77 % 900), number, b"", ORIGIN_US
    ),
    "various, one huge": lambda number: NewMessage(
        random.Random(number).randbytes(50_000 if number == 1 else 40), number, b"", ORIGIN_US
    ),
    "large": lambda number: NewMessage(bytes([number % 251]) * 3000, number, b"", ORIGIN_US),
}
SHAPE = pytest.mark.parametrize("shape", list(SHAPES))


def messages_of(shape, count):
    return [SHAPES[shape](number) for number in range(count)]


def counting_bytes(size):
    return bytes(number * 37 & 0xFF for number in range(size))


def untyped(block):
    """The headers of a stored block in the older form, by way of the decoded values."""
    return b"".join(
        struct.pack("<I", len(key.data))
        + key.data
        + struct.pack("<BI", value.kind, len(value.data))
        + value.data
        for key, value in decode_user_headers(block).items()
        if key.kind is HeaderKind.STRING
    )


def sent(messages, dialect):
    """Count, index and records of a send request."""
    records, index, end = [], [], 0
    for message in messages:
        message_id = message.id.to_bytes(16, "little")
        headers = message.user_headers if dialect is D else untyped(message.user_headers)
        if dialect is A:
            record = message_id + struct.pack("<I", len(headers)) + headers
            record += struct.pack("<I", len(message.payload)) + message.payload
        else:
            record = bytes(8) + message_id + bytes(16)
            record += struct.pack("<QII", message.origin_timestamp_us, len(headers), len(message.payload))
            record += bytes(8 if dialect is D else 0) + message.payload + headers
        records.append(record)
        end += len(record)
        index.append(struct.pack("<IIQ", 0, end, 0))
    if dialect is A:
        return b"".join(records), None, None
    return b"".join(records), len(messages), b"".join(index)


def expected_batch(messages, dialect):
    """What has to come out: new ids from `counting_bytes`, and the batch checksum left zero."""
    missing = sum(message.id == 0 for message in messages)
    fresh = counting_bytes(16 * missing)
    stored = []
    for message in messages:
        message_id = message.id
        if not message_id:
            number = int.from_bytes(fresh[:16], "little")
            fresh = fresh[16:]
            number &= ~(0xF << 76 | 3 << 62)
            message_id = number | 4 << 76 | 2 << 62
        origin_us = NOW_US if dialect is A else message.origin_timestamp_us
        stored.append(NewMessage(message.payload, message_id, message.user_headers, origin_us))
    batch = build(stored)
    batch[40:48] = bytes(8)
    return batch


def expected_records(batches, dialect):
    records = []
    for batch in batches:
        header = read_header(batch)
        for frame in frames(memoryview(batch)):
            offset = header.base_offset + frame.offset_delta
            message_id = frame.id.to_bytes(16, "little")
            headers = bytes(frame.user_headers) if dialect is D else untyped(frame.user_headers)
            payload = bytes(frame.payload)
            if dialect is A:
                record = struct.pack("<QBQ", offset, 1, header.base_timestamp_us) + message_id
                record += struct.pack("<II", zlib.crc32(payload), len(headers)) + headers
                records.append(record + struct.pack("<I", len(payload)) + payload)
                continue
            rest = message_id + struct.pack(
                "<QQQII",
                offset,
                header.base_timestamp_us,
                header.origin_timestamp_us + frame.timestamp_delta_us,
                len(headers),
                len(payload),
            )
            rest += bytes(8 if dialect is D else 0) + payload + headers
            records.append(struct.pack("<Q", xxh3_64_intdigest(rest)) + rest)
    return b"".join(records)


def translated(records, count, index, dialect):
    index_view = None if index is None else memoryview(index)
    return to_batch(
        memoryview(records), count, index_view, dialect, now_us=NOW_US, random_bytes=counting_bytes
    )


def stored(messages, base_offset=0, base_us=NOW_US):
    batch = build(messages)
    view = memoryview(batch)
    stamp(view, prove(view), 3, base_offset, base_us)
    return batch


def refused(records, count, index, dialect):
    with pytest.raises(RemoteProtocolError) as caught:
        translated(records, count, index, dialect)
    return caught.value.code


@ALL
@COUNTS
@SHAPE
def test_sent_messages_become_the_batch_a_plain_loop_makes(dialect, count, shape):
    messages = messages_of(shape, count)
    batch, number = translated(*sent(messages, dialect), dialect)
    assert number == count
    assert batch == expected_batch(messages, dialect)
    verify_messages(batch, prove(batch))


@ALL
@COUNTS
@SHAPE
def test_a_stored_batch_becomes_the_records_a_plain_loop_makes(dialect, count, shape):
    batch = stored(messages_of(shape, count), base_offset=1 << 40)
    records, number = from_batches([batch], dialect)
    assert number == count
    assert records == expected_records([batch], dialect)


@ALL
def test_batches_of_all_kinds_in_several_buffers_come_out_in_order(dialect):
    batches, offset = [], 5
    for shape in [*SHAPES, *SHAPES]:
        for count in (1, 40, 3):
            batches.append(bytes(stored(messages_of(shape, count), offset, NOW_US + offset)))
            offset += count
    buffers = [b"".join(batches[:7]), batches[7], b"".join(batches[8:])]
    records, number = from_batches(buffers, dialect)
    assert number == offset - 5
    assert records == expected_records(batches, dialect)


@ALL
@SHAPE
def test_many_batches_of_one_message_are_translated_together(dialect, shape):
    batches = [bytes(stored([message], number)) for number, message in enumerate(messages_of(shape, 60))]
    records, number = from_batches([b"".join(batches)], dialect)
    assert number == 60
    assert records == expected_records(batches, dialect)


@ALL
@SHAPE
@pytest.mark.parametrize(("first", "count"), [(0, 3), (7, 2), (10, 50), (99, 1)])
def test_part_of_a_batch_with_its_header_in_a_buffer_of_its_own(dialect, shape, first, count):
    batch = stored(messages_of(shape, 100), base_offset=1000)
    whole = bytes(stored(messages_of("equal", 40), base_offset=1100))
    part = [bytes(buffer) for buffer in cut(memoryview(batch), first, count)]
    records, number = from_batches([*part, whole], dialect)
    assert number == count + 40
    assert records == expected_records([b"".join(part), whole], dialect)


@ALL
def test_no_batches_are_no_messages(dialect):
    assert from_batches([], dialect) == (b"", 0)
    assert from_batches([b""], dialect) == (b"", 0)


@pytest.mark.parametrize("target", list(Dialect), ids=lambda dialect: dialect.name)
@ALL
@SHAPE
def test_every_dialect_reads_what_every_dialect_sent(dialect, target, shape):
    messages = messages_of(shape, 50)
    batch, _ = translated(*sent(messages, dialect), dialect)
    stamp(batch, prove(batch), 0, 17, NOW_US)
    records, _ = from_batches([batch], target)
    assert records == expected_records([batch], target)
    if target is D:
        origins = [struct.unpack_from("<Q", record, 40)[0] for record in _cut_records(records)]
        assert origins == [NOW_US if dialect is A else each.origin_timestamp_us for each in messages]


def _cut_records(records):
    position = 0
    while position < len(records):
        headers, payload = struct.unpack_from("<II", records, position + 48)
        end = position + 64 + headers + payload
        yield records[position:end]
        position = end


some_headers = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(min_size=1, max_size=20)),
    max_size=3,
).map(encode_user_headers)
some_messages = st.lists(
    st.builds(
        NewMessage,
        payload=st.binary(min_size=1, max_size=40),
        id=st.integers(0, 2**128 - 1) | st.just(0),
        user_headers=st.just(b"") | some_headers,
        origin_timestamp_us=st.integers(ORIGIN_US, ORIGIN_US + 2**32 - 1),
    ),
    min_size=1,
    max_size=80,
)


@settings(max_examples=60, deadline=None)
@given(some_messages, st.sampled_from(Dialect), st.sampled_from(Dialect))
def test_random_messages_survive_the_way_in_and_out(messages, dialect, target):
    batch, _ = translated(*sent(messages, dialect), dialect)
    assert batch == expected_batch(messages, dialect)
    assert from_batches([batch], target)[0] == expected_records([batch], target)


@ALL
@COUNTS
def test_messages_without_an_id_get_a_random_uuid_from_one_call(dialect, count):
    calls = []

    def random_bytes(size):
        calls.append(size)
        return random.Random(1).randbytes(size)

    records, number, index = sent(messages_of("no ids", count), dialect)
    view = None if index is None else memoryview(index)
    batch, _ = to_batch(memoryview(records), number, view, dialect, now_us=NOW_US, random_bytes=random_bytes)
    ids = [uuid.UUID(int=frame.id) for frame in frames(batch)]
    assert calls == [16 * count]
    assert len(set(ids)) == count
    assert {(each.version, each.variant) for each in ids} == {(4, uuid.RFC_4122)}


@ALL
@COUNTS
def test_given_ids_need_no_random_bytes(dialect, count):
    records, number, index = sent([NewMessage(b"x", 1 + each) for each in range(count)], dialect)
    view = None if index is None else memoryview(index)
    to_batch(
        memoryview(records),
        number,
        view,
        dialect,
        now_us=NOW_US,
        random_bytes=lambda _: pytest.fail("asked for"),
    )


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("shape", ["equal", "various"])
def test_an_index_is_not_needed(count, shape):
    messages = messages_of(shape, count)
    records, _, _ = sent(messages, D)
    assert translated(records, count, None, D)[0] == expected_batch(messages, D)


# Captured from official clients: "hello" and "world!".
CAPTURED_RECORDS_D = bytes.fromhex(
    "0000000000000000 00000000000000000000000000000000 0000000000000000 0000000000000000 455f67cc55600600"
    "00000000 05000000 0000000000000000 68656c6c6f"
    "0000000000000000 00000000000000000000000000000000 0000000000000000 0000000000000000 465f67cc55600600"
    "00000000 06000000 0000000000000000 776f726c6421"
)
CAPTURED_INDEX_D = bytes.fromhex("00000000 45000000 0000000000000000   00000000 8b000000 0000000000000000")
CAPTURED_INDEX_BC = bytes.fromhex("00000000 3d000000 0000000000000000   00000000 7b000000 0000000000000000")
CAPTURED_RECORDS_BC = CAPTURED_RECORDS_D[:56] + CAPTURED_RECORDS_D[64:125] + CAPTURED_RECORDS_D[133:]
CAPTURED_RECORDS_A = bytes.fromhex(
    "00000000000000000000000000000000 00000000 05000000 68656c6c6f"
    "00000000000000000000000000000000 00000000 06000000 776f726c6421"
)


@pytest.mark.parametrize(
    ("dialect", "records", "count", "index"),
    [
        (A, CAPTURED_RECORDS_A, None, None),
        (B, CAPTURED_RECORDS_BC, 2, CAPTURED_INDEX_BC),
        (C, CAPTURED_RECORDS_BC, 2, CAPTURED_INDEX_BC),
        (D, CAPTURED_RECORDS_D, 2, CAPTURED_INDEX_D),
    ],
)
def test_captured_sends_are_understood(dialect, records, count, index):
    batch, number = translated(records, count, index, dialect)
    origin_us = NOW_US if dialect is A else 0x0006_6055_CC67_5F45
    assert number == 2
    assert read_header(batch).origin_timestamp_us == origin_us
    seen = [(bytes(frame.payload), frame.timestamp_delta_us) for frame in frames(batch)]
    assert seen == [(b"hello", 0), (b"world!", 0 if dialect is A else 1)]


HEADERS_INDEX = bytes.fromhex("00000000 64000000 0000000000000000  00000000 a7000000 0000000000000000")
HEADERS_RECORDS = bytes.fromhex(
    "0000000000000000 00000000000000000000000000000000 0000000000000000 0000000000000000 00401e18240a0600"
    "21000000 03000000 0000000000000000"
    "6f6e65  02 02000000 6b31 02 02000000 7631  02 01000000 6e 0c 08000000 0700000000000000"
    "0000000000000000 05000000000000000000000000000000 0000000000000000 0000000000000000 01401e18240a0600"
    "00000000 03000000 0000000000000000"
    "74776f"
)
HEADERS_POLLED = bytes.fromhex(
    "110f17cde5119530 36b34f5c2f17359e0f433d8cb25440b6 0000000000000000 51760fed55600600 00401e18240a0600"
    "21000000 03000000 0000000000000000"
    "6f6e65 02020000006b31 02020000007631 02010000006e 0c08000000 0700000000000000"
)


def test_known_send_with_user_headers_and_the_poll_response_for_it():
    message_id = HEADERS_POLLED[8:24]
    batch, number = to_batch(
        memoryview(HEADERS_RECORDS),
        2,
        memoryview(HEADERS_INDEX),
        D,
        now_us=NOW_US,
        random_bytes=lambda size: message_id[:size],
    )
    assert number == 2
    stamp(batch, prove(batch), 0, 0, 0x0006_6055_ED0F_7651)
    records, _ = from_batches([batch], D)
    assert records[:100] == HEADERS_POLLED
    second = list(frames(batch))[1]
    assert (second.id, bytes(second.payload), second.timestamp_delta_us) == (5, b"two", 1)


TEN = [NewMessage(b"x" * 10, 1, b"", ORIGIN_US) for _ in range(3)]
MANY = [NewMessage(b"x" * 10, 1, b"", ORIGIN_US) for _ in range(60)]
MANY_SIZES = [NewMessage(b"x" * (10 + number % 3), 1, b"", ORIGIN_US) for number in range(60)]
BROKEN = pytest.mark.parametrize("messages", [TEN, MANY, MANY_SIZES], ids=["few", "many", "many sizes"])
INDEXED = pytest.mark.parametrize("dialect", [B, C, D], ids=lambda dialect: dialect.name)


def broken(messages, dialect, number, at, value):
    """A send with `value` written at byte `at` of a record."""
    records, count, index = sent(messages, dialect)
    data = bytearray(records)
    start = len(sent(messages[:number], dialect)[0])
    data[start + at : start + at + len(value)] = value
    return data, count, index


@ALL
def test_a_send_of_nothing_is_refused(dialect):
    assert refused(b"", 0, b"", dialect) == 4009
    assert refused(b"", None, None, dialect) == 4009
    assert refused(b"", 40, None, dialect) == 4036


@INDEXED
@BROKEN
def test_a_count_that_does_not_match_the_records_is_refused(dialect, messages):
    records, count, index = sent(messages, dialect)
    assert refused(records, count + 1, index + index[-16:], dialect) == 4036
    assert refused(records, count - 1, index[:-16], dialect) == 4036
    assert refused(records, 2**32 - 1, None, dialect) == 4036


@ALL
@BROKEN
def test_records_that_do_not_end_with_the_request_are_refused(dialect, messages):
    records, count, index = sent(messages, dialect)
    assert refused(records[:-1], count, index, dialect) == 4036
    assert refused(records + b"\0", count, index, dialect) == 4036
    assert refused(records[:-11], count, index, dialect) == 4036
    assert refused(records[:5], count, index, dialect) == 4036


@INDEXED
@BROKEN
@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize(("at", "code"), [(0, 4031), (4, 4036), (8, 4032)])
def test_an_index_that_is_not_true_is_refused(dialect, messages, number, at, code):
    records, count, index = sent(messages, dialect)
    data = bytearray(index)
    data[(number % count) * 16 + at] ^= 1
    assert refused(records, count, data, dialect) == code


@INDEXED
@BROKEN
def test_an_index_of_another_size_is_refused(dialect, messages):
    records, count, index = sent(messages, dialect)
    assert refused(records, count, index[:-1], dialect) == 4034
    assert refused(records, count, index + bytes(16), dialect) == 4034


@ALL
@BROKEN
@pytest.mark.parametrize("number", [0, 2])
def test_an_empty_payload_is_refused(dialect, messages, number):
    changed = list(messages)
    changed[number] = NewMessage(b"", 1, b"", ORIGIN_US)
    assert refused(*sent(changed, dialect), dialect) == 4025
    assert refused(*sent([NewMessage(b"", 1)] * len(messages), dialect), dialect) == 4025


@ALL
@BROKEN
@pytest.mark.parametrize("number", [0, 2])
def test_lengths_past_the_limits_are_refused(dialect, messages, number):
    headers_at, payload_at = (16, 20) if dialect is A else (48, 52)
    too_big = (PAYLOAD_BYTES_MAX + 1).to_bytes(4, "little")
    assert refused(*broken(messages, dialect, number, payload_at, too_big), dialect) == 4022
    too_big = (USER_HEADERS_BYTES_MAX + 1).to_bytes(4, "little")
    assert refused(*broken(messages, dialect, number, headers_at, too_big), dialect) == 4017


@pytest.mark.parametrize("count", [1, 40])
def test_headers_and_payload_at_the_limits_pass(count):
    largest = NewMessage(b"x", 1, b"h" * USER_HEADERS_BYTES_MAX, ORIGIN_US)
    batch, _ = translated(*sent([largest] * count, D), D)
    assert batch == expected_batch([largest] * count, D)
    if count == 1:
        message = NewMessage(bytes(PAYLOAD_BYTES_MAX), 1, b"", ORIGIN_US)
        assert len(translated(*sent([message], D), D)[0]) == 256 + 48 + PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("count", [1, 40])
def test_a_payload_that_is_there_but_too_big_is_refused(count):
    messages = [NewMessage(b"x", 1)] * (count - 1) + [NewMessage(bytes(PAYLOAD_BYTES_MAX + 1), 1)]
    assert refused(*sent(messages, D), D) == 4022


@BROKEN
@pytest.mark.parametrize("number", [0, 2])
def test_reserved_bytes_of_dialect_d_must_be_zero(messages, number):
    assert refused(*broken(messages, D, number, 63, b"\1"), D) == 4101


@INDEXED
@BROKEN
def test_origin_times_further_apart_than_a_batch_can_say_are_refused(dialect, messages):
    changed = [*messages[:-1], NewMessage(b"x" * 10, 1, b"", ORIGIN_US + 2**32)]
    assert refused(*sent(changed, dialect), dialect) == 4038
    changed[-1] = NewMessage(b"x" * 10, 1, b"", ORIGIN_US + 2**32 - 1)
    assert translated(*sent(changed, dialect), dialect)[0] == expected_batch(changed, dialect)


def entry(key, kind, value):
    return struct.pack("<I", len(key)) + key + struct.pack("<BI", kind, len(value)) + value


def test_untyped_keys_become_strings_and_strings_become_untyped():
    block = entry(b"k1", 2, b"v1") + entry("ключ".encode(), 12, bytes(8))
    typed = add_key_kinds(block)
    assert decode_user_headers(typed) == {
        TypedValue(HeaderKind.STRING, b"k1"): TypedValue(HeaderKind.STRING, b"v1"),
        TypedValue(HeaderKind.STRING, "ключ".encode()): TypedValue(HeaderKind.UINT64, bytes(8)),
    }
    assert drop_key_kinds(typed) == block


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (entry(b"", 2, b"v"), 4018),
        (entry(b"k" * 256, 2, b"v"), 4018),
        (entry(b"\xff", 2, b"v"), 4018),
        (entry(b"k", 2, b""), 4019),
        (entry(b"k", 2, b"v" * 256), 4019),
        (entry(b"k", 2, b"\xff"), 4019),
        (entry(b"k", 12, b"1234567"), 4019),
        (entry(b"k", 0, b"v"), 4040),
        (entry(b"k", 16, b"v"), 4040),
        (b"\1", 4018),
        (entry(b"k", 2, b"v")[:4], 4018),
        (entry(b"k", 2, b"v")[:5], 4019),
        (entry(b"k", 2, b"v")[:-1], 4019),
        (entry(b"k", 2, b"v") + b"\0", 4018),
        (entry(b"k", 1, b"v" * 250) * 384, 4017),
    ],
)
@pytest.mark.parametrize("dialect", [A, B, C], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("count", [1, 40])
def test_malformed_user_headers_of_old_dialects_are_refused(block, code, dialect, count):
    assert len(block) <= USER_HEADERS_BYTES_MAX
    if dialect is A:
        record = bytes(16) + struct.pack("<I", len(block)) + block + struct.pack("<I", 1) + b"x"
        assert refused(record * count, None, None, A) == code
    else:
        record = bytes(40) + struct.pack("<QII", ORIGIN_US, len(block), 1) + b"x" + block
        assert refused(record * count, count, None, dialect) == code


def test_a_header_an_old_dialect_cannot_express_is_left_out():
    text, number = encode_user_headers({"k": "v"}), encode_user_headers({7: "v"})
    raw = encode_user_headers({b"\xff": "v"})
    kept = entry(b"k", 2, b"v")
    assert drop_key_kinds(number + text + raw + text) == kept + kept
    assert drop_key_kinds(number) == b""


@pytest.mark.parametrize(
    "rest",
    [
        b"\2",
        b"\0" * 30,
        b"\2\1\0\0\0\xff\2\1\0\0\0v",
        b"\2\1\0\0\0k\2\0\0\0\0",
        b"\2\1\0\0\0k\x10\1\0\0\0v",
        b"\2\xff\xff\xff\xffk",
    ],
)
def test_what_follows_a_fault_in_stored_headers_is_left_out_for_old_dialects(rest):
    text = encode_user_headers({"k": "v"})
    assert drop_key_kinds(text + rest) == entry(b"k", 2, b"v")
    message = NewMessage(b"payload", 1, text + rest, ORIGIN_US)
    for count in (1, 40):
        batch = stored([message] * count)
        records, number = from_batches([batch], B)
        assert number == count
        assert len(records) == count * (56 + 7 + 11)
        assert from_batches([batch], D)[0] == expected_records([batch], D)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_key_kinds_are_dropped_from_any_bytes(block):
    assert len(drop_key_kinds(block)) <= len(block)
    with suppress(RemoteProtocolError):
        assert drop_key_kinds(add_key_kinds(block)) == block


@ALL
@pytest.mark.parametrize("shape", ["equal", "various", "various, with headers"])
@pytest.mark.parametrize("count", [2, 50])
def test_damaged_requests_raise_nothing_but_protocol_errors(dialect, shape, count):
    records, number, index = sent(messages_of(shape, count), dialect)
    source = random.Random(f"{dialect.name} {shape} {count}")
    for _ in range(150):
        data, entries = bytearray(records), None if index is None else bytearray(index)
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.choice([0, 1, 255, source.randrange(256)])
        if entries and source.random() < 0.2:
            entries[source.randrange(len(entries))] ^= 1 << source.randrange(8)
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        with suppress(RemoteProtocolError):
            batch, found = translated(data, number, entries, dialect)
            assert prove(batch).message_count == found


@ALL
@pytest.mark.parametrize("shape", ["equal", "various", "various, with headers"])
@pytest.mark.parametrize("count", [2, 50])
def test_damaged_batches_raise_nothing_but_protocol_errors(dialect, shape, count):
    batches = bytes(stored(messages_of(shape, count))) + bytes(stored(messages_of(shape, 3)))
    source = random.Random(f"{dialect.name} {shape} {count}")
    for _ in range(150):
        data = bytearray(batches)
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.choice([0, 1, 255, source.randrange(256)])
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        with suppress(RemoteProtocolError):
            from_batches([data], dialect)


@ALL
@pytest.mark.parametrize(("at", "value"), [(32, 2**64 - 1), (32, 255), (32, 0), (48, 2**32 - 1), (48, 1)])
def test_a_batch_header_that_lies_is_refused(dialect, at, value):
    batch = stored(messages_of("equal", 40))
    struct.pack_into("<Q" if at == 32 else "<I", batch, at, value)
    with pytest.raises(RemoteProtocolError):
        from_batches([batch], dialect)


def test_read_only_input_is_enough_and_the_batch_can_be_written():
    batch, _ = translated(CAPTURED_RECORDS_D, 2, CAPTURED_INDEX_D, D)
    assert not batch.readonly
    assert [bytes(each) for each in split(memoryview(bytes(batch)))] == [bytes(batch)]
    assert from_batches([bytes(batch)], D)[1] == 2
