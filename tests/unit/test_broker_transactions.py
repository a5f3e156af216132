"""Epochs in the broker: what is staged, committed, aborted, and what a crash leaves of it."""

import os
import shutil

import pytest

from borzoi.broker import upkeep
from borzoi.broker.handlers import Context, handle
from borzoi.broker.pending import AfterWork, InSteps, run_at_once
from borzoi.model import requests as rq
from borzoi.model.errors import (
    EpochMismatch,
    InvalidIdentifier,
    RemoteProtocolError,
    ResourceNotFound,
    StagedOutOfOrder,
    StagingFull,
    TooManyProducers,
)
from borzoi.model.limits import STAGED_ATTEMPTS_MAX, STAGED_BATCHES_MAX
from borzoi.model.values import HeaderKind, Partitioning, PartitioningKind, TypedValue
from borzoi.wire.batch import HEADER_BYTES, NewMessage, build
from borzoi.wire.commands import COMMAND_BY_REQUEST
from support.in_process import SECOND_US, LocalBroker, carry_out, payloads

PERSISTED = TypedValue(HeaderKind.STRING, b"persisted")
DAY_US = 86_400 * SECOND_US


def ask(local, request):
    """The reply, with everything done that it has to wait for."""
    return conclude(local, begin(local, request))


def begin(local, request):
    access = COMMAND_BY_REQUEST[type(request)].access
    return handle(Context(local.broker, local.root, access, local.now_us), request)


def conclude(local, reply):
    while isinstance(reply, InSteps):
        reply = run_at_once(reply.steps)
    assert not isinstance(reply, AfterWork)
    return carry_out(local.broker, reply)


def to_partition(number):
    return Partitioning(PartitioningKind.PARTITION_ID, number.to_bytes(4, "little"))


BALANCED = Partitioning(PartitioningKind.BALANCED)


def staging_of(messages, *, partition=0, epoch=1, task=0, attempt=0, sequence=0, producer="p", topic="t"):
    batch = build([NewMessage(payload) for payload in messages])
    partitioning = partition if isinstance(partition, Partitioning) else to_partition(partition)
    return rq.StageMessages(
        "s", topic, producer, epoch, task, attempt, sequence, partitioning, len(messages), batch
    )


def stage(local, messages, **where):
    return ask(local, staging_of(messages, **where))


def commit_of(epoch=1, parts=((0, 0, 1),), producer="p", topic="t"):
    return rq.CommitEpoch("s", topic, producer, epoch, tuple(rq.StagedPart(*part) for part in parts))


def commit(local, epoch=1, parts=((0, 0, 1),), **whose):
    return ask(local, commit_of(epoch, parts, **whose))


def abort(local, epoch=1, producer="p"):
    return ask(local, rq.AbortEpoch("s", "t", producer, epoch))


def last_epoch(local, producer="p"):
    return ask(local, rq.GetProducerEpoch("s", "t", producer))


def content(local, partition=0, topic="t"):
    return payloads(local.poll("s", topic, partition=partition, count=1_000_000))


def staged_files(local):
    return sorted(local.directory.staging.rglob("*.staged"))


def crash(local, image=None):
    """Kill the broker, maybe put back an earlier copy of its files, and start another."""
    local.abandon()
    if image is not None:
        shutil.rmtree(local.path)
        shutil.move(image, local.path)
    local.open()


def open_local(path, **how):
    local = LocalBroker(path, metadata_fsync=False, **how)
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 3, "t"))
    return local


@pytest.fixture
def local(tmp_path):
    with open_local(tmp_path / "data") as broker:
        yield broker


# Staging


def test_nobody_sees_what_is_staged_before_its_epoch_is_committed(local):
    assert stage(local, [b"a", b"b"]).batches_count == 1
    assert stage(local, [b"c"], sequence=1).batches_count == 2
    assert content(local) == []
    assert local.broker.catalog.topic("s", "t").messages_count == 0
    assert last_epoch(local) is None
    reply = commit(local, parts=[(0, 0, 2)])
    assert (reply.epoch, reply.is_repeated, reply.messages_count) == (1, False, 3)
    assert content(local) == [b"a", b"b", b"c"]


