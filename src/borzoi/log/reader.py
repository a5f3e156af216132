"""Finds the bytes that answer a read, without copying them and without touching single messages.

A read starts at the index run that holds its first offset and walks batch headers from there to the end of
that run. Runs that lie wholly within the limits are then taken in one step, as the index knows where they
begin and which offset that is; only the last run is walked again. Whole batches are served as they lie in
the file, as one view however many they are; only the first and the last batch of a reply may have to be
cut. So the work grows with the runs of a reply and hardly with its batches, and not at all with its
messages.

With `verify` every run is hashed before anything of it is served. Where the hash is wrong the batches are
checked by their own checksums: those before the damaged one are served, and a read that starts at the
damage raises LogDamaged. Damage is never stepped over.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from borzoi.log.batch import cut
from borzoi.log.index import Entries
from borzoi.log.scan import Scan
from borzoi.log.segment import BATCH_HEADER_BYTES, BATCH_PLACE, Segment
from borzoi.model.errors import InvalidBatchChecksum, RemoteProtocolError
from borzoi.model.values import BytesLike


class LogDamaged(InvalidBatchChecksum):
    """Stored bytes are not what was written. Says which, and serves nothing of them."""

    def __init__(self, segment: Segment, position: int, offset: int, what: str) -> None:
        super().__init__(f"{segment.path}: {what} at byte {position} (offset {offset})")
        self.path = segment.path
        self.position = position
        self.offset = offset


_TRUST_BYTES_MIN = 128 * 1024


@dataclass(slots=True)
class ReadResult:
    """Batches in order. `first_offset` and `last_offset` are meaningless while `count` is 0."""

    buffers: list[BytesLike] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    first_offset: int = 0
    last_offset: int = 0


def read_segment(
    segment: Segment,
    offset: int,
    count_max: int,
    bytes_max: int,
    result: ReadResult,
    *,
    verify: bool,
    now_us: int = 0,
) -> bool:
    """Add to `result` the messages of this segment from `offset` on, as far as the limits allow.

    A batch is begun while the reply has less than `bytes_max`; so at least one is served, whole or cut.
    False means that damage follows what was added; if there is damage and nothing to serve, LogDamaged.
    """
    if not segment.index.count:
        return True
    entries = segment.entries
    positions, offsets = entries.positions, entries.offsets
    slot = entries.run_of_offset(offset)
    start = positions[slot]
    first_end = entries.lengths[slot]
    last = slot
    if slot < len(offsets) - 1:
        stop_offset = max(offset, offsets[slot]) + count_max - result.count
        last = _last_run_needed(entries, slot, stop_offset, bytes_max - result.size_bytes)
    window = segment.window(start, positions[last] + entries.lengths[last])
    end = len(window)
    if verify:
        # The clock is worth asking for a large read only; a small one is hashed in no time.
        trusted = segment.trusted_runs(now_us) if now_us and end >= _TRUST_BYTES_MIN else None
        end = _sound_bytes(entries, slot, last, window, trusted)

    unpack = BATCH_PLACE.unpack_from
    expected = offsets[slot]
    position = 0
    whole_from = -1  # start of the whole batches not yet added to the result
    is_first_run = True
    damage = "checksum mismatch" if end < len(window) else ""
    while position < end and result.count < count_max and result.size_bytes < bytes_max:
        if position == first_end and is_first_run:
            is_first_run = False
            # To the last run that begins while both limits leave room: none of the batches before it is cut.
            target = min(
                bisect_right(positions, start + position + bytes_max - result.size_bytes - 1),
                bisect_right(offsets, expected + count_max - result.count),
                last + 1,
            )
            next_position = positions[target - 1] - start
            if (
                position < next_position <= end - BATCH_HEADER_BYTES
                and unpack(window, next_position)[0] == offsets[target - 1]
            ):
                if whole_from < 0:
                    whole_from = position
                if not result.count:
                    result.first_offset = expected
                result.count += offsets[target - 1] - expected
                result.size_bytes += next_position - position
                expected = offsets[target - 1]
                result.last_offset = expected - 1
                position = next_position
                continue
        if position + BATCH_HEADER_BYTES > end:
            damage = "a batch header is cut short"
            break
        base, _, length, messages = unpack(window, position)
        next_position = position + length
        if base != expected or length <= BATCH_HEADER_BYTES or next_position > end or not messages:
            damage = "a batch header makes no sense"
            break
        expected = base + messages
        if expected <= offset:
            position = next_position
            continue
        skip = offset - base if offset > base else 0
        take = min(messages - skip, count_max - result.count)
        if take == messages:
            if whole_from < 0:
                whole_from = position
            result.size_bytes += length
        else:
            if whole_from >= 0:
                result.buffers.append(window[whole_from:position])
                whole_from = -1
            _add_part(segment, start + position, base, window[position:next_position], skip, take, result)
        if not result.count:
            result.first_offset = base + skip
        result.count += take
        result.last_offset = base + skip + take - 1
        position = next_position
    if whole_from >= 0:
        result.buffers.append(window[whole_from:position])
    if result.count >= count_max or result.size_bytes >= bytes_max or start + position == segment.size_bytes:
        return True
    if end == len(window) and (not damage or not position) and not segment.is_index_rebuilt:
        # The index sent us to a wrong place, or let us stop too early: it does not tell the truth.
        segment.rebuild_index()
        offset = max(offset, expected) if position else offset
        return read_segment(segment, offset, count_max, bytes_max, result, verify=verify, now_us=now_us)
    if not result.count:
        raise LogDamaged(segment, start + position, expected, damage)
    return False


def _last_run_needed(entries: Entries, slot: int, stop_offset: int, bytes_max: int) -> int:
    """The last run that a read can get to which begins in run `slot` and ends before `stop_offset`."""
    # The last batch begun starts less than `bytes_max` behind the first, which lies in the first run.
    stop_position = entries.positions[slot] + entries.lengths[slot] + bytes_max
    by_offset = bisect_right(entries.offsets, stop_offset - 1, slot + 1)
    return min(by_offset, bisect_right(entries.positions, stop_position, slot + 1)) - 1


def _add_part(
    segment: Segment,
    position: int,
    base_offset: int,
    batch: memoryview,
    skip: int,
    take: int,
    result: ReadResult,
) -> None:
    try:
        header, frames = cut(batch, skip, take)
    except RemoteProtocolError as error:
        raise LogDamaged(segment, position, base_offset, error.detail) from None
    result.buffers.append(header)
    result.buffers.append(frames)
    result.size_bytes += len(header) + len(frames)


def _sound_bytes(entries: Entries, slot: int, last: int, window: memoryview, trusted: set[int] | None) -> int:
    """How much of the window, which holds the runs `slot` to `last`, is as it was written."""
    lengths, hashes = entries.lengths, entries.hashes
    position = 0
    for index in range(slot, last + 1):
        end = position + lengths[index]
        if trusted is not None and index in trusted:
            position = end
            continue
        digest = xxh3_64_intdigest(window[position:end])
        if digest != hashes[index]:
            scan = Scan(window[position:end], entries.offsets[index])
            scan.walk()
            if position + scan.position < end:
                return position + scan.position
            # Every batch proves itself: it is the index that is wrong.
            hashes[index] = digest
        if trusted is not None:
            trusted.add(index)
        position = end
    return position


def first_offset_at_or_after(segment: Segment, timestamp_us: int, *, verify: bool = True) -> int | None:
    """Offset of the first batch of this segment with a broker time of at least `timestamp_us`."""
    if not segment.index.count:
        return None
    entries = segment.entries
    slot = entries.run_before_timestamp(timestamp_us)
    for run in range(slot, min(slot + 2, len(entries))):  # if not in this one, the next one begins with it
        start, expected = entries.positions[run], entries.offsets[run]
        window = segment.window(start, start + entries.lengths[run])
        end = _sound_bytes(entries, run, run, window, None) if verify else len(window)
        position = 0
        while position + BATCH_HEADER_BYTES <= end:
            base, base_timestamp_us, length, messages = BATCH_PLACE.unpack_from(window, position)
            if base != expected or length <= BATCH_HEADER_BYTES:
                break
            if not position and base_timestamp_us != entries.timestamps[run]:
                break
            if base_timestamp_us >= timestamp_us:
                return int(base)
            expected = base + messages
            position += length
        if position < len(window):
            if end == len(window) and not position and not segment.is_index_rebuilt:
                segment.rebuild_index()
                return first_offset_at_or_after(segment, timestamp_us, verify=verify)
            raise LogDamaged(segment, start + position, expected, "a batch cannot be read")
    return None
