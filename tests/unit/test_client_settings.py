"""Connection strings and addresses: what they say, and what is said about the ones that are wrong."""

from pathlib import Path

import pytest

from borzoi import AsyncClient, Client
from borzoi.client.settings import Settings, parse_address, parse_connection_string
from borzoi.model.errors import (
    InvalidConnectionString,
    InvalidServerAddress,
    InvalidTlsCertificatePath,
)
from borzoi.model.requests import LoginUser, LoginWithToken


def test_user_password_host_and_port():
    for scheme in ("iggy", "iggy+tcp"):
        settings = parse_connection_string(f"{scheme}://alice:secret@example.org:9000")
        assert (settings.host, settings.port) == ("example.org", 9000)
        assert settings.credentials == LoginUser("alice", "secret")
        assert settings.address == "example.org:9000"


def test_a_token_in_place_of_user_and_password():
    assert parse_connection_string("iggy://to.ken-1@h:1").credentials == LoginWithToken("to.ken-1")


def test_credentials_may_be_percent_encoded():
    credentials = parse_connection_string("iggy://a%3Ab:p%40ss:w%25@h:1").credentials
    assert credentials == LoginUser("a:b", "p@ss:w%")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h", ("h", 8090)),
        ("h:1", ("h", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[::1]", ("::1", 8090)),
        ("[fe80::1]:9", ("fe80::1", 9)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address
    assert parse_connection_string(f"iggy://u:p@{text}").host == address[0]


def test_every_option():
    options = (
        "tls=true&tls_ca_file=some/ca.pem&tls_domain=example.org&tls_validate_certificate=false&deadline=500ms"
        "&reconnection_retries=3&reconnection_interval=2s&reestablish_after=5s&heartbeat_interval=1m&nodelay=false"
    )
    settings = parse_connection_string(f"iggy://u:p@h:1?{options}")
    assert settings == Settings(
        host="h",
        port=1,
        credentials=LoginUser("u", "p"),
        tls=True,
        tls_ca_file=Path("some/ca.pem"),
        tls_domain="example.org",
        tls_validate_certificate=False,
        deadline_s=0.5,
        reconnection_retries=3,
        reconnection_interval_s=2.0,
        reestablish_after_s=5.0,
        heartbeat_interval_s=60.0,
        nodelay=False,
    )
    assert parse_connection_string("iggy://u:p@h?reconnection_retries=unlimited").reconnection_retries is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "iggy://"),
        ("localhost:8090", "iggy://"),
        ("http://u:p@h:1", '"http://"'),
        ("iggy+quic://u:p@h:1", "speaks TCP"),
        ("iggy://h:1", '"@"'),
        ("iggy://u:p@ss@h:1", "%40"),
        ("iggy://@h:1", "user:password or a token"),
        ("iggy://u:@h:1", "user:password or a token"),
        ("iggy://:p@h:1", "user:password or a token"),
        ("iggy://u:p@", "no host"),
        ("iggy://u:p@:1", "no host"),
        ("iggy://u:p@h:", '"" is no port'),
        ("iggy://u:p@h:0", '"0" is no port'),
        ("iggy://u:p@h:65536", '"65536" is no port'),
        ("iggy://u:p@h:port", '"port" is no port'),
        ("iggy://u:p@::1:8090", "brackets"),
        ("iggy://u:p@[::1:8090", "brackets"),
        ("iggy://u:p@h:1?tls", '"tls" is not "name=value"'),
        ("iggy://u:p@h:1?tls=", "name=value"),
        ("iggy://u:p@h:1?=true", "name=value"),
        ("iggy://u:p@h:1?tls=true&", "name=value"),
        ("iggy://u:p@h:1?tls=yes", "neither true nor false"),
        ("iggy://u:p@h:1?tls=true&tls=true", "twice"),
        ("iggy://u:p@h:1?colour=red", 'unknown option "colour"'),
        ("iggy://u:p@h:1?deadline=30", "needs a unit"),
        ("iggy://u:p@h:1?deadline=0", "not longer than zero"),
        ("iggy://u:p@h:1?heartbeat_interval=none", "not longer than zero"),
        ("iggy://u:p@h:1?reconnection_retries=-1", "neither a number"),
    ],
)
@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_faults_are_named(client, text, part):
    with pytest.raises(InvalidConnectionString) as refused:
        client.from_connection_string(text)
    assert part in str(refused.value)
    assert "p@ss" not in str(refused.value)


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_ways_to_make_a_client(client):
    assert client().address == "127.0.0.1:8090"
    assert client("example.org").address == "example.org:8090"
    assert client("example.org:9").address == "example.org:9"
    assert client("example.org", 9).address == "example.org:9"
    assert client("::1", 9).address == "[::1]:9"
    text = "iggy://u:secret@h:1?deadline=1s&nodelay=false"
    assert client(text).address == client.from_connection_string(text).address == "h:1"


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_arguments_go_before_the_connection_string(client):
    made = client("iggy://u:p@h:1?deadline=1s&nodelay=false", deadline_s=2.0, username="x", password="y")
    assert (made._settings.deadline_s, made._settings.nodelay) == (2.0, False)
    assert made._settings.credentials == LoginUser("x", "y")


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_arguments_that_do_not_fit_together(client):
    for wrong in (
        {"username": "u"},
        {"password": "p"},
        {"token": "t", "username": "u", "password": "p"},
        {"deadline_s": 0},
        {"deadline_s": -1},
        {"heartbeat_interval_s": 0},
    ):
        with pytest.raises(ValueError):
            client(**wrong)
    for address in ({"host": "h:x"}, {"host": "h", "port": 65536}, {"host": "h", "port": 0}):
        with pytest.raises(InvalidServerAddress):
            client(**address)


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_an_authority_that_cannot_be_read(client, tmp_path):
    with pytest.raises(InvalidTlsCertificatePath, match="nowhere"):
        client(tls=True, tls_ca_file=tmp_path / "nowhere.pem")
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(InvalidTlsCertificatePath):
        client(tls=True, tls_ca_file=str(tmp_path / "junk.pem"))


@pytest.mark.parametrize("client", [AsyncClient, Client])
def test_no_secret_is_shown(client):
    made = client("iggy://u:secret@h:1")
    assert repr(made) == f"{client.__name__}('h:1', disconnected)"
    assert "secret" not in repr(made._settings)
