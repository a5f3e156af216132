"""What planning asks about a topic: a server, over the connection of this process, or its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from borzoi.client.values import Consumer, PollingStrategy
from borzoi.model.errors import ConsumerGroupIdNotFound, ConsumerGroupNameNotFound, ResourceNotFound
from borzoi.model.replies import TopicExtent
from borzoi.model.requests import ByteCut
from borzoi.spark.connections import connected
from borzoi.spark.offsets import Lookup
from borzoi.spark.options import Target
from borzoi.spark.source_options import SourceOptions
from borzoi.wire.columns import columns


class Topic(Lookup, Protocol):
    """Whoever knows how far a topic reaches."""

    def extent(self, cuts: Sequence[ByteCut] = ()) -> TopicExtent: ...


def topic_of(options: SourceOptions) -> Topic:
    """A server if there is one; it knows the end of the topic, files may be a moment behind."""
    if options.data_directory is None or options.has_server:
        return TopicView(options.target)
    from borzoi.spark.direct import DirectoryView  # noqa: PLC0415 - only who reads files pays for it

    return DirectoryView(options.target, options.data_directory)


@dataclass(frozen=True, slots=True)
class TopicView:
    target: Target

    def extent(self, cuts: Sequence[ByteCut] = ()) -> TopicExtent:
        return connected(self.target).get_topic_extent(self.target.stream, self.target.topic, cuts)

    def offset_at(self, partition_id: int, timestamp_us: int) -> int | None:
        """Of the first message that was stored at this moment or later."""
        batches = connected(self.target).poll_batches(
            self.target.stream,
            self.target.topic,
            partition_id,
            PollingStrategy.Timestamp(timestamp_us),
            1,
            auto_commit=False,
        )
        return int(columns(batches[0][1]).offsets[0]) if batches else None

    def committed_offset(self, partition_id: int, group: str) -> int | None:
        """None also if there is no such group: then nothing was committed by it."""
        try:
            stored = connected(self.target).get_consumer_offset(
                self.target.stream, self.target.topic, partition_id, consumer=Consumer.group(group)
            )
        except (ConsumerGroupIdNotFound, ConsumerGroupNameNotFound, ResourceNotFound):
            return None
        return None if stored is None else stored.stored_offset
