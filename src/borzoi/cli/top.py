"""`borzoi top`: what goes through the server at the moment, busiest first.

A round compares two looks at the server: offsets of all partitions and groups, sizes of topics, and the
server's own use of processor and memory. Between them lies the interval, measured by the server's clock.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli import live
from borzoi.cli.connection import Invocation, register, single_command
from borzoi.cli.output import print_table, shown_size, shown_time
from borzoi.cli.positions import Bounds, committed_offset, topics_named
from borzoi.cli.throughput import (
    GroupName,
    Rates,
    Sample,
    ServerUse,
    TopicCount,
    TopicName,
    rate_fields,
    rates,
)

if TYPE_CHECKING:
    from borzoi.client.sync import Client

top_command = single_command()


@register(top_command, "top")
def top(
    run: Invocation,
    interval: Annotated[
        float, typer.Option("-i", "--interval", metavar="SECONDS", min=0.1, help="Between two looks.")
    ] = live.DEFAULT_INTERVAL_S,
    count: Annotated[
        int | None,
        typer.Option("-n", "--count", min=1, help="How many rounds.", show_default="until Ctrl-C"),
    ] = None,
) -> None:
    """Show what goes through topics and groups at the moment, and what the server uses for it.

    With --json every round is a line.

    \b
        borzoi top
        borzoi top --interval 10 --count 6 --json
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    before: Sample | None = None

    def take(client: "Client") -> Rates:
        nonlocal before
        if before is None:
            before = sample(client)
            live.pause(interval)
        after = sample(client)
        found, before = rates(before, after), after
        return found

    live.watch(run, take, render=_print, fields=rate_fields, interval_s=interval, count=count)


def sample(client: "Client") -> Sample:
    """One look. What is deleted meanwhile is left out."""
    from borzoi.model.errors import NotFound

    stats = client.get_stats()
    topics: dict[TopicName, TopicCount] = {}
    groups: dict[GroupName, dict[int, int]] = {}
    for stream, topic in topics_named(client, None):
        name = stream.name, topic.name
        try:
            details = client.get_topic(stream.id, topic.id)
            if details is None:
                continue
            bounds = {each.id: Bounds.of(each) for each in details.partitions}
            topics[name] = TopicCount(bounds, details.messages_count, details.size_bytes)
            for group in client.get_consumer_groups(stream.id, topic.id):
                groups[*name, group.name] = _stored_offsets(client, stream.id, topic.id, group.id, bounds)
        except NotFound:
            continue
    use = ServerUse(stats.cpu_usage, stats.memory_usage_bytes, stats.clients_count, stats.messages_count)
    return Sample(stats.start_time_us + stats.run_time_us, use, topics, groups)


def _stored_offsets(
    client: "Client", stream_id: int, topic_id: int, group_id: int, partitions: Iterable[int]
) -> dict[int, int]:
    from borzoi.client.values import Consumer

    who = Consumer.group(group_id)
    found = {each: committed_offset(client, stream_id, topic_id, each, who) for each in partitions}
    return {partition: offset for partition, offset in found.items() if offset is not None}


def _print(found: Rates) -> None:
    server = found.server
    print(
        f"{shown_time(found.now_us)}  over {found.interval_s:.1f}s  CPU {server.cpu_percent:.1f}%  "
        f"memory {shown_size(server.memory_bytes)}  clients {server.clients_count}  "
        f"messages {server.messages_count}"
    )
    print()
    print_table(
        ("Stream", "Topic", "In msg/s", "In B/s", "Messages", "Size"),
        (
            (
                each.stream,
                each.topic,
                f"{each.messages_per_s:.1f}",
                f"{shown_size(round(each.bytes_per_s))}/s",
                each.messages_count,
                shown_size(each.size_bytes),
            )
            for each in found.topics
        ),
    )
    if found.groups:
        print()
        print_table(
            ("Stream", "Topic", "Group", "Consumed msg/s"),
            ((each.stream, each.topic, each.group, f"{each.messages_per_s:.1f}") for each in found.groups),
        )
