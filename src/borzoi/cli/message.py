"""`borzoi message`: send, read and flush messages."""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from borzoi.cli.arguments import Partition, Stream, Topic
from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register, wrong_usage
from borzoi.cli.decryption import decrypted
from borzoi.cli.message_lines import header_text, message_fields
from borzoi.cli.output import print_json_line, print_table, shown_time
from borzoi.cli.progress import Progress
from borzoi.cli.send import send

if TYPE_CHECKING:
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.sync import Client
    from borzoi.client.values import Consumer, PollingStrategy
    from borzoi.model.values import Identifier

# Asked for at once; the server gives fewer if they are large.
_POLL_MESSAGES = 10_000


message_commands = command_group(
    'Send and read messages.\n\nExample: borzoi message send orders events "hello"'
)


register(message_commands, "send", "s")(send)


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
    output_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Append them to this file, for `send --input-file`.", show_default="print"
        ),
    ] = None,
) -> None:
    """Read messages of a partition. They stay there.

    With --json each message is a line of JSON, with "payload_base64" in place of "payload" if it is no text.

    \b
        borzoi message poll orders events 0 --first -m 10
        borzoi message poll orders events 0 --next --consumer billing --auto-commit --json
        borzoi message poll orders events 0 --timestamp 2026-01-31T12:00:00Z
        borzoi message poll orders events 0 --first -m 1000000 --output-file saved.bin
    """  # noqa: D301
    from borzoi.client.values import Consumer

    strategy = _strategy(offset, timestamp, first=first, last=last, next_=next_)
    cipher = run.cipher()
    who = Consumer.single(identifier(consumer))
    where = identifier(stream), identifier(topic), partition
    with ExitStack() as stack:
        file = None if output_file is None else _appendable(output_file, stack)
        client = stack.enter_context(run.connect())

        def commit(offset: int) -> None:
            """After the messages are where they belong: none is passed over if that fails."""
            if auto_commit:
                client.store_consumer_offset(*where, offset=offset, consumer=who)

        parts = (decrypted(part, cipher) for part in _read(client, where, strategy, who, count, is_last=last))
        if file is not None:
            _write(run, file, parts, commit)
        elif run.out.as_json:
            for part in parts:
                for message in part:
                    print_json_line(message_fields(message))
                commit(part[-1].offset)
        else:
            found = [message for part in parts for message in part]
            print_messages(found, show_headers=show_headers)
            if found:
                commit(found[-1].offset)


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


def _read(
    client: "Client",
    where: "tuple[Identifier, Identifier, int]",
    strategy: "PollingStrategy",
    consumer: "Consumer",
    count: int,
    *,
    is_last: bool,
) -> "Iterator[list[ReceivedMessage]]":
    """Up to `count` messages, in parts of what fits into an answer."""
    from borzoi.client.values import PollingStrategy

    if is_last and count > _POLL_MESSAGES:
        details = client.get_topic(*where[:2])
        partitions = details.partitions if details is not None else ()
        current = next((each.current_offset for each in partitions if each.id == where[2]), 0)
        strategy = PollingStrategy.Offset(max(0, current + 1 - count))
    while count > 0:
        found = client.poll_messages(
            *where, strategy, min(count, _POLL_MESSAGES), auto_commit=False, consumer=consumer
        )
        if not found:
            return
        yield found
        count -= len(found)
        strategy = PollingStrategy.Offset(found[-1].offset + 1)


def _appendable(name: str, stack: ExitStack) -> BinaryIO:
    try:
        return stack.enter_context(Path(name).open("ab", buffering=0))
    except OSError as error:
        wrong_usage(f"{name} cannot be written: {error.strerror}")


def _write(
    run: Invocation,
    file: BinaryIO,
    parts: "Iterable[list[ReceivedMessage]]",
    commit: Callable[[int], None],
) -> None:
    """Append messages to a file; what is in it are whole messages, also when the disk is full."""
    from borzoi.cli.message_file import record

    written = size_bytes = 0
    with Progress("reading", None, is_wanted=not run.out.quiet) as bar:
        for part in parts:
            data = memoryview(b"".join(map(record, part)))
            whole_bytes = os.fstat(file.fileno()).st_size
            try:
                at = 0
                while at < len(data):
                    at += file.write(data[at:])
            except OSError as error:
                with suppress(OSError):  # what is no file, like a pipe, cannot be shortened
                    os.ftruncate(file.fileno(), whole_bytes)
                refuse(
                    f"{file.name} cannot be written: {error.strerror}; {written} messages were written before"
                )
            commit(part[-1].offset)
            written, size_bytes = written + len(part), size_bytes + len(data)
            bar.show(size_bytes, written)
    run.out.done(
        f"{written} {'message' if written == 1 else 'messages'}, {size_bytes} bytes, appended to {file.name}",
        messages_count=written,
        size_bytes=size_bytes,
        path=file.name,
    )


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