def test_offsets_and_times_are_given_at_the_commit(local):
    stage(local, [b"staged"])
    local.send("s", "t", [b"sent"])
    local.now_us += SECOND_US
    commit(local)
    assert content(local) == [b"sent", b"staged"]
    assert local.broker.catalog.topic("s", "t").partition(0).log.last_timestamp_us == local.now_us
    assert last_epoch(local).committed_at_us == local.now_us


def test_messages_of_an_epoch_are_ordered_by_task_then_sequence(local):
    stage(local, [b"2.0"], task=2)
    stage(local, [b"0.0"], task=0, attempt=7)
    stage(local, [b"2.1"], task=2, sequence=1)
    stage(local, [b"1.0"], task=1, partition=1)
    stage(local, [b"0.1"], task=0, attempt=7, sequence=1)
    commit(local, parts=[(2, 0, 2), (0, 7, 2), (1, 0, 1)])
    assert content(local) == [b"0.0", b"0.1", b"2.0", b"2.1"]
    assert content(local, 1) == [b"1.0"]


def test_balanced_batches_take_turns_and_a_key_leads_to_its_partition(local):
    for sequence in range(3):
        stage(local, [b"b"], partition=BALANCED, sequence=sequence)
    keyed = Partitioning(PartitioningKind.MESSAGES_KEY, b"abc")
    stage(local, [b"k"], partition=keyed, task=1)
    commit(local, parts=[(0, 0, 3), (1, 0, 1)])
    (confirmation,) = local.ask(rq.SendMessages("s", "t", keyed, 1, build([NewMessage(b"k")])))
    expected = [[b"b"], [b"b"], [b"b"]]
    expected[confirmation.partition_id] += [b"k", b"k"]
    assert [content(local, number) for number in range(3)] == expected


def test_a_batch_that_is_staged_already_is_not_stored_again(local):
    stage(local, [b"a"])
    size_bytes = local.broker.transactions.staged.size_bytes
    assert stage(local, [b"a"]).batches_count == 1
    assert stage(local, [b"b"], sequence=1).batches_count == 2
    assert stage(local, [b"a"]).batches_count == 2
    assert local.broker.transactions.staged.batches_count == 2
    assert local.broker.transactions.staged.size_bytes > size_bytes
    commit(local, parts=[(0, 0, 2)])
    assert content(local) == [b"a", b"b"]


def test_a_gap_in_the_sequence_is_refused(local):
    with pytest.raises(StagedOutOfOrder):
        stage(local, [b"a"], sequence=1)
    stage(local, [b"a"])
    with pytest.raises(StagedOutOfOrder):
        stage(local, [b"c"], sequence=2)
    commit(local)
    assert content(local) == [b"a"]


def test_what_a_send_is_refused_for_is_refused_here_too(local):
    with pytest.raises(ResourceNotFound):
        stage(local, [b"a"], partition=3)
    with pytest.raises(ResourceNotFound):
        stage(local, [b"a"], topic="missing")
    with pytest.raises(InvalidIdentifier):
        stage(local, [b"a"], producer="")
    with pytest.raises(InvalidIdentifier):
        stage(local, [b"a"], producer="é" * 128)
    request = staging_of([b"a", b"b"])
    for position in (33, HEADER_BYTES + 60):  # the length of the batch, a payload
        bad = bytearray(request.batch)
        bad[position] ^= 1
        with pytest.raises(RemoteProtocolError):
            ask(local, rq.StageMessages("s", "t", "p", 1, 0, 0, 0, BALANCED, 2, bad))
    with pytest.raises(RemoteProtocolError):
        ask(local, rq.StageMessages("s", "t", "p", 1, 0, 0, 0, BALANCED, 3, request.batch))
    assert staged_files(local) == []


