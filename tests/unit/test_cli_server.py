"""`borzoi server`: which settings its flags become, and what it refuses before anything starts."""

import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from borzoi.cli.main import app


@pytest.fixture
def started(monkeypatch):
    """What the server was started with; a stand-in takes the place of the real one."""
    calls = []

    def run(loaded, *, fresh):
        calls.append((loaded, fresh))
        return 7

    stand_in = types.ModuleType("borzoi.server.app")
    stand_in.run = run
    monkeypatch.setitem(sys.modules, "borzoi.server.app", stand_in)
    return calls


def borzoi(*arguments: str, **env: str):
    return CliRunner().invoke(app, ["server", *arguments], env=env)


def test_flags_become_settings_and_the_servers_code_is_the_exit_code(started):
    result = borzoi("--data", "dir", "--tcp", "127.0.0.1:0", "--fresh", IGGY_TCP_ENABLED="false")
    assert result.exit_code == 7
    ((loaded, fresh),) = started
    assert fresh is True
    assert loaded.config.system.path == Path("dir")
    assert loaded.config.tcp.address == "127.0.0.1:0"
    assert loaded.config.tcp.enabled
    assert loaded.origins["system.path"] == "flag:--data"
    assert loaded.origins["tcp.address"] == "flag:--tcp"


def test_no_flags_set_nothing(started):
    borzoi()
    ((loaded, fresh),) = started
    assert fresh is False
    assert loaded.origins["tcp.address"] == "default"


def test_listeners_may_be_switched_off(started, tmp_path):
    path = tmp_path / "server.toml"
    path.write_text("[http]\nenabled = true\n[quic]\nenabled = true\n[websocket]\nenabled = true\n")
    borzoi("--config", str(path), "--http", "off", "--quic", "off", "--ws", "off", "--shards", "1")
    ((loaded, _),) = started
    assert loaded.warnings == []
    assert loaded.origins["http.enabled"] == "flag:--http"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--http", "127.0.0.1:3000"],
        ["--quic", "127.0.0.1:8080"],
        ["--ws", "127.0.0.1:8092"],
        ["--shards", "2"],
    ],
    ids=" ".join,
)
def test_what_this_version_lacks_is_refused_in_one_line(started, arguments):
    result = borzoi(*arguments)
    assert result.exit_code == 2
    assert started == []
    assert result.stderr.startswith(f"error: {' '.join(arguments)}: ")
    assert "not available in this version" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["--tcp", "nowhere"], "--tcp (tcp.address)"),
        (["--data", ""], "--data (system.path)"),
        (["--config", "no-such-file.toml"], "no-such-file.toml"),
    ],
    ids=["tcp", "data", "config"],
)
def test_a_wrong_setting_is_refused_in_one_line(started, arguments, about):
    result = borzoi(*arguments)
    assert result.exit_code == 2
    assert started == []
    assert result.stderr.startswith(f"error: {about}: ")
    assert result.stderr.count("\n") == 1


def test_the_help_names_the_defaults():
    text = " ".join(borzoi("--help").stdout.split())
    for default in ("127.0.0.1:8090", "local_data", "default: 1", "(off)", "IGGY_CONFIG_PATH"):
        assert default in text
