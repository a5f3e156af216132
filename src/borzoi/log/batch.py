"""What the owner of a partition does to a batch: give it its place, and serve a part of it."""

import struct

from borzoi.wire.batch import HEADER, HEADER_BYTES, Layout, batch_checksum, prove

_STAMP = struct.Struct("<QQQ")
_CHECKSUM = struct.Struct("<Q")
_CHECKSUM_AT = 40
_RESERVED = bytes(204)


def stamp(
    batch: memoryview, layout: Layout, partition_id: int, base_offset: int, base_timestamp_us: int
) -> None:
    """Write partition, offset, broker time and the checksum over them into the header, in place."""
    _STAMP.pack_into(batch, 0, partition_id, base_offset, base_timestamp_us)
    _CHECKSUM.pack_into(batch, _CHECKSUM_AT, batch_checksum(batch, layout))


def cut(batch: memoryview, first: int, count: int) -> tuple[bytearray, memoryview]:
    """Messages `first` to `first + count` of a stored batch: a header of their own and their frames.

    The base offset stays, and so do the frames with their deltas; the first one served then has a
    delta above zero, which the layout allows.
    """
    layout = prove(batch)
    start, end = layout.position(first), layout.position(first + count)
    partition_id, base_offset, base_us, origin_us, _, _, _, _ = HEADER.unpack_from(batch)
    header = bytearray(HEADER_BYTES)
    length = HEADER_BYTES + end - start
    HEADER.pack_into(header, 0, partition_id, base_offset, base_us, origin_us, length, 0, count, _RESERVED)
    if layout.stride:
        part = Layout(count, layout.length, layout.stride)
        frames = batch[start - HEADER_BYTES :]  # so that frame 0 of the part lies where `part` says
    else:
        part = Layout(count, layout.length, 0, layout.positions[first : first + count])
        frames = batch
    _CHECKSUM.pack_into(header, _CHECKSUM_AT, batch_checksum(frames, part, memoryview(header)))
    return header, batch[start:end]
