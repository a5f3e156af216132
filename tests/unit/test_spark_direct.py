"""Reading segment files instead of asking the server: alone, beside it, and from a copy."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark import plan
from borzoi.spark.direct import WrongDirectory
from borzoi.spark.fetch import BrokerFetcher
from borzoi.spark.offsets import resolve
from borzoi.spark.plan import DataLoss, Split
from borzoi.spark.source import fetcher_of
from borzoi.spark.source_options import SourceOptions
from borzoi.spark.source_schema import rows_of, source_schema
from borzoi.spark.topic import topic_of

KB = 1024
SIZE = 20 * KB
pytestmark = pytest.mark.borzoi_settings({"system.segment.size": "1 MiB"})


@pytest.fixture
def topic(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 2)
    for batch in range(60):
        borzoi.send_messages("s", "t", 1, [f"{batch * 5 + n}:".ljust(SIZE, "x") for n in range(5)])
    return borzoi


def options_of(server, path, *, connected=True, **more):
    given = {"stream": "s", "topic": "t", "direct": "true", "dataDirectory": str(path), **more}
    if connected:
        given["connection"] = server.connection_string
    return SourceOptions.of(given), given


def read(options, given, start=0, end=None):
    extent = topic_of(options).extent()
    wanted = {1: (start, extent.partitions[1].next_offset if end is None else end)}
    splits = plan.splits(
        wanted, extent.created_at_us, topic_of(options).extent, split_bytes_max=900 * KB, splits_min=None
    )
    fetcher = fetcher_of(options, rows_of(options, given, source_schema(options)))
    batches = [batch for split in splits for batch in fetcher.fetch(split)]
    return pa.Table.from_batches(batches).select(["offset", "payload"]).to_pydict() if batches else None


def expected(start, end):
    offsets = list(range(start, end))
    return {"offset": offsets, "payload": [f"{n}:".ljust(SIZE, "x").encode() for n in offsets]}


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize(("start", "end"), [(0, 300), (7, 293), (150, 151), (299, 300)])
def test_every_message_once_and_in_order(topic, borzoi_server, connected, start, end):
    options, given = options_of(borzoi_server, borzoi_server.path, connected=connected)
    assert read(options, given, start, end) == expected(start, end)


def test_only_the_tail_is_asked_of_the_server(topic, borzoi_server, monkeypatch):
    options, given = options_of(borzoi_server, borzoi_server.path)
    asked = []
    real = BrokerFetcher.fetch
    monkeypatch.setattr(BrokerFetcher, "fetch", lambda self, split: asked.append(split) or real(self, split))
    assert read(options, given) == expected(0, 300)
    (segments,) = [each.segments_count for each in topic.get_topic("s", "t").partitions if each.id == 1]
    assert segments > 2
    assert [split.end for split in asked] == [300]
    assert asked[0].start > 200


def test_a_copy_of_the_directory_without_any_server(topic, borzoi_server, tmp_path):
    shutil.copytree(borzoi_server.path, tmp_path / "copy")
    topic.delete_stream("s")
    options, given = options_of(borzoi_server, tmp_path / "copy", connected=False)
    assert read(options, given) == expected(0, 300)


def test_what_a_copy_lacks_the_server_has(topic, borzoi_server, tmp_path):
    shutil.copytree(borzoi_server.path, tmp_path / "copy")
    logs = sorted((tmp_path / "copy").rglob("partitions/1/*.log"))
    logs[1].unlink()
    options, given = options_of(borzoi_server, tmp_path / "copy")
    assert read(options, given) == expected(0, 300)
    alone, given = options_of(borzoi_server, tmp_path / "copy", connected=False)
    with pytest.raises(DataLoss, match="offsets"):
        read(alone, given)


def test_what_nobody_has_is_stepped_over_if_the_user_wants_so(topic, borzoi_server, tmp_path, caplog):
    options, given = options_of(borzoi_server, tmp_path / "copy", connected=False, failOnDataLoss="false")
    shutil.copytree(borzoi_server.path, tmp_path / "copy")
    extent = topic_of(options).extent()
    logs = sorted((tmp_path / "copy").rglob("partitions/1/*.log"))
    first, second = int(logs[0].stem), int(logs[1].stem)
    logs[0].unlink()
    fetcher = fetcher_of(options, rows_of(options, given, source_schema(options)))
    found = fetcher.fetch(Split(1, 2, 300, extent.created_at_us, SIZE))
    table = pa.Table.from_batches(list(found)).select(["offset", "payload"]).to_pydict()
    assert first < 2 < second
    assert table == expected(second, 300)
    assert f"offsets [2, {second}) are not in" in caplog.text


@pytest.mark.parametrize("connected", [True, False])
def test_segments_that_go_while_they_are_listed_are_not_there(topic, borzoi_server, connected, monkeypatch):
    options, given = options_of(borzoi_server, borzoi_server.path, connected=connected)
    glob = Path.glob

    def late(path, pattern):
        """As if one more segment had been there a moment ago."""
        found = list(glob(path, pattern))
        return [*found, path / f"{2**63:020}.log"] if pattern == "*.log" else found

    monkeypatch.setattr(Path, "glob", late)
    assert read(options, given, 0, 200) == expected(0, 200)


def test_times_are_found_in_files(topic, borzoi_server):
    middle = topic.poll_messages("s", "t", 1, auto_commit=False, count=200)[-1].timestamp
    with_server, _ = options_of(borzoi_server, borzoi_server.path, startingTimestamp=str(middle))
    alone, _ = options_of(borzoi_server, borzoi_server.path, connected=False, startingTimestamp=str(middle))
    found = [
        resolve(each.starting, topic_of(each).extent(), topic_of(each), "g") for each in (with_server, alone)
    ]
    assert found[0] == found[1]


def test_a_directory_of_another_topic_with_the_same_name_is_refused(topic, borzoi_server, tmp_path):
    shutil.copytree(borzoi_server.path, tmp_path / "copy")
    topic.delete_topic("s", "t")
    topic.create_topic("s", "t", 2)
    topic.send_messages("s", "t", 1, ["new"])
    options, given = options_of(borzoi_server, tmp_path / "copy")
    with pytest.raises(WrongDirectory, match="another topic"):
        read(options, given)


def test_a_split_that_ends_behind_the_files_is_data_loss(topic, borzoi_server):
    options, given = options_of(borzoi_server, borzoi_server.path, connected=False)
    created_at_us = topic_of(options).extent().created_at_us
    fetcher = fetcher_of(options, rows_of(options, given, source_schema(options)))
    with pytest.raises(DataLoss, match=r"\[300, 310\)"):
        list(fetcher.fetch(Split(1, 290, 310, created_at_us, KB)))


def test_wrong_options_are_refused(borzoi_server, tmp_path):
    with pytest.raises(InvalidOptionValue, match="dataDirectory"):
        SourceOptions.of({"stream": "s", "topic": "t", "direct": "true"})
    with pytest.raises(InvalidOptionValue, match="direct"):
        SourceOptions.of({"stream": "s", "topic": "t", "dataDirectory": "x"})
    options, _ = options_of(borzoi_server, tmp_path, connected=False)
    with pytest.raises(WrongDirectory, match="no data directory"):
        topic_of(options).extent()


def test_groups_are_known_to_servers_only(topic, borzoi_server):
    options, _ = options_of(
        borzoi_server, borzoi_server.path, connected=False, startingOffsets="group", group="g"
    )
    with pytest.raises(InvalidOptionValue, match="connection"):
        resolve(options.starting, topic_of(options).extent(), topic_of(options), "g")
