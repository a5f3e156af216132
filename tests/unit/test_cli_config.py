"""`borzoi config` and the top of the command line."""

import json
import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from borzoi import __version__
from borzoi.cli.main import app


@pytest.fixture
def run(monkeypatch):
    for name in ("IGGY_TCP_ADDRESS", "IGGY_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, **env: str):
        return CliRunner().invoke(app, arguments, env=env)

    return run


def test_no_arguments_print_the_help(run):
    result = run()
    assert result.exit_code == 0
    assert "server" in result.stdout
    assert "config" in result.stdout
    assert result.stdout.strip() == run("--help").stdout.strip()


def test_version(run):
    assert run("--version").stdout == f"borzoi {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [["server"], *[["config", name] for name in ("show", "check", "default", "reference")]],
    ids=" ".join,
)
def test_the_help_of_each_command_has_an_example(run, command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"      borzoi {' '.join(command)}" in result.stdout


def test_show_prints_toml_with_origins(run, tmp_path):
    path = tmp_path / "server.toml"
    path.write_text("[limits]\nmax_connections = 7\n[http]\nenabled = true\n")
    result = run("config", "show", "--config", str(path), "--origin", IGGY_TCP_ADDRESS="127.0.0.1:7")
    assert result.exit_code == 0
    assert f"max_connections = 7  # file:{path}" in result.stdout
    assert 'address = "127.0.0.1:7"  # env:IGGY_TCP_ADDRESS' in result.stdout
    assert result.stderr.startswith("warning: http.enabled")


def test_show_prints_json(run):
    values = json.loads(run("config", "show", "--json", IGGY_TCP_ADDRESS="127.0.0.1:7").stdout)
    assert values["tcp.address"] == "127.0.0.1:7"
    assert "http.enabled" not in values
    everything = json.loads(run("config", "show", "--json", "--all", "--origin").stdout)
    assert everything["http.enabled"] == {"value": False, "origin": "default"}


def test_show_of_a_broken_configuration_fails_with_2(run):
    result = run("config", "show", IGGY_TCP_ADDRESS="nowhere")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: IGGY_TCP_ADDRESS")


def test_check_says_ok_whatever_the_environment_holds(run, tmp_path):
    path = tmp_path / "server.toml"
    path.write_text("[limits]\nmax_connections = 7\n")
    result = run("config", "check", str(path), IGGY_TCP_ADDRESS="nowhere")
    assert (result.exit_code, result.stdout) == (0, "ok\n")


def test_check_lists_every_error_and_fails_with_2(run, tmp_path):
    path = tmp_path / "server.toml"
    path.write_text("[limits]\nmax_connections = 0\nmax_connection = 1\n")
    result = run("config", "check", str(path))
    assert result.exit_code == 2
    assert result.stderr.count("error: ") == 2
    as_json = run("config", "check", "--json", str(path))
    assert as_json.exit_code == 2
    report = json.loads(as_json.stdout)
    assert not report["ok"]
    assert len(report["errors"]) == 2


def test_default_prints_a_file_that_passes_the_check(run, tmp_path):
    path = tmp_path / "server.toml"
    path.write_text(run("config", "default").stdout)
    assert tomllib.loads(path.read_text())["tcp"]["address"] == "127.0.0.1:8090"
    result = run("config", "check", str(path))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ok\n", "")
    assert json.loads(run("config", "default", "--json").stdout)["tcp.address"] == "127.0.0.1:8090"


def test_reference_prints_every_key(run):
    assert "| `system.segment.size` |" in run("config", "reference").stdout
    keys = {entry["key"]: entry for entry in json.loads(run("config", "reference", "--json").stdout)}
    assert "IGGY_SYSTEM_SEGMENT_MESSAGE_EXPIRY" in keys["system.topic.message_expiry"]["environment"]
    assert "iggy" not in str(keys["root.password"]["default"])


def test_the_module_behind_the_script_runs_in_a_process_of_its_own():
    command = [sys.executable, "-c", "from borzoi.cli.main import main; main()", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"borzoi {__version__}\n"
