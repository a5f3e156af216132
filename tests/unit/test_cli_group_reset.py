"""`borzoi group reset` and `undo-reset`: where offsets go, what is remembered, and what is refused."""

import asyncio
import json
import stat
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from borzoi import AsyncConsumer, Client, Consumer, PollingStrategy
from borzoi.cli.home import HomeFileError
from borzoi.cli.main import app
from borzoi.cli.offset_targets import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    Place,
    Shift,
    parse_time,
    planned,
    restored,
)
from borzoi.cli.positions import Bounds
from borzoi.cli.reset_journal import FILE_NAME, Change, Journal, Subject
from borzoi.model.errors import NotFound
from borzoi.model.replies import PartitionInfo

NOW_US = 1_800_000_000_000_000
MINUTE_US = 60_000_000
BILLING = Subject("127.0.0.1:8090", "orders", "events", "consumer-group", "billing")
WHERE = ("orders", "events", "billing")


@pytest.mark.parametrize(
    ("target", "committed", "stored"),
    [
        (Earliest(), 15, 9),
        (Earliest(), None, 9),
        (Latest(), 15, 19),
        (AtOffset(12), 15, 11),
        (AtOffset(20), 15, 19),
        (AtTime(0), 15, 13),
        (Shift(-2), 15, 13),
        (Shift(2), 15, 17),
        (Shift(2), None, 11),
        (Shift(0), 3, 9),
    ],
    ids=repr,
)
def test_where_a_reset_goes_in_a_partition_with_messages_10_to_19(target, committed, stored):
    move = planned(target, Place(0, Bounds(10, 20), committed, offset_at_time=14))
    assert (move.before, move.after, move.next_offset) == (committed, stored, stored + 1)
    assert "clamped" not in move.note


@pytest.mark.parametrize(
    ("target", "stored", "note"),
    [
        (AtOffset(3), 9, "3 is before the first message kept, clamped to 10"),
        (AtOffset(21), 19, "21 is past the end, clamped to 20"),
        (Shift(-100), 9, "-84 is before"),
        (Shift(100), 19, "116 is past"),
    ],
    ids=repr,
)
def test_offsets_that_do_not_exist_are_clamped_with_a_note(target, stored, note):
    move = planned(target, Place(0, Bounds(10, 20), 15))
    assert move.after == stored
    assert note in move.note


def test_the_beginning_of_a_whole_partition_is_no_stored_offset():
    move = planned(Earliest(), Place(0, Bounds(0, 20), 15))
    assert (move.after, move.change, move.is_needed) == (None, -16, True)


def test_a_time_after_the_last_message_is_the_end():
    move = planned(AtTime(NOW_US), Place(0, Bounds(10, 20), 15))
    assert (move.after, move.note) == (19, "no message since then: at the end")


def test_an_empty_partition_has_nothing_to_store():
    for target in (Earliest(), Latest(), AtOffset(5), AtTime(1), Shift(1)):
        assert not planned(target, Place(0, Bounds(0, 0), None)).is_needed


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.none() | st.integers(0, 99),
    st.one_of(
        st.builds(Earliest), st.builds(Latest), st.builds(AtOffset, st.integers(0, 200)),
        st.builds(Shift, st.integers(-200, 200)),
    ),
)  # fmt: skip
def test_what_is_stored_is_always_something_the_server_takes(first, count, committed, target):
    bounds = Bounds(first, first + count)
    move = planned(target, Place(0, bounds, committed))
    assert move.after is None or 0 <= move.after < bounds.next_offset
    assert bounds.first_offset <= move.next_offset <= bounds.next_offset


