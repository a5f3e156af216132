"""Contexts: the files they are kept in, the commands that change them, and what they are used for."""

import json
import os
import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from borzoi.cli import contexts_file, home
from borzoi.cli.main import app
from borzoi.cli.toml_text import tables
from support.in_process import LocalServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("contexts") / "data") as running:
        running.add_user("guest")
        yield running


@pytest.fixture
def directory(tmp_path, monkeypatch):
    path = tmp_path / "iggy"
    monkeypatch.setenv("IGGY_HOME", str(path))
    for name in ("BORZOI_SERVER", "IGGY_USERNAME", "IGGY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return path


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert result.exit_code == code, result.stderr
    if code:
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr
    return result.stdout


@pytest.fixture
def text(directory):
    return run


@pytest.fixture
def data(directory):
    return lambda *arguments, **how: json.loads(run(*arguments, "--json", **how))


def refused(*arguments, code=1):
    return run(*arguments, code=code)


def test_without_files_there_is_an_empty_default(text, data):
    assert text("context", "list").splitlines()[1].split() == ["default*", "-"]
    assert data("context", "list") == [{"name": "default", "is_active": True, "tcp_server_address": None}]
    assert "Active  yes" in text("context", "show")
    assert data("context", "show", "default") == {"name": "default", "is_active": True, "keys": {}}


def test_contexts_are_created_used_shown_and_deleted(text, data, directory):
    shown = text(
        "context", "create", "prod", "--tcp-server-address", "192.0.2.7:8090", "-u", "al", "-p", "secret"
    )
    assert 'context "prod" created' in shown
    assert data("context", "create", "dev", "-t", "TOKEN", "--tcp-tls-enabled", "true") == {"name": "dev"}
    assert 'context "prod" is the active one' in text("context", "use", "prod")
    assert data("context", "use", "dev") == {"name": "dev"}
    assert [each["name"] for each in data("ctx", "l") if each["is_active"]] == ["dev"]
    assert data("context", "show", "dev")["keys"] == {"tcp_tls_enabled": True, "token": "******"}
    shown = text("context", "show", "prod")
    assert "192.0.2.7:8090" in shown
    assert "secret" not in shown
    assert '"default" is now the active one' in text("context", "delete", "dev")
    assert data("context", "delete", "prod") == {"name": "prod", "was_active": False}
    assert [each["name"] for each in data("context", "list")] == ["default"]
    assert tomllib.loads((directory / "contexts.toml").read_text()) == {}


def test_only_the_owner_can_read_the_files(text, directory):
    directory.mkdir()
    (directory / "contexts.toml").touch(0o644)
    text("context", "create", "prod", "-u", "al", "-p", "secret")
    text("context", "use", "prod")
    for name in ("contexts.toml", ".active_context"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    assert sorted(os.listdir(directory)) == [".active_context", ".borzoi_lock", "contexts.toml"]


def test_files_of_iggys_command_line_are_read_and_what_is_unknown_is_kept(text, data, directory, server):
    directory.mkdir()
    (directory / "contexts.toml").write_text(
        f"""
        # made by another program
        [prod]
        transport = "tcp"
        tcp_server_address = "127.0.0.1:{server.port}"
        username = "guest"
        password = "secret"
        quic_keep_alive_interval = 5000
        future = {{ list = [1, "two"], since = 2026-01-31 }}
        [other]
        transport = "quic"
        """
    )
    (directory / ".active_context").write_text("prod\n")
    assert data("me")["user_id"] != 0
    text("context", "create", "new")
    kept = tomllib.loads((directory / "contexts.toml").read_text())
    assert (kept["prod"]["quic_keep_alive_interval"], kept["prod"]["future"]["list"]) == (5000, [1, "two"])
    assert str(kept["prod"]["future"]["since"]) == "2026-01-31"
    assert kept["new"] == {}
    assert data("context", "show", "prod")["keys"]["future"]["since"] == "2026-01-31"
    text("context", "use", "other")
    assert 'context "other": transport quic: this command line speaks TCP only' in refused("me", code=2)


@pytest.mark.parametrize("name", ["default", "prod"])
def test_a_name_is_given_once(text, name):
    text("context", "create", "prod")
    assert f'there is a context "{name}" already' in refused("context", "create", name)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "../x"])
def test_names_that_no_context_has(directory, name):
    assert "is no name" in refused("context", "create", name)


def test_default_cannot_be_deleted_and_what_is_not_there_cannot_be_used(directory):
    assert "cannot be deleted" in refused("context", "delete", "default")
    for command in ("use", "delete", "show"):
        assert 'there is no context "nowhere"; there are default' in refused("context", command, "nowhere")


