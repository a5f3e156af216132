"""Sends, polls and offsets in the broker, against a model and against a disk that fails."""

import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh32_intdigest

from borzoi.broker import messages
from borzoi.broker.handlers import Context, handle
from borzoi.broker.pending import AfterSync
from borzoi.log import files
from borzoi.log.index import RUN_BYTES
from borzoi.log.reader import LogDamaged
from borzoi.model import requests as rq
from borzoi.model.access import Access
from borzoi.model.errors import (
    BorzoiError,
    ConsumerOffsetNotFound,
    InvalidOffset,
    PartitionNotFound,
    RemoteProtocolError,
    ResourceNotFound,
    StreamIdNotFound,
    TooManyConsumerOffsets,
    TopicIdNotFound,
)
from borzoi.model.values import (
    FENCED_PARTITION_ID,
    Consumer,
    ConsumerKind,
    HeaderKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    TypedValue,
)
from support.in_process import (
    NOW_US,
    SECOND_US,
    LocalBroker,
    carry_out,
    numbered,
    payloads,
    send_request,
)
from support.logs import flip_bit, log_files

CONSUMER = Consumer(ConsumerKind.CONSUMER, "c")
GROUP = Consumer(ConsumerKind.GROUP, "g")
PERSISTED = TypedValue(HeaderKind.STRING, b"persisted")


@pytest.fixture
def local(tmp_path):
    with LocalBroker(tmp_path / "data") as broker:
        broker.ask(rq.CreateStream("s"))
        broker.ask(rq.CreateTopic("s", 3, "t"))
        yield broker


def send(local, partitioning, data=b"x"):
    request = send_request("s", "t", [data])
    (stored,) = local.ask(rq.SendMessages("s", "t", partitioning, 1, request.batch))
    return stored.partition_id


# Where messages go


def test_balanced_sends_take_turns_over_the_partitions(local):
    balanced = Partitioning(PartitioningKind.BALANCED)
    assert [send(local, balanced) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    local.ask(rq.DeletePartitions("s", "t", 1))
    assert sorted(send(local, balanced) for _ in range(4)) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        (b"a", 1426945110),
        (b"abc", 852579327),
        (b"alpha", 1409586120),
        (b"beta", 2623403401),
        (b"hello world", 3468387874),
        (b"0123456789abcdef0123", 1666225742),
    ],
)
def test_a_key_always_leads_to_the_partition_that_clients_compute_too(local, key, digest):
    assert xxh32_intdigest(key) == digest
    assert send(local, Partitioning(PartitioningKind.MESSAGES_KEY, key)) == digest % 3


@pytest.mark.parametrize(
    "request_",
    [
        send_request("missing", "t", [b"x"]),
        send_request("s", "missing", [b"x"]),
        send_request("s", "t", [b"x"], 3),
        send_request("s", "empty", [b"x"], 0),
        send_request("s", "empty", [b"x"], None),
        rq.StoreConsumerOffset(CONSUMER, "missing", "t", 0, 0),
        rq.StoreConsumerOffset(CONSUMER, "s", "missing", 0, 0),
        rq.StoreConsumerOffset(CONSUMER, "s", "t", 3, 0),
        rq.StoreConsumerOffset(GROUP, "s", "t", 0, 0),
        rq.DeleteConsumerOffset(CONSUMER, "s", "t", 3),
        rq.DeleteConsumerOffset(GROUP, "s", "t", 0),
    ],
)
def test_writes_to_what_is_missing_are_not_found(local, request_):
    local.ask(rq.CreateTopic("s", 0, "empty"))
    with pytest.raises(ResourceNotFound):
        local.ask(request_)


def test_polls_of_what_is_missing_say_what(local):
    for (stream, topic, partition), error in (
        (("missing", "t", 0), StreamIdNotFound),
        (("s", "missing", 0), TopicIdNotFound),
        (("s", "t", 3), PartitionNotFound),
    ):
        with pytest.raises(error):
            local.poll(stream, topic, partition=partition)
    with pytest.raises(PartitionNotFound):
        local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 3))
    assert local.ask(rq.GetConsumerOffset(GROUP, "s", "t", 0)) is None
    assert payloads(local.poll("s", "t", partition=None)) == []


