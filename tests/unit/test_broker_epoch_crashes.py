"""An epoch is committed whole or not at all, wherever the broker is killed; and when the disk is full.

A crash is a copy of the data directory, taken before or in the middle of a change to any file, that another
broker opens. `Camera` takes such copies.
"""

import errno
import os
import random
import shutil
from contextlib import contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_broker_transactions import (
    PERSISTED,
    ask,
    begin,
    commit,
    commit_of,
    conclude,
    content,
    crash,
    last_epoch,
    open_local,
    stage,
    staged_files,
)

from borzoi.broker import application, staged, transactions, upkeep
from borzoi.broker.pending import AfterWork, run_at_once
from borzoi.model import requests as rq
from borzoi.model.errors import (
    CannotAppendMessage,
    CannotReadMessage,
    CannotSyncFile,
    CannotWriteToFile,
    EpochMismatch,
    ResourceNotFound,
)
from support.in_process import SECOND_US, LocalBroker
from support.logs import flip_bit


@pytest.fixture
def local(tmp_path):
    with open_local(tmp_path / "data") as broker:
        yield broker


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    monkeypatch.setattr(application, "STEP_BATCHES", 2)


class Camera:
    """Copies a directory before every change to a file in it, and in the middle of every write."""

    def __init__(self, source, target):
        self.source = source
        self.target = target
        self.images = []
        self.is_on = False
        self.limit = None  # only this one is wanted

    @contextmanager
    def on(self, monkeypatch):
        with monkeypatch.context() as patch:
            write = os.pwrite

            def pwrite(fd, data, position):
                self.take()
                half = len(data) // 2
                if self.is_on and half:
                    write(fd, memoryview(data)[:half], position)
                    self.take()
                return write(fd, data, position)

            patch.setattr(os, "pwrite", pwrite)
            for name in ("ftruncate", "rename", "replace", "unlink", "mkdir"):
                patch.setattr(os, name, self._before(getattr(os, name)))
            self.is_on = True
            yield
            self.is_on = False

    def _before(self, change):
        def changed(*arguments, **options):
            self.take()
            return change(*arguments, **options)

        return changed

    def take(self):
        if not self.is_on:
            return
        self.is_on = False
        number = len(self.images)
        image = self.target / str(number)
        if self.limit is None or number == self.limit:
            shutil.copytree(self.source, image)
        self.images.append(image)
        self.is_on = True


PARTS = [(0, 3, 4), (1, 0, 4)]


def stage_all(local):
    """Two tasks with batches for three partitions, two of them equal."""
    stage(local, [b"failed"], task=0, attempt=2)
    stage(local, [b"0.0", b"0.1"], task=0, attempt=3)
    stage(local, [b"0.2"], task=0, attempt=3, sequence=1, partition=2)
    stage(local, [b"1.0"], task=1, partition=1)
    stage(local, [b"1.1"], task=1, sequence=1)
    stage(local, [b"1.2"], task=1, sequence=2, partition=1)
    stage(local, [b"same"], task=1, sequence=3)
    stage(local, [b"1.1"], task=0, attempt=3, sequence=2)
    stage(local, [b"same"], task=0, attempt=3, sequence=3)


def all_content(local):
    return [content(local, number) for number in range(3)]


def sorted_content(local):
    return [sorted(each) for each in all_content(local)]


ALL = [sorted([b"0.0", b"0.1", b"1.1", b"1.1", b"same", b"same"]), [b"1.0", b"1.2"], [b"0.2"]]
NONE = [[], [], []]
IN_ORDER = [[b"0.0", b"0.1", b"1.1", b"same", b"1.1", b"same"], [b"1.0", b"1.2"], [b"0.2"]]


