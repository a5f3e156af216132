"""The blocking consumer: what is committed when, lent messages, groups, handlers and their dead letters."""

import signal
import threading
from datetime import timedelta

import pytest

from borzoi import (
    Consumer,
    DeadLetter,
    OffsetGap,
    PollingStrategy,
    RetryPolicy,
    SendMessage,
    UndecodablePayload,
    codecs,
)
from borzoi.client import blocking_consumer, ownership
from borzoi.client.holdings import begin
from borzoi.model.errors import CannotEstablishConnection, ClientShutdown, NotFound
from support.blocking import (  # noqa: F401
    _client,
    _no_threads_are_left,
    _server,
    _topic,
    ctrl_c_when,
    single,
    stored,
)
from support.forks import in_child
from support.received import received

QUICK = RetryPolicy(attempts=3, backoff_s=0.001, jitter=0)


def committed(client, topic, partition_id=0, consumer=None):
    found = client.get_consumer_offset("s", topic, partition_id, consumer=consumer or Consumer.single("c"))
    return None if found is None else found.stored_offset


def fill(client, topic, values, partition_id=0):
    client.send_messages("s", topic, partition_id, list(values))


def test_a_message_is_committed_when_the_next_is_asked_for(client, topic):
    fill(client, topic, map(str, range(10)))
    with single(client, topic) as consumer:
        assert next(consumer).offset == 0
        assert consumer.partitions == (0,)
        assert committed(client, topic) is None
        assert [next(consumer).offset for _ in range(5)] == [1, 2, 3, 4, 5]
        assert committed(client, topic) == 4
    assert committed(client, topic) == 5


@pytest.mark.parametrize("commit", ["after_each", 1000, "manual"])
def test_iteration_ends_after_stop_of_another_thread(client, topic, commit):
    fill(client, topic, map(str, range(3)))
    seen = []
    with single(client, topic, commit=commit) as consumer:
        for message in consumer:
            seen.append(message.offset)
            if message.offset == 2:
                threading.Timer(0.05, consumer.stop).start()  # the next one is waited for by then
        assert list(consumer) == []
    assert seen == [0, 1, 2]
    assert committed(client, topic) == (None if commit == "manual" else 2)


def test_a_message_whose_work_fails_is_not_committed(client, topic):
    fill(client, topic, map(str, range(5)))

    def work():
        with single(client, topic, commit=100) as consumer:
            for message in consumer:
                if message.offset == 3:
                    raise RuntimeError("work")

    with pytest.raises(RuntimeError, match="work"):
        work()
    assert committed(client, topic) == 2


def test_manual_commits_are_the_only_ones(client, topic):
    fill(client, topic, map(str, range(10)))
    with single(client, topic, commit="manual") as consumer:
        messages = [next(consumer) for _ in range(5)]
        consumer.commit(messages[2])
        assert committed(client, topic) == 2
        consumer.commit()
        assert committed(client, topic) == 4
        next(consumer)
    assert committed(client, topic) == 4


@pytest.fixture(params=[0.0, 0.05], ids=["one by one", "lent"])
def lent_s(request, monkeypatch):
    """How long the caller may go on without asking; nothing else may depend on it."""
    monkeypatch.setattr(blocking_consumer, "_LENT_S", request.param)


@pytest.mark.usefixtures("lent_s")
def test_commits_after_so_many_messages(client, topic):
    fill(client, topic, map(str, range(10)))
    with single(client, topic, commit=3) as consumer:
        seen = []
        for _ in range(8):
            next(consumer)
            seen.append(committed(client, topic))
    assert seen == [None, None, None, 2, 2, 2, 5, 5]
    assert committed(client, topic) == 7


@pytest.mark.usefixtures("lent_s")
@pytest.mark.parametrize("commit", ["after_each", 1000, timedelta(seconds=60)])
def test_only_what_was_delivered_is_committed_at_the_end_and_by_stop(client, topic, commit):
    fill(client, topic, map(str, range(10)))
    with single(client, topic, commit=commit) as consumer:
        assert [next(consumer).offset for _ in range(4)] == [0, 1, 2, 3]
    assert committed(client, topic) == 3
    with single(client, topic, commit=commit) as consumer:
        for message in consumer:
            if message.offset == 6:
                consumer.stop()
        assert message.offset == committed(client, topic) == 6