def test_the_bounds_of_a_partition_tell_one_message_from_none():
    def bounds(current, count, committed=None):
        found = Bounds.of(PartitionInfo(0, 0, 1, current, 0, count), committed)
        return found.first_offset, found.next_offset

    assert bounds(0, 0) == (0, 0)
    assert bounds(0, 1) == (0, 1)
    assert bounds(9, 4) == (6, 10)
    assert bounds(9, 0) == (10, 10)
    assert bounds(0, 0, committed=0) == (1, 1)


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("-15min", NOW_US - 15 * MINUTE_US),
        ("-1h 30m", NOW_US - 90 * MINUTE_US),
        ("1769860800000000", 1769860800000000),
        ("2026-01-31T12:00:00Z", 1769860800000000),
        ("2026-01-31T13:00:00+01:00", 1769860800000000),
        ("2026-01-31 12:00:00.000001+00:00", 1769860800000001),
    ],
)
def test_ways_to_write_a_time(text, time_us):
    assert parse_time(text, NOW_US) == time_us


@pytest.mark.parametrize(
    "text", ["", "soon", "15min", "-15", "1769860800", "20260131", "2026-13-01", "0001-01-01"]
)
def test_what_is_no_time_is_told_with_an_example(text):
    with pytest.raises(ValueError, match=r"write for example|digits are microseconds"):
        parse_time(text, NOW_US)


def test_restoring_does_not_store_what_the_server_would_refuse():
    places = {0: Place(0, Bounds(0, 5), 1), 1: Place(1, Bounds(0, 0), None)}
    moves = restored({0: 9, 1: 3, 7: 1}, places)
    assert [(move.partition_id, move.after) for move in moves] == [(0, 4), (1, None)]


def test_the_journal_gives_the_last_reset_of_the_same_group_that_was_not_undone(tmp_path):
    journal = Journal(tmp_path / "new")
    first = journal.record(BILLING, [Change(0, 5, None)], 1)
    second = journal.record(BILLING, [Change(0, None, 7)], 2)
    journal.record(Subject("other:1", *list(WHERE[:2]), "consumer-group", "billing"), [Change(0, 1, 2)], 3)
    assert Journal(tmp_path / "new").last(BILLING) == second
    journal.undone(second, 4)
    assert journal.last(BILLING) == first
    journal.undone(first, 5)
    assert journal.last(BILLING) is None


def test_only_the_owner_can_read_the_journal(tmp_path):
    journal = Journal(tmp_path / "new")
    journal.record(BILLING, [], 1)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700


def test_a_line_of_the_journal_that_was_cut_off_does_no_harm(tmp_path):
    journal = Journal(tmp_path)
    kept = journal.record(BILLING, [Change(0, 5, None)], 1)
    with journal.path.open("ab") as file:
        file.write(b'{"reset":"x","at_us":2,"ser')
    assert journal.last(BILLING) == kept
    later = journal.record(BILLING, [Change(0, 1, 2)], 3)
    assert journal.last(BILLING) == later


def test_a_journal_that_cannot_be_written_says_which_file_it_is(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeFileError, match=FILE_NAME):
        Journal(tmp_path / "file").record(BILLING, [], 1)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IGGY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def text(borzoi_server):
    """Runs a command and gives its result."""

    def invoke(*arguments, code=0):
        result = CliRunner().invoke(
            app, [str(each) for each in arguments], env={"BORZOI_SERVER": borzoi_server.connection_string}
        )
        assert result.exit_code == code, result.output
        if code:
            assert result.stderr.startswith("error: ")
            assert result.stderr.count("\n") == 1
        return result.stderr if code else result.stdout

    return invoke


@pytest.fixture
def data(text):
    return lambda *arguments: json.loads(text(*arguments, "--json"))


@pytest.fixture
def group(borzoi):
    """Ten messages in each of two partitions, and a group that has read six of each."""
    borzoi.create_stream("orders")
    borzoi.create_topic("orders", "events", 2)
    borzoi.create_consumer_group(*WHERE)
    for partition in (0, 1):
        borzoi.send_messages("orders", "events", partition, [f"{number}" for number in range(10)])
    commit(borzoi, {0: 5, 1: 5})
    return borzoi


def commit(client, offsets):
    client.join_consumer_group(*WHERE)
    for partition, offset in offsets.items():
        client.store_consumer_offset(*WHERE[:2], partition, offset=offset, consumer=Consumer.group("billing"))
    client.leave_consumer_group(*WHERE)


