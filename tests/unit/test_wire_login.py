"""The vsr login: two forms without a mark to tell them apart, and a version gate before both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.requests import LoginUser, LoginWithToken
from borzoi.wire.vsr import login
from borzoi.wire.vsr.login import ClientVersion, Register, RegisterReply

VERSION = ClientVersion(login.PROTOCOL_VERSION, "rust-sdk", "0.11.0")
VERSION_BYTES = bytes.fromhex("002c0000 08 727573742d73646b 06 302e31312e30")

name = st.text(min_size=1, max_size=12)
versions = st.builds(ClientVersion, st.integers(0, 2**32 - 1), name, name)
credentials = st.builds(LoginUser, name, st.text(max_size=12)) | st.builds(
    LoginWithToken, st.text(max_size=60)
)


@given(versions, credentials)
def test_login_survives_the_wire_whatever_its_form(version, given_credentials):
    body = login.encode_register(Register(version, given_credentials))
    register = login.decode_register(memoryview(body))
    assert register.version == version == login.decode_client_version(body)
    assert given_credentials in (register.credentials, register.alternative)


def test_token_of_the_usual_form_is_read_as_a_token_only():
    register = Register(VERSION, LoginWithToken("A" * 68))
    assert login.decode_register(login.encode_register(register)) == register


def test_body_that_fits_both_forms_is_kept_as_both():
    # A token with a context of 259 bytes; or a password of 3 bytes (the length's other ones) with one of 255.
    body = VERSION_BYTES + b"\5token" + (259).to_bytes(4, "little") + (255).to_bytes(4, "little") + bytes(255)
    assert login.decode_register(body) == Register(
        VERSION, LoginUser("token", "\1\0\0"), alternative=LoginWithToken("token")
    )


def test_context_is_skipped():
    body = VERSION_BYTES + b"\4iggy\6secret" + b"\3\0\0\0ctx"
    assert login.decode_register(body) == Register(VERSION, LoginUser("iggy", "secret"))


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\4iggy",
        b"\4iggy\4iggy",
        b"\4iggy\4iggy\0\0\0\0\0",
        b"\4iggy\4iggy\1\0\0\0",
        b"\4iggy\4iggy\xff\xff\xff\xff",
        b"\2\xff\xff\4iggy\0\0\0\0",
    ],
)
def test_login_of_neither_form_is_refused_though_its_version_can_be_read(rest):
    body = VERSION_BYTES + rest
    assert login.decode_client_version(body) == VERSION
    with pytest.raises(RemoteProtocolError):
        login.decode_register(body)


@pytest.mark.parametrize("length", range(len(VERSION_BYTES)))
def test_version_that_ends_early_is_refused(length):
    with pytest.raises(RemoteProtocolError):
        login.decode_client_version(VERSION_BYTES[:length])
    with pytest.raises(RemoteProtocolError):
        login.decode_register(VERSION_BYTES[:length])


@given(st.binary(max_size=64))
def test_random_bytes_raise_nothing_but_protocol_errors(body):
    for decode in (login.decode_client_version, login.decode_register, login.decode_register_reply):
        try:
            decode(VERSION_BYTES + body)
            decode(body)
        except RemoteProtocolError:
            pass


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**64 - 1), st.integers(0, 2**32 - 1), name)
def test_reply_survives_the_wire(user_id, session, version, server_version):
    reply = RegisterReply(user_id, session, version, server_version)
    body = login.encode_register_reply(reply)
    assert login.decode_register_reply(body) == reply
    for damaged in (body[:-1], body + b"\0"):
        with pytest.raises(RemoteProtocolError):
            login.decode_register_reply(damaged)


def test_reply_without_a_server_version_is_never_sent():
    with pytest.raises(LocalProtocolError):
        login.encode_register_reply(RegisterReply(0, 1, 0, ""))


def test_version_is_packed_in_ten_bits_a_part():
    assert login.PROTOCOL_VERSION == 0x2C00 == login.pack_version(0, 11, 0)
    assert login.pack_version(1, 2, 3) == 1 << 20 | 2 << 10 | 3
    assert login.unpack_version(login.pack_version(1, 1023, 1023)) == (1, 1023, 1023)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ((0, 10, 1023), False),
        ((0, 11, 0), True),
        ((0, 11, 1023), True),
        ((0, 12, 0), False),
        ((1, 11, 0), False),
    ],
)
def test_gate_admits_every_patch_of_our_own_version_only(version, accepted):
    assert login.is_version_accepted(login.pack_version(*version)) is accepted
