"""What the machine and the process are doing. Runs on a thread; imports psutil only when asked."""

import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from borzoi.model.replies import Stats


@dataclass(frozen=True, slots=True)
class Counts:
    streams: int
    topics: int
    partitions: int
    segments: int
    messages: int
    size_bytes: int
    clients: int
    groups: int


def process_stats(counts: Counts, path: Path, version: str, started_at_us: int, now_us: int) -> Stats:
    import psutil  # noqa: PLC0415 - costs start-up time that most servers never need to spend

    process = psutil.Process()
    memory = psutil.virtual_memory()
    try:
        io = process.io_counters()
        read_bytes, written_bytes = io.read_bytes, io.write_bytes
    except (psutil.AccessDenied, AttributeError):
        read_bytes = written_bytes = 0
    disk = shutil.disk_usage(path)
    system = platform.uname()
    release = _os_release()
    return Stats(
        process_id=os.getpid(),
        cpu_usage=process.cpu_percent(interval=0.05),
        total_cpu_usage=psutil.cpu_percent(interval=None),
        memory_usage_bytes=process.memory_info().rss,
        total_memory_bytes=memory.total,
        available_memory_bytes=memory.available,
        run_time_us=max(0, now_us - started_at_us),
        start_time_us=started_at_us,
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        messages_size_bytes=counts.size_bytes,
        streams_count=counts.streams,
        topics_count=counts.topics,
        partitions_count=counts.partitions,
        segments_count=counts.segments,
        messages_count=counts.messages,
        clients_count=counts.clients,
        consumer_groups_count=counts.groups,
        hostname=system.node,
        os_name=release.get("NAME", system.system),
        os_version=release.get("VERSION_ID", system.release),
        kernel_version=system.release,
        server_version=version,
        server_semver=semver_number(version),
        cache_metrics=(),
        threads_count=process.num_threads(),
        free_disk_bytes=disk.free,
        total_disk_bytes=disk.total,
    )


def semver_number(version: str) -> int:
    """The version as major * 1000000 + minor * 1000 + patch; 0 if it is not of that form."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        return 0
    major, minor, patch = map(int, match.groups())
    return major * 1_000_000 + minor * 1_000 + patch


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
