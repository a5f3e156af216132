"""Commands that move messages: send, poll, flush."""

from collections.abc import Iterable

from borzoi.client.call import Call
from borzoi.client.values import (
    UNNAMED_CONSUMER,
    PollingStrategy,
    ReceivedMessage,
    SendMessage,
    identifier,
    new_messages,
    partitioning_of,
)
from borzoi.model import requests as rq
from borzoi.model import values
from borzoi.model.errors import InvalidMessagesCount, RemoteProtocolError
from borzoi.model.limits import U32_MAX
from borzoi.model.replies import Confirmation, PolledMessages
from borzoi.model.values import Identifier
from borzoi.wire.batch import (
    FRAME,
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    BatchHeader,
    build,
    read_header,
    split,
)

_NEXT = PollingStrategy.Next()
_COUNT = 1000


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
    batch = new_messages(messages)
    request = rq.SendMessages(
        identifier(stream), identifier(topic), partitioning_of(partitioning), len(batch), build(batch)
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


def _batches(reply: PolledMessages) -> list[tuple[BatchHeader, memoryview]]:
    return [(read_header(batch), batch) for buffer in reply.batches for batch in split(memoryview(buffer))]


def _messages(reply: PolledMessages) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for header, batch in _batches(reply):
        # Copied once for all messages: a slice of bytes is half the work of copying a slice of a view.
        _append_messages(found, header, bytes(batch))
    return found


def _append_messages(found: list[ReceivedMessage], header: BatchHeader, batch: bytes) -> None:
    """What `frames` does, without an object per message that is thrown away again."""
    partition_id, base_offset, stored_us, origin_us, *_ = header
    end = HEADER_BYTES
    for _ in range(header.message_count):
        start = end + FRAME_HEADER_BYTES
        if start > len(batch):
            raise RemoteProtocolError("a message starts past the end of its batch")
        checksum, id_low, id_high, delta, delta_us, headers, payload, _ = FRAME.unpack_from(batch, end)
        middle = start + payload
        end = middle + headers
        if end > len(batch):
            raise RemoteProtocolError("a message reaches past the end of its batch")
        found.append(
            ReceivedMessage(
                batch[start:middle],
                base_offset + delta,
                stored_us,
                id_high << 64 | id_low,
                origin_us + delta_us,
                partition_id,
                checksum,
                batch[middle:end],
            )
        )
