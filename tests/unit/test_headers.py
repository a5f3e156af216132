import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from borzoi.model.errors import (
    InvalidHeaderKey,
    InvalidHeaderKind,
    InvalidHeaderValue,
    RemoteProtocolError,
    TooBigUserHeaders,
)
from borzoi.model.headers import decode_user_headers, encode_user_headers, from_python, to_python
from borzoi.model.limits import USER_HEADERS_BYTES_MAX
from borzoi.model.values import HeaderKind, TypedValue

KEY = TypedValue(HeaderKind.STRING, b"k")

INTEGER_RANGES = {
    HeaderKind.INT8: (-(2**7), 2**7 - 1),
    HeaderKind.INT16: (-(2**15), 2**15 - 1),
    HeaderKind.INT32: (-(2**31), 2**31 - 1),
    HeaderKind.INT64: (-(2**63), 2**63 - 1),
    HeaderKind.INT128: (-(2**127), 2**127 - 1),
    HeaderKind.UINT8: (0, 2**8 - 1),
    HeaderKind.UINT16: (0, 2**16 - 1),
    HeaderKind.UINT32: (0, 2**32 - 1),
    HeaderKind.UINT64: (0, 2**64 - 1),
    HeaderKind.UINT128: (0, 2**128 - 1),
}
SIZES_BYTES = {
    **{kind: (high.bit_length() + 7) // 8 for kind, (_, high) in INTEGER_RANGES.items()},
    HeaderKind.BOOL: 1,
    HeaderKind.FLOAT32: 4,
    HeaderKind.FLOAT64: 8,
}


def field(kind, data, size_bytes=None):
    return struct.pack("<BI", kind, len(data) if size_bytes is None else size_bytes) + data


def typed_values():
    return st.one_of(
        st.binary(min_size=1, max_size=255).map(lambda data: TypedValue(HeaderKind.RAW, data)),
        st.text(min_size=1, max_size=63).map(lambda text: TypedValue(HeaderKind.STRING, text.encode())),
        st.sampled_from([b"\0", b"\1"]).map(lambda data: TypedValue(HeaderKind.BOOL, data)),
        *(
            st.binary(min_size=size, max_size=size).map(lambda data, kind=kind: TypedValue(kind, data))
            for kind, size in SIZES_BYTES.items()
            if kind is not HeaderKind.BOOL
        ),
    )


def test_the_layout_is_kind_length_bytes_for_key_then_value():
    block = encode_user_headers({"id": TypedValue(HeaderKind.UINT16, b"\x2a\x00"), b"\xff": True})
    assert block == bytes.fromhex("02 02000000 6964  0a 02000000 2a00  01 01000000 ff  03 01000000 01")
    assert decode_user_headers(block) == {
        TypedValue(HeaderKind.STRING, b"id"): TypedValue(HeaderKind.UINT16, b"\x2a\x00"),
        TypedValue(HeaderKind.RAW, b"\xff"): TypedValue(HeaderKind.BOOL, b"\x01"),
    }


def test_no_headers_are_an_empty_block():
    assert encode_user_headers({}) == b""
    assert decode_user_headers(b"") == {}


@given(st.dictionaries(typed_values(), typed_values(), max_size=8))
def test_what_is_encoded_decodes_to_the_same_in_the_same_order(headers):
    block = encode_user_headers(headers)
    for form in (bytes, bytearray, memoryview):
        assert list(decode_user_headers(form(block)).items()) == list(headers.items())


@given(typed_values())
def test_every_well_formed_value_becomes_an_object_and_comes_back(value):
    obj = to_python(value)
    if isinstance(obj, float) and math.isnan(obj):
        assert math.isnan(to_python(from_python(obj, value.kind)))
    else:
        assert from_python(obj, value.kind) == value


@pytest.mark.parametrize(
    ("obj", "value"),
    [
        ("é", TypedValue(HeaderKind.STRING, "é".encode())),
        (b"\0\1", TypedValue(HeaderKind.RAW, b"\0\1")),
        (False, TypedValue(HeaderKind.BOOL, b"\0")),
        (True, TypedValue(HeaderKind.BOOL, b"\1")),
        (-2, TypedValue(HeaderKind.INT64, (2**64 - 2).to_bytes(8, "little"))),
        (2**63 - 1, TypedValue(HeaderKind.INT64, (2**63 - 1).to_bytes(8, "little"))),
        (2**63, TypedValue(HeaderKind.INT128, (2**63).to_bytes(16, "little"))),
        (-(2**63) - 1, TypedValue(HeaderKind.INT128, (2**128 - 2**63 - 1).to_bytes(16, "little"))),
        (2**127, TypedValue(HeaderKind.UINT128, (2**127).to_bytes(16, "little"))),
        (1.5, TypedValue(HeaderKind.FLOAT64, struct.pack("<d", 1.5))),
    ],
)
def test_a_python_object_gets_the_kind_that_suits_it(obj, value):
    assert from_python(obj) == value
    back = to_python(value)
    assert back == obj
    assert type(back) is type(obj)


@pytest.mark.parametrize(("kind", "limits"), INTEGER_RANGES.items())
def test_an_explicit_kind_takes_its_whole_range_and_nothing_beyond(kind, limits):
    low, high = limits
    for number in (low, high):
        value = from_python(number, kind)
        assert value.kind is kind
        assert len(value.data) == SIZES_BYTES[kind]
        assert to_python(value) == number
    for number in (low - 1, high + 1):
        with pytest.raises(InvalidHeaderValue):
            from_python(number, kind)


@pytest.mark.parametrize(
    ("obj", "kind"),
    [
        (2**128, None),
        (-(2**127) - 1, None),
        (None, None),
        ([1], None),
        ("\ud800", None),
        (True, HeaderKind.INT8),
        (True, HeaderKind.FLOAT64),
        (1, HeaderKind.BOOL),
        (1.0, HeaderKind.INT32),
        (b"x", HeaderKind.STRING),
        ("x", HeaderKind.RAW),
        (1e300, HeaderKind.FLOAT32),
        (10**400, HeaderKind.FLOAT64),
    ],
)
def test_an_object_that_does_not_fit_is_refused(obj, kind):
    with pytest.raises(InvalidHeaderValue):
        from_python(obj, kind)


def test_a_whole_number_may_be_sent_as_a_float():
    assert to_python(from_python(2, HeaderKind.FLOAT32)) == 2.0


def test_keys_and_values_have_1_to_255_bytes():
    longest = "x" * 255
    assert len(encode_user_headers({longest: longest})) == 2 * (5 + 255)
    for bad in ("", longest + "x", TypedValue(HeaderKind.RAW, b"")):
        with pytest.raises(InvalidHeaderKey):
            encode_user_headers({bad: "v"})
        with pytest.raises(InvalidHeaderValue):
            encode_user_headers({"k": bad})


@pytest.mark.parametrize(
    "bad",
    [
        TypedValue(HeaderKind.INT32, b"\0\0\0"),
        TypedValue(HeaderKind.STRING, b"\xff"),
        TypedValue(HeaderKind.BOOL, b"\2"),
        2**128,
    ],
)
def test_a_header_that_a_reader_would_refuse_is_not_encoded(bad):
    with pytest.raises(InvalidHeaderKey):
        encode_user_headers({bad: "v"})
    with pytest.raises(InvalidHeaderValue):
        encode_user_headers({"k": bad})


def block_of(size_bytes):
    """Headers that encode to exactly this many bytes (large enough for one entry to be cut to size)."""
    entry_bytes = 5 + 4 + 5 + 200
    entries = size_bytes // entry_bytes - 1
    headers = {index.to_bytes(4, "big"): bytes(200) for index in range(entries)}
    rest = size_bytes - entries * entry_bytes
    headers[bytes(rest - 5 - 5 - 200)] = bytes(200)
    return headers


def test_the_block_may_have_100_000_bytes_and_not_one_more():
    assert USER_HEADERS_BYTES_MAX == 100_000
    block = encode_user_headers(block_of(USER_HEADERS_BYTES_MAX))
    assert len(block) == USER_HEADERS_BYTES_MAX
    assert encode_user_headers(decode_user_headers(block)) == block

    with pytest.raises(TooBigUserHeaders):
        encode_user_headers(block_of(USER_HEADERS_BYTES_MAX + 1))
    with pytest.raises(RemoteProtocolError) as caught:
        decode_user_headers(bytes(USER_HEADERS_BYTES_MAX + 1))
    assert caught.value.code == TooBigUserHeaders.code


def test_the_last_of_two_equal_keys_counts():
    key = field(2, b"k")
    assert decode_user_headers(key + field(1, b"a") + key + field(1, b"b")) == {
        KEY: TypedValue(HeaderKind.RAW, b"b")
    }


GOOD_KEY, GOOD_VALUE = field(2, b"k"), field(2, b"v")


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"\2", InvalidHeaderKey.code),
        (field(2, b"", 1), InvalidHeaderKey.code),
        (field(2, b""), InvalidHeaderKey.code),
        (field(2, bytes(256)) + GOOD_VALUE, InvalidHeaderKey.code),
        (field(2, b"k", 2**32 - 1) + GOOD_VALUE, InvalidHeaderKey.code),
        (field(2, b"\xc3") + GOOD_VALUE, InvalidHeaderKey.code),
        (field(6, b"\0\0\0") + GOOD_VALUE, InvalidHeaderKey.code),
        (field(0, b"k") + GOOD_VALUE, InvalidHeaderKind.code),
        (field(16, b"k") + GOOD_VALUE, InvalidHeaderKind.code),
        (GOOD_KEY, InvalidHeaderValue.code),
        (GOOD_KEY + b"\2\1\0\0", InvalidHeaderValue.code),
        (GOOD_KEY + field(2, b""), InvalidHeaderValue.code),
        (GOOD_KEY + field(1, bytes(256)), InvalidHeaderValue.code),
        (GOOD_KEY + field(1, b"v", 2), InvalidHeaderValue.code),
        (GOOD_KEY + field(3, b"\2"), InvalidHeaderValue.code),
        (GOOD_KEY + field(255, b"v"), InvalidHeaderKind.code),
        (GOOD_KEY + GOOD_VALUE + b"\0", InvalidHeaderKey.code),
    ],
)
def test_a_malformed_block_is_the_peers_fault_and_says_which(block, code):
    with pytest.raises(RemoteProtocolError) as caught:
        decode_user_headers(block)
    assert caught.value.code == code


