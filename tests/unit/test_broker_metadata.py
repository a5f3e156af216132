"""The metadata after a restart is the metadata before it, whatever was done, and however it ended."""

import errno
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.broker import metadata as metadata_module
from borzoi.broker.metadata import MetadataError
from borzoi.log import files
from borzoi.model import requests as rq
from borzoi.model.errors import BorzoiError
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from borzoi.model.values import HeaderKind, TypedValue, UserStatus
from support.in_process import LocalBroker

NAMES = st.sampled_from(["ann", "bob", "cid", "dan"])
IDS = st.one_of(NAMES, st.integers(0, 3))
OPTIONS = st.sampled_from(
    [
        {},
        {"message_expiry": TypedValue(HeaderKind.UINT64, bytes([7] * 8))},
        {"compression_algorithm": TypedValue(HeaderKind.STRING, b"gzip")},
    ]
)
RIGHTS = st.one_of(
    st.none(),
    st.builds(
        Permissions,
        st.builds(GlobalPermissions, read_users=st.booleans()),
        st.dictionaries(
            st.integers(0, 2),
            st.builds(
                StreamPermissions,
                read_stream=st.booleans(),
                topics=st.dictionaries(st.integers(0, 2), st.builds(TopicPermissions), max_size=2),
            ),
            max_size=2,
        ),
    ),
)
COMMANDS = st.one_of(
    st.builds(rq.CreateStream, NAMES),
    st.builds(rq.UpdateStream, IDS, NAMES),
    st.builds(rq.DeleteStream, IDS),
    st.builds(rq.PurgeStream, IDS),
    st.builds(rq.CreateTopic, IDS, st.integers(0, 3), NAMES, OPTIONS),
    st.builds(rq.UpdateTopic, IDS, IDS, NAMES, OPTIONS),
    st.builds(rq.DeleteTopic, IDS, IDS),
    st.builds(rq.PurgeTopic, IDS, IDS),
    st.builds(rq.CreatePartitions, IDS, IDS, st.integers(1, 2)),
    st.builds(rq.DeletePartitions, IDS, IDS, st.integers(1, 2)),
    st.builds(rq.CreateConsumerGroup, IDS, IDS, NAMES),
    st.builds(rq.DeleteConsumerGroup, IDS, IDS, IDS),
    st.builds(rq.CreateUser, NAMES, st.just("secret"), st.sampled_from(UserStatus), RIGHTS),
    st.builds(
        rq.UpdateUser, IDS, st.one_of(st.none(), NAMES), st.one_of(st.none(), st.sampled_from(UserStatus))
    ),
    st.builds(rq.DeleteUser, IDS),
    st.builds(rq.UpdatePermissions, IDS, RIGHTS),
    st.builds(rq.ChangePassword, IDS, st.just("secret"), st.just("secret")),
    st.builds(rq.CreateToken, NAMES, st.sampled_from([0, 10])),
    st.builds(rq.DeleteToken, NAMES),
)


def picture(local: LocalBroker) -> bytes:
    """Everything the metadata holds, in a form that can be compared."""
    broker = local.broker
    events = [*broker.users.to_events(), *broker.catalog.to_events()]
    places = [
        (topic.stream.id, topic.id, partition.id, partition.created_at_us, partition.log.messages_count)
        for topic in broker.catalog.topics()
        for partition in topic.partitions
    ]
    names = [broker.catalog.stream_ids, broker.users._ids, sorted(broker.users._tokens)]
    return msgspec.json.encode([sorted(map(str, events)), sorted(places), names], order="sorted")


@settings(max_examples=120, deadline=None)
@given(
    commands=st.lists(COMMANDS, min_size=5, max_size=60),
    cut=st.integers(0, 40),
    snapshot_every=st.integers(1, 50),
)
def test_reopening_gives_the_same_metadata(tmp_path_factory, commands, cut, snapshot_every):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metadata_module, "SNAPSHOT_EVERY_RECORDS", snapshot_every)
        local = LocalBroker(tmp_path_factory.mktemp("replay") / "data", metadata_fsync=False)
        for number, command in enumerate(commands):
            local.now_us += 1
            try:
                local.ask(command)
            except BorzoiError:
                continue
            if number == cut:
                before = picture(local)
                local.abandon()  # as if killed: only the journal, no snapshot at the end
                local.open()
                assert picture(local) == before
        before = picture(local)
        local.reopen()
        assert picture(local) == before
        local.close()


