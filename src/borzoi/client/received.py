"""Messages as a poll gives them, and how they are made of its reply.

Payloads and offsets are taken out for all messages at once. The rest (times, ids, checksums, user headers)
is an object or two more for every message that most consumers never look at, so it stays in columns that the
messages of a reply share, and becomes Python objects when somebody first asks. A message that is kept keeps
these columns, 48 bytes for every message that it came with, but nobody else's payload.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import repeat
from struct import Struct
from typing import Any, Protocol

import msgspec

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.headers import HeaderObject, decode_user_headers, to_python
from borzoi.model.replies import PolledMessages
from borzoi.model.values import TypedValue
from borzoi.wire.batch import FRAME_HEADER_BYTES, HEADER_BYTES, BatchHeader, read_header, split
from borzoi.wire.columns import Columns, columns

# From so many messages on, columns cost less than a Python step for each message.
_COLUMNS_MIN = 64
_FRAME = Struct("<24sIIII")  # checksum and id, offset_delta, timestamp_delta, headers length, payload length


class Envelopes(Protocol):
    """What came around the payloads of messages of one reply, in their order."""

    @property
    def offsets(self) -> Sequence[int]: ...
    @property
    def timestamps(self) -> Sequence[int]: ...
    @property
    def origin_timestamps(self) -> Sequence[int]: ...
    @property
    def heads(self) -> Sequence[bytes]:
        """Checksum (8 bytes) and id (16), as stored."""
        ...

    @property
    def user_headers(self) -> Sequence[bytes]:
        """As stored; empty without headers."""
        ...


class OpenEnvelopes(msgspec.Struct, frozen=True):
    """All of it at hand."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    origin_timestamps: Sequence[int]
    heads: Sequence[bytes]
    user_headers: Sequence[bytes]


class _ClosedEnvelopes:
    """Opened one kind of contents at a time, when it is asked for."""

    def __init__(self, found: Columns) -> None:
        self.offsets = found.offset_range or found.offsets.tolist()
        self._user_headers = found.header_blocks() if found.has_headers else None
        self._found = found.without_buffer()

    @cached_property
    def timestamps(self) -> Sequence[int]:
        times: list[int] = self._found.timestamps_us.tolist()
        return times

    @cached_property
    def origin_timestamps(self) -> Sequence[int]:
        times: list[int] = self._found.origin_timestamps_us.tolist()
        return times

    @cached_property
    def heads(self) -> Sequence[bytes]:
        heads: list[bytes] = self._found.checksums_and_ids.tolist()
        return heads

    @property
    def user_headers(self) -> Sequence[bytes]:
        if self._user_headers is None:
            self._user_headers = [b""] * len(self._found)
        return self._user_headers


class ReceivedMessage(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A message as it is stored. `timestamp` is the server's time, `origin_timestamp` the producer's."""

    payload: bytes
    offset: int
    partition_id: int
    # Shared with the messages that came with this one; the properties below look into it.
    envelopes: Envelopes

    @property
    def timestamp(self) -> int:
        return self.envelopes.timestamps[self._number]

    @property
    def origin_timestamp(self) -> int:
        return self.envelopes.origin_timestamps[self._number]

    @property
    def id(self) -> int:
        return int.from_bytes(self.envelopes.heads[self._number][8:], "little")

    @property
    def checksum(self) -> int:
        return int.from_bytes(self.envelopes.heads[self._number][:8], "little")

    @property
    def user_headers(self) -> bytes:
        """The user headers as they are stored."""
        return self.envelopes.user_headers[self._number]

    @property
    def headers(self) -> dict[HeaderObject, HeaderObject]:
        """The user headers as Python objects, by key."""
        return {to_python(key): to_python(value) for key, value in self.typed_headers.items()}

    @property
    def typed_headers(self) -> dict[TypedValue, TypedValue]:
        """The user headers with their exact kinds."""
        return decode_user_headers(self.user_headers)

    @property
    def _number(self) -> int:
        return self.envelopes.offsets.index(self.offset)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._fields_alone() == other._fields_alone()

    def __hash__(self) -> int:
        return hash((self.partition_id, self.offset, self.payload))

    def __repr__(self) -> str:
        names = [name for name in self.__struct_fields__ if name != "envelopes"]
        shown = (f"{name}={getattr(self, name)!r}" for name in (*names, "timestamp", "id"))
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> Any:
        """Copied or pickled, a message takes nothing along that is not its own."""
        return _restored, (type(self), self._fields_alone())

    def _fields_alone(self) -> dict[str, Any]:
        fields = msgspec.structs.asdict(self)
        number, every = self._number, self.envelopes
        fields["envelopes"] = OpenEnvelopes(
            (self.offset,),
            (every.timestamps[number],),
            (every.origin_timestamps[number],),
            (every.heads[number],),
            (every.user_headers[number],),
        )
        return fields


def _restored(kind: type[ReceivedMessage], fields: dict[str, Any]) -> ReceivedMessage:
    return kind(**fields)


def messages_of(reply: PolledMessages) -> list[ReceivedMessage]:
    """In the order of the reply."""
    found: list[ReceivedMessage] = []
    for buffer in reply.batches:
        if reply.messages_count < _COLUMNS_MIN:
            for batch in split(memoryview(buffer)):
                # Copied once for all messages: slicing bytes is half the work of copying slices of a view.
                append_messages(found, read_header(batch), bytes(batch))
        else:
            found += _from_columns(columns(buffer))
    return found


def _from_columns(found: Columns) -> Iterable[ReceivedMessage]:
    envelopes = _ClosedEnvelopes(found)
    batch = found.only_batch
    partition_ids: Iterable[int] = (
        found.partition_ids.tolist() if batch is None else repeat(batch.partition_id)
    )
    return map(ReceivedMessage, found.payloads(), envelopes.offsets, partition_ids, repeat(envelopes))


def append_messages(found: list[ReceivedMessage], header: BatchHeader, batch: bytes) -> None:
    """The messages of one batch, if they are few: a Python step each costs less than columns do."""
    partition_id, base_offset, stored_us, origin_us, _, _, count, _ = header
    end, last = HEADER_BYTES, len(batch)
    unpack = _FRAME.unpack_from
    offsets: list[int] = []
    times_us: list[int] = []
    origins_us: list[int] = []
    heads: list[bytes] = []
    blocks: list[bytes] = []
    envelopes = OpenEnvelopes(offsets, times_us, origins_us, heads, blocks)
    for _ in range(count):
        start = end + FRAME_HEADER_BYTES
        if start > last:
            raise RemoteProtocolError("a message starts past the end of its batch")
        head, delta, delta_us, headers, payload = unpack(batch, end)
        middle = start + payload
        end = middle + headers
        if end > last:
            raise RemoteProtocolError("a message reaches past the end of its batch")
        offset = base_offset + delta
        offsets.append(offset)
        times_us.append(stored_us)
        origins_us.append(origin_us + delta_us)
        heads.append(head)
        blocks.append(batch[middle:end])
        found.append(ReceivedMessage(batch[start:middle], offset, partition_id, envelopes))
    if end != last:
        raise RemoteProtocolError(f"the messages of a batch end at byte {end}, the batch at {last}")
