"""Commands of Borzoi's own: how far topics reach, and batches that become messages all at once.

A producer stages batches and commits them by epoch; nobody sees them before. Every one of these commands may
be sent again: a batch is known by its number within its attempt, an epoch that is committed stays so.
"""

from collections.abc import Iterable

from borzoi.client.call import Call
from borzoi.client.values import identifier, partitioning_of
from borzoi.model import requests as rq
from borzoi.model import values
from borzoi.model.errors import InvalidIdentifier
from borzoi.model.limits import NAME_BYTES_MAX
from borzoi.model.replies import Copied, EpochCommitted, ProducerEpoch, Staged, TopicExtent
from borzoi.model.values import BytesLike, Identifier


def get_topic_extent(
    stream: Identifier,
    topic: Identifier,
    cuts: Iterable[rq.ByteCut] = (),
    *,
    deadline_s: float | None = None,
) -> Call[TopicExtent]:
    """First and next offset of every partition of a topic, and where so many bytes after an offset end.

    A cut ends where an entry of the index does, at or before its bytes, but never before one such entry.
    """
    request = rq.GetTopicExtent(identifier(stream), identifier(topic), tuple(cuts))
    return Call(request, deadline_s)


def stage_messages(
    stream: Identifier,
    topic: Identifier,
    partitioning: values.Partitioning | int,
    batch: BytesLike,
    messages_count: int,
    *,
    producer: str,
    epoch: int,
    task: int,
    attempt: int,
    sequence: int,
    deadline_s: float | None = None,
) -> Call[Staged]:
    """Put a batch (see `borzoi.wire.batch`) aside until its epoch is committed."""
    request = rq.StageMessages(
        identifier(stream),
        identifier(topic),
        _producer(producer),
        epoch,
        task,
        attempt,
        sequence,
        partitioning_of(partitioning),
        messages_count,
        batch,
    )
    return Call(request, deadline_s)


def stage_copy(
    stream: Identifier,
    topic: Identifier,
    partitioning: values.Partitioning | int,
    source_stream: Identifier,
    source_topic: Identifier,
    source_partition: int,
    offset: int,
    count: int,
    *,
    producer: str,
    epoch: int,
    task: int,
    attempt: int,
    sequence: int,
    deadline_s: float | None = None,
) -> Call[Copied]:
    """Put messages of another topic of the same server aside, without them leaving it.

    They become batches from `sequence` on, with ids, headers and origin times as they are. The server takes a
    few megabytes at a time and says how much is staged for the attempt then: nothing more than before if it
    has no message at `offset`.
    """
    request = rq.StageCopy(
        identifier(stream),
        identifier(topic),
        _producer(producer),
        epoch,
        task,
        attempt,
        sequence,
        partitioning_of(partitioning),
        identifier(source_stream),
        identifier(source_topic),
        source_partition,
        offset,
        count,
    )
    return Call(request, deadline_s)


def commit_epoch(
    stream: Identifier,
    topic: Identifier,
    producer: str,
    epoch: int,
    parts: Iterable[rq.StagedPart],
    *,
    deadline_s: float | None = None,
) -> Call[EpochCommitted]:
    """Make the staged batches of these parts messages, all or none, and drop those of other attempts.

    An epoch that is not above the producer's last one was committed before: nothing happens then.
    """
    request = rq.CommitEpoch(identifier(stream), identifier(topic), _producer(producer), epoch, tuple(parts))
    return Call(request, deadline_s)


def abort_epoch(
    stream: Identifier, topic: Identifier, producer: str, epoch: int, *, deadline_s: float | None = None
) -> Call[None]:
    """Drop what is staged for an epoch; one that is committed stays so."""
    return Call(rq.AbortEpoch(identifier(stream), identifier(topic), _producer(producer), epoch), deadline_s)


def get_producer_epoch(
    stream: Identifier, topic: Identifier, producer: str, *, deadline_s: float | None = None
) -> Call[ProducerEpoch | None]:
    """The last epoch that a producer has committed, or None."""
    return Call(rq.GetProducerEpoch(identifier(stream), identifier(topic), _producer(producer)), deadline_s)


def forget_producer(
    stream: Identifier, topic: Identifier, producer: str, *, deadline_s: float | None = None
) -> Call[None]:
    """Forget a producer that will not commit again, and what it has staged. Its messages stay.

    An epoch of its that was committed could then be committed a second time: this is for names that are used
    once.
    """
    return Call(rq.ForgetProducer(identifier(stream), identifier(topic), _producer(producer)), deadline_s)


def _producer(name: str) -> str:
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise InvalidIdentifier(f"a producer's name has 1 to {NAME_BYTES_MAX} bytes: {name!r}")
    return name
