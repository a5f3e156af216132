"""Consumer groups of classic clients, alone and together with vsr clients.

A member is a connection. Which partition a poll is about may be left to the server, and what a member does
not hold is an empty answer.
"""

import itertools
import struct
import uuid
from unittest import mock

import pytest

from borzoi.model import errors as er
from borzoi.model import requests as rq
from borzoi.model.values import Consumer, ConsumerKind, PollingKind
from borzoi.wire.commands import Code
from support.classic_wire import logged_in
from support.in_process import LocalServer, eventually, numbered, poll_request
from support.wire_client import WireClient

NUMBERS = itertools.count()
GROUP = Consumer(ConsumerKind.GROUP, "g")


@pytest.fixture
def other(server, dialect):
    with logged_in(server.port, dialect) as connected:
        yield connected


@pytest.fixture
def stream(server):
    """A stream with a topic of four partitions, five messages in each, and a group without members."""
    name = f"stream-{next(NUMBERS)}"
    server.ask(rq.CreateStream(name))
    server.ask(rq.CreateTopic(name, 4, "t"))
    server.ask(rq.CreateConsumerGroup(name, "t", "g"))
    with logged_in(server.port) as producer:
        for partition in range(4):
            producer.send(name, "t", [b"p%d-%d" % (partition, number) for number in range(5)], partition)
    return name


def join(client, stream):
    client.request(rq.JoinConsumerGroup(stream, "t", "g"))


def poll(client, stream, partition=None, count=1000, auto_commit=False, kind=PollingKind.NEXT):
    return client.poll(
        stream, "t", partition=partition, group="g", kind=kind, count=count, auto_commit=auto_commit
    )


def shares(client, stream):
    return [member.partitions for member in client.request(rq.GetConsumerGroup(stream, "t", "g")).members]


def test_a_groups_life(client, stream):
    made = client.request(rq.CreateConsumerGroup(stream, "t", "second"))
    assert (made.group.id, made.group.partitions_count, made.members) == (1, 4, ())
    with pytest.raises(er.ConsumerGroupNameAlreadyExists):
        client.request(rq.CreateConsumerGroup(stream, "t", "second"))
    assert [group.name for group in client.request(rq.GetConsumerGroups(stream, "t"))] == ["g", "second"]
    join(client, stream)
    join(client, stream)  # a second time changes nothing
    assert shares(client, stream) == [(0, 1, 2, 3)]
    client.request(rq.LeaveConsumerGroup(stream, "t", "g"))
    with pytest.raises(er.ConsumerGroupMemberNotFound):
        client.request(rq.LeaveConsumerGroup(stream, "t", "g"))
    client.request(rq.DeleteConsumerGroup(stream, "t", "g"))
    assert client.request(rq.GetConsumerGroup(stream, "t", "g")) is None
    for request in (
        rq.DeleteConsumerGroup(stream, "t", "g"),
        rq.JoinConsumerGroup(stream, "t", "g"),
        rq.LeaveConsumerGroup(stream, "t", "g"),
    ):
        with pytest.raises(er.ConsumerGroupIdNotFound):
            client.request(request)
    with pytest.raises(er.TopicIdNotFound):
        client.request(rq.CreateConsumerGroup(stream, "nothing", "g"))


def test_polls_without_a_partition_go_round(client, stream, dialect):
    join(client, stream)
    client.request(rq.PurgeTopic(stream, "t"))
    client.send(stream, "t", [b"x"], 2)
    seen = [poll(client, stream) for _ in range(8)]
    assert [polled.partition_id - dialect.id_base for polled in seen] == [0, 1, 2, 3] * 2
    assert [polled.payloads for polled in seen[:4]] == [[], [], [b"x"], []], "an empty one is not skipped"


def test_what_a_member_does_not_hold_is_an_empty_head(client, other, stream):
    join(client, stream)
    join(other, stream)
    mine, theirs = (set(share) for share in shares(client, stream))
    assert len(mine) == len(theirs) == 2
    for partition in theirs:
        polled = poll(client, stream, partition)
        assert (polled.partition_id, polled.current_offset, polled.messages) == (0, 0, [])
    for partition in mine:
        assert len(poll(client, stream, partition).messages) == 5


def test_a_member_without_a_partition_gets_an_empty_head(server, stream, dialect):
    members = [logged_in(server.port, dialect) for _ in range(5)]
    try:
        for member in members:
            join(member, stream)
        polled = poll(members[-1], stream)
        assert (polled.partition_id, polled.current_offset, polled.messages) == (0, 0, [])
    finally:
        for member in members:
            member.close()


