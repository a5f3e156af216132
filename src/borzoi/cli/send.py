"""`borzoi message send`: messages from arguments, lines of text or JSON, or a file of Iggy's format.

Input is read as it is needed: a request is sent, and stored by the server, before the next one is read, so
that input of any size takes the memory of one request, and is read no faster than the server stores it. When
something fails midway, the error says how many messages were stored.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.connection import Invocation, identifier, wrong_usage
from borzoi.cli.message_lines import parse_header, parse_line
from borzoi.cli.output import print_json
from borzoi.cli.progress import Progress
from borzoi.model.errors import InvalidConfiguration

if TYPE_CHECKING:
    from borzoi.client.cipher import Cipher
    from borzoi.client.values import Partitioning, SendMessage
    from borzoi.model.headers import HeaderField, HeaderKey
    from borzoi.model.replies import Confirmation

# What goes into one request: large enough to be fast, well below what a server takes.
_BATCH_MESSAGES = 1000
_BATCH_BYTES = 4 << 20


class Format(Enum):
    """What a line of input is."""

    TEXT = "text"
    JSON = "json"


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
        str | None,
        typer.Option(metavar="FILE", help='Send its lines; "-" is standard input.', show_default=False),
    ] = None,
    line_format: Annotated[
        Format | None,
        typer.Option("--format", help="What lines are.", show_default="json with --file, else text"),
    ] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Send the messages that `poll --output-file` wrote.", show_default=False
        ),
    ] = None,
) -> None:
    """Send messages: arguments, lines of a file, or lines of standard input.

    Without a partition or a key the server spreads requests of up to 1000 messages over the partitions. A
    line of JSON has "payload", and maybe "id" and "headers"; what `message poll --json` prints can be sent.

    \b
        borzoi message send orders events "hello" "world" --key customer-7 -H region:string:eu
        echo "hello" | borzoi message send orders events
        echo '{"payload": {"total": 5}, "headers": {"n": 1}}' | borzoi message send orders events --file -
        borzoi message send orders events --input-file saved.bin
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    where = _partitioning(partition, key)
    try:
        shared: dict[HeaderKey, HeaderField] = dict(parse_header(text) for text in headers or ())
    except ValueError as error:
        wrong_usage(f"--headers: {error}")
    if sum((bool(messages), file is not None, input_file is not None)) > 1:
        wrong_usage("give messages, --file or --input-file, one of them")
    if line_format is not None and (messages or input_file is not None):
        wrong_usage("--format is for lines, of --file or of standard input")
    cipher = run.cipher()
    with ExitStack() as stack:
        source = _Source(stack)
        if messages:
            found = source.arguments(messages)
        elif input_file is not None:
            found = source.records(input_file)
        else:
            is_json = line_format is Format.JSON or (line_format is None and file is not None)
            found = source.lines(file or "-", is_json=is_json)
        stored, sent = _send(run, (stream, topic, where), _batches(found, shared, cipher), source)
    if not sent:
        wrong_usage("there is nothing to send")
    _report(run, stored, sent)


class WrongInput(InvalidConfiguration, hint=""):
    """The detail says which part of the input it is, and what is wrong with it."""

    def __str__(self) -> str:
        return self.detail


