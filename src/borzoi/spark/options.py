"""Options of the Spark source and sink, as texts by name, turned into values.

Spark hands options over without regard to case; so they are looked up without it, and shown as they are
documented. Every option that is given must be known to whoever reads it: a misspelt one is an error that
names the nearest known one, not a default. Spark adds a few options of its own in some paths; exactly those
are passed over.

Faults are `InvalidOptionValue` with a text that begins with the option's name. No text contains what stands
before the "@" of a connection string.

    options = Options(given, known=(*TARGET_OPTIONS, "group"))
    target = Target.of(options)
    group = options.text("group", "spark")
"""

import datetime as dt
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from borzoi.client.settings import parse_connection_string
from borzoi.client.values import identifier
from borzoi.model.errors import BorzoiError, InvalidOptionValue
from borzoi.model.limits import U64_MAX
from borzoi.model.units import MICROSECONDS_PER_SECOND, parse_byte_size, parse_duration
from borzoi.model.values import Identifier

# What source and sink have in common: which topic, on which server, and how long a request to it may take.
TARGET_OPTIONS = ("connection", "stream", "topic", "deadline")
DEFAULT_DEADLINE_S = 60.0

# Spark's own, in lower case: where a query keeps its state, what `load(path)` and `start(path)` were given,
# and what a query is called.
_OF_SPARK = frozenset({"path", "paths", "checkpointlocation", "queryname"})
# Stands before the options of a table that is created, beside those without it. Spark 4.3 keeps neither.
_TABLE_PREFIX = "option."
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_UNLIMITED = ("unlimited", "none", "0")
_CREDENTIALS = re.compile(r"(://)[^@\s]*@")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def redacted(text: str) -> str:
    """The text without the credentials of connection strings in it."""
    return _CREDENTIALS.sub(r"\1***@", text)


class Options:
    """What was given, checked against the names that are known. Empty values count as not given."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        for written in given:
            if written.lower().startswith(_TABLE_PREFIX):
                raise InvalidOptionValue(
                    "a table does not keep its options; use CREATE TEMPORARY VIEW instead of CREATE TABLE"
                )
            if written.lower() not in names and written.lower() not in _OF_SPARK:
                raise InvalidOptionValue(
                    f'there is no option "{redacted(written)}"{nearest(written, names.values())}'
                )
        self._names = names
        self._given = {
            names[written.lower()]: value.strip()
            for written, value in given.items()
            if written.lower() in names and value.strip()
        }

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def required(self, name: str, example: str) -> str:
        found = self.text(name)
        if found is None:
            raise InvalidOptionValue(f'option "{name}" is missing: .option("{name}", "{example}")')
        return found

    def text(self, name: str, default: str | None = None) -> str | None:
        if name.lower() not in self._names:
            raise KeyError(name)  # a fault of the program: nobody could ever give it
        return self._given.get(name, default)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """One of these words, whatever their case."""
        text = self.text(name)
        if text is None:
            return default
        by_lower = {choice.lower(): choice for choice in choices}
        found = by_lower.get(text.lower())
        if found is None:
            raise self.fault(name, f"write {' or '.join(by_lower.values())}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _TRUE + _FALSE:
            raise self.fault(name, "write true or false")
        return text.lower() in _TRUE

    def number(
        self, name: str, default: int | None = None, *, minimum: int = 0, maximum: int = U64_MAX
    ) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        digits = text.replace("_", "")
        if not (digits.isascii() and digits.isdecimal()) or not minimum <= int(digits) <= maximum:
            upper = "" if maximum == U64_MAX else f" to {maximum}"
            raise self.fault(name, f"write a whole number from {minimum}{upper}")
        return int(digits)

    def limit(self, name: str, default: int | None = None) -> int | None:
        """A number of at least one; None if there is no limit ("unlimited")."""
        text = self.text(name)
        if text is not None and text.lower() in _UNLIMITED:
            return None
        return self.number(name, default, minimum=1)

    def size_bytes(self, name: str, default: int | None = None, *, minimum: int = 1) -> int | None:
        """A number of bytes ("64 MiB"); None if there is no limit ("unlimited")."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() in _UNLIMITED:
            return None
        try:
            found = parse_byte_size(text)
        except ValueError as error:
            raise InvalidOptionValue(f'option "{name}": {error}') from None
        if found < minimum:
            raise self.fault(name, f"it is at least {minimum} bytes")
        return found

    def duration_s(self, name: str, default: float) -> float:
        """A duration above zero ("30s"), in seconds."""
        text = self.text(name)
        if text is None:
            return default
        try:
            found_us = parse_duration(text)
        except ValueError as error:
            raise InvalidOptionValue(f'option "{name}": {error}') from None
        if not found_us:
            raise self.fault(name, "it is longer than zero")
        return found_us / MICROSECONDS_PER_SECOND

    def timestamp_us(self, name: str) -> int | None:
        """A moment in microseconds since 1970: written so, or as ISO 8601, which without a zone is UTC."""
        text = self.text(name)
        if text is None:
            return None
        if text.isascii() and text.isdecimal():
            return self.number(name, maximum=2**63 - 1)
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            raise self.fault(
                name, 'write a time like "2026-05-01T12:00:00Z" or microseconds since 1970'
            ) from None
        moment = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
        if moment < _EPOCH:
            raise self.fault(name, "it is before 1970")
        return (moment - _EPOCH) // _MICROSECOND

    def words(self, name: str) -> tuple[str, ...] | None:
        """Texts between commas."""
        text = self.text(name)
        if text is None:
            return None
        found = tuple(word.strip() for word in text.split(","))
        if not all(found):
            raise self.fault(name, "a name is empty; separate names with one comma")
        return found

    def json_object(self, name: str, example: str) -> dict[str, Any] | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise self.fault(name, f"it is not JSON ({error}); write for example {example}") from None
        if not isinstance(found, dict):
            raise self.fault(name, f"it is not a JSON object; write for example {example}")
        return found

    def fault(self, name: str, reason: str) -> InvalidOptionValue:
        """An error about an option's value, which is quoted without credentials."""
        return InvalidOptionValue(f'option "{name}" is "{redacted(self._given.get(name, ""))}": {reason}')


