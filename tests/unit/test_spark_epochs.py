"""What tasks stage becomes messages all at once, once, whatever is repeated and whoever goes away."""

import threading

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from borzoi.client.values import Partitioning, PollingStrategy
from borzoi.model.errors import Disconnected, EpochMismatch, TaskTimeout, TopicNameNotFound
from borzoi.model.replies import EpochCommitted, ProducerEpoch, Staged
from borzoi.spark import epochs
from borzoi.spark.connections import close_all
from borzoi.spark.epochs import Attempt, CheckpointLost, TaskReport, attempt_number, patiently, stage_all
from borzoi.spark.options import Target
from borzoi.spark.sink import RowWriter, SinkMessage, StreamSink, reports_of
from borzoi.spark.sink_columns import sink_columns
from borzoi.spark.sink_options import SinkOptions
from borzoi.wire.batch import NewMessage, build

TARGET = Target("iggy://iggy:iggy@127.0.0.1:1", "s", "t", 5.0)
BALANCED = Partitioning.balanced()


class Failing:
    """A client in front of which requests, or their answers, get lost."""

    def __init__(self, client=None, *, before=0, after=0):
        self.client, self.before, self.after = client, before, after
        self.asked = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.asked.append(name)
            if self.before:
                self.before -= 1
                raise Disconnected("before it was sent")
            answer = getattr(self.client, name)(*args, **kwargs)
            if self.after:
                self.after -= 1
                raise Disconnected("before it was answered")
            return answer

        return call


class Scripted:
    """Answers that a broker gives in moments which cannot be brought about from outside."""

    def __init__(self, committed_epoch=None, committed_after=None):
        self.committed_epoch, self.committed_after = committed_epoch, committed_after
        self.staged = []

    def get_producer_epoch(self, *_, **__):
        return None if self.committed_epoch is None else ProducerEpoch(self.committed_epoch, 0)

    def stage_messages(self, *_, sequence, **__):
        if self.committed_after is not None and len(self.staged) >= self.committed_after:
            return Staged(is_committed=True, batches_count=0)
        self.staged.append(sequence)
        return Staged(is_committed=False, batches_count=len(self.staged))

    def commit_epoch(self, *args, **_):
        return EpochCommitted(args[3], True, 0)


@pytest.fixture(autouse=True)
def no_connections_left():
    yield
    close_all()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(epochs.time, "sleep", lambda _: None)