@pytest.mark.parametrize("is_persisted", [False, True])
def test_wherever_a_commit_is_cut_off_the_epoch_is_there_whole_or_not_at_all(
    local, tmp_path, monkeypatch, is_persisted
):
    if is_persisted:
        local.ask(rq.DeleteTopic("s", "t"))
        local.ask(rq.CreateTopic("s", 3, "t", {"durability": PERSISTED}))
    stage_all(local)
    camera = Camera(local.path, tmp_path / "images")
    with camera.on(monkeypatch):
        commit(local, parts=PARTS)
    assert all_content(local) == IN_ORDER
    assert len(camera.images) > 30
    decided = []
    for image in camera.images:
        with LocalBroker(image, metadata_fsync=False) as again:
            decided.append(last_epoch(again) is not None)
            assert all_content(again) == (IN_ORDER if decided[-1] else NONE), image
            assert commit(again, parts=PARTS).is_repeated == decided[-1]
            assert all_content(again) == IN_ORDER, image
            again.run_background()
            assert staged_files(again) == []
    assert decided == sorted(decided)
    assert set(decided) == {False, True}


def test_a_crash_while_a_start_finishes_an_epoch_is_survived_as_well(local, tmp_path, monkeypatch):
    stage_all(local)
    camera = Camera(local.path, tmp_path / "images")
    with camera.on(monkeypatch):
        commit(local, parts=PARTS)
    rng = random.Random(7)
    for image in rng.sample(camera.images, 8):
        second = Camera(image, tmp_path / f"second {image.name}")
        with second.on(monkeypatch):
            LocalBroker(image, metadata_fsync=False).abandon()
        for other in rng.sample(second.images, min(6, len(second.images))):
            with LocalBroker(other, metadata_fsync=False) as again:
                commit(again, parts=PARTS)
                assert all_content(again) == IN_ORDER


def test_batches_of_others_with_the_same_content_are_told_apart(local, tmp_path, monkeypatch):
    """They come between the steps of the epoch, before and after every crash."""
    stage_all(local)
    camera = Camera(local.path, tmp_path / "images")
    steps = begin(local, commit_of(parts=PARTS)).steps
    sent = [0]
    counts = []
    with suppress(StopIteration):
        while True:
            before = len(camera.images)
            with camera.on(monkeypatch):
                next(steps)
            counts += [sent[0]] * (len(camera.images) - before)
            local.send("s", "t", [b"same"])
            local.send("s", "t", [b"1.1"])
            sent[0] += 1
    counts += [sent[0]] * (len(camera.images) - len(counts))
    assert sent[0] >= 4
    for image, count in zip(camera.images, counts, strict=True):
        with LocalBroker(image, metadata_fsync=False) as again:
            commit(again, parts=PARTS)
            assert again.broker.catalog.topic("s", "t").messages_count == 9 + 2 * count, image
            expected = [sorted([*ALL[0], *[b"same", b"1.1"] * count]), *ALL[1:]]
            assert sorted_content(again) == expected, image


def test_after_a_power_failure_batches_are_found_by_content_where_their_places_are_lost(
    local, tmp_path, monkeypatch
):
    stage_all(local)
    camera = Camera(local.path, tmp_path / "images")
    with camera.on(monkeypatch):
        commit(local, parts=PARTS)
    monkeypatch.setattr(transactions, "boot_id", lambda: "another run of the machine")
    without = 0
    for image in camera.images:
        for path in image.glob("staging/*/*/*/places"):
            path.unlink()
            without += 1
        with LocalBroker(image, metadata_fsync=False) as again:
            commit(again, parts=PARTS)
            assert all_content(again) == IN_ORDER, image
    assert without > 10


def test_what_retention_deleted_before_the_crash_is_not_appended_again(local, monkeypatch):
    stage_all(local)
    steps = begin(local, commit_of(parts=PARTS)).steps
    for _ in range(3):
        next(steps)
    log = local.broker.catalog.topic("s", "t").partition(0).log
    assert log.next_offset == 5
    log.seal(local.now_us)
    local.broker.remove_segments(log.drop_oldest(1))
    steps.close()
    crash(local)
    assert content(local) == [b"same"]


# Others meanwhile