@pytest.mark.parametrize(
    "wrong",
    [
        ["-u", "a", "-t", "b"],
        ["-p", "secret"],
        ["--transport", "quic"],
        ["--tcp-tls-enabled", "maybe"],
        ["--tcp-server-address", "host:port"],
    ],
    ids=" ".join,
)
def test_a_context_that_could_not_be_used_is_not_created(directory, wrong):
    refused("context", "create", "new", *wrong, code=2)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("contexts.toml", "[prod", "is no TOML"),
        ("contexts.toml", "prod = 1", "prod is no table"),
        ("contexts.toml", "[default]\ntcp_server_address = 8090", "tcp_server_address of context"),
        ("contexts.toml", '[default]\ntcp_server_address = "a:b"', '"b" is no port'),
        ("contexts.toml", '[default]\ntcp_tls_enabled = "yes"', "is true or false"),
        ("contexts.toml", b"\xff", "is no text"),
        (".active_context", "gone", 'names context "gone"'),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_in_one_line(directory, file, content, said):
    directory.mkdir()
    (directory / file).write_bytes(content.encode() if isinstance(content, str) else content)
    line = refused("me", code=2)
    assert said in line
    assert str(directory) in line


def test_a_missing_active_context_can_be_replaced(text, directory):
    directory.mkdir()
    (directory / ".active_context").write_text("gone")
    refused("ping", code=2)
    text("context", "use", "default")
    assert "Name    default" in text("context", "show")


def test_a_directory_that_cannot_be_made_is_named(text, directory):
    directory.write_text("a file")
    assert str(directory) in refused("context", "create", "new", code=2)
    assert "default" in text("context", "list")


def test_when_writing_fails_the_old_file_stays(directory, monkeypatch, text):
    text("context", "create", "first")

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("borzoi.cli.home.os.fsync", no_space)
    assert "No space left on device" in refused("context", "create", "second", code=2)
    assert list(contexts_file.contexts()) == ["default", "first"]
    assert [name for name in os.listdir(directory) if name.endswith(".new")] == []


def test_a_link_to_a_file_elsewhere_stays_a_link(directory, tmp_path, text):
    directory.mkdir()
    (tmp_path / "elsewhere.toml").write_text("")
    (directory / "contexts.toml").symlink_to(tmp_path / "elsewhere.toml")
    text("context", "create", "new")
    assert (directory / "contexts.toml").is_symlink()
    assert "new" in (tmp_path / "elsewhere.toml").read_text()


def test_the_home_directory_is_in_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv("IGGY_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home.home() == tmp_path / ".iggy"


values = st.recursive(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.datetimes(),
        st.dates(),
        st.times(),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=5,
)
names = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(names, st.dictionaries(names, values, max_size=4), max_size=3))
def test_what_is_written_as_toml_is_read_back_as_it_was(content):
    assert tomllib.loads(tables(content)) == content


def test_the_active_context_says_which_server_and_who(data, text, server):
    text(
        "context",
        "create",
        "here",
        "--tcp-server-address",
        f"localhost:{server.port}",
        "-u",
        "guest",
        "-p",
        "secret",
    )
    text("context", "use", "here")
    guest = data("me")["user_id"]
    assert guest != 0
    assert data("--username", "iggy", "--password", "iggy", "me")["user_id"] == 0
    # The same server, named in another way: the login is still the context's.
    assert data("me", "--server", f"127.0.0.1:{server.port}")["user_id"] == guest


def test_a_context_is_for_its_own_server_only(text, data, server):
    text("context", "create", "prod", "--tcp-server-address", "192.0.2.7:8090", "-u", "al", "-p", "secret")
    text("context", "use", "prod")
    assert data("me", "--tcp-server-address", f"127.0.0.1:{server.port}")["user_id"] == 0


def test_a_context_may_leave_the_password_to_be_asked_for(text, data, server):
    text("context", "create", "here", "--tcp-server-address", f"127.0.0.1:{server.port}", "-u", "guest")
    text("context", "use", "here")
    assert data("me", stdin="secret\n")["user_id"] != 0
    assert "password: nothing on standard input" in refused("me", code=2)


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory):
    """A server with a certificate of an authority of its own."""
    path = tmp_path_factory.mktemp("contexts-tls") / "data"
    settings = {"tcp.tls.enabled": "true", "tcp.tls.self_signed": "true"}
    with LocalServer(path, settings) as running:
        yield f"127.0.0.1:{running.port}", path / "tls" / "ca.pem"


def test_tls_of_a_context_is_used(text, data, tls_server):
    address, ca_file = tls_server
    text(
        *("context", "create", "safe", "--tcp-server-address", address, "--tcp-tls-enabled", "true"),
        *("--tcp-tls-domain", "localhost", "--tcp-tls-ca-file", ca_file),
    )
    text("context", "use", "safe")
    assert data("me")["user_id"] == 0
    assert data("me", "--server", address)["user_id"] == 0
    refused("me", "--no-tcp-tls-enabled", "--deadline", "300ms", code=3)


def test_tls_of_the_command_line_is_used(text, data, tls_server):
    address, ca_file = tls_server
    tls = ("--tcp-server-address", address, "--tcp-tls-enabled", "--tcp-tls-ca-file", ca_file)
    assert data(*tls, "me")["user_id"] == 0
    assert data("me", *tls, "--tcp-tls-domain", "localhost")["user_id"] == 0
    refused(*tls, "--tcp-tls-domain", "elsewhere.example", "me", code=3)
    refused("me", *tls[:3], code=3)


def test_contexts_made_at_the_same_time_are_all_kept(text):
    names = [f"context-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: contexts_file.create(name, {}), names))
    assert set(contexts_file.contexts()) == {"default", *names}
