"""`borzoi dlq replay`: send dead letters back to where they came from, or somewhere else.

How letters are sent, and what is remembered of it, is the matter of `cli.replaying`.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.confirmation import Yes, ask, require_answerable
from borzoi.cli.connection import Invocation, identifier, wrong_usage
from borzoi.cli.output import print_json, print_table
from borzoi.cli.positions import topic_named
from borzoi.cli.replaying import Replaying

if TYPE_CHECKING:
    from borzoi.cli.letters import Destination

_ORIGINAL = "original"


def replay(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    to: Annotated[
        str, typer.Option("--to", metavar="original|STREAM/TOPIC", help="Where the letters go.")
    ] = _ORIGINAL,
    offsets: Annotated[
        list[int] | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="OFFSET",
            min=0,
            help="Only this letter; can be repeated.",
            show_default="those that were not sent back yet",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were sent back before.", show_default=False)
    ] = False,
    cause: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only letters with this in cause or error.", show_default="any"),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="Of this one.", show_default="all")
    ] = None,
    new_ids: Annotated[
        bool,
        typer.Option(
            "--new-ids",
            help="Under other message ids, for servers that drop duplicates.",
            show_default="the same ids",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show them, send nothing.", show_default="do it")
    ] = False,
    yes: Yes = False,
) -> None:
    """Send dead letters back, without the dlq.* headers; go on after the last one that was sent back.

    They go to the same partition, if it exists. The header dlq.replayed counts how often.

    \b
        borzoi dlq replay orders events-dead --dry-run
        borzoi dlq replay orders events-dead --cause timeout --yes
        borzoi dlq replay orders events-dead --offset 7 --to orders/repaired
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    if offsets and (everything or cause is not None):
        wrong_usage("--offset names the letters; leave out --all and --cause")
    destination = _destination(to)
    require_answerable(run, is_agreed=yes or dry_run)
    with run.connect() as client:
        found = topic_named(client, stream, topic)
        replaying = Replaying(client, identifier(stream), found, destination, new_ids, cause, dry_run)
        parts = replaying.parts(partition, sorted(set(offsets or [])), everything=everything)
        count = sum(len(part.wanted) for part in parts)
        if count and not dry_run and not yes:
            matching = "" if cause is None else f" with {cause!r} in their cause"
            ask(f'send {_letters(count)} of topic "{topic}"{matching} back?')
        try:
            for part in parts:
                replaying.send_back(part)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"{_letters(replaying.sent_count)} sent back before")
            raise
    _tell(run, replaying, stream, topic)


def _destination(text: str) -> "Destination":
    from borzoi.cli.letters import Destination

    if text == _ORIGINAL:
        return Destination()
    stream, slash, topic = text.partition("/")
    if not (stream and slash and topic):
        wrong_usage(f'--to: "{text}" is neither {_ORIGINAL} nor STREAM/TOPIC')
    return Destination(identifier(stream), identifier(topic))


def _shown_target(planned: dict[str, Any]) -> str:
    partition = planned["to_partition_id"]
    return f"{planned['to_stream']}/{planned['to_topic']}, {'any' if partition is None else partition}"


def _tell(run: Invocation, replaying: Replaying, stream: str, topic: str) -> None:
    if run.out.as_json:
        said = {
            "stream": identifier(stream),
            "topic": identifier(topic),
            "is_applied": not replaying.is_dry,
            "replayed_count": replaying.sent_count,
            "skipped_count": replaying.skipped_count,
        }
        print_json({**said, "letters": replaying.planned} if replaying.is_dry else said)
        return
    skipped = f", {replaying.skipped_count} passed over" if replaying.skipped_count else ""
    if replaying.is_dry:
        print_table(
            ("Partition", "Offset", "Error", "Cause", "Replayed", "To"),
            (
                (
                    each["partition_id"],
                    each["offset"],
                    each["error"],
                    each["cause"],
                    each["replayed"],
                    _shown_target(each),
                )
                for each in replaying.planned
            ),
        )
        print(f"dry run: {_letters(len(replaying.planned))} would be sent back{skipped}")
    else:
        print(f"{_letters(replaying.sent_count)} sent back{skipped}")


def _letters(count: int) -> str:
    return f"{count} letter" if count == 1 else f"{count} letters"
