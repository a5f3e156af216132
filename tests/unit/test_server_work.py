"""What the server does besides answering: syncs, threads, chores; and how failures there reach clients."""

import asyncio
import errno
import logging
import os
import socket
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from borzoi.broker.handlers import Context, handle
from borzoi.broker.pending import AfterSync, OnThread
from borzoi.log import files
from borzoi.log.sync import SyncJob
from borzoi.model import requests as rq
from borzoi.model.access import Access
from borzoi.model.errors import (
    BorzoiError,
    CannotAppendMessage,
    CannotSyncFile,
    CannotWriteToFile,
    Error,
    IoError,
    StreamIdNotFound,
)
from borzoi.model.values import Consumer, ConsumerKind, HeaderKind, TypedValue, UserStatus
from borzoi.server import maintenance
from borzoi.server.logs import LineFormatter
from borzoi.server.waiting import Worker
from support.in_process import LocalBroker, LocalServer, eventually, payloads, poll_request, send_request
from support.wire_client import Evicted, WireClient

CONSUMER = Consumer(ConsumerKind.CONSUMER, "c")
PERSISTED = {
    "durability": TypedValue(HeaderKind.STRING, b"persisted"),
    "consumer_offset_durability": TypedValue(HeaderKind.STRING, b"persisted"),
}


def failing(number):
    def fail(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def local(tmp_path):
    with LocalBroker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
async def worker(local):
    running = Worker(local.broker, asyncio.get_running_loop())
    yield running
    await asyncio.to_thread(running.close)


async def outcome_of(worker, pending):
    done = asyncio.get_running_loop().create_future()
    worker.start(pending, done.set_result)
    return await asyncio.wait_for(done, 10)


# The worker


async def test_a_reply_waits_for_its_thread(worker):
    thread = OnThread(threading.get_ident, lambda ident: ident)
    assert await outcome_of(worker, thread) != threading.get_ident()


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (StreamIdNotFound("s"), StreamIdNotFound),
        (OSError(errno.EIO, "broken"), IoError),
        (ZeroDivisionError("ours"), Error),
    ],
    ids=["expected", "disk", "fault"],
)
async def test_what_goes_wrong_on_a_thread_is_answered(worker, local, error, answered):
    def fail(*_):
        raise error

    assert type(await outcome_of(worker, OnThread(fail, lambda reply: reply))) is answered
    assert type(await outcome_of(worker, OnThread(lambda: 0, fail))) is answered
    if answered is Error:
        assert len(local.events.of("request failed unexpectedly")) == 2


async def test_a_reply_to_a_change_made_after_a_thread_waits_for_the_device_too(worker, local):
    synced = []
    real = local.broker.metadata.journal.sync_job

    def sync_job():
        job = real()
        synced.append(job)
        return job

    local.broker.metadata.journal.sync_job = sync_job
    context = Context(local.broker, local.root, Access.MANAGE_USERS, local.now_us)
    pending = handle(context, rq.CreateUser("user", "secret", UserStatus.ACTIVE, None))
    created = await outcome_of(worker, pending)
    assert created.user.username == "user"
    assert len(synced) == 1


def job_on(path, finish=lambda error: error):
    return SyncJob(str(path), lambda: [os.open(path, os.O_RDWR | os.O_CREAT)], finish)


async def test_a_reply_waits_for_its_sync_and_a_failed_one_is_an_error(worker, local, tmp_path, monkeypatch):
    assert await outcome_of(worker, AfterSync("reply", [])) == "reply"
    assert await outcome_of(worker, AfterSync("reply", [job_on(tmp_path / "file")])) == "reply"
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    assert type(await outcome_of(worker, AfterSync("reply", [job_on(tmp_path / "file")]))) is CannotSyncFile
    assert local.events.of("sync failed")


async def test_a_file_that_cannot_be_opened_for_a_sync_is_an_error(worker, tmp_path):
    job = SyncJob("key", failing(errno.EMFILE), lambda error: error)
    assert type(await outcome_of(worker, AfterSync("reply", [job]))) is CannotSyncFile


async def test_a_fault_in_one_answer_leaves_nobody_else_waiting(worker, local, tmp_path):
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def fault(_reply):
        raise ZeroDivisionError

    job = job_on(tmp_path / "file")
    worker.start(AfterSync("first", [job]), fault)
    worker.start(AfterSync("second", [job]), answered.set_result)
    assert await asyncio.wait_for(answered, 10) == "second"
    assert local.events.of("answer failed unexpectedly")


