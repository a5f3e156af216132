"""Options of the Spark sink: which topic, in which form, under which name, in batches of which size.

They are read on the driver before anything is written, so that a mistake in one of them costs nothing.
`docs/spark.md` has the table for users.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from borzoi.model.errors import InvalidOptionValue
from borzoi.model.limits import NAME_BYTES_MAX, PARTITIONS_PER_REQUEST_MAX
from borzoi.spark.options import TARGET_OPTIONS, Options, Target
from borzoi.spark.routing import PartitioningMode

RAW = "raw"
SINK_FORMATS = (RAW, "text", "json", "msgpack")
DEFAULT_BATCH_BYTES = 1 << 20
DEFAULT_BATCH_ROWS = 10_000
# Half of what the broker takes at most in one request by default.
BATCH_BYTES_MAX = 32 << 20
BATCH_ROWS_MAX = 1_000_000
DEFAULT_KEY_COLUMN = "key"
DEFAULT_PARTITION_COLUMN = "partition"

SINK_OPTIONS = (
    *TARGET_OPTIONS,
    "format",
    "partitioning",
    "partitionColumn",
    "keyColumn",
    "producer",
    "epoch",
    "createTopic",
    "partitions",
    "batchBytes",
    "batchRows",
    "failOnDataLoss",
)
SINK_MODES = (PartitioningMode.BALANCED, PartitioningMode.PARTITION, PartitioningMode.KEY)
# What is added to the name of a stream's producer: a dot and the id of the query.
_QUERY_ID_BYTES = 37


@dataclass(frozen=True, slots=True)
class SinkOptions:
    target: Target
    format: str = RAW
    partitioning: PartitioningMode = PartitioningMode.BALANCED
    partition_column: str = DEFAULT_PARTITION_COLUMN
    key_column: str = DEFAULT_KEY_COLUMN
    producer: str | None = None
    epoch: int | None = None
    create_topic: bool = False
    partitions_count: int = 1
    batch_bytes: int = DEFAULT_BATCH_BYTES
    batch_rows: int = DEFAULT_BATCH_ROWS
    fail_on_data_loss: bool = True

    @classmethod
    def of(
        cls,
        given: Mapping[str, str],
        modes: tuple[PartitioningMode, ...] = SINK_MODES,
        known: tuple[str, ...] = SINK_OPTIONS,
    ) -> Self:
        """Raises `InvalidOptionValue` for the first option that is wrong, missing or unknown.

        The first of the modes of partitioning is the default.
        """
        options = Options(given, known)
        found = cls(
            Target.of(options),
            options.choice("format", SINK_FORMATS, RAW),
            PartitioningMode(options.choice("partitioning", modes, modes[0])),
            options.text("partitionColumn") or DEFAULT_PARTITION_COLUMN,
            options.text("keyColumn") or DEFAULT_KEY_COLUMN,
            _producer(options),
            options.number("epoch", maximum=2**63 - 1),
            options.flag("createTopic", default=False),
            options.number("partitions", 1, minimum=1, maximum=PARTITIONS_PER_REQUEST_MAX) or 1,
            _batch_bytes(options),
            options.number("batchRows", DEFAULT_BATCH_ROWS, minimum=1, maximum=BATCH_ROWS_MAX)
            or DEFAULT_BATCH_ROWS,
            options.flag("failOnDataLoss", default=True),
        )
        found._check_together(options)
        return found

    def _check_together(self, options: Options) -> None:
        """Refuse options that say something which is then not done."""
        mode = self.partitioning
        for name, needed in (
            ("partitionColumn", PartitioningMode.PARTITION),
            ("keyColumn", PartitioningMode.KEY),
        ):
            if name in options and mode is not needed:
                raise options.fault(
                    name, f'it needs the option "partitioning" to be "{needed}", not "{mode}"'
                )
        if "partitions" in options and not self.create_topic:
            raise options.fault("partitions", 'it is for a new topic; set the option "createTopic" to true')
        if self.create_topic and isinstance(self.target.topic, int):
            raise options.fault("createTopic", 'a new topic needs a name; the option "topic" has a number')
        if "epoch" in options and self.producer is None:
            raise options.fault("epoch", 'it needs the option "producer": epochs are counted by producer')

    def stream_producer(self, query_id: str) -> str:
        """Who writes the epochs of a streaming query.

        The query's id, which is the checkpoint's, is always part of it: numbers of micro-batches start at 0
        with every checkpoint, and under the name of an older one they would count as written already.
        """
        return f"{self.producer or 'spark'}.{query_id}"

    def batch_producer(self) -> str:
        """Who writes the epoch of a batch write; unless it is named, nobody else ever."""
        return self.producer or f"spark.{uuid.uuid4()}"


def _producer(options: Options) -> str | None:
    name = options.text("producer")
    if name is not None and len(name.encode()) > NAME_BYTES_MAX - _QUERY_ID_BYTES:
        raise options.fault("producer", f"it has at most {NAME_BYTES_MAX - _QUERY_ID_BYTES} bytes")
    return name


def _batch_bytes(options: Options) -> int:
    found = options.size_bytes("batchBytes", DEFAULT_BATCH_BYTES)
    if found is None or found > BATCH_BYTES_MAX:
        raise InvalidOptionValue(f'option "batchBytes": a batch has at most {BATCH_BYTES_MAX >> 20} MiB')
    return found
