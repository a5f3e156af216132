"""Topics with their partitions and segments."""

from borzoi.broker import events as ev
from borzoi.broker.broker import Broker
from borzoi.broker.catalog import Partition, Topic
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.options import canonical_options, check_topic, derived_options, effective_options
from borzoi.log.retention import deletable
from borzoi.model.errors import (
    InvalidPartitionsCount,
    InvalidTopicId,
    TooManyPartitions,
    TooManyTopics,
    TopicNameAlreadyExists,
)
from borzoi.model.limits import (
    PARTITIONS_PER_REQUEST_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TOPICS_PER_STREAM_MAX,
)
from borzoi.model.replies import PartitionInfo, TopicDetails, TopicInfo
from borzoi.model.requests import (
    CreatePartitions,
    CreateTopic,
    DeletePartitions,
    DeleteSegments,
    DeleteTopic,
    GetTopic,
    GetTopics,
    PurgeTopic,
    UpdateTopic,
)


def get_topic(context: Context, request: GetTopic) -> TopicDetails | None:
    topic = context.broker.catalog.find_topic(request.stream, request.topic)
    if topic is None:
        return None
    context.require_topic(topic)
    return topic_details(context.broker, topic)


def get_topics(context: Context, request: GetTopics) -> tuple[TopicInfo, ...]:
    stream = context.broker.catalog.find_stream(request.stream)
    if stream is None:
        return ()
    context.require(stream)
    return tuple(topic_info(context.broker, stream.topics[topic_id]) for topic_id in sorted(stream.topics))


def create_topic(context: Context, request: CreateTopic) -> TopicDetails:
    broker = context.broker
    stream = broker.catalog.stream(request.stream)
    context.require(stream)
    if request.partitions_count > PARTITIONS_PER_REQUEST_MAX:
        raise TooManyPartitions(f"{request.partitions_count}, at most {PARTITIONS_PER_REQUEST_MAX} at once")
    options = canonical_options(request.options)
    effective = effective_options(options, broker.settings)
    check_topic(effective, request.partitions_count)
    if request.name in stream.topic_ids:
        raise TopicNameAlreadyExists(request.name)
    if len(stream.topics) >= TOPICS_PER_STREAM_MAX:
        raise TooManyTopics(f"stream {stream.name} has {TOPICS_PER_STREAM_MAX}")
    topic_id = stream.free_topic_id() if request.wanted_id is None else request.wanted_id
    if topic_id in stream.topics:
        raise InvalidTopicId(f"{topic_id} of stream {stream.name} is taken")
    partitions = range(request.partitions_count)
    logs = broker.make_logs(stream.id, topic_id, partitions, effective)
    try:
        broker.record(
            ev.TopicCreated(
                stream_id=stream.id,
                topic_id=topic_id,
                name=request.name,
                partitions=[context.now_us] * request.partitions_count,
                options=options,
                at_us=context.now_us,
            )
        )
    except OSError:
        broker.unmake_logs(stream.id, topic_id, partitions)
        raise
    topic = stream.topics[topic_id]
    for partition, log in zip(topic.partitions, logs, strict=True):
        broker.attach_log(partition, log)
    return topic_details(broker, topic)


def update_topic(context: Context, request: UpdateTopic) -> None:
    broker = context.broker
    topic = broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    options = {**topic.options, **canonical_options(request.options, is_update=True)}
    check_topic(effective_options(options, broker.settings), len(topic.partitions))
    if topic.stream.topic_ids.get(request.name, topic.id) != topic.id:
        raise TopicNameAlreadyExists(request.name)
    broker.record(
        ev.TopicUpdated(stream_id=topic.stream.id, topic_id=topic.id, name=request.name, options=options)
    )


def delete_topic(context: Context, request: DeleteTopic) -> None:
    broker = context.broker
    topic = broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    broker.record(ev.TopicDeleted(stream_id=topic.stream.id, topic_id=topic.id))
    for group in topic.groups.values():
        broker.forget_group(group)
    broker.drop_partitions(topic.partitions)
    broker.remove_directory(broker.directory.topic(topic.stream.id, topic.id))


