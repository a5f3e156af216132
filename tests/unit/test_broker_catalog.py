"""Streams, topics, partitions, groups: ids, names, what is on disk, and what a restart makes of it."""

import errno
import os
import shutil

import pytest

from borzoi.broker.metadata import MetadataError
from borzoi.log import files
from borzoi.log.directory import DataDirectory
from borzoi.model import requests as rq
from borzoi.model.errors import (
    ConsumerGroupIdNotFound,
    ConsumerGroupMemberNotFound,
    ConsumerGroupNameAlreadyExists,
    InvalidPartitionsCount,
    PartitionNotFound,
    StreamIdNotFound,
    StreamNameAlreadyExists,
    TooManyPartitions,
    TopicIdNotFound,
    TopicNameAlreadyExists,
)
from borzoi.model.limits import PARTITIONS_PER_REQUEST_MAX
from borzoi.model.values import Consumer, ConsumerKind, HeaderKind, PollingKind, TypedValue
from support.in_process import LocalBroker, payloads, send_request
from support.logs import log_files

CONSUMER = Consumer(ConsumerKind.CONSUMER, "c")
SMALL_SEGMENTS = {"segment_size": TypedValue(HeaderKind.UINT64, (1 << 20).to_bytes(8, "little"))}


@pytest.fixture
def local(tmp_path):
    with LocalBroker(tmp_path / "data") as broker:
        yield broker


def partition_path(local, stream=0, topic=0, partition=0):
    return local.directory.partition(stream, topic, partition)


def fill_segments(local, count, stream="s", topic="t", partition=0):
    """So many sealed segments of one message each, and an active one."""
    for number in range(count + 1):
        local.send(stream, topic, [bytes([number]) * (1 << 20)], partition)


# Ids and names


def test_ids_start_at_zero_and_the_lowest_free_one_is_reused(local):
    assert [local.ask(rq.CreateStream(name)).stream.id for name in "abc"] == [0, 1, 2]
    local.ask(rq.DeleteStream("b"))
    local.ask(rq.DeleteStream(0))
    assert [local.ask(rq.CreateStream(name)).stream.id for name in "def"] == [0, 1, 3]
    assert [local.ask(rq.CreateTopic("d", 1, name)).topic.id for name in "xyz"] == [0, 1, 2]
    local.ask(rq.DeleteTopic("d", "x"))
    assert local.ask(rq.CreateTopic("d", 1, "w")).topic.id == 0
    assert local.ask(rq.CreateTopic("e", 1, "x")).topic.id == 0


