"""Durations, expiries and sizes: the texts people write, at the edge and one past it, and back again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borzoi.model.limits import U32_MAX, U64_MAX
from borzoi.model.units import (
    EXPIRY_NEVER,
    EXPIRY_SERVER_DEFAULT,
    parse_byte_size,
    parse_duration,
    parse_expiry,
    parse_max_topic_size,
    render_byte_size,
    render_byte_size_rounded,
    render_duration,
    render_expiry,
    render_max_topic_size,
)

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("7 days", 7 * DAY_US),
        ("2 days 4 hours 15 minutes", 2 * DAY_US + (4 * 3600 + 15 * 60) * SECOND_US),
        ("1h 1m 1s", 3661 * SECOND_US),
        ("1h1m1s", 3661 * SECOND_US),
        ("15days 2min 2s", 15 * DAY_US + 122 * SECOND_US),
        ("30S", 30 * SECOND_US),
        ("1M", 60 * SECOND_US),
        ("1 month", 2_630_016 * SECOND_US),
        ("1y", 31_557_600 * SECOND_US),
        ("2 wks", 14 * DAY_US),
        ("5 ms 7 usec", 5007),
        ("3µs", 3),
        ("1500ns", 1),
        ("0 s", 0),
        *[(word, 0) for word in ("0", "unlimited", "Disabled", "NONE")],
    ],
)
def test_duration_text_is_the_sum_of_its_terms(text, duration_us):
    assert parse_duration(text) == duration_us


@pytest.mark.parametrize(
    "text", ["", " ", "5", "5 parsecs", "s", "-1s", "1.5s", "1h -", "1h 5", "h1", "٣s", "1" * 40 + "s"]
)
def test_text_that_is_no_duration_is_refused_by_name_and_with_an_example(text):
    with pytest.raises(ValueError, match="30s") as refused:
        parse_duration(text)
    assert f'"{text}"' in str(refused.value)


def test_duration_below_a_microsecond_is_refused_instead_of_meaning_off():
    with pytest.raises(ValueError, match="too short"):
        parse_duration("999ns")


def test_duration_ends_at_64_bits():
    assert parse_duration(f"{U64_MAX}us") == U64_MAX
    with pytest.raises(ValueError, match="too long"):
        parse_duration(f"{U64_MAX + 1}us")


def test_duration_is_shown_from_the_largest_unit_down():
    duration_us = (31_557_600 + 2_630_016 + 28 * 86_400 + 3600 + 13 * 60 + 37) * SECOND_US
    assert render_duration(duration_us) == "1year 1month 28days 1h 13m 37s"
    assert render_duration(2 * DAY_US + 1_002) == "2days 1ms 2us"
    assert render_duration(0) == "0s"


@given(st.integers(0, U64_MAX))
def test_every_duration_survives_being_shown(duration_us):
    assert parse_duration(render_duration(duration_us)) == duration_us


@pytest.mark.parametrize("word", ["none", "None", "unlimited", "Unlimited", "never_expire"])
def test_words_for_never(word):
    assert parse_expiry(word) == EXPIRY_NEVER


@pytest.mark.parametrize("word", ["default", "Default", "server_default", "Server_default", "0", "0s"])
def test_words_for_the_servers_default(word):
    assert parse_expiry(word) == EXPIRY_SERVER_DEFAULT


@pytest.mark.parametrize("word", ["NONE", "never", "DEFAULT", "1H", "5"])
def test_expiry_minds_the_case(word):
    with pytest.raises(ValueError, match="is not an expiry"):
        parse_expiry(word)


def test_capital_m_is_a_month_in_an_expiry():
    assert parse_expiry("1M") == 2_630_016 * SECOND_US


def test_expiry_ends_at_32_bits_of_seconds():
    assert parse_expiry(f"{U32_MAX}s") == U32_MAX * SECOND_US
    with pytest.raises(ValueError, match="136 years"):
        parse_expiry(f"{U32_MAX + 1}s")


@given(st.one_of(st.integers(0, U32_MAX * SECOND_US), st.just(U64_MAX)))
def test_every_expiry_survives_being_shown(expiry_us):
    assert parse_expiry(render_expiry(expiry_us)) == expiry_us


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1073741824", 1 << 30),
        ("1 GB", 10**9),
        ("1 GiB", 1 << 30),
        ("1gib", 1 << 30),
        ("100K", 100_000),
        ("50.84 MB", 50_840_000),
        ("0.5KiB", 512),
        ("1.0001 KB", 1001),
        ("8 Kbit", 1000),
        ("1 Kibit", 128),
        ("1 bit", 1),
        ("15 EiB", 15 << 60),
    ],
)
def test_size_text(text, size_bytes):
    assert parse_byte_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "1 XB", "-1", "1.5", "1,5 MB", ".5 MB", "1e3", "none", "1 G B"])
def test_text_that_is_no_size_is_refused_by_name_and_with_an_example(text):
    with pytest.raises(ValueError, match="1 GiB") as refused:
        parse_byte_size(text)
    assert f'"{text}"' in str(refused.value)


def test_size_ends_at_64_bits():
    assert parse_byte_size(str(U64_MAX)) == U64_MAX
    with pytest.raises(ValueError, match="too large"):
        parse_byte_size("16 EiB")


@pytest.mark.parametrize("word", ["unlimited", "Unlimited", "none", "None", "0"])
def test_words_for_no_limit_are_zero_where_they_are_allowed(word):
    assert parse_byte_size(word, allow_unlimited=True) == 0


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1500, "1500 B"),
        (10_000, "10 KB"),
        (10_240, "10 KiB"),
        (1 << 30, "1 GiB"),
        (10**9, "1 GB"),
    ],
)
def test_size_is_shown_in_the_largest_unit_that_loses_nothing(size_bytes, text):
    assert render_byte_size(size_bytes) == text


@given(st.integers(0, U64_MAX))
def test_every_size_survives_being_shown(size_bytes):
    assert parse_byte_size(render_byte_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 KB"), (568_000_000, "568.00 MB"), (U64_MAX, "18.45 EB")],
)
def test_size_for_people_has_two_decimals(size_bytes, text):
    assert render_byte_size_rounded(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("unlimited", U64_MAX), ("server_default", 0), ("0", 0), ("10 GB", 10**10)]
)
def test_max_topic_size_text(text, size_bytes):
    assert parse_max_topic_size(text) == size_bytes
    assert parse_max_topic_size(render_max_topic_size(size_bytes)) == size_bytes
