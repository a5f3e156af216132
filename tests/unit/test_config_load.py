"""Loading of settings: what wins, what is refused, and what each complaint says."""

from pathlib import Path

import pytest

from borzoi.model.limits import U64_MAX
from borzoi.server.config import Config, ConfigError, Loaded, forbids_default_password, load

DAY_US = 86_400_000_000


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "server.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def load_env(**env: str) -> Loaded:
    return load(path=None, env=env, flags={})


def load_file(path: Path) -> Loaded:
    return load(path=path, env={}, flags={})


def problems_of(path: Path | None = None, **env: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load(path=path, env=env, flags={})
    return str(refused.value)


def test_nothing_set_gives_the_defaults_without_a_warning():
    loaded = load_env()
    assert loaded.config == Config()
    assert loaded.warnings == []
    assert set(loaded.origins.values()) == {"default"}


def test_defaults_are_the_safe_ones():
    config = Config()
    assert config.tcp.address == "127.0.0.1:8090"
    assert config.system.path == Path("local_data")
    assert config.system.partition.validate_checksum
    assert config.system.state.enforce_fsync
    assert config.message_saver.enforce_fsync
    assert config.data_maintenance.messages.cleaner_enabled
    assert not config.system.allow_default_password
    assert not config.system.message_deduplication.enabled
    assert config.system.topic.message_expiry_us == U64_MAX
    assert config.system.topic.max_size_bytes == U64_MAX
    assert config.system.segment.max_age_us == U64_MAX
    assert config.limits.max_frame_bytes == 64 << 20


def test_later_sources_win_and_each_value_knows_its_origin(write):
    path = write('[tcp]\naddress = "127.0.0.1:1"\nnodelay = false\n[system]\npath = "from-file"\n')
    loaded = load(
        path=path,
        env={"IGGY_TCP_ADDRESS": "127.0.0.1:2", "IGGY_SYSTEM_PATH": "from-env"},
        flags={"tcp.address": "127.0.0.1:3"},
        flag_names={"tcp.address": "--tcp"},
    )
    assert loaded.config.tcp.address == "127.0.0.1:3"
    assert loaded.config.system.path == Path("from-env")
    assert not loaded.config.tcp.nodelay
    assert loaded.origins["tcp.address"] == "flag:--tcp"
    assert loaded.origins["system.path"] == "env:IGGY_SYSTEM_PATH"
    assert loaded.origins["tcp.nodelay"] == f"file:{path}"
    assert loaded.origins["tcp.enabled"] == "default"


def test_the_environment_may_name_the_file(write):
    path = write("[limits]\nmax_connections = 5\n")
    assert load_env(IGGY_CONFIG_PATH=str(path)).config.limits.max_connections == 5


def test_a_given_path_wins_over_the_environments(write):
    path = write("[limits]\nmax_connections = 5\n")
    other = write("[limits]\nmax_connections = 6\n", "other.toml")
    loaded = load(path=path, env={"IGGY_CONFIG_PATH": str(other)}, flags={})
    assert loaded.config.limits.max_connections == 5


@pytest.mark.parametrize("by_env", [True, False])
def test_a_named_file_that_does_not_exist_is_an_error(tmp_path, by_env):
    missing = tmp_path / "missing.toml"
    text = problems_of(IGGY_CONFIG_PATH=str(missing)) if by_env else problems_of(missing)
    assert str(missing) in text
    assert "No such file" in text


def test_a_directory_as_file_is_an_error(tmp_path):
    assert "directory" in problems_of(tmp_path)


def test_broken_toml_names_file_and_line(write):
    path = write("[tcp]\naddress = \n")
    text = problems_of(path)
    assert str(path) in text
    assert "line 2" in text


def test_a_file_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes(b'[system]\npath = "\xff"\n')
    assert "not UTF-8" in problems_of(path)


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ('[tcp]\nadress = "x:1"', "tcp.adress", "tcp.address"),
        ("[sistem.segment]\nsize = 1", "sistem", "system"),
        ('[system.segment]\nmesage_expiry = "1d"', "system.segment.mesage_expiry", "message_expiry"),
        ("[tcp]\nenforce_fsync = true", "tcp.enforce_fsync", "system.partition.enforce_fsync"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(write, text, key, near):
    path = write(text)
    problem = problems_of(path)
    assert problem.startswith(f"{key} (file:{path}): no such key")
    assert near in problem.partition("did you mean")[2]


def test_a_value_in_place_of_a_section_is_refused(write):
    assert "tcp (file:" in (problem := problems_of(write("tcp = 5")))
    assert "write [tcp]" in problem


def test_a_wrong_value_names_key_value_origin_and_what_is_accepted(write):
    path = write("[limits]\nmax_connections = 0\n")
    problem = problems_of(path)
    assert problem == f"limits.max_connections (file:{path}): 0 is not an integer from 1 to 4294967295"
    problem = problems_of(IGGY_HEARTBEAT_INTERVAL="5")
    assert problem.startswith('IGGY_HEARTBEAT_INTERVAL (heartbeat.interval): "5" is not a duration')


def test_everything_wrong_is_reported_at_once(write):
    path = write('[tcp]\nadress = "x"\nenabled = "yes"\n[system.segment]\nsize = "1 XB"\n')
    with pytest.raises(ConfigError) as refused:
        load(path=path, env={"IGGY_TCP_NODELAY": "maybe"}, flags={})
    assert len(refused.value.problems) == 4


@pytest.mark.parametrize(
    "text",
    [
        "[tcp]\nenabled = 1",
        '[tcp]\nenabled = "true"',
        "[tcp]\naddress = 8090",
        '[tcp]\naddress = "8090"',
        '[tcp]\naddress = "::1:8090"',
        '[tcp]\naddress = "localhost:65536"',
        "[limits]\nmax_connections = true",
        '[limits]\nmax_connections = "10"',
        "[message_saver]\ninterval = 30",
        "[system.segment]\nsize = -512",
        '[system.segment]\nsize = "1 GiB 1 B"',
        "[system.segment]\nsize = 1048577",
        "[system.segment]\nsize = 1073742336",
        "[system.segment]\nsize = 1048064",
        '[system.topic]\nmessage_expiry = "server_default"',
        "[system.topic]\nmax_size = 0",
        "[system.partition]\nmessages_required_to_save = 0",
        "[system.partition]\nmessages_required_to_save = 16777217",
        '[limits]\nmax_frame_size = "257 MiB"',
        '[system.logging]\nlevel = "loud"',
        '[system]\npath = ""',
        '[http.cors]\nallowed_origins = "*"',
        '[quic]\naddress = "nowhere"',
    ],
)
def test_values_out_of_bounds_are_refused(write, text):
    problems_of(write(text))


def test_values_at_the_bounds_are_accepted(write):
    config = load_file(
        write(
            '[system.segment]\nsize = "1 GiB"\n[limits]\nmax_frame_size = "256 MiB"\n'
            '[system.partition]\nmessages_required_to_save = 16777216\n[tcp]\naddress = "[::1]:65535"'
        )
    ).config
    assert config.system.segment.size_bytes == 1 << 30
    assert config.tcp.address == "[::1]:65535"
    assert load_env(IGGY_SYSTEM_SEGMENT_SIZE="1048576").config.system.segment.size_bytes == 1 << 20


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ('[system.topic]\nmax_size = "512 MiB"', "system.topic.max_size"),
        ('[limits]\nmax_buffered_bytes = "1 MiB"', "limits.max_buffered_bytes"),
        ('[message_saver]\ninterval = "0"', "message_saver.interval"),
        ('[heartbeat]\ninterval = "0 s"', "heartbeat.interval"),
        ("[tcp.tls]\nenabled = true\nself_signed = false", "tcp.tls"),
        ('[tcp.tls]\nenabled = true\ncert_file = "c.pem"', "tcp.tls"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(write, text, about):
    assert problems_of(write(text)).startswith(about)


def test_an_interval_of_zero_is_fine_for_what_is_off(write):
    config = load_file(write('[message_saver]\nenabled = false\ninterval = "0"')).config
    assert config.message_saver.interval_us == 0


@pytest.mark.parametrize(
    "key",
    [
        "system.encryption.enabled",
        "encryption.enabled",
        "data_maintenance.archiver.enabled",
        "archiver.enabled",
        "data_maintenance.archiver.archive_expired",
        "data_maintenance.messages.archiver_enabled",
        "data_maintenance.state.archiver_enabled",
        "system.segment.archive_expired",
    ],
)
def test_what_would_be_unsafe_to_ignore_is_refused(write, key):
    path = write(f"{key} = true")
    assert "not available in this version" in problems_of(path)
    path.write_text(f"{key} = false")
    assert load_file(path).warnings == []
    assert "not available in this version" in problems_of(**{"IGGY_" + key.replace(".", "_").upper(): "true"})


def test_a_refused_value_that_a_later_source_takes_back_is_fine(write):
    path = write("[data_maintenance.archiver]\nenabled = true")
    load(path=path, env={"IGGY_DATA_MAINTENANCE_ARCHIVER_ENABLED": "false"}, flags={})


def test_a_key_without_effect_warns_only_when_it_differs_from_its_default(write):
    path = write('[http]\nenabled = true\naddress = "127.0.0.1:3000"\n[cluster.node.current]\nname = "a"\n')
    warnings = load_file(path).warnings
    assert warnings[0] == f"http.enabled = true (file:{path}) has no effect in this version"
    assert [warning.split()[0] for warning in warnings] == ["http.enabled", "cluster.node"]


def test_a_topic_limit_that_may_not_delete_is_reported(write):
    warnings = load_file(write('[topic]\nmax_topic_size = "10 GB"\ndelete_oldest_segments = false')).warnings
    assert len(warnings) == 1
    assert "delete_oldest_segments" in warnings[0]


def test_two_names_of_one_key_must_agree(write):
    agreeing = '[message_saver]\ninterval = "1s"\n[system.partition.message_saver]\ninterval = "1000ms"\n'
    assert load_file(write(agreeing)).config.message_saver.interval_us == 1_000_000
    differing = agreeing.replace("1000ms", "2s")
    assert "are the same key message_saver.interval and differ" in problems_of(write(differing))


def test_credentials_come_from_the_environment_together():
    config = load_env(IGGY_ROOT_USERNAME="admin", IGGY_ROOT_PASSWORD="12345").config
    assert (config.root.username, config.root.password) == ("admin", "12345")
    assert (Config().root.username, Config().root.password) == ("iggy", "iggy")
    assert "together" in problems_of(IGGY_ROOT_USERNAME="admin")
    assert "together" in problems_of(IGGY_ROOT_PASSWORD="secret")


def test_credentials_in_a_file_are_refused(write):
    assert "IGGY_ROOT_PASSWORD" in problems_of(write('[root]\npassword = "secret"'))


def test_secrets_do_not_leak_into_errors_warnings_or_repr():
    problem = problems_of(IGGY_ROOT_USERNAME="root", IGGY_ROOT_PASSWORD="pw")
    assert "IGGY_ROOT_PASSWORD" in problem
    assert "pw" not in problem.replace("IGGY_ROOT_PASSWORD", "")
    loaded = load_env(
        IGGY_ROOT_USERNAME="root", IGGY_ROOT_PASSWORD="hunter2", IGGY_HTTP_JWT_ENCODING_SECRET="hunter2"
    )
    assert loaded.warnings
    assert "hunter2" not in repr(loaded.config) + repr(loaded.warnings)


@pytest.mark.parametrize(
    ("address", "reachable"),
    [
        ("127.0.0.1:1", False),
        ("127.8.0.1:1", False),
        ("[::1]:1", False),
        ("localhost:1", False),
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("broker.example:1", True),
    ],
)
def test_the_default_password_is_for_loopback_only(address, reachable):
    assert forbids_default_password(load_env(IGGY_TCP_ADDRESS=address).config) is reachable
    for more in ({"IGGY_SYSTEM_ALLOW_DEFAULT_PASSWORD": "true"}, {"IGGY_TCP_ENABLED": "false"}):
        assert not forbids_default_password(load_env(IGGY_TCP_ADDRESS=address, **more).config)


DURABILITY_GUIDE = """
[system]
path = "local_data"
[system.partition]
enforce_fsync = true
messages_required_to_save = 100
[system.partition.message_saver]
enabled = true
enforce_fsync = true
interval = "1s"
[system.segment]
size = "1 GB"
cache_indexes = true
cache_time_indexes = true
validate_checksum = true
message_expiry = "7 days"
[topic]
max_topic_size = "10 GB"
delete_oldest_segments = true
[system.recovery]
recreate_missing_state = true
[data_maintenance.archiver]
enabled = false
kind = "s3"
archive_expired = false
[data_maintenance.archiver.disk]
path = "archive"
[data_maintenance.archiver.s3]
access_key_id = ""
secret_access_key = ""
bucket = "iggy-backups"
key_prefix = "production/"
region = "us-east-1"
endpoint = ""
tmp_upload_dir = "iggy-upload"
"""


def test_the_keys_of_the_durability_guide_load_and_arrive(write):
    system = load_file(write(DURABILITY_GUIDE)).config.system
    assert system.segment.size_bytes == 10**9
    assert system.topic.message_expiry_us == 7 * DAY_US
    assert system.topic.max_size_bytes == 10**10
    assert system.partition.enforce_fsync
    assert system.partition.messages_required_to_save == 100
    assert system.recovery.recreate_missing_state
    assert load_file(write(DURABILITY_GUIDE)).config.message_saver.interval_us == 1_000_000


def test_the_other_guides_sections_load(write):
    guide = """
    [encryption]
    enabled = false
    key = "base64-encoded-aes-256-key"
    [archiver]
    enabled = false
    kind = "s3"
    interval = "1h"
    [archiver.s3]
    bucket = "iggy-backups"
    key_id = "a"
    key_secret = "b"
    [metrics]
    enabled = true
    endpoint = "0.0.0.0:9090"
    [tracing]
    enabled = true
    endpoint = "http://localhost:4317"
    """
    loaded = load_file(write(guide))
    assert loaded.values["telemetry.traces.endpoint"] == "http://localhost:4317"
    assert loaded.values["data_maintenance.archiver.s3.secret_access_key"] == "b"
    assert not any("base64" in warning for warning in loaded.warnings)
