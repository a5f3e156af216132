"""Reading of the places settings come from: a TOML file, the environment, flags.

Each reader returns a `Setting` per value it finds and collects problems and warnings in a `Findings` instead
of stopping at the first, so that one start reports everything that is wrong. Which source wins is the
loader's business. Reading a file is the only input or output here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from borzoi.server.config.errors import ConfigError
from borzoi.server.config.keys import aliases, all_keys, environment_names, section_names
from borzoi.server.config.kinds import Tables, toml_literal
from borzoi.server.config.schema import Key

HIDDEN = "******"

_PREFIX = "IGGY_"
CONFIG_PATH_VARIABLE = "IGGY_CONFIG_PATH"
_ENV_FILE_VARIABLE = "IGGY_ENV_PATH"
_NOT_SETTINGS = frozenset({CONFIG_PATH_VARIABLE, _ENV_FILE_VARIABLE, "IGGY_DISPLAY_CONFIG", "IGGY_CI_BUILD"})
# The command line's: where its contexts are, and whom it logs in as.
_OF_THE_COMMAND_LINE = frozenset({"IGGY_HOME", "IGGY_USERNAME", "IGGY_PASSWORD"})
_OTHER_PROGRAMS = ("IGGY_TEST_", "IGGY_SERVER_", "IGGY_CONNECTORS_", "IGGY_MCP_")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value someone gave to a key."""

    key: Key
    written_name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What was noticed on the way."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_file(path: Path, findings: Findings) -> list[Setting]:
    """The settings of a TOML file. A file that cannot be read or is not TOML is a `ConfigError` at once."""
    import tomllib  # noqa: PLC0415 - most starts have no file

    origin = f"file:{path}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text, byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    settings: list[Setting] = []
    for name, raw in _flatten(table, "", origin, findings):
        key = all_keys()[aliases().get(name, name)]
        if key.environment_only:
            findings.problems.append(
                f"{name} ({origin}): set {key.environment_name} in the environment instead"
            )
            continue
        try:
            settings.append(Setting(key, name, key.kind.parse(raw), origin))
        except ValueError as error:
            findings.problems.append(_refusal(key, name, origin, error))
    return _without_repetitions(settings, findings)


def read_environment(env: Mapping[str, str], findings: Findings) -> list[Setting]:
    """The settings of `IGGY_*` variables. An empty one counts as unset, an unknown one is warned about."""
    settings: list[Setting] = []
    for variable in sorted(env):
        text = env[variable]
        if not variable.startswith(_PREFIX) or not text or variable in _NOT_SETTINGS | _OF_THE_COMMAND_LINE:
            continue
        name = environment_names().get(variable)
        if name is not None:
            key = all_keys()[name]
            try:
                settings.append(Setting(key, variable, key.kind.parse_text(text), f"env:{variable}"))
            except ValueError as error:
                findings.problems.append(_refusal(key, variable, f"env:{variable}", error))
        elif not variable.startswith(_OTHER_PROGRAMS):
            findings.warnings.append(_about_unknown_variable(variable))
    if env.get(_ENV_FILE_VARIABLE):
        findings.warnings.append(
            f"{_ENV_FILE_VARIABLE} is ignored: export the variables of that file instead"
        )
    return _without_repetitions(settings, findings)


def read_flags(flags: Mapping[str, str], flag_names: Mapping[str, str], findings: Findings) -> list[Setting]:
    """The settings of a command line: texts by key, and the flag each came from."""
    settings: list[Setting] = []
    for name, text in flags.items():
        key = all_keys()[name]
        written = flag_names.get(name, name)
        try:
            settings.append(Setting(key, written, key.kind.parse_text(text), f"flag:{written}"))
        except ValueError as error:
            findings.problems.append(_refusal(key, written, f"flag:{written}", error))
    return settings


def shown(key: Key, value: Any) -> str:
    """A value as TOML writes it, with secrets hidden."""
    if key.secret and value not in {"", "[]"}:
        return toml_literal(HIDDEN)
    return key.kind.literal(value)


def _flatten(
    table: dict[str, object], prefix: str, origin: str, findings: Findings
) -> Iterator[tuple[str, object]]:
    for part, value in table.items():
        name = prefix + part
        if aliases().get(name, name) in all_keys():
            yield name, value
        elif name not in section_names():
            findings.problems.append(
                f"{name} ({origin}): no such key{_nearest(name, isinstance(value, dict))}"
            )
        elif isinstance(value, dict):
            yield from _flatten(value, name + ".", origin, findings)
        else:
            findings.problems.append(f"{name} ({origin}): a section, not a value; write [{name}]")


def _refusal(key: Key, written: str, origin: str, error: ValueError) -> str:
    source = "" if origin.endswith(written) else f" ({origin})"
    named = written if written in {key.name, *aliases()} else f"{written} ({key.name})"
    reason = f"expected {key.kind.accepts}" if key.secret else f"{error}"
    return f"{named}{source}: {reason}"


def _without_repetitions(settings: list[Setting], findings: Findings) -> list[Setting]:
    """One source may name a key under two names only if it says the same twice."""
    first: dict[str, Setting] = {}
    for setting in settings:
        earlier = first.setdefault(setting.key.name, setting)
        if earlier.value != setting.value:
            findings.problems.append(
                f"{earlier.written_name} and {setting.written_name} ({setting.origin}) are the same key"
                f" {setting.key.name} and differ"
            )
    return list(first.values())


def _nearest(name: str, is_section: bool) -> str:
    known: Iterable[str] = section_names() if is_section else [*all_keys(), *aliases()]
    matches = _look_alikes(name, known, 1)
    if not matches and not is_section:
        # The right name in the wrong section is further away in letters than in meaning.
        leaf = name.rpartition(".")[2]
        matches = [other for other in all_keys() if other.rpartition(".")[2] == leaf][:3]
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


def _about_unknown_variable(variable: str) -> str:
    for key in all_keys().values():
        if isinstance(key.kind, Tables) and variable.startswith(key.environment_name + "_"):
            return f"{variable} has no effect in this version"
    matches = _look_alikes(variable, environment_names(), 3)
    hint = f"; did you mean {' or '.join(matches)}?" if matches else ""
    return f"{variable} is not a setting{hint}"


def _look_alikes(name: str, known: Iterable[str], count: int) -> list[str]:
    import difflib  # noqa: PLC0415 - only needed to explain a mistake

    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.75)
