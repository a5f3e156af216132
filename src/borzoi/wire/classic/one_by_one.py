"""Translation of messages one after the other: for few of them, for user headers of A, B and C, for errors.

Every rule about a sent message is checked here and every breach gets its code here, so `translate` hands
over whatever it does not like. The layouts are drawn there.
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np
from xxhash import xxh3_64_intdigest

from borzoi.model.errors import (
    InvalidIndexesByteSize,
    InvalidMessagePayloadLength,
    InvalidMessagesCount,
    InvalidMessagesSize,
    InvalidMessageTimestampDelta,
    InvalidReservedField,
    NonZeroOffset,
    NonZeroTimestamp,
    RemoteProtocolError,
    TooBigMessagePayload,
    TooBigUserHeaders,
)
from borzoi.model.limits import PAYLOAD_BYTES_MAX, U32_MAX, U64_MAX, USER_HEADERS_BYTES_MAX
from borzoi.model.values import BytesLike
from borzoi.wire.batch import FRAME_HEADER_BYTES, HEADER, HEADER_BYTES
from borzoi.wire.classic.dialect import Dialect
from borzoi.wire.classic.user_headers import add_key_kinds, drop_key_kinds

INDEX_ENTRY_BYTES = 16

_U32 = Struct("<I")
_U64 = Struct("<Q")
_INDEX_ENTRY = Struct("<IIQ")
_ID_AND_LENGTH = Struct("<16sI")
_SENT = Struct("<8x16s16xQII")
_POLLED = Struct("<8x16sQQQII")
_POLLED_OLD = Struct("<QBQ16sII")
_AVAILABLE = 1
_FRAME = Struct("<8x16sIIIIQ")
_NO_ID = bytes(16)
_NO_RESERVED = bytes(204)


class Message(NamedTuple):
    """`user_headers` in the form of the side that it is on its way to."""

    id: bytes
    origin_us: int
    payload: memoryview
    user_headers: BytesLike


class StoredBatch(NamedTuple):
    """A stored batch, or part of one: its frames lie in `buffer` from `start` to `end`."""

    buffer: memoryview
    start: int
    end: int
    messages_count: int
    base_offset: int
    base_us: int
    origin_us: int


def read_messages(
    records: memoryview, count: int | None, index: memoryview | None, dialect: Dialect, now_us: int
) -> list[Message]:
    """The messages of a send request; raises RemoteProtocolError with the code of the broken rule."""
    if count == 0 or (count is None and not len(records)):
        raise RemoteProtocolError("a send of no messages", InvalidMessagesCount.code)
    ends = None if index is None else _index_ends(index, count)
    read = _read_old if dialect is Dialect.A else _read_record
    messages: list[Message] = []
    position, size = 0, len(records)
    while position < size:
        number = len(messages)
        if number == count:
            raise RemoteProtocolError(
                f"{size - position} bytes follow the last message", InvalidMessagesSize.code
            )
        try:
            message, position = read(records, position, dialect, now_us)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"message {number}: {error.detail}", error.code) from None
        if ends is not None and position != ends[number]:
            raise RemoteProtocolError(
                f"message {number} ends at byte {position}, by the index at {ends[number]}",
                InvalidMessagesSize.code,
            )
        messages.append(message)
    if count is not None and len(messages) != count:
        raise RemoteProtocolError(f"{len(messages)} messages instead of {count}", InvalidMessagesSize.code)
    return messages


def build_batch(messages: Sequence[Message], random_bytes: Callable[[int], bytes]) -> memoryview:
    missing = 0
    length = HEADER_BYTES
    origin_us, last_us = U64_MAX, 0
    for message_id, message_us, payload, headers in messages:
        missing += message_id == _NO_ID
        length += FRAME_HEADER_BYTES + len(payload) + len(headers)
        origin_us = min(origin_us, message_us)
        last_us = max(last_us, message_us)
    check_origin_span(last_us - origin_us)
    fresh = random_bytes(16 * missing) if missing else b""
    fresh_at = 0
    batch = new_batch(length, len(messages), origin_us)
    position = HEADER_BYTES
    for delta, (given_id, message_us, payload, headers) in enumerate(messages):
        message_id = given_id
        if given_id == _NO_ID:
            message_id = _uuid(fresh[fresh_at : fresh_at + 16])
            fresh_at += 16
        delta_us = message_us - origin_us
        _FRAME.pack_into(batch, position, message_id, delta, delta_us, len(headers), len(payload), 0)
        middle = position + FRAME_HEADER_BYTES + len(payload)
        end = middle + len(headers)
        batch[position + FRAME_HEADER_BYTES : middle] = payload
        if headers:
            batch[middle:end] = headers
        _U64.pack_into(batch, position, xxh3_64_intdigest(batch[position + 8 : end]))
        position = end
    return batch


def new_batch(length: int, count: int, origin_us: int) -> memoryview:
    """Room for a batch, with its header; the rest has still to be written."""
    batch = np.empty(length, np.uint8).data  # a bytearray would be zeroed first
    HEADER.pack_into(batch, 0, 0, 0, 0, origin_us, length, 0, count, _NO_RESERVED)
    return batch


def check_origin_span(span_us: int) -> None:
    if span_us > U32_MAX:
        raise RemoteProtocolError(
            f"origin times lie {span_us} us apart, which a batch cannot express",
            InvalidMessageTimestampDelta.code,
        )


def write_messages(
    batches: Sequence[StoredBatch],
    starts: Iterable[int],
    dialect: Dialect,
    out: memoryview,
    position: int,
) -> int:
    """Write the frames that start there as records from `position` on; returns where they end."""
    write = _write_old if dialect is Dialect.A else _write_record
    each = iter(starts)
    for buffer, _, _, count, base_offset, base_us, origin_us in batches:
        for _ in range(count):
            start = next(each)
            message_id, delta, delta_us, headers, payload, _ = _FRAME.unpack_from(buffer, start)
            start += FRAME_HEADER_BYTES
            middle = start + payload
            block: BytesLike = buffer[middle : middle + headers]
            if headers and not dialect.has_typed_header_keys:
                block = drop_key_kinds(block)
            message = Message(message_id, (origin_us + delta_us) & U64_MAX, buffer[start:middle], block)
            position = write(out, position, dialect, (base_offset + delta) & U64_MAX, base_us, message)
    return position


def _index_ends(index: memoryview, count: int | None) -> list[int]:
    if len(index) != (count or 0) * INDEX_ENTRY_BYTES:
        raise RemoteProtocolError(
            f"an index of {len(index)} bytes for {count} messages", InvalidIndexesByteSize.code
        )
    ends: list[int] = []
    for offset, end, timestamp_us in _INDEX_ENTRY.iter_unpack(index):
        if offset:
            raise RemoteProtocolError(f"the index names offset {offset}", NonZeroOffset.code)
        if timestamp_us:
            raise RemoteProtocolError(f"the index names the time {timestamp_us}", NonZeroTimestamp.code)
        ends.append(end)
    return ends


def _read_record(records: memoryview, position: int, dialect: Dialect, _: int) -> tuple[Message, int]:
    start = position + dialect.message_header_bytes
    if start > len(records):
        raise _cut_short()
    message_id, origin_us, headers, payload = _SENT.unpack_from(records, position)
    if dialect is Dialect.D and any(records[start - 8 : start]):
        raise RemoteProtocolError("reserved bytes are not zero", InvalidReservedField.code)
    _check_lengths(headers, payload)
    middle = start + payload
    end = middle + headers
    if end > len(records):
        raise _cut_short()
    block: BytesLike = records[middle:end]
    if headers and not dialect.has_typed_header_keys:
        block = add_key_kinds(block)
    return Message(message_id, origin_us, records[start:middle], block), end


def _read_old(records: memoryview, position: int, _: Dialect, now_us: int) -> tuple[Message, int]:
    start = position + _ID_AND_LENGTH.size
    if start > len(records):
        raise _cut_short()
    message_id, headers = _ID_AND_LENGTH.unpack_from(records, position)
    if headers > USER_HEADERS_BYTES_MAX:
        _check_lengths(headers, 1)
    middle = start + headers + _U32.size
    if middle > len(records):
        raise _cut_short()
    (payload,) = _U32.unpack_from(records, middle - _U32.size)
    _check_lengths(headers, payload)
    end = middle + payload
    if end > len(records):
        raise _cut_short()
    block = add_key_kinds(records[start : start + headers]) if headers else b""
    return Message(message_id, now_us, records[middle:end], block), end


def _cut_short() -> RemoteProtocolError:
    return RemoteProtocolError("it reaches past the end of the request", InvalidMessagesSize.code)


def _check_lengths(headers: int, payload: int) -> None:
    if not payload:
        raise RemoteProtocolError("the payload is empty", InvalidMessagePayloadLength.code)
    if payload > PAYLOAD_BYTES_MAX:
        raise RemoteProtocolError(f"the payload has {payload} bytes", TooBigMessagePayload.code)
    if headers > USER_HEADERS_BYTES_MAX:
        raise RemoteProtocolError(f"the user headers have {headers} bytes", TooBigUserHeaders.code)


def _uuid(random: bytes) -> bytes:
    """A version 4 UUID as a little-endian number, as message ids are."""
    fresh = bytearray(random)
    fresh[7] = fresh[7] & 0x3F | 0x80
    fresh[9] = fresh[9] & 0x0F | 0x40
    return bytes(fresh)


def _write_record(
    out: memoryview, position: int, dialect: Dialect, offset: int, base_us: int, message: Message
) -> int:
    message_id, origin_us, payload, headers = message
    start = position + dialect.message_header_bytes
    _POLLED.pack_into(out, position, message_id, offset, base_us, origin_us, len(headers), len(payload))
    if dialect is Dialect.D:
        _U64.pack_into(out, start - 8, 0)
    middle = start + len(payload)
    end = middle + len(headers)
    out[start:middle] = payload
    if headers:
        out[middle:end] = headers
    _U64.pack_into(out, position, xxh3_64_intdigest(out[position + 8 : end]))
    return end


def _write_old(
    out: memoryview, position: int, _: Dialect, offset: int, base_us: int, message: Message
) -> int:
    message_id, _origin_us, payload, headers = message
    _POLLED_OLD.pack_into(
        out, position, offset, _AVAILABLE, base_us, message_id, crc32(payload), len(headers)
    )
    start = position + _POLLED_OLD.size
    middle = start + len(headers)
    out[start:middle] = headers
    _U32.pack_into(out, middle, len(payload))
    start = middle + _U32.size
    end = start + len(payload)
    out[start:end] = payload
    return end
