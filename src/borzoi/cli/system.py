"""`borzoi ping`, `stats`, `me` and `snapshot`: about the server itself, and this client of it."""

import datetime as dt
import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from borzoi.cli.connection import Invocation, fail, register, single_command, wrong_usage
from borzoi.cli.output import plain, print_json, shown_cell, shown_size, shown_time
from borzoi.cli.progress import Progress

_EXIT_FILE = 1
_PAUSE_S = 1.0


class ArchiveCompression(Enum):
    """How files in a snapshot are compressed."""

    STORED = "stored"
    DEFLATED = "deflated"
    BZIP2 = "bzip2"
    ZSTD = "zstd"
    LZMA = "lzma"
    XZ = "xz"


class Part(Enum):
    """What can be in a snapshot."""

    FILESYSTEM_OVERVIEW = "filesystem_overview"
    PROCESS_LIST = "process_list"
    RESOURCE_USAGE = "resource_usage"
    TEST = "test"
    SERVER_LOGS = "server_logs"
    SERVER_CONFIG = "server_config"
    ALL = "all"


class StatsForm(Enum):
    """How statistics are printed; `list` is a line each, with a bar between name and value."""

    TABLE = "table"
    LIST = "list"
    JSON = "json"
    TOML = "toml"


ping_command, stats_command, me_command, snapshot_command = (single_command() for _ in range(4))


@register(ping_command, "ping")
def ping(
    run: Invocation,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="How many times, once a second.")] = 1,
) -> None:
    """Measure how long the server takes to answer. Needs no login.

    \b
        borzoi ping -c 3
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    times_ms: list[float] = []
    with run.connect(log_in=False) as client:
        for number in range(1, count + 1):
            if times_ms:
                time.sleep(_PAUSE_S)
            start_ns = time.perf_counter_ns()
            client.ping()
            times_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
            if not run.out.as_json:
                print(f"ping {number}: {times_ms[-1]:.2f} ms")
    average_ms = sum(times_ms) / count
    if run.out.as_json:
        print_json(
            {"times_ms": times_ms, "min_ms": min(times_ms), "avg_ms": average_ms, "max_ms": max(times_ms)}
        )
    else:
        print(f"min/avg/max {min(times_ms):.3f}/{average_ms:.3f}/{max(times_ms):.3f} ms")


@register(stats_command, "stats")
def stats(
    run: Invocation,
    form: Annotated[
        StatsForm | None, typer.Option("-o", "--output", help="How to print.", show_default="table")
    ] = None,
) -> None:
    """Show what the server holds and uses.

    \b
        borzoi stats
        borzoi stats --json
        borzoi stats --output toml
    """  # noqa: D301
    if run.out.as_json and form not in (None, StatsForm.JSON):
        wrong_usage("give --json or --output, not both")
    with run.connect() as client:
        found = client.get_stats()
    match form:
        case StatsForm.JSON:
            print_json(found)
        case StatsForm.TOML:
            from borzoi.cli.toml_text import pairs

            print(pairs(plain(found)), end="")
        case StatsForm.LIST:
            for name, value in _stats_properties(found):
                print(f"{name}|{shown_cell(value)}")
        case _:
            run.out.properties(found, _stats_properties(found))


@register(me_command, "me")
def me(run: Invocation) -> None:
    """Show this client as the server sees it: a check of address and login.

    \b
        borzoi me --server iggy://iggy:iggy@127.0.0.1:8090
    """  # noqa: D301
    with run.connect() as client:
        found = client.get_me()
    run.out.properties(
        found,
        [
            ("Client ID", found.client_id),
            ("User ID", found.user_id),
            ("Address", found.address),
            ("Transport", found.transport),
        ],
    )


@register(snapshot_command, "snapshot")
def snapshot(
    run: Invocation,
    compression: Annotated[
        ArchiveCompression, typer.Option("-c", "--compression", help="How the archive is compressed.")
    ] = ArchiveCompression.DEFLATED,
    parts: Annotated[
        list[Part] | None,
        typer.Option(
            "-s",
            "--snapshot-types",
            help="What to put in; can be repeated.",
            show_default="filesystem_overview, process_list, resource_usage, server_logs",
        ),
    ] = None,
    out_dir: Annotated[
        Path, typer.Option("-o", "--out-dir", metavar="DIR", help="Where the archive goes.")
    ] = Path(),
) -> None:
    """Write a ZIP archive with what somebody who helps from afar wants to see.

    \b
        borzoi snapshot --out-dir . -s server_config -s server_logs
    """  # noqa: D301
    from borzoi.model.values import SnapshotCompression, SnapshotPart

    wanted = parts or [Part.FILESYSTEM_OVERVIEW, Part.PROCESS_LIST, Part.RESOURCE_USAGE, Part.SERVER_LOGS]
    with run.connect() as client, Progress("taking a snapshot", None, is_wanted=not run.out.quiet) as bar:
        bar.show_now()
        made = client.snapshot(
            SnapshotCompression[compression.name], [SnapshotPart[part.name] for part in wanted]
        )
    path = out_dir / f"snapshot_{dt.datetime.now(dt.UTC):%Y%m%d_%H%M%S}.zip"
    try:
        path.write_bytes(made.archive)
    except OSError as error:
        fail(f"the snapshot cannot be written to {path}: {error.strerror}", _EXIT_FILE)
    run.out.properties(
        {"path": str(path), "size_bytes": len(made.archive)},
        [("File", path), ("Size", shown_size(len(made.archive)))],
    )


def _stats_properties(found: Any) -> list[tuple[str, Any]]:
    from borzoi.model.units import MICROSECONDS_PER_SECOND, render_duration

    run_time_us = found.run_time_us // MICROSECONDS_PER_SECOND * MICROSECONDS_PER_SECOND
    return [
        ("Server version", found.server_version),
        ("Server PID", found.process_id),
        ("Server CPU usage", f"{found.cpu_usage:.4f}%"),
        ("Total CPU usage", f"{found.total_cpu_usage:.4f}%"),
        ("Server memory usage", shown_size(found.memory_usage_bytes)),
        ("Total memory", shown_size(found.total_memory_bytes)),
        ("Available memory", shown_size(found.available_memory_bytes)),
        ("Run time", render_duration(run_time_us)),
        ("Start time", shown_time(found.start_time_us)),
        ("Read", shown_size(found.read_bytes)),
        ("Written", shown_size(found.written_bytes)),
        ("Messages size", shown_size(found.messages_size_bytes)),
        ("Streams", found.streams_count),
        ("Topics", found.topics_count),
        ("Partitions", found.partitions_count),
        ("Segments", found.segments_count),
        ("Messages", found.messages_count),
        ("Clients", found.clients_count),
        ("Consumer groups", found.consumer_groups_count),
        ("Threads", found.threads_count),
        ("Free disk space", shown_size(found.free_disk_bytes)),
        ("Total disk space", shown_size(found.total_disk_bytes)),
        ("Host name", found.hostname),
        ("OS name", found.os_name),
        ("OS version", found.os_version),
        ("Kernel version", found.kernel_version),
    ]
