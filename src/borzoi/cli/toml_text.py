"""Values as TOML, for files that the command line rewrites; Python itself only reads TOML.

What `tomllib` gives for the text that is written equals what was given. Comments and the order of keys are
not part of a value: whoever reads a file and writes it again loses the comments.
"""

import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def tables(content: Mapping[str, Mapping[str, Any]]) -> str:
    """A file of tables: `[name]`, then a line for each key. Tables inside of them are written in line."""
    return "\n".join(f"[{_key(name)}]\n{pairs(table)}" for name, table in content.items())


def pairs(table: Mapping[str, Any]) -> str:
    """A line for each key."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else _string(text)


def _string(text: str) -> str:
    # JSON escapes as TOML wants it, but for one control character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int():
            return str(value)
        case float():
            return _float(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
