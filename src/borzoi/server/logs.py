"""The server's own log: one line of `key=value` per event on standard error.

Events are short phrases, everything that varies is a field. Built on the standard library's logging,
which asyncio brings along anyway (docs/decisions/0003-logging.md).
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
    "none": logging.CRITICAL + 1,
}
_NAME = "borzoi"
_REPEAT_SECONDS = 1.0
_REPEATS_MAX = 1024
_QUOTED = frozenset(' "=\\')


class EventLogger:
    """`logger.info("logged in", user="iggy")`."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """For what nobody expected: with the traceback of the exception at hand."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=exc_info)


class RepeatFilter(logging.Filter):
    """Lets one of many alike warnings or errors through per second, and says how many it kept back.

    A full disk fails every send; without this the log would take the space that comes free.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        fields: dict[str, Any] = getattr(record, "fields", {})
        key = (record.getMessage(), fields.get("path"))
        passed_at, kept_back = self._last.get(key, (0.0, 0))
        if record.created - passed_at < _REPEAT_SECONDS:
            self._last[key] = (passed_at, kept_back + 1)
            return False
        if kept_back:
            record.fields = {**fields, "repeated": kept_back}
        if len(self._last) >= _REPEATS_MAX:
            self._last.clear()
        self._last[key] = (record.created, 0)
        return True


class LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = " ".join(
            [
                time.replace("+00:00", "Z"),
                f"{record.levelname.lower():<7}",
                record.getMessage(),
                *(f"{key}={_text(value)}" for key, value in fields.items()),
            ]
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _text(value: Any) -> str:
    """A field's value on one line. Names are chosen by clients and may hold anything, also control codes."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text and text.isprintable() and not _QUOTED.intersection(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if not escaped.isprintable():
        escaped = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in escaped
        )
    return f'"{escaped}"'


def configure(level: str) -> EventLogger:
    """Set the process's logging up; libraries' warnings come out in the same form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger = logging.getLogger(_NAME)
    logger.setLevel(_LEVELS[level])
    return EventLogger(logger)
