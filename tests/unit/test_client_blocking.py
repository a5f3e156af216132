"""The blocking producer and consumer: the asynchronous ones' promises, without an event loop of one's own."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from contextlib import contextmanager
from datetime import timedelta

import pytest

from borzoi import (
    AsyncConsumer,
    AsyncProducer,
    Cipher,
    Client,
    Consumer,
    DeadLetter,
    OffsetGap,
    PollingStrategy,
    Producer,
    RetryPolicy,
    SendFailed,
    SendMessage,
    UndecodablePayload,
    UnencodableValue,
    codecs,
)
from borzoi.client import blocking_consumer, ownership
from borzoi.client.background import Background
from borzoi.client.holdings import begin
from borzoi.model.errors import CannotEstablishConnection, ClientShutdown, NotFound
from borzoi.testing import Server
from support.received import received

QUICK = RetryPolicy(attempts=3, backoff_s=0.001, jitter=0)
WITHIN_S = 20


@pytest.fixture(scope="module")
def server():
    with Server(memory=True) as running:
        with running.client() as client:
            client.create_stream("s")
        yield running


@pytest.fixture
def client(server):
    with server.client() as connected:
        yield connected


@pytest.fixture
def topic(client, request):
    client.create_topic("s", request.node.name, 2)
    return request.node.name


@pytest.fixture(autouse=True)
def _no_threads_are_left():
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("borzoi-pro")] == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("borzoi-con")] == []


def stored(client, topic, partition_id=0):
    return client.poll_messages("s", topic, partition_id, PollingStrategy.First(), 10_000, auto_commit=False)


def payloads(client, topic, partition_id=0):
    return [message.payload for message in stored(client, topic, partition_id)]


def committed(client, topic, partition_id=0, consumer=None):
    found = client.get_consumer_offset("s", topic, partition_id, consumer=consumer or Consumer.single("c"))
    return None if found is None else found.stored_offset


def single(client, topic, **how):
    return Consumer(
        client, "s", topic, **{"consumer": "c", "partition_id": 0, "poll_interval_s": 0.01, **how}
    )


def fill(client, topic, values, partition_id=0):
    client.send_messages("s", topic, partition_id, list(values))


@contextmanager
def ctrl_c_when(condition):
    """Interrupts the main thread as soon as something is so."""
    done = threading.Event()

    def watch():
        while not done.wait(0.02):
            if condition():
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@pytest.mark.parametrize(("twin", "original"), [(Producer, AsyncProducer), (Consumer, AsyncConsumer)])
def test_twins_have_the_same_names_and_arguments(twin, original):
    def public(kind):
        return {
            name: member
            for name, member in vars(kind).items()
            if not name.startswith("_") and name not in ("single", "group")
        }

    assert set(public(twin)) == set(public(original))
    pairs = [(twin.__init__, original.__init__)]
    pairs += [(public(twin)[name], found) for name, found in public(original).items() if callable(found)]
    for mine, theirs in pairs:
        ours, others = inspect.signature(mine).parameters, inspect.signature(theirs).parameters
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in others.values()
        ]


# Producer


def test_the_block_ends_when_everything_is_stored(server, client, topic):
    for given in (client, server.connection_string):
        with Producer(given, "s", topic, partitioning=0) as producer:
            for number in range(500):
                producer.send(str(number))
        assert producer.buffered == ()
    assert payloads(client, topic) == [str(number).encode() for number in range(500)] * 2


def test_values_ids_headers_and_encryption(client, topic):
    cipher = Cipher(bytes(32))
    with Producer(
        client, "s", topic, codec=codecs.Json(list[int]), cipher=cipher, partitioning=0
    ) as producer:
        producer.send([1], id=7, headers={"kind": "list"})
        confirmation = producer.send_and_wait([2])
        assert confirmation.partition_id == 0
        with pytest.raises(UnencodableValue):
            producer.send("no list")
        assert producer.buffered == ()
    assert [cipher.decrypt(payload) for payload in payloads(client, topic)] == [b"[1]", b"[2]"]
    first = stored(client, topic)[0]
    assert (first.id, first.headers) == (7, {"kind": "list"})
    with single(client, topic, codec=codecs.Json(list[int]), cipher=cipher) as consumer:
        assert [next(consumer).value, next(consumer).value] == [[1], [2]]


def test_a_failure_is_raised_by_the_end_of_the_block_with_its_messages(client, topic):
    def work():
        with Producer(client, "s", topic) as producer:
            producer.send("lost", partitioning=9)
            producer.send("kept", partitioning=0)

    with pytest.raises(SendFailed) as failed:
        work()
    assert [message.payload for message in failed.value.unsent] == ["lost"]
    assert isinstance(failed.value.__cause__, NotFound)
    assert payloads(client, topic) == [b"kept"]


def test_a_failure_is_raised_by_the_next_send_and_the_producer_goes_on(client, topic):
    def go_on():
        while True:
            producer.send("second", partitioning=0)

    with Producer(client, "s", topic, partitioning=9) as producer:
        producer.send("first")
        with pytest.raises(SendFailed) as failed:
            go_on()
        for message in failed.value.unsent:
            producer.send(message, partitioning=1)
        producer.flush()
        with pytest.raises(SendFailed):
            producer.send_and_wait("third")
    assert payloads(client, topic, 1) == [b"first"]


def test_send_waits_while_the_buffer_is_full(server, client, topic):
    """As much as fits is on its way at any time, and everything arrives in order."""
    server.delay_answers(0.01)
    try:
        with Producer(client, "s", topic, partitioning=0, buffer_bytes=1000, batch_messages=2) as producer:
            for number in range(60):
                producer.send(b"%0100d" % number)
                held = producer._producer._held_bytes + producer._intake_bytes
                assert held <= 1000
    finally:
        server.heal()
    assert list(map(int, payloads(client, topic))) == list(range(60))


def test_threads_share_a_producer_and_keep_their_order(client, topic):
    def work(name):
        for number in range(300):
            if number % 100 == 99:
                producer.send_and_wait(f"{name}:{number}")
            else:
                producer.send(f"{name}:{number}")

    with Producer(client, "s", topic, partitioning=0, buffer_bytes=2000) as producer:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [tuple(map(int, payload.split(b":"))) for payload in payloads(client, topic)]
    assert len(found) == 1200
    for name in range(4):
        assert [number for whose, number in found if whose == name] == list(range(300))


async def test_a_running_event_loop_in_the_callers_thread_does_not_matter(client, topic):
    assert asyncio.get_running_loop().is_running()
    with Producer(client, "s", topic, partitioning=0) as producer:
        producer.send("one")
        producer.flush()
        assert payloads(client, topic) == [b"one"]
    with single(client, topic) as consumer:
        assert next(consumer).payload == b"one"


def test_nothing_is_taken_after_the_end(client, topic):
    with Producer(client, "s", topic) as producer:
        producer.send("one")
    for call in (producer.send, producer.send_and_wait):
        with pytest.raises(ClientShutdown):
            call("late")
    producer.close()
    producer.flush()
    unused = Producer(client, "s", topic)
    unused.close()
    with pytest.raises(ClientShutdown):
        unused.send("late")


def test_the_login_of_the_client_is_used(server, topic):
    host, port = server.address.split(":")
    with Client(host, int(port)) as plain:
        plain.login_user("iggy", "iggy")
        with Producer(plain, "s", topic, partitioning=0) as producer:
            producer.send("one")
        assert payloads(plain, topic) == [b"one"]
    with pytest.raises(ClientShutdown, match="client is closed"):
        Producer(plain, "s", topic)


def test_an_interrupted_producer_does_not_wait_and_keeps_what_it_has(server, client, topic):
    server.delay_answers(0.2)

    def work():
        with Producer(client, "s", topic, batch_messages=1) as producer:
            made.append(producer)
            producer.send("on its way")
            producer.send("behind")
            producer.flush()

    made = []
    try:
        with ctrl_c_when(lambda: made and made[0]._producer._flushing), pytest.raises(KeyboardInterrupt):
            work()
    finally:
        server.heal()
    assert [message.payload for message in made[0].buffered] == ["on its way", "behind"]


# Interpreter exit and forks


def run_script(text, *arguments):
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_what_is_buffered_at_interpreter_exit_is_stored(server, client, topic):
    script = """
        import sys
        from borzoi import Producer

        def work():
            producer = Producer(sys.argv[1], "s", sys.argv[2], partitioning=0, linger_s=60)
            for number in range(100):
                producer.send(str(number))

        work()
    """
    shown = run_script(script, server.connection_string, topic)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert payloads(client, topic) == [str(number).encode() for number in range(100)]


def test_what_cannot_be_stored_at_interpreter_exit_is_counted_in_a_warning():
    script = """
        from borzoi import Producer
        producer = Producer("iggy://iggy:iggy@127.0.0.1:1", "s", "t", deadline_s=0.3)
        for number in range(3):
            producer.send(str(number))
    """
    shown = run_script(script)
    assert shown.returncode == 0
    assert "RuntimeWarning: 3 messages for s/t were not stored" in shown.stderr
    assert "Traceback" not in shown.stderr


def in_child(function):
    """The exit code of a forked process that runs a function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which this is about
        pid = os.fork()
    if pid == 0:
        signal.alarm(WITHIN_S)
        try:
            function()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_cannot_use_the_producer_but_makes_its_own(client, topic):
    with Producer(client, "s", topic, partitioning=0, linger_s=60) as producer:
        producer.send("parent")

        def child():
            with producer:
                for call in (producer.send, producer.send_and_wait):
                    with pytest.raises(ClientShutdown, match="after the fork"):
                        call("child")
                with pytest.raises(ClientShutdown, match="after the fork"):
                    producer.flush()
            producer.close()
            with Producer(client, "s", topic, partitioning=1) as mine:
                mine.send("child")

        with producer._lock:  # as the other thread may hold it
            assert in_child(child) == 0
        producer.send("parent again")
    assert payloads(client, topic, 0) == [b"parent", b"parent again"]
    assert payloads(client, topic, 1) == [b"child"]


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


# Consumer


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


# The thread behind them


def test_a_result_that_nobody_got_is_undone():
    background = Background("producer")
    is_waiting, undone = threading.Event(), threading.Event()

    async def stubborn():
        is_waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7

    try:
        with ctrl_c_when(is_waiting.is_set), pytest.raises(KeyboardInterrupt):
            background.wait(stubborn(), undo=undone.set)
        assert undone.wait(WITHIN_S)
    finally:
        background.stop()


def test_whoever_waits_is_told_when_the_thread_is_stopped():
    background = Background("producer")
    is_waiting = threading.Event()

    async def endless():
        is_waiting.set()
        await asyncio.Event().wait()

    job = background.submit(endless())
    assert is_waiting.wait(WITHIN_S)
    background.stop()
    with pytest.raises(ClientShutdown):
        job.outcome()
    with pytest.raises(ClientShutdown):
        background.wait(endless())
    background.stop()


def test_a_callback_that_would_wait_for_itself_is_refused():
    background = Background("consumer")

    async def nested():
        background.wait(asyncio.sleep(0))

    try:
        with pytest.raises(RuntimeError, match="callback"):
            background.wait(nested())
    finally:
        background.stop()
