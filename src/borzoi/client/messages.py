"""Commands that move messages: send, poll, flush."""

from collections.abc import Iterable
from itertools import repeat
from struct import Struct

from borzoi.client.call import Call
from borzoi.client.values import (
    UNNAMED_CONSUMER,
    PollingStrategy,
    ReceivedMessage,
    SendMessage,
    identifier,
    new_batch,
    partitioning_of,
)
from borzoi.model import requests as rq
from borzoi.model import values
from borzoi.model.errors import InvalidMessagesCount, RemoteProtocolError
from borzoi.model.limits import U32_MAX
from borzoi.model.replies import Confirmation, PolledMessages
from borzoi.model.values import Identifier
from borzoi.wire.batch import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    BatchHeader,
    read_header,
    split,
)
from borzoi.wire.columns import Columns, columns

_NEXT = PollingStrategy.Next()
_COUNT = 1000
# From so many messages on, columns cost less than a Python step for each message.
_COLUMNS_MIN = 64
_FRAME = Struct("<24sIIII")  # checksum and id, offset_delta, timestamp_delta, headers length, payload length


def send_messages(
    stream: Identifier,
    topic: Identifier,
    partitioning: values.Partitioning | int,
    messages: Iterable[SendMessage | bytes | str],
    *,
    deadline_s: float | None = None,
) -> Call[tuple[Confirmation, ...]]:
    """Store messages as one batch in one partition; they are stored when this returns.

    `partitioning` is a `Partitioning`, or the number of a partition. Returns where the batch was stored;
    nothing, if the server drops duplicates and has seen every message before.
    """
    count, batch = new_batch(messages)
    request = rq.SendMessages(
        identifier(stream), identifier(topic), partitioning_of(partitioning), count, batch
    )
    return Call(request, deadline_s)


def poll_messages(
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None = None,
    polling_strategy: values.PollingStrategy = _NEXT,
    count: int = _COUNT,
    auto_commit: bool = True,
    *,
    consumer: values.Consumer | None = None,
    deadline_s: float | None = None,
) -> Call[list[ReceivedMessage]]:
    """Up to `count` messages of one partition; an empty list, at once, if there are none.

    Without a consumer: the group that this client has joined in the topic under the same names, if it is one
    and no partition is named, else consumer 0. A group member that names no partition gets the next of its
    partitions with every call. With `auto_commit` the offset of the last message is stored for the consumer.
    """
    request = _poll(stream, topic, partition_id, polling_strategy, count, auto_commit, consumer)
    return Call(request, deadline_s, _messages)


def poll_batches(
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None = None,
    polling_strategy: values.PollingStrategy = _NEXT,
    count: int = _COUNT,
    auto_commit: bool = True,
    *,
    consumer: values.Consumer | None = None,
    deadline_s: float | None = None,
) -> Call[list[tuple[BatchHeader, memoryview]]]:
    """Like `poll_messages`, but whole batches as they are stored, without a copy; see `borzoi.wire.batch`.

    The first and the last batch hold only the messages that were asked for.
    """
    request = _poll(stream, topic, partition_id, polling_strategy, count, auto_commit, consumer)
    return Call(request, deadline_s, _batches)


def poll_buffers(
    stream: Identifier,
    topic: Identifier,
    partition_id: int,
    polling_strategy: values.PollingStrategy,
    count: int,
    *,
    deadline_s: float | None = None,
) -> Call[list[memoryview]]:
    """Like `poll_batches` without auto-commit, but the batches as they came: back to back in a buffer."""
    request = _poll(stream, topic, partition_id, polling_strategy, count, False, None)
    return Call(request, deadline_s, _buffers)


def flush_unsaved_buffer(
    stream: Identifier,
    topic: Identifier,
    partition_id: int,
    *,
    fsync: bool = False,
    deadline_s: float | None = None,
) -> Call[None]:
    """Return when everything sent to the partition is in its file; with `fsync`, on the device."""
    request = rq.FlushUnsavedBuffer(identifier(stream), identifier(topic), partition_id, fsync)
    return Call(request, deadline_s)


def _poll(
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None,
    strategy: values.PollingStrategy,
    count: int,
    auto_commit: bool,
    consumer: values.Consumer | None,
) -> rq.PollMessages:
    if not 1 <= count <= U32_MAX:
        raise InvalidMessagesCount(f"{count} messages cannot be polled")
    return rq.PollMessages(
        consumer or UNNAMED_CONSUMER,
        identifier(stream),
        identifier(topic),
        partition_id,
        strategy,
        count,
        auto_commit,
    )


def _buffers(reply: PolledMessages) -> list[memoryview]:
    return [memoryview(buffer) for buffer in reply.batches]


def _batches(reply: PolledMessages) -> list[tuple[BatchHeader, memoryview]]:
    return [(read_header(batch), batch) for buffer in reply.batches for batch in split(memoryview(buffer))]


def _messages(reply: PolledMessages) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for buffer in reply.batches:
        if reply.messages_count < _COLUMNS_MIN:
            for batch in split(memoryview(buffer)):
                # Copied once for all messages: slicing bytes is half the work of copying slices of a view.
                _append_messages(found, read_header(batch), bytes(batch))
        else:
            found += _from_columns(columns(buffer))
    return found


def _from_columns(found: Columns) -> Iterable[ReceivedMessage]:
    batch = found.only_batch
    partition_ids: Iterable[int]
    timestamps_us: Iterable[int]
    origins_us: Iterable[int]
    if batch is None:
        partition_ids, timestamps_us = found.partition_ids.tolist(), found.timestamps_us.tolist()
        origins_us = found.origin_timestamps_us.tolist()
    else:
        partition_ids, timestamps_us = repeat(batch.partition_id), repeat(batch.timestamp_us)
        if found.heads["time_delta"].any():
            origins_us = found.origin_timestamps_us.tolist()
        else:
            origins_us = repeat(batch.origin_timestamp_us)
    return map(
        ReceivedMessage,
        found.payloads(),
        found.offsets.tolist(),
        timestamps_us,
        origins_us,
        partition_ids,
        found.checksums_and_ids.tolist(),
        found.header_blocks() if found.has_headers else repeat(b""),
    )


def _append_messages(found: list[ReceivedMessage], header: BatchHeader, batch: bytes) -> None:
    """The same for few messages: a Python step each costs less than columns do."""
    partition_id, base_offset, stored_us, origin_us, _, _, count, _ = header
    end, last = HEADER_BYTES, len(batch)
    unpack = _FRAME.unpack_from
    for _ in range(count):
        start = end + FRAME_HEADER_BYTES
        if start > last:
            raise RemoteProtocolError("a message starts past the end of its batch")
        head, delta, delta_us, headers, payload = unpack(batch, end)
        middle = start + payload
        end = middle + headers
        if end > last:
            raise RemoteProtocolError("a message reaches past the end of its batch")
        found.append(
            ReceivedMessage(
                batch[start:middle],
                base_offset + delta,
                stored_us,
                origin_us + delta_us,
                partition_id,
                head,
                batch[middle:end],
            )
        )
    if end != last:
        raise RemoteProtocolError(f"the messages of a batch end at byte {end}, the batch at {last}")
