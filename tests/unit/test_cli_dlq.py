"""`borzoi dlq`: finding dead letters, looking at them, and sending them back without losing any."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from borzoi import AsyncConsumer, Client, Consumer, PollingStrategy, RetryPolicy, SendMessage
from borzoi.cli.letters import Destination, Letter, Progress, letter_fields, preview
from borzoi.cli.main import app
from borzoi.cli.replaying import REPLAYER
from borzoi.client.dead_letters import dead_letter
from borzoi.model.errors import CannotWriteToFile
from support.received import received

DEAD = ("orders", "events-dead")
DEDUPLICATING = pytest.mark.borzoi_settings({"system.message_deduplication.enabled": True})


ORIGIN = received(
    b"a lot", offset=41, timestamp=1_700_000_000_000_000, id=7, partition_id=1, headers={"region": "eu"}
)


def put_aside(message=ORIGIN, error=None, attempts=3):
    """A letter as a consumer makes it, and as it is stored in a dead-letter topic."""
    sent = dead_letter(message, "orders", "events", error or ValueError("no number"), attempts)
    return received(sent.payload, offset=5, id=sent.id, headers=sent.headers)


def returned(letter, **how):
    made = letter.returned(**{"with_new_id": False, **how})
    return made, received(made.payload, id=made.id, headers=made.headers)


def test_a_letter_goes_back_as_the_message_was_and_says_that_it_did():
    made, stored = returned(Letter.of(put_aside()))
    assert (made.payload, made.id) == (ORIGIN.payload, ORIGIN.id)
    assert stored.headers == {"region": "eu", "dlq.replayed": 1}


def test_a_message_that_fails_again_is_counted_on():
    _, stored = returned(Letter.of(put_aside()))
    letter = Letter.of(put_aside(stored))
    assert letter.replayed_count == 1
    assert returned(letter)[1].headers["dlq.replayed"] == 2


def test_headers_keep_their_kinds():
    typed = received(b"x", headers={1: 2.5, b"\x00": True})
    assert returned(Letter.of(put_aside(typed)))[1].headers == {1: 2.5, b"\x00": True, "dlq.replayed": 1}


def test_a_new_id_is_another_and_the_same_each_time():
    letter = Letter.of(put_aside())
    first, again = (returned(letter, with_new_id=True)[0].id for _ in range(2))
    assert first == again != ORIGIN.id


def test_what_is_no_letter_is_not_taken_for_one():
    assert Letter.of(ORIGIN) is None
    assert Letter.of(received(b"x", headers=b"\xff\xff")) is None


@pytest.mark.parametrize(
    ("text", "is_in"), [("NUMBER", True), ("valueerror", True), ("timeout", False), ("", True)]
)
def test_a_cause_is_found_whatever_its_case(text, is_in):
    assert Letter.of(put_aside()).has_cause(text) is is_in


def test_where_letters_go():
    letter = Letter.of(put_aside())
    assert Destination().of(letter) == ("orders", "events")
    assert Destination("other", 3).of(letter) == ("other", 3)


def test_what_programs_see_of_a_letter():
    fields = letter_fields(Letter.of(put_aside()))
    assert fields["origin"] == {
        "stream": "orders",
        "topic": "events",
        "partition_id": 1,
        "offset": 41,
        "timestamp": ORIGIN.timestamp,
    }
    assert (fields["cause"], fields["error"], fields["attempts"]) == ("no number", "ValueError", 3)
    assert fields["headers"] == {"region": {"kind": "string", "value": "eu"}}


def test_a_long_payload_is_cut_for_people():
    assert preview(b"short") == "short"
    assert len(preview(b"x" * 10_000)) < 300


@given(st.integers(0, 5), st.none() | st.integers(0, 9), st.lists(st.integers(0, 12)))
def test_progress_never_jumps_over_a_letter_and_never_goes_back(first, offset, sent):
    progress = Progress(first, offset)
    before = progress.next_offset
    for each in sent:
        progress.passed(each)
        assert progress.next_offset >= before
    assert set(range(before, progress.next_offset)) <= set(sent)


@pytest.fixture
def text(borzoi_server):
    """Runs a command and gives what it printed."""

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
def lines(text):
    return lambda *arguments: [json.loads(line) for line in text(*arguments, "--json").splitlines()]


@pytest.fixture
def letters(borzoi):
    """Four messages of partition 1 put aside, the second of them because of a timeout."""
    borzoi.create_stream("orders")
    borzoi.create_topic("orders", "events", 2)
    borzoi.create_topic("orders", "events-dead", 1)
    borzoi.send_messages("orders", "events", 1, [SendMessage(f"m{n}", id=100 + n) for n in range(4)])
    for message in borzoi.poll_messages("orders", "events", 1, PollingStrategy.First(), auto_commit=False):
        error = TimeoutError("too slow") if message.offset == 1 else ValueError("no number")
        borzoi.send_messages(*DEAD, 0, [dead_letter(message, "orders", "events", error, 3)])
    return borzoi


def arrived(client, partition=1, topic="events"):
    """What is in the topic besides the four messages it began with."""
    found = client.poll_messages("orders", topic, partition, PollingStrategy.First(), auto_commit=False)
    return [message for message in found if topic != "events" or message.offset > 3]


def remembered(client):
    found = client.get_consumer_offset(*DEAD, 0, consumer=Consumer.single(REPLAYER))
    return None if found is None else found.stored_offset


def test_topics_with_dead_letters_are_found(text, data, letters):
    head, row = [line.split() for line in text("dlq", "list").splitlines()]
    assert head == ["Stream", "Topic", "Letters", "Waiting", "Newest", "Error", "Cause"]
    assert row[:4] == ["orders", "events-dead", "4", "4"]
    assert row[-3:] == ["ValueError", "no", "number"]
    (found,) = data("dlq", "list", "orders")
    assert (found["topic"], found["messages_count"], found["newest_cause"]) == ("events-dead", 4, "no number")
    text("dlq", "replay", *DEAD, "--offset", 0, "--yes")
    assert data("dlq", "list")[0]["waiting_count"] == 3
    letters.create_stream("none")
    assert data("dlq", "list", "none") == []


def test_letters_are_shown_with_cause_and_origin(text, letters):
    shown = text("dlq", "show", *DEAD, "--offset", 1, "--count", 1)
    pairs = dict(line.split("  ", 1) for line in shown.splitlines())
    told = {name: text.strip() for name, text in pairs.items()}
    assert told["Cause"] == "too slow"
    assert told["Error"] == "TimeoutError"
    assert told["Attempts"] == "3"
    assert told["Came from"] == "orders/events, 1:1"
    assert told["Payload (2 B)"] == "m1"
    assert told["Message ID"] == "101"


def test_letters_are_lines_for_programs(text, lines, letters):
    found = lines("dlq", "show", *DEAD, "-n", 3)
    assert [each["payload"] for each in found] == ["m1", "m2", "m3"]
    assert found[0]["origin"]["offset"] == 1
    assert text("dlq", "show", *DEAD, "--offset", 9) == "no dead letters\n"


def test_what_is_no_letter_is_passed_over(text, letters):
    letters.send_messages(*DEAD, 0, ["just a message"])
    assert text("dlq", "show", *DEAD, "-n", 2).endswith("1 messages are no dead letters\n")
    assert "4 letters sent back, 1 passed over" in text("dlq", "replay", *DEAD, "--yes")
    assert remembered(letters) == 4


def test_a_payload_cannot_take_over_the_terminal(text, letters):
    evil = received(b"\x1b[2J")
    letters.send_messages(*DEAD, 0, [dead_letter(evil, "orders", "events", ValueError("\x1b[2J"), 1)])
    for command in (("list",), ("show", *DEAD), ("replay", *DEAD, "--dry-run")):
        assert "\x1b" not in text("dlq", *command)


def test_a_replay_sends_letters_back_and_goes_on_after_them_next_time(text, data, letters):
    assert text("dlq", "replay", *DEAD, "--yes") == "4 letters sent back\n"
    found = arrived(letters)
    assert [(each.payload, each.id) for each in found] == [(f"m{n}".encode(), 100 + n) for n in range(4)]
    assert found[0].headers == {"dlq.replayed": 1}
    assert remembered(letters) == 3
    assert data("dlq", "replay", *DEAD, "--yes")["replayed_count"] == 0
    letters.send_messages(*DEAD, 0, [dead_letter(found[0], "orders", "events", ValueError("again"), 3)])
    assert data("dlq", "replay", *DEAD, "--yes") == {
        "stream": "orders",
        "topic": "events-dead",
        "is_applied": True,
        "replayed_count": 1,
        "skipped_count": 0,
    }
    assert arrived(letters)[-1].headers == {"dlq.replayed": 2}


def test_a_dry_run_sends_nothing(text, data, letters):
    shown = text("dlq", "replay", *DEAD, "--dry-run")
    assert "orders/events, 1" in shown
    assert shown.endswith("dry run: 4 letters would be sent back\n")
    planned = data("dlq", "replay", *DEAD, "--dry-run", "--cause", "slow")
    assert [(each["offset"], each["to_topic"], each["to_partition_id"]) for each in planned["letters"]] == [
        (1, "events", 1)
    ]
    assert arrived(letters) == []
    assert remembered(letters) is None


def test_only_letters_with_a_cause_and_what_was_left_out_still_waits(data, letters):
    said = data("dlq", "replay", *DEAD, "--cause", "timeouterror", "--yes")
    assert (said["replayed_count"], said["skipped_count"]) == (1, 3)
    assert [each.payload for each in arrived(letters)] == [b"m1"]
    assert remembered(letters) is None


def test_letters_named_by_offset(text, letters):
    text("dlq", "replay", *DEAD, "--offset", 2, "--offset", 0, "--yes")
    assert [each.payload for each in arrived(letters)] == [b"m0", b"m2"]
    assert remembered(letters) == 0
    assert "no letter at offset 9" in text("dlq", "replay", *DEAD, "--offset", 9, "--yes", code=1)


def test_all_repeats_what_was_sent_back_before(data, letters):
    for _ in range(2):
        assert data("dlq", "replay", *DEAD, "--all", "--yes")["replayed_count"] == 4
    assert remembered(letters) == 3


def test_letters_can_go_elsewhere(text, letters):
    letters.create_topic("orders", "repaired", 1)
    text("dlq", "replay", *DEAD, "--to", "orders/repaired", "--yes", "--new-ids")
    found = arrived(letters, 0, "repaired")
    assert [each.payload for each in found] == [b"m0", b"m1", b"m2", b"m3"]
    assert not {each.id for each in found} & {100, 101, 102, 103}


def test_a_letter_whose_topic_is_gone_stays(text, letters):
    letters.delete_topic("orders", "events")
    line = text("dlq", "replay", *DEAD, "--yes", code=1)
    assert 'there is no topic "events" in stream "orders"; --to says where else' in line
    assert remembered(letters) is None


def test_a_letter_whose_partition_is_gone_goes_to_another(text, letters):
    letters.delete_partitions("orders", "events", 1)
    text("dlq", "replay", *DEAD, "--yes")
    found = letters.poll_messages("orders", "events", 0, PollingStrategy.First(), auto_commit=False)
    assert len(found) == 4


def test_letters_are_not_sent_to_the_topic_they_are_in(text, letters):
    assert "the topic it is in" in text("dlq", "replay", *DEAD, "--to", "orders/events-dead", "--yes", code=1)


def test_letters_that_come_while_others_are_sent_wait_for_the_next_time(text, letters, monkeypatch):
    send = Client.send_messages

    def send_and_fail_again(self, stream, topic, partitioning, messages, **how):
        stored = send(self, stream, topic, partitioning, messages, **how)
        (message,) = letters.poll_messages(*DEAD, 0, PollingStrategy.Last(), 1, auto_commit=False)
        send(letters, *DEAD, 0, [SendMessage(message.payload, message.id, dict(message.typed_headers))])
        return stored

    monkeypatch.setattr(Client, "send_messages", send_and_fail_again)
    assert text("dlq", "replay", *DEAD, "--yes") == "4 letters sent back\n"


def test_a_crash_before_the_offset_is_stored_repeats_letters_and_loses_none(text, letters, monkeypatch):
    def crash(self, *args, **kwargs):
        raise CannotWriteToFile("crash")

    with monkeypatch.context() as patch:
        patch.setattr(Client, "store_consumer_offset", crash)
        text("dlq", "replay", *DEAD, "--yes", code=1)
    assert [each.payload for each in arrived(letters)] == [b"m0"]
    text("dlq", "replay", *DEAD, "--yes")
    assert [each.payload for each in arrived(letters)] == [b"m0", b"m0", b"m1", b"m2", b"m3"]


def test_a_send_that_fails_says_which_letter_it_was(text, letters, borzoi_server):
    borzoi_server.refuse_writes()
    line = text("dlq", "replay", *DEAD, "--yes", code=1)
    assert "letter at offset 0 of partition 0; sent back before: 0" in line
    borzoi_server.heal()
    assert remembered(letters) is None


@DEDUPLICATING
def test_a_letter_that_the_server_takes_for_a_duplicate_is_not_lost(text, letters):
    line = text("dlq", "replay", *DEAD, "--yes", code=1)
    assert "--new-ids sends it all the same" in line
    assert remembered(letters) is None
    assert arrived(letters) == []
    text("dlq", "replay", *DEAD, "--yes", "--new-ids")
    assert [each.payload for each in arrived(letters)] == [b"m0", b"m1", b"m2", b"m3"]


@DEDUPLICATING
def test_with_new_ids_a_repeat_after_a_crash_is_no_second_message(text, letters):
    text("dlq", "replay", *DEAD, "--yes", "--new-ids")
    letters.delete_consumer_offset(*DEAD, 0, consumer=Consumer.single(REPLAYER))
    text("dlq", "replay", *DEAD, "--yes", "--new-ids")
    assert len(arrived(letters)) == 4
    assert remembered(letters) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "add --yes"),
        (["--offset", "1", "--all", "--yes"], "leave out --all"),
        (["--to", "nowhere", "--yes"], "neither original nor STREAM/TOPIC"),
        (["--offset", "-1", "--yes"], "--offset"),
    ],
    ids=" ".join,
)
def test_wrong_usage(text, arguments, said):
    assert said in text("dlq", "replay", *DEAD, *arguments, code=2)


def test_what_does_not_exist_is_named(text, letters):
    assert "no topic" in text("dlq", "show", "orders", "x", code=1)
    assert "no partition 3" in text("dlq", "show", *DEAD, "-p", 3, code=1)
    assert "no partition 3" in text("dlq", "replay", *DEAD, "-p", 3, "--yes", code=1)
    assert "no stream" in text("dlq", "list", "x", code=1)


def test_which_partition_an_offset_is_in_must_be_said_if_there_are_several(text, letters):
    letters.create_partitions(*DEAD, 1)
    assert "--partition" in text("dlq", "replay", *DEAD, "--offset", 0, "--yes", code=2)
    text("dlq", "replay", *DEAD, "--offset", 0, "-p", 0, "--yes")
    assert len(arrived(letters)) == 1


async def test_a_message_that_a_consumer_put_aside_comes_back_and_is_handled(text, borzoi_async):
    client = borzoi_async
    await client.create_stream("orders")
    await client.create_topic("orders", "events", 1)
    await client.send_messages("orders", "events", 0, [SendMessage("ten", headers={"region": "eu"}), "20"])
    words, booked = {}, []

    async def consume(until):
        async with AsyncConsumer(client, "orders", "events", group="billing") as consumer:

            async def book(message):
                booked.append((words.get(message.payload) or int(message.payload), message.headers))
                if message.payload == until:
                    consumer.stop()

            await consumer.run(book, retry=RetryPolicy(attempts=1), dead_letter_topic="events-dead")

    await consume(b"20")
    assert [amount for amount, _ in booked] == [20]
    assert json.loads(text("dlq", "show", *DEAD, "--json"))["error"] == "ValueError"

    words[b"ten"] = 10  # the fault is repaired
    assert text("dlq", "replay", *DEAD, "--yes") == "1 letter sent back\n"
    await consume(b"ten")
    assert booked[1:] == [(10, {"region": "eu", "dlq.replayed": 1})]
    assert json.loads(text("dlq", "list", "--json"))[0]["waiting_count"] == 0
