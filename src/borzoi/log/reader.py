"""Finds the bytes that answer a read, without copying them and without touching single messages.

A read starts at the index run that holds its first offset and walks batch headers from there. Whole
batches are served as they lie in the file, as one view however many they are; only the first and the
last batch of a reply may have to be cut.
"""

from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest

from borzoi.log.batch import cut
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


@dataclass(slots=True)
class ReadResult:
    """Batches in order. `first_offset` and `last_offset` are meaningless while `count` is 0."""

    buffers: list[BytesLike] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    first_offset: int = 0
    last_offset: int = 0


def read_segment(
    segment: Segment, offset: int, count_max: int, bytes_max: int, result: ReadResult, *, verify: bool
) -> None:
    """Add to `result` the messages of this segment from `offset` on, as far as the limits allow.

    A batch is begun while the reply has less than `bytes_max`; so at least one is served, whole or cut.
    """
    if not segment.index.count:
        return
    entries = segment.entries
    slot = entries.run_of_offset(offset)
    start = entries.positions[slot]
    window = segment.window(start)
    unpack = BATCH_PLACE.unpack_from
    end = len(window)
    position = 0
    whole_from = -1  # start of the run of whole batches not yet added to the result
    while position < end and result.count < count_max and result.size_bytes < bytes_max:
        if position + BATCH_HEADER_BYTES > end:
            raise LogDamaged(segment, start + position, offset, "a batch header is cut short")
        base, _, length, messages = unpack(window, position)
        next_position = position + length
        if length <= BATCH_HEADER_BYTES or next_position > end or not messages:
            raise LogDamaged(segment, start + position, offset, "a batch header makes no sense")
        if base + messages <= offset:
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
            _add_part(segment, start + position, window[position:next_position], skip, take, result)
        if not result.count:
            result.first_offset = base + skip
        result.count += take
        result.last_offset = base + skip + take - 1
        position = next_position
    if whole_from >= 0:
        result.buffers.append(window[whole_from:position])
    if verify:
        _verify(segment, slot, start, window, position)


def _add_part(
    segment: Segment, position: int, batch: memoryview, skip: int, take: int, result: ReadResult
) -> None:
    try:
        header, frames = cut(batch, skip, take)
    except RemoteProtocolError as error:
        raise LogDamaged(segment, position, result.last_offset, str(error)) from None
    result.buffers.append(header)
    result.buffers.append(frames)
    result.size_bytes += len(header) + len(frames)


def _verify(segment: Segment, slot: int, start: int, window: memoryview, read_bytes: int) -> None:
    """Compare every run that was touched with the hash kept when it was written."""
    entries = segment.entries
    positions, lengths, hashes = entries.positions, entries.lengths, entries.hashes
    end = start + read_bytes
    for index in range(slot, len(positions)):
        position = positions[index]
        if position >= end:
            return
        relative = position - start
        if xxh3_64_intdigest(window[relative : relative + lengths[index]]) != hashes[index]:
            raise LogDamaged(segment, position, entries.offsets[index], "checksum mismatch")


def first_offset_at_or_after(segment: Segment, timestamp_us: int) -> int | None:
    """Offset of the first batch of this segment with a broker time of at least `timestamp_us`."""
    if not segment.index.count:
        return None
    entries = segment.entries
    slot = entries.run_before_timestamp(timestamp_us)
    start = entries.positions[slot]
    window = segment.window(start)
    position = 0
    while position + BATCH_HEADER_BYTES <= len(window):
        base, base_timestamp_us, length, _ = BATCH_PLACE.unpack_from(window, position)
        if base_timestamp_us >= timestamp_us:
            return int(base)
        if length <= BATCH_HEADER_BYTES:
            raise LogDamaged(segment, start + position, base, "a batch header makes no sense")
        position += length
    return None