def test_a_commit_that_comes_again_while_the_first_is_under_way_waits_for_it(local):
    stage_all(local)
    first = begin(local, commit_of(parts=PARTS)).steps
    next(first)
    second = begin(local, commit_of(parts=PARTS))
    with pytest.raises(StopIteration) as stopped:
        next(second.steps)
    waiting = stopped.value.value
    assert isinstance(waiting, AfterWork)
    woken = []
    waiting.work.when_over(lambda: woken.append(waiting.then()))
    assert woken == []
    assert not run_at_once(first).is_repeated
    (reply,) = woken
    waiting.work.when_over(lambda: woken.append("at once, as it is over"))
    assert len(woken) == 2
    assert (reply.is_repeated, reply.messages_count) == (True, 9)
    assert all_content(local) == IN_ORDER


def test_an_abort_and_the_next_epoch_wait_for_a_commit_under_way(local):
    stage_all(local)
    stage(local, [b"next"], epoch=2)
    first = begin(local, commit_of(parts=PARTS)).steps
    next(first)
    aborted = begin(local, rq.AbortEpoch("s", "t", "p", 1))
    assert isinstance(aborted, AfterWork)
    with pytest.raises(StopIteration) as stopped:
        next(begin(local, commit_of(2)).steps)
    run_at_once(first)
    assert conclude(local, aborted.then()) is None
    assert not conclude(local, stopped.value.value.then()).is_repeated
    assert content(local) == [*IN_ORDER[0], b"next"]


def test_a_commit_that_is_given_up_before_its_decision_leaves_no_lock(local):
    stage_all(local)
    steps = begin(local, commit_of(parts=PARTS)).steps
    steps.close()  # never begun
    steps = begin(local, commit_of(parts=PARTS)).steps
    next(steps)
    steps.close()
    assert commit(local, parts=PARTS).is_repeated
    assert all_content(local) == IN_ORDER


def test_the_next_epoch_first_finishes_the_one_before_it(local):
    stage_all(local)
    stage(local, [b"next"], epoch=2)
    steps = begin(local, commit_of(parts=PARTS)).steps
    next(steps)
    steps.close()
    commit(local, 2)
    assert content(local) == [*IN_ORDER[0], b"next"]


def test_upkeep_finishes_an_epoch_that_nobody_asks_for_again(local):
    stage_all(local)
    assert upkeep.unfinished_epochs(local.broker, local.now_us) == []
    steps = begin(local, commit_of(parts=PARTS)).steps
    next(steps)
    assert upkeep.unfinished_epochs(local.broker, local.now_us) == []
    steps.close()
    local.now_us += 100 * 86_400 * SECOND_US
    assert upkeep.drop_idle_epochs(local.broker, local.now_us) == 0
    (work,) = upkeep.unfinished_epochs(local.broker, local.now_us)
    run_at_once(work.steps)
    assert all_content(local) == IN_ORDER


def test_a_purge_while_an_epoch_is_appended_takes_all_of_it(local):
    stage_all(local)
    steps = begin(local, commit_of(parts=PARTS)).steps
    next(steps)
    next(steps)
    local.ask(rq.PurgeTopic("s", "t"))
    assert not run_at_once(steps).is_repeated
    assert all_content(local) == NONE
    assert commit(local, parts=PARTS).is_repeated
    crash(local)
    assert all_content(local) == NONE


def test_a_crash_during_such_a_purge_leaves_the_epoch_whole_or_purged(local, tmp_path, monkeypatch):
    stage_all(local)
    steps = begin(local, commit_of(parts=PARTS)).steps
    for _ in range(3):
        next(steps)
    camera = Camera(local.path, tmp_path / "images")
    with camera.on(monkeypatch):
        local.ask(rq.PurgeTopic("s", "t"))
    run_at_once(steps)
    outcomes = []
    for image in camera.images:
        with LocalBroker(image, metadata_fsync=False) as again:
            outcomes.append(sorted_content(again))
            assert commit(again, parts=PARTS).is_repeated
    assert all(outcome in (ALL, NONE) for outcome in outcomes)
    assert outcomes[0] == ALL
    assert outcomes[-1] == NONE


