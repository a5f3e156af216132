"""`borzoi consumer-group`: create, show, reset and delete consumer groups."""

from typing import Annotated

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register
from borzoi.cli.group_reset import reset, undo_reset
from borzoi.cli.output import print_table

_Group = Annotated[str, typer.Argument(metavar="GROUP", help="Id or name of a group.", show_default=False)]

group_commands = command_group(
    "Create, show, reset and delete consumer groups.\n\n"
    "Example: borzoi consumer-group create orders events billing"
)


@register(group_commands, "create", "c")
def create(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the group.", show_default=False)],
) -> None:
    """Create a consumer group.

    \b
        borzoi consumer-group create orders events billing
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        group = client.create_consumer_group(identifier(stream), identifier(topic), name)
    run.out.done(
        f'consumer group "{name}" created for topic "{topic}" of stream "{stream}", id {group.id}',
        id=group.id,
        name=group.name,
        stream=identifier(stream),
        topic=identifier(topic),
    )


@register(group_commands, "get", "g")
def get(run: Invocation, stream: Stream, topic: Topic, group: _Group) -> None:
    """Show a consumer group and which member has which partitions.

    \b
        borzoi consumer-group get orders events billing
    """  # noqa: D301
    with run.connect() as client:
        found = client.get_consumer_group(identifier(stream), identifier(topic), identifier(group))
    if found is None:
        refuse(
            f'there is no consumer group "{group}"; '
            f"`borzoi consumer-group list {stream} {topic}` shows those there are"
        )
    run.out.properties(
        found,
        [
            ("Group ID", found.id),
            ("Name", found.name),
            ("Partitions", found.partitions_count),
            ("Members", found.members_count),
        ],
    )
    if not run.out.as_json and found.members:
        print()
        print_table(
            ("Member", "Partitions"),
            ((member.id, ", ".join(map(str, member.partitions)) or None) for member in found.members),
        )


@register(group_commands, "list", "l")
def list_groups(run: Invocation, stream: Stream, topic: Topic) -> None:
    """Show all consumer groups of a topic.

    \b
        borzoi consumer-group list orders events
    """  # noqa: D301
    with run.connect() as client:
        groups = client.get_consumer_groups(identifier(stream), identifier(topic))
    run.out.rows(
        groups,
        ("ID", "Name", "Partitions", "Members"),
        ((each.id, each.name, each.partitions_count, each.members_count) for each in groups),
    )


@register(group_commands, "delete", "d")
def delete(run: Invocation, stream: Stream, topic: Topic, group: _Group) -> None:
    """Delete a consumer group and the offsets stored for it.

    \b
        borzoi consumer-group delete orders events billing
    """  # noqa: D301
    with run.connect() as client:
        client.delete_consumer_group(identifier(stream), identifier(topic), identifier(group))
    run.out.done(
        f'consumer group "{group}" of topic "{topic}" of stream "{stream}" deleted',
        stream=identifier(stream),
        topic=identifier(topic),
        group=identifier(group),
    )


register(group_commands, "reset")(reset)
register(group_commands, "undo-reset")(undo_reset)
