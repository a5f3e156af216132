"""Replies about one thing, flattened: what is known of it and what belongs to it, side by side.

The model keeps the two apart because the wire does; `stream.name` reads better than `stream.stream.name`.
"""

from msgspec.structs import astuple

from borzoi.model import replies as rp
from borzoi.model.permissions import Permissions


class StreamDetails(rp.StreamInfo, frozen=True, kw_only=True):
    topics: tuple[rp.TopicInfo, ...]


class TopicDetails(rp.TopicInfo, frozen=True, kw_only=True):
    partitions: tuple[rp.PartitionInfo, ...]


class ConsumerGroupDetails(rp.GroupInfo, frozen=True, kw_only=True):
    members: tuple[rp.GroupMember, ...]


class UserDetails(rp.UserInfo, frozen=True, kw_only=True):
    permissions: Permissions | None


class ClientDetails(rp.ClientInfo, frozen=True, kw_only=True):
    consumer_groups: tuple[rp.ClientGroup, ...]


def stream_details(reply: rp.StreamDetails) -> StreamDetails:
    return StreamDetails(*astuple(reply.stream), topics=reply.topics)


def topic_details(reply: rp.TopicDetails) -> TopicDetails:
    return TopicDetails(*astuple(reply.topic), partitions=reply.partitions)


def group_details(reply: rp.GroupDetails) -> ConsumerGroupDetails:
    return ConsumerGroupDetails(*astuple(reply.group), members=reply.members)


def user_details(reply: rp.UserDetails) -> UserDetails:
    return UserDetails(*astuple(reply.user), permissions=reply.permissions)


def client_details(reply: rp.ClientDetails) -> ClientDetails:
    return ClientDetails(*astuple(reply.client), consumer_groups=reply.groups)