def test_a_name_of_255_bytes_that_is_no_file_name_is_fine(local):
    name = ("../é/" * 50)[:254] + "x"
    name = name.encode()[:255].decode(errors="ignore")
    stage(local, [b"a"], producer=name)
    crash(local)
    commit(local, producer=name)
    assert last_epoch(local, name).epoch == 1
    assert content(local) == [b"a"]


# Committing


def test_a_commit_that_comes_again_changes_nothing(local):
    stage(local, [b"a"])
    commit(local)
    reply = commit(local)
    assert (reply.is_repeated, reply.messages_count) == (True, 1)
    assert commit(local, epoch=0).is_repeated
    assert content(local) == [b"a"]


def test_batches_for_a_committed_epoch_are_not_kept(local):
    stage(local, [b"a"])
    commit(local)
    reply = stage(local, [b"late"], task=5)
    assert (reply.is_committed, reply.batches_count) == (True, 0)
    assert local.broker.transactions.staged.size_bytes == 0
    local.run_background()
    assert staged_files(local) == []


def test_other_attempts_and_lower_epochs_are_dropped(local):
    stage(local, [b"old"], epoch=1)
    stage(local, [b"failed"], epoch=2, attempt=0)
    stage(local, [b"good"], epoch=2, attempt=1)
    stage(local, [b"speculative"], epoch=2, attempt=2)
    stage(local, [b"next"], epoch=3)
    commit(local, 2, [(0, 1, 1)])
    assert content(local) == [b"good"]
    assert [file.parent.name.rpartition("-")[2] for file in staged_files(local)] == ["3"]
    commit(local, 3)
    assert content(local) == [b"good", b"next"]
    assert local.broker.transactions.staged.attempts_count == 0


@pytest.mark.parametrize(
    "parts",
    [
        [(0, 0, 1)],
        [(0, 0, 3)],
        [(0, 1, 2)],
        [(1, 0, 2)],
        [(0, 0, 2), (1, 0, 1)],
        [(0, 0, 2), (0, 0, 2)],
        [(0, 0, 2), (0, 1, 0)],
        [(0, 0, 0)],
    ],
)
def test_a_commit_of_what_is_not_staged_is_refused_and_changes_nothing(local, parts):
    stage(local, [b"a"])
    stage(local, [b"b"], sequence=1)
    with pytest.raises(EpochMismatch) as refused:
        commit(local, parts=parts)
    assert not refused.value.retryable
    assert last_epoch(local) is None
    assert content(local) == []
    commit(local, parts=[(0, 0, 2)])
    assert content(local) == [b"a", b"b"]


def test_an_epoch_without_messages_is_committed_too(local):
    stage(local, [b"dropped"])
    reply = commit(local, parts=[(4, 9, 0)])
    assert (reply.is_repeated, reply.messages_count) == (False, 0)
    assert commit(local, 2, []).messages_count == 0
    assert last_epoch(local).epoch == 2
    assert local.broker.transactions.staged.attempts_count == 0
    local.reopen()
    assert last_epoch(local).epoch == 2


def test_producers_and_topics_do_not_know_each_other(local):
    local.ask(rq.CreateTopic("s", 1, "u"))
    stage(local, [b"p"], producer="p")
    stage(local, [b"q"], producer="q")
    stage(local, [b"u"], producer="p", topic="u")
    commit(local, producer="q")
    assert last_epoch(local, "p") is None
    commit(local, producer="p")
    assert content(local) == [b"q", b"p"]
    assert content(local, topic="u") == []
    commit(local, producer="p", topic="u")
    assert content(local, topic="u") == [b"u"]


def test_the_largest_numbers_of_the_wire_are_fine(local):
    top = 2**64 - 1
    stage(local, [b"a"], epoch=top, task=2**32 - 1, attempt=top)
    crash(local)
    commit(local, top, [(2**32 - 1, top, 1)])
    local.reopen()
    assert last_epoch(local).epoch == top
    assert content(local) == [b"a"]


