"""Streams: create, rename, delete, purge, look at."""

from borzoi.broker import events as ev
from borzoi.broker.catalog import Stream
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.handlers.topics import topic_info
from borzoi.broker.options import refuse_options
from borzoi.model.errors import InvalidStreamId, StreamNameAlreadyExists, TooManyStreams
from borzoi.model.limits import STREAMS_MAX
from borzoi.model.replies import StreamDetails, StreamInfo
from borzoi.model.requests import (
    CreateStream,
    DeleteStream,
    GetStream,
    GetStreams,
    PurgeStream,
    UpdateStream,
)


def get_stream(context: Context, request: GetStream) -> StreamDetails | None:
    stream = context.broker.catalog.find_stream(request.stream)
    if stream is None:
        return None
    context.require(stream)
    return stream_details(context, stream)


def get_streams(context: Context, _request: GetStreams) -> tuple[StreamInfo, ...]:
    context.require()
    streams = context.broker.catalog.streams
    return tuple(stream_info(streams[stream_id]) for stream_id in sorted(streams))


def create_stream(context: Context, request: CreateStream) -> StreamDetails:
    broker = context.broker
    context.require()
    refuse_options(request.options)
    if request.name in broker.catalog.stream_ids:
        raise StreamNameAlreadyExists(request.name)
    if len(broker.catalog.streams) >= STREAMS_MAX:
        raise TooManyStreams(f"there are {STREAMS_MAX}")
    stream_id = broker.catalog.free_stream_id() if request.wanted_id is None else request.wanted_id
    if stream_id in broker.catalog.streams:
        raise InvalidStreamId(f"{stream_id} is taken")
    broker.record(ev.StreamCreated(stream_id=stream_id, name=request.name, at_us=context.now_us))
    return stream_details(context, broker.catalog.streams[stream_id])


def update_stream(context: Context, request: UpdateStream) -> None:
    broker = context.broker
    stream = broker.catalog.stream(request.stream)
    context.require(stream)
    refuse_options(request.options)
    if broker.catalog.stream_ids.get(request.name, stream.id) != stream.id:
        raise StreamNameAlreadyExists(request.name)
    if request.name != stream.name:
        broker.record(ev.StreamRenamed(stream_id=stream.id, name=request.name))


def delete_stream(context: Context, request: DeleteStream) -> None:
    broker = context.broker
    stream = broker.catalog.stream(request.stream)
    context.require(stream)
    broker.record(ev.StreamDeleted(stream_id=stream.id))
    for topic in stream.topics.values():
        for group in topic.groups.values():
            broker.forget_group(group)
        broker.drop_partitions(topic.partitions)
    broker.remove_directory(broker.directory.stream(stream.id))


def purge_stream(context: Context, request: PurgeStream) -> None:
    stream = context.broker.catalog.stream(request.stream)
    context.require(stream)
    for topic in stream.topics.values():
        context.broker.purge(topic)


def stream_info(stream: Stream) -> StreamInfo:
    return StreamInfo(
        stream.id,
        stream.created_at_us,
        len(stream.topics),
        stream.size_bytes,
        stream.messages_count,
        stream.name,
    )


def stream_details(context: Context, stream: Stream) -> StreamDetails:
    topics = tuple(topic_info(context.broker, stream.topics[topic_id]) for topic_id in sorted(stream.topics))
    return StreamDetails(stream_info(stream), topics)


HANDLERS: dict[type, Handler] = {
    GetStream: get_stream,
    GetStreams: get_streams,
    CreateStream: create_stream,
    UpdateStream: update_stream,
    DeleteStream: delete_stream,
    PurgeStream: purge_stream,
}
