"""`borzoi topic tail`: the newest messages of a topic, and new ones as they come.

Reads on behalf of nobody: no offset is stored, and no consumer or group is disturbed.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.connection import Invocation, identifier, refuse
from borzoi.cli.decryption import decrypted
from borzoi.cli.message_lines import message_fields
from borzoi.cli.output import one_line, print_json_line, shown_time

if TYPE_CHECKING:
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.sync import Client

_PAUSE_S = 0.2
_COUNT = 1000


def tail(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    count: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the newest.")] = 10,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with new ones until Ctrl-C.", show_default="do not")
    ] = False,
    contains: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only payloads with this text.", show_default="all")
    ] = None,
) -> None:
    """Print the newest messages of all partitions of a topic, oldest first.

    With --contains, TEXT is looked for in the newest messages, and in those that come. Partitions that are
    added later are not followed.

    \b
        borzoi topic tail orders events
        borzoi topic tail orders events -f --contains error --json
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    wanted = None if contains is None else contains.encode()
    cipher = run.cipher()

    def show(messages: "list[ReceivedMessage]") -> None:
        for message in decrypted(messages, cipher):
            if wanted is None or wanted in message.payload:
                _print(message, as_json=run.out.as_json)

    with run.connect() as client:
        newest, next_offsets = _newest(client, stream, topic, count)
        show(newest)
        while follow:
            new = _since(client, stream, topic, next_offsets)
            show(new)
            if not new:
                time.sleep(_PAUSE_S)


def _newest(
    client: "Client", stream: str, topic: str, count: int
) -> tuple["list[ReceivedMessage]", dict[int, int]]:
    """The newest messages, and for each partition where to go on."""
    from borzoi.client.values import PollingStrategy

    details = client.get_topic(identifier(stream), identifier(topic))
    if details is None:
        refuse(f'there is no topic "{topic}" in stream "{stream}"; `borzoi topic list {stream}` shows all')
    found: list[ReceivedMessage] = []
    next_offsets: dict[int, int] = {}
    for partition in details.partitions:
        messages = client.poll_messages(
            identifier(stream),
            identifier(topic),
            partition.id,
            PollingStrategy.Last(),
            count,
            auto_commit=False,
        )
        next_offsets[partition.id] = messages[-1].offset + 1 if messages else 0
        found += messages
    found.sort(key=lambda each: (each.timestamp, each.partition_id, each.offset))
    return found[-count:], next_offsets


def _since(
    client: "Client", stream: str, topic: str, next_offsets: dict[int, int]
) -> "list[ReceivedMessage]":
    from borzoi.client.values import PollingStrategy

    found: list[ReceivedMessage] = []
    for partition, offset in next_offsets.items():
        messages = client.poll_messages(
            identifier(stream),
            identifier(topic),
            partition,
            PollingStrategy.Offset(offset),
            _COUNT,
            auto_commit=False,
        )
        if messages:
            next_offsets[partition] = messages[-1].offset + 1
            found += messages
    found.sort(key=lambda each: (each.timestamp, each.partition_id, each.offset))
    return found


def _print(message: "ReceivedMessage", *, as_json: bool) -> None:
    if as_json:
        print_json_line(message_fields(message))
        sys.stdout.flush()
    else:
        text = one_line(message.payload.decode(errors="replace"))
        print(f"{shown_time(message.timestamp)}  {message.partition_id}:{message.offset}  {text}", flush=True)