# Polls against a model


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_polls_serve_what_a_list_would(tmp_path_factory, data):
    with LocalBroker(tmp_path_factory.mktemp("poll") / "data") as local:
        local.ask(rq.CreateStream("s"))
        local.ask(rq.CreateTopic("s", 1, "t"))
        model: list[tuple[int, bytes]] = []  # broker time and payload, by offset
        stored: dict[str, int] = {}
        for step in range(data.draw(st.integers(1, 25))):
            if data.draw(st.booleans()):
                local.now_us += data.draw(st.integers(0, 3))
                batch = [b"%d-%d" % (step, index) for index in range(data.draw(st.integers(1, 5)))]
                local.send("s", "t", batch)
                model += [(local.now_us, payload) for payload in batch]
                continue
            kind = data.draw(st.sampled_from(PollingKind))
            count = data.draw(st.integers(0, 8))
            consumer = data.draw(st.sampled_from(["a", "b"]))
            if kind is PollingKind.TIMESTAMP:
                value = NOW_US + data.draw(st.integers(-2, 40))
            else:
                value = data.draw(st.integers(0, len(model) + 3))
            auto_commit = data.draw(st.booleans())
            start = {
                PollingKind.OFFSET: value,
                PollingKind.FIRST: 0,
                PollingKind.LAST: max(0, len(model) - count),
                PollingKind.NEXT: stored.get(consumer, -1) + 1,
                PollingKind.TIMESTAMP: next(
                    (offset for offset, (time, _) in enumerate(model) if time >= value), len(model)
                ),
            }[kind]
            expected = [(offset, model[offset][1]) for offset in range(start, min(len(model), start + count))]
            polled = local.poll(
                "s", "t", kind=kind, value=value, count=count, consumer=consumer, auto_commit=auto_commit
            )
            assert numbered(polled) == expected
            assert polled.current_offset == max(0, len(model) - 1)
            if expected and auto_commit:
                stored[consumer] = max(stored.get(consumer, -1), expected[-1][0])
            found = local.ask(rq.GetConsumerOffset(Consumer(ConsumerKind.CONSUMER, consumer), "s", "t", 0))
            assert (None if found is None else found.stored_offset) == stored.get(consumer)


def test_broker_times_never_go_back(local):
    local.send("s", "t", [b"a"])
    local.now_us -= 10 * SECOND_US
    local.send("s", "t", [b"b"])
    polled = local.poll("s", "t", kind=PollingKind.TIMESTAMP, value=NOW_US)
    assert payloads(polled) == [b"a", b"b"]


# Offsets


def test_an_offset_beyond_the_end_is_refused(local):
    with pytest.raises(InvalidOffset):
        local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0))
    local.send("s", "t", [b"a", b"b"])
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 1))
    with pytest.raises(InvalidOffset):
        local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 2))
    found = local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 0))
    assert (found.partition_id, found.current_offset, found.stored_offset) == (0, 1, 1)


def test_a_stored_offset_may_go_back_but_auto_commit_does_not(local):
    local.send("s", "t", [b"%d" % number for number in range(10)])
    local.poll("s", "t", consumer="c", value=5, count=5, auto_commit=True)
    local.poll("s", "t", consumer="c", value=0, count=3, auto_commit=True)
    assert local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 0)).stored_offset == 9
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 2))
    assert local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 0)).stored_offset == 2


def test_an_offset_that_is_not_there_cannot_be_deleted(local):
    local.send("s", "t", [b"a"])
    with pytest.raises(ConsumerOffsetNotFound):
        local.ask(rq.DeleteConsumerOffset(CONSUMER, "s", "t", 0))
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0))
    local.ask(rq.DeleteConsumerOffset(CONSUMER, "s", "t", 0))
    with pytest.raises(ConsumerOffsetNotFound):
        local.ask(rq.DeleteConsumerOffset(CONSUMER, "s", "t", 0))


def test_consumers_by_number_and_by_name_and_groups_do_not_share_offsets(local):
    local.ask(rq.CreateConsumerGroup("s", "t", "1"))
    local.ask(rq.JoinConsumerGroup("s", "t", "1"))
    local.send("s", "t", [b"a", b"b", b"c", b"d"])
    who = [Consumer(kind, name) for kind in ConsumerKind for name in (0, "1")]
    for offset, consumer in enumerate(who[:3]):
        local.ask(rq.StoreConsumerOffset(consumer, "s", "t", 0, offset))
    local.reopen()
    found = [local.ask(rq.GetConsumerOffset(consumer, "s", "t", 0)).stored_offset for consumer in who]
    assert found == [0, 1, 2, 2]  # the group by its id and by its name is one


