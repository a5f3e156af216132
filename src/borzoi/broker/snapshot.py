"""The support snapshot: a ZIP with what a person who helps from afar wants to see.

Runs on a thread. A part that cannot be collected says so in its own file; it never fails the others.
Secrets do not enter: the configuration in it is the effective one as the server wrote it at start, with
secrets masked.
"""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from borzoi.broker.settings import BrokerSettings
from borzoi.model.errors import FeatureUnavailable
from borzoi.model.values import SnapshotCompression, SnapshotPart

CONFIG_FILE = "runtime/current_config.toml"
LOG_DIRECTORY = "logs"
_LOG_BYTES_MAX = 16 << 20
_LISTED_MAX = 100_000

_METHODS = {
    SnapshotCompression.STORED: zipfile.ZIP_STORED,
    SnapshotCompression.DEFLATED: zipfile.ZIP_DEFLATED,
    SnapshotCompression.BZIP2: zipfile.ZIP_BZIP2,
    SnapshotCompression.LZMA: zipfile.ZIP_LZMA,
}


def make_archive(
    compression: SnapshotCompression, parts: tuple[SnapshotPart, ...], path: Path, settings: BrokerSettings
) -> bytes:
    method = _METHODS.get(compression)
    if method is None:
        raise FeatureUnavailable(f"ZIP files with {compression.name.lower()} cannot be made here")
    wanted = set(_COLLECTORS) - {SnapshotPart.TEST} if SnapshotPart.ALL in parts else set(parts)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for part, (name, collect) in _COLLECTORS.items():
            if part in wanted:
                archive.writestr(name, _collected(collect, path, settings))
    return buffer.getvalue()


def _collected(collect: Callable[[Path, BrokerSettings], str], path: Path, settings: BrokerSettings) -> str:
    try:
        return collect(path, settings)
    except (OSError, ImportError) as error:
        return f"could not be collected: {error}\n"


def _filesystem(path: Path, _settings: BrokerSettings) -> str:
    lines = []
    for directory, names, files in os.walk(path):
        names.sort()
        for name in sorted(files):
            file = Path(directory) / name
            try:
                lines.append(f"{file.stat().st_size:>14} {file.relative_to(path)}")
            except FileNotFoundError:
                continue
            if len(lines) >= _LISTED_MAX:
                return "\n".join([*lines, "... and more", ""])
    return "\n".join([*lines, ""])


def _processes(_path: Path, _settings: BrokerSettings) -> str:
    import psutil  # noqa: PLC0415 - see borzoi.broker.stats

    lines = [f"{'PID':>7} {'RSS':>12} NAME"]
    for process in psutil.process_iter(["pid", "memory_info", "name"]):
        memory = process.info["memory_info"]
        lines.append(f"{process.info['pid']:>7} {memory.rss if memory else 0:>12} {process.info['name']}")
    return "\n".join([*lines, ""])


def _resources(path: Path, settings: BrokerSettings) -> str:
    import psutil  # noqa: PLC0415 - see borzoi.broker.stats

    disk = psutil.disk_usage(str(path))
    process = psutil.Process()
    return "\n".join(
        [
            f"version {settings.version}",
            f"load {psutil.getloadavg()}",
            f"cpu_count {psutil.cpu_count()}",
            f"memory {psutil.virtual_memory()}",
            f"disk {disk}",
            f"process_memory {process.memory_info()}",
            f"process_cpu {process.cpu_times()}",
            f"process_threads {process.num_threads()}",
            f"process_files {process.num_fds()}",
            "",
        ]
    )


def _logs(path: Path, _settings: BrokerSettings) -> str:
    files = sorted((path / LOG_DIRECTORY).glob("*.log*"), key=lambda file: file.stat().st_mtime)
    text = "".join(file.read_text(errors="replace") for file in files)
    return text[-_LOG_BYTES_MAX:] or "the server logs to its standard error only\n"


def _config(path: Path, _settings: BrokerSettings) -> str:
    return (path / CONFIG_FILE).read_text()


def _test(_path: Path, _settings: BrokerSettings) -> str:
    return "test\n"


_COLLECTORS: dict[SnapshotPart, tuple[str, Callable[[Path, BrokerSettings], str]]] = {
    SnapshotPart.FILESYSTEM_OVERVIEW: ("filesystem_overview.txt", _filesystem),
    SnapshotPart.PROCESS_LIST: ("process_list.txt", _processes),
    SnapshotPart.RESOURCE_USAGE: ("resource_usage.txt", _resources),
    SnapshotPart.TEST: ("test.txt", _test),
    SnapshotPart.SERVER_LOGS: ("server_logs.txt", _logs),
    SnapshotPart.SERVER_CONFIG: ("server_config.txt", _config),
}
