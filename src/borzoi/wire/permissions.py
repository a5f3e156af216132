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

A generation whose ids on the wire are not those of the model gives the codec of its ids.

In requests the block is optional behind a flag and its length; in replies too, but what is absent there is
four zero bytes (`PermissionsTail`).
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import U32, Codec
from borzoi.wire.records import Flagged, Sized

V = TypeVar("V")

_GLOBAL_FLAGS, _STREAM_FLAGS, _TOPIC_FLAGS = 10, 6, 4


class PermissionsField(Codec[Permissions]):
    least_bytes = _GLOBAL_FLAGS + 1

    def __init__(self, id_: Codec[int] = U32) -> None:
        self._id = id_

    def read(self, cursor: Cursor) -> Permissions:
        general = GlobalPermissions(*_read_flags(cursor, _GLOBAL_FLAGS))
        return Permissions(general, self._read_chain(cursor, self._read_stream))

    def write(self, out: bytearray, value: Permissions) -> None:
        out += bytes(msgspec.structs.astuple(value.general))
        self._write_chain(out, value.streams, self._write_stream)

    def _read_stream(self, cursor: Cursor) -> StreamPermissions:
        manage_stream, read_stream, manage_topics, read_topics, poll, send = _read_flags(
            cursor, _STREAM_FLAGS
        )
        topics = self._read_chain(cursor, _read_topic)
        return StreamPermissions(manage_stream, read_stream, manage_topics, read_topics, poll, send, topics)

    def _write_stream(self, out: bytearray, value: StreamPermissions) -> None:
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
        self._write_chain(out, value.topics, _write_topic)

    def _read_chain(self, cursor: Cursor, read: Callable[[Cursor], V]) -> dict[int, V]:
        entries: dict[int, V] = {}
        while cursor.take(1)[0]:
            id_ = self._id.read(cursor)
            if id_ in entries:
                raise RemoteProtocolError(f"permissions for {id_} come twice")
            entries[id_] = read(cursor)
        return entries

    def _write_chain(
        self, out: bytearray, entries: dict[int, V], write: Callable[[bytearray, V], None]
    ) -> None:
        for id_, value in entries.items():
            out.append(1)
            self._id.write(out, id_)
            write(out, value)
        out.append(0)


PERMISSIONS = PermissionsField()


class PermissionsTail(Codec[Permissions | None]):
    """The end of UserDetails: absent permissions are four zero bytes, not one."""

    least_bytes = 4
    _ABSENT = bytes(4)

    def __init__(self, block: Codec[Permissions] = PERMISSIONS) -> None:
        self._permissions = Flagged(Sized(block))

    def read(self, cursor: Cursor) -> Permissions | None:
        permissions = self._permissions.read(cursor)
        if permissions is None and cursor.take(3) != self._ABSENT[1:]:
            raise RemoteProtocolError("absent permissions are not four zero bytes")
        return permissions

    def write(self, out: bytearray, value: Permissions | None) -> None:
        if value is None:
            out += self._ABSENT
        else:
            self._permissions.write(out, value)


def _read_topic(cursor: Cursor) -> TopicPermissions:
    return TopicPermissions(*_read_flags(cursor, _TOPIC_FLAGS))


def _write_topic(out: bytearray, value: TopicPermissions) -> None:
    out += bytes(msgspec.structs.astuple(value))


def _read_flags(cursor: Cursor, count: int) -> list[bool]:
    return [byte != 0 for byte in cursor.take(count)]