@pytest.mark.usefixtures("lent_s")
def test_iteration_and_run_take_turns(client, topic):
    fill(client, topic, map(str, range(10)))
    seen = []

    def handle(message):
        seen.append(message.offset)
        if message.offset in (3, 7):
            raise OSError("no")

    with single(client, topic, commit=100) as consumer:
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OSError, match="no"):
            consumer.run(handle, retry=RetryPolicy(attempts=1))
        assert [next(consumer).offset for _ in range(3)] == [3, 4, 5]
        with pytest.raises(OSError, match="no"):
            consumer.run(handle, retry=RetryPolicy(attempts=1))
    assert seen == [3, 6, 7]
    assert committed(client, topic) == 6


def test_messages_behind_a_gap_are_not_lent():
    holding = begin(0, None, PollingStrategy.First())
    holding.add([received(offset=offset) for offset in (0, 1, 2, 4)])
    first = holding.take()
    assert [message.offset for message in holding.lend(2)] == [1, 2]
    assert holding.lend(1) == []
    holding.give_back(first, [received(offset=1), received(offset=2)])
    assert holding.delivered_offset == 0
    assert [message.offset for message in holding.lend(10)] == [1, 2]
    holding.give_back(received(offset=2), [])
    with pytest.raises(OffsetGap):
        holding.take()
    assert holding.take().offset == 4


def test_members_of_a_group_need_no_clients_of_their_own(client, topic):
    fill(client, topic, ["a"], 0)
    fill(client, topic, ["b"], 1)
    with Consumer(client, "s", topic, group="g") as first, Consumer(client, "s", topic, group="g") as second:
        assert client.get_consumer_group("s", topic, "g").members_count == 2
        assert {next(first).partition_id, next(second).partition_id} == {0, 1}
    assert client.get_consumer_group("s", topic, "g").members_count == 0
    assert [committed(client, topic, number, Consumer.group("g")) for number in (0, 1)] == [0, 0]


@pytest.mark.usefixtures("lent_s")
def test_a_partition_moves_to_another_member_without_loss_or_repetition(client, topic, monkeypatch):
    monkeypatch.setattr(ownership, "_PROOF_S", 0.0)
    for partition_id in (0, 1):
        fill(client, topic, map(str, range(200)), partition_id)
    how = {"group": "g", "commit": 1000, "batch_count": 16, "poll_interval_s": 0.01}
    seen, pause = [], threading.Event()

    def work(consumer):
        for message in consumer:
            seen.append((message.partition_id, message.offset))
            pause.wait(0.001)
            if len(seen) == 400:
                first.stop()
                second.stop()

    with Consumer(client, "s", topic, **how) as first:
        for _ in range(30):
            message = next(first)
            seen.append((message.partition_id, message.offset))
        with Consumer(client, "s", topic, **how) as second:
            other = threading.Thread(target=work, args=(second,))
            other.start()
            work(first)
            other.join()
            assert len(first.partitions) == len(second.partitions) == 1
    assert sorted(seen) == [(partition_id, offset) for partition_id in (0, 1) for offset in range(200)]
    assert [committed(client, topic, number, Consumer.group("g")) for number in (0, 1)] == [199, 199]


def test_what_cannot_be_decoded_is_raised_once(client, topic):
    fill(client, topic, ["1", "two", "3"])
    with single(client, topic, codec=codecs.Json(int)) as consumer:
        assert next(consumer).value == 1
        with pytest.raises(UndecodablePayload) as refused:
            next(consumer)
        assert refused.value.offset == 1
        assert committed(client, topic) == 0
        assert next(consumer).value == 3
        assert committed(client, topic) == 1


def test_ctrl_c_ends_the_waiting_at_once_and_nothing_is_committed_or_lost(client, topic):
    fill(client, topic, ["0"])

    def wait_for_more():
        with single(client, topic) as consumer:
            assert next(consumer).offset == 0
            assert next(consumer).offset == 1
            with ctrl_c_when(lambda: committed(client, topic) == 1), pytest.raises(KeyboardInterrupt):
                next(consumer)
            fill(client, topic, ["2"])
            assert next(consumer).offset == 2
            with ctrl_c_when(lambda: committed(client, topic) == 2):
                next(consumer)

    fill(client, topic, ["1"])
    with pytest.raises(KeyboardInterrupt):
        wait_for_more()
    assert committed(client, topic) == 2


