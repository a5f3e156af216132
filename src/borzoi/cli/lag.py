"""`borzoi lag`: how far consumer groups are behind, in messages and in time.

Only reads: offsets are asked for, and the first unread message is polled on behalf of nobody for its time.
What is deleted while it is looked at is left out.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.connection import Invocation, identifier, refuse, register, single_command, wrong_usage
from borzoi.cli.lag_table import (
    GroupLag,
    PartitionLag,
    exceeding,
    lag_fields,
    next_unread,
    owners,
    partition_lag,
    print_lag,
)
from borzoi.cli.live import WatchCommand, watch
from borzoi.cli.output import print_json
from borzoi.cli.positions import Bounds, committed_offset, peek, server_now_us, topics_named

if TYPE_CHECKING:
    from borzoi.client.details import TopicDetails
    from borzoi.client.sync import Client
    from borzoi.model.replies import GroupInfo, StreamInfo

lag_command = single_command()


@register(lag_command, "lag")
def lag(
    run: Invocation,
    stream: Annotated[
        str | None, typer.Argument(metavar="STREAM", help="Id or name of a stream.", show_default="all")
    ] = None,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Id or name of a topic.", show_default="all")
    ] = None,
    group: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="Id or name of a group.", show_default="all")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="[SECONDS]",
            help="Again and again, so often, until Ctrl-C.",
            show_default="once",
        ),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=0, help="End with code 1 if a group is further behind.", show_default=False
        ),
    ] = None,
) -> None:
    """Show how far consumer groups are behind, for each partition.

    "Behind" is the age of the first message that was not consumed. With --watch and --json every round is a
    line.

    \b
        borzoi lag
        borzoi lag orders events billing --watch 5
        borzoi lag orders --max-lag 1000 --json
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    if interval is not None and not interval > 0:
        wrong_usage("--watch: write a number of seconds that is more than zero")
    if interval is not None and max_lag is not None:
        wrong_usage("--max-lag looks once; leave out --watch")

    def take(client: "Client") -> list[GroupLag]:
        return lags(client, stream, topic, group)

    if interval is not None:
        watch(run, take, render=print_lag, fields=lag_fields, interval_s=interval)
        return
    with run.connect() as client:
        found = take(client)
    if run.out.as_json:
        print_json(lag_fields(found))
    else:
        print_lag(found)
    if max_lag is not None and (late := exceeding(found, max_lag)):
        worst = max(late, key=lambda each: each.lag)
        others = f", and {len(late) - 1} more" if len(late) > 1 else ""
        refuse(
            f'group "{worst.group}" of topic "{worst.topic}" of stream "{worst.stream}" is {worst.lag} '
            f"messages behind, more than {max_lag}{others}"
        )


# Typer has no options with a value that may be left out.
lag_command.registered_commands[-1].cls = WatchCommand


def lags(client: "Client", stream: str | None, topic: str | None, group: str | None) -> list[GroupLag]:
    """Of all groups that are meant; a name that stands for nothing ends the command."""
    from borzoi.model.errors import NotFound

    now_us = server_now_us(client)
    found: list[GroupLag] = []
    is_known = group is None
    for of_stream, of_topic in topics_named(client, stream, topic):
        try:
            groups = client.get_consumer_groups(of_stream.id, of_topic.id)
            if group is not None:
                groups = tuple(each for each in groups if identifier(group) in (each.id, each.name))
                is_known = is_known or bool(groups)
            details = client.get_topic(of_stream.id, of_topic.id) if groups else None
            if details is not None:
                reader = _Reader(client, of_stream, details, now_us)
                found += [reader.lag(each) for each in groups]
        except NotFound:
            continue
    if not is_known:
        refuse(
            f'there is no consumer group "{group}"; `borzoi consumer-group list {stream} {topic}` shows all'
        )
    return found


class _Reader:
    """Reads the lag of groups of one topic; groups that stand at the same message share a poll."""

    def __init__(self, client: "Client", stream: "StreamInfo", topic: "TopicDetails", now_us: int) -> None:
        self._client = client
        self._stream = stream
        self._topic = topic
        self._now_us = now_us
        self._times_us: dict[tuple[int, int], int | None] = {}

    def lag(self, group: "GroupInfo") -> GroupLag:
        from borzoi.client.values import Consumer

        where = self._stream.id, self._topic.id
        details = self._client.get_consumer_group(*where, group.id)
        members = () if details is None else details.members
        owner = owners((member.id, member.partitions) for member in members)
        who = Consumer.group(group.id)
        found: list[PartitionLag] = []
        for partition in self._topic.partitions:
            committed = committed_offset(self._client, *where, partition.id, who)
            bounds = Bounds.of(partition, committed)
            since_us = self._unread_since_us(partition.id, next_unread(bounds, committed))
            member = owner.get(partition.id)
            found.append(partition_lag(partition.id, bounds, committed, since_us, self._now_us, member))
        return GroupLag(self._stream.name, self._topic.name, group.name, len(members), tuple(found))

    def _unread_since_us(self, partition_id: int, offset: int | None) -> int | None:
        from borzoi.client.values import PollingStrategy

        if offset is None:
            return None
        key = partition_id, offset
        if key not in self._times_us:
            strategy = PollingStrategy.Offset(offset)
            message = peek(self._client, self._stream.id, self._topic.id, partition_id, strategy)
            self._times_us[key] = None if message is None else message.timestamp
        return self._times_us[key]
