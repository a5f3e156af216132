"""Commands that move messages: send, poll, flush."""

from collections.abc import Iterable

from borzoi.client.call import Call
from borzoi.client.received import ReceivedMessage, messages_of
from borzoi.client.values import (
    UNNAMED_CONSUMER,
    PollingStrategy,
    SendMessage,
    identifier,
    new_batch,
    partitioning_of,
)
from borzoi.model import requests as rq
from borzoi.model import values
from borzoi.model.errors import InvalidMessagesCount
from borzoi.model.limits import U32_MAX
from borzoi.model.replies import Confirmation, PolledMessages
from borzoi.model.values import Identifier
from borzoi.wire.batch import BatchHeader, read_header, split

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
    return Call(request, deadline_s, messages_of)


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
