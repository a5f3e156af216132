"""What one client can cost the others: time, connections and memory are bounded."""

import socket
import threading
import time

import psutil
import pytest

from borzoi.model import requests as rq
from borzoi.model.limits import POLL_REPLY_BYTES_MAX
from borzoi.model.values import UserStatus
from borzoi.server.tcp.budget import BufferBudget
from support.in_process import LocalServer, eventually, payloads, poll_request, send_request
from support.wire_client import WireClient

MIB = 1 << 20


def serve(path, **settings):
    return LocalServer(path / "data", {key.replace("__", "."): value for key, value in settings.items()})


def make_topic(server):
    server.ask(rq.CreateStream("s"))
    server.ask(rq.CreateTopic("s", 1, "t"))


def test_a_request_that_does_not_come_to_an_end_is_given_up(tmp_path):
    with serve(tmp_path, limits__frame_timeout="150ms") as server, WireClient(server.port) as loris:
        loris.register()
        frame = loris.frame_of(rq.GetStreams())
        loris.raw(frame[:100])
        started = time.monotonic()
        assert loris.is_closed_by_server()
        assert 0.1 < time.monotonic() - started < 5
        assert server.events.of("connection closed")[0]["reason"] == "request not complete in time"


def test_drip_feeding_a_request_does_not_extend_its_time(tmp_path):
    with serve(tmp_path, limits__frame_timeout="200ms") as server, WireClient(server.port) as loris:
        closed = False
        for byte in loris.frame_of(rq.Ping()):
            try:
                loris.raw(bytes([byte]))
            except OSError:
                closed = True
                break
            time.sleep(0.005)
        assert closed or loris.is_closed_by_server()


def test_a_slow_but_finished_request_and_an_idle_connection_are_left_alone(tmp_path):
    with serve(tmp_path, limits__frame_timeout="500ms") as server, WireClient(server.port) as client:
        client.register()
        frame = client.frame_of(rq.GetMe())
        client.raw(frame[:200])
        time.sleep(0.1)
        client.raw(frame[200:])
        assert client.receive().header.status == 0
        time.sleep(0.7)
        client.request(rq.GetMe())


def test_who_does_not_log_in_is_disconnected(tmp_path):
    with (
        serve(tmp_path, limits__login_timeout="200ms") as server,
        WireClient(server.port) as silent,
        WireClient(server.port) as member,
    ):
        member.register()
        assert silent.is_closed_by_server()
        time.sleep(0.3)
        member.request(rq.GetMe())


def test_connections_beyond_the_limit_are_refused_until_one_ends(tmp_path):
    with serve(tmp_path, limits__max_connections="2") as server:
        first, second = WireClient(server.port), WireClient(server.port)
        with first, second:
            first.register()
            second.register()
            with WireClient(server.port) as third:
                assert third.is_closed_by_server()
            first.request(rq.GetMe())
        assert eventually(lambda: not server.listener.connections)
        with WireClient(server.port) as another:
            another.register()
        assert server.events.of("connection refused, there are too many")


