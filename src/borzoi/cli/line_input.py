"""Lines of standard input or of a file, as they come.

A program that writes a line now and then, as `tail -f` does, must not wait until a batch is full: when the
input pauses, that is told too.
"""

import io
import select
from collections.abc import Callable, Iterator
from typing import BinaryIO

from borzoi.model.errors import InvalidConfiguration
from borzoi.model.limits import PAYLOAD_BYTES_MAX

# A pause this long, and what there is goes out.
_PAUSE_S = 0.1
_READ_BYTES = 1 << 20
# The longest message as base64 or with escapes in JSON, and its headers.
_LINE_BYTES_MAX = 2 * PAYLOAD_BYTES_MAX


class LineTooLong(InvalidConfiguration, hint=""):
    """A line that no message can come of; maybe the input has no lines at all."""

    def __str__(self) -> str:
        return self.detail


def read_lines(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes | None]:
    """Lines without their ends, without empty ones; None where the input pauses.

    `advance` is told how many bytes were read.
    """
    parts: list[bytes] = []
    size = 0
    while chunk := _read(source):
        advance(len(chunk))
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = b"".join((*parts, line)).rstrip(b"\r")
            parts, size = [], 0
            if whole:
                yield whole
        if rest:
            parts.append(rest)
            size += len(rest)
            if size > _LINE_BYTES_MAX:
                raise LineTooLong(f"a line has more than {_LINE_BYTES_MAX} bytes")
        if lines and _pauses(source):
            yield None
    last = b"".join(parts).rstrip(b"\r")
    if last:
        yield last


def _read(source: BinaryIO) -> bytes:
    """What there is, without waiting for more than the first byte."""
    if isinstance(source, io.BufferedReader):
        return source.read1(_READ_BYTES)
    return source.read(_READ_BYTES)


def _pauses(source: BinaryIO) -> bool:
    # What was read emptied the buffer, so the descriptor tells the whole truth.
    try:
        ready, _, _ = select.select([source], [], [], _PAUSE_S)
    except (OSError, ValueError):
        return False  # no descriptor, as in a test: all is there
    return not ready
