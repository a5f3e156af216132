"""The examples run as they are, twice, against a real server."""

import os
import subprocess
import sys

import pytest

from borzoi import Client, Consumer
from support.client_kinds import HOST
from support.in_process import LocalServer
from support.paths import REPOSITORY


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("examples") / "data") as server:
        yield f"iggy://iggy:iggy@{HOST}:{server.port}"


@pytest.fixture
def deduplicating(tmp_path):
    """The address of a server that drops duplicates."""
    with LocalServer(tmp_path / "data", {"system.message_deduplication.enabled": "true"}) as server:
        yield f"iggy://iggy:iggy@{HOST}:{server.port}"


def start(*arguments):
    # Not in development mode, in which asyncio complains about slow machines.
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        timeout=60,
    )


def run(name, address, logged=""):
    shown = start(REPOSITORY / "examples" / name, address)
    assert shown.returncode == 0
    assert [line for line in shown.stderr.splitlines() if not logged or logged not in line] == []
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


def test_typed_messages(address):
    for first_offset in (0, 4):
        shown = run("typed_messages.py", address).splitlines()
        assert shown[0] == f"{first_offset}: Anna pays 12.50 {{}}"
        assert shown[1] == f"{first_offset + 1}: Ben pays 8.00 {{'priority': 1}}"
        assert shown[3].startswith(f"offset {first_offset + 3} is no order: ")
        assert shown[4] == "checked by pydantic: {'customer': 'Anna', 'cents': 1250}"


def test_blocking_in_a_thread(address):
    for _ in range(2):
        shown = run("sync_in_a_thread.py", address, logged="goes to temperatures-dead").splitlines()
        assert shown == ["everything is stored", "50 readings, 22.45 degrees on average"]


def test_exactly_once_even_if_it_is_killed_between_output_and_commit(deduplicating):
    """The worst moment: outputs are stored and nobody knows that their inputs are done."""
    killed = start(
        "-c",
        "import os, runpy, sys, borzoi\n"
        "commit = borzoi.AsyncConsumer.commit\n"
        "commits = iter(range(10))\n"
        "async def fatal(self, message=None):\n"
        "    if next(commits) == 2:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    await commit(self, message)\n"
        "borzoi.AsyncConsumer.commit = fatal\n"
        "sys.argv[0] = sys.argv.pop(1)\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n",
        REPOSITORY / "examples" / "exactly_once.py",
        deduplicating,
    )
    assert (killed.returncode, killed.stdout.split()[-1]) == (-9, "39")
    with Client(deduplicating) as client:
        assert client.get_topic("once", "invoices").messages_count == 60
        done = client.get_consumer_offset("once", "orders", 0, consumer=Consumer.single("invoicing"))
        assert done.stored_offset == 39
    shown = run("exactly_once.py", deduplicating).splitlines()
    assert shown[0] == "invoiced up to 59"  # again
    assert shown[-1] == "200 orders, 200 invoiced, 1 invoice each"
    assert run("exactly_once.py", deduplicating).endswith("300 orders, 300 invoiced, 1 invoice each\n")


def test_arrow(address):
    shown = run("arrow.py", address)
    assert "messages: 2000" in shown
    assert "mean: 22.5" in shown
