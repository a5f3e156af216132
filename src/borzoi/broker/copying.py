"""Batches that a log has, as batches to be staged for another: messages copied within the server.

What is copied at once is limited like a step of a commit (`borzoi.broker.application`), so that others have
their turn.
"""

from collections.abc import Iterator
from itertools import islice

from borzoi.broker.broker import Broker
from borzoi.broker.messages import read
from borzoi.log.partition import PartitionLog
from borzoi.model.values import BytesLike
from borzoi.wire.batch import HEADER_BYTES, read_header
from borzoi.wire.columns import columns
from borzoi.wire.copies import RawCopies

COPY_BYTES = 4 << 20
COPY_BATCHES = 128
_COPIES = RawCopies(batch_bytes=1 << 20, batch_rows=1 << 16)


def copies(
    broker: Broker, log: PartitionLog, offset: int, count: int, now_us: int
) -> Iterator[tuple[memoryview, int]]:
    """Batches and how many messages each has: from `offset` on, `count` at most, and none left out.

    There are none if the log does not have the message at `offset`.
    """
    if not log.first_offset <= offset < log.next_offset:
        return
    found = read(broker, log, offset, count, COPY_BYTES, now_us)
    made = (batch for part in _whole(found.buffers) for batch in _COPIES.batches(columns(part)))
    for batch, messages_count in islice(made, COPY_BATCHES):
        yield memoryview(batch), messages_count


def _whole(buffers: list[BytesLike]) -> Iterator[BytesLike]:
    """The header of a batch that was cut comes by itself; it is put before its messages again."""
    waiting = iter(buffers)
    for buffer in waiting:
        if len(buffer) == HEADER_BYTES < read_header(buffer).length:
            yield b"".join((buffer, next(waiting)))
        else:
            yield buffer
