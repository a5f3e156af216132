"""The blocking producer: what is stored when its block ends, what it raises when, threads, exit and forks."""

import subprocess
import sys
import textwrap
import threading

import pytest

from borzoi import Client, Producer, SendFailed
from borzoi.model.errors import ClientShutdown, NotFound
from support.blocking import (  # noqa: F401
    _client,
    _no_threads_are_left,
    _server,
    _topic,
    ctrl_c_when,
    payloads,
)
from support.forks import in_child


def test_the_block_ends_when_everything_is_stored(server, client, topic):
    for given in (client, server.connection_string):
        with Producer(given, "s", topic, partitioning=0) as producer:
            for number in range(500):
                producer.send(str(number))
        assert producer.buffered == ()
    assert payloads(client, topic) == [str(number).encode() for number in range(500)] * 2


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