def offsets(client, consumer=None):
    found = [
        client.get_consumer_offset(*WHERE[:2], number, consumer=consumer or Consumer.group("billing"))
        for number in (0, 1)
    ]
    return [None if each is None else each.stored_offset for each in found]


def test_a_reset_is_shown_and_applied(text, group):
    shown = text("consumer-group", "reset", *WHERE, "--to-offset", 3, "--yes").splitlines()
    assert shown[0].split() == ["Partition", "Current", "New", "Change", "Next", "Note"]
    assert shown[1].split() == ["0", "5", "2", "-3", "3"]
    assert shown[-1] == 'offsets of consumer-group "billing" changed in 2 partitions'
    assert offsets(group) == [2, 2]
    assert group.get_consumer_group(*WHERE).members_count == 0


def test_a_program_gets_the_same(data, group):
    said = data("consumer-group", "reset", *WHERE, "--shift", -2, "-p", 1, "--yes")
    assert said["is_applied"] is True
    assert said["partitions"] == [
        {"partition_id": 1, "current": 5, "new": 3, "change": -2, "next_offset": 4, "note": ""}
    ]
    assert offsets(group) == [5, 3]


@pytest.mark.parametrize(
    ("target", "stored"),
    [
        (["--to-earliest"], [None, None]),
        (["--to-latest"], [9, 9]),
        (["--to-offset", 99], [9, 9]),
        (["--shift", 2], [7, 7]),
        (["--to-time", "-15min"], [None, None]),
        (["--to-time", "2100-01-01"], [9, 9]),
    ],
    ids=str,
)
def test_every_target(text, group, target, stored):
    text("group", "reset", *WHERE, *target, "-y")
    assert offsets(group) == stored


def test_a_time_between_two_messages(text, group, borzoi_server):
    borzoi_server.advance(3600)
    group.send_messages("orders", "events", 0, ["late"])
    text("group", "reset", *WHERE, "--to-time", "-30min", "--yes")
    assert offsets(group) == [9, 9]
    group.join_consumer_group(*WHERE)
    (message,) = group.poll_messages(
        *WHERE[:2], 0, PollingStrategy.Next(), consumer=Consumer.group("billing")
    )
    assert message.payload == b"late"


def test_after_a_reset_to_the_earliest_the_group_starts_with_the_first_message(text, group):
    text("group", "reset", *WHERE, "--to-earliest", "--yes")
    group.join_consumer_group(*WHERE)
    found = group.poll_messages(*WHERE[:2], 0, PollingStrategy.Next(), consumer=Consumer.group("billing"))
    assert found[0].offset == 0


@pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
def test_the_earliest_is_the_first_message_that_is_still_kept(text, borzoi):
    borzoi.create_stream("orders")
    borzoi.create_topic("orders", "events", 1)
    borzoi.create_consumer_group(*WHERE)
    for _ in range(3):
        borzoi.send_messages("orders", "events", 0, [b"x" * 600_000])
    borzoi.delete_segments("orders", "events", 0, 1)
    first = borzoi.poll_messages("orders", "events", 0, PollingStrategy.First(), 1, auto_commit=False)[
        0
    ].offset
    assert first > 0
    text("group", "reset", *WHERE, "--to-earliest", "--yes")
    found = borzoi.get_consumer_offset("orders", "events", 0, consumer=Consumer.group("billing"))
    assert found.stored_offset == first - 1


def test_a_dry_run_changes_nothing(text, data, group, home):
    assert text("group", "reset", *WHERE, "--to-latest", "--dry-run").endswith("dry run\n")
    assert data("group", "reset", *WHERE, "--to-latest", "--dry-run")["is_applied"] is False
    assert offsets(group) == [5, 5]
    assert not (home / FILE_NAME).exists()


def test_a_reset_that_changes_nothing_says_so(text, group, home):
    assert text("group", "reset", *WHERE, "--to-offset", 6, "--yes").endswith("nothing to change\n")
    assert not (home / FILE_NAME).exists()


