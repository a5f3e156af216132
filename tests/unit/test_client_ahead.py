"""Reads that are sent before their answers are wanted: the same answers, whatever happens in between."""

from contextlib import closing

import pytest

from borzoi.client.ahead import Ahead
from borzoi.client.messages import poll_messages
from borzoi.client.values import PollingStrategy
from borzoi.model.errors import CannotEstablishConnection, NotFound, TaskTimeout

COUNT = 50


@pytest.fixture
def client(borzoi_server, borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 1)
    borzoi.send_messages("s", "t", 0, [b"%d" % number for number in range(COUNT)])
    with borzoi_server.client(deadline_s=5.0) as reader:
        yield reader


def poll(offset, count=10, topic="t", **how):
    return poll_messages("s", topic, 0, PollingStrategy.Offset(offset), count, False, **how)


def offsets(messages):
    return [message.offset for message in messages]


def test_answers_come_in_the_order_of_the_reads(client):
    reads = Ahead(client)
    for offset in range(0, COUNT, 10):
        reads.send(poll(offset))
        assert offsets(reads.take()) == list(range(offset, offset + 10))


@pytest.mark.usefixtures("client")
def test_a_client_that_is_not_connected_yet_connects(borzoi_server):
    with closing(borzoi_server.client()) as fresh:
        reads = Ahead(fresh)
        reads.send(poll(0))
        assert len(reads.take()) == 10


def test_a_lost_connection_is_made_good(client, borzoi_server):
    reads = Ahead(client)
    borzoi_server.delay_answers(60)
    reads.send(poll(20))
    borzoi_server.heal()
    borzoi_server.drop_connections()
    assert offsets(reads.take()) == list(range(20, 30))
    borzoi_server.drop_connections()
    reads.send(poll(30))
    assert offsets(reads.take()) == list(range(30, 40))


def test_a_server_that_restarts_in_between_is_asked_again(client, borzoi_server):
    reads = Ahead(client)
    reads.send(poll(0))
    borzoi_server.restart()
    assert offsets(reads.take()) == list(range(10))


def test_a_dropped_answer_is_not_taken_for_the_next(client):
    reads = Ahead(client)
    reads.send(poll(0))
    reads.drop()
    reads.drop()
    assert client.get_stream("s").name == "s"
    reads.send(poll(40))
    assert offsets(reads.take()) == list(range(40, 50))


def test_errors_of_the_server_are_raised_and_the_next_read_works(client):
    reads = Ahead(client)
    number = client._recovery.connection_number
    reads.send(poll(0, topic="nowhere"))
    with pytest.raises(NotFound):
        reads.take()
    reads.send(poll(0))
    assert len(reads.take()) == 10
    assert client._recovery.connection_number == number


def test_a_session_that_ended_is_begun_anew(client):
    reads = Ahead(client)
    client._recovery.link.dialogue.session += 1000
    reads.send(poll(0))
    assert len(reads.take()) == 10


def test_deadlines_hold(client, borzoi_server):
    borzoi_server.delay_answers(60)
    reads = Ahead(client)
    reads.send(poll(0, deadline_s=0.2))
    with pytest.raises((TaskTimeout, CannotEstablishConnection)):
        reads.take()


def test_one_read_at_a_time(client):
    reads = Ahead(client)
    with pytest.raises(RuntimeError, match="nothing has been asked for"):
        reads.take()
    assert not reads.is_under_way
    reads.send(poll(0))
    assert reads.is_under_way
    with pytest.raises(RuntimeError, match="has not been taken"):
        reads.send(poll(10))
    assert len(reads.take()) == 10
    assert not reads.is_under_way
