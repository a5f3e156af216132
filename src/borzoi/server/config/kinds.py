"""The kinds of value a configuration key can hold: what is accepted, and how a value is written back.

A kind turns what TOML or the environment gives into the value the program uses (`parse`, `parse_text`), and
that value into what TOML or JSON would hold (`plain`); but for `Tables`, `parse(plain(value)) == value`. A
value that is not accepted is a `ValueError` whose text names the value and says what is. Kinds know no keys,
no files and no origins: those are the loader's.

Plain classes instead of dataclasses: each generated class costs about a millisecond at import.
"""

import re
from pathlib import Path
from typing import Any

from borzoi.model.limits import U32_MAX, U64_MAX
from borzoi.model.units import (
    EXPIRY_NEVER,
    parse_byte_size,
    parse_duration,
    parse_expiry,
    parse_max_topic_size,
    render_byte_size,
    render_duration,
    render_expiry,
    render_max_topic_size,
)
from borzoi.server.config.addresses import split_address

Plain = bool | int | float | str | list[str]
"""What a value looks like in TOML and JSON."""

_LIST_ITEM = re.compile(r'\s*(?:"([^"]*)"|\'([^\']*)\'|([^,"\'\[\]]*?))\s*(,|$)')


class Kind:
    """The kind of text, and the base of the others."""

    __slots__ = ("accepts",)

    def __init__(self, accepts: str = "text") -> None:
        self.accepts = accepts

    def parse(self, value: object) -> Any:
        """The program's value of a TOML value."""
        if not isinstance(value, str):
            raise self.refusal(value)
        return value

    def parse_text(self, text: str) -> Any:
        """The program's value of text from the environment or a flag, which knows no types."""
        return self.parse(text)

    def plain(self, value: Any) -> Plain:
        """The TOML value of a program's value."""
        return value  # type: ignore[no-any-return]

    def literal(self, value: Any) -> str:
        """The value as TOML writes it."""
        return toml_literal(self.plain(value))

    def refusal(self, value: object) -> ValueError:
        return ValueError(f"{toml_literal(value)} is not {self.accepts}")


class SizedText(Kind):
    """Text of a bounded number of UTF-8 bytes."""

    __slots__ = ("maximum_bytes", "minimum_bytes")

    def __init__(self, minimum_bytes: int, maximum_bytes: int) -> None:
        super().__init__(f"text of {minimum_bytes} to {maximum_bytes} bytes")
        self.minimum_bytes, self.maximum_bytes = minimum_bytes, maximum_bytes

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not self.minimum_bytes <= len(value.encode()) <= self.maximum_bytes:
            raise self.refusal(value)
        return value


class FilePath(Kind):
    """A path, kept as it was written; relative ones start at the working directory."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("a path")

    def parse(self, value: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.refusal(value)
        return Path(value)

    def plain(self, value: Path) -> str:
        return str(value)


class Boolean(Kind):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("true or false")

    def parse(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refusal(value)
        return value

    def parse_text(self, text: str) -> bool:
        lowered = text.strip().lower()
        if lowered not in {"true", "false"}:
            raise self.refusal(text)
        return lowered == "true"


class Integer(Kind):
    __slots__ = ("maximum", "minimum")

    def __init__(self, minimum: int = 0, maximum: int = U32_MAX) -> None:
        super().__init__(f"an integer from {minimum} to {maximum}")
        self.minimum, self.maximum = minimum, maximum

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise self.refusal(value)
        return value

    def parse_text(self, text: str) -> int:
        stripped = text.strip()
        if not stripped.isascii() or not stripped.isdecimal() or len(stripped) > 20:
            raise self.refusal(text)
        return self.parse(int(stripped))


class Choice(Kind):
    """One of a few words, in any case."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        super().__init__("one of " + ", ".join(words))
        self.words = {word.lower(): word for word in words}

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or value.strip().lower() not in self.words:
            raise self.refusal(value)
        return self.words[value.strip().lower()]


class IndexCache(Choice):
    """`all`, `open_segment` or `none`; true and false are other names of the first and the last."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("all", "open_segment", "none")
        self.accepts += ", true, false"

    def parse(self, value: object) -> str:
        if isinstance(value, bool):
            return "all" if value else "none"
        if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return self.parse(value.strip().lower() == "true")
        return super().parse(value)


class CpuAllocation(Kind):
    """How many shards there are and where they run; kept as text."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__('"all", a number, a range such as "0..4" or "numa:auto"')

    def parse(self, value: object) -> str:
        text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
        if re.fullmatch(r"all|[1-9][0-9]*|[0-9]+\.\.[0-9]+|numa:.+", text) is None:
            raise self.refusal(value)
        return text