def test_who_is_no_member_is_told_so(client, other, stream):
    join(other, stream)
    for partition in (None, 0):
        with pytest.raises(er.ConsumerGroupMemberNotFound):
            poll(client, stream, partition)
        with pytest.raises(er.ConsumerGroupMemberNotFound):
            client.request(rq.StoreConsumerOffset(GROUP, stream, "t", partition, 0))
        with pytest.raises(er.ConsumerGroupMemberNotFound):
            client.request(rq.DeleteConsumerOffset(GROUP, stream, "t", partition))
    with pytest.raises(er.ConsumerGroupIdNotFound):
        client.poll(stream, "t", partition=None, group="nothing")


def test_offsets_of_a_group_are_written_by_who_holds_the_partition(client, other, stream):
    join(client, stream)
    join(other, stream)
    (mine, *_), (theirs, *_) = shares(client, stream)
    client.request(rq.StoreConsumerOffset(GROUP, stream, "t", mine, 2))
    with pytest.raises(er.NotResolvedConsumer):
        client.request(rq.StoreConsumerOffset(GROUP, stream, "t", theirs, 2))
    with pytest.raises(er.NotResolvedConsumer):
        client.request(rq.DeleteConsumerOffset(GROUP, stream, "t", theirs))
    # Anybody may look.
    assert other.request(rq.GetConsumerOffset(GROUP, stream, "t", mine)).stored_offset == 2
    plain = Consumer(ConsumerKind.CONSUMER, "g")
    assert client.request(rq.GetConsumerOffset(plain, stream, "t", mine)) is None
    client.request(rq.DeleteConsumerOffset(GROUP, stream, "t", mine))
    assert other.request(rq.GetConsumerOffset(GROUP, stream, "t", mine)) is None


def test_an_offset_without_a_partition_is_that_of_the_last_poll(client, stream, dialect):
    join(client, stream)
    poll(client, stream)
    polled = poll(client, stream)
    assert polled.partition_id == 1 + dialect.id_base
    client.request(rq.StoreConsumerOffset(GROUP, stream, "t", None, 4))
    assert client.request(rq.GetConsumerOffset(GROUP, stream, "t", 1)).stored_offset == 4
    client.request(rq.DeleteConsumerOffset(GROUP, stream, "t", None))
    assert client.request(rq.GetConsumerOffset(GROUP, stream, "t", 1)) is None


def test_a_lost_connection_gives_its_partitions_to_the_others_at_once(server, client, stream, dialect):
    join(client, stream)
    lost = logged_in(server.port, dialect)
    join(lost, stream)
    assert sorted(map(len, shares(client, stream))) == [2, 2]
    lost.close()
    assert eventually(lambda: shares(client, stream) == [(0, 1, 2, 3)])
    got = [poll(client, stream, auto_commit=True).payloads for _ in range(4)]
    assert sorted(itertools.chain(*got)) == [
        b"p%d-%d" % (partition, number) for partition in range(4) for number in range(5)
    ]


def test_a_client_that_comes_back_is_told_to_join_again(server, stream, dialect):
    with logged_in(server.port, dialect) as first:
        join(first, stream)
        poll(first, stream, count=2, auto_commit=True)
    with logged_in(server.port, dialect) as again:
        with pytest.raises(er.ConsumerGroupMemberNotFound):
            poll(again, stream)
        join(again, stream)
        assert poll(again, stream).offsets == [2, 3, 4], "what was committed stays so"


def test_deleting_a_group_forgets_its_offsets(client, stream):
    join(client, stream)
    poll(client, stream, auto_commit=True)
    client.request(rq.DeleteConsumerGroup(stream, "t", "g"))
    client.request(rq.CreateConsumerGroup(stream, "t", "g"))
    assert client.request(rq.GetMe()).groups == ()
    join(client, stream)
    assert poll(client, stream, 0).offsets == [0, 1, 2, 3, 4]


def test_a_group_follows_the_partitions_of_its_topic(client, stream):
    join(client, stream)
    client.request(rq.CreatePartitions(stream, "t", 2))
    assert shares(client, stream) == [(0, 1, 2, 3, 4, 5)]
    client.request(rq.DeletePartitions(stream, "t", 5))
    assert shares(client, stream) == [(0,)]


