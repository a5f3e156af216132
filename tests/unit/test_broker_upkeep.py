"""What the broker does by itself: retention, silent members, overdue rebalances. Time is passed in."""

import errno
import os

import pytest

from borzoi.broker import upkeep
from borzoi.log.segment import Segment
from borzoi.model import requests as rq
from borzoi.model.values import FENCED_PARTITION_ID, HeaderKind, PollingKind, TypedValue
from support.in_process import SECOND_US, LocalBroker, payloads
from support.logs import log_files

MIB = 1 << 20


def u64(number):
    return TypedValue(HeaderKind.UINT64, number.to_bytes(8, "little"))


@pytest.fixture
def local(tmp_path):
    with LocalBroker(tmp_path / "data", segment_bytes=MIB) as broker:
        broker.ask(rq.CreateStream("s"))
        yield broker


def clean(local):
    deleted = upkeep.clean_messages(local.broker, local.now_us)
    local.run_background()
    return deleted


def test_messages_expire_by_segment_and_the_active_one_when_it_is_idle(local):
    local.ask(rq.CreateTopic("s", 1, "t", {"message_expiry": u64(10 * SECOND_US)}))
    for number in range(3):
        local.send("s", "t", [bytes([number]) * MIB])
        local.now_us += SECOND_US
    started_us = local.now_us - 3 * SECOND_US
    local.now_us = started_us + 10 * SECOND_US - 1
    assert clean(local) == 0
    local.now_us += 1
    assert clean(local) == 1
    path = local.directory.partition(0, 0, 0)
    assert [int(file.stem) for file in log_files(path)] == [1, 2]
    local.now_us = started_us + 12 * SECOND_US
    assert clean(local) == 2
    assert local.poll("s", "t", kind=PollingKind.FIRST).messages_count == 0
    assert [int(file.stem) for file in log_files(path)] == [3]  # empty; it carries the next offset
    local.reopen()
    (stored,) = local.send("s", "t", [b"later"])
    assert stored.base_offset == 3
    assert clean(local) == 0


def test_topics_without_an_expiry_keep_everything(local):
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.send("s", "t", [b"old"])
    local.now_us += 10**15
    assert clean(local) == 0
    assert payloads(local.poll("s", "t")) == [b"old"]


def test_an_expiry_that_is_set_later_counts_for_what_is_there(local):
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.send("s", "t", [b"old"])
    local.now_us += 20 * SECOND_US
    local.ask(rq.UpdateTopic("s", "t", "t", {"message_expiry": u64(10 * SECOND_US)}))
    assert clean(local) == 1
    assert local.poll("s", "t").messages_count == 0


def test_a_topic_that_grows_too_large_loses_its_oldest_segments_over_all_partitions(local):
    local.ask(rq.CreateTopic("s", 2, "t", {"max_topic_size": u64(4 * MIB)}))
    for number in range(6):
        local.send("s", "t", [bytes([number]) * MIB], number % 2)
        local.now_us += 1
    assert clean(local) > 0
    details = local.ask(rq.GetTopic("s", "t"))
    assert details.topic.size_bytes < 4 * MIB
    assert [payloads(local.poll("s", "t", partition=number))[-1][0] for number in range(2)] == [4, 5]
    assert local.events.of("segments deleted")


def test_without_leave_to_delete_the_oldest_a_large_topic_stays(tmp_path):
    with LocalBroker(tmp_path / "data", segment_bytes=MIB, delete_oldest_segments=False) as local:
        local.ask(rq.CreateStream("s"))
        local.ask(rq.CreateTopic("s", 1, "t", {"max_topic_size": u64(MIB)}))
        for _ in range(3):
            local.send("s", "t", [bytes(MIB)])
        assert clean(local) == 0


