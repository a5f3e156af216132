"""Settings from the environment: names, typing of values, and what is said about the rest."""

import pytest

from borzoi.server.config import ConfigError, load
from borzoi.server.config.keys import aliases, all_keys, environment_names
from borzoi.server.config.schema import environment_name


def load_env(**env: str):
    return load(path=None, env=env, flags={})


def test_no_two_keys_share_a_variable():
    names = {name: name for name in all_keys()} | aliases()
    by_variable: dict[str, set[str]] = {}
    for written, key in names.items():
        by_variable.setdefault(environment_name(written), set()).add(key)
    assert [keys for keys in by_variable.values() if len(keys) > 1] == []


def test_every_alias_leads_to_a_key_and_hides_none():
    assert set(aliases().values()) <= all_keys().keys()
    assert aliases().keys() & all_keys().keys() == set()


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("IGGY_SYSTEM_SEGMENT_SIZE", "system.segment.size"),
        ("IGGY_SYSTEM_SEGMENT_MESSAGE_EXPIRY", "system.topic.message_expiry"),
        ("IGGY_SYSTEM_SEGMENT_VALIDATE_CHECKSUM", "system.partition.validate_checksum"),
        ("IGGY_SYSTEM_PARTITION_MESSAGE_SAVER_INTERVAL", "message_saver.interval"),
        ("IGGY_TOPIC_MAX_TOPIC_SIZE", "system.topic.max_size"),
        ("IGGY_PATH", "system.path"),
        ("IGGY_ARCHIVER_S3_KEY_ID", "data_maintenance.archiver.s3.access_key_id"),
        ("IGGY_ROOT_USERNAME", "root.username"),
    ],
)
def test_variables_are_named_after_keys_and_aliases(variable, key):
    assert environment_names()[variable] == key


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("False", False)])
def test_booleans_in_any_case(text, value):
    assert load_env(IGGY_TCP_NODELAY=text).config.tcp.nodelay is value


@pytest.mark.parametrize("text", ["1", "yes", "0", "on"])
def test_other_words_are_no_booleans(text):
    with pytest.raises(ConfigError, match="true or false"):
        load_env(IGGY_TCP_NODELAY=text)


@pytest.mark.parametrize("text", ["-1", "1.0", "ten", "0x10", "9" * 30, "²"])
def test_other_texts_are_no_integers(text):
    with pytest.raises(ConfigError, match="an integer"):
        load_env(IGGY_LIMITS_MAX_CONNECTIONS=text)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("[]", ()),
        ("[a]", ("a",)),
        ('[a, b, "c,d"]', ("a", "b", "c,d")),
        ("[ 'x y' ,z ]", ("x y", "z")),
        ('["*"]', ("*",)),
    ],
)
def test_lists_respect_quotes(text, items):
    assert load_env(IGGY_HTTP_CORS_ALLOWED_ORIGINS=text).values["http.cors.allowed_origins"] == items


@pytest.mark.parametrize("text", ["a,b", "[a", '["a]', "[[a]]", '["a"b]'])
def test_broken_lists_are_refused(text):
    with pytest.raises(ConfigError, match="a list"):
        load_env(IGGY_HTTP_CORS_ALLOWED_ORIGINS=text)


def test_a_text_that_looks_like_a_number_stays_text():
    assert load_env(IGGY_SYSTEM_PATH="123").config.system.path.name == "123"


def test_an_empty_variable_counts_as_unset():
    loaded = load_env(IGGY_TCP_ADDRESS="", IGGY_NO_SUCH_THING="", IGGY_ROOT_USERNAME="")
    assert loaded.origins["tcp.address"] == "default"
    assert loaded.warnings == []


def test_an_unknown_variable_is_reported_with_look_alikes():
    (warning,) = load_env(IGGY_TCP_ADRESS="127.0.0.1:1").warnings
    assert warning.startswith("IGGY_TCP_ADRESS is not a setting; did you mean IGGY_TCP_ADDRESS")
    (warning,) = load_env(IGGY_QQQQQQQ="1").warnings
    assert warning == "IGGY_QQQQQQQ is not a setting"


def test_variables_of_lists_of_tables_are_known_but_without_effect():
    assert load_env(IGGY_CLUSTER_NODE_OTHERS_0_NAME="b").warnings == [
        "IGGY_CLUSTER_NODE_OTHERS_0_NAME has no effect in this version"
    ]


@pytest.mark.parametrize(
    "variable",
    [
        "IGGY_DISPLAY_CONFIG",
        "IGGY_CI_BUILD",
        "IGGY_TEST_VERBOSE",
        "IGGY_SERVER_HOST",
        "IGGY_CONNECTORS_CONFIG_PATH",
        "IGGY_MCP_CONFIG_PATH",
        "PATH",
        "BORZOI_TCP_ADDRESS",
    ],
)
def test_variables_of_others_are_left_alone(variable):
    assert load_env(**{variable: "1"}).warnings == []


def test_an_environment_file_is_said_to_be_ignored():
    (warning,) = load_env(IGGY_ENV_PATH="prod.env").warnings
    assert "IGGY_ENV_PATH is ignored" in warning


def test_variables_of_the_command_line_are_not_mistaken_for_settings():
    variables = {"IGGY_HOME": "x", "IGGY_USERNAME": "somebody", "IGGY_PASSWORD": "secret"}
    assert not load(path=None, env=variables, flags={}).warnings
