"""Who logs in: options, sessions, stored tokens, the environment; and in which order they count."""

import json
import socket
import stat

import pytest
from typer.testing import CliRunner

from borzoi import Client
from borzoi.cli import tokens_file
from borzoi.cli.main import app
from borzoi.cli.options import Asked
from borzoi.cli.target import NoCredentials, address_key, resolve
from support.in_process import LocalServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("login") / "data") as running:
        running.add_user("guest")
        yield running


@pytest.fixture
def address(server):
    return f"127.0.0.1:{server.port}"


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch, address):
    path = tmp_path / "iggy"
    monkeypatch.setenv("IGGY_HOME", str(path))
    monkeypatch.setenv("BORZOI_SERVER", address)
    for name in ("IGGY_USERNAME", "IGGY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    yield path
    with Client(address, username="iggy", password="iggy") as client:
        for each in client.get_personal_access_tokens():
            client.delete_personal_access_token(each.name)


def text(*arguments: object, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def data(*arguments, **how):
    return json.loads(text(*arguments, "--json", **how))


def refused(*arguments: object, code: int) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.count("\n") == 1
    return result.stderr


def token_names(address: str, username: str = "iggy", password: str = "iggy") -> set[str]:
    with Client(address, username=username, password=password) as client:
        return {each.name for each in client.get_personal_access_tokens()}


@pytest.fixture
def guest():
    return data("--username", "guest", "--password", "secret", "me")["user_id"]


def test_login_and_logout(address, directory):
    assert text("login").startswith(f"logged in at {address}, until 2")
    assert token_names(address) == {"iggy-cli-session"}
    assert stat.S_IMODE((directory / "borzoi_tokens.json").stat().st_mode) == 0o600
    assert text("login") == f"already logged in at {address}\n"
    assert data("login") == {"address": address, "is_new": False, "expires_at": None}
    assert data("session", "status") == {"server_address": address, "session_active": True}
    assert text("logout") == f"logged out at {address}\n"
    assert token_names(address) == set()
    assert "Session active  no" in text("session", "status")
    assert f"not logged in at {address}" in refused("logout", code=1)
    assert data("login", "none")["is_new"] is True
    assert data("logout") == {"address": address}


def test_a_session_is_used_without_a_password(address, guest):
    text("login", "-u", "guest", "-p", "secret")
    assert data("me")["user_id"] == guest
    assert data("me", "--tcp-server-address", address.replace("127.0.0.1", "localhost"))["user_id"] == guest
    text("logout")


def test_logging_in_again_makes_a_new_session(address):
    text("login", "1", "hour")
    first = data("pat", "list")
    text("login", "8", "hours")
    second = data("pat", "list")
    assert [each["name"] for each in second] == ["iggy-cli-session"]
    assert second[0]["expires_at_us"] > first[0]["expires_at_us"]


def test_a_session_that_has_ended_is_forgotten_and_that_is_said(address):
    text("login")
    with Client(address, username="iggy", password="iggy") as client:
        client.delete_personal_access_token("iggy-cli-session")
    line = refused("stream", "list", code=4)
    assert f"The session at {address} has expired or was ended; log in again: borzoi login" in line
    assert data("session", "status")["session_active"] is False
    assert data("me")["user_id"] == 0


def test_a_session_that_has_expired_is_forgotten(server, address):
    tokens_file.store_session(address, server.add_user("late", expires_at_us=1))
    assert "borzoi login" in refused("me", code=4)
    assert data("session", "status")["session_active"] is False


def test_an_answer_that_has_nothing_to_do_with_the_session_leaves_it(address):
    text("login")
    refused("stream", "get", "nowhere", code=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_address = f"127.0.0.1:{silent.getsockname()[1]}"
        tokens_file.store_session(silent_address, "token")
        refused("me", "--server", silent_address, "--deadline", "200ms", code=3)
        assert data("session", "status", "--server", silent_address)["session_active"] is True
    assert data("session", "status")["session_active"] is True
    text("logout")


def test_a_session_that_has_ended_is_no_obstacle_to_login_and_logout(address):
    for command in ("login", "logout"):
        text("login")
        with Client(address, username="iggy", password="iggy") as client:
            client.delete_personal_access_token("iggy-cli-session")
        assert address in text(command)
    assert data("session", "status")["session_active"] is False


@pytest.mark.parametrize("expiry", ["soon", "0", "default"])
def test_a_session_needs_an_end_that_can_be_understood(expiry):
    assert "EXPIRY" in refused("login", expiry, code=2)


def test_a_session_that_cannot_be_kept_is_not_left_on_the_server(address, directory):
    directory.write_text("a file where a directory should be")
    refused("login", code=2)
    directory.unlink()
    assert token_names(address) == set()


def test_wrong_credentials_make_no_session(directory):
    refused("login", "-u", "iggy", "-p", "wrong", code=4)
    assert not directory.exists()


def test_a_stored_token_is_used_by_name_and_deleted_with_the_token(address, directory):
    assert 'token "deploy" stored' in text("pat", "create", "deploy", "--store-token")
    assert data("--token-name", "deploy", "me")["user_id"] == 0
    assert data("pat", "create", "other", "-s") == {"name": "other"}
    assert data("me", "--token-name", "other")["user_id"] == 0
    assert 'token "deploy" deleted' in text("pat", "delete", "deploy")
    assert data("pat", "delete", "other") == {"name": "other"}
    assert json.loads((directory / "borzoi_tokens.json").read_text())["tokens"] == {}
    assert 'no token "deploy" is stored' in refused("--token-name", "deploy", "me", code=4)


def test_a_token_that_cannot_be_stored_is_not_left_on_the_server(address, directory):
    directory.write_text("a file where a directory should be")
    refused("pat", "create", "deploy", "--store-token", code=2)
    directory.unlink()
    assert token_names(address) == set()


def test_quiet_prints_the_token_and_nothing_else(address):
    token = text("--quiet", "pat", "create", "deploy").strip()
    assert " " not in token
    assert data("--token", token, "me")["user_id"] == 0
    assert text("pat", "list", "--quiet") == ""
    assert text("-q", "stream", "list") == ""


def test_quiet_and_json_exclude_each_other():
    assert "give --json or --quiet" in refused("stream", "list", "--json", "--quiet", code=2)


def test_a_damaged_file_of_tokens_is_named(directory):
    directory.mkdir()
    for content in ("{", "[]", '{"tokens": {"a": 1}}', '{"sessions": []}'):
        (directory / "borzoi_tokens.json").write_text(content)
        assert str(directory / "borzoi_tokens.json") in refused("me", code=2)


def test_a_missing_password_is_read_from_standard_input(guest):
    assert data("-u", "guest", "me", stdin="secret\n")["user_id"] == guest


def test_lines_after_the_password_are_messages(address):
    text("stream", "create", "piped")
    text("topic", "create", "piped", "events")
    shown = text("-u", "iggy", "message", "send", "piped", "events", stdin="iggy\none\ntwo\n")
    assert shown.startswith("2 messages stored")
    text("stream", "delete", "piped")


def test_the_order_of_logins(guest, address, monkeypatch):
    def user() -> int:
        return data("me")["user_id"]

    assert user() == 0  # the default, on this machine
    text("context", "create", "here", "--tcp-server-address", address, "-u", "guest", "-p", "secret")
    text("context", "use", "here")
    assert user() == guest
    monkeypatch.setenv("IGGY_USERNAME", "iggy")
    monkeypatch.setenv("IGGY_PASSWORD", "iggy")
    assert user() == 0  # the environment before the context
    text("login", "-u", "guest", "-p", "secret")
    assert user() == guest  # the session before the environment
    monkeypatch.setenv("BORZOI_SERVER", f"iggy://iggy:iggy@{address}")
    assert user() == 0  # the login in the server's address before the session
    assert data("--username", "guest", "--password", "secret", "me")["user_id"] == guest
    monkeypatch.setenv("BORZOI_SERVER", address)
    text("logout")


def test_one_of_the_two_variables_is_not_enough(guest, monkeypatch):
    monkeypatch.setenv("IGGY_USERNAME", "guest")
    assert data("me")["user_id"] == 0


def test_a_login_after_the_command_replaces_the_one_before_it(guest, address):
    token = data("pat", "create", "mine")["token"]
    assert data("-u", "guest", "-p", "secret", "me", "--token", token)["user_id"] == 0
    assert data("--token", token, "me", "--username", "guest", "--password", "secret")["user_id"] == guest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-u", "iggy", "-t", "x"], "with one of them"),
        (["-t", "x", "-n", "y"], "with one of them"),
        (["-p", "iggy"], "--password needs --username"),
        (["--transport", "quic"], "speaks TCP only"),
        (["--transport", "pigeon"], "there is no such transport"),
        (["--server", "127.0.0.1", "--tcp-server-address", "127.0.0.1"], "not both"),
        (["--encryption-key", "short"], "key"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_options_that_do_not_fit(arguments, said):
    command = ("message", "poll", "s", "t", "0") if "--encryption-key" in arguments else ("me",)
    assert said in refused(*arguments, *command, code=2)


def test_the_default_password_is_not_sent_to_other_machines():
    with pytest.raises(NoCredentials, match=r"nothing says who logs in at 192.0.2.7:8090"):
        resolve(Asked(server="192.0.2.7:8090"))
    assert "192.0.2.7" in refused("me", "--server", "192.0.2.7", code=4)


def test_one_server_has_one_key():
    assert address_key("LOCALHOST", 1) == address_key("127.0.0.1", 1) == "127.0.0.1:1"
    assert address_key("::1", 1) == "[::1]:1"
