"""How far the partitions of a topic reach: for readers that plan ahead."""

from borzoi.broker.catalog import Partition
from borzoi.broker.handlers.context import Context, Handler
from borzoi.log.extent import cut_after
from borzoi.model.errors import CannotReadMessage
from borzoi.model.replies import PartitionExtent, TopicExtent
from borzoi.model.requests import ByteCut, GetTopicExtent


def get_topic_extent(context: Context, request: GetTopicExtent) -> TopicExtent:
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    # The last one counts, should somebody ask twice for a partition.
    cuts = {topic.partition(cut.partition_id).id: cut for cut in request.cuts}
    try:
        extents = tuple(_extent(partition, cuts.get(partition.id)) for partition in topic.partitions)
    except OSError as error:
        context.broker.logger.error("index not readable", topic=topic.name, reason=str(error))
        raise CannotReadMessage(error.strerror or str(error)) from error
    return TopicExtent(topic.stream.id, topic.id, topic.created_at_us, extents)


def _extent(partition: Partition, cut: ByteCut | None) -> PartitionExtent:
    log = partition.log
    cut_offset, bytes_after = (
        (log.next_offset, log.size_bytes) if cut is None else cut_after(log, cut.offset, cut.bytes_max)
    )
    return PartitionExtent(partition.id, log.first_offset, log.next_offset, cut_offset, bytes_after)


HANDLERS: dict[type, Handler] = {GetTopicExtent: get_topic_extent}
