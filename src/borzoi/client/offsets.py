"""Commands for the offsets that are stored for consumers and groups."""

from borzoi.client.call import Call
from borzoi.client.values import UNNAMED_CONSUMER, identifier
from borzoi.model import requests as rq
from borzoi.model import values
from borzoi.model.replies import ConsumerOffset
from borzoi.model.values import Identifier


def get_consumer_offset(
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None = None,
    *,
    consumer: values.Consumer | None = None,
    deadline_s: float | None = None,
) -> Call[ConsumerOffset | None]:
    """The offset stored for a consumer or a group, or None. No consumer is consumer 0, no partition is 0."""
    request = rq.GetConsumerOffset(
        consumer or UNNAMED_CONSUMER, identifier(stream), identifier(topic), partition_id
    )
    return Call(request, deadline_s)


def store_consumer_offset(
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None = None,
    *,
    offset: int,
    consumer: values.Consumer | None = None,
    deadline_s: float | None = None,
) -> Call[None]:
    """Store the offset of the last message that was dealt with; `PollingStrategy.Next()` goes on after it."""
    request = rq.StoreConsumerOffset(
        consumer or UNNAMED_CONSUMER, identifier(stream), identifier(topic), partition_id, offset
    )
    return Call(request, deadline_s)


def delete_consumer_offset(
    stream: Identifier,
    topic: Identifier,
    partition_id: int | None = None,
    *,
    consumer: values.Consumer | None = None,
    deadline_s: float | None = None,
) -> Call[None]:
    """Forget a stored offset, so that `PollingStrategy.Next()` starts at the beginning."""
    request = rq.DeleteConsumerOffset(
        consumer or UNNAMED_CONSUMER, identifier(stream), identifier(topic), partition_id
    )
    return Call(request, deadline_s)