async def test_background_work_that_fails_is_reported(worker, local):
    done = threading.Event()
    local.broker.background += [failing(errno.EACCES), done.set]
    worker.run_background()
    assert await asyncio.to_thread(done.wait, 10)
    assert local.broker.background == []
    assert eventually(lambda: bool(local.events.of("clean-up failed")))


# Chores


async def test_a_chore_that_fails_is_reported_and_tried_again(local):
    turns = []

    def run(now_us):
        turns.append(now_us)
        raise ZeroDivisionError

    task = asyncio.create_task(maintenance.run(maintenance.Chore("test", 1000, run), local.broker))
    while len(turns) < 3:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert local.events.of("chore failed")[0]["chore"] == "test"


async def test_the_saver_brings_everything_to_the_device_though_one_log_fails(worker, local, monkeypatch):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 3, "t"))
    for partition in range(3):
        local.send("s", "t", [b"x"], partition)
    logs = [partition.log for partition in local.broker.catalog.partitions()]
    real = type(logs[0]).sync_jobs

    def sync_jobs(log, **options):
        if log is logs[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(log, **options)

    monkeypatch.setattr(type(logs[0]), "sync_jobs", sync_jobs)
    maintenance.save(local.broker, worker)
    while any(log.dirty for log in logs[1:]):
        await asyncio.sleep(0.001)
    assert logs[0].dirty
    assert local.events.of("message saver could not sync")
    monkeypatch.undo()
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    local.send("s", "t", [b"y"], 1)
    maintenance.save(local.broker, worker)
    while len(local.events.of("message saver could not sync")) < 2:
        await asyncio.sleep(0.001)
    monkeypatch.undo()
    maintenance.save(local.broker, worker)
    while any(log.dirty for log in logs):
        await asyncio.sleep(0.001)


# Failing disks, as clients see them


@pytest.fixture
def server(tmp_path):
    with LocalServer(tmp_path / "data", {"system.state.enforce_fsync": "true"}) as running:
        running.ask(rq.CreateStream("s"))
        running.ask(rq.CreateTopic("s", 1, "t"))
        running.ask(rq.CreateTopic("s", 1, "safe", PERSISTED))
        yield running
        assert running.events.of("request failed unexpectedly") == []
        assert running.events.of("answer failed unexpectedly") == []


def test_a_full_disk_is_an_answer_and_not_the_end(server, monkeypatch):
    with WireClient(server.port) as client:
        client.register()
        client.request(send_request("s", "t", [b"before"]))
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "pwrite", failing(errno.ENOSPC))
            for request, error in (
                (send_request("s", "t", [b"lost"]), CannotAppendMessage),
                (rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0), CannotWriteToFile),
                (rq.CreateStream("lost"), IoError),
                (rq.CreateTopic("s", 1, "lost"), IoError),
                (rq.CreateUser("lost", "secret", UserStatus.ACTIVE, None), IoError),
                (rq.CreateToken("lost", 0), IoError),
            ):
                with pytest.raises(error) as refused:
                    client.request(request)
                assert refused.value.retryable
            assert payloads(client.request(poll_request("s", "t"))) == [b"before"]
        client.request(send_request("s", "t", [b"after"]))
        client.request(rq.CreateStream("found"))
        assert payloads(client.request(poll_request("s", "t"))) == [b"before", b"after"]
        assert [stream.name for stream in client.request(rq.GetStreams())] == ["s", "found"]
        assert len(client.request(rq.GetUsers())) == 1


def test_a_sync_that_fails_is_not_acknowledged(server, monkeypatch):
    with WireClient(server.port) as client:
        client.register()
        client.request(send_request("s", "safe", [b"before"]))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", failing(errno.EIO))
            for request in (
                send_request("s", "safe", [b"doubtful"]),
                rq.StoreConsumerOffset(CONSUMER, "s", "safe", 0, 0),
                rq.CreateStream("doubtful"),
            ):
                with pytest.raises(CannotSyncFile):
                    client.request(request)
            client.request(send_request("s", "t", [b"does not wait"]))
        client.request(send_request("s", "safe", [b"after"]))
        stored = payloads(client.request(poll_request("s", "safe")))
        assert [stored[0], stored[-1]] == [b"before", b"after"]
        client.request(rq.CreateStream("certain"))


