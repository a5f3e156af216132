"""What offsets were before they were reset: a file of JSON lines, so that a reset can be undone.

    {"reset": "<id>", "at_us": ..., "server": "host:port", "stream": "...", "topic": "...", "kind": "group",
     "consumer": "...", "partitions": [{"partition_id": 0, "before": 41, "after": null}, ...]}
    {"undone": "<id>", "at_us": ...}

The file is `group_resets.jsonl` in the directory of `borzoi.cli.home`, readable by its owner only. A reset is
written, and on the device, before it is applied, so whatever was changed is known; an undo is written after
it, so that one that fails can be repeated. A line that was not written to its end stands for something that
was not begun, and is passed over. Nothing is ever removed from the file.
"""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from borzoi.cli.home import HomeFileError, home

FILE_NAME = "group_resets.jsonl"

_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose offsets, where. Names are those the server has, whatever the user wrote."""

    server: str
    stream: str
    topic: str
    kind: str
    consumer: str | int


@dataclass(frozen=True, slots=True)
class Change:
    """None is: no offset stored."""

    partition_id: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Reset:
    id: str
    at_us: int
    subject: Subject
    changes: tuple[Change, ...]


class Journal:
    """Raises `HomeFileError` if the file cannot be read or written."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = home() if directory is None else directory
        self.path = self._directory / FILE_NAME

    def record(self, subject: Subject, changes: list[Change], at_us: int) -> Reset:
        """Write down a reset that is about to be applied."""
        reset = Reset(secrets.token_hex(8), at_us, subject, tuple(changes))
        self._append(
            {
                "reset": reset.id,
                "at_us": at_us,
                **asdict(subject),
                "partitions": [asdict(change) for change in changes],
            }
        )
        return reset

    def undone(self, reset: Reset, at_us: int) -> None:
        self._append({"undone": reset.id, "at_us": at_us})

    def last(self, subject: Subject) -> Reset | None:
        """The latest reset that has not been undone."""
        found: dict[str, Reset] = {}
        for entry in self._entries():
            if "undone" in entry:
                found.pop(entry["undone"], None)
            elif (reset := _reset(entry)) is not None and reset.subject == subject:
                found[reset.id] = reset
        return list(found.values())[-1] if found else None

    def _entries(self) -> list[dict[str, Any]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HomeFileError(f"{self.path} cannot be read: {error.strerror}") from error
        entries = []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                entries.append(entry)
        return entries

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            self._write(entry)
        except OSError as error:
            raise HomeFileError(f"{self.path} cannot be written: {error.strerror}") from error

    def _write(self, entry: dict[str, Any]) -> None:
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            size_bytes = os.fstat(file).st_size
            if size_bytes and os.pread(file, 1, size_bytes - 1) != b"\n":
                line = b"\n" + line  # the line before was cut off
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)


def _reset(entry: dict[str, Any]) -> Reset | None:
    try:
        subject = Subject(*(entry[name] for name in ("server", "stream", "topic", "kind", "consumer")))
        changes = tuple(Change(**change) for change in entry["partitions"])
        return Reset(entry["reset"], entry["at_us"], subject, changes)
    except (KeyError, TypeError):
        return None
