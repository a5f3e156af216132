"""Commands for topics, their partitions and segments."""

import datetime as dt
from collections.abc import Mapping

from borzoi.client.call import Call, or_none
from borzoi.client.details import TopicDetails, topic_details
from borzoi.client.topic_options import OptionValue, topic_options
from borzoi.client.values import identifier
from borzoi.model import requests as rq
from borzoi.model.replies import TopicInfo
from borzoi.model.values import Compression, Identifier


def create_topic(
    stream: Identifier,
    name: str,
    partitions_count: int = 1,
    *,
    compression_algorithm: Compression | str | None = None,
    message_expiry: dt.timedelta | int | str | None = None,
    max_topic_size: int | str | None = None,
    segment_size: int | str | None = None,
    durability: str | None = None,
    consumer_offset_durability: str | None = None,
    messages_required_to_save: int | None = None,
    size_of_messages_required_to_save: int | str | None = None,
    preallocate_segments: bool | None = None,
    options: Mapping[str, OptionValue] | None = None,
    deadline_s: float | None = None,
) -> Call[TopicDetails]:
    """Create a topic. What is None is as the server's configuration has it.

    `message_expiry` is a `timedelta`, microseconds, or a text ("7 days", "never_expire"); sizes are bytes or
    a text ("1 GiB", for the topic also "unlimited"); a durability is "replicated" or "persisted".
    """
    encoded = topic_options(
        compression_algorithm=compression_algorithm,
        message_expiry=message_expiry,
        max_topic_size=max_topic_size,
        segment_size=segment_size,
        durability=durability,
        consumer_offset_durability=consumer_offset_durability,
        messages_required_to_save=messages_required_to_save,
        size_of_messages_required_to_save=size_of_messages_required_to_save,
        preallocate_segments=preallocate_segments,
        options=options,
    )
    request = rq.CreateTopic(identifier(stream), partitions_count, name, encoded)
    return Call(request, deadline_s, topic_details)


def get_topic(
    stream: Identifier, topic: Identifier, *, deadline_s: float | None = None
) -> Call[TopicDetails | None]:
    """The topic and its partitions, or None."""
    return Call(rq.GetTopic(identifier(stream), identifier(topic)), deadline_s, or_none(topic_details))


def get_topics(stream: Identifier, *, deadline_s: float | None = None) -> Call[tuple[TopicInfo, ...]]:
    return Call(rq.GetTopics(identifier(stream)), deadline_s)


def update_topic(
    stream: Identifier,
    topic: Identifier,
    name: str,
    *,
    compression_algorithm: Compression | str | None = None,
    message_expiry: dt.timedelta | int | str | None = None,
    max_topic_size: int | str | None = None,
    options: Mapping[str, OptionValue] | None = None,
    deadline_s: float | None = None,
) -> Call[None]:
    """Rename a topic and change options of it. What is None stays as it is."""
    encoded = topic_options(
        compression_algorithm=compression_algorithm,
        message_expiry=message_expiry,
        max_topic_size=max_topic_size,
        options=options,
    )
    return Call(rq.UpdateTopic(identifier(stream), identifier(topic), name, encoded), deadline_s)


def delete_topic(stream: Identifier, topic: Identifier, *, deadline_s: float | None = None) -> Call[None]:
    return Call(rq.DeleteTopic(identifier(stream), identifier(topic)), deadline_s)


def purge_topic(stream: Identifier, topic: Identifier, *, deadline_s: float | None = None) -> Call[None]:
    """Delete all messages and stored offsets of a topic; offsets start at 0 again."""
    return Call(rq.PurgeTopic(identifier(stream), identifier(topic)), deadline_s)


def create_partitions(
    stream: Identifier, topic: Identifier, partitions_count: int, *, deadline_s: float | None = None
) -> Call[None]:
    """Add this many partitions."""
    return Call(rq.CreatePartitions(identifier(stream), identifier(topic), partitions_count), deadline_s)


def delete_partitions(
    stream: Identifier, topic: Identifier, partitions_count: int, *, deadline_s: float | None = None
) -> Call[None]:
    """Delete this many partitions, those with the highest ids, and the messages in them."""
    return Call(rq.DeletePartitions(identifier(stream), identifier(topic), partitions_count), deadline_s)


def delete_segments(
    stream: Identifier,
    topic: Identifier,
    partition_id: int,
    segments_count: int,
    *,
    deadline_s: float | None = None,
) -> Call[None]:
    """Delete up to this many of the oldest full segments of a partition."""
    request = rq.DeleteSegments(identifier(stream), identifier(topic), partition_id, segments_count)
    return Call(request, deadline_s)