class _Source:
    """Where messages come from. A file is opened at once, read when needed, and closed with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.read_bytes = 0
        self.total_bytes: int | None = None  # None: nobody knows

    def arguments(self, texts: Iterable[str]) -> "Iterator[SendMessage | None]":
        from borzoi.client.values import SendMessage

        # The bytes that were typed, whether they are a text or not.
        return (SendMessage(os.fsencode(text)) for text in texts)

    def lines(self, name: str, *, is_json: bool) -> "Iterator[SendMessage | None]":
        from borzoi.cli.line_input import read_lines
        from borzoi.client.values import SendMessage

        lines = read_lines(self._open(name), self._advance)
        if is_json:
            return _readable(name, _parsed(lines))
        return _readable(name, (None if line is None else SendMessage(line) for line in lines))

    def records(self, name: str) -> "Iterator[SendMessage | None]":
        from borzoi.cli.message_file import read_records

        return _readable(name, read_records(self._open(name), self._advance))

    def _open(self, name: str) -> BinaryIO:
        file: BinaryIO
        if name == "-":
            if sys.stdin is None:
                wrong_usage("standard input is closed")
            file = sys.stdin.buffer
        else:
            try:
                file = Path(name).open("rb")  # noqa: SIM115 - the stack closes it
            except OSError as error:
                wrong_usage(f"{name} cannot be read: {error.strerror}")
            self._stack.enter_context(file)
        try:
            status = os.fstat(file.fileno())
        except OSError:
            return file
        if stat.S_ISREG(status.st_mode):
            self.total_bytes = status.st_size
        return file

    def _advance(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes


def _send(
    run: Invocation,
    where: "tuple[str, str, Partitioning]",
    batches: "Iterator[list[SendMessage]]",
    source: _Source,
) -> "tuple[list[Confirmation], int]":
    """Where the messages were stored, and how many. An error is told how many were stored before it."""
    from borzoi.model.errors import BorzoiError

    stream, topic, partitioning = where
    sent = under_way = 0
    stored: list[Confirmation] = []
    is_typed = source.total_bytes is None and sys.stdin is not None and sys.stdin.isatty()
    with (
        run.connect() as client,
        Progress("sending", source.total_bytes, is_wanted=not (run.out.quiet or is_typed)) as bar,
    ):
        try:
            for batch in batches:
                under_way = len(batch)
                stored += client.send_messages(identifier(stream), identifier(topic), partitioning, batch)
                sent, under_way = sent + under_way, 0
                bar.show(source.read_bytes, sent)
        except (BorzoiError, KeyboardInterrupt) as error:
            note = _so_far(error, sent, under_way)
            if note:
                error.add_note(note)
            raise
    return stored, sent


def _so_far(error: BaseException, sent: int, under_way: int) -> str:
    from borzoi.model.errors import ConnectionFailure, TaskTimeout

    before = f"{_count(sent)} stored before." if sent else "Nothing was stored before."
    if under_way and isinstance(error, ConnectionFailure | TaskTimeout | KeyboardInterrupt):
        return f"{before} Of {_count(under_way)} under way it is not known."
    return before if sent or under_way or isinstance(error, KeyboardInterrupt) else ""


def _count(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


def _report(run: Invocation, stored: "list[Confirmation]", sent: int) -> None:
    if run.out.as_json:
        print_json({"messages_count": sent, "batches": stored})
        return
    places = ", ".join(f"partition {each.partition_id} from offset {each.base_offset}" for each in stored[:3])
    more = f" and {len(stored) - 3} more batches" if len(stored) > 3 else ""
    print(f"{_count(sent)} stored: {places or 'all known already'}{more}")


def _partitioning(partition: int | None, key: str | None) -> "Partitioning":
    from borzoi.client.values import Partitioning

    if partition is not None and key is not None:
        wrong_usage("give --partition or --key, not both")
    if partition is not None:
        return Partitioning.partition_id(partition)
    return Partitioning.balanced() if key is None else Partitioning.key(key)


def _parsed(lines: Iterable[bytes | None]) -> "Iterator[SendMessage | None]":
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        try:
            message = parse_line(line)
        except ValueError as error:
            raise WrongInput(f"line {number}: {error}") from None
        yield message


def _readable(name: str, messages: "Iterable[SendMessage | None]") -> "Iterator[SendMessage | None]":
    """The messages; a file that cannot be read is told by its name."""
    try:
        yield from messages
    except OSError as error:
        raise WrongInput(f"{name} cannot be read: {error.strerror}") from error


def _batches(
    messages: "Iterable[SendMessage | None]",
    headers: "dict[HeaderKey, HeaderField]",
    cipher: "Cipher | None",
) -> "Iterator[list[SendMessage]]":
    """What goes into a request each. Where the input pauses (None), what there is."""
    batch: list[SendMessage] = []
    size_bytes = 0
    for each in messages:
        if each is None:
            if batch:
                yield batch
            batch, size_bytes = [], 0
            continue
        message = _completed(each, headers, cipher)
        if len(batch) == _BATCH_MESSAGES or (batch and size_bytes + len(message.payload) > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += len(message.payload)
    if batch:
        yield batch


def _completed(
    message: "SendMessage", headers: "dict[HeaderKey, HeaderField]", cipher: "Cipher | None"
) -> "SendMessage":
    """With the headers that all messages get, which a message's own replace, and encrypted."""
    from borzoi.client.values import SendMessage

    if not headers and cipher is None:
        return message
    payload = message.payload
    if cipher is not None and payload:  # an empty one is refused as it is
        payload = cipher.encrypt(payload.encode() if isinstance(payload, str) else payload)
    return SendMessage(payload, message.id, {**headers, **(message.headers or {})} or None)
