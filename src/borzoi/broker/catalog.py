"""Streams, topics, partitions, groups and producers' epochs, as the metadata says they are.

`apply` changes the tree by events and decides nothing; look-ups raise the protocol's not-found errors.
What a partition has on disk (`log`, `offsets`) is attached by the broker after replay or creation.
"""

from collections.abc import Iterator

import msgspec

from borzoi.broker import events as ev
from borzoi.broker.groups import ConsumerGroup
from borzoi.log.dedup import Deduplicator
from borzoi.log.offsets import ConsumerOffsets
from borzoi.log.partition import PartitionLog
from borzoi.model.errors import (
    ConsumerGroupIdNotFound,
    PartitionNotFound,
    StreamIdNotFound,
    TopicIdNotFound,
)
from borzoi.model.values import Identifier, Options


class Partition:
    __slots__ = ("created_at_us", "dedup", "id", "log", "offsets", "topic")

    log: PartitionLog
    offsets: ConsumerOffsets
    dedup: Deduplicator | None

    def __init__(self, topic: "Topic", partition_id: int, created_at_us: int) -> None:
        self.topic = topic
        self.id = partition_id
        self.created_at_us = created_at_us


class Group:
    __slots__ = ("id", "members", "name", "topic")

    def __init__(self, topic: "Topic", group_id: int, name: str, rebalancing_timeout_us: int) -> None:
        self.topic = topic
        self.id = group_id
        self.name = name
        self.members = ConsumerGroup(len(topic.partitions), rebalancing_timeout_us)


class Topic:
    __slots__ = (
        "balanced_cursor",
        "created_at_us",
        "epochs",
        "group_ids",
        "groups",
        "id",
        "name",
        "next_group_id",
        "options",
        "partitions",
        "stream",
    )

    def __init__(self, stream: "Stream", event: ev.TopicCreated) -> None:
        self.stream = stream
        self.id = event.topic_id
        self.name = event.name
        self.created_at_us = event.at_us
        self.options: Options = event.options
        self.partitions = [Partition(self, number, at_us) for number, at_us in enumerate(event.partitions)]
        self.groups: dict[int, Group] = {}
        self.group_ids: dict[str, int] = {}
        self.next_group_id = event.next_group_id
        # The last committed epoch of each producer, as it was decided.
        self.epochs: dict[str, ev.EpochCommitted] = {}
        self.balanced_cursor = 0

    @property
    def size_bytes(self) -> int:
        return sum(partition.log.size_bytes for partition in self.partitions)

    @property
    def messages_count(self) -> int:
        return sum(partition.log.messages_count for partition in self.partitions)

    def partition(self, partition_id: int) -> Partition:
        if not 0 <= partition_id < len(self.partitions):
            raise PartitionNotFound(f"{partition_id} of topic {self.name}")
        return self.partitions[partition_id]

    def find_group(self, group: Identifier) -> Group | None:
        group_id = group if isinstance(group, int) else self.group_ids.get(group, -1)
        return self.groups.get(group_id)

    def group(self, group: Identifier) -> Group:
        found = self.find_group(group)
        if found is None:
            raise ConsumerGroupIdNotFound(f"{group} of topic {self.name}")
        return found


class Stream:
    __slots__ = ("created_at_us", "id", "name", "topic_ids", "topics")

    def __init__(self, event: ev.StreamCreated) -> None:
        self.id = event.stream_id
        self.name = event.name
        self.created_at_us = event.at_us
        self.topics: dict[int, Topic] = {}
        self.topic_ids: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes for topic in self.topics.values())

    @property
    def messages_count(self) -> int:
        return sum(topic.messages_count for topic in self.topics.values())

    def find_topic(self, topic: Identifier) -> Topic | None:
        topic_id = topic if isinstance(topic, int) else self.topic_ids.get(topic, -1)
        return self.topics.get(topic_id)

    def topic(self, topic: Identifier) -> Topic:
        found = self.find_topic(topic)
        if found is None:
            raise TopicIdNotFound(f"{topic} of stream {self.name}")
        return found

    def free_topic_id(self) -> int:
        return lowest_free(self.topics)