def test_a_partition_keeps_a_bounded_number_of_offsets(local, monkeypatch):
    monkeypatch.setattr("borzoi.log.offsets.CONSUMER_OFFSETS_PER_PARTITION_MAX", 3)
    local.send("s", "t", [b"a"])
    for number in range(3):
        local.ask(rq.StoreConsumerOffset(Consumer(ConsumerKind.CONSUMER, number), "s", "t", 0, 0))
    with pytest.raises(TooManyConsumerOffsets):
        local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0))


# Groups


def test_a_group_member_polls_and_commits_only_what_is_its_own(local):
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    members = [local.log_in() for _ in range(2)]
    for member in members:
        local.ask(rq.JoinConsumerGroup("s", "t", "g"), member)
    for partition in range(3):
        local.send("s", "t", [b"%d" % partition], partition)
    assigned = [local.ask(rq.SyncConsumerGroup("s", "t", "g"), member).partitions for member in members]
    assert sorted(assigned[0] + assigned[1]) == [0, 1, 2]
    for partition in range(3):
        for member, own in zip(members, assigned, strict=True):
            polled = local.poll("s", "t", member, partition=partition, group="g")
            if partition in own:
                assert payloads(polled) == [b"%d" % partition]
                local.ask(rq.StoreConsumerOffset(GROUP, "s", "t", partition, 0), member)
            else:
                assert (polled.partition_id, polled.messages_count) == (FENCED_PARTITION_ID, 0)
                with pytest.raises(ResourceNotFound):
                    local.ask(rq.StoreConsumerOffset(GROUP, "s", "t", partition, 0), member)
    stranger = local.log_in()
    assert local.poll("s", "t", stranger, partition=0, group="g").partition_id == FENCED_PARTITION_ID
    assert local.ask(rq.SyncConsumerGroup("s", "t", "g"), stranger) is None
    # Reading a group's offset needs no membership.
    assert local.ask(rq.GetConsumerOffset(GROUP, "s", "t", 0), stranger).stored_offset == 0


def test_a_partition_moves_when_its_owner_has_committed_what_it_polled(local):
    local.ask(rq.CreateTopic("s", 2, "u"))
    local.ask(rq.CreateConsumerGroup("s", "u", "g"))
    first, second = local.log_in(), local.log_in()
    local.ask(rq.JoinConsumerGroup("s", "u", "g"), first)
    for partition in range(2):
        local.send("s", "u", [b"x"], partition)
        local.poll("s", "u", first, partition=partition, group="g")
    local.ask(rq.JoinConsumerGroup("s", "u", "g"), second)
    assert local.ask(rq.SyncConsumerGroup("s", "u", "g"), second).partitions == ()
    moving = ({0, 1} - set(local.ask(rq.SyncConsumerGroup("s", "u", "g"), first).partitions)).pop()
    local.ask(rq.StoreConsumerOffset(GROUP, "s", "u", moving, 0), first)
    assert local.ask(rq.SyncConsumerGroup("s", "u", "g"), second).partitions == (moving,)
    polled = local.poll("s", "u", second, partition=moving, group="g", kind=PollingKind.NEXT)
    assert (polled.partition_id, polled.messages_count) == (moving, 0)


def test_group_offsets_survive_their_members_and_a_restart(local):
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    member = local.log_in()
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), member)
    local.send("s", "t", [b"a", b"b"])
    local.poll("s", "t", member, group="g", count=1, auto_commit=True)
    local.reopen()
    member = local.log_in()
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), member)
    assert payloads(local.poll("s", "t", member, group="g", kind=PollingKind.NEXT)) == [b"b"]


# Failing disks


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_answered_and_the_server_goes_on(local, monkeypatch):
    local.send("s", "t", [b"before"])
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "pwrite", full_disk)
        for attempt in (
            lambda: local.send("s", "t", [b"lost"]),
            lambda: local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0)),
            lambda: local.poll("s", "t", consumer="other", auto_commit=True),
            lambda: local.ask(rq.DeleteConsumerOffset(CONSUMER, "s", "t", 0)),
        ):
            with pytest.raises(BorzoiError) as refused:
                attempt()
            assert refused.value.retryable
            assert "No space left" in refused.value.detail
        assert payloads(local.poll("s", "t")) == [b"before"]  # reading needs no space
    (stored,) = local.send("s", "t", [b"after"])
    assert stored.base_offset == 1
    local.reopen()
    assert payloads(local.poll("s", "t")) == [b"before", b"after"]
    assert local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 0)).stored_offset == 0


