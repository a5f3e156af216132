"""Messages and consumer offsets, for callers that come with a whole request.

Transports on the hot path keep routes and call `borzoi.broker.messages` themselves.
"""

from borzoi.broker import messages
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.pending import AfterSync
from borzoi.model.errors import (
    CannotSyncFile,
    ConsumerGroupIdNotFound,
    ConsumerOffsetNotFound,
)
from borzoi.model.replies import Confirmation, ConsumerOffset, PolledMessages
from borzoi.model.requests import (
    DeleteConsumerOffset,
    FlushUnsavedBuffer,
    GetConsumerOffset,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)


def send_messages(context: Context, request: SendMessages) -> tuple[Confirmation, ...] | AfterSync:
    """One confirmation per batch that was stored; none for a batch of duplicates."""
    route = messages.resolve_send(
        context.broker, context.session, request.stream, request.topic, request.partitioning
    )
    batch = memoryview(request.batch)
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    reply = messages.send(context.broker, route, batch, request.messages_count, context.now_us)
    if isinstance(reply, AfterSync):
        return AfterSync((reply.reply,), reply.jobs)
    return () if reply is None else (reply,)


def poll_messages(context: Context, request: PollMessages) -> PolledMessages | AfterSync:
    route = messages.resolve_poll(
        context.broker,
        context.session,
        request.consumer,
        request.stream,
        request.topic,
        request.partition_id,
    )
    return messages.poll(
        context.broker,
        context.session,
        route,
        request.strategy.kind,
        request.strategy.value,
        request.count,
        request.auto_commit,
        context.now_us,
    )


def flush_unsaved_buffer(context: Context, request: FlushUnsavedBuffer) -> AfterSync | None:
    """Nothing is ever unsaved here; with `fsync` the answer waits until it is on the device too."""
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    partition = topic.partition(request.partition_id)
    if not request.fsync:
        return None
    try:
        return AfterSync(None, partition.log.sync_jobs(indexes=True))
    except OSError as error:
        raise CannotSyncFile(error.strerror or str(error)) from error


def get_offset(context: Context, request: GetConsumerOffset) -> ConsumerOffset | None:
    if context.broker.catalog.find_topic(request.stream, request.topic) is None:
        return None
    try:
        route = messages.resolve_poll(
            context.broker,
            context.session,
            request.consumer,
            request.stream,
            request.topic,
            request.partition_id,
        )
    except ConsumerGroupIdNotFound:
        return None
    return messages.get_offset(route)


def store_offset(context: Context, request: StoreConsumerOffset) -> AfterSync | None:
    route = _offset_route(context, request)
    return messages.store_offset(context.broker, context.session, route, request.offset, context.now_us)


def delete_offset(context: Context, request: DeleteConsumerOffset) -> None:
    route = _offset_route(context, request)
    if not messages.delete_offset(context.broker, context.session, route, context.now_us):
        raise ConsumerOffsetNotFound(f"{request.consumer.id}")


def _offset_route(
    context: Context, request: StoreConsumerOffset | DeleteConsumerOffset
) -> messages.PollRoute:
    return messages.resolve_offset_write(
        context.broker,
        context.session,
        request.consumer,
        request.stream,
        request.topic,
        request.partition_id,
    )


HANDLERS: dict[type, Handler] = {
    SendMessages: send_messages,
    PollMessages: poll_messages,
    FlushUnsavedBuffer: flush_unsaved_buffer,
    GetConsumerOffset: get_offset,
    StoreConsumerOffset: store_offset,
    DeleteConsumerOffset: delete_offset,
}
