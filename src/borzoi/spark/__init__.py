"""Borzoi as a source and a sink of Apache Spark.

    sessions    a Spark session that works from PyPI packages alone, with settings that fit streams
    java        which Java that session runs on
    shipping    how the package reaches the workers of a cluster
    formats     payloads into columns and columns into payloads

`spark.read.format("borzoi")` and its streaming kin need nothing from here: Spark finds the source by the name
of the module `pyspark_borzoi`. Every worker process of Spark imports this package, so everything is loaded
when first used, and pyspark only by those who call `session` or `pipe`.
"""

import sys
from types import ModuleType

# What type checkers take for true; importing `typing` for it would cost more than the rest of this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from borzoi.spark.pipe import pipe
    from borzoi.spark.sessions import session

_MODULES = {"pipe": "borzoi.spark.pipe", "session": "borzoi.spark.sessions"}

__all__ = ["pipe", "session"]


class _Package(ModuleType):
    """Keeps `borzoi.spark.pipe` the function: importing the module of that name would put itself there."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see the docstring

    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