def purge_topic(context: Context, request: PurgeTopic) -> None:
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    context.broker.purge(topic)


def create_partitions(context: Context, request: CreatePartitions) -> None:
    broker = context.broker
    topic = broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    _check_partitions_count(request.partitions_count)
    first = len(topic.partitions)
    if first + request.partitions_count > PARTITIONS_PER_TOPIC_MAX:
        raise TooManyPartitions(f"topic {topic.name} may have {PARTITIONS_PER_TOPIC_MAX}")
    options = broker.options_of(topic)
    check_topic(options, first + request.partitions_count)
    added = range(first, first + request.partitions_count)
    logs = broker.make_logs(topic.stream.id, topic.id, added, options)
    try:
        broker.record(
            ev.PartitionsAdded(
                stream_id=topic.stream.id,
                topic_id=topic.id,
                count=request.partitions_count,
                at_us=context.now_us,
            )
        )
    except OSError:
        broker.unmake_logs(topic.stream.id, topic.id, added)
        raise
    for partition, log in zip(topic.partitions[first:], logs, strict=True):
        broker.attach_log(partition, log)
    broker.resize_groups(topic, context.now_us)


def delete_partitions(context: Context, request: DeletePartitions) -> None:
    broker = context.broker
    topic = broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    _check_partitions_count(request.partitions_count)
    remaining = len(topic.partitions) - request.partitions_count
    if remaining < 0:
        raise InvalidPartitionsCount(f"topic {topic.name} has {len(topic.partitions)}")
    removed = topic.partitions[remaining:]
    broker.record(
        ev.PartitionsRemoved(stream_id=topic.stream.id, topic_id=topic.id, count=request.partitions_count)
    )
    broker.drop_partitions(removed)
    for partition in removed:
        broker.remove_directory(broker.directory.partition(topic.stream.id, topic.id, partition.id))
    broker.resize_groups(topic, context.now_us)


def delete_segments(context: Context, request: DeleteSegments) -> None:
    """The oldest sealed ones, as far as every consumer that stored an offset has read them."""
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    partition = topic.partition(request.partition_id)
    count = deletable(partition.log, request.segments_count, partition.offsets.lowest())
    context.broker.remove_segments(partition.log.drop_oldest(count))


def _check_partitions_count(count: int) -> None:
    if not 1 <= count <= PARTITIONS_PER_REQUEST_MAX:
        raise TooManyPartitions(f"{count}, between 1 and {PARTITIONS_PER_REQUEST_MAX} at once")


def topic_info(broker: Broker, topic: Topic) -> TopicInfo:
    options = broker.options_of(topic)
    return TopicInfo(
        topic.id,
        topic.created_at_us,
        len(topic.partitions),
        options.message_expiry_us,
        options.compression,
        options.max_topic_bytes,
        topic.size_bytes,
        topic.messages_count,
        topic.name,
        topic.options,
        derived_options(topic.options, broker.settings),
    )


def topic_details(broker: Broker, topic: Topic) -> TopicDetails:
    return TopicDetails(topic_info(broker, topic), tuple(map(partition_info, topic.partitions)))


def partition_info(partition: Partition) -> PartitionInfo:
    log = partition.log
    return PartitionInfo(
        partition.id,
        partition.created_at_us,
        log.segments_count,
        log.current_offset,
        log.size_bytes,
        log.messages_count,
    )


HANDLERS: dict[type, Handler] = {
    GetTopic: get_topic,
    GetTopics: get_topics,
    CreateTopic: create_topic,
    UpdateTopic: update_topic,
    DeleteTopic: delete_topic,
    PurgeTopic: purge_topic,
    CreatePartitions: create_partitions,
    DeletePartitions: delete_partitions,
    DeleteSegments: delete_segments,
}