def test_a_full_disk_does_not_stop_retention_from_making_room(local, monkeypatch):
    """Sealing needs a new file, which fails; what is sealed already goes, in every topic."""
    for name in ("t", "u"):
        local.ask(rq.CreateTopic("s", 1, name, {"message_expiry": u64(10 * SECOND_US)}))
        for _ in range(3):
            local.send("s", name, [bytes(MIB)])
    local.now_us += 20 * SECOND_US

    def full_disk(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "create", full_disk)
        assert clean(local) == 4
        assert [len(log_files(local.directory.partition(0, topic, 0))) for topic in (0, 1)] == [1, 1]
    assert len(local.events.of("expired segment not sealed")) == 2
    assert clean(local) == 2
    assert local.poll("s", "u").messages_count == 0


def test_consumers_go_on_with_the_first_message_that_is_left(local):
    local.ask(rq.CreateTopic("s", 1, "t", {"message_expiry": u64(10 * SECOND_US)}))
    local.send("s", "t", [bytes(MIB)])
    local.now_us += 11 * SECOND_US
    local.send("s", "t", [b"fresh"])
    assert clean(local) == 1
    assert payloads(local.poll("s", "t", kind=PollingKind.NEXT)) == [b"fresh"]
    assert payloads(local.poll("s", "t", kind=PollingKind.OFFSET, value=0)) == [b"fresh"]


def group_of_two(local):
    local.ask(rq.CreateTopic("s", 2, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    members = [local.log_in() for _ in range(2)]
    for member in members:
        local.ask(rq.JoinConsumerGroup("s", "t", "g"), member)
    return members


def test_silent_members_are_evicted_after_a_fifth_more_than_the_interval(local):
    silent, alive = group_of_two(local)
    idle = local.log_in()
    limit_us = local.settings.heartbeat_interval_us * 12 // 10
    local.now_us += limit_us
    alive.client.last_seen_us = local.now_us
    assert upkeep.evict_silent_members(local.broker, local.now_us) == 0
    assert upkeep.evict_silent_members(local.broker, local.now_us + 1) == 1
    assert (silent.is_alive, silent.is_evicted) == (False, True)
    assert idle.is_alive  # belongs to no group
    assert local.ask(rq.SyncConsumerGroup("s", "t", "g"), alive).partitions == (0, 1)


def test_without_heartbeats_nobody_is_evicted(tmp_path):
    with LocalBroker(tmp_path / "data", heartbeat_interval_us=0) as local:
        local.ask(rq.CreateStream("s"))
        group_of_two(local)
        assert upkeep.evict_silent_members(local.broker, local.now_us * 2) == 0


def test_a_member_that_does_not_commit_loses_the_partition_in_the_end(local):
    local.ask(rq.CreateTopic("s", 2, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    first, second = local.log_in(), local.log_in()
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), first)
    for partition in range(2):
        local.send("s", "t", [b"x"], partition)
        local.poll("s", "t", first, partition=partition, group="g")
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), second)
    assert local.ask(rq.SyncConsumerGroup("s", "t", "g"), second).partitions == ()
    local.now_us += local.settings.rebalancing_timeout_us - 1
    upkeep.expire_rebalances(local.broker, local.now_us)
    assert local.ask(rq.SyncConsumerGroup("s", "t", "g"), second).partitions == ()
    local.now_us += 1
    upkeep.expire_rebalances(local.broker, local.now_us)
    (moved,) = local.ask(rq.SyncConsumerGroup("s", "t", "g"), second).partitions
    assert payloads(local.poll("s", "t", second, partition=moved, group="g")) == [b"x"]
    assert local.poll("s", "t", first, partition=moved, group="g").partition_id == FENCED_PARTITION_ID


def test_a_client_that_comes_back_replaces_its_old_session(local):
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    old = local.log_in(client_id=42)
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), old)
    new = local.log_in(client_id=42)
    assert (old.is_alive, old.is_evicted) == (False, True)
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), new)
    local.broker.disconnect(old.client, local.now_us)
    assert local.ask(rq.SyncConsumerGroup("s", "t", "g"), new).partitions == (0,)
