"""Filters that Spark hands down, as bounds on partitions, offsets and times.

Spark does so for batch reads, and only where `spark.sql.python.filterPushdown.enabled` is true. What is taken
over here is taken over exactly, and Spark need not look at it again; times too, because within a partition
the server's times never go back. Everything else stays with Spark.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import datasource as ds

from borzoi.client.values import timestamp_us

_EVERYTHING = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, the latter not included."""

    low: int = 0
    high: int = _EVERYTHING

    def __and__(self, other: "Interval") -> "Interval":
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __contains__(self, value: int) -> bool:
        return self.low <= value < self.high


@dataclass(frozen=True, slots=True)
class Bounds:
    """What messages have to be to matter. `chosen` are partitions that are named one by one."""

    partition: Interval = Interval()
    chosen: frozenset[int] | None = None
    offset: Interval = Interval()
    timestamp: Interval = Interval()

    def has_partition(self, number: int) -> bool:
        return number in self.partition and (self.chosen is None or number in self.chosen)


class FilterTaker:
    """Takes filters on these columns and keeps the bounds they make."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._columns = frozenset(columns) & {"partition", "offset", "timestamp"}
        self.bounds = Bounds()

    def take(self, filters: Iterable[ds.Filter]) -> Iterator[ds.Filter]:
        """Those that are not taken over."""
        for each in filters:
            if not self._takes(each):
                yield each

    def _takes(self, given: ds.Filter) -> bool:
        name = _column(given)
        if name not in self._columns:
            return False
        if isinstance(given, ds.In):
            return name == "partition" and self._choose(given.value)
        value = _number(name, getattr(given, "value", None))
        interval = None if value is None else _interval(given, value)
        if interval is None:
            return False
        narrowed: dict[str, Any] = {name: getattr(self.bounds, name) & interval}
        self.bounds = replace(self.bounds, **narrowed)
        return True

    def _choose(self, values: Iterable[Any]) -> bool:
        named = frozenset(value for value in values if value is not None)
        if not all(isinstance(value, int) for value in named):
            return False
        chosen = named if self.bounds.chosen is None else self.bounds.chosen & named
        self.bounds = replace(self.bounds, chosen=chosen)
        return True


def _column(given: ds.Filter) -> str:
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _number(name: str, value: Any) -> int | None:
    if name == "timestamp":
        if not isinstance(value, dt.datetime) or value.tzinfo is None:
            return None
        return timestamp_us(value) if value.timestamp() >= 0 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _interval(given: ds.Filter, value: int) -> Interval | None:
    match given:
        case ds.EqualTo() | ds.EqualNullSafe():
            return Interval(value, value + 1)
        case ds.GreaterThanOrEqual():
            return Interval(low=value)
        case ds.GreaterThan():
            return Interval(low=value + 1)
        case ds.LessThan():
            return Interval(high=value)
        case ds.LessThanOrEqual():
            return Interval(high=value + 1)
    return None