def test_a_number_names_the_same_group_in_every_dialect(client, stream, dialect):
    join(client, stream)
    body = bytearray([2, 1, 4]) + struct.pack("<I", dialect.id_base)
    for name in (stream, "t"):
        body += bytes([2, len(name)]) + name.encode()
    body += struct.pack("<I", 0) if dialect.id_base else bytes(5)
    body += struct.pack("<BQIB", PollingKind.NEXT, 0, 10, 0)
    assert client.command(Code.POLL_MESSAGES, bytes(body)).count(b"p0-") == 5


def test_a_member_that_falls_silent_is_put_out_and_told_so(tmp_path, dialect):
    with LocalServer(tmp_path / "data", {"heartbeat.interval": "100ms"}) as impatient:
        impatient.ask(rq.CreateStream("s"))
        impatient.ask(rq.CreateTopic("s", 1, "t"))
        impatient.ask(rq.CreateConsumerGroup("s", "t", "g"))
        with logged_in(impatient.port, dialect) as silent:
            join(silent, "s")
            assert eventually(lambda: impatient.ask(rq.GetConsumerGroup("s", "t", "g")).members == ())
            with pytest.raises(er.StaleClient):
                poll(silent, "s")
            silent.log_in()
            with pytest.raises(er.ConsumerGroupMemberNotFound):
                poll(silent, "s")


# Together with vsr clients


def vsr_poll(vsr, stream, partition, count=1000):
    reply = vsr.request(
        poll_request(
            stream, "t", partition=partition, kind=PollingKind.NEXT, group="g", count=count, auto_commit=True
        )
    )
    return [payload for _, payload in numbered(reply)]


def test_old_and_new_clients_share_a_group_without_double_delivery(server, client, stream):
    """Each takes what it may while the other comes, works and goes; every message arrives once."""
    received: list[bytes] = []
    join(client, stream)
    received += poll(client, stream, count=2, auto_commit=True).payloads
    with WireClient(server.port) as vsr:
        vsr.register()
        vsr.request(rq.JoinConsumerGroup(stream, "t", "g"))
        assigned = vsr.request(rq.SyncConsumerGroup(stream, "t", "g")).partitions
        assert len(assigned) == 2
        mine = [share for share in shares(client, stream) if set(share).isdisjoint(assigned)]
        assert len(mine) == 1
        assert len(mine[0]) == 2
        for partition in range(4):
            if partition in assigned:
                received += vsr_poll(vsr, stream, partition, count=3)
            else:
                assert vsr_poll(vsr, stream, partition) == [], "that is the old client's"
        for _ in range(4):
            received += poll(client, stream, count=2, auto_commit=True).payloads
    assert eventually(lambda: shares(client, stream) == [(0, 1, 2, 3)])
    for _ in range(8):
        received += poll(client, stream, auto_commit=True).payloads
    assert sorted(received) == [
        b"p%d-%d" % (partition, number) for partition in range(4) for number in range(5)
    ]


def test_what_was_polled_but_not_committed_is_not_given_to_a_new_member(server, client, stream):
    join(client, stream)
    polled = [poll(client, stream) for _ in range(4)]
    assert sum(len(each.messages) for each in polled) == 20
    with WireClient(server.port) as vsr:
        vsr.register()
        vsr.request(rq.JoinConsumerGroup(stream, "t", "g"))
        assert vsr.request(rq.SyncConsumerGroup(stream, "t", "g")).partitions == ()
        for partition in range(4):
            assert vsr_poll(vsr, stream, partition) == []
        for partition in range(4):
            client.request(rq.StoreConsumerOffset(GROUP, stream, "t", partition, 4))
        assert len(vsr.request(rq.SyncConsumerGroup(stream, "t", "g")).partitions) == 2


def test_no_vsr_client_takes_the_place_of_a_member(server, client, stream):
    """Clients of the other generation choose their ids; this one takes the number of a connection."""
    join(client, stream)
    number = client.request(rq.GetMe()).client.client_id
    chosen = uuid.UUID(bytes=number.to_bytes(16, "little"))
    with WireClient(server.port) as vsr, mock.patch("support.wire_client.uuid.uuid4", return_value=chosen):
        vsr.register()
        assert vsr.request(rq.SyncConsumerGroup(stream, "t", "g")) is None
        assert shares(client, stream) == [(0, 1, 2, 3)]
        assert poll(client, stream).offsets == [0, 1, 2, 3, 4]
