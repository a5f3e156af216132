"""A failure that happens with every request fills neither the log nor the disk."""

import logging

from borzoi.server.logs import LineFormatter, RepeatFilter


def record(event, created, level=logging.ERROR, **fields):
    made = logging.LogRecord("borzoi", level, "", 0, event, None, None)
    made.created = created
    made.fields = fields
    return made


def test_one_of_many_alike_errors_per_second_is_let_through():
    repeats = RepeatFilter()
    passed = [repeats.filter(record("append failed", 100 + step / 1000, path="a")) for step in range(1500)]
    assert [step for step, is_passed in enumerate(passed) if is_passed] == [0, 1000]


def test_the_next_line_says_how_many_were_kept_back():
    repeats = RepeatFilter()
    for step in range(5):
        repeats.filter(record("append failed", 100 + step / 1000, path="a"))
    later = record("append failed", 102, path="a")
    assert repeats.filter(later)
    assert LineFormatter().format(later).endswith("append failed path=a repeated=4")


def test_other_events_paths_and_information_are_not_held_back():
    repeats = RepeatFilter()
    assert repeats.filter(record("append failed", 100, path="a"))
    assert repeats.filter(record("append failed", 100, path="b"))
    assert repeats.filter(record("read failed", 100, path="a"))
    assert all(repeats.filter(record("logged in", 100, logging.INFO)) for _ in range(3))


def test_what_is_remembered_is_bounded():
    repeats = RepeatFilter()
    for number in range(5000):
        repeats.filter(record("append failed", 100, path=number))
    assert len(repeats._last) <= 1024
