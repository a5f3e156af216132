"""A call: the request of one method, what to make of its reply, and how long it may take.

The functions of the command modules return one and do nothing else; a driver carries it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from borzoi.model.requests import Request

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


def as_it_came(reply: Any) -> Any:
    return reply


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    request: Request
    deadline_s: float | None = None  # None = the client's
    convert: Callable[[Any], T] = as_it_came


def or_none(convert: Callable[[A], B]) -> Callable[[A | None], B | None]:
    """For replies that may be missing."""
    return lambda reply: None if reply is None else convert(reply)