@pytest.mark.parametrize(("kind", "size_bytes"), SIZES_BYTES.items())
def test_a_number_of_the_wrong_width_is_refused(kind, size_bytes):
    for wrong in {size_bytes - 1, size_bytes + 1} - {0}:
        with pytest.raises(RemoteProtocolError) as caught:
            decode_user_headers(GOOD_KEY + field(kind, bytes(wrong)))
        assert caught.value.code == InvalidHeaderValue.code


# Bytes that look enough like a block to get past the first checks.
nearly_fields = st.builds(
    field, st.integers(0, 17), st.binary(max_size=20), st.one_of(st.none(), st.integers(0, 2**32 - 1))
)
nearly_blocks = st.lists(st.one_of(nearly_fields, typed_values().map(lambda v: field(v.kind, v.data)))).map(
    b"".join
)


@given(st.one_of(st.binary(max_size=200), nearly_blocks))
@example(b"\0")
def test_any_bytes_decode_to_sound_headers_or_are_the_peers_fault(data):
    try:
        headers = decode_user_headers(data)
    except RemoteProtocolError as error:
        code = error.code
    else:
        for key, value in headers.items():
            to_python(key)
            to_python(value)
        assert decode_user_headers(encode_user_headers(headers)) == headers
        return
    assert code in {4017, 4018, 4019, 4040}


@given(st.dictionaries(typed_values(), typed_values(), min_size=1, max_size=5), st.data())
def test_a_block_cut_short_within_an_entry_is_refused(headers, data):
    block = encode_user_headers(headers)
    last_key, last_value = list(headers.items())[-1]
    last_entry_bytes = 10 + len(last_key.data) + len(last_value.data)
    cut = data.draw(st.integers(len(block) - last_entry_bytes + 1, len(block) - 1))
    with pytest.raises(RemoteProtocolError):
        decode_user_headers(block[:cut])


@given(st.builds(TypedValue, st.sampled_from(HeaderKind), st.binary(max_size=20)))
def test_reading_any_typed_value_gives_an_object_or_is_the_peers_fault(value):
    try:
        obj = to_python(value)
    except RemoteProtocolError as error:
        code = error.code
    else:
        assert isinstance(obj, bytes | str | bool | int | float)
        return
    assert code == InvalidHeaderValue.code
