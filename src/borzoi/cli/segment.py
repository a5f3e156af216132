"""`borzoi segment`: delete the oldest messages of a partition, a file at a time."""

from borzoi.cli.arguments import Count, Partition, Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, register

segment_commands = command_group(
    "Delete segments of a partition.\n\nExample: borzoi segment delete orders events 0 1"
)


@register(segment_commands, "delete", "d")
def delete(run: Invocation, stream: Stream, topic: Topic, partition: Partition, count: Count) -> None:
    """Delete up to COUNT of a partition's oldest full segments, with the messages in them.

    \b
        borzoi segment delete orders events 0 1
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        client.delete_segments(identifier(stream), identifier(topic), partition, count)
    run.out.done(
        f"up to {count} of the oldest full segments of partition {partition} deleted, "
        f'topic "{topic}" of stream "{stream}"',
        stream=identifier(stream),
        topic=identifier(topic),
        partition_id=partition,
        segments_count=count,
    )
