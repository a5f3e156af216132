"""The headers of the vsr generation against captured frames and against the protocol's offsets."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borzoi.model.errors import RemoteProtocolError
from borzoi.wire.vsr.frames import (
    HEADER_BYTES,
    PREAMBLE,
    EvictionReason,
    RequestHeader,
    frame_size,
    pack_eviction,
    pack_reply,
    pack_request,
    unpack_eviction,
    unpack_reply,
    unpack_request,
)

CLIENT = bytes.fromhex("8ff07c5787d94dc5a7c5ea2310d9de1c")


def captured(rows):
    """A header from rows of 32 bytes by their offset; rows not given are zero."""
    header = bytearray(HEADER_BYTES)
    for offset, text in rows.items():
        header[offset : offset + 32] = bytes.fromhex(text)
    return bytes(header)


def size_row(size):
    return bytes(16).hex() + size.to_bytes(4, "little").hex() + bytes(8).hex() + "05000000"


# Name: header, body length, and the fields that the official client gave it.
CAPTURED = {
    "login": (
        captured(
            {
                0x20: size_row(290),
                0x80: "8ff07c57 87d94dc5 a7c5ea23 10d9de1c 95803f2a 3c20de8f 00000000 00000000",
                0xA0: "00000000 00000000 00000000 00000000 01000000 00000000 00000000 00000000",
            }
        ),
        34,
        {"operation": 1, "request_checksum": bytes.fromhex("95803f2a3c20de8f") + bytes(8)},
    ),
    "create stream": (
        captured(
            {
                0x20: size_row(263),
                0x80: "8ff07c57 87d94dc5 a7c5ea23 10d9de1c d7824d64 195d7d32 00000000 00000000",
                0xA0: "00000000 00000000 01000000 00000000 80000000 00000000 01000000 00000000",
            }
        ),
        7,
        {
            "operation": 128,
            "request": 1,
            "session": 1,
            "request_checksum": bytes.fromhex("d7824d64195d7d32") + bytes(8),
        },
    ),
    "create topic": (
        captured(
            {
                0x20: size_row(347),
                0x80: "8ff07c57 87d94dc5 a7c5ea23 10d9de1c a4f79388 2aa157c5 00000000 00000000",
                0xA0: "00000000 00000000 02000000 00000000 84000000 00000000 01000000 00000000",
            }
        ),
        91,
        {
            "operation": 132,
            "request": 2,
            "session": 1,
            "request_checksum": bytes.fromhex("a4f793882aa157c5") + bytes(8),
        },
    ),
    "send": (
        captured(
            {
                0x20: size_row(657),
                0x80: "8ff07c57 87d94dc5 a7c5ea23 10d9de1c 00000000 00000000 00000000 00000000",
                0xA0: "00000000 00000000 03000000 00000000 a0000000 00000000 01000000 00000000",
            }
        ),
        401,
        {"operation": 160, "request": 3, "session": 1},
    ),
    "poll": (
        captured(
            {
                0x20: size_row(292),
                0x80: "8ff07c57 87d94dc5 a7c5ea23 10d9de1c 00000000 00000000 00000000 00000000",
                0xA0: "00000000 00000000 04000000 00000000 02000000 00000000 01000000 00000000",
                0xC0: "00000000 64000000 00000000 00000000 00000000 00000000 00000000 00000000",
            }
        ),
        36,
        {"operation": 2, "request": 4, "session": 1, "code": 100},
    ),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_request_header_reads_and_writes_the_same(name):
    header, body_bytes, fields = CAPTURED[name]
    assert header.startswith(PREAMBLE)
    assert frame_size(header, 0, 4096) == HEADER_BYTES + body_bytes
    read = unpack_request(header)
    assert (read.size, read.command, read.client) == (HEADER_BYTES + body_bytes, 5, CLIENT)
    for field, value in fields.items():
        assert getattr(read, field) == value
    assert pack_request(body_bytes, client=CLIENT, **fields) == header


def test_headers_are_read_at_a_position_in_a_larger_buffer():
    header, body_bytes, _ = CAPTURED["poll"]
    buffer = memoryview(b"\xff" * 7 + header + bytes(body_bytes))
    assert frame_size(buffer, 7, 4096) == HEADER_BYTES + body_bytes
    assert unpack_request(buffer, 7) == unpack_request(header)


def test_reply_fields_lie_where_the_protocol_has_them():
    request = RequestHeader(300, 5, CLIENT, bytes(range(16)), 11, 22, 128, 33, 0)
    reply = pack_reply(request, body_bytes=10, commit=44, status=55)
    expected = bytearray(HEADER_BYTES)
    struct.pack_into("<I", expected, 48, 266)
    expected[60] = 8
    expected[128:144] = bytes(range(16))
    expected[160:176] = CLIENT
    struct.pack_into("<QQQQ", expected, 176, 33, 44, 11, 22)
    expected[208] = 128
    struct.pack_into("<I", expected, 216, 55)
    assert reply == bytes(expected)
    assert unpack_reply(reply) == (266, 8, bytes(range(16)), CLIENT, 33, 44, 11, 22, 128, 55)


def test_eviction_fields_lie_where_the_protocol_has_them():
    eviction = pack_eviction(CLIENT, EvictionReason.INCOMPATIBLE_PROTOCOL, 0x2C00, 0x2B00)
    expected = bytearray(HEADER_BYTES)
    struct.pack_into("<I", expected, 48, 256)
    expected[60] = 13
    expected[128:144] = CLIENT
    struct.pack_into("<II", expected, 144, 0x2C00, 0x2B00)
    expected[255] = 14
    assert eviction == bytes(expected)
    assert unpack_eviction(eviction) == (CLIENT, EvictionReason.INCOMPATIBLE_PROTOCOL, 0x2C00, 0x2B00)


def test_every_eviction_reason_of_the_protocol_is_known():
    assert [reason.value for reason in EvictionReason] == list(range(1, 16))


@pytest.mark.parametrize("reason", [0, 16, 255])
def test_unknown_eviction_reason_is_the_peers_fault(reason):
    eviction = bytearray(pack_eviction(CLIENT, EvictionReason.NO_SESSION))
    eviction[255] = reason
    with pytest.raises(RemoteProtocolError, match=f"reason {reason}"):
        unpack_eviction(eviction)


@pytest.mark.parametrize(
    ("size", "is_accepted"), [(0, False), (255, False), (256, True), (4096, True), (4097, False)]
)
def test_frame_size_is_accepted_up_to_the_limit(size, is_accepted):
    header = bytearray(CAPTURED["poll"][0])
    struct.pack_into("<I", header, 48, size)
    if is_accepted:
        assert frame_size(header, 0, 4096) == size
    else:
        with pytest.raises(RemoteProtocolError, match="frame size"):
            frame_size(header, 0, 4096)


@pytest.mark.parametrize("command", [0, 1, 4, 6, 8, 13, 255])
def test_anything_but_a_request_is_refused(command):
    header = bytearray(CAPTURED["poll"][0])
    header[60] = command
    with pytest.raises(RemoteProtocolError, match="command"):
        frame_size(header, 0, 4096)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_random_headers_are_sized_or_refused(data):
    with suppress(RemoteProtocolError):
        assert 256 <= frame_size(data, 0, 1 << 20) <= 1 << 20
    unpack_request(data)
    unpack_reply(data)
