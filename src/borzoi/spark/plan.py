"""Plans a read: what is still there, how much of it to read now, and how to cut that into tasks.

The server is asked through a function that returns the topic's extent; everything else is arithmetic on its
answers, so all of this is tested without Spark.

What always holds:
- Ranges of one plan do not overlap, and together they are exactly what lies between two positions, less what
  the server no longer has. Of that something is said: it is an error, or a warning if the user wants so.
- A plan under a limit gets on, even if the next batch alone is larger than the limit.
- Cuts fall where entries of the server's index begin, so no batch is read twice because of them.
"""

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from borzoi.model.errors import BorzoiError
from borzoi.model.replies import PartitionExtent, TopicExtent
from borzoi.model.requests import ByteCut
from borzoi.spark.offsets import Positions
from borzoi.spark.options import Target

logger = logging.getLogger("borzoi.spark")

# How much larger than asked for a split may be before it is cut: a task costs what reading 10 MB does.
_TOLERANCE = 1.25
# What the index tells apart at best, and into how many parts a partition is cut at most, whatever is asked
# for: every part costs a request when the read is planned.
_LEAST_SPLIT_BYTES = 16 << 10
_SPLITS_PER_PARTITION_MAX = 1000
# Up to this size splits of several partitions are read by one task: a few messages cost less than a task.
_SMALL_TASK_BYTES = 256 << 10

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Ask = Callable[[Sequence[ByteCut]], TopicExtent]
Ranges = dict[int, tuple[int, int]]


class DataLoss(  # noqa: N818 - named like the platform's other errors
    BorzoiError,
    text="Messages that were to be read are gone",
    hint='Go on without them with .option("failOnDataLoss", "false"), or begin anew with a new checkpoint.',
):
    """Says exactly which, and why."""

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.hint}"


def lose(target: Target, losses: Iterable[str], *, fail: bool) -> None:
    """Report what is lost, if anything is: as an error, or in the log."""
    texts = list(losses)
    if texts and fail:
        raise DataLoss(f"topic {target}: {'; '.join(texts)}")
    for text in texts:
        logger.warning("failOnDataLoss is off: topic %s: %s", target, text)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one micro-batch may read; None is no limit."""

    bytes_max: int | None = None
    rows_max: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: the messages `start` to `end` of a partition, the latter not included."""

    partition_id: int
    start: int
    end: int
    created_at_us: int
    message_bytes: int  # the average near here, to choose how many to ask for


def moment(time_us: int) -> str:
    """A time for people; one that a damaged checkpoint made up stays a number."""
    try:
        return (_EPOCH + dt.timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} us"


def begins(start: Positions, extent: TopicExtent) -> tuple[dict[int, int], list[str]]:
    """Where to read on in each partition that is there, and what is lost, in words."""
    if start.created_at_us != extent.created_at_us:
        lost = (
            f"the topic was deleted and created again (at {moment(extent.created_at_us)}; the checkpoint "
            f"belongs to the one of {moment(start.created_at_us)})"
        )
        return {each.partition_id: each.first_offset for each in extent.partitions}, [lost]
    found: dict[int, int] = {}
    losses: list[str] = []
    for each in extent.partitions:
        wanted = start.next_offsets.get(each.partition_id, 0)
        if wanted > each.next_offset:
            losses.append(
                f"partition {each.partition_id} was purged: it ends before offset {each.next_offset}, and "
                f"offset {wanted} was next"
            )
            wanted = each.first_offset
        elif wanted < each.first_offset:
            losses.append(
                f"partition {each.partition_id}: offsets [{wanted}, {each.first_offset}) were deleted by "
                "retention before they were read"
            )
            wanted = each.first_offset
        found[each.partition_id] = wanted
    gone = sorted(set(start.next_offsets) - set(found))
    losses += [
        f"partition {number} was deleted; offset {start.next_offsets[number]} was next" for number in gone
    ]
    return found, losses


def ends(
    starts: Mapping[int, int], extent: TopicExtent, target: Positions | None, limits: Limits, ask: Ask
) -> dict[int, int]:
    """How far to read now: to the end, or the target, as far as the limits allow."""
    aims: dict[int, int] = {}
    for each in extent.partitions:
        begin = starts[each.partition_id]
        aim = each.next_offset if target is None else target.next_offsets.get(each.partition_id, begin)
        aims[each.partition_id] = max(begin, min(aim, each.next_offset))
    if limits.bytes_max is not None:
        aims = _within_bytes(starts, aims, extent, limits.bytes_max, ask)
    if limits.rows_max is not None:
        aims = _within_rows(starts, aims, limits.rows_max)
    return aims


