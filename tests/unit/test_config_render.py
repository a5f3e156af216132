"""What is shown about the configuration agrees with what is declared."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from borzoi.server.config import Config, load
from borzoi.server.config.keys import all_keys, section_of
from borzoi.server.config.kinds import Tables, toml_literal
from borzoi.server.config.render import default_toml, effective_json, effective_toml, reference_markdown
from borzoi.server.config.schema import Status

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_document_is_the_reference():
    assert reference_markdown() in DOCUMENT.read_text(), (
        "docs/configuration.md is out of date: replace its tables by the output of `borzoi config reference`"
    )


def test_the_document_lists_every_key_with_its_default():
    rows = [line.split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    listed = {row[0].strip("|` "): row[1].strip("`") for row in rows}
    for name, key in all_keys().items():
        default = '"******"' if key.secret and key.default else toml_literal(key.default)
        assert listed[key.environment_name if key.environment_only else name] == default


@pytest.mark.parametrize("key", all_keys().values(), ids=lambda key: key.name)
def test_every_key_is_documented_and_its_default_survives_being_shown(key):
    assert key.meaning.endswith(".")
    value = key.default_value
    if not isinstance(key.kind, Tables):
        assert key.kind.parse(key.kind.plain(value)) == value
    parsed = tomllib.loads(f"value = {key.kind.literal(value)}")["value"]
    assert key.kind.parse(parsed) == value


def test_the_default_file_changes_nothing(tmp_path):
    path = tmp_path / "default.toml"
    path.write_text(default_toml())
    loaded = load(path=path, env={}, flags={})
    assert loaded.config == Config()
    assert loaded.warnings == []
    set_by_file = {name for name, origin in loaded.origins.items() if origin != "default"}
    used = {k.name for k in all_keys().values() if k.status is Status.USED and not k.environment_only}
    assert set_by_file == used


def test_every_key_at_its_default_loads_without_a_warning(tmp_path):
    keys = [key for key in all_keys().values() if not key.environment_only]
    lines = [f"{key.name} = {key.kind.literal(key.default_value)}" for key in keys]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(lines))
    assert load(path=path, env={}, flags={}).warnings == []


def test_an_effective_configuration_can_be_read_as_toml():
    loaded = load(path=None, env={"IGGY_TCP_ADDRESS": "127.0.0.1:7"}, flags={})
    shown = tomllib.loads(effective_toml(loaded, with_origin=True, everything=True))
    assert shown["tcp"]["address"] == "127.0.0.1:7"
    assert shown["http"]["cors"]["allowed_origins"] == ["*"]
    assert section_of("http.cors.allowed_origins") == "http.cors"


def test_origins_are_shown_on_request_only():
    loaded = load(path=None, env={"IGGY_TCP_ADDRESS": "127.0.0.1:7"}, flags={})
    assert 'address = "127.0.0.1:7"  # env:IGGY_TCP_ADDRESS' in effective_toml(loaded, with_origin=True)
    assert "# env" not in effective_toml(loaded)
    assert effective_json(loaded)["tcp.address"] == "127.0.0.1:7"
    assert effective_json(loaded, with_origin=True)["tcp.address"] == {
        "value": "127.0.0.1:7",
        "origin": "env:IGGY_TCP_ADDRESS",
    }


def test_keys_without_effect_are_shown_when_set_or_asked_for():
    loaded = load(path=None, env={"IGGY_HTTP_WEB_UI": "true"}, flags={})
    assert "http.web_ui" in effective_json(loaded)
    assert "http.enabled" not in effective_json(loaded)
    assert effective_json(loaded, everything=True).keys() == all_keys().keys()


def test_secrets_are_hidden():
    env = {
        "IGGY_ROOT_USERNAME": "root",
        "IGGY_ROOT_PASSWORD": "hunter2",
        "IGGY_SYSTEM_ENCRYPTION_KEY": "hunter2",
        "IGGY_HTTP_JWT_ENCODING_SECRET": "hunter2",
        "IGGY_HTTP_JWT_DECODING_SECRET": "hunter2",
        "IGGY_DATA_MAINTENANCE_ARCHIVER_S3_SECRET_ACCESS_KEY": "hunter2",
    }
    loaded = load(path=None, env=env, flags={})
    text = effective_toml(loaded, everything=True) + repr(effective_json(loaded, everything=True))
    assert "hunter2" not in text
    assert text.count("******") == 2 * 5


def test_loading_a_configuration_imports_no_framework():
    script = (
        "import sys; from borzoi.server.config import load; load(path=None, env={}, flags={});"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(ast.literal_eval(run.stdout))
    assert imported.isdisjoint({"pydantic", "tomllib", "difflib", "typer", "asyncio", "numpy"})
