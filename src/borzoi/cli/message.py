"""`borzoi message`: send, read and flush messages."""

import datetime as dt
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.arguments import Partition, Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, register, wrong_usage
from borzoi.cli.message_lines import header_text, message_fields, parse_header, parse_line
from borzoi.cli.output import print_json, print_json_line, print_table, shown_time

if TYPE_CHECKING:
    from borzoi.client.values import Partitioning, PollingStrategy, ReceivedMessage, SendMessage
    from borzoi.model.headers import HeaderField, HeaderKey
    from borzoi.model.replies import Confirmation

# What goes into one request: large enough to be fast, well below what a server takes.
_BATCH_MESSAGES = 1000
_BATCH_BYTES = 4 << 20


class Format(Enum):
    """What a line of input is."""

    TEXT = "text"
    JSON = "json"


message_commands = command_group(
    'Send and read messages.\n\nExample: borzoi message send orders events "hello"'
)


@register(message_commands, "send", "s")
def send(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    messages: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGE", help="Texts to send.", show_default="lines of standard input"),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--partition-id",
            "--partition",
            min=0,
            help="Send to this partition.",
            show_default="balanced",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "-m", "--message-key", "--key", help="Same key, same partition.", show_default="balanced"
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "-H",
            "--headers",
            metavar="KEY:KIND:VALUE",
            help="A header of every message, as region:string:eu; can be repeated.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Send its lines; "-" is standard input.', show_default=False),
    ] = None,
    line_format: Annotated[
        Format | None,
        typer.Option("--format", help="What lines are.", show_default="json with --file, else text"),
    ] = None,
) -> None:
    """Send messages: arguments, lines of a file, or lines of standard input.

    Without a partition or a key the server spreads requests of up to 1000 messages over the partitions. A
    line of JSON has "payload", and maybe "id" and "headers"; what `message poll --json` prints can be sent.

    \b
        borzoi message send orders events "hello" "world" --key customer-7 -H region:string:eu
        echo "hello" | borzoi message send orders events
        echo '{"payload": {"total": 5}, "headers": {"n": 1}}' | borzoi message send orders events --file -
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.client.values import SendMessage

    where = _partitioning(partition, key)
    try:
        shared: dict[HeaderKey, HeaderField] = dict(parse_header(text) for text in headers or ())
    except ValueError as error:
        wrong_usage(f"--headers: {error}")
    if messages and file is not None:
        wrong_usage("give messages or --file, not both")
    with ExitStack() as stack:
        if messages:
            # The bytes that were typed, whether they are a text or not.
            sources: Iterable[SendMessage] = (SendMessage(os.fsencode(text)) for text in messages)
        else:
            lines = _lines(file, stack)
            is_json = line_format is Format.JSON or (line_format is None and file is not None)
            sources = _parsed(lines) if is_json else (SendMessage(text) for text in lines)
        client = stack.enter_context(run.connect())
        sent = 0
        stored: list[Confirmation] = []
        for batch in _batches(sources, shared):
            stored += client.send_messages(identifier(stream), identifier(topic), where, batch)
            sent += len(batch)
    if not sent:
        wrong_usage("there is nothing to send")
    if run.out.as_json:
        print_json({"messages_count": sent, "batches": stored})
    else:
        places = ", ".join(
            f"partition {each.partition_id} from offset {each.base_offset}" for each in stored[:3]
        )
        more = f" and {len(stored) - 3} more batches" if len(stored) > 3 else ""
        print(
            f"{sent} {'message' if sent == 1 else 'messages'} stored: {places or 'all known already'}{more}"
        )


@register(message_commands, "poll", "p")
def poll(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    partition: Partition,
    offset: Annotated[
        int | None, typer.Option("-o", "--offset", min=0, help="Start at this offset.", show_default=False)
    ] = None,
    first: Annotated[
        bool, typer.Option("-f", "--first", help="Start at the oldest message.", show_default=False)
    ] = False,
    last: Annotated[
        bool, typer.Option("-l", "--last", help="The newest messages.", show_default=False)
    ] = False,
    next_: Annotated[
        bool,
        typer.Option(
            "-n", "--next", help="Start after the consumer's stored offset.", show_default="if no other"
        ),
    ] = False,
    timestamp: Annotated[
        dt.datetime | None,
        typer.Option(
            "-t",
            "--timestamp",
            formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"],
            help="Start at this time; local, unless it ends in Z.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int, typer.Option("-m", "--message-count", min=1, help="At most this many.")] = 1,
    auto_commit: Annotated[
        bool,
        typer.Option(
            "-a", "--auto-commit", help="Store the offset of the last message.", show_default="do not"
        ),
    ] = False,
    consumer: Annotated[str, typer.Option("-c", "--consumer", help="Whose offset is used.")] = "0",
    show_headers: Annotated[
        bool, typer.Option("-s", "--show-headers", help="A column for each header.", show_default="without")
    ] = False,
) -> None:
    """Read messages of a partition. They stay there.

    With --json each message is a line of JSON, with "payload_base64" in place of "payload" if it is no text.

    \b
        borzoi message poll orders events 0 --first -m 10
        borzoi message poll orders events 0 --next --consumer billing --auto-commit --json
        borzoi message poll orders events 0 --timestamp 2026-01-31T12:00:00Z
    """  # noqa: D301
    from borzoi.client.values import Consumer

    strategy = _strategy(offset, timestamp, first=first, last=last, next_=next_)
    with run.connect() as client:
        found = client.poll_messages(
            identifier(stream),
            identifier(topic),
            partition,
            strategy,
            count,
            auto_commit,
            consumer=Consumer.single(identifier(consumer)),
        )
    if run.out.as_json:
        for message in found:
            print_json_line(message_fields(message))
    else:
        print_messages(found, show_headers=show_headers)


@register(message_commands, "flush", "f")
def flush(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    partition: Partition,
    fsync: Annotated[
        bool, typer.Option("-f", "--fsync", help="Wait until they are on the device.", show_default="do not")
    ] = False,
) -> None:
    """Return when everything sent to a partition is in its file.

    \b
        borzoi message flush orders events 0 --fsync
    """  # noqa: D301
    with run.connect() as client:
        client.flush_unsaved_buffer(identifier(stream), identifier(topic), partition, fsync=fsync)
    run.out.done(
        f'partition {partition} of topic "{topic}" of stream "{stream}" flushed '
        f"{'to the device' if fsync else 'to its file'}",
        stream=identifier(stream),
        topic=identifier(topic),
        partition_id=partition,
        fsync=fsync,
    )


def print_messages(messages: "list[ReceivedMessage]", *, show_headers: bool) -> None:
    headers = [message.typed_headers if show_headers else {} for message in messages]
    keys = list(dict.fromkeys(key for each in headers for key in each))
    print_table(
        ("Offset", "Time", "ID", "Bytes", "Payload", *(f"Header: {header_text(key)}" for key in keys)),
        (
            (
                message.offset,
                shown_time(message.timestamp),
                message.id,
                len(message.payload),
                message.payload.decode(errors="replace"),
                *(header_text(each[key]) if key in each else None for key in keys),
            )
            for message, each in zip(messages, headers, strict=True)
        ),
    )


def _partitioning(partition: int | None, key: str | None) -> "Partitioning":
    from borzoi.client.values import Partitioning

    if partition is not None and key is not None:
        wrong_usage("give --partition or --key, not both")
    if partition is not None:
        return Partitioning.partition_id(partition)
    return Partitioning.balanced() if key is None else Partitioning.key(key)


def _strategy(
    offset: int | None, timestamp: dt.datetime | None, *, first: bool, last: bool, next_: bool
) -> "PollingStrategy":
    from borzoi.client.values import PollingStrategy

    if sum((offset is not None, timestamp is not None, first, last, next_)) > 1:
        wrong_usage("give one of --offset, --timestamp, --first, --last and --next")
    if offset is not None:
        return PollingStrategy.Offset(offset)
    if timestamp is not None:
        return PollingStrategy.Timestamp(timestamp)
    if first:
        return PollingStrategy.First()
    return PollingStrategy.Last() if last else PollingStrategy.Next()


def _lines(file: Path | None, stack: ExitStack) -> Iterator[bytes]:
    """Lines without their ends; empty ones are left out."""
    if file is None or file == Path("-"):
        source: Iterable[bytes] = sys.stdin.buffer
    else:
        try:
            source = stack.enter_context(file.open("rb"))
        except OSError as error:
            wrong_usage(f"{file} cannot be read: {error.strerror}")
    return (line for line in (each.rstrip(b"\r\n") for each in source) if line)


def _parsed(lines: Iterable[bytes]) -> "Iterator[SendMessage]":
    for number, line in enumerate(lines, 1):
        try:
            yield parse_line(line)
        except ValueError as error:
            wrong_usage(
                f"line {number}: {error}; only whole batches of {_BATCH_MESSAGES} before it were sent"
            )


def _batches(
    messages: "Iterable[SendMessage]", headers: "dict[HeaderKey, HeaderField]"
) -> "Iterator[list[SendMessage]]":
    from dataclasses import replace

    batch: list[SendMessage] = []
    size_bytes = 0
    for message in messages:
        if len(batch) == _BATCH_MESSAGES or (batch and size_bytes + len(message.payload) > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(replace(message, headers={**headers, **(message.headers or {})}) if headers else message)
        size_bytes += len(message.payload)
    if batch:
        yield batch