def test_a_group_with_members_is_refused_and_a_dry_run_tells_it(text, group):
    group.join_consumer_group(*WHERE)
    line = text("group", "reset", *WHERE, "--to-latest", "--yes", code=1)
    assert "1 member at work, which would not notice" in line
    assert "has 1 member" in text("group", "reset", *WHERE, "--to-latest", "--dry-run")
    assert offsets(group) == [5, 5]


def test_force_throws_the_members_out_and_keeps_the_other_offsets(text, group, borzoi_server):
    with borzoi_server.client() as member:
        member.join_consumer_group(*WHERE)
        text("group", "reset", *WHERE, "--to-latest", "-p", 0, "--yes", "--force")
        assert member.sync_consumer_group(*WHERE) is None
    assert offsets(group) == [9, 5]
    text("group", "undo-reset", *WHERE, "--yes")
    assert offsets(group) == [5, 5]


def test_a_member_that_is_back_before_the_offsets_are_stored_is_thrown_out_again(
    text, group, borzoi_server, monkeypatch
):
    store = Client.store_consumer_offset
    with borzoi_server.client() as member:
        member.join_consumer_group(*WHERE)
        returns = iter([True, True])

        def store_late(self, *args, **kwargs):
            if next(returns, False):
                member.join_consumer_group(*WHERE)
            return store(self, *args, **kwargs)

        monkeypatch.setattr(Client, "store_consumer_offset", store_late)
        text("group", "reset", *WHERE, "--to-latest", "--yes", "--force")
    assert offsets(group) == [9, 9]


async def test_a_consumer_that_was_thrown_out_goes_on_at_the_new_place(text, group, borzoi_async):
    seen, arrived = set(), asyncio.Condition()

    async def consume(consumer):
        while not consumer._stopping.is_set():
            with suppress(NotFound):  # between deleting the group and making it anew
                async for message in consumer:
                    async with arrived:
                        seen.add((message.partition_id, message.offset))
                        arrived.notify_all()

    async def have_seen(offsets):
        wanted = {(partition, offset) for partition in (0, 1) for offset in offsets}
        async with asyncio.timeout(20), arrived:
            await arrived.wait_for(lambda: wanted <= seen)

    async with AsyncConsumer(borzoi_async, "orders", "events", group="billing") as consumer:
        working = asyncio.create_task(consume(consumer))
        await have_seen(range(6, 10))
        await asyncio.to_thread(text, "group", "reset", *WHERE, "--to-offset", 2, "--yes", "--force")
        await have_seen(range(2, 10))
        consumer.stop()
        await working


def test_undoing_restores_one_reset_after_the_other(text, data, group):
    text("group", "reset", *WHERE, "--to-latest", "--yes")
    text("group", "reset", *WHERE, "--to-earliest", "-p", 0, "--yes")
    assert text("group", "undo-reset", *WHERE, "--dry-run").endswith("dry run\n")
    text("consumer-group", "undo-reset", *WHERE, "--yes")
    assert offsets(group) == [9, 9]
    assert data("consumer-group", "undo-reset", *WHERE, "--yes")["is_applied"] is True
    assert offsets(group) == [5, 5]
    assert "has no reset" in text("group", "undo-reset", *WHERE, "--yes", code=1)


def test_a_reset_is_not_undone_if_the_group_has_committed_since(text, group):
    text("group", "reset", *WHERE, "--to-earliest", "--yes")
    commit(group, {1: 2})
    line = text("group", "undo-reset", *WHERE, "--yes", code=1)
    assert "has committed since in partition 1" in line
    assert offsets(group) == [None, 2]
    text("group", "undo-reset", *WHERE, "--yes", "--force")
    assert offsets(group) == [5, 5]


def test_a_group_that_was_deleted_comes_back_with_its_offsets(text, group):
    text("group", "reset", *WHERE, "--to-latest", "--yes")
    group.delete_consumer_group(*WHERE)
    text("group", "undo-reset", *WHERE, "--yes", "--force")
    assert offsets(group) == [5, 5]


