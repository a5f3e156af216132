"""`borzoi partition`: add partitions to a topic and take them away."""

from borzoi.cli.arguments import Count, Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, register

partition_commands = command_group(
    "Add and delete partitions of a topic.\n\nExample: borzoi partition create orders events 2"
)


@register(partition_commands, "create", "c")
def create(run: Invocation, stream: Stream, topic: Topic, count: Count) -> None:
    """Add partitions to a topic.

    \b
        borzoi partition create orders events 2
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        client.create_partitions(identifier(stream), identifier(topic), count)
    _done(run, stream, topic, count, "added to")


@register(partition_commands, "delete", "d")
def delete(run: Invocation, stream: Stream, topic: Topic, count: Count) -> None:
    """Delete the partitions with the highest ids, with the messages in them.

    \b
        borzoi partition delete orders events 1
    """  # noqa: D301
    with run.connect() as client:
        client.delete_partitions(identifier(stream), identifier(topic), count)
    _done(run, stream, topic, count, "deleted from")


def _done(run: Invocation, stream: str, topic: str, count: int, what: str) -> None:
    run.out.done(
        f'{count} {"partition" if count == 1 else "partitions"} {what} topic "{topic}" of stream "{stream}"',
        stream=identifier(stream),
        topic=identifier(topic),
        partitions_count=count,
    )
