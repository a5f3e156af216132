"""Reads messages from segment files instead of asking the server for them.

Sealed segments never change, so tasks may take them from the server's data directory, or from a copy of it,
and spare the server the work. What follows the last of them (the segment that still grows, and whatever the
directory does not hold) is fetched from the server. Without a server, everything that is whole is read from
the files, and planning asks the files as well.

The directory has to be reachable under the same path wherever tasks run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from borzoi.broker.catalog import Topic
from borzoi.broker.metadata import MetadataError
from borzoi.broker.offline import read_catalog
from borzoi.log.directory import DataDirectory
from borzoi.log.extent import cut_after
from borzoi.log.offline import PartitionFiles, list_segments, offset_at_or_after, read_runs
from borzoi.model.errors import BorzoiError, InvalidOptionValue
from borzoi.model.replies import PartitionExtent, TopicExtent
from borzoi.model.requests import ByteCut
from borzoi.spark.fetch import ANSWER_BYTES, Fetcher, require_order
from borzoi.spark.options import Target
from borzoi.spark.plan import Split, lose, moment
from borzoi.spark.rows import Rows
from borzoi.wire.columns import Columns, columns


class WrongDirectory(  # noqa: N818 - named like the platform's other errors
    BorzoiError,
    text="The data directory cannot be read",
    hint="Name the directory that the server was started with (--data), or a copy of it.",
):
    """Says which, and why."""


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """What planning asks about a topic, answered from a data directory."""

    target: Target
    path: str

    def extent(self, cuts: Sequence[ByteCut] = ()) -> TopicExtent:
        topic = topic_in(self.path, self.target)
        by_partition = {cut.partition_id: cut for cut in cuts}
        extents = []
        for partition in topic.partitions:
            files = PartitionFiles(_partition_path(self.path, topic, partition.id))
            cut = by_partition.get(partition.id)
            cut_offset, bytes_after = (
                (files.next_offset, files.size_bytes)
                if cut is None
                else cut_after(files, cut.offset, cut.bytes_max)
            )
            extents.append(
                PartitionExtent(partition.id, files.first_offset, files.next_offset, cut_offset, bytes_after)
            )
        return TopicExtent(topic.stream.id, topic.id, topic.created_at_us, tuple(extents))

    def offset_at(self, partition_id: int, timestamp_us: int) -> int | None:
        """Of the first message that was stored at this moment or later."""
        path = _partition_path(self.path, topic_in(self.path, self.target), partition_id)
        segments = list_segments(path)
        start = offset_at_or_after(segments, timestamp_us)
        for found in _columns(path, start, 1 << 63, sealed_only=False):
            late = np.flatnonzero(found.timestamps_us >= np.uint64(timestamp_us))
            if len(late):
                return int(found.offsets[late[0]])
        return None

    def committed_offset(self, partition_id: int, group: str) -> int | None:
        raise InvalidOptionValue(
            f'offsets of groups ("{group}", partition {partition_id}) are known to a server only: name one '
            'with the option "connection"'
        )


@dataclass(frozen=True, slots=True)
class DirectFetcher:
    """From files as far as they reach; the rest from `tail`, if there is a server to ask."""

    target: Target
    path: str
    rows: Rows
    tail: Fetcher | None
    fail_on_data_loss: bool = True

    def fetch(self, split: Split) -> Iterator[pa.RecordBatch]:
        topic = topic_in(self.path, self.target)
        if topic.created_at_us != split.created_at_us:
            raise WrongDirectory(
                f"{self.path} holds another topic {self.target}: one that was created at "
                f"{moment(topic.created_at_us)}, not at {moment(split.created_at_us)}"
            )
        directory = _partition_path(self.path, topic, split.partition_id)
        position = split.start
        for found in _columns(directory, position, split.end, sealed_only=self.tail is not None):
            require_order(found, position, split.end)
            first = int(found.offsets[0])
            if first != position:
                if self.tail is not None:
                    break  # the directory lacks what comes before; perhaps the server has it
                self._lost(split, position, first)
            position = first + len(found)
            yield from self.rows.batches(found)
        if position >= split.end:
            return
        if self.tail is not None:
            yield from self.tail.fetch(replace(split, start=position))
            return
        self._lost(split, position, split.end)

    def _lost(self, split: Split, start: int, end: int) -> None:
        lost = f"partition {split.partition_id}: offsets [{start}, {end}) are not in {self.path}"
        lose(self.target, [lost], fail=self.fail_on_data_loss)


def topic_in(path: str, target: Target) -> Topic:
    """The topic as the metadata of a data directory has it."""
    try:
        topic = read_catalog(Path(path)).find_topic(target.stream, target.topic)
    except (MetadataError, OSError) as error:
        raise WrongDirectory(str(error)) from error
    if topic is None:
        raise WrongDirectory(f"{path} holds no topic {target}")
    return topic


def _columns(directory: Path, start: int, end: int, *, sealed_only: bool) -> Iterator[Columns]:
    """The messages `start` to `end` as far as they are on disk, in order, an answer's size at a time."""
    position = start
    for segment in list_segments(directory, sealed_only=sealed_only):
        if segment.next_offset <= position:
            continue
        try:
            for chunk in read_runs(segment, position, end, ANSWER_BYTES):
                found = columns(chunk)
                first, last = np.searchsorted(found.offsets, np.array([position, end], np.uint64))
                kept = found.part(int(first), int(last))
                if len(kept):
                    position = int(kept.offsets[-1]) + 1
                    yield kept
        except FileNotFoundError:
            continue  # retention was faster
        if position >= end:
            return


def _partition_path(path: str, topic: Topic, partition_id: int) -> Path:
    return DataDirectory(Path(path)).partition(topic.stream.id, topic.id, partition_id)