class Duration(Kind):
    """Microseconds."""

    __slots__ = ("minimum_us",)

    def __init__(self, minimum_us: int = 0) -> None:
        least = f" of at least {render_duration(minimum_us)}" if minimum_us else ""
        super().__init__(f'a duration{least} such as "30s" or "2 days 4 hours"')
        self.minimum_us = minimum_us

    def parse(self, value: object) -> int:
        # TOML's 0 is the one number without a unit that the grammar knows.
        duration_us = parse_duration("0" if value == 0 and not isinstance(value, bool) else self._text(value))
        if duration_us < self.minimum_us:
            raise self.refusal(value)
        return duration_us

    def plain(self, value: int) -> str:
        return render_duration(value)

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise self.refusal(value)
        return value


class Expiry(Kind):
    """Microseconds, or U64_MAX for never. "The server's default" has no meaning where that is what is set."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__('"none" or a duration such as "7 days"')

    def parse(self, value: object) -> int:
        if not isinstance(value, str):
            raise self.refusal(value)
        expiry_us = parse_expiry(value)
        if expiry_us == 0:
            raise self.refusal(value)
        return expiry_us

    def plain(self, value: int) -> str:
        return "none" if value == EXPIRY_NEVER else render_expiry(value)


class ByteSize(Kind):
    """Bytes."""

    __slots__ = ("maximum_bytes", "minimum_bytes", "multiple_bytes")

    def __init__(self, minimum_bytes: int = 0, maximum_bytes: int = U64_MAX, multiple_bytes: int = 1) -> None:
        bounds = []
        if minimum_bytes:
            bounds.append(f"of at least {render_byte_size(minimum_bytes)}")
        if maximum_bytes != U64_MAX:
            bounds.append(f"of at most {render_byte_size(maximum_bytes)}")
        if multiple_bytes != 1:
            bounds.append(f"that is a multiple of {multiple_bytes} bytes")
        super().__init__(" ".join(["a size", *bounds, 'such as "64 MiB" or a number of bytes']))
        self.minimum_bytes, self.maximum_bytes = minimum_bytes, maximum_bytes
        self.multiple_bytes = multiple_bytes

    def parse(self, value: object) -> int:
        size_bytes = self._size(value)
        if not self.minimum_bytes <= size_bytes <= self.maximum_bytes or size_bytes % self.multiple_bytes:
            raise self.refusal(value)
        return size_bytes

    def plain(self, value: int) -> str:
        return render_byte_size(value)

    def _size(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, str):
            return parse_byte_size(value)
        raise self.refusal(value)


class OptionalByteSize(ByteSize):
    """Bytes, or nothing for the library's own default, written as an empty text."""

    __slots__ = ()

    def parse(self, value: object) -> int | None:  # type: ignore[override]
        return None if value == "" else super().parse(value)

    def plain(self, value: int | None) -> str:
        return "" if value is None else render_byte_size(value)


class MaxTopicSize(Kind):
    """Bytes, or U64_MAX for unlimited."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__('"unlimited" or a size such as "10 GiB"')

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.refusal(value)
        size_bytes = parse_max_topic_size(str(value))
        if size_bytes == 0:
            raise self.refusal(value)
        return size_bytes

    def plain(self, value: int) -> str:
        return render_max_topic_size(value)


class Address(Kind):
    """`host:port`, kept as text; see `split_address`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__('host:port such as "127.0.0.1:8090", "[::1]:8090" or "localhost:0"')

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise self.refusal(value)
        split_address(value)
        return value.strip()


class MetricsEndpoint(Kind):
    """A path on the HTTP port, or an address of its own."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__('a path such as "/metrics" or host:port')

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise self.refusal(value)
        if not value.startswith("/"):
            split_address(value)
        return value


class TextList(Kind):
    """A tuple of texts; `[a, b, "c,d"]` in the environment."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__('a list of texts such as ["GET", "POST"]')

    def parse(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refusal(value)
        return tuple(value)

    def parse_text(self, text: str) -> tuple[str, ...]:
        stripped = text.strip()
        if not stripped.startswith("[") or not stripped.endswith("]"):
            raise self.refusal(text)
        inner = stripped[1:-1].strip()
        items: list[str] = []
        position = 0
        while position < len(inner):
            match = _LIST_ITEM.match(inner, position)
            if match is None:
                raise self.refusal(text)
            items.append(next(group for group in match.groups() if group is not None))
            position = match.end()
        return tuple(items)

    def plain(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class Tables(Kind):
    """A table or list of tables that is accepted and not looked into; kept as the TOML it could be."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("a table or a list of tables")

    def parse(self, value: object) -> str:
        if not isinstance(value, dict | list):
            raise self.refusal(value)
        return toml_literal(value)

    def parse_text(self, text: str) -> str:
        raise self.refusal(text)

    def literal(self, value: str) -> str:
        return value


def toml_literal(value: object) -> str:
    """How TOML writes a value; what TOML cannot hold is shown as Python does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(c) or _escaped(c) for c in value) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_toml_key(key)} = {toml_literal(item)}" for key, item in value.items()) + " }"
        )
    return str(value)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_literal(name)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x20 or ord(character) == 0x7F else character