def _within_bytes(
    starts: Mapping[int, int], aims: dict[int, int], extent: TopicExtent, bytes_max: int, ask: Ask
) -> dict[int, int]:
    behind = [number for number, aim in aims.items() if aim > starts[number]]
    # Asked for without a cut, the extent has the size of whole partitions.
    if sum(each.bytes_after for each in extent.partitions if each.partition_id in behind) <= bytes_max:
        return aims
    sized = _by_partition(ask([ByteCut(number, starts[number], bytes_max) for number in behind]))
    total = sum(sized[number].bytes_after for number in behind)
    if total <= bytes_max:
        return aims
    shares = {number: bytes_max * sized[number].bytes_after // total for number in behind}
    cut = _by_partition(ask([ByteCut(number, starts[number], shares[number]) for number in behind]))
    return {
        number: min(aim, cut[number].cut_offset) if number in shares else aim for number, aim in aims.items()
    }


def _within_rows(starts: Mapping[int, int], aims: dict[int, int], rows_max: int) -> dict[int, int]:
    """Rows by lag; what rounding leaves over goes to those that are furthest behind."""
    lags = {number: aim - starts[number] for number, aim in aims.items()}
    total = sum(lags.values())
    if total <= rows_max:
        return aims
    shares = {number: rows_max * lag // total for number, lag in lags.items()}
    left = rows_max - sum(shares.values())
    for number in sorted(lags, key=lambda each: (shares[each] > 0, -lags[each], each)):
        if left and shares[number] < lags[number]:
            shares[number] += 1
            left -= 1
    return {number: starts[number] + share for number, share in shares.items()}


def ranges(start: Positions, end: Positions, extent: TopicExtent) -> tuple[Ranges, list[str]]:
    """What lies between two positions and is still there, and what is not, in words."""
    if end.created_at_us != extent.created_at_us:
        return {}, begins(end, extent)[1]
    there = _by_partition(extent)
    found: Ranges = {}
    losses: list[str] = []
    for number, stop in sorted(end.next_offsets.items()):
        if number not in there:
            if (wanted := start.next_offsets.get(number, 0)) < stop:
                losses.append(f"partition {number} was deleted; offset {wanted} was next")
            continue
        first, last = there[number].first_offset, there[number].next_offset
        begin = _begin(number, start, end, first)
        if begin < min(first, stop):
            losses.append(
                f"partition {number}: offsets [{begin}, {min(first, stop)}) were deleted by retention before "
                "they were read"
            )
        if last < stop:
            losses.append(
                f"partition {number} was purged: it ends before offset {last}, and {stop} was to be reached"
            )
        begin, stop = max(begin, first), min(stop, last)  # noqa: PLW2901 - what is left of it
        if begin < stop:
            found[number] = begin, stop
    return found, losses


def _begin(number: int, start: Positions, end: Positions, first: int) -> int:
    wanted = start.next_offsets.get(number, 0)
    # The end was chosen knowing that the topic is another one, or was purged: then all before it is new.
    is_anew = start.created_at_us != end.created_at_us or wanted > end.next_offsets[number]
    return first if is_anew else wanted


def splits(
    wanted: Ranges, created_at_us: int, ask: Ask, *, split_bytes_max: int | None, splits_min: int | None
) -> list[Split]:
    """Ranges cut into tasks of about equal size, in the order of partitions and offsets."""
    if not wanted:
        return []
    heads = _by_partition(ask([ByteCut(number, begin, 0) for number, (begin, _) in wanted.items()]))
    sizes = {number: heads[number].bytes_after for number in wanted}
    tails = [
        ByteCut(number, end, 0) for number, (_, end) in wanted.items() if end < heads[number].next_offset
    ]
    if tails:
        after = _by_partition(ask(tails))
        for tail in tails:
            sizes[tail.partition_id] -= after[tail.partition_id].bytes_after
    bytes_max = _split_bytes(sizes.values(), split_bytes_max, splits_min)
    counts = {number: _parts(size, bytes_max) for number, size in sizes.items()}
    starts = {number: [begin] for number, (begin, _) in wanted.items()}
    for part in range(1, max(counts.values())):
        cuts = [
            ByteCut(number, wanted[number][0], sizes[number] * part // count)
            for number, count in counts.items()
            if part < count
        ]
        cut = _by_partition(ask(cuts))
        for each in cuts:
            number, offset = each.partition_id, cut[each.partition_id].cut_offset
            # Where the index is coarse, two cuts can be the same.
            if starts[number][-1] < offset < wanted[number][1]:
                starts[number].append(offset)
    return [
        Split(number, start, end, created_at_us, _message_bytes(heads[number], wanted[number][0]))
        for number, found in starts.items()
        for start, end in zip(found, [*found[1:], wanted[number][1]], strict=True)
    ]


def tasks(found: Iterable[Split], *, splits_min: int | None) -> list[tuple[Split, ...]]:
    """What each task reads, one after the other: several splits if they are small and many are not wanted."""
    result: list[tuple[Split, ...]] = []
    size_bytes = _SMALL_TASK_BYTES
    for split in found:
        more_bytes = (split.end - split.start) * split.message_bytes
        if splits_min is None and size_bytes + more_bytes <= _SMALL_TASK_BYTES:
            result[-1] += (split,)
            size_bytes += more_bytes
        else:
            result.append((split,))
            size_bytes = more_bytes
    return result


def _split_bytes(sizes: Iterable[int], split_bytes_max: int | None, splits_min: int | None) -> int | None:
    if splits_min is None:
        return split_bytes_max
    fair = max(1, sum(sizes) // splits_min)
    return fair if split_bytes_max is None else min(fair, split_bytes_max)


def _parts(size_bytes: int, bytes_max: int | None) -> int:
    """Into how many parts to cut so that none is larger than allowed, or hardly."""
    if bytes_max is None or size_bytes <= bytes_max * _TOLERANCE:
        return 1
    return min(-(-size_bytes // max(bytes_max, _LEAST_SPLIT_BYTES)), _SPLITS_PER_PARTITION_MAX)


def _message_bytes(extent: PartitionExtent, start: int) -> int:
    return max(1, extent.bytes_after // max(1, extent.next_offset - start))


def _by_partition(extent: TopicExtent) -> dict[int, PartitionExtent]:
    return {each.partition_id: each for each in extent.partitions}
