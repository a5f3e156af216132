"""Permissions of a user: global flags, flags per stream, flags per topic of a stream.

Nothing is denied explicitly; any level that grants, grants. Root has everything.
"""

import msgspec


class GlobalPermissions(msgspec.Struct, frozen=True):
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


class TopicPermissions(msgspec.Struct, frozen=True):
    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


class StreamPermissions(msgspec.Struct, frozen=True):
    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False
    topics: dict[int, TopicPermissions] = msgspec.field(default_factory=dict)


class Permissions(msgspec.Struct, frozen=True):
    general: GlobalPermissions = GlobalPermissions()
    streams: dict[int, StreamPermissions] = msgspec.field(default_factory=dict)


ROOT_PERMISSIONS = Permissions(GlobalPermissions(*(True,) * 10))
