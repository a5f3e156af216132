"""Statistics, support snapshots, the cluster of one."""

import io
import os
import zipfile

import pytest

from borzoi.broker.snapshot import CONFIG_FILE
from borzoi.broker.stats import semver_number
from borzoi.model import requests as rq
from borzoi.model.errors import FeatureUnavailable
from borzoi.model.replies import ClusterNode
from borzoi.model.values import NodeRole, NodeStatus, SnapshotCompression, SnapshotPart
from borzoi.wire.commands import Code
from borzoi.wire.vsr import codec
from support.in_process import SECOND_US, LocalBroker


@pytest.fixture
def local(tmp_path):
    node = ClusterNode("iggy-node", "127.0.0.1", 12345, 0, 0, 0)
    with LocalBroker(tmp_path / "data", version="1.22.333", node=node) as broker:
        broker.ask(rq.CreateStream("s"))
        broker.ask(rq.CreateTopic("s", 2, "t"))
        broker.ask(rq.CreateTopic("s", 1, "u"))
        broker.ask(rq.CreateConsumerGroup("s", "t", "g"))
        broker.send("s", "t", [b"a", b"b"])
        yield broker


def test_statistics_count_what_is_there(local):
    local.now_us += 5 * SECOND_US
    stats = local.ask(rq.GetStats())
    assert stats.process_id == os.getpid()
    assert (stats.streams_count, stats.topics_count, stats.partitions_count) == (1, 2, 3)
    assert (stats.segments_count, stats.messages_count, stats.consumer_groups_count) == (3, 2, 1)
    assert stats.messages_size_bytes == local.ask(rq.GetStream("s")).stream.size_bytes
    assert stats.clients_count == 1
    assert stats.run_time_us == 5 * SECOND_US
    assert stats.start_time_us == local.broker.started_at_us
    assert (stats.server_version, stats.server_semver) == ("1.22.333", 1_022_333)
    assert 0 < stats.memory_usage_bytes < stats.total_memory_bytes
    assert 0 < stats.available_memory_bytes <= stats.total_memory_bytes
    assert 0 < stats.free_disk_bytes <= stats.total_disk_bytes
    assert stats.threads_count >= 1
    assert stats.cpu_usage >= 0
    assert all((stats.hostname, stats.os_name, stats.kernel_version))
    decoded = codec.decode_reply(Code.GET_STATS, codec.encode_reply(Code.GET_STATS, stats))
    assert decoded.messages_size_bytes == stats.messages_size_bytes


@pytest.mark.parametrize(("version", "number"), [("0.9.0", 9000), ("1.2.3-edge.1", 1002003), ("unknown", 0)])
def test_versions_have_a_number(version, number):
    assert semver_number(version) == number


def archive(local, *parts, compression=SnapshotCompression.DEFLATED):
    reply = local.ask(rq.GetSnapshot(compression, parts))
    return zipfile.ZipFile(io.BytesIO(reply.archive))


def test_a_snapshot_holds_the_parts_that_were_asked_for(local):
    config = local.path / CONFIG_FILE
    config.parent.mkdir()
    config.write_text("secret = '***'\n")
    with archive(local, SnapshotPart.ALL) as found:
        assert set(found.namelist()) == {
            "filesystem_overview.txt",
            "process_list.txt",
            "resource_usage.txt",
            "server_logs.txt",
            "server_config.txt",
        }
        assert found.testzip() is None
        assert (
            "streams/0/topics/0/partitions/0/00000000000000000000.log"
            in found.read("filesystem_overview.txt").decode()
        )
        assert str(os.getpid()) in found.read("process_list.txt").decode()
        assert "1.22.333" in found.read("resource_usage.txt").decode()
        assert found.read("server_config.txt").decode() == "secret = '***'\n"
        assert found.read("server_logs.txt")
    with archive(local, SnapshotPart.TEST, SnapshotPart.RESOURCE_USAGE) as found:
        assert set(found.namelist()) == {"test.txt", "resource_usage.txt"}


def test_a_part_that_cannot_be_collected_says_so_and_spoils_no_other(local):
    with archive(local, SnapshotPart.SERVER_CONFIG, SnapshotPart.TEST) as found:
        assert "could not be collected" in found.read("server_config.txt").decode()
        assert found.read("test.txt") == b"test\n"


@pytest.mark.parametrize("compression", SnapshotCompression)
def test_a_snapshot_comes_in_the_compression_asked_for_or_not_at_all(local, compression):
    if compression in {SnapshotCompression.ZSTD, SnapshotCompression.XZ}:
        with pytest.raises(FeatureUnavailable):
            archive(local, SnapshotPart.TEST, compression=compression)
    else:
        with archive(local, SnapshotPart.TEST, compression=compression) as found:
            assert found.read("test.txt") == b"test\n"


def test_the_cluster_has_exactly_one_node(local):
    cluster = local.ask(rq.GetClusterMetadata())
    (node,) = cluster.nodes
    assert (node.tcp_port, node.role, node.status) == (12345, NodeRole.LEADER, NodeStatus.HEALTHY)


def test_ping_is_answered_with_nothing(local):
    assert local.ask(rq.Ping()) is None
