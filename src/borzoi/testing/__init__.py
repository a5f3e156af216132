"""The real broker for other people's tests: in the test's process, in milliseconds, or in one of its own.

    server      `Server`: start, stop, crash, clients, the clock, faults
    process     `ServerProcess`: `borzoi server` in another process, to be killed and started again
    serving     one run of it: the event loop in a thread and what lives on it
    faults      a broker and a listener that fail and dawdle when told to
    settings    configuration keys as Python values
    plugin      fixtures for pytest, found by pytest itself

Pytest loads the plugin, and with it this package, at every start of every test run of whoever has Borzoi
installed; so everything else is loaded when first used.
"""

# What type checkers take for true; importing `typing` for it would cost more than the rest of this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from borzoi.testing.process import ServerProcess
    from borzoi.testing.server import Server

_MODULES = {"Server": "borzoi.testing.server", "ServerProcess": "borzoi.testing.process"}

__all__ = ["Server", "ServerProcess"]


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
