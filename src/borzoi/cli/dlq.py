"""`borzoi dlq`: dead letters, that is messages a consumer could not handle and put aside.

A topic holds dead letters if the newest message of one of its partitions is one.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register
from borzoi.cli.dlq_replay import replay
from borzoi.cli.output import print_json_line, shown_time
from borzoi.cli.positions import Bounds, committed_offset, peek, topic_named, topics_named
from borzoi.cli.replaying import REPLAYER

if TYPE_CHECKING:
    from borzoi.cli.letters import Letter
    from borzoi.client.details import TopicDetails
    from borzoi.client.sync import Client

dlq_commands = command_group("Show dead letters and send them back.\n\nExample: borzoi dlq list")


@register(dlq_commands, "list", "l")
def list_topics(
    run: Invocation,
    stream: Annotated[
        str | None, typer.Argument(metavar="STREAM", help="Id or name of a stream.", show_default="all")
    ] = None,
) -> None:
    """Show the topics that hold dead letters, and the newest of each.

    "Waiting" are those that dlq replay would send back.

    \b
        borzoi dlq list
        borzoi dlq list orders
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.model.errors import NotFound

    found: list[dict[str, Any]] = []
    with run.connect() as client:
        for of_stream, of_topic in topics_named(client, stream):
            try:
                details = client.get_topic(of_stream.id, of_topic.id)
                if details is None:
                    continue
                newest = _newest_letter(client, of_stream.id, details)
                if newest is None:
                    continue
                waiting = _waiting(client, of_stream.id, details)
            except NotFound:
                continue  # deleted while we looked
            found.append(
                {
                    "stream": of_stream.name,
                    "topic": details.name,
                    "messages_count": details.messages_count,
                    "waiting_count": waiting,
                    "newest_timestamp": newest.message.timestamp,
                    "newest_cause": newest.content.cause,
                    "newest_error": newest.content.error,
                }
            )
    run.out.rows(
        found,
        ("Stream", "Topic", "Letters", "Waiting", "Newest", "Error", "Cause"),
        (
            (
                each["stream"],
                each["topic"],
                each["messages_count"],
                each["waiting_count"],
                shown_time(each["newest_timestamp"]),
                each["newest_error"],
                each["newest_cause"],
            )
            for each in found
        ),
    )


@register(dlq_commands, "show", "s")
def show(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    offset: Annotated[
        int | None,
        typer.Option("-o", "--offset", min=0, help="Start with this letter.", show_default="the newest"),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="Of this one.", show_default="all")
    ] = None,
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, max=10_000, help="At most this many of a partition.")
    ] = 10,
) -> None:
    """Show dead letters: why they were put aside, where they came from, and what they say.

    With --json each letter is a line; "headers" are the message's own.

    \b
        borzoi dlq show orders events-dead
        borzoi dlq show orders events-dead --offset 0 --count 1 --json
    """  # noqa: D301
    from borzoi.cli.letters import Letter, letter_fields
    from borzoi.client.values import PollingStrategy

    strategy = PollingStrategy.Last() if offset is None else PollingStrategy.Offset(offset)
    with run.connect() as client:
        details = topic_named(client, stream, topic)
        numbers = [each.id for each in details.partitions]
        if partition is not None and partition not in numbers:
            refuse(f'topic "{topic}" has no partition {partition}; it has {len(numbers)}')
        messages = [
            message
            for number in (numbers if partition is None else [partition])
            for message in client.poll_messages(
                identifier(stream), details.id, number, strategy, count, auto_commit=False
            )
        ]
    letters = [letter for letter in map(Letter.of, messages) if letter is not None]
    letters.sort(key=lambda each: (each.message.timestamp, each.message.partition_id, each.message.offset))
    if run.out.as_json:
        for letter in letters:
            print_json_line(letter_fields(letter))
        return
    for number, letter in enumerate(letters):
        if number:
            print()
        _print(run, letter)
    if len(letters) < len(messages):
        print(f"{len(messages) - len(letters)} messages are no dead letters")
    elif not messages:
        print("no dead letters")


register(dlq_commands, "replay", "r")(replay)


def _print(run: Invocation, letter: "Letter") -> None:
    from borzoi.cli.letters import PREFIX, preview
    from borzoi.cli.message_lines import header_text

    content, message = letter.content, letter.message
    headers = [
        (f"Header {header_text(key)}", header_text(value))
        for key, value in message.typed_headers.items()
        if not header_text(key).startswith(PREFIX)
    ]
    run.out.properties(
        None,
        [
            ("Letter", f"partition {message.partition_id}, offset {message.offset}"),
            ("Put aside", shown_time(message.timestamp)),
            ("Cause", content.cause),
            ("Error", content.error),
            ("Attempts", content.attempts),
            ("Replayed", letter.replayed_count),
            ("Came from", f"{content.stream}/{content.topic}, {content.partition_id}:{content.offset}"),
            ("Stored there", shown_time(content.timestamp)),
            ("Message ID", content.id),
            *headers,
            (f"Payload ({len(content.payload)} B)", preview(content.payload)),
        ],
    )


def _newest_letter(client: "Client", stream_id: int, topic: "TopicDetails") -> "Letter | None":
    from borzoi.cli.letters import Letter
    from borzoi.client.values import PollingStrategy

    found: list[Letter] = []
    for partition in topic.partitions:
        if partition.messages_count:
            message = peek(client, stream_id, topic.id, partition.id, PollingStrategy.Last())
            letter = None if message is None else Letter.of(message)
            if letter is not None:
                found.append(letter)
    return max(found, key=lambda each: each.message.timestamp) if found else None


def _waiting(client: "Client", stream_id: int, topic: "TopicDetails") -> int:
    from borzoi.cli.letters import Progress
    from borzoi.client.values import Consumer

    total = 0
    for partition in topic.partitions:
        done = committed_offset(client, stream_id, topic.id, partition.id, Consumer.single(REPLAYER))
        bounds = Bounds.of(partition, done)
        total += bounds.next_offset - Progress(bounds.first_offset, done).next_offset
    return total