def test_deduplication_does_not_apply_to_epochs(tmp_path):
    with open_local(tmp_path / "data", dedup_entries=10) as local:
        batch = build([NewMessage(b"a", id=5)])
        local.send("s", "t", [b"a"], ids=[5])
        ask(local, rq.StageMessages("s", "t", "p", 1, 0, 0, 0, to_partition(0), 1, batch))
        commit(local)
        assert content(local) == [b"a", b"a"]


def test_a_deleted_partition_makes_a_commit_fail_and_comes_back_clean(local):
    stage(local, [b"a"], partition=2)
    local.ask(rq.DeletePartitions("s", "t", 1))
    with pytest.raises(EpochMismatch, match="partition 2"):
        commit(local)
    assert last_epoch(local) is None
    abort(local)
    stage(local, [b"a"], partition=1)
    commit(local)
    assert content(local, 1) == [b"a"]


# Aborting, expiry, limits


def test_an_abort_drops_what_is_staged_and_a_committed_epoch_stays(local):
    stage(local, [b"a"])
    stage(local, [b"other"], epoch=2)
    abort(local)
    abort(local)
    with pytest.raises(EpochMismatch):
        commit(local)
    assert stage(local, [b"new"]).batches_count == 1
    commit(local)
    abort(local)
    assert content(local) == [b"new"]
    assert last_epoch(local).epoch == 1
    commit(local, 2)
    assert content(local) == [b"new", b"other"]


def test_epochs_that_nobody_stages_for_any_more_expire(local):
    stage(local, [b"a"])
    stage(local, [b"b"], epoch=2)
    local.now_us += DAY_US - 1
    stage(local, [b"c"], epoch=2, sequence=1)
    assert upkeep.drop_idle_epochs(local.broker, local.now_us) == 0
    local.now_us += 1
    assert upkeep.drop_idle_epochs(local.broker, local.now_us) == 1
    with pytest.raises(EpochMismatch):
        commit(local)
    commit(local, 2, [(0, 0, 2)])
    assert content(local) == [b"b", b"c"]


def test_no_more_is_staged_than_allowed(local, tmp_path):
    size_bytes = len(staging_of([b"a"]).batch)
    with open_local(tmp_path / "small", staged_bytes_max=3 * size_bytes) as small:
        stage(small, [b"a"])
        stage(small, [b"a"], sequence=1)
        with pytest.raises(StagingFull):
            stage(small, [b"a"], sequence=2)
        abort(small)
        stage(small, [b"a"])
    with open_local(tmp_path / "tight", free_bytes_reserved=1 << 62) as tight, pytest.raises(StagingFull):
        stage(tight, [b"a"])
    table = local.broker.transactions.staged
    table.attempts_count = STAGED_ATTEMPTS_MAX - 1
    stage(local, [b"a"])
    with pytest.raises(StagingFull):
        stage(local, [b"a"], task=1)
    table.batches_count = STAGED_BATCHES_MAX - 1
    stage(local, [b"a"], sequence=1)
    with pytest.raises(StagingFull):
        stage(local, [b"a"], sequence=2)


def test_of_attempts_at_one_task_the_newest_are_kept(local):
    table = local.broker.transactions.staged
    stage(local, [b"other task"], task=1)
    for attempt in (50, 40, 30, 20, 10):  # numbers say nothing about the order
        stage(local, [b"a"], attempt=attempt)
    assert {path.stem for path in staged_files(local)} == {"1-0", "0-40", "0-30", "0-20", "0-10"}
    assert (table.attempts_count, table.batches_count) == (5, 5)
    assert table.size_bytes == sum(path.stat().st_size for path in staged_files(local))
    with pytest.raises(StagedOutOfOrder):
        stage(local, [b"a"], attempt=50, sequence=1)
    for age_s, attempt in enumerate((10, 20, 30, 40)):  # a clock's tick may be longer than all of this took
        (path,) = [path for path in staged_files(local) if path.stem == f"0-{attempt}"]
        os.utime(path, (1_000_000 - age_s, 1_000_000 - age_s))
    crash(local)
    stage(local, [b"b"], attempt=5)
    assert {path.stem for path in staged_files(local)} == {"1-0", "0-30", "0-20", "0-10", "0-5"}
    commit(local, parts=((0, 5, 1), (1, 0, 1)))
    assert content(local) == [b"b", b"other task"]
    assert (table.attempts_count, staged_files(local)) == (5, [])


