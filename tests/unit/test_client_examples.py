"""The examples run as they are, twice, against a real server."""

import os
import subprocess
import sys

import pytest

from support.client_kinds import HOST
from support.in_process import LocalServer
from support.paths import REPOSITORY


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("examples") / "data") as server:
        yield f"iggy://iggy:iggy@{HOST}:{server.port}"


def run(name, address):
    shown = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", REPOSITORY / "examples" / name, address],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        timeout=60,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    return shown.stdout


def test_getting_started(address):
    first = run("getting_started.py", address)
    assert "0 order 0 {'number': 0}" in first
    assert first.count("billed") == 2
    again = run("getting_started.py", address)
    assert "from offset 3" in again
    assert again.count("billed") == 2  # only what is new


def test_getting_started_without_asyncio(address):
    for _ in range(2):
        shown = run("getting_started_sync.py", address)
        assert [f"{amount} EUR" in shown for amount in (10, 20, 30, 40)] == [True] * 4
        assert shown.count("offset") == 4
