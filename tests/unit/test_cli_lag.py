"""`borzoi lag`: what is behind, by how much, and for how long; once and watched."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from borzoi import Consumer
from borzoi.cli.lag_table import GroupLag, exceeding, next_unread, owners, partition_lag, shown_seconds
from borzoi.cli.live import with_watch_value
from borzoi.cli.main import app
from borzoi.cli.positions import Bounds
from borzoi.model.permissions import GlobalPermissions, Permissions

SECOND_US = 1_000_000
NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("bounds", "committed", "unread"),
    [
        (Bounds(0, 0), None, None),
        (Bounds(0, 5), None, 0),
        (Bounds(3, 5), None, 3),
        (Bounds(0, 5), 1, 2),
        (Bounds(3, 5), 0, 3),
        (Bounds(0, 5), 4, None),
        (Bounds(5, 5), 1, None),
    ],
)
def test_the_first_unread_message(bounds, committed, unread):
    assert next_unread(bounds, committed) == unread


@pytest.mark.parametrize(
    ("bounds", "committed", "since_us", "lag", "lag_s", "end"),
    [
        (Bounds(0, 5), None, NOW_US - 7 * SECOND_US, 5, 7.0, 4),
        (Bounds(0, 5), 2, NOW_US - SECOND_US // 2, 2, 0.5, 4),
        (Bounds(3, 5), 0, NOW_US - SECOND_US, 2, 1.0, 4),
        (Bounds(0, 5), 4, None, 0, 0.0, 4),
        (Bounds(0, 0), None, None, 0, 0.0, None),
        (Bounds(0, 5), 2, NOW_US + SECOND_US, 2, 0.0, 4),
    ],
    ids=["no offset", "behind", "messages removed", "caught up", "empty", "clocks differ"],
)
def test_how_far_a_group_is_behind(bounds, committed, since_us, lag, lag_s, end):
    found = partition_lag(0, bounds, committed, since_us, NOW_US, None)
    assert (found.lag, found.lag_s, found.end_offset) == (lag, lag_s, end)


def test_the_total_of_a_group_is_the_sum_of_messages_and_the_longest_time():
    parts = tuple(
        partition_lag(number, Bounds(0, 5), committed, NOW_US - number * SECOND_US, NOW_US, None)
        for number, committed in ((1, 3), (2, None))
    )
    group = GroupLag("s", "t", "g", 0, parts)
    assert (group.lag, group.lag_s) == (6, 2.0)
    assert exceeding([group], 5) == [group]
    assert exceeding([group], 6) == []


def test_a_partition_belongs_to_the_member_that_has_it():
    assert owners([(0, (0, 2)), (1, (1,)), (2, ())]) == {0: 0, 2: 0, 1: 1}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (4.24, "4.2s"), (185, "3m 05s"), (7800, "2h 10m"), (3 * 86400 + 3600 * 5, "3d 5h")],
)
def test_times_are_shown_short(seconds, shown):
    assert shown_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([], []),
        (["--watch"], ["--watch", "2"]),
        (["--watch", "5"], ["--watch", "5"]),
        (["--watch", "orders"], ["--watch", "2", "orders"]),
        (["orders", "--watch", "--json"], ["orders", "--watch", "2", "--json"]),
    ],
    ids=str,
)
def test_seconds_may_be_left_out_after_watch(written, read):
    assert with_watch_value(written) == read


@pytest.fixture
def invoke(borzoi_server):
    return lambda *arguments: CliRunner().invoke(
        app, [str(each) for each in arguments], env={"BORZOI_SERVER": borzoi_server.connection_string}
    )


@pytest.fixture
def text(invoke):
    """What a command printed that ended well."""

    def run(*arguments):
        result = invoke(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return run


@pytest.fixture
def data(text):
    return lambda *arguments: json.loads(text(*arguments, "--json"))


@pytest.fixture
def orders(borzoi):
    """A topic with two partitions; group "billing" has read some of it, "audit" nothing."""
    borzoi.create_stream("orders")
    borzoi.create_topic("orders", "events", 2)
    borzoi.create_consumer_group("orders", "events", "billing")
    borzoi.create_consumer_group("orders", "events", "audit")
    borzoi.send_messages("orders", "events", 0, ["x"] * 10)
    borzoi.join_consumer_group("orders", "events", "billing")
    borzoi.store_consumer_offset("orders", "events", 0, offset=6, consumer=Consumer.group("billing"))
    return borzoi


def test_lag_is_shown_for_each_partition_with_a_total(text, orders, borzoi_server):
    borzoi_server.advance(90)
    head, *rows = [line.split() for line in text("lag").splitlines()]
    assert head == ["Stream", "Topic", "Group", "Partition", "Committed", "End", "Lag", "Behind", "Member"]
    assert rows == [
        ["orders", "events", "billing", "0", "6", "9", "3", "1m", "30s", "0"],
        ["orders", "events", "billing", "1", "-", "-", "0", "0s", "0"],
        ["orders", "events", "billing", "total", "3", "1m", "30s", "1", "in", "all"],
        ["orders", "events", "audit", "0", "-", "9", "10", "1m", "30s", "-"],
        ["orders", "events", "audit", "1", "-", "-", "0", "0s", "-"],
        ["orders", "events", "audit", "total", "10", "1m", "30s", "0", "in", "all"],
    ]


def test_a_program_gets_the_same(data, orders, borzoi_server):
    borzoi_server.advance(60)
    (billing, audit) = data("lag", "orders")
    assert (billing["group"], billing["lag"], billing["members_count"]) == ("billing", 3, 1)
    assert (audit["group"], audit["lag"], audit["members_count"]) == ("audit", 10, 0)
    first = billing["partitions"][0]
    assert 60 <= first.pop("lag_s") < 90
    assert first == {
        "partition_id": 0,
        "committed_offset": 6,
        "end_offset": 9,
        "lag": 3,
        "member_id": 0,
    }


def test_lag_of_one_group_and_of_nothing(data, orders):
    found = data("lag", "orders", "events", "audit")
    assert [each["group"] for each in found] == ["audit"]
    orders.create_stream("empty")
    assert data("lag", "empty") == []


def test_asking_does_not_move_anything(data, orders):
    before = data("lag")
    offset = orders.get_consumer_offset("orders", "events", 0, consumer=Consumer.group("billing"))
    assert offset.stored_offset == 6
    assert [each["lag"] for each in before] == [3, 10]


def test_somebody_who_may_not_ask_for_statistics_gets_the_lag_too(invoke, orders, borzoi_server):
    rights = Permissions(GlobalPermissions(read_streams=True, read_topics=True, poll_messages=True))
    orders.create_user("guest", "secret", permissions=rights)
    result = invoke("lag", "--json", "--server", f"iggy://guest:secret@{borzoi_server.address}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [each["lag"] for each in json.loads(result.stdout)] == [3, 10]


@pytest.mark.parametrize("missing", [["x"], ["orders", "x"], ["orders", "events", "x"]], ids=" ".join)
def test_what_does_not_exist_is_named(invoke, orders, missing):
    result = invoke("lag", *missing)
    assert (result.exit_code, result.stdout) == (1, "")
    assert '"x"' in result.stderr


def test_too_much_lag_ends_with_a_code_for_monitoring(invoke, orders):
    assert invoke("lag", "--max-lag", 10).exit_code == 0
    result = invoke("lag", "--max-lag", 9, "--json")
    assert result.exit_code == 1
    assert [each["lag"] for each in json.loads(result.stdout)] == [3, 10]
    assert 'group "audit"' in result.stderr
    assert "is 10 messages behind, more than 9" in result.stderr
    assert "and 1 more" in invoke("lag", "--max-lag", 2).stderr


@pytest.mark.parametrize(
    "wrong",
    [["--watch", "0"], ["--watch", "-1"], ["--watch", "--max-lag", "5"], ["--max-lag", "-1"]],
    ids=" ".join,
)
def test_wrong_usage(invoke, wrong):
    result = invoke("lag", *wrong)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def paused(monkeypatch, *steps):
    """Between rounds these are done in place of waiting; then Ctrl-C is pressed."""
    left = iter(steps)

    def pause(seconds):
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr("borzoi.cli.live.pause", pause)


def test_watching_prints_a_block_for_each_round_until_it_is_interrupted(invoke, orders, monkeypatch):
    paused(monkeypatch, lambda: orders.send_messages("orders", "events", 0, ["new"]))
    result = invoke("lag", "orders", "events", "audit", "--watch")
    blocks = result.stdout.strip().split("\n\n")
    assert [block.splitlines()[1].split()[6] for block in blocks] == ["10", "11"]
    assert (result.exit_code, result.stderr) == (130, "error: interrupted\n")


def test_watching_for_a_program_prints_a_line_for_each_round(invoke, orders, monkeypatch):
    paused(monkeypatch, lambda: orders.send_messages("orders", "events", 0, ["new"]))
    result = invoke("lag", "--watch", "1", "--json")
    rounds = [json.loads(line) for line in result.stdout.splitlines()]
    assert [[group["lag"] for group in each] for each in rounds] == [[3, 10], [4, 11]]
    assert result.exit_code == 130


def test_a_server_that_goes_away_is_told_and_waited_for(invoke, orders, borzoi_server, monkeypatch):
    paused(monkeypatch, borzoi_server.stop, borzoi_server.start)
    result = invoke("lag", "--watch", "--json", "--deadline", "500ms")
    assert len(result.stdout.splitlines()) == 2
    away, interrupted = result.stderr.splitlines()
    assert away.startswith("the server is away, trying again: ")
    assert (result.exit_code, interrupted) == (130, "error: interrupted")


def test_a_server_that_stays_away_is_given_up_after_the_deadline(invoke, orders, borzoi_server, monkeypatch):
    paused(monkeypatch, borzoi_server.stop, *[lambda: None] * 100)
    result = invoke("lag", "--watch", "--deadline", "200ms")
    assert result.exit_code == 3
    away, error = result.stderr.splitlines()
    assert away.startswith("the server is away")
    assert error.startswith("error: ")
    borzoi_server.start()


def test_a_server_that_is_not_there_from_the_beginning_is_not_waited_for(invoke, borzoi_server):
    borzoi_server.stop()
    result = invoke("lag", "--watch", "--deadline", "200ms")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)


def test_on_a_terminal_the_table_is_redrawn_until_ctrl_c(orders, borzoi_server):
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", "from borzoi.cli.main import main; main()", "lag", "--watch", "0.05"]
    env = {
        **os.environ,
        "BORZOI_SERVER": borzoi_server.connection_string,
        "TERM": "xterm",
        "COLUMNS": "120",
        "LINES": "30",
    }
    with subprocess.Popen(program, env=env, stdout=theirs, stderr=subprocess.PIPE, text=True) as watching:
        os.close(theirs)
        seen = b""
        while seen.count(b"audit") < 9:  # three rounds with three lines each
            seen += os.read(ours, 65536)
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=10)
    os.close(ours)
    assert b"\x1b[1A" in seen  # up, to draw over it
    assert (watching.returncode, said) == (130, "error: interrupted\n")
