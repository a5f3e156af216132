"""`borzoi top`: rates from two looks at the server."""

import json

import pytest
from typer.testing import CliRunner

from borzoi import Consumer
from borzoi.cli.main import app
from borzoi.cli.positions import Bounds
from borzoi.cli.throughput import Sample, ServerUse, TopicCount, rates

SECOND_US = 1_000_000
IDLE = ServerUse(1.0, 1000, 2, 0)
EVENTS, OTHER = ("orders", "events"), ("orders", "other")
BILLING = (*EVENTS, "billing")


def look(second, topics=None, groups=None):
    return Sample(second * SECOND_US, IDLE, topics or {}, groups or {})


def count(next_offsets, *, size_bytes=0, first=0):
    bounds = {number: Bounds(first, end) for number, end in enumerate(next_offsets)}
    return TopicCount(bounds, sum(each.next_offset - first for each in bounds.values()), size_bytes)


def test_a_rate_is_what_came_in_between_two_looks_per_second():
    found = rates(
        look(10, {EVENTS: count([5, 5], size_bytes=100)}), look(15, {EVENTS: count([15, 5], size_bytes=350)})
    )
    (topic,) = found.topics
    assert (topic.messages_per_s, topic.bytes_per_s, found.interval_s) == (2.0, 50.0, 5.0)


def test_the_busiest_topic_comes_first():
    found = rates(
        look(0, {EVENTS: count([0]), OTHER: count([0])}), look(1, {EVENTS: count([1]), OTHER: count([9])})
    )
    assert [each.topic for each in found.topics] == ["other", "events"]


def test_a_topic_that_is_new_counts_from_nothing():
    (topic,) = rates(look(0), look(2, {EVENTS: count([10], size_bytes=500)})).topics
    assert (topic.messages_per_s, topic.bytes_per_s) == (5.0, 250.0)


def test_messages_that_retention_removed_do_not_make_rates_negative():
    before = {EVENTS: count([100], size_bytes=1000)}
    after = {EVENTS: count([110], first=90, size_bytes=200)}
    (topic,) = rates(look(0, before), look(1, after)).topics
    assert (topic.messages_per_s, topic.bytes_per_s) == (10.0, 100.0)


def test_a_purged_topic_starts_anew():
    (topic,) = rates(look(0, {EVENTS: count([100])}), look(1, {EVENTS: count([4])})).topics
    assert topic.messages_per_s == 4.0


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        ({0: 4, 1: 9}, {0: 14, 1: 9}, 10.0),
        ({}, {0: 7}, 8.0),
        ({0: 9}, {0: 2}, 0.0),
        ({0: 9}, {}, 0.0),
    ],
    ids=["further", "its first commit", "reset", "offset deleted"],
)
def test_what_a_group_has_consumed(before, after, rate):
    topics = {EVENTS: count([20, 20])}
    (group,) = rates(look(0, topics, {BILLING: before}), look(1, topics, {BILLING: after})).groups
    assert group.messages_per_s == rate


def test_a_group_that_is_new_has_no_rate_yet():
    topics = {EVENTS: count([20])}
    (group,) = rates(look(0, topics), look(1, topics, {BILLING: {0: 19}})).groups
    assert group.messages_per_s == 0.0


def test_two_looks_at_the_same_moment_are_no_division_by_zero():
    assert rates(look(1), look(1)).interval_s > 0


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
def lines(text):
    return lambda *arguments: [json.loads(line) for line in text(*arguments, "--json").splitlines()]


@pytest.fixture
def busy(borzoi, borzoi_server, monkeypatch):
    """With every pause ten seconds pass, twenty messages come in and the group commits five."""
    borzoi.create_stream("orders")
    borzoi.create_topic("orders", "events", 1)
    borzoi.create_topic("orders", "aside", 1)
    borzoi.create_consumer_group("orders", "events", "billing")
    borzoi.join_consumer_group("orders", "events", "billing")
    borzoi.send_messages("orders", "events", 0, ["old"] * 100)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        borzoi.send_messages("orders", "events", 0, ["new"] * 20)
        borzoi.store_consumer_offset(
            "orders", "events", 0, offset=5 * len(pauses) - 1, consumer=Consumer.group("billing")
        )
        borzoi_server.advance(10)

    monkeypatch.setattr("borzoi.cli.live.pause", pause)
    return pauses


def test_every_round_is_a_line_for_programs(lines, busy):
    found = lines("top", "--count", 2, "--interval", 10)
    assert len(found) == 2
    assert busy == [10.0, 10.0]
    for each in found:
        events, aside = each["topics"]
        assert (events["topic"], aside["topic"]) == ("events", "aside")
        assert events["messages_per_s"] * each["interval_s"] == pytest.approx(20)
        assert events["bytes_per_s"] > events["messages_per_s"]
        assert aside["messages_per_s"] == 0
        (group,) = each["groups"]
        assert group["messages_per_s"] * each["interval_s"] == pytest.approx(5)
        assert each["server"]["clients_count"] == 2
        assert each["server"]["memory_bytes"] > 0


def test_people_get_tables(text, busy):
    lines = [line.split() for line in text("top", "-n", 1).splitlines()]
    assert "CPU" in lines[0]
    assert "clients" in lines[0]
    assert lines[2] == ["Stream", "Topic", "In", "msg/s", "In", "B/s", "Messages", "Size"]
    assert lines[3][:3] in (["orders", "events", "2.0"], ["orders", "events", "1.9"])
    assert lines[6] == ["Stream", "Topic", "Group", "Consumed", "msg/s"]
    assert lines[7][:4] == ["orders", "events", "billing", "0.5"]


def test_ctrl_c_ends_it_in_one_line(invoke, borzoi_server, monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("borzoi.cli.live.pause", interrupted)
    result = invoke("top")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "error: interrupted\n")


def test_a_server_that_is_not_there(borzoi_server, invoke):
    borzoi_server.stop()
    result = invoke("top", "--deadline", "200ms")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize("wrong", [["--interval", "0"], ["--count", "0"]], ids=" ".join)
def test_wrong_usage(invoke, wrong):
    result = invoke("top", *wrong)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
