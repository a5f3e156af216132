"""Large reads hash a run once and trust it for a while, but never past a change of the file."""

import os
import time

import pytest

from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.reader import LogDamaged
from borzoi.log.trust import TRUST_US, TrustedRuns
from support.logs import append, served

CHANGED_NS = 1_700_000_000_000_000_000
LATER_US = CHANGED_NS // 1000 + 5_000_000


def test_a_settled_file_keeps_what_was_found_sound():
    runs = TrustedRuns()
    runs.at(CHANGED_NS, LATER_US).add(3)
    assert runs.at(CHANGED_NS, LATER_US + 1) == {3}


def test_a_change_of_the_file_ends_trust():
    runs = TrustedRuns()
    runs.at(CHANGED_NS, LATER_US).add(3)
    assert runs.at(CHANGED_NS + 1, LATER_US) == set()


def test_trust_ends_after_a_while():
    runs = TrustedRuns()
    runs.at(CHANGED_NS, LATER_US).add(3)
    assert runs.at(CHANGED_NS, LATER_US + TRUST_US) == {3}
    assert runs.at(CHANGED_NS, LATER_US + TRUST_US + 1) == set()


def test_a_file_that_changed_a_moment_ago_is_not_trusted():
    runs = TrustedRuns()
    runs.at(CHANGED_NS, CHANGED_NS // 1000 + 10).add(3)
    assert runs.at(CHANGED_NS, CHANGED_NS // 1000 + 20) == set()


@pytest.fixture
def log(tmp_path):
    log = PartitionLog(tmp_path, 0, LogSettings(), OpenFiles())
    append(log, [200_000, 200_000])
    yield log
    log.close()


def set_change_time(log, seconds_ago):
    moment = time.time() - seconds_ago
    os.utime(log.segments[0].path, (moment, moment))


def hash_calls(monkeypatch):
    calls = []
    from borzoi.log import reader

    real = reader.xxh3_64_intdigest
    monkeypatch.setattr(reader, "xxh3_64_intdigest", lambda data: calls.append(len(data)) or real(data))
    return calls


def test_a_second_reader_does_not_hash_again(log, monkeypatch):
    set_change_time(log, 10)
    calls = hash_calls(monkeypatch)
    now_us = time.time_ns() // 1000
    assert len(served(log.read(0, 10, 1 << 24, now_us))) == 2
    assert len(served(log.read(0, 10, 1 << 24, now_us))) == 2
    assert len(calls) == 1


def test_without_the_time_every_read_is_hashed(log, monkeypatch):
    set_change_time(log, 10)
    calls = hash_calls(monkeypatch)
    log.read(0, 10, 1 << 24)
    log.read(0, 10, 1 << 24)
    assert len(calls) == 2


def test_bytes_changed_after_they_were_trusted_are_not_served(log):
    set_change_time(log, 10)
    now_us = time.time_ns() // 1000
    log.read(0, 10, 1 << 24, now_us)
    with log.segments[0].path.open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(LogDamaged):
        log.read(0, 10, 1 << 24, time.time_ns() // 1000)