def test_a_topic_that_is_deleted_while_an_epoch_is_appended_is_gone(local):
    stage_all(local)
    steps = begin(local, commit_of(parts=PARTS)).steps
    next(steps)
    local.ask(rq.DeleteTopic("s", "t"))
    local.ask(rq.CreateTopic("s", 3, "t"))
    with pytest.raises(ResourceNotFound):
        run_at_once(steps)
    assert all_content(local) == NONE
    stage(local, [b"new"])
    commit(local)
    assert content(local) == [b"new"]


def test_a_partition_that_is_deleted_while_an_epoch_is_appended_takes_its_part_along(local):
    stage_all(local)
    steps = begin(local, commit_of(parts=PARTS)).steps
    next(steps)
    local.ask(rq.DeletePartitions("s", "t", 2))
    run_at_once(steps)
    assert content(local) == IN_ORDER[0]


# The disk says no


@pytest.fixture
def full_disk(monkeypatch):
    """Writes fail once so many bytes were written; None is a disk with room."""

    class Disk:
        room_bytes = None

    write = os.pwrite

    def pwrite(fd, data, position):
        if Disk.room_bytes is not None and len(data) > 16:  # not the name of who holds the lock
            Disk.room_bytes -= len(data)
            if Disk.room_bytes < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return Disk


def test_a_full_disk_refuses_a_batch_and_leaves_what_is_staged(local, full_disk):
    for where in ({}, {"sequence": 1}, {"task": 1}):
        for room_bytes in range(0, 500, 60):
            full_disk.room_bytes = room_bytes
            with suppress(CannotWriteToFile):
                stage(local, [b"a"], **where)
        full_disk.room_bytes = None
        stage(local, [b"a"], **where)
    crash(local)
    commit(local, parts=[(0, 0, 2), (1, 0, 1)])
    assert content(local) == [b"a", b"a", b"a"]


def test_a_full_disk_delays_what_is_decided_and_loses_nothing(local, full_disk):
    stage_all(local)
    failures = 0
    for room_bytes in range(0, 6000, 97):
        full_disk.room_bytes = room_bytes
        if room_bytes % 3 == 0:
            crash(local)
        try:
            commit(local, parts=PARTS)
        except (CannotAppendMessage, OSError):  # what the server makes of the latter can be tried again too
            failures += 1
    full_disk.room_bytes = None
    assert failures > 5
    commit(local, parts=PARTS)
    assert all_content(local) == IN_ORDER
    assert last_epoch(local).epoch == 1


@pytest.mark.parametrize("unreadable", ["all", "one"])
@pytest.mark.parametrize("is_decided", [True, False])
def test_staged_files_that_cannot_be_read_at_a_start_are_not_lost(
    local, full_disk, monkeypatch, unreadable, is_decided
):
    stage_all(local)
    if is_decided:
        full_disk.room_bytes = 500
        with pytest.raises(CannotAppendMessage):
            commit(local, parts=PARTS)
        full_disk.room_bytes = None
    files = staged_files(local)
    refused = files if unreadable == "all" else files[1:2]
    open_staged = staged.open_staged

    def failing(path, report):
        if path in refused:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_staged(path, report)

    monkeypatch.setattr(staged, "open_staged", failing)
    crash(local)
    assert staged_files(local) == files
    assert local.events.of("staged batches not readable")
    if is_decided:
        with pytest.raises(CannotReadMessage):
            commit(local, parts=PARTS)
        assert sorted_content(local) != ALL
    monkeypatch.setattr(staged, "open_staged", open_staged)
    if not is_decided and unreadable == "all":
        crash(local)  # nobody knew whose they were
    commit(local, parts=PARTS)
    assert all_content(local) == IN_ORDER
    table = local.broker.transactions.staged
    assert (table.size_bytes, table.attempts_count, table.batches_count) == (0, 0, 0)
    assert not staged_files(local)


