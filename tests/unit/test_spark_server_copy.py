"""Tasks that let the server copy: nothing is lost without a word, nothing is copied twice. No Spark here."""

import logging

import pytest

from borzoi.client.values import Partitioning, PollingStrategy
from borzoi.model.errors import Disconnected, NotFound
from borzoi.spark import epochs
from borzoi.spark.connections import close_all
from borzoi.spark.epochs import Attempt
from borzoi.spark.losses import Losses
from borzoi.spark.options import Target
from borzoi.spark.plan import DataLoss, Split
from borzoi.spark.server_copy import copy_all

PLACE = Partitioning.partition_id(0)


@pytest.fixture(autouse=True)
def no_connection_is_left():
    yield
    close_all()


@pytest.fixture
def client(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "in", 1)
    borzoi.create_topic("s", "out", 1)
    return borzoi


@pytest.fixture
def copy(client, borzoi_server):
    """Copies a split as a task does, and commits it as the driver does."""
    source, target = (Target(borzoi_server.connection_string, "s", name, 5.0) for name in ("in", "out"))

    def copy(split, *, through=client, number=1, fail=True):
        report = copy_all(
            through,
            target,
            Attempt("p", 0, 0, number),
            [(split, PLACE)],
            Losses(source, fail),
            is_stream=fail,
        )
        return epochs.commit(client, target, 0, [report]), report

    return copy


def split_of(client, start=0, end=None):
    extent = client.get_topic_extent("s", "in")
    return Split(0, start, extent.partitions[0].next_offset if end is None else end, extent.created_at_us, 9)


def texts(client):
    polled = client.poll_messages("s", "out", 0, PollingStrategy.First(), 1000, auto_commit=False)
    return [message.payload.decode() for message in polled]


def send(client, count, size=1):
    for n in range(count):
        client.send_messages("s", "in", 0, [f"{n}".rjust(size, "0")])


def test_a_split_is_copied_as_many_times_as_it_is_committed(client, copy):
    send(client, 10)
    done, report = copy(split_of(client, 2, 9))
    assert (done.messages_count, report.messages_count, report.batches_count) == (7, 7, 1)
    assert texts(client) == list("2345678")
    again, report = copy(split_of(client, 2, 9), number=2)
    assert (again.is_repeated, report.is_committed, report.messages_count) == (True, True, 7)
    assert texts(client) == list("2345678")


class Forgetful:
    """Carries requests out, and loses every other answer."""

    def __init__(self, client):
        self._client, self._asked = client, 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def stage_copy(self, *where, **who):
        found = self._client.stage_copy(*where, **who)
        self._asked += 1
        if self._asked % 2:
            raise Disconnected("the answer is lost")
        return found


def test_answers_that_are_lost_change_nothing(client, copy, monkeypatch):
    monkeypatch.setattr(epochs.time, "sleep", lambda _: None)
    batch = [f"{n}".rjust(1000, "0") for n in range(1000)]
    for _ in range(9):
        client.send_messages("s", "in", 0, batch)
    _, report = copy(split_of(client), through=Forgetful(client))
    assert report.messages_count == 9000
    assert client.get_topic("s", "out").messages_count == 9000
    assert texts(client) == batch


@pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})
class TestDataLoss:
    @pytest.fixture
    def overtaken(self, client):
        """A split of 30 messages, of which retention took the first ones; and the first that is left."""
        send(client, 30, 100_000)
        wanted = split_of(client)
        client.delete_segments("s", "in", 0, 1)
        first = client.get_topic_extent("s", "in").partitions[0].first_offset
        assert 0 < first < 30
        return wanted, first

    def test_messages_that_retention_took_are_an_error_with_the_exact_gap(self, copy, overtaken):
        wanted, first = overtaken
        with pytest.raises(DataLoss, match=rf"partition 0: offsets \[0, {first}\) were deleted"):
            copy(wanted)

    def test_or_a_warning_and_the_rest_is_copied(self, client, copy, overtaken, caplog):
        wanted, first = overtaken
        with caplog.at_level(logging.WARNING):
            copy(wanted, fail=False)
        assert [int(text[-5:]) for text in texts(client)] == list(range(first, 30))
        assert f"offsets [0, {first}) were deleted" in caplog.text

    def test_of_a_topic_made_anew_nothing_is_copied_whatever_the_user_wants(
        self, client, copy, borzoi_server, caplog
    ):
        send(client, 5)
        wanted = split_of(client)
        client.delete_topic("s", "in")
        borzoi_server.advance(1)
        client.create_topic("s", "in", 1)
        send(client, 9)  # which the next micro-batch reads
        with pytest.raises(DataLoss, match="deleted and created again while it was read"):
            copy(wanted)
        done, _ = copy(wanted, number=2, fail=False)
        assert (done.messages_count, texts(client)) == (0, [])
        assert "deleted and created again before it was read" in caplog.text

    def test_a_purged_topic_is_noticed(self, client, copy, caplog):
        send(client, 5)
        wanted = split_of(client)
        client.purge_topic("s", "in")
        with pytest.raises(DataLoss, match=r"\[0, 5\)"):
            copy(wanted)
        done, _ = copy(wanted, fail=False)
        assert done.messages_count == 0
        assert "[0, 5)" in caplog.text

    def test_a_topic_made_anew_is_not_taken_for_the_old_one(self, client, copy, borzoi_server):
        send(client, 5)
        wanted = split_of(client)
        client.delete_topic("s", "in")
        borzoi_server.advance(1)
        client.create_topic("s", "in", 1)
        send(client, 5)
        with pytest.raises(DataLoss, match="deleted and created again while it was read"):
            copy(wanted)

    def test_a_deleted_topic_is_noticed(self, client, copy):
        send(client, 5)
        wanted = split_of(client)
        client.delete_topic("s", "in")
        with pytest.raises(DataLoss, match="deleted while it was read"):
            copy(wanted)

    def test_a_deleted_target_is_no_loss_of_data(self, client, copy):
        send(client, 5)
        wanted = split_of(client)
        client.delete_topic("s", "out")
        with pytest.raises(NotFound):
            copy(wanted)
