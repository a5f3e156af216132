"""`borzoi consumer-offset`: how far a consumer or a group has come, and setting it.

The offset of a group is changed only while the group has no members: one at work would not notice, and would
store its own offset over it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.arguments import Partition, Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register

if TYPE_CHECKING:
    from borzoi.client.sync import Client
    from borzoi.client.values import Consumer


class Kind(Enum):
    """Whose offset it is."""

    CONSUMER = "consumer"
    GROUP = "consumer-group"


_Consumer = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="Id or name of a consumer or a group.", show_default=False)
]
_Kind = Annotated[Kind, typer.Option("-k", "--kind", help="What CONSUMER is.")]

offset_commands = command_group(
    "Show, set and delete the offsets stored for consumers and groups.\n\n"
    "Example: borzoi consumer-offset get billing orders events 0 --kind consumer-group"
)


@register(offset_commands, "get", "g")
def get(
    run: Invocation,
    consumer: _Consumer,
    stream: Stream,
    topic: Topic,
    partition: Partition,
    kind: _Kind = Kind.CONSUMER,
) -> None:
    """Show the offset of the last message that a consumer or group has dealt with.

    \b
        borzoi consumer-offset get billing orders events 0 --kind consumer-group
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        found = client.get_consumer_offset(
            identifier(stream), identifier(topic), partition, consumer=_who(consumer, kind)
        )
    if found is None:
        refuse(
            f'no offset is stored for {kind.value} "{consumer}" in partition {partition} '
            f'of topic "{topic}" of stream "{stream}"'
        )
    run.out.properties(
        found,
        [
            ("Partition", found.partition_id),
            ("Stored offset", found.stored_offset),
            ("Current offset", found.current_offset),
        ],
    )


@register(offset_commands, "set", "s")
def store(
    run: Invocation,
    consumer: _Consumer,
    stream: Stream,
    topic: Topic,
    partition: Partition,
    offset: Annotated[
        int,
        typer.Argument(
            metavar="OFFSET", min=0, help="Of the last message that was dealt with.", show_default=False
        ),
    ],
    kind: _Kind = Kind.CONSUMER,
) -> None:
    """Set the offset of a consumer or group: it goes on with the message after it.

    The members of a group have to be stopped before.

    \b
        borzoi consumer-offset set billing orders events 0 41 --kind consumer-group
    """  # noqa: D301
    with run.connect() as client, _standing_in(client, consumer, stream, topic, kind):
        client.store_consumer_offset(
            identifier(stream), identifier(topic), partition, offset=offset, consumer=_who(consumer, kind)
        )
    run.out.done(
        f'offset {offset} stored for {kind.value} "{consumer}" in partition {partition} '
        f'of topic "{topic}" of stream "{stream}"',
        consumer=identifier(consumer),
        kind=kind.value,
        partition_id=partition,
        offset=offset,
    )


@register(offset_commands, "delete", "d")
def delete(
    run: Invocation,
    consumer: _Consumer,
    stream: Stream,
    topic: Topic,
    partition: Partition,
    kind: _Kind = Kind.CONSUMER,
) -> None:
    """Forget the offset of a consumer or group: it starts at the beginning again.

    The members of a group have to be stopped before.

    \b
        borzoi consumer-offset delete billing orders events 0 --kind consumer-group
    """  # noqa: D301
    with run.connect() as client, _standing_in(client, consumer, stream, topic, kind):
        client.delete_consumer_offset(
            identifier(stream), identifier(topic), partition, consumer=_who(consumer, kind)
        )
    run.out.done(
        f'offset of {kind.value} "{consumer}" in partition {partition} '
        f'of topic "{topic}" of stream "{stream}" deleted',
        consumer=identifier(consumer),
        kind=kind.value,
        partition_id=partition,
    )


@contextmanager
def _standing_in(client: "Client", name: str, stream: str, topic: str, kind: Kind) -> Iterator[None]:
    """A member of the group, if it is one: only who has a partition may change the group's offset in it."""
    if kind is Kind.CONSUMER:
        yield
        return
    where = identifier(stream), identifier(topic), identifier(name)
    group = client.get_consumer_group(*where)
    if group is None:
        refuse(
            f'there is no consumer group "{name}"; `borzoi consumer-group list {stream} {topic}` shows all'
        )
    if group.members_count:
        refuse(f'consumer group "{name}" has {group.members_count} members at work; stop them first')
    client.join_consumer_group(*where)
    yield
    client.leave_consumer_group(*where)


def _who(consumer: str, kind: Kind) -> "Consumer":
    from borzoi.client.values import Consumer

    made = Consumer.single if kind is Kind.CONSUMER else Consumer.group
    return made(identifier(consumer))