def test_a_reset_that_fails_midway_says_how_far_it_came_and_can_be_undone(
    text, group, borzoi_server, monkeypatch
):
    store = Client.store_consumer_offset

    def store_once(self, *args, **kwargs):
        store(self, *args, **kwargs)
        borzoi_server.refuse_writes()

    with monkeypatch.context() as patch:
        patch.setattr(Client, "store_consumer_offset", store_once)
        line = text("group", "reset", *WHERE, "--to-latest", "--yes", code=1)
    assert "changed in partition 0; not, or not known to be, in 1." in line
    assert "undo-reset orders events billing" in line
    borzoi_server.heal()
    assert offsets(group) == [9, 5]
    text("group", "undo-reset", *WHERE, "--yes")
    assert offsets(group) == [5, 5]


def test_nothing_is_changed_if_the_journal_cannot_be_written(text, group, home):
    home.write_text("a file, not a directory")
    assert FILE_NAME in text("group", "reset", *WHERE, "--to-latest", "--yes", code=2)
    assert offsets(group) == [5, 5]


def test_offsets_of_single_consumers_can_be_reset_too(text, group):
    clerk = Consumer.single("clerk")
    group.store_consumer_offset(*WHERE[:2], 0, offset=4, consumer=clerk)
    where = ("orders", "events", "clerk", "--kind", "consumer", "--yes")
    text("group", "reset", *where, "--to-offset", 2)
    assert offsets(group, clerk) == [1, 1]
    text("group", "undo-reset", *where)
    assert offsets(group, clerk) == [4, None]


@pytest.mark.parametrize(("answer", "stored"), [("n", [5, 5]), ("y", [9, 9])])
def test_somebody_at_a_terminal_is_asked(group, borzoi_server, monkeypatch, answer, stored):
    monkeypatch.setattr("borzoi.cli.confirmation.has_terminal", lambda: True)
    result = CliRunner().invoke(
        app,
        ["group", "reset", *WHERE, "--to-latest"],
        input=f"{answer}\n",
        env={"BORZOI_SERVER": borzoi_server.connection_string},
    )
    assert 'change the offsets of consumer-group "billing"? [y/N]' in result.stderr
    assert ("nothing was changed" in result.stderr) == (answer == "n")
    assert offsets(group) == stored


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (lambda client: commit(client, {0: 6}), "offsets were committed since"),
        (lambda client: client.join_consumer_group(*WHERE), "members have joined"),
        (lambda client: client.delete_consumer_group(*WHERE), "members have joined or left"),
    ],
    ids=["commit", "join", "delete"],
)
def test_what_happens_while_somebody_is_asked_is_noticed(group, monkeypatch, meanwhile, said):
    monkeypatch.setattr("borzoi.cli.confirmation.has_terminal", lambda: True)
    monkeypatch.setattr("borzoi.cli.group_reset.ask", lambda question: meanwhile(group))
    result = CliRunner().invoke(app, ["group", "reset", *WHERE, "--to-latest", "--server", group.address])
    assert result.exit_code == 1
    assert said in result.stderr
    assert 9 not in offsets(group)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to-latest"], "add --yes"),
        (["--to-latest", "--json"], "add --yes"),
        (["--yes"], "give one of"),
        (["--to-latest", "--shift", "1", "--yes"], "give one of"),
        (["--to-time", "soon", "--yes"], "--to-time"),
        (["--to-offset", "-1", "--yes"], "--to-offset"),
    ],
    ids=" ".join,
)
def test_wrong_usage(text, arguments, said):
    assert said in text("group", "reset", *WHERE, *arguments, code=2)


def test_what_does_not_exist_is_named(text, group):
    assert "no topic" in text("group", "reset", "orders", "other", "billing", "--to-latest", "--yes", code=1)
    assert "no consumer group" in text("group", "reset", "orders", "events", "x", "--to-latest", "-y", code=1)
    assert "no partition 5" in text("group", "reset", *WHERE, "-p", 5, "--to-latest", "-y", code=1)
