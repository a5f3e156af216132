"""How commands print: aligned tables for people, JSON for programs.

What comes from the server may hold anything; control characters are shown as escapes, so that a name or a
payload cannot take over a terminal. JSON has the names of the client's attributes; enumerations are words in
lower case, times are microseconds since 1970.
"""

import datetime as dt
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TextIO

_GAP = "  "
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Output:
    """`quiet`: standard output goes nowhere while the command runs, but `screen` is the real one."""

    as_json: bool
    quiet: bool = False
    screen: TextIO | None = None

    def result(self, text: str) -> None:
        """A line that is the very thing asked for, and printed even if all else is not."""
        print(one_line(text), file=self.screen)

    def done(self, text: str, **facts: Any) -> None:
        """Confirm what was done; the facts are for programs."""
        if self.as_json:
            print_json(facts)
        else:
            print(one_line(text))

    def rows(self, values: Sequence[Any], columns: Sequence[str], cells: Iterable[Sequence[Any]]) -> None:
        """A list of things: `values` for programs, the others for people."""
        if self.as_json:
            print_json(values)
        else:
            print_table(columns, cells)

    def properties(self, value: Any, pairs: Iterable[tuple[str, Any]]) -> None:
        """One thing: a line for each property."""
        if self.as_json:
            print_json(value)
            return
        shown = [(name, shown_cell(cell)) for name, cell in pairs]
        width = max(len(name) for name, _ in shown)
        for name, cell in shown:
            print(f"{name.ljust(width)}{_GAP}{cell}".rstrip())


def print_table(columns: Sequence[str], cells: Iterable[Sequence[Any]]) -> None:
    """Numbers are aligned to the right. Without rows only the head is printed."""
    rows = [list(row) for row in cells]
    texts = [[shown_cell(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(columns, *texts, strict=True)]
    to_right = [all(map(_is_number, column)) for column in zip(*rows, strict=True)] or [False] * len(columns)
    for line in [list(columns), *texts]:
        cells_of_line = []
        for text, width, right in zip(line, widths, to_right, strict=True):
            space = " " * (width - _width(text))
            cells_of_line.append(space + text if right else text + space)
        print(_GAP.join(cells_of_line).rstrip())


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    print(json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")))


def plain(value: Any) -> Any:
    """What JSON can say of a value of the client."""
    import msgspec

    from borzoi.model.headers import to_python
    from borzoi.model.values import TypedValue

    match value:
        case TypedValue():
            return plain(to_python(value))
        case Enum():
            return word(value)
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case dict():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytes():
            return value.hex()
    return value


def word(value: Enum) -> str:
    return value.name.lower()


def shown_cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return word(value)
    return one_line(str(value))


def shown_time(time_us: int) -> str:
    moment = _EPOCH + dt.timedelta(microseconds=time_us)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def shown_size(size_bytes: int) -> str:
    from borzoi.model.units import render_byte_size_rounded

    return render_byte_size_rounded(size_bytes)


def one_line(text: str) -> str:
    """The text with everything that is not printable as an escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | Enum)


def _width(text: str) -> int:
    """Columns on a terminal: wide letters take two, accents that go onto the letter before them none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )
