"""Framing of the classic generation."""

import pytest

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.wire.classic import frames


def test_request_frame_is_its_length_and_the_length_itself():
    frame = frames.pack_request(202, 5) + b"\4strm"
    assert frames.frame_size(frame, 0, len(frame)) == len(frame) == 13
    assert frames.request_code(frame) == 202
    assert frames.frame_size(b"xx" + frame, 2, 64) == 13
    assert frames.request_code(b"xx" + frame, 2) == 202


def test_size_is_known_from_the_first_four_bytes():
    assert frames.frame_size(b"\4\0\0\0", 0, 8) == 8


@pytest.mark.parametrize("length", range(4))
def test_frame_without_room_for_a_code_is_refused(length):
    with pytest.raises(RemoteProtocolError) as raised:
        frames.frame_size(length.to_bytes(4, "little"), 0, 1024)
    assert raised.value.code == 3


def test_frame_may_have_the_largest_size_and_no_byte_more():
    assert frames.frame_size((1020).to_bytes(4, "little"), 0, 1024) == 1024
    with pytest.raises(RemoteProtocolError):
        frames.frame_size((1021).to_bytes(4, "little"), 0, 1024)


def test_text_protocol_is_no_frame():
    with pytest.raises(RemoteProtocolError):
        frames.frame_size(b"GET / HTTP/1.1", 0, 256 << 20)


@pytest.mark.parametrize(("status", "body_bytes"), [(0, 0), (0, 2), (0, 2**32 - 1), (1012, 0)])
def test_reply_header_survives_the_wire(status, body_bytes):
    header = frames.pack_reply(status, body_bytes)
    assert len(header) == frames.HEADER_BYTES
    assert frames.unpack_reply(header) == (status, body_bytes)


@pytest.mark.parametrize(("status", "body_bytes"), [(0, 1), (3, 1), (3, 4), (0, 2**32), (-1, 0)])
def test_reply_that_clients_misread_is_never_made(status, body_bytes):
    with pytest.raises(LocalProtocolError):
        frames.pack_reply(status, body_bytes)