@dataclass(frozen=True, slots=True)
class Target:
    """A topic on a server. Its text has no credentials."""

    connection: str
    stream: Identifier
    topic: Identifier
    deadline_s: float = DEFAULT_DEADLINE_S

    @classmethod
    def of(cls, options: Options, *, needs_server: bool = True) -> Self:
        """Without a server, where that is allowed, `connection` is empty."""
        connection = (
            options.required("connection", "iggy://user:password@127.0.0.1:8090")
            if needs_server
            else options.text("connection") or ""
        )
        try:
            if connection:
                parse_connection_string(connection)
        except BorzoiError as error:
            # With a second "@" nobody can tell where the password ends; then nothing of the text is quoted.
            detail = error.detail if connection.count("@") < 2 else 'write "%40" for an "@" in a password'
            raise InvalidOptionValue(f'option "connection": {redacted(detail)}') from None
        return cls(
            connection,
            _identifier(options, "stream", "orders"),
            _identifier(options, "topic", "events"),
            options.duration_s("deadline", DEFAULT_DEADLINE_S),
        )

    def __str__(self) -> str:
        return f"{self.stream}/{self.topic}"

    def __repr__(self) -> str:
        return f"Target({redacted(self.connection)!r}, {self.stream!r}, {self.topic!r})"


def _identifier(options: Options, name: str, example: str) -> Identifier:
    """Digits are an id, everything else is a name, as on the command line."""
    text = options.required(name, example)
    try:
        return identifier(int(text) if text.isascii() and text.isdecimal() else text)
    except BorzoiError as error:
        raise options.fault(name, str(error)) from None


def nearest(written: str, names: Iterable[str]) -> str:
    """What was probably meant, to be added to the text of an error; otherwise all there is."""
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(written.lower(), by_lower, n=1)
    return (
        f'; did you mean "{by_lower[found[0]]}"?' if found else f"; known are {', '.join(by_lower.values())}"
    )
