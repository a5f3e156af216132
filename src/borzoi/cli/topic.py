"""`borzoi topic`: create, show, change, empty, delete and follow topics."""

from typing import Annotated

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register, wrong_usage
from borzoi.cli.output import print_table, shown_size, shown_time
from borzoi.cli.tail import tail

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic.", show_default=False)]
_Compression = Annotated[
    str | None,
    typer.Argument(metavar="COMPRESSION", help="none or gzip.", show_default=False),
]
_Expiry = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="EXPIRY",
        help='How long messages are kept: "7 days", unlimited or server_default.',
        show_default=False,
    ),
]
_MaxSize = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--max-topic-size",
        metavar="SIZE",
        help='Old messages go when the topic is larger: "15 GB", unlimited or server_default.',
        show_default=False,
    ),
]

topic_commands = command_group(
    "Create, show, follow and delete topics.\n\nExample: borzoi topic create orders events 4"
)


@register(topic_commands, "create", "c")
def create(
    run: Invocation,
    stream: Stream,
    name: _Name,
    partitions: Annotated[int, typer.Argument(metavar="PARTITIONS", min=0, help="Number of partitions.")] = 1,
    compression: _Compression = None,
    expiry: _Expiry = None,
    max_topic_size: _MaxSize = None,
    segment_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of a segment file.", show_default="the server's"),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="replicated|persisted",
            help="Acknowledge when written, or when on the device.",
            show_default="the server's",
        ),
    ] = None,
) -> None:
    """Create a topic. What is not given is as the server's configuration has it.

    \b
        borzoi topic create orders events 4
        borzoi topic create orders events 4 none 7 days --max-topic-size "15 GB"
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    _check_compression(compression)
    expiry_us, size_bytes = _expiry_us(expiry), _max_topic_size(max_topic_size)
    segment_bytes = _segment_size(segment_size)
    with run.connect() as client:
        topic = client.create_topic(
            identifier(stream),
            name,
            partitions,
            compression_algorithm=compression,
            message_expiry=expiry_us,
            max_topic_size=size_bytes,
            segment_size=segment_bytes,
            durability=durability,
        )
    run.out.done(
        f'topic "{name}" with {_count(topic.partitions_count, "partition")} created in stream "{stream}", '
        f"id {topic.id}",
        id=topic.id,
        name=topic.name,
        partitions_count=topic.partitions_count,
        stream=identifier(stream),
    )


@register(topic_commands, "get", "g")
def get(run: Invocation, stream: Stream, topic: Topic) -> None:
    """Show a topic and its partitions.

    \b
        borzoi topic get orders events
    """  # noqa: D301
    from borzoi.model.units import render_expiry, render_max_topic_size

    with run.connect() as client:
        found = client.get_topic(identifier(stream), identifier(topic))
    if found is None:
        refuse(f'there is no topic "{topic}" in stream "{stream}"; `borzoi topic list {stream}` shows all')
    run.out.properties(
        found,
        [
            ("Topic ID", found.id),
            ("Name", found.name),
            ("Created", shown_time(found.created_at_us)),
            ("Size", shown_size(found.size_bytes)),
            ("Messages", found.messages_count),
            ("Compression", found.compression),
            ("Message expiry", render_expiry(found.message_expiry_us)),
            ("Max topic size", render_max_topic_size(found.max_topic_size)),
            ("Partitions", found.partitions_count),
        ],
    )
    if not run.out.as_json and found.partitions:
        print()
        print_table(
            ("Partition", "Segments", "Current offset", "Size", "Messages"),
            (
                (
                    each.id,
                    each.segments_count,
                    each.current_offset,
                    shown_size(each.size_bytes),
                    each.messages_count,
                )
                for each in found.partitions
            ),
        )


@register(topic_commands, "list", "l")
def list_topics(run: Invocation, stream: Stream) -> None:
    """Show all topics of a stream.

    \b
        borzoi topic list orders
    """  # noqa: D301
    from borzoi.model.units import render_expiry, render_max_topic_size

    with run.connect() as client:
        topics = client.get_topics(identifier(stream))
    run.out.rows(
        topics,
        ("ID", "Name", "Created", "Size", "Max size", "Compression", "Expiry", "Messages", "Partitions"),
        (
            (
                each.id,
                each.name,
                shown_time(each.created_at_us),
                shown_size(each.size_bytes),
                render_max_topic_size(each.max_topic_size),
                each.compression,
                render_expiry(each.message_expiry_us),
                each.messages_count,
                each.partitions_count,
            )
            for each in topics
        ),
    )


@register(topic_commands, "update", "u")
def update(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    name: _Name,
    compression: _Compression = None,
    expiry: _Expiry = None,
    max_topic_size: _MaxSize = None,
) -> None:
    """Rename a topic and change its options. What is not given stays as it is.

    \b
        borzoi topic update orders events order-events
        borzoi topic update orders events events none 30 days
    """  # noqa: D301
    _check_compression(compression)
    expiry_us, size_bytes = _expiry_us(expiry), _max_topic_size(max_topic_size)
    with run.connect() as client:
        client.update_topic(
            identifier(stream),
            identifier(topic),
            name,
            compression_algorithm=compression,
            message_expiry=expiry_us,
            max_topic_size=size_bytes,
        )
    run.out.done(
        f'topic "{topic}" of stream "{stream}" updated, its name is "{name}"',
        stream=identifier(stream),
        topic=identifier(topic),
        name=name,
    )


@register(topic_commands, "delete", "d")
def delete(run: Invocation, stream: Stream, topic: Topic) -> None:
    """Delete a topic and its messages, at once and for good.

    \b
        borzoi topic delete orders events
    """  # noqa: D301
    with run.connect() as client:
        client.delete_topic(identifier(stream), identifier(topic))
    run.out.done(
        f'topic "{topic}" of stream "{stream}" deleted', stream=identifier(stream), topic=identifier(topic)
    )


@register(topic_commands, "purge", "p")
def purge(run: Invocation, stream: Stream, topic: Topic) -> None:
    """Delete all messages of a topic, at once and for good; offsets start at 0 again.

    \b
        borzoi topic purge orders events
    """  # noqa: D301
    with run.connect() as client:
        client.purge_topic(identifier(stream), identifier(topic))
    run.out.done(
        f'topic "{topic}" of stream "{stream}" is empty', stream=identifier(stream), topic=identifier(topic)
    )


register(topic_commands, "tail")(tail)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _check_compression(text: str | None) -> None:
    if text not in (None, "none", "gzip"):
        wrong_usage(f'COMPRESSION is none or gzip, not "{text}"')


def _expiry_us(words: list[str] | None) -> int | None:
    from borzoi.model.units import parse_expiry

    if not words:
        return None
    try:
        return parse_expiry(" ".join(words))
    except ValueError as error:
        wrong_usage(f"EXPIRY: {error}")


def _max_topic_size(text: str | None) -> int | None:
    from borzoi.model.units import parse_max_topic_size

    if text is None:
        return None
    try:
        return parse_max_topic_size(text)
    except ValueError as error:
        wrong_usage(f"--max-topic-size: {error}")


def _segment_size(text: str | None) -> int | None:
    from borzoi.model.units import parse_byte_size

    if text is None:
        return None
    try:
        return parse_byte_size(text)
    except ValueError as error:
        wrong_usage(f"--segment-size: {error}")
