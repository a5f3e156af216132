"""Permissions of a user: global flags, flags per stream, flags per topic of a stream.

Nothing is denied explicitly; any level that grants, grants. Root has everything.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GlobalPermissions:
    manage_servers: bool = False
    read_servers: bool = False
    manage_users: bool = False
    read_users: bool = False
    manage_streams: bool = False
    read_streams: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@dataclass(frozen=True, slots=True)
class TopicPermissions:
    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@dataclass(frozen=True, slots=True)
class StreamPermissions:
    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False
    topics: dict[int, TopicPermissions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Permissions:
    general: GlobalPermissions = GlobalPermissions()
    streams: dict[int, StreamPermissions] = field(default_factory=dict)


ROOT_PERMISSIONS = Permissions(GlobalPermissions(*(True,) * 10))
