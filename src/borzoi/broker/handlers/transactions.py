"""Epochs: stage batches or copies of them, commit or abort what is staged, ask how far a producer got."""

from borzoi.broker import messages
from borzoi.broker.catalog import Topic
from borzoi.broker.copying import copies
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.messages import SendRoute
from borzoi.broker.pending import AfterWork, InSteps
from borzoi.log.staging import StagedHead
from borzoi.model.access import Access
from borzoi.model.errors import InvalidIdentifier
from borzoi.model.limits import NAME_BYTES_MAX
from borzoi.model.replies import Copied, EpochCommitted, ProducerEpoch, Staged
from borzoi.model.requests import (
    AbortEpoch,
    CommitEpoch,
    ForgetProducer,
    GetProducerEpoch,
    StageCopy,
    StageMessages,
)
from borzoi.wire.batch import Layout, prove, verify_messages


def stage_messages(context: Context, request: StageMessages) -> Staged:
    """Everything that a send would be refused for, this is refused for, before anything is written."""
    route, head = _target(context, request)
    staged = context.broker.transactions.staged
    batch = memoryview(request.batch)
    layout = prove(batch, request.messages_count)
    if staged.awaits(route.topic, head, request.sequence):
        _stage(context, route, head, batch, layout)
    found = staged.so_far(route.topic, head)
    return Staged(found.is_committed, found.batches_count)


def stage_copy(context: Context, request: StageCopy) -> Copied:
    """Needs the right to poll the one topic, and to send to the other."""
    route, head = _target(context, request)
    staged = context.broker.transactions.staged
    # First: of a repetition only the answer is wanted, whatever has become of the source.
    if staged.awaits(route.topic, head, request.sequence):
        broker = context.broker
        source = broker.catalog.topic(request.source_stream, request.source_topic)
        broker.require(context.session, Access.POLL, source.stream.id, source.id)
        log = source.partition(request.source_partition).log
        for batch, count in copies(broker, log, request.offset, request.count, context.now_us):
            _stage(context, route, head, batch, prove(batch, count))
    return staged.so_far(route.topic, head)


def _target(context: Context, request: StageMessages | StageCopy) -> tuple[SendRoute, StagedHead]:
    """Where the messages are to go, and whose they are."""
    route = messages.resolve_send(
        context.broker, context.session, request.stream, request.topic, request.partitioning
    )
    _check_producer(request.producer)
    return route, StagedHead(
        route.topic.created_at_us, request.producer, request.epoch, request.task, request.attempt
    )


def _stage(context: Context, route: SendRoute, head: StagedHead, batch: memoryview, layout: Layout) -> None:
    is_verified = route.verify_messages or layout.message_count <= messages._FEW_MESSAGES
    if is_verified:
        verify_messages(batch, layout)
    context.broker.transactions.staged.stage(
        route.topic,
        route.partition,
        head,
        batch,
        layout.message_count,
        context.now_us,
        is_verified=is_verified,
    )


def commit_epoch(context: Context, request: CommitEpoch) -> EpochCommitted | InSteps:
    topic = _topic(context, request)
    return context.broker.transactions.commit(
        topic, request.producer, request.epoch, request.parts, context.now_us
    )


def abort_epoch(context: Context, request: AbortEpoch) -> AfterWork | None:
    topic = _topic(context, request)
    return context.broker.transactions.abort(topic, request.producer, request.epoch)


def get_producer_epoch(context: Context, request: GetProducerEpoch) -> ProducerEpoch | None:
    last = _topic(context, request).epochs.get(request.producer)
    return ProducerEpoch(last.epoch, last.at_us) if last is not None else None


def forget_producer(context: Context, request: ForgetProducer) -> AfterWork | None:
    return context.broker.transactions.forget(_topic(context, request), request.producer)


def _topic(context: Context, request: CommitEpoch | AbortEpoch | GetProducerEpoch | ForgetProducer) -> Topic:
    topic = context.broker.data_topic(request.stream, request.topic)
    context.require_topic(topic)
    _check_producer(request.producer)
    return topic


def _check_producer(name: str) -> None:
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise InvalidIdentifier(f"a producer's name has 1 to {NAME_BYTES_MAX} bytes")


HANDLERS: dict[type, Handler] = {
    StageMessages: stage_messages,
    StageCopy: stage_copy,
    CommitEpoch: commit_epoch,
    AbortEpoch: abort_epoch,
    GetProducerEpoch: get_producer_epoch,
    ForgetProducer: forget_producer,
}
