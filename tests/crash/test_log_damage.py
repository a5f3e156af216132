"""Storage against real disks: one that is full, and a process that is killed in the middle of an append."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from borzoi.log.files import OpenFiles
from borzoi.log.journal import Journal
from borzoi.log.offsets import ConsumerOffsets, group_key
from borzoi.log.partition import LogSettings, PartitionLog
from support.logs import NOW_US, append, log_files, offsets_of, reopen

DISK_BYTES = 2 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    target = tmp_path / "disk"
    target.mkdir()
    answer = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "borzoi-test", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        pytest.skip(f"this user may not mount a small disk: {answer.stderr.strip()}")
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True)


def fill(path):
    """Take all space that is left, down to the last page."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def append_until_it_fails(log, sizes):
    for _ in range(100_000):
        append(log, sizes)


@pytest.mark.parametrize("sizes", [[300], [20_000], [700] * 40])
def test_a_full_disk_stops_appends_and_nothing_else(small_disk, sizes):
    settings = LogSettings(segment_bytes=200_000)
    log = PartitionLog(small_disk, 0, settings, OpenFiles())
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            append_until_it_fails(log, sizes)
        assert caught.value.errno == errno.ENOSPC
        acknowledged = log.next_offset
        assert acknowledged > 0
        for _ in range(3):
            with pytest.raises(OSError):
                append(log, sizes)
        assert offsets_of(log) == list(range(acknowledged))
        copy = reopen(small_disk, settings)
        assert copy.log.next_offset == acknowledged
        assert offsets_of(copy.log) == list(range(acknowledged))
        copy.log.close()
        if ballast.exists():
            ballast.unlink()
            assert append(log, sizes) == acknowledged
    log.close()
    assert offsets_of(reopen(small_disk, settings).log) == list(range(log.next_offset))


def test_metadata_and_offsets_survive_a_full_disk(small_disk):
    journal = Journal(small_disk)
    journal.open()
    journal.append(b"first")
    offsets = ConsumerOffsets(small_disk, OpenFiles(), pytest.fail)
    offsets.store(group_key(1), 5)
    fill(small_disk / "ballast")
    with pytest.raises(OSError):
        journal.append(bytes(100_000))
    with pytest.raises(OSError):
        journal.snapshot(bytes(100_000))
    offsets.store(group_key(1), 6)  # in place: needs no space
    (small_disk / "ballast").unlink()
    journal.append(b"second")
    journal.close()
    offsets.close()
    again = Journal(small_disk)
    assert again.open() == (None, [b"first", b"second"])
    again.close()
    assert ConsumerOffsets(small_disk, OpenFiles(), pytest.fail).get(group_key(1)) == 6


WRITER = f"""
import sys
from pathlib import Path
sys.path[:0] = {[str(Path(__file__).parents[1])]!r}
from support.logs import append
from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog
log = PartitionLog(Path(sys.argv[1]), 0, LogSettings(segment_bytes=3_000_000), OpenFiles())
sizes = [[100], [900] * 30, [40_000], [7, 8, 9]]
while True:
    append(log, sizes[log.next_offset % 4])
    sys.stdout.write(f"{{log.next_offset}}\\n")
    sys.stdout.flush()
"""


@pytest.mark.crash
@pytest.mark.parametrize("turn", range(4))
def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(tmp_path, turn):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        lines = [writer.stdout.readline() for _ in range(20)]
        time.sleep(0.05 + turn * 0.07)
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.read().splitlines(keepends=True)
    acknowledged = int([line for line in lines if line.endswith("\n")][-1])
    opened = reopen(tmp_path)
    assert opened.log.next_offset >= acknowledged
    assert offsets_of(opened.log) == list(range(opened.log.next_offset))
    base = opened.log.next_offset
    assert append(opened.log, [5], NOW_US + 1) == base
    opened.log.close()
    again = reopen(tmp_path)
    assert again.repairs == []
    assert offsets_of(again.log, base - 1) == [base - 1, base]
    assert log_files(tmp_path, "torn") == []