def test_a_consumer_belongs_into_one_block(client, topic):
    consumer = single(client, topic)
    for call in (lambda: next(consumer), consumer.commit, lambda: consumer.run(print)):
        with pytest.raises(RuntimeError, match="with"):
            call()
    assert consumer.partitions == ()
    with consumer:
        pass
    with pytest.raises(ClientShutdown), consumer:
        pass
    consumer.stop()


def test_a_block_that_cannot_begin_leaves_nothing_behind(client):
    with pytest.raises(NotFound), Consumer(client, "nowhere", "t", group="g"):
        pass
    with (
        pytest.raises(CannotEstablishConnection),
        Consumer("iggy://iggy:iggy@127.0.0.1:1", "s", "t", group="g", deadline_s=0.2),
    ):
        pass
    with pytest.raises(ValueError, match="group"):
        Consumer(client, "s", "t")


def test_a_forked_child_cannot_use_the_consumer_but_makes_its_own(client, topic):
    fill(client, topic, ["0", "1", "2"])
    with single(client, topic) as consumer:
        assert next(consumer).payload == b"0"

        def child():
            with pytest.raises(ClientShutdown, match="after the fork"):
                next(consumer)
            consumer.__exit__(None, None, None)
            with single(client, topic, consumer="child") as mine:
                assert next(mine).payload == b"0"

        assert in_child(child) == 0
        assert next(consumer).payload == b"1"
    assert committed(client, topic) == 1


# Handlers


def test_a_message_that_always_fails_goes_to_the_dead_letters_and_the_others_are_handled(client, topic):
    fill(client, topic, ["0", SendMessage("1", id=101, headers={"a": 1}), "x", "3", "4"])
    attempts, commits, threads = [], [], set()
    with single(client, topic, codec=codecs.Json(int)) as consumer:

        def handle(message):
            threads.add(threading.current_thread())
            attempts.append(message.offset)
            commits.append(committed(client, topic))
            if message.value == 1:
                raise ValueError("cannot book")
            if message.value == 4:
                consumer.stop()

        consumer.run(handle, retry=QUICK, dead_letter_topic=f"{topic}-dlq")
    assert threads == {threading.current_thread()}
    assert attempts == [0, 1, 1, 1, 3, 4]
    assert commits == [None, 0, 0, 0, 2, 3]
    assert committed(client, topic) == 4
    failed, undecodable = map(DeadLetter.of, stored(client, f"{topic}-dlq"))
    assert (failed.payload, failed.id, failed.headers, failed.attempts) == (b"1", 101, {"a": 1}, 3)
    assert (failed.error, failed.cause, failed.offset) == ("ValueError", "cannot book", 1)
    assert (undecodable.payload, undecodable.error, undecodable.attempts) == (b"x", "UndecodablePayload", 0)


def test_without_dead_letters_the_handlers_own_error_is_raised(client, topic):
    fill(client, topic, ["0", "1"])
    raised = OSError("the database is down")
    seen = []

    def handle(message):
        seen.append(message.offset)
        if message.offset == 1:
            raise raised

    with single(client, topic) as consumer:
        for _ in range(2):
            with pytest.raises(OSError, match="database") as failed:
                consumer.run(handle, retry=RetryPolicy(attempts=1))
            assert failed.value is raised
    assert seen == [0, 1, 1]
    assert committed(client, topic) == 0


def test_a_handler_can_commit_and_may_raise_what_it_likes(client, topic):
    fill(client, topic, ["0", "1"])

    def handle(message):
        consumer.commit(message)
        assert committed(client, topic) == message.offset
        if message.offset == 1:
            raise StopIteration

    with (
        single(client, topic, commit="manual") as consumer,
        pytest.raises(RuntimeError, match="StopIteration"),
    ):
        consumer.run(handle, retry=RetryPolicy(attempts=1))


def test_ctrl_c_in_a_handler_leaves_its_message_unfinished(client, topic):
    fill(client, topic, ["0", "1"])

    def handle(message):
        if message.offset == 1:
            signal.raise_signal(signal.SIGINT)

    with single(client, topic) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.run(handle, retry=QUICK)
        assert committed(client, topic) == 0
        assert next(consumer).offset == 1


def test_a_signal_handler_can_stop_it(client, topic):
    with single(client, topic) as consumer:
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
        try:
            threading.Timer(
                0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)
            ).start()
            consumer.run(print)
        finally:
            signal.signal(signal.SIGUSR1, before)