def test_large_requests_wait_for_memory_and_all_get_through(tmp_path):
    """With room for hardly one of them."""
    with serve(tmp_path, limits__max_buffered_bytes="4 MiB", limits__max_frame_size="4 MiB") as server:
        make_topic(server)
        clients = [WireClient(server.port) for _ in range(4)]
        failures = []

        def produce(client, number):
            try:
                client.register()
                for size in (MIB, 2 * MIB, 3 * MIB):
                    client.request(send_request("s", "t", [bytes([number]) * size]))
            except Exception as error:
                failures.append(error)

        threads = [
            threading.Thread(target=produce, args=each) for each in zip(clients, range(4), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert not any(thread.is_alive() for thread in threads)
        topic = server.call(lambda: server.broker.catalog.topic("s", "t").messages_count)
        assert topic == 12
        for client in clients:
            client.close()
        assert eventually(lambda: not server.listener.connections)
        assert server.listener.budget.used_bytes == 0


def test_who_sends_large_requests_all_the_time_does_not_keep_others_from_sending_one(tmp_path):
    with serve(tmp_path, limits__max_buffered_bytes="1 MiB", limits__max_frame_size="1 MiB") as server:
        make_topic(server)
        large = send_request("s", "t", [bytes(900_000)])
        stop = threading.Event()

        def produce():
            with WireClient(server.port) as busy:
                busy.register()
                while not stop.is_set():
                    busy.request(large)

        threads = [threading.Thread(target=produce) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.2)
            with WireClient(server.port, timeout_s=2) as other:
                other.register()
                other.request(large)
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)


def test_the_memory_of_a_large_request_is_given_back(tmp_path):
    with serve(tmp_path) as server, WireClient(server.port) as client:
        make_topic(server)
        client.register()
        client.request(send_request("s", "t", [bytes(8 * MIB)]))
        assert eventually(lambda: server.listener.budget.used_bytes < MIB)


def test_a_client_that_does_not_read_costs_no_more_than_one_answer(tmp_path):
    with serve(tmp_path) as server, WireClient(server.port) as producer:
        make_topic(server)
        producer.register()
        for _ in range(24):
            producer.request(send_request("s", "t", [bytes(MIB)]))
        greedy = WireClient(server.port, receive_buffer_bytes=8192)
        with greedy:
            greedy.register()
            before = psutil.Process().memory_info().rss
            poll = greedy.frame_of(poll_request("s", "t"))
            greedy.socket.settimeout(0.5)
            with pytest.raises(TimeoutError):
                greedy.raw(poll * 20_000)  # more than any buffer on the way takes
            producer.request(rq.Ping())  # others are served
            grown = psutil.Process().memory_info().rss - before
            # 16 MiB of one poll, mapped from the file or waiting to be written; not 20000 times that.
            assert grown < 8 * POLL_REPLY_BYTES_MAX
            greedy.socket.settimeout(20)
            for _ in range(3):
                assert greedy.receive().header.status == 0
        producer.request(rq.Ping())


def test_one_poll_is_bounded_whatever_was_asked_for(tmp_path):
    with serve(tmp_path) as server, WireClient(server.port) as client:
        make_topic(server)
        client.register()
        for _ in range(20):
            client.request(send_request("s", "t", [bytes(MIB)]))
        polled = client.request(poll_request("s", "t", count=2**32 - 1))
        assert 16 <= polled.messages_count < 20


def test_a_client_that_leaves_in_the_middle_of_a_pending_request_harms_nobody(tmp_path):
    with serve(tmp_path) as server, WireClient(server.port) as witness:
        witness.register()
        for number in range(10):
            client = WireClient(server.port)
            client.register()
            client.raw(client.frame_of(rq.CreateUser(f"user-{number}", "secret", UserStatus.ACTIVE, None)))
            client.raw(client.frame_of(rq.GetStats()))
            if number % 2:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        assert eventually(lambda: len(witness.request(rq.GetClients())) == 1)
        assert {user.username for user in witness.request(rq.GetUsers())} >= {"iggy"}
        assert server.events.of("request failed unexpectedly") == []


def test_a_login_whose_client_has_left_starts_no_session(tmp_path):
    with serve(tmp_path) as server:
        for _ in range(10):
            with WireClient(server.port) as client:
                client.request(rq.Ping())
                client.raw(client.login_frame(rq.LoginUser("iggy", "iggy")))
        assert eventually(lambda: not server.listener.connections)
        assert server.call(lambda: len(server.broker.clients)) == 0


def test_a_login_and_a_larger_request_may_come_in_one_piece(tmp_path):
    """The second is larger than anything the connection may send before the first is done."""
    with serve(tmp_path) as server:
        make_topic(server)
        with WireClient(server.port) as known:
            session = known.register().session
            known.close()
        with WireClient(server.port) as client:
            client.session = session + 1
            send = client.frame_of(send_request("s", "t", [b"x" * 50_000]))
            client.session = 0
            client.raw(client.login_frame(rq.LoginUser("iggy", "iggy")) + send)
            assert [client.receive().header.status for _ in range(2)] == [0, 0]
        assert eventually(lambda: not server.listener.connections)
        assert server.listener.budget.used_bytes == 0


def test_messages_sent_before_a_connection_broke_are_there(tmp_path):
    with serve(tmp_path) as server:
        make_topic(server)
        client = WireClient(server.port)
        client.register()
        frames = [client.frame_of(send_request("s", "t", [b"%d" % number])) for number in range(100)]
        client.raw(b"".join(frames))
        for _ in range(60):
            client.receive()
        client.close()
        with WireClient(server.port) as reader:
            reader.register()
            stored = payloads(reader.request(poll_request("s", "t")))
            assert stored == [b"%d" % number for number in range(len(stored))]
            assert len(stored) >= 60


class Waiter:
    def __init__(self) -> None:
        self.granted = 0

    def budget_granted(self) -> None:
        self.granted += 1


def test_the_budget_serves_in_the_order_of_asking():
    budget = BufferBudget(100)
    first, second, third = Waiter(), Waiter(), Waiter()
    assert budget.reserve(first, 80)
    assert not budget.reserve(second, 30)
    assert not budget.reserve(third, 10)  # would fit, but it is not its turn
    budget.release(first, 80)
    assert (second.granted, third.granted) == (1, 1)
    assert budget.used_bytes == 40


def test_a_request_larger_than_the_whole_budget_gets_through_alone():
    budget = BufferBudget(100)
    first, second = Waiter(), Waiter()
    assert budget.reserve(first, 500)
    assert not budget.reserve(second, 500)
    budget.forget(first, 500)
    assert second.granted == 1


def test_who_holds_memory_and_needs_more_does_not_wait_for_itself():
    budget = BufferBudget(100)
    only = Waiter()
    assert budget.reserve(only, 90)
    assert budget.reserve(only, 90)


def test_two_who_hold_memory_and_need_more_do_not_wait_for_each_other():
    budget = BufferBudget(100)
    first, second = Waiter(), Waiter()
    assert budget.reserve(first, 50)
    assert budget.reserve(second, 50)
    assert not budget.reserve(first, 50)
    # Now everybody who could release something waits: the one who asked first goes on.
    assert not budget.reserve(second, 50)
    assert (first.granted, second.granted) == (1, 0)
    budget.release(first, 100)
    assert second.granted == 1


def test_who_leaves_while_waiting_is_forgotten():
    budget = BufferBudget(100)
    first, second, third = Waiter(), Waiter(), Waiter()
    assert budget.reserve(first, 100)
    assert not budget.reserve(second, 50)
    assert not budget.reserve(third, 50)
    budget.forget(second, 0)
    budget.release(first, 100)
    assert (second.granted, third.granted) == (0, 1)
    budget.release(third, 50)
    assert budget.used_bytes == 0
