"""`borzoi consumer-group reset` and `undo-reset`: move the offsets of a group, and move them back.

What will change is shown first, and written to a journal (`cli.reset_journal`) before it is applied. A group
with members is refused: one at work would not notice, and would store its own offset over the new one.
`--force` throws the members out; `cli.group_offsets` says how.
"""

import time
from typing import Annotated

import typer

from borzoi.cli.arguments import Stream, Topic
from borzoi.cli.confirmation import Yes, ask, require_answerable
from borzoi.cli.connection import Invocation, refuse, wrong_usage
from borzoi.cli.consumer_offset import Kind
from borzoi.cli.group_offsets import GroupOffsets, listed
from borzoi.cli.offset_targets import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    Move,
    Shift,
    Target,
    parse_time,
    planned,
    restored,
)
from borzoi.cli.output import print_json, print_table
from borzoi.cli.positions import server_now_us
from borzoi.cli.reset_journal import Journal

_Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="Id or name of a group or a consumer.", show_default=False)
]
_Kind = Annotated[Kind, typer.Option("-k", "--kind", help="What GROUP is.")]
_Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Throw members out: the group is deleted and made anew with its offsets.",
        show_default="refuse while there are members",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.", show_default="do it")]


def reset(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    group: _Group,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first message kept.", show_default=False)
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Past the last message.", show_default=False)
    ] = False,
    to_offset: Annotated[
        int | None,
        typer.Option(metavar="OFFSET", min=0, help="This message is the next.", show_default=False),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The first message since then is the next: ISO 8601, microseconds since 1970, or -15min.",
            show_default=False,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(metavar="COUNT", help="So many messages further; back if negative.", show_default=False),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "-p", "--partition", metavar="PARTITION", min=0, help="Can be repeated.", show_default="all"
        ),
    ] = None,
    kind: _Kind = Kind.GROUP,
    dry_run: _DryRun = False,
    force: _Force = False,
    yes: Yes = False,
) -> None:
    """Move the offsets of a group: it goes on from there.

    Shows what will change and asks. The members of the group have to be stopped before. What was stored
    before is kept in $IGGY_HOME/group_resets.jsonl, and undo-reset restores it.

    \b
        borzoi consumer-group reset orders events billing --to-earliest --dry-run
        borzoi consumer-group reset orders events billing --to-time -15min
        borzoi consumer-group reset orders events billing --shift -100 --partition 0 --yes
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    wishes = (to_earliest, to_latest, to_offset is not None, to_time is not None, shift is not None)
    if sum(wishes) != 1:
        wrong_usage("give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift")
    if to_time is not None:
        _target_time(to_time, 0)  # a mistake is told before a connection is made
    require_answerable(run, is_agreed=yes or dry_run)
    with run.connect() as client:
        target: Target
        if to_time is not None:
            target = _target_time(to_time, server_now_us(client))
        elif to_offset is not None:
            target = AtOffset(to_offset)
        elif shift is not None:
            target = Shift(shift)
        else:
            target = Earliest() if to_earliest else Latest()
        who = GroupOffsets.of(client, stream, topic, group, kind)
        moves = [planned(target, place) for place in who.places(partitions or [], target).values()]
        if not _is_agreed(run, who, moves, dry_run=dry_run, force=force, yes=yes):
            return
        who.require_unchanged(moves)
        changes = who.applied(moves, force=force)
        Journal().record(who.subject, changes, _now_us())
        who.apply(changes)
    _tell(run, who, moves)


def undo_reset(
    run: Invocation,
    stream: Stream,
    topic: Topic,
    group: _Group,
    kind: _Kind = Kind.GROUP,
    dry_run: _DryRun = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also if the group has committed since; throw members out.",
            show_default="refuse then",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Restore the offsets that a group had before its last reset from this machine.

    Can be repeated: each time one reset further back.

    \b
        borzoi consumer-group undo-reset orders events billing
    """  # noqa: D301
    require_answerable(run, is_agreed=yes or dry_run)
    with run.connect() as client:
        who = GroupOffsets.of(client, stream, topic, group, kind, is_undo=True)
        journal = Journal()
        last = journal.last(who.subject)
        if last is None:
            refuse(f'{journal.path} has no reset of {kind.value} "{group}" on {who.subject.server} to undo')
        places = who.places([])
        committed = [
            change.partition_id
            for change in last.changes
            if (place := places.get(change.partition_id)) is not None
            and place.committed_offset not in (change.before, change.after)
        ]
        if committed and not force and not dry_run:
            refuse(
                f'{kind.value} "{group}" has committed since in partition {listed(committed)}; '
                "--force restores the offsets all the same"
            )
        moves = restored({change.partition_id: change.before for change in last.changes}, places)
        if not _is_agreed(run, who, moves, dry_run=dry_run, force=force, yes=yes):
            return
        who.require_unchanged(moves)
        changes = who.applied(moves, force=force)
        # Deleting the group puts all its offsets at risk, not only those that the last reset knows.
        undone = [last, journal.record(who.subject, changes, _now_us())] if who.will_recreate else [last]
        who.apply(changes)
        for each in undone:
            journal.undone(each, _now_us())
    _tell(run, who, moves)


def _target_time(text: str, now_us: int) -> AtTime:
    try:
        return AtTime(parse_time(text, now_us))
    except ValueError as error:
        wrong_usage(f"--to-time: {error}")


def _is_agreed(
    run: Invocation, who: GroupOffsets, moves: list[Move], *, dry_run: bool, force: bool, yes: bool
) -> bool:
    """Show the plan and ask. False if there is nothing to do, which has been told then."""
    count = who.members_count
    if count and not force and not dry_run:
        refuse(
            f'consumer group "{who.subject.consumer}" has {_counted(count, "member")} at work, '
            "which would not notice and store their own offsets over it; "
            "stop them, or throw them out with --force"
        )
    if not run.out.as_json:
        print_table(
            ("Partition", "Current", "New", "Change", "Next", "Note"),
            (
                (each.partition_id, each.before, each.after, f"{each.change:+}", each.next_offset, each.note)
                for each in moves
            ),
        )
    is_needed = any(move.is_needed for move in moves)
    if dry_run or not is_needed:
        members = (
            f"; the group has {_counted(count, 'member')}, --force would throw them out"
            if dry_run and count
            else ""
        )
        _tell(run, who, moves, why_not=f"{'dry run' if dry_run else 'nothing to change'}{members}")
        return False
    if not yes:
        thrown_out = f"throw out {_counted(count, 'member')} and " if count else ""
        ask(f'{thrown_out}change the offsets of {who.kind.value} "{who.subject.consumer}"?')
    return True


def _tell(run: Invocation, who: GroupOffsets, moves: list[Move], why_not: str = "") -> None:
    if run.out.as_json:
        subject = who.subject
        print_json(
            {
                "stream": subject.stream,
                "topic": subject.topic,
                "kind": subject.kind,
                "consumer": subject.consumer,
                "members_count": who.members_count,
                "is_applied": not why_not,
                "partitions": [
                    {
                        "partition_id": move.partition_id,
                        "current": move.before,
                        "new": move.after,
                        "change": move.change,
                        "next_offset": move.next_offset,
                        "note": move.note,
                    }
                    for move in moves
                ],
            }
        )
    elif why_not:
        print(why_not)
    else:
        count = sum(move.is_needed for move in moves)
        print(
            f'offsets of {who.kind.value} "{who.subject.consumer}" changed in {_counted(count, "partition")}'
        )


def _now_us() -> int:
    return time.time_ns() // 1000


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
