"""How long a start takes: one large partition after a clean stop and after a kill, and very many small ones.

    python benchmarks/open_large_log.py [--directory DIR] [--singles]

Builds a log of 1 GB with a million messages (1000 batches of 1000 messages of 1 KB; with `--singles` also
the same as a million batches of one message), opens it after a clean stop, after a kill that left half a
batch behind, and after its index was lost. Then opens 4000 partitions (1000 topics of 4) with at most 256
files open, and reads from each. Every opening runs three times and the slowest counts. Files are in the
page cache.

Exits with 1 if a goal is missed.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from borzoi.log.directory import DataDirectory
from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.recovery import open_partition
from borzoi.wire.batch import NewMessage, build, prove

MESSAGES = 1_000_000
PAYLOAD_BYTES = 1024
TOPICS, PARTITIONS = 1000, 4
FILES_MAX = 256
TURNS = 3


def make_batch(count):
    return memoryview(
        build([NewMessage(os.urandom(PAYLOAD_BYTES), id=number + 1) for number in range(count)])
    )


def report(name, elapsed_s, goal_s=None):
    verdict = "" if goal_s is None else f"   goal < {goal_s} s: {'met' if elapsed_s < goal_s else 'MISSED'}"
    print(f"{name:<58} {elapsed_s:8.3f} s{verdict}")
    return goal_s is None or elapsed_s < goal_s


def slowest(prepare, act):
    worst = 0.0
    for _ in range(TURNS):
        prepare()
        start = time.perf_counter()
        act()
        worst = max(worst, time.perf_counter() - start)
    return worst


def large_log(directory, per_batch):
    directory.mkdir()
    batch = make_batch(per_batch)
    layout = prove(batch)
    # Large enough for one segment, so that what a kill leaves behind is as large as it can be.
    settings = LogSettings(segment_bytes=4 << 30)
    log = PartitionLog(directory, 0, settings, OpenFiles())
    start = time.perf_counter()
    for _ in range(MESSAGES // per_batch):
        log.append(batch, layout, time.time_ns() // 1000)
    report(f"write {MESSAGES:,} messages, {per_batch} to a batch", time.perf_counter() - start)
    log.close()
    path = log.segments[0].path
    index = path.with_suffix(".index").read_bytes()
    size = log.size_bytes

    def open_it():
        repairs = []
        opened = open_partition(directory, 0, settings, OpenFiles(), repairs.append)
        if opened.next_offset != MESSAGES:
            raise RuntimeError(f"{opened.next_offset} messages found, {MESSAGES} written: {repairs}")
        result = opened.read(MESSAGES - 1, 1, 1 << 20)
        if result.last_offset != MESSAGES - 1:
            raise RuntimeError("the last message is not readable")
        opened.close()

    def tear():
        with path.open("r+b") as file:
            file.seek(size)
            file.write(batch[: len(batch) // 2])

    def lose_index():
        path.with_suffix(".index").unlink()

    is_met = report("  open after a clean stop", slowest(lambda: None, open_it), 1)
    is_met &= report("  open after a kill in the middle of a batch", slowest(tear, open_it), 5)
    report("  open after the index was lost", slowest(lose_index, open_it))
    path.with_suffix(".index").write_bytes(index)
    shutil.rmtree(directory)
    return is_met


def many_partitions(path):
    data = DataDirectory(path)
    data.open()
    batch = make_batch(3)
    layout = prove(batch)
    files = OpenFiles(FILES_MAX)
    start = time.perf_counter()
    for topic in range(TOPICS):
        for partition in range(PARTITIONS):
            directory = data.partition(0, topic, partition)
            directory.mkdir(parents=True)
            log = PartitionLog(directory, partition, LogSettings(), files)
            log.append(batch, layout, time.time_ns() // 1000)
    files.close_all()
    count = TOPICS * PARTITIONS
    report(f"create {count} partitions and append one batch to each", time.perf_counter() - start)
    most = 0

    def open_all(*, is_read):
        nonlocal most
        files = OpenFiles(FILES_MAX)
        before = len(os.listdir("/proc/self/fd"))
        found = 0
        for place in data.found():
            log = open_partition(place.path, place.partition_id, LogSettings(), files, lambda _repair: None)
            found += log.next_offset == 3
            if is_read and log.read(0, 3, 1 << 20).count != 3:
                raise RuntimeError(f"{place.path} is not readable")
            if found % 100 == 0:
                most = max(most, len(os.listdir("/proc/self/fd")) - before)
        if found != count:
            raise RuntimeError(f"{found} of {count} partitions are whole")
        files.close_all()

    elapsed_s = slowest(lambda: None, lambda: open_all(is_read=False))
    is_met = report(f"  open {count} partitions", elapsed_s, 3)
    report("  open them and read from each", slowest(lambda: None, lambda: open_all(is_read=True)))
    print(f"  files open at most: {most} of {FILES_MAX} allowed")
    data.close()
    return is_met and most <= FILES_MAX


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where to build the logs; 1.4 GB are needed")
    parser.add_argument("--singles", action="store_true", help="also a million batches of one message")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="borzoi-open-", dir=arguments.directory))
    try:
        is_met = large_log(base / "batches", 1000)
        if arguments.singles:
            is_met &= large_log(base / "singles", 1)
        is_met &= many_partitions(base / "data")
    finally:
        shutil.rmtree(base)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
