"""Message deduplication by id, per partition: a bounded window of ids seen lately.

Off unless configured. Duplicates are taken out before offsets are given, so offsets stay gapless. The
window is filled from the log when first used, so that a producer's retry is still recognised after
a restart of the server. Id 0 means that the producer gave none: such messages are never duplicates.
"""

from collections import OrderedDict

from borzoi.log.partition import PartitionLog
from borzoi.log.reader import LogDamaged, ReadResult
from borzoi.wire.batch import Layout, NewMessage, build, frames, prove, read_header, split

_REFILL_BYTES = 8 << 20
_ID_AT, _ID_BYTES = 8, 16
_NO_ID = bytes(_ID_BYTES)


class Deduplicator:
    __slots__ = ("_expiry_us", "_max_entries", "_refilled", "_seen")

    def __init__(self, max_entries: int, expiry_us: int) -> None:
        self._max_entries = max_entries
        self._expiry_us = expiry_us
        self._seen: OrderedDict[bytes, int] = OrderedDict()  # id -> when it was first seen
        self._refilled = False

    def admit(
        self, log: PartitionLog, batch: memoryview, layout: Layout, now_us: int
    ) -> tuple[memoryview, Layout] | None:
        """The batch without messages seen before; None if none is left."""
        if not self._refilled:
            self._refill(log, now_us)
        self._expire(now_us)
        ids = _ids(batch, layout)
        fresh: set[bytes] = set()
        keep: list[int] = []
        for index, message_id in enumerate(ids):
            if message_id == _NO_ID:
                keep.append(index)
            elif message_id not in self._seen and message_id not in fresh:
                fresh.add(message_id)
                keep.append(index)
        if len(keep) == layout.message_count:
            return batch, layout
        if not keep:
            return None
        return _without(batch, keep)

    def remember(self, batch: memoryview, layout: Layout, now_us: int) -> None:
        """Note the ids of a batch that is in the log now."""
        for message_id in _ids(batch, layout):
            if message_id != _NO_ID:
                self._seen.setdefault(message_id, now_us)
        while len(self._seen) > self._max_entries:
            self._seen.popitem(last=False)

    def clear(self) -> None:
        self._seen.clear()
        self._refilled = True

    def _expire(self, now_us: int) -> None:
        while self._seen:
            message_id, seen_us = next(iter(self._seen.items()))
            if seen_us + self._expiry_us > now_us:
                return
            del self._seen[message_id]

    def _refill(self, log: PartitionLog, now_us: int) -> None:
        self._refilled = True
        try:
            offset = log.offset_at_or_after(max(0, now_us - self._expiry_us))
        except LogDamaged:
            offset = log.first_offset
        if offset is None:
            return
        offset = max(offset, log.next_offset - self._max_entries)
        while offset < log.next_offset:
            try:
                result = log.read(offset, self._max_entries, _REFILL_BYTES)
            except LogDamaged:
                # Ids that cannot be read cannot be recognised either. Consumers are told of the damage.
                result = ReadResult()
            if not result.count:
                later = next((each.base_offset for each in log.segments if each.base_offset > offset), None)
                if later is None:
                    return
                offset = later
                continue
            for batch in split(memoryview(b"".join(result.buffers))):
                self.remember(batch, prove_part(batch), read_header(batch).base_timestamp_us)
            offset = result.last_offset + 1


def prove_part(batch: memoryview) -> Layout:
    """The layout of a served batch, whose first frame may have a delta above zero."""
    positions: list[int] = []
    position = len(batch)
    for frame in reversed(list(frames(batch))):
        position -= 48 + len(frame.payload) + len(frame.user_headers)
        positions.append(position)
    return Layout(len(positions), len(batch), 0, positions[::-1])


def _ids(batch: memoryview, layout: Layout) -> list[bytes]:
    return [
        bytes(batch[position + _ID_AT : position + _ID_AT + _ID_BYTES])
        for position in map(layout.position, range(layout.message_count))
    ]


def _without(batch: memoryview, keep: list[int]) -> tuple[memoryview, Layout]:
    origin_us = read_header(batch).origin_timestamp_us
    messages = list(frames(batch))
    kept = memoryview(
        build(
            [
                NewMessage(
                    bytes(messages[index].payload),
                    messages[index].id,
                    bytes(messages[index].user_headers),
                    origin_us + messages[index].timestamp_delta_us,
                )
                for index in keep
            ]
        )
    )
    return kept, prove(kept)
