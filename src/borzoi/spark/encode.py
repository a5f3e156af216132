"""Arrow batches of rows become Borzoi batches: grouped by partition, cut to size, encoded column by column.

    rows --routing--> groups of one partition --cut--> pieces --wire.build--> batches to stage

Rows of one partition keep their order, within an Arrow batch and from one to the next. A group that is too
small for a batch of its own is copied and waits for more; a copy, because a slice would keep the whole Arrow
batch in memory. All that waits is bounded.

A message's id is the `id` column's, or the task's first id plus the row's number within the task: the same
rows in the same order get the same ids, however Spark cuts them into Arrow batches and whatever is waiting.

Nothing here knows Spark, a broker or options; `sink` brings them together.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_128_intdigest

from borzoi.client.values import Partitioning
from borzoi.model import values
from borzoi.model.errors import (
    EmptyMessagePayload,
    InvalidHeaderValue,
    InvalidIdentifier,
    InvalidMessagePayloadLength,
    TooBigMessagePayload,
)
from borzoi.model.headers import encode_user_headers
from borzoi.model.limits import PAYLOAD_BYTES_MAX, U64_MAX
from borzoi.spark.routing import BALANCED, Longs
from borzoi.wire.batch_layout import FRAME_HEADER_BYTES, HEADER_BYTES
from borzoi.wire.build import encode_columns

# All partitions together; above it everything that waits is sent as it is.
_WAITING_BYTES_MAX = 64 << 20
_ID_BYTES = 16
_ID_FORM = np.dtype([("low", "<u8"), ("high", "<u8")])
_OFFSETS = {
    pa.binary(): np.int32,
    pa.string(): np.int32,
    pa.large_binary(): np.int64,
    pa.large_string(): np.int64,
}
_IDS_PER_TASK_MAX = 1 << 63

Ids = NDArray[np.void]
Blocks = list[bytes]
# From rows to one value each: the payload, and the partition (None: all balanced).
Payloads = Callable[[pa.RecordBatch], pa.Array]
Routes = Callable[[pa.RecordBatch], Longs | None]


class EncodedBatch(NamedTuple):
    partitioning: values.Partitioning
    batch: values.BytesLike
    messages_count: int


class _Piece(NamedTuple):
    """Rows of one partition: payloads back to back between the offsets of a buffer."""

    buffer: memoryview
    bounds: NDArray[np.integer[Any]]
    ids: Ids
    blocks: Blocks | None


@dataclass(slots=True)
class _Waiting:
    regions: list[bytes] = field(default_factory=list)
    sizes: list[Longs] = field(default_factory=list)
    ids: list[Ids] = field(default_factory=list)
    blocks: list[Blocks | None] = field(default_factory=list)
    rows: int = 0
    weight_bytes: int = 0


def first_id(producer: str, epoch: int, task: int) -> int:
    """Where the ids of a task's rows start. The task's numbers fit below it without a carry."""
    digest = xxh3_128_intdigest(f"{producer}\0{epoch}\0{task}".encode())
    return digest & ~_IDS_PER_TASK_MAX


class Encoder:
    """For one task. `encode` returns what is full, `flush` the rest."""

    def __init__(
        self,
        payloads: Payloads,
        routes: Routes,
        *,
        headers: str | None = None,
        ids: str | None = None,
        first_id: int = 0,
        batch_bytes: int,
        batch_rows: int,
    ) -> None:
        self._payloads = payloads
        self._routes = routes
        self._headers = headers
        self._ids = ids
        self._first_id = first_id
        self._batch_bytes = batch_bytes
        self._batch_rows = batch_rows
        self._rows = 0
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_bytes = 0

    def encode(self, rows: pa.RecordBatch, partition: int | None = None) -> Iterator[EncodedBatch]:
        """The batches that are full with these rows, which all go to the partition if one is named."""
        if not rows.num_rows:
            return
        payloads = variable_size(self._payloads(rows), "payload")
        _check_payloads(payloads, self._rows)
        ids = self._row_ids(rows)
        blocks = None if self._headers is None else header_blocks(rows.column(self._headers), self._headers)
        if partition is None:
            groups = _groups(payloads, ids, blocks, self._routes(rows))
        else:
            groups = iter([(partition, _Piece(*_region(payloads), ids, blocks))])
        self._rows += rows.num_rows
        for place, group in groups:
            for piece in self._cut(group):
                yield from self._add(place, piece)
        if self._waiting_bytes > _WAITING_BYTES_MAX:
            yield from self.flush()

    def flush(self) -> Iterator[EncodedBatch]:
        """Everything that still waits."""
        for partition in list(self._waiting):
            yield from self._release(partition)

    def _row_ids(self, rows: pa.RecordBatch) -> Ids:
        if self._ids is not None:
            return column_ids(rows.column(self._ids), self._ids)
        numbers = np.empty(rows.num_rows, _ID_FORM)
        low = (self._first_id & U64_MAX) + self._rows
        numbers["low"] = np.arange(low, low + rows.num_rows, dtype=np.uint64)
        numbers["high"] = self._first_id >> 64
        return numbers.view(f"V{_ID_BYTES}")

    def _cut(self, group: _Piece) -> Iterator[_Piece]:
        """As few pieces of about the same size as the limits allow."""
        weights = _weights(group)
        rows, total = len(weights), int(weights[-1])
        pieces = max(-(-total // self._batch_bytes), -(-rows // self._batch_rows))
        if pieces == 1:
            yield group
            return
        cuts = np.searchsorted(weights, np.arange(1, pieces) * (total / pieces), "left") + 1
        # Rows of very different sizes make pieces by weight that have too many rows.
        by_rows = np.arange(self._batch_rows, rows, self._batch_rows)
        edges = np.unique(np.concatenate(([0], cuts, by_rows, [rows]))).tolist()
        for start, end in pairwise(edges):
            yield _Piece(
                group.buffer,
                group.bounds[start : end + 1],
                group.ids[start:end],
                None if group.blocks is None else group.blocks[start:end],
            )

    def _add(self, partition: int, piece: _Piece) -> Iterator[EncodedBatch]:
        weight = int(_weights(piece)[-1])
        rows = len(piece.ids)
        waiting = self._waiting.get(partition)
        if waiting and (
            waiting.weight_bytes + weight > self._batch_bytes or waiting.rows + rows > self._batch_rows
        ):
            yield from self._release(partition)
            waiting = None
        if waiting is None:
            if 2 * weight >= self._batch_bytes or 2 * rows >= self._batch_rows:
                yield _encoded(partition, piece)
                return
            waiting = self._waiting[partition] = _Waiting()
        start, end = int(piece.bounds[0]), int(piece.bounds[-1])
        waiting.regions.append(bytes(piece.buffer[start:end]))
        waiting.sizes.append(np.diff(piece.bounds).astype(np.int64))
        waiting.ids.append(piece.ids.copy())
        waiting.blocks.append(piece.blocks)
        waiting.rows += rows
        waiting.weight_bytes += weight
        self._waiting_bytes += weight

    def _release(self, partition: int) -> Iterator[EncodedBatch]:
        waiting = self._waiting.pop(partition)
        self._waiting_bytes -= waiting.weight_bytes
        bounds = np.concatenate(([0], np.cumsum(np.concatenate(waiting.sizes))))
        blocks: Blocks | None = None
        if any(each is not None for each in waiting.blocks):
            blocks = []
            for each, ids in zip(waiting.blocks, waiting.ids, strict=True):
                blocks += each or [b""] * len(ids)
        yield _encoded(
            partition,
            _Piece(memoryview(b"".join(waiting.regions)), bounds, np.concatenate(waiting.ids), blocks),
        )


def variable_size(column: pa.Array, name: str) -> pa.Array:
    """The column as one with offsets into a buffer of bytes, which is how Spark sends it."""
    if column.type in _OFFSETS:
        return column
    if pa.types.is_dictionary(column.type):
        return variable_size(column.dictionary_decode(), name)
    try:
        return column.cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise InvalidMessagePayloadLength(
            f'column "{name}" has the type {column.type}; a payload is binary or string'
        ) from error


def column_ids(column: pa.Array, name: str) -> Ids:
    """16 bytes each from a column of type binary."""
    if column.null_count:
        raise InvalidIdentifier(f'column "{name}" has a null; leave the column out and ids are made')
    buffer, bounds = _region(variable_size(column, name))
    if (np.diff(bounds) != _ID_BYTES).any():
        raise InvalidIdentifier(f'column "{name}" has a value that is not {_ID_BYTES} bytes long')
    found: Ids = np.frombuffer(buffer, f"V{_ID_BYTES}", len(column), int(bounds[0]))
    return found


def header_blocks(column: pa.Array, name: str) -> Blocks | None:
    """The encoded headers of every row; None if no row has any."""
    bounds = np.asarray(column.offsets, np.int64)
    counts = np.diff(bounds)
    if column.null_count:
        counts[np.asarray(column.is_null())] = 0
    filled = np.flatnonzero(counts)
    if not len(filled):
        return None
    first, last = int(bounds[0]), int(bounds[-1])
    keys = column.keys.slice(first, last - first).to_pylist()
    items = column.items.slice(first, last - first).to_pylist()
    blocks = [b""] * len(column)
    for row in filled.tolist():
        start = int(bounds[row]) - first
        end = start + int(counts[row])
        blocks[row] = _header_block(name, tuple(zip(keys[start:end], items[start:end], strict=True)))
    return blocks


@lru_cache(maxsize=256)
def _header_block(name: str, entries: tuple[tuple[str, bytes | str | None], ...]) -> bytes:
    headers: dict[values.TypedValue | bytes | str | bool | float, Any] = {}
    for key, value in entries:
        if value is None:
            raise InvalidHeaderValue(f'column "{name}" has a null under the key "{key}"; leave the key out')
        headers[key] = value
    return encode_user_headers(headers)


def _check_payloads(payloads: pa.Array, rows_before: int) -> None:
    if payloads.null_count:
        row = int(np.flatnonzero(np.asarray(payloads.is_null()))[0])
        raise EmptyMessagePayload(
            f"row {rows_before + row} of the task has a null payload; filter such rows out before writing"
        )
    sizes = np.diff(_region(payloads)[1])
    if sizes.min() <= 0:
        row = int(np.argmin(sizes))
        raise EmptyMessagePayload(
            f"row {rows_before + row} of the task has an empty payload; filter such rows out before writing"
        )
    if sizes.max() > PAYLOAD_BYTES_MAX:
        row = int(np.argmax(sizes))
        raise TooBigMessagePayload(f"row {rows_before + row} of the task has {sizes[row]} bytes")


def _region(column: pa.Array) -> tuple[memoryview, NDArray[np.integer[Any]]]:
    """A column's bytes, and where its values start; one more than there are values."""
    _, offsets, data = column.buffers()
    form = np.dtype(_OFFSETS[column.type])
    bounds = np.frombuffer(offsets, form, len(column) + 1, column.offset * form.itemsize)
    return memoryview(data or b"").cast("B"), bounds