def test_many_producers_share_a_sync(server, monkeypatch):
    """And each is answered after it, not before."""
    done = []
    real = os.fdatasync

    def slow(fd):
        done.append(fd)
        threading.Event().wait(0.02)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    failures = []

    def produce():
        try:
            with WireClient(server.port) as client:
                client.register()
                for _ in range(5):
                    client.request(send_request("s", "safe", [b"x"]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=produce) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert server.call(lambda: server.broker.catalog.topic("s", "safe").messages_count) == 50
    assert 5 <= len(done) < 40


def test_damaged_data_is_an_error_to_its_readers_only(server, tmp_path):
    with WireClient(server.port) as client:
        client.register()
        client.request(send_request("s", "t", [b"damaged" * 10]))
        client.request(send_request("s", "safe", [b"sound"]))
        (log,) = (tmp_path / "data" / "streams" / "0" / "topics" / "0" / "partitions" / "0").glob("*.log")
        data = bytearray(log.read_bytes())
        data[data.index(b"damaged")] ^= 1
        log.write_bytes(data)
        with pytest.raises(BorzoiError) as refused:
            client.request(poll_request("s", "t"))
        assert refused.value.code == 4039
        assert payloads(client.request(poll_request("s", "safe"))) == [b"sound"]


def test_a_fault_in_an_answer_is_answered(tmp_path, monkeypatch):
    with LocalServer(tmp_path / "data") as server, WireClient(server.port, timeout_s=1) as client:
        client.register()

        def fault(*_):
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr("borzoi.wire.vsr.codec.encode_reply", fault)
            for request in (rq.GetStreams(), rq.GetStats()):
                with pytest.raises(Error):
                    client.request(request)
        client.request(rq.GetStats())


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 7)), min_size=1, max_size=4), data=st.data()
)
def test_requests_with_flipped_bits_are_survived(server, flips, data):
    with WireClient(server.port, timeout_s=0.05) as client:
        client.socket.settimeout(5)
        client.register()
        request = data.draw(
            st.sampled_from(
                [
                    send_request("s", "t", [b"x" * 50, b"y"]),
                    poll_request("s", "t", count=5),
                    rq.CreateTopic("s", 1, "new", PERSISTED),
                    rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0),
                    rq.SyncConsumerGroup("s", "t", "g"),
                    rq.GetStream("s"),
                ]
            )
        )
        frame = bytearray(client.frame_of(request))
        for position, bit in flips:
            frame[position % len(frame)] ^= 1 << bit
        client.socket.settimeout(0.03)
        try:
            client.raw(bytes(frame))
            client.receive()
        except (OSError, Evicted, AssertionError):
            pass
    with WireClient(server.port) as bystander:
        bystander.register()
        assert bystander.request(rq.GetStream("s")).stream.name == "s"


def test_a_tls_handshake_that_does_not_come_is_given_up(tmp_path):
    with (
        LocalServer(
            tmp_path / "data", {"tcp.tls.enabled": "true", "limits.login_timeout": "200ms"}
        ) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent,
    ):
        assert silent.recv(1) == b""


# The log of the server itself


def written(event: str, exc_info=None, **fields: object) -> str:
    record = logging.LogRecord("borzoi", logging.INFO, "", 0, event, None, exc_info)
    record.fields = fields
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        (7, "7"),
        (True, "true"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nbreak", r'"line\nbreak"'),
        ("carriage\rreturn", r'"carriage\rreturn"'),
        ("\x1b[2Jcleared", r'"\x1b[2Jcleared"'),
        ("para\u2029graph", r'"para\u2029graph"'),
        ("\x85next", r'"\x85next"'),
        ("naïve", "naïve"),
    ],
)
def test_a_field_stays_on_its_line_whatever_is_in_it(value, shown):
    line = written("an event", field=value)
    assert line.endswith(f"Z info    an event field={shown}")
    assert len(line.splitlines()) == 1


def test_an_unexpected_error_comes_with_its_traceback():
    try:
        raise ZeroDivisionError("ours")
    except ZeroDivisionError:
        text = written("failed", sys.exc_info(), why="no idea")
    first, _, rest = text.partition("\n")
    assert first.endswith('info    failed why="no idea"')
    assert rest.startswith("Traceback")
    assert rest.endswith("ZeroDivisionError: ours")