def test_the_journal_is_replaced_by_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr(metadata_module, "SNAPSHOT_EVERY_RECORDS", 10)
    with LocalBroker(tmp_path / "data", metadata_fsync=False) as local:
        local.broker.metadata._snapshot_after_records = 10
        for number in range(95):
            local.ask(rq.CreateStream(f"s{number}"))
        assert len(list(local.directory.metadata.iterdir())) <= 6
        local.abandon()
        local.open()
        assert len(local.ask(rq.GetStreams())) == 95


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_snapshot_that_cannot_be_written_fails_no_command(tmp_path, monkeypatch):
    """The command's own record is safe; an error would leave it half carried out."""
    with LocalBroker(tmp_path / "data", metadata_fsync=False) as local:
        local.ask(rq.CreateStream("s"))
        local.broker.metadata._snapshot_after_records = 1
        with monkeypatch.context() as patched:
            patched.setattr("borzoi.log.journal.replace_durably", full_disk)
            for number in range(5):
                local.ask(rq.CreateTopic("s", 2, f"t{number}"))
            assert len(local.events.of("damage found")) == 1  # tried again only after many more records
            assert local.ask(rq.GetStats()).partitions_count == 10
            local.close()  # cannot write its snapshot either, and loses nothing
        local.open()
        assert len(local.ask(rq.GetTopics("s"))) == 5


def test_a_record_cut_off_by_a_crash_is_dropped_and_the_rest_is_there(tmp_path):
    local = LocalBroker(tmp_path / "data", metadata_fsync=False)
    local.ask(rq.CreateStream("kept"))
    local.ask(rq.CreateStream("torn"))
    local.abandon()
    (journal,) = local.directory.metadata.glob("journal-*")
    os.truncate(journal, journal.stat().st_size - 3)
    local.open()
    assert [stream.name for stream in local.ask(rq.GetStreams())] == ["kept"]
    assert local.events.of("damage found")
    local.ask(rq.CreateStream("next"))
    local.reopen()
    assert [stream.name for stream in local.ask(rq.GetStreams())] == ["kept", "next"]
    local.close()


def test_records_of_an_unknown_kind_stop_the_start(tmp_path):
    local = LocalBroker(tmp_path / "data")
    local.broker.metadata.journal.append(b'{"type":"FromTheFuture"}')
    local.abandon()
    with pytest.raises(MetadataError, match="written by another version"):
        local.open()


def test_records_that_contradict_the_ones_before_stop_the_start(tmp_path):
    local = LocalBroker(tmp_path / "data")
    local.broker.metadata.journal.append(b'{"type":"StreamDeleted","stream_id":7}')
    local.abandon()
    with pytest.raises(MetadataError, match="does not fit"):
        local.open()


def test_a_change_is_on_the_device_before_it_is_acknowledged(tmp_path, monkeypatch):
    done = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (done.append(fd), real(fd)))
    with LocalBroker(tmp_path / "data") as local:
        for count, request in enumerate(
            (
                rq.CreateStream("s"),
                rq.CreateTopic("s", 1, "t"),
                rq.CreateUser("user", "secret", UserStatus.ACTIVE, None),
                rq.CreateToken("token", 0),
                rq.DeleteStream("s"),
            ),
            1,
        ):
            local.ask(request)
            assert len(done) == count
        local.ask(rq.GetStreams())  # reads wait for nothing
        assert len(done) == 5
    with LocalBroker(tmp_path / "other", metadata_fsync=False) as local:
        done.clear()
        local.ask(rq.CreateStream("s"))
        assert done == []


def test_a_full_disk_leaves_the_journal_usable(tmp_path, monkeypatch):
    with LocalBroker(tmp_path / "data") as local:
        local.ask(rq.CreateStream("a"))
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "pwrite", full_disk)
            with pytest.raises(OSError, match="No space"):
                local.ask(rq.CreateStream("b"))
        local.ask(rq.CreateStream("c"))
        local.abandon()
        local.open()
        assert [stream.name for stream in local.ask(rq.GetStreams())] == ["a", "c"]
