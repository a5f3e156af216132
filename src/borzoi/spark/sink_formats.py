"""From the columns of a row to its payload: the option `format` of the sink.

    raw         the column "payload" as it is
    text        the only column that is left, a string
    json        one object per row; binary as base64, times as RFC 3339 in UTC, decimals as texts
    msgpack     one map per row; binary as it is

What these write, the source's `format` reads again (`formats`). A null stays one. JSON has no NaN and no
infinities; they become null.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from borzoi.spark.encode import Payloads
from borzoi.spark.sink_columns import SinkColumns

_ENCODERS: dict[str, Callable[[], Callable[[Any], bytes]]] = {
    "json": lambda: msgspec.json.Encoder().encode,
    "msgpack": lambda: msgspec.msgpack.Encoder().encode,
}


def payload_encoder(columns: SinkColumns, format_name: str) -> Payloads:
    """What makes the payloads of a batch of rows."""
    if columns.payload is not None:
        name = columns.payload
        return lambda rows: rows.column(name)
    if format_name == "text":
        (only,) = columns.encoded
        return lambda rows: rows.column(only)
    encode = _ENCODERS[format_name]()
    names = list(columns.encoded)

    def payloads(rows: pa.RecordBatch) -> pa.Array:
        objects = rows.select(names).to_pylist(maps_as_pydicts="strict")
        return pa.array([encode(each) for each in objects], pa.large_binary())

    return payloads
