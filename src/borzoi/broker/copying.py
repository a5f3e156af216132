"""Batches that a log has, as batches to be staged for another: messages copied within the server.

What is copied at once is limited, so that others have their turn: in bytes like a step of a commit
(`borzoi.broker.application`), and in messages, because those of a batch that is cut are looked at one by one.
"""

from collections.abc import Iterator
from itertools import islice

from borzoi.broker.broker import Broker
from borzoi.broker.messages import read
from borzoi.log.partition import PartitionLog
from borzoi.model.values import BytesLike
from borzoi.wire.batch import HEADER_BYTES, read_header
from borzoi.wire.columns import Columns, columns
from borzoi.wire.copies import RawCopies

COPY_BYTES = 4 << 20
COPY_MESSAGES = 1 << 15
COPY_BATCHES = 128
# A larger batch is cut before it is looked at.
_READ_MESSAGES_MAX = 1 << 17
# As those that Spark's workers make.
_COPIES = RawCopies(batch_bytes=1 << 20, batch_rows=10_000)


def copies(
    broker: Broker, log: PartitionLog, offset: int, count: int, now_us: int
) -> Iterator[tuple[memoryview, int]]:
    """Batches and how many messages each has: from `offset` on, `count` at most.

    They end before the first message that the log does not have. There are none if that is the one at
    `offset`.
    """
    found = read(broker, log, offset, min(count, _READ_MESSAGES_MAX), COPY_BYTES, now_us)
    made = (batch for part in _unbroken(found.buffers, offset) for batch in _COPIES.batches(part))
    size_bytes = messages = 0
    for batch, messages_count in islice(made, COPY_BATCHES):
        yield memoryview(batch), messages_count
        size_bytes += len(batch)
        messages += messages_count
        if size_bytes >= COPY_BYTES or messages >= COPY_MESSAGES:
            return


def _unbroken(buffers: list[BytesLike], offset: int) -> Iterator[Columns]:
    """What is in the buffers, as far as their offsets follow each other and begin with this one.

    A log that was damaged has holes, and reads go on behind them; within a buffer there are none.
    """
    for buffer in _whole(buffers):
        part = columns(buffer)
        offsets = part.offset_range
        if offsets is None or offsets.start != offset:
            return
        yield part
        offset = offsets.stop


def _whole(buffers: list[BytesLike]) -> Iterator[BytesLike]:
    """The header of a batch that was cut comes by itself; it is put before its messages again."""
    waiting = iter(buffers)
    for buffer in waiting:
        if len(buffer) == HEADER_BYTES < read_header(buffer).length:
            yield b"".join((buffer, next(waiting)))
        else:
            yield buffer
