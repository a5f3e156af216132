"""Executors in processes of their own, whose Python does not have the package until it is sent there."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("cluster_program.py")
TIMEOUT_S = 280


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the program found. Its workers' Python reads no .pth files, so it has what is installed there,
    but not what is being edited.
    """
    directory = tmp_path_factory.mktemp("cluster")
    packages = Path(sysconfig.get_path("purelib"))
    if (packages / "borzoi").exists():
        pytest.skip("borzoi is installed for good here, so workers have it anyway")
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(packages)],
        env={**os.environ, "PYSPARK_PYTHON": str(python), "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # A cluster on one machine puts its workers' files into Spark's own directory, whatever it is told.
    shutil.rmtree(packages / "pyspark" / "work" / found["application"], ignore_errors=True)
    return found


def test_the_package_is_sent_to_workers_that_do_not_have_it(found):
    assert found["places"]
    assert all(".zip" in place for place in found["places"])


def test_a_topic_is_read_as_a_table(found):
    assert found["batch"] == [[0, "one two"], [1, "two"]]


def test_words_are_counted_while_they_arrive(found):
    assert found["word count"] == [
        [["one", 1], ["two", 2]],
        [["one", 2], ["three", 1], ["two", 3]],
    ]


def test_windows_are_given_out_once_the_watermark_has_passed_them(found):
    first_minute, second_minute = ["00", 1 + 2 + 4 + 16], ["01", 8 + 32]
    assert found["windows"] == [[], [first_minute], [first_minute, second_minute]]