def test_a_disk_that_fills_up_in_the_middle_of_a_batch_leaves_nothing_of_it(local, monkeypatch):
    local.send("s", "t", [b"before"])
    real = os.pwrite
    written = []

    def half(fd, data, position):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(position)
        return real(fd, bytes(data)[: len(data) // 2], position)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "pwrite", half)
        with pytest.raises(BorzoiError):
            local.send("s", "t", [b"torn" * 100])
    local.send("s", "t", [b"after"])
    assert payloads(local.poll("s", "t")) == [b"before", b"after"]
    local.reopen()
    assert payloads(local.poll("s", "t")) == [b"before", b"after"]
    assert not local.events.of("log repaired")


def test_damaged_messages_are_not_served_and_the_others_are(local):
    for partition in range(2):
        for payload in (b"first" * 20, b"second" * 20, b"third" * 20):
            local.send("s", "t", [payload], partition)
    (log,) = log_files(local.directory.partition(0, 0, 0))
    flip_bit(log, log.read_bytes().index(b"second"))
    assert payloads(local.poll("s", "t", partition=0)) == [b"first" * 20]
    with pytest.raises(LogDamaged) as refused:
        local.poll("s", "t", partition=0, value=1)
    assert refused.value.code == 4039
    (reported,) = local.events.of("damaged data not served")
    assert (reported["path"], reported["offset"]) == (str(log), 1)
    assert local.poll("s", "t", partition=1).messages_count == 3
    local.send("s", "t", [bytes(2 * RUN_BYTES)], 0)
    local.send("s", "t", [b"last"], 0)  # what can be written is written, and behind the damage read
    assert payloads(local.poll("s", "t", partition=0, kind=PollingKind.LAST, count=1)) == [b"last"]


def test_a_log_that_disappears_is_an_error_and_not_an_empty_topic(local):
    local.send("s", "t", [b"x" * 100_000])
    local.broker.files.close_all()
    for file in log_files(local.directory.partition(0, 0, 0)):
        file.unlink()
    with pytest.raises(BorzoiError) as refused:
        local.poll("s", "t")
    assert refused.value.retryable
    assert local.events.of("read failed")


# Durability


def count_syncs(monkeypatch):
    done = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (done.append(fd), real(fd)))
    return done


def waits(local, topic, payload=b"x", count=1):
    """Whether the answer to a send waits for the device; the wait is then done."""
    request = send_request("s", topic, [payload] * count)
    reply = handle(Context(local.broker, local.root, Access.SEND, local.now_us), request)
    is_waiting = isinstance(reply, AfterSync)
    if is_waiting:
        carry_out(local.broker, reply)
    return is_waiting


def test_by_default_no_send_waits_for_the_device(local, monkeypatch):
    done = count_syncs(monkeypatch)
    assert not any(waits(local, "t") for _ in range(2000))
    assert done == []


def test_with_fsync_enforced_every_nth_message_waits(tmp_path, monkeypatch):
    with LocalBroker(tmp_path / "data", enforce_fsync=True, messages_required_to_save=5) as local:
        local.ask(rq.CreateStream("s"))
        local.ask(rq.CreateTopic("s", 1, "t"))
        done = count_syncs(monkeypatch)
        assert [waits(local, "t") for _ in range(10)] == [False] * 4 + [True] + [False] * 4 + [True]
        assert waits(local, "t", count=7)
        assert len(done) == 3


def test_with_fsync_enforced_so_many_bytes_wait(tmp_path):
    with LocalBroker(tmp_path / "data", enforce_fsync=True, bytes_required_to_save=10_000) as local:
        local.ask(rq.CreateStream("s"))
        local.ask(rq.CreateTopic("s", 1, "t"))
        assert [waits(local, "t", b"x" * 4000) for _ in range(6)] == [False, False, True] * 2


def test_a_topic_may_ask_for_the_device_by_itself(local, monkeypatch):
    local.ask(rq.CreateTopic("s", 1, "safe", {"durability": PERSISTED}))
    done = count_syncs(monkeypatch)
    assert all(waits(local, "safe") for _ in range(3))
    assert len(done) == 3
    assert not waits(local, "t")


def test_offsets_may_ask_for_the_device_too(local, monkeypatch):
    local.ask(rq.CreateTopic("s", 1, "safe", {"consumer_offset_durability": PERSISTED}))
    local.send("s", "safe", [b"a", b"b"])
    local.send("s", "t", [b"a", b"b"])
    done = count_syncs(monkeypatch)
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0))
    local.poll("s", "t", auto_commit=True)
    assert done == []
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "safe", 0, 0))
    assert len(done) == 1
    assert payloads(local.poll("s", "safe", auto_commit=True)) == [b"a", b"b"]
    assert len(done) == 2


