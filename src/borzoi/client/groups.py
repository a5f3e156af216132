"""Commands for consumer groups."""

from borzoi.client.call import Call, or_none
from borzoi.client.details import ConsumerGroupDetails, group_details
from borzoi.client.values import identifier
from borzoi.model import requests as rq
from borzoi.model.replies import GroupAssignment, GroupInfo
from borzoi.model.values import Identifier


def create_consumer_group(
    stream: Identifier, topic: Identifier, name: str, *, deadline_s: float | None = None
) -> Call[ConsumerGroupDetails]:
    request = rq.CreateConsumerGroup(identifier(stream), identifier(topic), name)
    return Call(request, deadline_s, group_details)


def get_consumer_group(
    stream: Identifier, topic: Identifier, consumer_group: Identifier, *, deadline_s: float | None = None
) -> Call[ConsumerGroupDetails | None]:
    """The group and its members, or None."""
    request = rq.GetConsumerGroup(identifier(stream), identifier(topic), identifier(consumer_group))
    return Call(request, deadline_s, or_none(group_details))


def get_consumer_groups(
    stream: Identifier, topic: Identifier, *, deadline_s: float | None = None
) -> Call[tuple[GroupInfo, ...]]:
    return Call(rq.GetConsumerGroups(identifier(stream), identifier(topic)), deadline_s)


def delete_consumer_group(
    stream: Identifier, topic: Identifier, consumer_group: Identifier, *, deadline_s: float | None = None
) -> Call[None]:
    """Delete a group and the offsets stored for it."""
    request = rq.DeleteConsumerGroup(identifier(stream), identifier(topic), identifier(consumer_group))
    return Call(request, deadline_s)


def join_consumer_group(
    stream: Identifier, topic: Identifier, consumer_group: Identifier, *, deadline_s: float | None = None
) -> Call[None]:
    """Become a member. The client joins again by itself after a reconnect, and shows that it is there."""
    request = rq.JoinConsumerGroup(identifier(stream), identifier(topic), identifier(consumer_group))
    return Call(request, deadline_s)


def leave_consumer_group(
    stream: Identifier, topic: Identifier, consumer_group: Identifier, *, deadline_s: float | None = None
) -> Call[None]:
    request = rq.LeaveConsumerGroup(identifier(stream), identifier(topic), identifier(consumer_group))
    return Call(request, deadline_s)


def sync_consumer_group(
    stream: Identifier, topic: Identifier, consumer_group: Identifier, *, deadline_s: float | None = None
) -> Call[GroupAssignment | None]:
    """The partitions that this client may poll in the group; None if it is no member."""
    request = rq.SyncConsumerGroup(identifier(stream), identifier(topic), identifier(consumer_group))
    return Call(request, deadline_s)
