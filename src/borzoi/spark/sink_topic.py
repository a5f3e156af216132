"""The topic that is written to, as the driver finds it before any task starts: it exists, or is made."""

from collections.abc import Callable

from borzoi.client.sync import Client
from borzoi.model.errors import AlreadyExists, NoPartitions, TopicNameNotFound
from borzoi.spark.connections import connected
from borzoi.spark.epochs import patiently
from borzoi.spark.sink_options import SinkOptions


class MissingTopic(TopicNameNotFound):
    """The topic of a write does not exist, and it was not asked to be created. Nothing was written."""

    def __str__(self) -> str:
        return (
            f'{super().__str__()}: create it, or let the write do so with .option("createTopic", "true") '
            'and .option("partitions", "4")'
        )


def partitions_of(options: SinkOptions) -> int:
    """How many partitions the topic has. Where an option says so, a topic that is missing is created."""
    target = options.target
    client = connected(target)
    found = patiently(
        lambda left_s: client.get_topic(target.stream, target.topic, deadline_s=left_s), target.deadline_s
    )
    if found is None and options.create_topic:
        _create(client, options)
        found = client.get_topic(target.stream, target.topic)
    if found is None:
        raise MissingTopic(str(target))
    if not found.partitions_count:
        raise NoPartitions(str(target))
    return found.partitions_count


def _create(client: Client, options: SinkOptions) -> None:
    """Create the topic, and its stream if that is missing too. Somebody else may be quicker."""
    stream, topic = options.target.stream, options.target.topic
    if isinstance(stream, str) and client.get_stream(stream) is None:
        _unless_there(lambda: client.create_stream(stream))
    _unless_there(lambda: client.create_topic(stream, str(topic), options.partitions_count))


def _unless_there(create: Callable[[], object]) -> None:
    try:
        create()
    except AlreadyExists:
        return
