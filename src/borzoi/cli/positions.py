"""Where partitions begin and end, how far consumers have come, and what time it is, as the server says.

Shared by the commands that compare the three: `group reset`, `lag`, `top` and `dlq`. Everything here reads;
nothing stores an offset, and polls are made on behalf of nobody.

A stored offset is that of the last message a consumer has dealt with, so the next one it gets is the one
after it. `next_offset` is the offset that the next message to be sent will have.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from borzoi.cli.connection import identifier, refuse

if TYPE_CHECKING:
    from borzoi.client.details import TopicDetails
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.sync import Client
    from borzoi.client.values import Consumer, PollingStrategy
    from borzoi.model.replies import PartitionInfo, StreamInfo, TopicInfo
    from borzoi.model.values import Identifier


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of the oldest message that is kept, and of the next one to come; the same if there is none."""

    first_offset: int
    next_offset: int

    @classmethod
    def of(cls, partition: "PartitionInfo", committed_offset: int | None = None) -> "Bounds":
        """From what the server tells of a partition.

        The current offset is 0 both before the first message and after it. If no message is left, only a
        stored offset tells the two apart.
        """
        if partition.messages_count or partition.current_offset or committed_offset is not None:
            next_offset = partition.current_offset + 1
        else:
            next_offset = 0
        return cls(next_offset - partition.messages_count, next_offset)


def server_now_us(client: "Client") -> int:
    """By the clock that stamps messages; by this machine's, if the user may not ask for that."""
    from borzoi.model.errors import Unauthorized

    try:
        stats = client.get_stats()
    except Unauthorized:
        return time.time_ns() // 1000
    return stats.start_time_us + stats.run_time_us


def topic_named(client: "Client", stream: str, topic: str) -> "TopicDetails":
    """The topic; ends the command if there is none."""
    found = client.get_topic(identifier(stream), identifier(topic))
    if found is None:
        refuse(f'there is no topic "{topic}" in stream "{stream}"; `borzoi topic list {stream}` shows all')
    return found


def streams_named(client: "Client", stream: str | None) -> "list[StreamInfo]":
    """The one that is named, or all; ends the command if it does not exist."""
    if stream is None:
        return list(client.get_streams())
    found = client.get_stream(identifier(stream))
    if found is None:
        refuse(f'there is no stream "{stream}"; `borzoi stream list` shows all')
    return [found]


def topics_named(
    client: "Client", stream: str | None, topic: str | None = None
) -> "Iterator[tuple[StreamInfo, TopicInfo]]":
    """Streams with their topics; only those that are named, if any are."""
    for each in streams_named(client, stream):
        if topic is None:
            for found in client.get_topics(each.id):
                yield each, found
        else:
            yield each, topic_named(client, stream or str(each.id), topic)


def committed_offset(
    client: "Client", stream: "Identifier", topic: "Identifier", partition_id: int, consumer: "Consumer"
) -> int | None:
    found = client.get_consumer_offset(stream, topic, partition_id, consumer=consumer)
    return None if found is None else found.stored_offset


def peek(
    client: "Client", stream_id: int, topic_id: int, partition_id: int, strategy: "PollingStrategy"
) -> "ReceivedMessage | None":
    """The one message a poll begins with."""
    found = client.poll_messages(stream_id, topic_id, partition_id, strategy, 1, auto_commit=False)
    return found[0] if found else None
