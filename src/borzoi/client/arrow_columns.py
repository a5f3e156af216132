"""Messages as Arrow record batches: the schema, and what is made of the bytes of batches. No client, no I/O.

    column            type                     what it is
    partition         int32
    offset            int64
    timestamp         timestamp[us, UTC]       when the server stored the message
    origin_timestamp  timestamp[us, UTC]       when the producer made it
    id                binary                   16 bytes, the least significant first
    headers           map<string, binary>      keys as text, values as they are encoded; empty without headers
    payload           binary
    checksum          int64                    XXH3-64 of the message, its bits as a signed number
    user_headers      binary                   all headers as they are stored; only if asked for

These are types that every Arrow engine knows, Spark included: nothing unsigned, no views, no large or
fixed-size binaries. Keys that are not texts become one: numbers in decimal, bytes with escapes where they are
not UTF-8; of keys with the same text the last one counts. Values keep their bytes: UTF-8 for texts,
little-endian for numbers. What kind a value is gets lost in `headers`; `user_headers` has it.

Fields are NumPy columns (`borzoi.wire.columns`) that Arrow takes as they are. Payloads are copied once, by
one call for a whole record batch. Headers are decoded message by message, where there are any.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from borzoi.model.errors import InvalidOptionValue, RemoteProtocolError
from borzoi.model.headers import decode_user_headers, to_python
from borzoi.model.values import BytesLike, TypedValue
from borzoi.wire.batch_layout import FRAME_HEADER_BYTES
from borzoi.wire.columns import Columns, columns

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow access needs pyarrow: pip install 'borzoi[arrow]'") from error

DEFAULT_COLUMNS: Final = (
    "partition",
    "offset",
    "timestamp",
    "origin_timestamp",
    "id",
    "headers",
    "payload",
    "checksum",
)
# About what a processor's cache holds; never so much that positions do not fit into 31 bits.
CHUNK_BYTES = 8 << 20

_MOMENT = pa.timestamp("us", tz="UTC")
_ID_BYTES = 16

Longs = NDArray[np.int64]


def schema(names: Sequence[str] | None = None) -> pa.Schema:
    """Of these columns, in this order."""
    chosen = DEFAULT_COLUMNS if names is None else names
    unknown = [name for name in chosen if name not in _FIELDS]
    if unknown or not chosen or len(set(chosen)) < len(chosen):
        raise InvalidOptionValue(f"columns {list(chosen)}: choose from {', '.join(_FIELDS)}, each once")
    return pa.schema([pa.field(name, _FIELDS[name][0], nullable=False) for name in chosen])


def batches_to_arrow(buffers: Iterable[BytesLike], names: Sequence[str] | None = None) -> pa.Table:
    """A table of the messages in these buffers, each of which holds whole batches back to back.

    Raises `RemoteProtocolError` for bytes that are no batches. Checksums are not checked.
    """
    made = schema(names)
    return table_of((batch for buffer in buffers for batch in record_batches(columns(buffer), made)), made)


def table_of(batches: Iterable[pa.RecordBatch], made: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(list(batches), made)


def record_batches(
    found: Columns, made: pa.Schema, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The messages as record batches of a schema that `schema` made, of about so many bytes each."""
    first = 0
    while first < len(found):
        last = int(np.searchsorted(found.starts, found.starts[first] + chunk_bytes))
        last = max(last, first + 1)
        yield record_batch(found.part(first, last), made)
        first = last


def record_batch(found: Columns, made: pa.Schema) -> pa.RecordBatch:
    """All these messages, which must not have more than 2 GiB, in one record batch."""
    return pa.RecordBatch.from_arrays([array(name, found) for name in made.names], schema=made)


def array(name: str, found: Columns) -> pa.Array:
    """One column of all these messages."""
    return _FIELDS[name][1](found)


def _plain(kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _binary(starts: Longs, places: NDArray[np.int32], data: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(places), pa.py_buffer(data)])