@pytest.mark.parametrize("failing", range(1, 12))
def test_an_fsync_that_fails_keeps_a_persisted_epoch_from_being_acknowledged(tmp_path, monkeypatch, failing):
    with open_local(tmp_path / "data") as local:
        local.settings = local.broker.settings = _with_fsync(local.broker.settings)
        local.ask(rq.CreateTopic("s", 1, "u", {"durability": PERSISTED}))
        stage(local, [b"a"], topic="u")
        calls = [0]
        sync = os.fdatasync

        def fdatasync(fd):
            calls[0] += 1
            if calls[0] == failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(fd)

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        try:
            commit(local, topic="u")
        except CannotSyncFile:
            commit(local, topic="u")
        assert content(local, topic="u") == [b"a"]
        # The staged file and four directories above it, the decision, the log, that it is applied.
        assert calls[0] >= 8


def _with_fsync(found):
    from dataclasses import replace

    return replace(found, metadata_fsync=True)


def test_the_decision_is_on_the_device_before_the_first_message_is_appended(tmp_path):
    with open_local(tmp_path / "data") as local:
        local.broker.settings = _with_fsync(local.broker.settings)
        local.ask(rq.CreateTopic("s", 1, "u", {"durability": PERSISTED}))
        stage(local, [b"a"], topic="u")
        topic = local.broker.catalog.topic("s", "u")
        steps = begin(local, commit_of(topic="u")).steps
        staged = next(steps)
        assert [path.name for job in staged for path in job.paths] == ["0-0.staged"]
        assert "p" not in topic.epochs
        (decision,) = next(steps)
        assert not topic.epochs["p"].is_applied
        assert decision.key[0] == id(local.broker.metadata.journal)
        assert topic.messages_count == 0
        assert next(steps) == []
        assert topic.messages_count == 1
        (log,) = next(steps)
        assert log.paths[0].suffix == ".log"
        assert not topic.epochs["p"].is_applied
        (done,) = next(steps)
        assert done.key[0] == id(local.broker.metadata.journal)
        assert topic.epochs["p"].is_applied
        assert staged_files(local)
        with pytest.raises(StopIteration):
            next(steps)
        assert not staged_files(local)


# Files that are damaged or gone


def test_what_was_staged_is_there_after_a_restart_and_can_be_added_to(local):
    stage(local, [b"a"])
    crash(local)
    assert stage(local, [b"a"]).batches_count == 1
    assert stage(local, [b"b"], sequence=1).batches_count == 2
    local.reopen()
    commit(local, parts=[(0, 0, 2)])
    assert content(local) == [b"a", b"b"]


def test_a_batch_that_did_not_survive_makes_the_commit_fail(local):
    stage(local, [b"a"])
    stage(local, [b"b"], sequence=1)
    (path,) = staged_files(local)
    flip_bit(path, path.stat().st_size - 1)
    crash(local)
    with pytest.raises(EpochMismatch):
        commit(local, parts=[(0, 0, 2)])
    assert stage(local, [b"b"], sequence=1).batches_count == 2
    commit(local, parts=[(0, 0, 2)])
    assert content(local) == [b"a", b"b"]


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped at run time", "no directory"])
def test_a_decided_epoch_with_damaged_files_is_applied_as_far_as_possible_and_reported(local, damage):
    stage(local, [b"0"], task=0)
    stage(local, [b"1a"], task=1)
    stage(local, [b"1b"], task=1, sequence=1)
    steps = begin(local, commit_of(parts=[(0, 0, 1), (1, 0, 2)])).steps
    if damage != "flipped at run time":
        local.broker.settings = _with_fsync(local.broker.settings)
        next(steps)  # decided
    path = next(each for each in staged_files(local) if each.name == "1-0.staged")
    expected = [b"0"]
    if damage == "missing":
        path.unlink()
    elif damage == "no directory":
        shutil.rmtree(path.parent)
        expected = []
    else:
        flip_bit(path, path.stat().st_size - 1)
        expected.append(b"1a")
    if damage == "flipped at run time":
        run_at_once(steps)
    else:
        steps.close()
        crash(local)
    assert content(local) == expected
    assert [event for level, event, _ in local.events.seen if level == "error" and "lost" in event]
    assert commit(local, parts=[(0, 0, 1), (1, 0, 2)]).is_repeated