def test_flushing_waits_for_the_device_if_asked_to(local, monkeypatch):
    local.send("s", "t", [b"x"])
    done = count_syncs(monkeypatch)
    local.ask(rq.FlushUnsavedBuffer("s", "t", 0, fsync=False))
    assert done == []
    local.ask(rq.FlushUnsavedBuffer("s", "t", 0, fsync=True))
    assert done
    done.clear()
    local.ask(rq.FlushUnsavedBuffer("s", "t", 0, fsync=True))  # nothing new to bring there
    assert done == []
    with pytest.raises(PartitionNotFound):
        local.ask(rq.FlushUnsavedBuffer("s", "t", 3, fsync=True))


def test_messages_that_outlive_a_power_loss_are_checked_one_by_one(local):
    """Recovery may have to trust the checksum of a message, so a wrong one is not let in."""
    local.ask(rq.CreateTopic("s", 1, "safe", {"durability": PERSISTED}))
    good = send_request("s", "safe", [b"payload"])
    bad = bytearray(good.batch)
    bad[-1] ^= 1
    with pytest.raises(RemoteProtocolError) as refused:
        local.ask(rq.SendMessages("s", "safe", good.partitioning, 1, bad))
    assert refused.value.code == 4027
    local.ask(good)


# Deduplication


def test_messages_seen_before_are_stored_once(tmp_path):
    with LocalBroker(tmp_path / "data", dedup_entries=100, dedup_expiry_us=10 * SECOND_US) as local:
        local.ask(rq.CreateStream("s"))
        local.ask(rq.CreateTopic("s", 2, "t"))
        (first,) = local.send("s", "t", [b"a", b"b"], ids=[1, 2])
        assert local.send("s", "t", [b"a", b"b"], ids=[1, 2]) == ()
        (third,) = local.send("s", "t", [b"b", b"c"], ids=[2, 3])
        assert (first.base_offset, third.base_offset) == (0, 2)
        assert payloads(local.poll("s", "t")) == [b"a", b"b", b"c"]
        local.send("s", "t", [b"a"], 1, ids=[1])  # another partition knows nothing of it
        assert payloads(local.poll("s", "t", partition=1)) == [b"a"]
        local.send("s", "t", [b"no id", b"no id"])
        assert local.poll("s", "t").messages_count == 5
        local.reopen()
        assert local.send("s", "t", [b"a"], ids=[1]) == ()
        local.now_us += 10 * SECOND_US
        assert len(local.send("s", "t", [b"again"], ids=[1])) == 1
        local.ask(rq.PurgeTopic("s", "t"))
        assert len(local.send("s", "t", [b"anew"], ids=[1])) == 1


def test_a_message_that_could_not_be_stored_is_not_taken_for_seen(tmp_path, monkeypatch):
    with LocalBroker(tmp_path / "data", dedup_entries=100) as local:
        local.ask(rq.CreateStream("s"))
        local.ask(rq.CreateTopic("s", 1, "t"))
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "pwrite", full_disk)
            with pytest.raises(BorzoiError):
                local.send("s", "t", [b"a"], ids=[1])
        assert len(local.send("s", "t", [b"a"], ids=[1])) == 1


def test_routes_go_stale_with_the_metadata(local):
    route = messages.resolve_send(local.broker, local.root, "s", "t", Partitioning(PartitioningKind.BALANCED))
    assert route.version == local.broker.metadata.version
    local.ask(rq.DeletePartitions("s", "t", 1))
    assert route.version != local.broker.metadata.version