def _groups(
    payloads: pa.Array, ids: Ids, blocks: Blocks | None, partitions: Longs | None
) -> Iterator[tuple[int, _Piece]]:
    if partitions is None or (partitions == partitions[0]).all():
        partition = BALANCED if partitions is None else int(partitions[0])
        yield partition, _Piece(*_region(payloads), ids, blocks)
        return
    order = np.argsort(partitions, kind="stable")
    in_order = partitions[order]
    buffer, bounds = _region(payloads.take(pa.array(order)))
    ids = ids[order]
    if blocks is not None:
        blocks = [blocks[row] for row in order.tolist()]
    starts = np.flatnonzero(np.diff(in_order, prepend=in_order[0] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        part = None if blocks is None else blocks[start:end]
        yield int(in_order[start]), _Piece(buffer, bounds[start : end + 1], ids[start:end], part)


def _weights(piece: _Piece) -> Longs:
    """What the rows up to and including each take in a batch."""
    weights = np.asarray(piece.bounds[1:], np.int64) - int(piece.bounds[0])
    weights += np.arange(1, len(weights) + 1) * FRAME_HEADER_BYTES
    if piece.blocks is not None:
        weights += np.cumsum(np.fromiter(map(len, piece.blocks), np.int64, len(piece.blocks)))
    return weights + HEADER_BYTES


def _encoded(partition: int, piece: _Piece) -> EncodedBatch:
    batch = encode_columns(
        piece.buffer,
        piece.bounds,
        ids=piece.ids,
        blocks=piece.blocks,
        origins_us=time.time_ns() // 1000,
    )
    place = Partitioning.balanced() if partition == BALANCED else Partitioning.partition_id(partition)
    return EncodedBatch(place, batch, len(piece.ids))
