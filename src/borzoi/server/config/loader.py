"""Loading: defaults, then the file, then the environment, then flags; the later source wins.

`load` either returns a configuration that satisfies every rule or raises one `ConfigError` that lists
everything that is wrong. It reads no environment and no arguments of its own accord and prints nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from borzoi.server.config.checks import contradictions, ineffective
from borzoi.server.config.errors import ConfigError
from borzoi.server.config.keys import all_keys
from borzoi.server.config.schema import METADATA, Key, Status
from borzoi.server.config.sections import Config
from borzoi.server.config.sources import (
    CONFIG_PATH_VARIABLE,
    Findings,
    Setting,
    read_environment,
    read_file,
    read_flags,
    shown,
)

DEFAULT_ORIGIN = "default"
_CREDENTIALS = ("root.username", "root.password")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each value came from.

    `values` and `origins` have an entry for every key by its full name, also for keys that `config` has no
    attribute for because this version does not act on them.
    """

    config: Config
    values: dict[str, Any]
    origins: dict[str, str]
    warnings: list[str]


def load(
    *,
    path: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, str],
    flag_names: Mapping[str, str] | None = None,
) -> Loaded:
    """The effective configuration.

    `path` is a file that must exist; without it the file that IGGY_CONFIG_PATH names, or none. `flags` holds
    texts by the key's full name, `flag_names` what the flag of a key is called.
    """
    findings = Findings()
    file = path or (Path(env[CONFIG_PATH_VARIABLE]) if env.get(CONFIG_PATH_VARIABLE) else None)
    settings = read_file(file, findings) if file else []
    settings += read_environment(env, findings)
    settings += read_flags(flags, flag_names or {}, findings)
    effective = {setting.key.name: setting for setting in settings}
    for setting in effective.values():
        _judge(setting, findings)
    if len(set(_CREDENTIALS) & effective.keys()) == 1:
        findings.problems.append("IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD are set together or not at all")
    values = {
        name: effective[name].value if name in effective else key.default_value
        for name, key in all_keys().items()
    }
    config = _build(Config, values, "")
    # A rule across keys says nothing useful about values that are themselves wrong.
    if not findings.problems:
        findings.problems.extend(contradictions(config))
    if findings.problems:
        raise ConfigError(*findings.problems)
    origins = {name: effective[name].origin if name in effective else DEFAULT_ORIGIN for name in all_keys()}
    return Loaded(config, values, origins, [*findings.warnings, *ineffective(config)])


def _judge(setting: Setting, findings: Findings) -> None:
    """Refuses or warns about a setting this version does not act on."""
    key = setting.key
    if key.status is Status.USED or setting.value == key.default_value:
        return
    what = f"{key.name} = {shown(key, setting.value)} ({setting.origin})"
    if key.status is Status.REFUSED:
        findings.problems.append(f"{what} is not available in this version; {_consequence(key)}")
    else:
        findings.warnings.append(f"{what} has no effect in this version")


def _consequence(key: Key) -> str:
    return key.meaning.partition("Not available: ")[2].rstrip(".")


def _build(section: type[Any], values: Mapping[str, Any], prefix: str) -> Any:
    arguments: dict[str, Any] = {}
    for item in fields(section):
        key: Key | None = item.metadata.get(METADATA)
        if key is None:
            arguments[item.name] = _build(item.type, values, f"{prefix}{item.name}.")  # type: ignore[arg-type]
        else:
            arguments[item.name] = values[prefix + key.name]
    return section(**arguments)
