"""The permissions block, the same in every wire generation.

    10 flags   manage_servers read_servers manage_users read_users manage_streams read_streams
               manage_topics read_topics poll_messages send_messages
    u8         streams follow
      u32      stream id
      6 flags  manage_stream read_stream manage_topics read_topics poll_messages send_messages
      u8       topics follow
        u32      topic id
        4 flags  manage_topic read_topic poll_messages send_messages
        u8       another topic follows
      u8       another stream follows

A flag is a byte; any byte but 0 is true. An empty list is the single byte 0. An id that comes twice is
refused: one of the two would silently lose its rights. The length of the block stands outside of it.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import U32, Codec

V = TypeVar("V")

_GLOBAL_FLAGS, _STREAM_FLAGS, _TOPIC_FLAGS = 10, 6, 4


class PermissionsField(Codec[Permissions]):
    least_bytes = _GLOBAL_FLAGS + 1

    def read(self, cursor: Cursor) -> Permissions:
        general = GlobalPermissions(*_read_flags(cursor, _GLOBAL_FLAGS))
        return Permissions(general, _read_chain(cursor, _read_stream))

    def write(self, out: bytearray, value: Permissions) -> None:
        out += bytes(msgspec.structs.astuple(value.general))
        _write_chain(out, value.streams, _write_stream)


PERMISSIONS = PermissionsField()


def _read_stream(cursor: Cursor) -> StreamPermissions:
    manage_stream, read_stream, manage_topics, read_topics, poll, send = _read_flags(cursor, _STREAM_FLAGS)
    topics = _read_chain(cursor, _read_topic)
    return StreamPermissions(manage_stream, read_stream, manage_topics, read_topics, poll, send, topics)


def _write_stream(out: bytearray, value: StreamPermissions) -> None:
    out += bytes(
        (
            value.manage_stream,
            value.read_stream,
            value.manage_topics,
            value.read_topics,
            value.poll_messages,
            value.send_messages,
        )
    )
    _write_chain(out, value.topics, _write_topic)


def _read_topic(cursor: Cursor) -> TopicPermissions:
    return TopicPermissions(*_read_flags(cursor, _TOPIC_FLAGS))


def _write_topic(out: bytearray, value: TopicPermissions) -> None:
    out += bytes(msgspec.structs.astuple(value))


def _read_flags(cursor: Cursor, count: int) -> list[bool]:
    return [byte != 0 for byte in cursor.take(count)]


def _read_chain(cursor: Cursor, read: Callable[[Cursor], V]) -> dict[int, V]:
    entries: dict[int, V] = {}
    while cursor.take(1)[0]:
        id_ = U32.read(cursor)
        if id_ in entries:
            raise RemoteProtocolError(f"permissions for {id_} come twice")
        entries[id_] = read(cursor)
    return entries


def _write_chain(out: bytearray, entries: dict[int, V], write: Callable[[bytearray, V], None]) -> None:
    for id_, value in entries.items():
        out.append(1)
        U32.write(out, id_)
        write(out, value)
    out.append(0)