# At random, against a model


class Model:
    def __init__(self):
        self.logs = [[], []]
        self.staged = {}  # (epoch, task, attempt) -> [(partition, payload)]
        self.last = None

    def commit(self, epoch, chosen):
        if self.last is not None and epoch <= self.last:
            return
        for task, attempt in sorted(chosen):
            for partition, payload in self.staged.get((epoch, task, attempt), []):
                self.logs[partition].append(payload)
        self.last = epoch
        self.drop(lambda staged: staged <= epoch)

    def drop(self, is_due):
        self.staged = {key: value for key, value in self.staged.items() if not is_due(key[0])}


small = st.integers(0, 2)
operation = st.one_of(
    st.tuples(st.just("stage"), st.integers(1, 4), st.integers(0, 1), small, st.integers(0, 1)),
    st.tuples(st.just("commit"), st.integers(1, 4), st.tuples(small, small), st.integers(-25, 60)),
    st.tuples(st.just("abort"), st.integers(1, 4)),
    st.tuples(st.just("send"), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.booleans()),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=st.lists(operation, min_size=5, max_size=30))
def test_any_order_of_stages_commits_aborts_and_crashes_is_as_the_model_says(
    operations, tmp_path_factory, monkeypatch
):
    home = tmp_path_factory.mktemp("model")
    local = LocalBroker(home / "data", metadata_fsync=False)
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 2, "t"))
    model = Model()
    try:
        for number, (kind, *how) in enumerate(operations):
            if kind == "stage":
                _stage(local, model, *how)
            elif kind == "commit":
                _commit(local, model, home / f"image {number}", monkeypatch, *how)
            elif kind == "abort":
                ask(local, rq.AbortEpoch("s", "t", "p", how[0]))
                model.drop(lambda epoch, dropped=how[0]: epoch == dropped)
            elif kind == "send":
                local.send("s", "t", [b"x"], how[0])
                model.logs[how[0]].append(b"x")
            elif how[0]:
                crash(local)
            else:
                local.reopen()
            assert [content(local, partition) for partition in range(2)] == model.logs
            last = last_epoch(local)
            assert (last.epoch if last is not None else None) == model.last
        assert local.broker.transactions.staged.batches_count == sum(map(len, model.staged.values()))
    finally:
        local.close()
        shutil.rmtree(home)


def _stage(local, model, epoch, task, attempt, partition):
    batches = model.staged.get((epoch, task, attempt), [])
    # Some contents are equal on purpose.
    payload = b"x" if len(batches) % 2 else f"{epoch}.{task}.{attempt}.{len(batches)}".encode()
    where = {"epoch": epoch, "task": task, "attempt": attempt, "sequence": len(batches)}
    reply = stage(local, [payload], partition=partition, **where)
    assert reply.is_committed == (model.last is not None and epoch <= model.last)
    if not reply.is_committed:
        model.staged[epoch, task, attempt] = [*batches, (partition, payload)]


def _commit(local, model, image, monkeypatch, epoch, attempts, crash_at):
    """Commit an attempt at each task; the broker is killed at change number `crash_at`, if that is one."""
    chosen = [(task, attempt) for task, attempt in enumerate(attempts)]
    parts = [(task, attempt, len(model.staged.get((epoch, task, attempt), []))) for task, attempt in chosen]
    request = commit_of(epoch, parts)
    if crash_at < 0:
        conclude(local, begin(local, request))
    else:
        camera = Camera(local.path, image)
        camera.limit = crash_at
        with camera.on(monkeypatch):
            conclude(local, begin(local, request))
        taken = image / str(crash_at)
        crash(local, taken if taken.exists() else None)
        last = last_epoch(local)
        if last is None or last.epoch < epoch:
            assert [content(local, partition) for partition in range(2)] == model.logs
            conclude(local, begin(local, request))
    model.commit(epoch, chosen)
