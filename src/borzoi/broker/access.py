"""Decides whether a user's permissions grant a right.

Each right has three lists of flags: global ones, those of the stream and those of the topic that the command
names. Any single flag that is set grants the right; nothing is ever denied by another flag. Flags of other
streams and topics do not count.

Not decided here: whether the caller is logged in, that root may do everything, and that users may read
themselves and change their own password. Those depend on who asks, not on the permissions.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from borzoi.model.access import Access
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions


class Grant(NamedTuple):
    """Names of the flags that grant a right, by level."""

    general: tuple[str, ...]
    stream: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()


_LIST_TOPICS = Grant(
    ("manage_streams", "read_streams", "manage_topics", "read_topics"),
    ("manage_stream", "read_stream", "manage_topics", "read_topics"),
)
_CREATE_TOPIC = Grant(("manage_streams", "manage_topics"), ("manage_stream", "manage_topics"))
_READ_TOPIC = _LIST_TOPICS._replace(topic=("manage_topic", "read_topic"))
_MANAGE_TOPIC = _CREATE_TOPIC._replace(topic=("manage_topic",))


def _with_flag(grant: Grant, flag: str) -> Grant:
    """The same grant, given also by a flag that exists on all three levels."""
    return Grant(*((flag, *flags) for flags in grant))


GRANTS: Mapping[Access, Grant] = MappingProxyType(
    {
        Access.READ_SERVERS: Grant(("manage_servers", "read_servers")),
        Access.READ_USERS: Grant(("manage_users", "read_users")),
        Access.MANAGE_USERS: Grant(("manage_users",)),
        Access.LIST_STREAMS: Grant(("manage_streams", "read_streams")),
        Access.READ_STREAM: Grant(("manage_streams", "read_streams"), ("manage_stream", "read_stream")),
        Access.CREATE_STREAM: Grant(("manage_streams",)),
        Access.MANAGE_STREAM: Grant(("manage_streams",), ("manage_stream",)),
        Access.LIST_TOPICS: _LIST_TOPICS,
        Access.READ_TOPIC: _READ_TOPIC,
        Access.CREATE_TOPIC: _CREATE_TOPIC,
        Access.MANAGE_TOPIC: _MANAGE_TOPIC,
        Access.POLL: _with_flag(_READ_TOPIC, "poll_messages"),
        Access.SEND: _with_flag(_MANAGE_TOPIC, "send_messages"),
    }
)


def allows(
    permissions: Permissions | None,
    access: Access,
    stream_id: int | None = None,
    topic_id: int | None = None,
) -> bool:
    """Whether the permissions grant the right, on the stream and topic named where the right concerns one."""
    if access is Access.PUBLIC or access is Access.AUTHENTICATED:
        return True
    if permissions is None:
        return False
    grant = GRANTS[access]
    if _any_set(permissions.general, grant.general):
        return True
    stream = permissions.streams.get(stream_id) if stream_id is not None else None
    if stream is None:
        return False
    if _any_set(stream, grant.stream):
        return True
    topic = stream.topics.get(topic_id) if topic_id is not None else None
    return topic is not None and _any_set(topic, grant.topic)


def _any_set(level: GlobalPermissions | StreamPermissions | TopicPermissions, flags: tuple[str, ...]) -> bool:
    return any(getattr(level, flag) for flag in flags)
