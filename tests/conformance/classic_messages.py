"""The messages that every client writes and every other one has to read back; standard library only."""

from collections.abc import Sequence

STREAM = "exchange"

# What the newest client makes of its headers, and what the test makes with its own hands.
HEADERS: dict[str, str | int | float | bool] = {
    "trace": "abc-123",
    "grüße": "wörld",
    "attempt": 3,
    "ratio": 0.5,
    "final": True,
}

TEXT = "grüße aus der alten welt €"
TINY = "x"
LARGE = "".join(f"{number:07d}," for number in range(125_000))
BINARY = bytes(range(256)) * 4
EQUAL = [f"equal {number:06d} ".ljust(100, ".") for number in range(200)]
MIXED = ["m" * (1 + number * number % 997) for number in range(200)]

Batch = Sequence[str | bytes]


def batches(has_bytes: bool) -> list[Batch]:
    """What goes into one send each. The oldest clients know text only."""
    binary: list[Batch] = [[BINARY], [b"\0", b"\xff\xfe"]] if has_bytes else []
    return [[TEXT, TINY], [TINY], [LARGE], EQUAL, MIXED, *binary]


def as_bytes(payload: str | bytes) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload


def expected(has_bytes: bool) -> list[bytes]:
    return [as_bytes(payload) for batch in batches(has_bytes) for payload in batch]