def test_group_ids_are_never_reused_not_even_after_a_restart(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    assert [local.ask(rq.CreateConsumerGroup("s", "t", name)).group.id for name in "ab"] == [0, 1]
    local.ask(rq.DeleteConsumerGroup("s", "t", "b"))
    local.reopen()
    assert local.ask(rq.CreateConsumerGroup("s", "t", "b")).group.id == 2
    local.ask(rq.DeleteConsumerGroup("s", "t", 2))
    local.reopen()
    assert local.ask(rq.CreateConsumerGroup("s", "t", "c")).group.id == 3


def test_names_are_unique_where_they_belong(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateStream("r"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.CreateTopic("s", 1, "u"))
    local.ask(rq.CreateTopic("r", 1, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    local.ask(rq.CreateConsumerGroup("s", "u", "g"))
    for request, error in (
        (rq.CreateStream("s"), StreamNameAlreadyExists),
        (rq.UpdateStream("r", "s"), StreamNameAlreadyExists),
        (rq.CreateTopic("s", 1, "t"), TopicNameAlreadyExists),
        (rq.UpdateTopic("s", "u", "t"), TopicNameAlreadyExists),
        (rq.CreateConsumerGroup("s", "t", "g"), ConsumerGroupNameAlreadyExists),
    ):
        with pytest.raises(error):
            local.ask(request)


def test_renaming_frees_the_old_name_and_keeps_the_content(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.send("s", "t", [b"kept"])
    local.ask(rq.UpdateStream("s", "s"))  # its own name is no conflict
    local.ask(rq.UpdateStream("s", "new s"))
    local.ask(rq.UpdateTopic(0, "t", "new t"))
    assert local.ask(rq.GetStream("s")) is None
    assert payloads(local.poll("new s", "new t")) == [b"kept"]
    local.ask(rq.CreateStream("s"))
    local.reopen()
    assert payloads(local.poll("new s", "new t")) == [b"kept"]
    assert local.ask(rq.GetStream("s")).stream.id == 1


def test_a_numeric_name_is_not_an_id(local):
    local.ask(rq.CreateStream("1"))
    assert local.ask(rq.GetStream("1")).stream.id == 0
    assert local.ask(rq.GetStream(1)) is None


def test_odd_names_survive_a_restart(local):
    names = ["ä ö\n", "\0", "../../etc", "🐕" * 60, '"quoted\\"']
    for name in names:
        local.ask(rq.CreateStream(name))
        local.ask(rq.CreateTopic(name, 1, name))
    local.reopen()
    assert [stream.name for stream in local.ask(rq.GetStreams())] == names
    assert sorted(path.name for path in local.directory.streams.iterdir()) == ["0", "1", "2", "3", "4"]


# Partitions


@pytest.mark.parametrize("count", [0, PARTITIONS_PER_REQUEST_MAX + 1])
def test_partitions_come_and_go_in_bounded_numbers(local, count):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    for request in (rq.CreatePartitions("s", "t", count), rq.DeletePartitions("s", "t", count)):
        with pytest.raises(TooManyPartitions):
            local.ask(request)


def test_a_topic_has_as_many_partitions_as_were_asked_for(local):
    local.ask(rq.CreateStream("s"))
    with pytest.raises(TooManyPartitions):
        local.ask(rq.CreateTopic("s", PARTITIONS_PER_REQUEST_MAX + 1, "t"))
    assert len(local.ask(rq.CreateTopic("s", PARTITIONS_PER_REQUEST_MAX, "t")).partitions) == 1000
    assert local.ask(rq.CreateTopic("s", 0, "none")).partitions == ()
    local.ask(rq.CreatePartitions("s", "none", 2))
    with pytest.raises(InvalidPartitionsCount):
        local.ask(rq.DeletePartitions("s", "none", 3))
    local.ask(rq.DeletePartitions("s", "none", 2))
    local.reopen()
    assert local.ask(rq.GetTopic("s", "none")).topic.partitions_count == 0


def test_the_highest_partitions_are_deleted_and_new_ones_are_empty(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 3, "t"))
    for partition in range(3):
        local.send("s", "t", [b"%d" % partition], partition)
    local.ask(rq.DeletePartitions("s", "t", 2))
    with pytest.raises(PartitionNotFound):
        local.poll("s", "t", partition=1)
    local.ask(rq.CreatePartitions("s", "t", 1))
    assert local.poll("s", "t", partition=1).messages_count == 0
    assert payloads(local.poll("s", "t", partition=0)) == [b"0"]
    local.reopen()
    assert local.poll("s", "t", partition=1).messages_count == 0
    assert local.ask(rq.GetTopic("s", "t")).topic.messages_count == 1


# Purge and delete


def test_purging_forgets_messages_and_offsets_and_starts_over(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 2, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    local.ask(rq.JoinConsumerGroup("s", "t", "g"))
    local.send("s", "t", [b"a", b"b"])
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 1))
    local.ask(rq.PurgeTopic("s", "t"))
    assert local.ask(rq.GetTopic("s", "t")).topic.messages_count == 0
    assert local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 0)) is None
    assert local.ask(rq.SyncConsumerGroup("s", "t", "g")).partitions == (0, 1)
    (stored,) = local.send("s", "t", [b"new"])
    assert stored.base_offset == 0
    local.run_background()  # of the purge, after the new segment took the old one's name
    local.reopen()
    assert payloads(local.poll("s", "t")) == [b"new"]
    local.ask(rq.PurgeStream("s"))
    local.reopen()
    assert local.poll("s", "t").messages_count == 0


def test_what_is_deleted_is_gone_from_the_disk(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 2, "t"))
    local.ask(rq.CreateTopic("s", 1, "u"))
    local.send("s", "t", [b"x"], 1)
    assert partition_path(local, partition=1).exists()
    local.ask(rq.DeletePartitions("s", "t", 1))
    assert not partition_path(local, partition=1).exists()
    local.ask(rq.DeleteTopic("s", "t"))
    assert not local.directory.topic(0, 0).exists()
    local.ask(rq.DeleteStream("s"))
    assert not local.directory.stream(0).exists()
    local.run_background()
    assert list((local.path / "deleted").iterdir()) == []
    for missing, error in ((rq.DeleteStream("s"), StreamIdNotFound), (rq.PurgeStream(0), StreamIdNotFound)):
        with pytest.raises(error):
            local.ask(missing)


