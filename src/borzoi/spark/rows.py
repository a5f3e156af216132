"""Messages as rows: their Spark schema, and Arrow record batches of exactly that schema.

    column            type                 what it is
    stream, topic     string               as the options name them
    partition         int
    offset            long
    timestamp         timestamp            when the server stored the message
    origin_timestamp  timestamp            when the producer made it
    id                binary               16 bytes, the least significant first
    key               binary               the header "key"; null if there is none
    headers           map<string, binary>  values as they are encoded, keys as text
    payload           binary
    checksum          long                 XXH3-64 of the message, its bits as a signed number

Spark takes a record batch only if its types are exactly those of the schema. So the Arrow schema is made by
Spark's own function, and what `borzoi.client.arrow_columns` makes, which has the same types, is put into it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from borzoi.client.arrow_columns import array
from borzoi.wire.columns import Columns

if TYPE_CHECKING:
    from borzoi.spark.formats import Decoder

# So many that a batch's fixed cost does not count, so few that Spark gets something to do soon.
ROWS_MAX = 32_768
KEY_HEADER = "key"

ROW_SCHEMA = StructType(
    [
        StructField("stream", StringType(), nullable=False),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("origin_timestamp", TimestampType(), nullable=False),
        StructField("id", BinaryType(), nullable=False),
        StructField("key", BinaryType(), nullable=True),
        StructField("headers", MapType(StringType(), BinaryType(), valueContainsNull=False), nullable=False),
        StructField("payload", BinaryType(), nullable=False),
        StructField("checksum", LongType(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes record batches of one schema. Small, and pickled with the reader.

    With a decoder the columns that are not in `metadata` are the payload's own, in the decoder's order.
    """

    schema: StructType
    metadata: tuple[str, ...]
    stream: str
    topic: str
    decoder: "Decoder | None" = None
    arrow_schema: pa.Schema = field(init=False, compare=False, repr=False)
    _types: dict[str, pa.DataType] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        made = to_arrow_schema(self.schema, timezone="UTC")
        object.__setattr__(self, "arrow_schema", made)
        object.__setattr__(self, "_types", {each.name: each.type for each in made})

    def batches(self, found: Columns) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(found), ROWS_MAX):
            batch = self._batch(found.part(first, first + ROWS_MAX))
            if batch.num_rows:
                yield batch

    def _batch(self, found: Columns) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {name: self._column(name, found) for name in self.metadata}
        kept = None
        if self.decoder is not None:
            decoded = self.decoder.decode_rows(array("payload", found), _Where(found))
            made |= zip(self.decoder.schema.fieldNames(), decoded.columns, strict=True)
            kept = decoded.kept
        arrays = [_typed(made[name], kind) for name, kind in self._types.items()]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        return batch if kept is None else batch.filter(kept)

    def _column(self, name: str, found: Columns) -> pa.Array:
        match name:
            case "stream" | "topic":
                return pa.repeat(pa.scalar(getattr(self, name), pa.string()), len(found))
            case "key" if found.has_headers:
                headers = array("headers", found).to_pylist(maps_as_pydicts="lossy")
                return pa.array([each.get(KEY_HEADER) for each in headers], pa.binary())
            case "key":
                return pa.nulls(len(found), pa.binary())
        return array(name, found)


class _Where:
    """Says where the payload of a row is; asked for rows that cannot be decoded."""

    def __init__(self, found: Columns) -> None:
        self._found = found

    def __call__(self, row: int) -> str:
        return f"partition {self._found.partition_ids[row]}, offset {self._found.offsets[row]}"


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Types differ at most in whether parts of maps may be null, which changes no bytes."""
    return array if array.type.equals(kind) else array.cast(kind)