class Catalog:
    def __init__(self, rebalancing_timeout_us: int) -> None:
        self.streams: dict[int, Stream] = {}
        self.stream_ids: dict[str, int] = {}
        self._rebalancing_timeout_us = rebalancing_timeout_us

    def find_stream(self, stream: Identifier) -> Stream | None:
        stream_id = stream if isinstance(stream, int) else self.stream_ids.get(stream, -1)
        return self.streams.get(stream_id)

    def stream(self, stream: Identifier) -> Stream:
        found = self.find_stream(stream)
        if found is None:
            raise StreamIdNotFound(str(stream))
        return found

    def topic(self, stream: Identifier, topic: Identifier) -> Topic:
        return self.stream(stream).topic(topic)

    def find_topic(self, stream: Identifier, topic: Identifier) -> Topic | None:
        found = self.find_stream(stream)
        return found.find_topic(topic) if found is not None else None

    def free_stream_id(self) -> int:
        return lowest_free(self.streams)

    def topics(self) -> Iterator[Topic]:
        for stream in self.streams.values():
            yield from stream.topics.values()

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics():
            yield from topic.partitions

    def apply(self, event: ev.CatalogEvent) -> None:
        match event:
            case ev.StreamCreated():
                self.streams[event.stream_id] = Stream(event)
                self.stream_ids[event.name] = event.stream_id
            case ev.StreamRenamed():
                stream = self.streams[event.stream_id]
                del self.stream_ids[stream.name]
                stream.name = event.name
                self.stream_ids[event.name] = event.stream_id
            case ev.StreamDeleted():
                del self.stream_ids[self.streams.pop(event.stream_id).name]
            case ev.TopicCreated():
                stream = self.streams[event.stream_id]
                stream.topics[event.topic_id] = Topic(stream, event)
                stream.topic_ids[event.name] = event.topic_id
            case ev.TopicDeleted():
                stream = self.streams[event.stream_id]
                del stream.topic_ids[stream.topics.pop(event.topic_id).name]
            case _:
                self._apply_to_topic(self.streams[event.stream_id].topics[event.topic_id], event)

    def _apply_to_topic(
        self,
        topic: Topic,
        event: ev.TopicUpdated
        | ev.PartitionsAdded
        | ev.PartitionsRemoved
        | ev.GroupCreated
        | ev.GroupDeleted
        | ev.EpochCommitted
        | ev.EpochApplied
        | ev.ProducerForgotten,
    ) -> None:
        match event:
            case ev.TopicUpdated():
                del topic.stream.topic_ids[topic.name]
                topic.name = event.name
                topic.options = event.options
                topic.stream.topic_ids[event.name] = topic.id
            case ev.PartitionsAdded():
                first = len(topic.partitions)
                topic.partitions += [
                    Partition(topic, number, event.at_us) for number in range(first, first + event.count)
                ]
            case ev.PartitionsRemoved():
                del topic.partitions[len(topic.partitions) - event.count :]
            case ev.GroupCreated():
                topic.groups[event.group_id] = Group(
                    topic, event.group_id, event.name, self._rebalancing_timeout_us
                )
                topic.group_ids[event.name] = event.group_id
                topic.next_group_id = max(topic.next_group_id, event.group_id + 1)
            case ev.GroupDeleted():
                del topic.group_ids[topic.groups.pop(event.group_id).name]
            case ev.EpochCommitted():
                topic.epochs[event.producer] = event
            case ev.EpochApplied():
                topic.epochs[event.producer] = _applied(topic.epochs[event.producer])
            case ev.ProducerForgotten():
                del topic.epochs[event.producer]

    def to_events(self) -> Iterator[ev.CatalogEvent]:
        """Events that make this catalog out of an empty one."""
        for stream in self.streams.values():
            yield ev.StreamCreated(stream_id=stream.id, name=stream.name, at_us=stream.created_at_us)
            for topic in stream.topics.values():
                yield from _topic_events(topic)


def _topic_events(topic: Topic) -> Iterator[ev.CatalogEvent]:
    yield ev.TopicCreated(
        stream_id=topic.stream.id,
        topic_id=topic.id,
        name=topic.name,
        partitions=[partition.created_at_us for partition in topic.partitions],
        options=topic.options,
        at_us=topic.created_at_us,
        next_group_id=topic.next_group_id,
    )
    for group in topic.groups.values():
        yield ev.GroupCreated(
            stream_id=topic.stream.id, topic_id=topic.id, group_id=group.id, name=group.name
        )
    yield from topic.epochs.values()


def _applied(decided: ev.EpochCommitted) -> ev.EpochCommitted:
    """Without what was needed to append its messages."""
    return msgspec.structs.replace(decided, parts=[], next_offsets=[], boot_id="", is_applied=True)


def lowest_free(taken: dict[int, Stream] | dict[int, Topic]) -> int:
    """Ids are reused, lowest first, as clients expect."""
    number = 0
    while number in taken:
        number += 1
    return number