def _ids(found: Columns) -> pa.Array:
    places = np.arange(0, _ID_BYTES * len(found) + 1, _ID_BYTES, dtype=np.int32)
    return _binary(found.starts, places, np.ascontiguousarray(found.ids))


def _payloads(found: Columns) -> pa.Array:
    if not found.evens:
        return _between(found, found.payload_starts, found.payload_ends)
    sizes = [even.payload_bytes for even in found.evens]
    counts = [even.messages for even in found.evens]
    if len(set(sizes)) == 1:
        places = np.arange(len(found) + 1, dtype=np.int32) * np.int32(sizes[0])
    else:
        places = np.zeros(len(found) + 1, np.int32)
        np.cumsum(np.repeat(np.array(sizes, np.int32), counts), out=places[1:])
    data = np.empty(int(places[-1]), np.uint8)
    done = 0
    for even in found.evens:
        shape = even.messages, even.payload_bytes
        end = done + even.messages * even.payload_bytes
        data[done:end].reshape(shape)[...] = np.ndarray(
            shape, np.uint8, found.buffer, even.start + FRAME_HEADER_BYTES, (even.frame_bytes, 1)
        )
        done = end
    return _binary(found.starts, places, data)


def _between(found: Columns, starts: Longs, ends: Longs) -> pa.Array:
    """The bytes between these positions of the buffer.

    They and what lies between them take turns, which makes an array without a copy; every other element is
    then copied out with one call.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    first = int(starts[0])
    places = np.empty(2 * count + 1, np.int32)
    places[0:-1:2] = starts - first
    places[1::2] = ends - first
    places[-1] = places[-2]
    both = pa.Array.from_buffers(
        pa.binary(),
        2 * count,
        [None, pa.py_buffer(places), pa.py_buffer(found.buffer[first : int(ends[-1])])],
    )
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def _headers(found: Columns) -> pa.Array:
    if not found.has_headers:
        nowhere = pa.array(np.zeros(len(found) + 1, np.int32))
        return pa.MapArray.from_arrays(nowhere, pa.array([], pa.string()), pa.array([], pa.binary()))
    known: dict[bytes, list[tuple[str, bytes]]] = {b"": []}
    values = []
    for index, block in enumerate(found.header_blocks()):
        pairs = known.get(block)
        if pairs is None:
            pairs = known[block] = _pairs(found, index, block)
        values.append(pairs)
    return pa.array(values, pa.map_(pa.string(), pa.binary()))


def _pairs(found: Columns, index: int, block: bytes) -> list[tuple[str, bytes]]:
    try:
        return list({_text(key): value.data for key, value in decode_user_headers(block).items()}.items())
    except RemoteProtocolError as error:
        where = f"partition {found.partition_ids[index]}, offset {found.offsets[index]}"
        advice = "leave out the column headers to read it; user_headers has the bytes"
        raise RemoteProtocolError(f"{where}: {error.detail}; {advice}", error.code) from error


def _text(key: TypedValue) -> str:
    value = to_python(key)
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


_FIELDS: dict[str, tuple[pa.DataType, Callable[[Columns], pa.Array]]] = {
    "partition": (pa.int32(), lambda found: _plain(pa.int32(), found.partition_ids.astype(np.int32))),
    "offset": (pa.int64(), lambda found: _plain(pa.int64(), found.offsets)),
    "timestamp": (_MOMENT, lambda found: _plain(_MOMENT, found.timestamps_us)),
    "origin_timestamp": (_MOMENT, lambda found: _plain(_MOMENT, found.origin_timestamps_us)),
    "id": (pa.binary(), _ids),
    "headers": (pa.map_(pa.string(), pa.binary()), _headers),
    "payload": (pa.binary(), _payloads),
    "checksum": (pa.int64(), lambda found: _plain(pa.int64(), found.checksums)),
    "user_headers": (
        pa.binary(),
        lambda found: _between(found, found.payload_ends, found.headers_ends),
    ),
}