@pytest.fixture
def topic(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    return borzoi


def batches(*names, partition=0):
    place = Partitioning.partition_id(partition)
    return [(place, build([NewMessage(name.encode(), number + 1)]), 1) for number, name in enumerate(names)]


def attempt(task=0, number=1, epoch=0, producer="p"):
    return Attempt(producer, epoch, task, number)


def stored(client, partition=0):
    polled = client.poll_messages("s", "t", partition, PollingStrategy.First(), auto_commit=False)
    return [message.payload.decode() for message in polled]


def test_batches_are_numbered_and_counted():
    client = Scripted()
    report = stage_all(client, TARGET, attempt(task=3), batches("a", "b", "c"))
    assert client.staged == [0, 1, 2]
    assert report == TaskReport("p", 0, 3, 1, 3, 3, is_committed=False)


def test_nothing_is_made_for_an_epoch_that_is_committed():
    made = iter(batches("a", "b"))
    report = stage_all(Scripted(committed_epoch=4), TARGET, attempt(epoch=4), made)
    assert report.is_committed
    assert report.batches_count == 0
    assert len(list(made)) == 2
    assert not stage_all(Scripted(committed_epoch=3), TARGET, attempt(epoch=4), []).is_committed


def test_a_stream_counts_what_it_repeats_and_stages_nothing():
    client = Scripted(committed_epoch=4)
    report = stage_all(client, TARGET, attempt(epoch=4), batches("a", "b"), is_stream=True)
    assert client.staged == []
    assert (report.is_committed, report.batches_count, report.messages_count) == (True, 0, 2)


def test_a_stream_that_comes_with_an_older_epoch_has_lost_its_checkpoint():
    with pytest.raises(CheckpointLost, match=r"has written epoch 4 and comes with 3.*failOnDataLoss"):
        stage_all(Scripted(committed_epoch=4), TARGET, attempt(epoch=3), batches("a"), is_stream=True)


def test_a_stream_whose_epoch_has_other_rows_than_before_has_lost_its_checkpoint(topic):
    written = stage_all(topic, TARGET, attempt(), batches("a", "b"), is_stream=True)
    epochs.compare(TARGET, epochs.commit(topic, TARGET, 0, [written]), [written])
    same = stage_all(topic, TARGET, attempt(number=2), batches("a", "b"), is_stream=True)
    epochs.compare(TARGET, epochs.commit(topic, TARGET, 0, [same]), [same])
    more = stage_all(topic, TARGET, attempt(number=3), batches("a", "b", "c"), is_stream=True)
    done = epochs.commit(topic, TARGET, 0, [more])
    with pytest.raises(CheckpointLost, match="with 2 messages and has 3 now"):
        epochs.compare(TARGET, done, [more])


def test_staging_ends_when_the_epoch_is_committed_meanwhile():
    made = iter(batches(*"abcdef"))
    client = Scripted(committed_after=2)
    report = stage_all(client, TARGET, attempt(), made)
    assert report.is_committed
    assert client.staged == [0, 1]
    assert len(list(made)) == 2  # one was being made while the answer came


def test_a_fault_while_making_batches_is_raised_and_no_thread_is_left():
    def faulty():
        yield batches("a")[0]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        stage_all(Scripted(), TARGET, attempt(), faulty())
    assert not [thread for thread in threading.enumerate() if "borzoi-stage" in thread.name]


def test_attempts_never_share_a_number():
    numbers = {attempt_number(7) for _ in range(100)}
    assert len(numbers) == 100
    assert {number & 0xFFFF_FFFF for number in numbers} == {7}
    assert all(number < 1 << 64 for number in numbers)


def test_requests_are_repeated_until_the_deadline():
    calls = []

    def lost(_):
        calls.append(1)
        raise Disconnected("again")

    with pytest.raises(Disconnected):
        patiently(lost, 0.2)
    assert len(calls) > 1


def test_what_cannot_pass_is_not_repeated():
    calls = []

    def wrong(_):
        calls.append(1)
        raise TopicNameNotFound("t")

    with pytest.raises(TopicNameNotFound):
        patiently(wrong, 5.0)
    assert len(calls) == 1


def test_tasks_become_messages_in_their_order(topic):
    second = stage_all(topic, TARGET, attempt(task=1), batches("c", "d"))
    first = stage_all(topic, TARGET, attempt(task=0), batches("a", "b"))
    empty = stage_all(topic, TARGET, attempt(task=2), [])
    assert stored(topic) == []
    done = epochs.commit(topic, TARGET, 0, [second, empty, first])
    assert (done.is_repeated, done.messages_count) == (False, 4)
    assert stored(topic) == ["a", "b", "c", "d"]


def test_a_second_commit_and_a_late_abort_change_nothing(topic):
    report = stage_all(topic, TARGET, attempt(), batches("a"))
    epochs.commit(topic, TARGET, 0, [report])
    assert epochs.commit(topic, TARGET, 0, [report]).is_repeated
    epochs.abort(topic, TARGET, "p", 0)
    assert stored(topic) == ["a"]
    assert stage_all(topic, TARGET, attempt(number=2), batches("x")).is_committed


def test_only_the_attempt_that_succeeded_counts(topic):
    stage_all(topic, TARGET, attempt(number=1), batches("lost", "lost too"))
    report = stage_all(topic, TARGET, attempt(number=2), batches("kept"))
    epochs.commit(topic, TARGET, 0, [report])
    assert stored(topic) == ["kept"]


def test_an_aborted_epoch_can_be_written_again(topic):
    stage_all(topic, TARGET, attempt(number=1), batches("dropped"))
    epochs.abort(topic, TARGET, "p", 0)
    report = stage_all(topic, TARGET, attempt(number=2), batches("kept"))
    epochs.commit(topic, TARGET, 0, [report])
    assert stored(topic) == ["kept"]


@pytest.mark.parametrize("fault", [{"before": 2}, {"after": 2}])
def test_lost_requests_and_lost_answers_are_made_good(topic, fault):
    report = stage_all(Failing(topic, **fault), TARGET, attempt(), batches("a", "b"))
    epochs.commit(Failing(topic, **fault), TARGET, 0, [report])
    assert stored(topic) == ["a", "b"]
    epochs.abort(Failing(topic, **fault), TARGET, "p", 1)


def test_a_broker_that_restarts_within_an_epoch_does_not_fail_it(topic, borzoi_server):
    def restarting():
        for number, batch in enumerate(batches("a", "b", "c", "d")):
            if number == 2:
                borzoi_server.crash()
                borzoi_server.start()
            yield batch

    report = stage_all(topic, TARGET, attempt(), restarting())
    borzoi_server.restart()
    epochs.commit(topic, TARGET, 0, [report])
    assert stored(topic) == ["a", "b", "c", "d"]


class Slow:
    """A broker that carries out a commit and answers too late, so many times."""

    def __init__(self, client, late, is_decided=True, error=TaskTimeout):
        self._client, self._late, self._is_decided, self._error = client, late, is_decided, error
        self.aborted = 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def commit_epoch(self, *args, **how):
        self._late -= 1
        if self._late < 0 or self._is_decided:
            done = self._client.commit_epoch(*args, **how)
        if self._late >= 0:
            raise self._error("too late")
        return done

    def abort_epoch(self, *args, **how):
        self.aborted += 1
        return self._client.abort_epoch(*args, **how)


@pytest.mark.parametrize("late", [1, 3, 99])
def test_a_commit_that_is_decided_but_not_answered_in_time_has_not_failed(topic, late, caplog):
    report = stage_all(topic, TARGET, attempt(), batches("a", "b"))
    slow = Slow(topic, late)
    done = epochs.commit(slow, TARGET, 0, [report])
    assert done.messages_count == 2
    assert stored(topic) == ["a", "b"]
    assert slow.aborted == 0
    assert caplog.text.count("epoch 0 of p is committed, but not all of it is in s/t yet") == min(late, 10)


def test_a_commit_that_is_not_decided_has_failed_for_good(topic):
    report = stage_all(topic, TARGET, attempt(), batches("a"))
    slow = Slow(topic, 1, is_decided=False)
    with pytest.raises(TaskTimeout):
        epochs.commit(slow, TARGET, 0, [report])
    assert slow.aborted == 1
    with pytest.raises(EpochMismatch):
        epochs.commit(slow, TARGET, 0, [report])  # were it still on its way, it would be refused
    assert stored(topic) == []


def test_a_commit_that_is_refused_is_not_waited_for(topic):
    report = stage_all(topic, TARGET, attempt(), batches("a"))
    slow = Slow(topic, 1, is_decided=False, error=EpochMismatch)
    with pytest.raises(EpochMismatch):
        epochs.commit(slow, TARGET, 0, [report])
    assert slow.aborted == 0


def test_an_epoch_without_rows_is_committed_too(topic):
    report = stage_all(topic, TARGET, attempt(epoch=3), [])
    epochs.commit(topic, TARGET, 3, [report])
    assert topic.get_producer_epoch("s", "t", "p").epoch == 3
    assert epochs.commit(topic, TARGET, 4, []) is None


@pytest.mark.parametrize("other", [{"epoch": 1}, {"producer": "q"}])
def test_tasks_of_different_writes_are_not_committed_together(other):
    reports = [
        TaskReport("p", 0, 0, 1, 1, 1, False),
        TaskReport(other.get("producer", "p"), other.get("epoch", 0), 1, 1, 1, 1, False),
    ]
    with pytest.raises(EpochMismatch, match="task 1 wrote epoch"):
        epochs.commit(Scripted(), TARGET, 0, reports)


def test_messages_of_tasks_that_failed_are_none():
    report = TaskReport("p", 0, 0, 1, 1, 1, False)
    assert reports_of([None, SinkMessage(report), None]) == [report]


def test_rows_are_written_and_the_driver_commits_or_aborts(topic, borzoi_server):
    options = SinkOptions.of(
        {
            "connection": borzoi_server.connection_string,
            "stream": "s",
            "topic": "t",
            "partitioning": "partition",
        }
    )
    schema = StructType().add("payload", "string").add("partition", "integer")
    writer = RowWriter(options, sink_columns(options, schema), 2)
    rows = pa.RecordBatch.from_pydict(
        {"payload": ["a", "b", "c"], "partition": pa.array([1, 0, 1], pa.int32())}
    )
    sink = StreamSink(writer)
    dropped = writer.write([rows], attempt(epoch=5, number=1))
    sink.abort([None, SinkMessage(dropped)], 5)
    sink.abort([None], 5)
    kept = writer.write([rows, rows], attempt(epoch=5, number=2))
    sink.commit([SinkMessage(kept)], 5)
    sink.abort([SinkMessage(kept)], 5)
    assert (stored(topic, 0), stored(topic, 1)) == (["b", "b"], ["a", "c", "a", "c"])