def test_no_attempt_is_dropped_while_a_commit_is_under_way(local, monkeypatch):
    for attempt in range(4):
        stage(local, [b"a"], attempt=attempt)
    monkeypatch.setattr(local.broker.transactions, "is_busy", lambda topic, producer: True)
    stage(local, [b"a"], attempt=4)
    assert len(staged_files(local)) == 5


def test_a_topic_knows_so_many_producers_and_forgets_the_one_silent_the_longest(tmp_path):
    with open_local(tmp_path / "data", producers_per_topic_max=2, producer_expiry_us=DAY_US) as local:
        for name in "ab":
            stage(local, [b"x"], producer=name)
            commit(local, producer=name)
            local.now_us += 1
        with pytest.raises(TooManyProducers):
            stage(local, [b"x"], producer="c")
        with pytest.raises(TooManyProducers):
            commit(local, parts=[], producer="c")
        local.now_us += DAY_US
        stage(local, [b"x"], producer="c")
        assert last_epoch(local, "a") is None
        assert last_epoch(local, "b").epoch == 1
        local.reopen()
        assert last_epoch(local, "a") is None


# What becomes of the topic


def test_a_deleted_topic_takes_its_epochs_and_what_is_staged_along(local):
    stage(local, [b"a"])
    commit(local)
    stage(local, [b"staged"], epoch=2)
    local.ask(rq.DeleteTopic("s", "t"))
    assert local.broker.transactions.staged.size_bytes == 0
    local.ask(rq.CreateTopic("s", 3, "t"))
    assert last_epoch(local) is None
    with pytest.raises(EpochMismatch):
        commit(local, 2)
    local.run_background()
    assert staged_files(local) == []


def test_a_deleted_stream_does_too(local):
    stage(local, [b"staged"])
    local.ask(rq.DeleteStream("s"))
    assert local.broker.transactions.staged.size_bytes == 0
    local.run_background()
    assert staged_files(local) == []


def test_what_is_staged_for_a_topic_that_is_gone_or_was_made_again_is_removed_at_a_start(local, tmp_path):
    stage(local, [b"a"])
    shutil.copytree(local.directory.staging, tmp_path / "copy")
    local.now_us += 1
    local.ask(rq.DeleteTopic("s", "t"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    shutil.copytree(tmp_path / "copy" / "0" / "0", local.directory.staging / "0" / "0")
    shutil.copytree(tmp_path / "copy" / "0" / "0", local.directory.staging / "0" / "9")
    local.reopen()
    local.run_background()
    assert staged_files(local) == []
    assert local.broker.transactions.staged.size_bytes == 0


def test_a_purge_keeps_the_epochs_and_what_is_staged(local):
    stage(local, [b"a"])
    commit(local)
    stage(local, [b"b"], epoch=2)
    local.ask(rq.PurgeTopic("s", "t"))
    assert commit(local).is_repeated
    commit(local, 2)
    assert content(local) == [b"b"]
    local.reopen()
    assert last_epoch(local).epoch == 2


def test_a_producer_that_is_forgotten_leaves_its_messages_and_nothing_else(local):
    stage(local, [b"one"], epoch=1)
    commit(local, epoch=1)
    stage(local, [b"never"], epoch=2, attempt=7)
    ask(local, rq.ForgetProducer("s", "t", "p"))
    ask(local, rq.ForgetProducer("s", "t", "p"))
    crash(local)
    assert last_epoch(local) is None
    assert staged_files(local) == []
    with pytest.raises(EpochMismatch):
        commit(local, epoch=2, parts=((0, 7, 1),))
    assert content(local) == [b"one"]
