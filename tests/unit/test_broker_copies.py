"""Messages that are staged as copies of what the broker has: exactly these, as they are, and once."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_broker_transactions import BALANCED, ask, commit, content, crash, open_local, stage, to_partition

from borzoi.broker import copying
from borzoi.broker.copying import COPY_BYTES, COPY_MESSAGES
from borzoi.log.reader import LogDamaged
from borzoi.model import requests as rq
from borzoi.model.errors import (
    CannotWriteToFile,
    PartitionNotFound,
    ResourceNotFound,
    StagedOutOfOrder,
    StreamIdNotFound,
    Unauthorized,
)
from borzoi.model.permissions import Permissions, StreamPermissions, TopicPermissions
from borzoi.model.values import UserStatus
from borzoi.wire.batch import NewMessage, build, frames, split
from support.logs import flip_bit


@pytest.fixture
def local(tmp_path):
    with open_local(tmp_path / "data") as broker:
        broker.ask(rq.CreateTopic("s", 1, "in"))
        yield broker


def copy(local, offset, count, *, sequence=0, partition=0, attempt=0, epoch=1, source=("s", "in", 0)):
    where = partition if partition is BALANCED else to_partition(partition)
    return ask(local, rq.StageCopy("s", "t", "p", epoch, 0, attempt, sequence, where, *source, offset, count))


def fill(local, *sizes, payload=b"%d"):
    """Batches of so many messages, numbered through."""
    sent = []
    for size in sizes:
        batch = [payload % (len(sent) + n) for n in range(size)]
        local.send("s", "in", batch, ids=[len(sent) + n + 1 for n in range(size)])
        sent += batch
    return sent


def everything(local, topic, partition=0):
    """What a producer decides of every message."""
    polled = local.poll("s", topic, partition=partition, count=1_000_000)
    found = []
    for batch in split(memoryview(b"".join(polled.batches))):
        origin_us = int.from_bytes(batch[24:32], "little")
        found += [
            (bytes(f.payload), bytes(f.user_headers), f.id, origin_us + f.timestamp_delta_us)
            for f in frames(batch)
        ]
    return found


def test_copies_have_everything_that_a_producer_decides(local):
    fill(local, 3, 200)
    batch = [NewMessage(b"with headers", 9, b"\x01\x02\x03", 77), NewMessage(b"x", 10, b"", 99)]
    local.ask(rq.SendMessages("s", "in", to_partition(0), 2, build(batch)))
    local.now_us += 1_000_000
    copied = copy(local, 0, 205)
    assert (copied.is_committed, copied.messages_count) == (False, 205)
    assert content(local) == []
    commit(local, parts=[(0, 0, copied.batches_count)])
    assert everything(local, "t") == everything(local, "in")
    log = local.broker.catalog.topic("s", "t").partition(0).log
    assert (log.next_offset, log.last_timestamp_us) == (205, local.now_us)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(200, 4000))
def test_what_is_asked_for_in_pieces_arrives_whole_and_in_order(
    tmp_path_factory, monkeypatch, data, sizes, piece
):
    """However batches lie, wherever a read begins and ends, and however little is copied at a time."""
    with open_local(tmp_path_factory.mktemp("b") / "data") as local, monkeypatch.context() as patch:
        patch.setattr(copying, "COPY_BYTES", piece)
        local.ask(rq.CreateTopic("s", 1, "in"))
        sent = fill(local, *sizes)
        start = data.draw(st.integers(0, len(sent)))
        end = data.draw(st.integers(start, len(sent)))
        position = batches = 0
        while start + position < end:
            copied = copy(local, start + position, end - start - position, sequence=batches)
            assert copied.messages_count > position
            position, batches = copied.messages_count, copied.batches_count
        commit(local, parts=[(0, 0, batches)] if batches else [])
        assert content(local) == sent[start:end]


def test_a_request_copies_a_few_megabytes_and_says_how_far_it_got(local):
    sent = fill(local, *[1000] * 7, payload=b"%01000d")
    first = copy(local, 0, len(sent))
    assert COPY_BYTES < first.messages_count * 1000 + 2_000_000 < COPY_BYTES + 4_000_000
    second = copy(local, first.messages_count, len(sent), sequence=first.batches_count)
    assert second.messages_count == len(sent)
    commit(local, parts=[(0, 0, second.batches_count)])
    assert content(local) == sent


def test_a_request_that_comes_again_copies_nothing(local):
    sent = fill(local, 5)
    first = copy(local, 0, 3)
    assert copy(local, 0, 3) == first
    more = copy(local, 3, 2, sequence=1)
    assert copy(local, 0, 3) == more
    commit(local, parts=[(0, 0, more.batches_count)])
    assert content(local) == sent
    assert copy(local, 0, 3).is_committed
    assert local.broker.transactions.staged.batches_count == 0


def test_what_is_copied_is_there_after_a_crash(local):
    sent = fill(local, 5)
    first = copy(local, 0, 3)
    crash(local)
    assert copy(local, 0, 3) == first
    more = copy(local, 3, 2, sequence=1)
    commit(local, parts=[(0, 0, more.batches_count)])
    assert content(local) == sent


@pytest.mark.parametrize(("offset", "count"), [(5, 1), (2**63, 1), (0, 0)])
def test_there_is_nothing_to_copy_where_there_are_no_messages(local, offset, count):
    fill(local, 5)
    copied = copy(local, offset, count)
    assert (copied.is_committed, copied.batches_count, copied.messages_count) == (False, 0, 0)


def test_nothing_is_copied_in_place_of_messages_that_retention_took(local):
    local.ask(rq.CreateTopic("s", 1, "short"))
    log = local.broker.catalog.topic("s", "short").partition(0).log
    for n in range(3):
        local.send("s", "short", [b"%d" % n])
        log.seal(local.now_us)
    log.drop_oldest(2)
    assert log.first_offset == 2
    assert copy(local, 1, 2, source=("s", "short", 0)).messages_count == 0
    assert copy(local, 2, 1, source=("s", "short", 0)).messages_count == 1


def test_a_hole_in_a_damaged_log_is_not_bridged(local):
    """Recovery leaves holes where bytes are gone for good, and reads go on behind them."""
    log = local.broker.catalog.topic("s", "in").partition(0).log
    for first in range(0, 30, 2):
        local.send("s", "in", [b"%d" % first, b"%d" % (first + 1)])
        if first in (8, 18):
            log.seal(local.now_us)
    path = log.segments[0].path
    local.abandon()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 3 // 5)
    local.open()
    assert [int(each) for each in content(local, topic="in")] == [*range(6), *range(10, 30)]
    assert copy(local, 4, 16).messages_count == 2
    assert copy(local, 6, 14, sequence=1).messages_count == 2
    assert copy(local, 10, 10, sequence=1).messages_count == 12
    commit(local, parts=[(0, 0, 2)])
    assert [int(each) for each in content(local)] == [4, 5, *range(10, 20)]


def test_a_cut_from_a_large_batch_is_copied_in_pieces(local):
    """Of messages of any size, so that they are looked at one by one."""
    sent = [b"x" * (n % 7 + 1) for n in range(COPY_MESSAGES + 30_000)]
    local.send("s", "in", sent)
    position = batches = 0
    while position < len(sent) - 1:
        copied = copy(local, 1 + position, len(sent), sequence=batches)
        assert 0 < copied.messages_count - position <= COPY_MESSAGES + 10_000
        position, batches = copied.messages_count, copied.batches_count
    staged = next(iter(local.broker.transactions.staged.of(local.broker.catalog.topic("s", "t"))))[2]
    assert all(each.message_count <= 10_000 for file in staged.files.values() for each in file.batches)
    commit(local, parts=[(0, 0, batches)])
    assert content(local) == sent[1:]


def test_a_repetition_is_answered_even_if_the_source_is_gone(local):
    fill(local, 3)
    first = copy(local, 0, 3)
    local.ask(rq.DeleteTopic("s", "in"))
    assert copy(local, 0, 3) == first


def test_copies_and_other_batches_are_parts_of_one_attempt(local):
    fill(local, 2)
    stage(local, [b"first"])
    assert copy(local, 0, 2, sequence=1).messages_count == 3
    stage(local, [b"last"], sequence=2)
    commit(local, parts=[(0, 0, 3)])
    assert content(local) == [b"first", b"0", b"1", b"last"]


def test_a_topic_can_be_copied_into_itself(local):
    local.send("s", "t", [b"a", b"b"])
    copied = copy(local, 0, 2, source=("s", "t", 0))
    commit(local, parts=[(0, 0, copied.batches_count)])
    assert content(local) == [b"a", b"b", b"a", b"b"]


def test_copies_take_turns_where_that_is_asked_for(local):
    fill(local, 4)
    for n in range(4):
        copy(local, n, 1, sequence=n, partition=BALANCED)
    commit(local, parts=[(0, 0, 4)])
    assert [content(local, number) for number in range(3)] == [[b"0", b"3"], [b"1"], [b"2"]]


def test_a_gap_in_the_sequence_is_refused(local):
    fill(local, 2)
    with pytest.raises(StagedOutOfOrder):
        copy(local, 0, 1, sequence=1)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (("nothing", "in", 0), StreamIdNotFound),
        (("s", "in", 7), PartitionNotFound),
    ],
)
def test_a_source_that_is_missing_is_named(local, source, error):
    with pytest.raises(error):
        copy(local, 0, 1, source=source)


def test_a_target_that_is_missing_is_named(local):
    with pytest.raises(ResourceNotFound):
        copy(local, 0, 1, partition=9)


def test_who_copies_may_read_the_one_topic_and_write_to_the_other(local):
    fill(local, 1)
    stream = local.broker.catalog.stream("s")
    ids = {name: local.broker.catalog.topic("s", name).id for name in ("in", "t")}

    def user(name, reads, writes):
        topics = {
            ids["in"]: TopicPermissions(poll_messages=reads),
            ids["t"]: TopicPermissions(send_messages=writes),
        }
        permissions = Permissions(streams={stream.id: StreamPermissions(topics=topics)})
        local.ask(rq.CreateUser(name, "secret", UserStatus.ACTIVE, permissions))
        return local.log_in(name)

    request = rq.StageCopy("s", "t", "p", 1, 0, 0, 0, to_partition(0), "s", "in", 0, 0, 1)
    for name, reads, writes in (("reader", True, False), ("writer", False, True)):
        with pytest.raises(Unauthorized):
            local.ask(request, user(name, reads, writes))
    assert local.ask(request, user("both", True, True)).messages_count == 1


def test_damaged_messages_are_not_copied(local):
    fill(local, 200)
    log = local.broker.catalog.topic("s", "in").partition(0).log
    flip_bit(log.segments[0].path, 500)
    with pytest.raises(LogDamaged):
        copy(local, 0, 200)
    assert local.broker.transactions.staged.batches_count == 0


def test_a_disk_that_fills_up_in_between_loses_nothing(local, monkeypatch):
    """What was staged before stays; the same request again says how far it got."""
    sent = fill(local, *[1000] * 3, payload=b"%01000d")
    write, written = os.pwrite, []

    def pwrite(fd, data, position):
        written.append(len(data))
        if sum(written) > 1_500_000:
            raise OSError(28, "No space left on device")
        return write(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(CannotWriteToFile):
            copy(local, 0, len(sent))
    reached = copy(local, 0, len(sent))
    assert (reached.batches_count, reached.messages_count) == (1, 1000)
    rest = copy(local, 1000, len(sent) - 1000, sequence=1)
    commit(local, parts=[(0, 0, rest.batches_count)])
    assert content(local) == sent