def test_a_deleted_topics_id_starts_empty(local):
    local.ask(rq.CreateStream("s"))
    for _ in range(3):
        local.ask(rq.CreateTopic("s", 1, "t"))
        local.send("s", "t", [b"x"])
        local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 0))
        assert local.poll("s", "t").messages_count == 1
        local.ask(rq.DeleteTopic("s", "t"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    assert local.poll("s", "t").messages_count == 0
    assert local.ask(rq.GetConsumerOffset(CONSUMER, "s", "t", 0)) is None
    local.run_background()
    local.reopen()
    assert local.poll("s", "t").messages_count == 0


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_start(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.send("s", "t", [b"x"])
    local.ask(rq.DeleteStream("s"))
    assert list((local.path / "deleted").iterdir())  # the background work never ran
    local.reopen()
    # A deletion while the leftovers are still being removed finds its place.
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.DeleteStream("s"))
    local.run_background()
    assert list((local.path / "deleted").iterdir()) == []
    assert not local.directory.stream(0).exists()


def test_members_forget_a_deleted_group(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    local.ask(rq.JoinConsumerGroup("s", "t", "g"))
    local.send("s", "t", [b"x"])
    group = Consumer(ConsumerKind.GROUP, "g")
    local.ask(rq.StoreConsumerOffset(group, "s", "t", 0, 0))
    assert local.ask(rq.GetMe()).client.consumer_groups_count == 1
    local.ask(rq.DeleteConsumerGroup("s", "t", "g"))
    assert local.ask(rq.GetMe()).client.consumer_groups_count == 0
    assert local.broker.catalog.topic("s", "t").partitions[0].offsets.lowest() is None
    with pytest.raises(ConsumerGroupIdNotFound):
        local.ask(rq.LeaveConsumerGroup("s", "t", "g"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    assert local.ask(rq.GetConsumerOffset(group, "s", "t", 0)) is None
    with pytest.raises(ConsumerGroupMemberNotFound):
        local.ask(rq.LeaveConsumerGroup("s", "t", "g"))


@pytest.mark.parametrize("request_", [rq.DeleteTopic("s", "t"), rq.DeleteStream("s")])
def test_a_session_that_ends_after_its_group_was_deleted_with_the_topic_harms_nothing(local, request_):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    member = local.log_in()
    local.ask(rq.JoinConsumerGroup("s", "t", "g"), member)
    local.ask(request_)
    assert member.groups == {}
    local.broker.disconnect(member.client, local.now_us)


def test_a_failing_disk_does_not_leave_a_deletion_half_done(local, monkeypatch):
    """The metadata says it is gone, so it is gone for everybody, whatever becomes of the files."""
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    local.ask(rq.JoinConsumerGroup("s", "t", "g"))
    local.send("s", "t", [b"x"])
    local.ask(rq.StoreConsumerOffset(Consumer(ConsumerKind.GROUP, "g"), "s", "t", 0, 0))
    offsets = local.broker.catalog.topic("s", "t").partitions[0].offsets
    failing = OSError(errno.EIO, os.strerror(errno.EIO))
    monkeypatch.setattr(type(offsets), "delete", lambda *_: (_ for _ in ()).throw(failing))
    local.ask(rq.DeleteConsumerGroup("s", "t", "g"))
    assert local.ask(rq.GetConsumerGroups("s", "t")) == ()
    assert local.events.of("offset of a deleted group not removed")
    local.ask(rq.CreateConsumerGroup("s", "t", "h"))
    local.ask(rq.DeleteTopic("s", "t"))
    assert not local.directory.topic(0, 0).exists()


# Segments


def test_segments_are_deleted_only_as_far_as_every_consumer_has_read(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t", SMALL_SEGMENTS))
    fill_segments(local, 4)
    path = partition_path(local)
    assert len(log_files(path)) == 5
    local.ask(rq.StoreConsumerOffset(CONSUMER, "s", "t", 0, 3))
    local.ask(rq.StoreConsumerOffset(Consumer(ConsumerKind.CONSUMER, "slow"), "s", "t", 0, 1))
    local.ask(rq.DeleteSegments("s", "t", 0, 10))
    local.run_background()
    assert [int(file.stem) for file in log_files(path)] == [2, 3, 4]
    assert local.poll("s", "t", kind=PollingKind.FIRST, count=1).messages_count == 1
    local.ask(rq.DeleteConsumerOffset(Consumer(ConsumerKind.CONSUMER, "slow"), "s", "t", 0))
    local.ask(rq.DeleteSegments("s", "t", 0, 1))
    local.run_background()
    assert [int(file.stem) for file in log_files(path)] == [3, 4]
    local.ask(rq.DeleteSegments("s", "t", 0, 10))  # the active one stays
    local.run_background()
    local.reopen()
    assert [int(file.stem) for file in log_files(path)] == [4]
    assert local.ask(rq.GetTopic("s", "t")).partitions[0].messages_count == 1
    (stored,) = local.send("s", "t", [b"next"])
    assert stored.base_offset == 5
    with pytest.raises(PartitionNotFound):
        local.ask(rq.DeleteSegments("s", "t", 1, 1))


def test_segments_without_consumers_may_all_go_but_the_active_one(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t", SMALL_SEGMENTS))
    fill_segments(local, 2)
    local.ask(rq.DeleteSegments("s", "t", 0, 2))
    assert local.ask(rq.GetTopic("s", "t")).partitions[0].segments_count == 1


# Failures while something is made


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_cannot_be_recorded_has_not_happened(local, monkeypatch):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "pwrite", full_disk)
        for request in (
            rq.CreateStream("new"),
            rq.CreateTopic("s", 2, "new"),
            rq.CreatePartitions("s", "t", 2),
            rq.CreateConsumerGroup("s", "t", "g"),
            rq.DeleteTopic("s", "t"),
            rq.UpdateStream("s", "new"),
        ):
            with pytest.raises(OSError, match="No space left"):
                local.ask(request)
    assert not local.directory.topic(0, 1).exists()
    assert not partition_path(local, partition=1).exists()
    assert [topic.name for topic in local.ask(rq.GetTopics("s"))] == ["t"]
    assert local.ask(rq.GetTopic("s", "t")).topic.partitions_count == 1
    local.ask(rq.CreateTopic("s", 2, "new"))
    local.reopen()
    assert [topic.name for topic in local.ask(rq.GetTopics("s"))] == ["t", "new"]


def test_partitions_that_cannot_be_opened_are_not_made(local, monkeypatch):
    """A topic whose logs are not attached would break everything that lists topics."""
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    with monkeypatch.context() as patched:
        patched.setattr("borzoi.broker.broker.open_partition", full_disk)
        with pytest.raises(OSError, match="No space left"):
            local.ask(rq.CreateTopic("s", 1, "new"))
        with pytest.raises(OSError, match="No space left"):
            local.ask(rq.CreatePartitions("s", "t", 1))
    assert [topic.name for topic in local.ask(rq.GetTopics("s"))] == ["t"]
    assert local.ask(rq.GetStats()).partitions_count == 1
    assert not local.directory.topic(0, 1).exists()


def test_directories_are_on_the_device_before_the_metadata_names_them(local, monkeypatch):
    """Or a power loss could leave a topic whose directory is missing, which stops the next start."""
    done = []
    real_sync, real_append = files.sync_directory, local.broker.metadata.journal.append
    monkeypatch.setattr(
        "borzoi.broker.broker.sync_directory", lambda path: (done.append(path.name), real_sync(path))
    )
    monkeypatch.setattr(
        local.broker.metadata.journal, "append", lambda data: (done.append("record"), real_append(data))
    )
    local.ask(rq.CreateStream("s"))
    done.clear()
    local.ask(rq.CreateTopic("s", 2, "t"))
    assert done == ["partitions", "0", "topics", "0", "streams", "record"]


# Missing and unknown directories


def test_a_missing_partition_stops_the_start_and_says_what_to_do(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 2, "t"))
    local.send("s", "t", [b"x"], 0)
    local.close()
    shutil.rmtree(partition_path(local, partition=1))
    with pytest.raises(MetadataError) as refused:
        local.open()
    text = str(refused.value)
    assert str(partition_path(local, partition=1)) in text
    assert "partition 1 of topic t in stream s" in text
    assert "recreate_missing_state" in text
    local.settings = type(local.settings)(recreate_missing_state=True)
    local.open()
    assert payloads(local.poll("s", "t", partition=0)) == [b"x"]
    assert local.poll("s", "t", partition=1).messages_count == 0
    local.send("s", "t", [b"y"], 1)
    assert local.events.of("empty partition created in place of a missing one")


def test_unknown_directories_are_set_aside_and_not_used(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.close()
    for stream, topic, partition in ((0, 0, 1), (0, 3, 0), (5, 0, 0)):
        path = local.directory.partition(stream, topic, partition)
        path.mkdir(parents=True)
        (path / "00000000000000000000.log").write_bytes(b"precious")
    local.open()
    kept = sorted(file.read_bytes() for file in local.directory.orphaned.rglob("*.log"))
    assert kept == [b"precious"] * 3
    assert len(local.events.of("directory without metadata set aside")) == 3
    local.ask(rq.CreatePartitions("s", "t", 1))
    assert local.poll("s", "t", partition=1).messages_count == 0
    assert [stream.id for stream in local.ask(rq.GetStreams())] == [0]


def test_a_directory_found_in_the_way_of_a_new_partition_is_set_aside(local):
    local.ask(rq.CreateStream("s"))
    path = partition_path(local)
    path.mkdir(parents=True)
    (path / "00000000000000000000.log").write_bytes(b"precious")
    local.ask(rq.CreateTopic("s", 1, "t"))
    assert local.poll("s", "t").messages_count == 0
    (kept,) = local.directory.orphaned.rglob("*.log")
    assert kept.read_bytes() == b"precious"


def test_lost_metadata_is_rebuilt_from_what_is_on_disk(local):
    for stream in ("first", "second"):
        local.ask(rq.CreateStream(stream))
        local.ask(rq.CreateTopic(stream, 2, "t"))
        local.send(stream, "t", [stream.encode()], 1)
    local.ask(rq.StoreConsumerOffset(CONSUMER, "second", "t", 1, 0))
    local.close()
    shutil.rmtree(local.directory.metadata)
    local.settings = type(local.settings)(recreate_missing_state=True, root_password="changed")
    local.open()
    assert [stream.name for stream in local.ask(rq.GetStreams())] == ["stream-0", "stream-1"]
    assert payloads(local.poll("stream-1", "topic-0", partition=1)) == [b"second"]
    assert local.ask(rq.GetConsumerOffset(CONSUMER, 1, 0, 1)).stored_offset == 0
    local.ask(rq.UpdateStream(0, "first"))
    local.send("first", "topic-0", [b"more"], 1)
    local.reopen(recreate_missing_state=False)
    assert payloads(local.poll("first", "topic-0", partition=1)) == [b"first", b"more"]


def test_offsets_of_forgotten_groups_are_not_inherited(local):
    """A new group that began where a lost one had been would skip messages."""
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.ask(rq.CreateConsumerGroup("s", "t", "g"))
    local.ask(rq.JoinConsumerGroup("s", "t", "g"))
    local.send("s", "t", [b"x"])
    local.ask(rq.StoreConsumerOffset(Consumer(ConsumerKind.GROUP, "g"), "s", "t", 0, 0))
    local.close()
    shutil.rmtree(local.directory.metadata)
    local.settings = type(local.settings)(recreate_missing_state=True)
    local.open()
    local.ask(rq.CreateConsumerGroup(0, 0, "g"))
    assert local.ask(rq.GetConsumerOffset(Consumer(ConsumerKind.GROUP, "g"), 0, 0, 0)) is None


def test_lost_metadata_without_leave_to_rebuild_loses_no_messages(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 1, "t"))
    local.send("s", "t", [b"precious"])
    local.close()
    shutil.rmtree(local.directory.metadata)
    local.open()
    assert local.ask(rq.GetStreams()) == ()
    (kept,) = local.directory.orphaned.rglob("*.log")
    assert b"precious" in kept.read_bytes()


def test_damaged_metadata_is_set_aside_when_it_may_be_rebuilt(local):
    for name in ("a", "b", "c"):
        local.ask(rq.CreateStream(name))
        local.ask(rq.CreateTopic(name, 1, "t"))
        local.send(name, "t", [name.encode()])
    local.abandon()
    (journal,) = local.directory.metadata.glob("journal-*")
    data = bytearray(journal.read_bytes())
    data[40] ^= 1
    journal.write_bytes(data)
    with pytest.raises(MetadataError, match="recreate_missing_state"):
        local.open()
    local.settings = type(local.settings)(recreate_missing_state=True)
    local.open()
    assert [payloads(local.poll(number, 0)) for number in range(3)] == [[b"a"], [b"b"], [b"c"]]
    assert local.events.of("metadata set aside, to be rebuilt")
    (kept,) = local.directory.orphaned.glob("metadata.*")
    assert (kept / journal.name).read_bytes() == data


def test_made_up_names_avoid_those_taken(local):
    local.ask(rq.CreateStream("stream-1"))
    local.close()
    local.directory.partition(1, 0, 0).mkdir(parents=True)
    local.directory.partition(0, 0, 1).mkdir(parents=True)
    local.settings = type(local.settings)(recreate_missing_state=True)
    local.open()
    assert [stream.name for stream in local.ask(rq.GetStreams())] == ["stream-1", "stream-1-1"]
    assert local.ask(rq.GetTopic(0, 0)).topic.partitions_count == 2


def test_a_second_broker_is_kept_out(local):
    with pytest.raises(Exception, match="in use by another server"):
        DataDirectory(local.path).open()


def test_sizes_and_counts_add_up(local):
    local.ask(rq.CreateStream("s"))
    local.ask(rq.CreateTopic("s", 2, "t"))
    local.ask(rq.CreateTopic("s", 1, "u"))
    batches = [
        send_request("s", topic, [b"x" * 10] * 3, partition)
        for topic, partition in (("t", 0), ("t", 1), ("u", 0))
    ]
    for batch in batches:
        local.ask(batch)
    stream = local.ask(rq.GetStream("s"))
    assert stream.stream.topics_count == 2
    assert stream.stream.messages_count == 9
    assert stream.stream.size_bytes == sum(len(batch.batch) for batch in batches)
    assert stream.stream.size_bytes == sum(topic.size_bytes for topic in stream.topics)
    details = local.ask(rq.GetTopic("s", "t"))
    assert [
        (each.messages_count, each.current_offset, each.segments_count) for each in details.partitions
    ] == [
        (3, 2, 1),
        (3, 2, 1),
    ]
    local.reopen()
    assert local.ask(rq.GetStream("s")) == stream
    with pytest.raises(TopicIdNotFound):
        local.ask(rq.GetConsumerGroups("s", "missing"))
