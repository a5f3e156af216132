"""Which partition of the target every row goes to, for a whole Arrow batch at once.

    balanced    the broker chooses for every batch, in turn
    partition   a column has the number of the partition
    key         rows with the same key go to the same partition
    source      as the message's partition was numbered where it comes from; only a pipe knows that

Keys are hashed here and not by the broker, because a batch can have only one key there: a thousand keys would
be a thousand batches. The rule is the broker's own, so rows written from Spark meet messages that any client
sends with the same key. Every different key is hashed once per Arrow batch.

Nothing here knows payloads; `encode` puts rows that go to the same place into batches.
"""

from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh32_intdigest

from borzoi.model.errors import InvalidKeyValueLength, PartitionNotFound
from borzoi.model.limits import PARTITIONING_KEY_BYTES_MAX

# Instead of a partition's number: the broker chooses.
BALANCED = -1

Longs = NDArray[np.int64]


class PartitioningMode(StrEnum):
    BALANCED = "balanced"
    PARTITION = "partition"
    KEY = "key"
    SOURCE = "source"


def by_partition(column: pa.Array, name: str, partitions_count: int, *, is_modulo: bool) -> Longs:
    """Partitions from a column that has their numbers; with `is_modulo` larger numbers start over."""
    if column.null_count:
        raise PartitionNotFound(f'column "{name}" has a null and every row needs the number of a partition')
    numbers: Longs = np.asarray(column.cast(pa.int64()))
    if not len(numbers):
        return numbers
    if numbers.min() < 0 or (numbers.max() >= partitions_count and not is_modulo):
        wrong = numbers[(numbers < 0) | (numbers >= partitions_count)][0]
        raise PartitionNotFound(
            f'column "{name}" says partition {wrong}; the topic has partitions 0 to {partitions_count - 1}'
        )
    return numbers % partitions_count if is_modulo else numbers


def by_key(column: pa.Array, name: str, partitions_count: int) -> Longs:
    """Partitions from a column of keys. Rows without a key, which is null, go wherever the broker likes."""
    keys = column.dictionary_encode()
    partitions = np.empty(len(keys.dictionary) + 1, np.int64)
    partitions[-1] = BALANCED
    for index, key in enumerate(keys.dictionary.to_pylist()):
        partitions[index] = partition_of_key(key, name, partitions_count)
    indices: Longs = np.asarray(pc.fill_null(keys.indices, len(keys.dictionary)), np.int64)
    found: Longs = partitions[indices]
    return found


def partition_of_key(key: bytes | str, name: str, partitions_count: int) -> int:
    data = key.encode() if isinstance(key, str) else key
    if not 1 <= len(data) <= PARTITIONING_KEY_BYTES_MAX:
        raise InvalidKeyValueLength(
            f'column "{name}" has a key of {len(data)} bytes; a key has 1 to {PARTITIONING_KEY_BYTES_MAX}'
        )
    return xxh32_intdigest(data) % partitions_count
