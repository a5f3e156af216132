"""`borzoi stream`: create, show, rename, empty and delete streams."""

from typing import Annotated

import typer

from borzoi.cli.arguments import Stream
from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register
from borzoi.cli.output import shown_size, shown_time

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the stream.", show_default=False)]

stream_commands = command_group("Create, show and delete streams.\n\nExample: borzoi stream create orders")


@register(stream_commands, "create", "c")
def create(run: Invocation, name: _Name) -> None:
    """Create a stream; the server chooses its id.

    \b
        borzoi stream create orders
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        stream = client.create_stream(name)
    run.out.done(f'stream "{name}" created, id {stream.id}', id=stream.id, name=stream.name)


@register(stream_commands, "get", "g")
def get(run: Invocation, stream: Stream) -> None:
    """Show a stream.

    \b
        borzoi stream get orders
    """  # noqa: D301
    with run.connect() as client:
        found = client.get_stream(identifier(stream))
    if found is None:
        refuse(f'there is no stream "{stream}"; `borzoi stream list` shows those there are')
    run.out.properties(
        found,
        [
            ("Stream ID", found.id),
            ("Name", found.name),
            ("Created", shown_time(found.created_at_us)),
            ("Size", shown_size(found.size_bytes)),
            ("Messages", found.messages_count),
            ("Topics", ", ".join(topic.name for topic in found.topics) or None),
        ],
    )


@register(stream_commands, "list", "l")
def list_streams(run: Invocation) -> None:
    """Show all streams.

    \b
        borzoi stream list
    """  # noqa: D301
    with run.connect() as client:
        streams = client.get_streams()
    run.out.rows(
        streams,
        ("ID", "Name", "Created", "Size", "Messages", "Topics"),
        (
            (
                each.id,
                each.name,
                shown_time(each.created_at_us),
                shown_size(each.size_bytes),
                each.messages_count,
                each.topics_count,
            )
            for each in streams
        ),
    )


@register(stream_commands, "update", "u")
def update(run: Invocation, stream: Stream, name: _Name) -> None:
    """Rename a stream.

    \b
        borzoi stream update orders purchases
    """  # noqa: D301
    with run.connect() as client:
        client.update_stream(identifier(stream), name)
    run.out.done(f'stream "{stream}" is now "{name}"', stream=identifier(stream), name=name)


@register(stream_commands, "delete", "d")
def delete(run: Invocation, stream: Stream) -> None:
    """Delete a stream with its topics and all their messages, at once and for good.

    \b
        borzoi stream delete orders
    """  # noqa: D301
    with run.connect() as client:
        client.delete_stream(identifier(stream))
    run.out.done(f'stream "{stream}" deleted', stream=identifier(stream))


@register(stream_commands, "purge", "p")
def purge(run: Invocation, stream: Stream) -> None:
    """Delete the messages of all topics of a stream, at once and for good; the topics stay.

    \b
        borzoi stream purge orders
    """  # noqa: D301
    with run.connect() as client:
        client.purge_stream(identifier(stream))
    run.out.done(f'stream "{stream}" is empty', stream=identifier(stream))
