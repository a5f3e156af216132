"""Consumer groups: create, delete, join, leave, sync, look at."""

from borzoi.broker import events as ev
from borzoi.broker.catalog import Group
from borzoi.broker.groups import ChangeReason
from borzoi.broker.handlers.context import Context, Handler
from borzoi.model.errors import (
    ConsumerGroupMemberNotFound,
    ConsumerGroupNameAlreadyExists,
    InvalidConsumerGroupId,
)
from borzoi.model.replies import GroupAssignment, GroupDetails, GroupInfo
from borzoi.model.requests import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetConsumerGroups,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    SyncConsumerGroup,
)


def get_group(context: Context, request: GetConsumerGroup) -> GroupDetails | None:
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    group = topic.find_group(request.group)
    return group.members.details(group.id, group.name) if group is not None else None


def get_groups(context: Context, request: GetConsumerGroups) -> tuple[GroupInfo, ...]:
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    return tuple(
        GroupInfo(group.id, len(topic.partitions), group.members.members_count, group.name)
        for _, group in sorted(topic.groups.items())
    )


def create_group(context: Context, request: CreateConsumerGroup) -> GroupDetails:
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    if request.name in topic.group_ids:
        raise ConsumerGroupNameAlreadyExists(request.name)
    group_id = topic.next_group_id if request.wanted_id is None else request.wanted_id
    if group_id in topic.groups:
        raise InvalidConsumerGroupId(f"{group_id} of topic {topic.name} is taken")
    context.broker.record(
        ev.GroupCreated(stream_id=topic.stream.id, topic_id=topic.id, group_id=group_id, name=request.name)
    )
    return topic.groups[group_id].members.details(group_id, request.name)


def delete_group(context: Context, request: DeleteConsumerGroup) -> None:
    group = _group(context, request)
    topic = group.topic
    context.broker.record(ev.GroupDeleted(stream_id=topic.stream.id, topic_id=topic.id, group_id=group.id))
    context.broker.forget_group(group)
    context.broker.drop_group_offsets(group)


def join_group(context: Context, request: JoinConsumerGroup) -> None:
    context.broker.join_group(context.session, _group(context, request), context.now_us)


def leave_group(context: Context, request: LeaveConsumerGroup) -> None:
    group = _group(context, request)
    if not group.members.is_member(context.session.client_id):
        raise ConsumerGroupMemberNotFound(f"{context.session.username} in group {group.name}")
    context.broker.leave_group(context.session, group, ChangeReason.LEFT, context.now_us)


def sync_group(context: Context, request: SyncConsumerGroup) -> GroupAssignment | None:
    """What the caller may poll; None tells it to join first. Called often, so it must stay cheap."""
    topic = context.broker.catalog.find_topic(request.stream, request.topic)
    group = topic.find_group(request.group) if topic is not None else None
    return group.members.assignment(context.session.client_id) if group is not None else None


def _group(context: Context, request: DeleteConsumerGroup | JoinConsumerGroup | LeaveConsumerGroup) -> Group:
    topic = context.broker.catalog.topic(request.stream, request.topic)
    context.require_topic(topic)
    return topic.group(request.group)


HANDLERS: dict[type, Handler] = {
    GetConsumerGroup: get_group,
    GetConsumerGroups: get_groups,
    CreateConsumerGroup: create_group,
    DeleteConsumerGroup: delete_group,
    JoinConsumerGroup: join_group,
    LeaveConsumerGroup: leave_group,
    SyncConsumerGroup: sync_group,
}
