"""The real broker for other people's tests: in the test's process, on a free port, in milliseconds.

    server      `Server`: start, stop, crash, clients, the clock, faults
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
    from borzoi.testing.server import Server

__all__ = ["Server"]


def __getattr__(name: str) -> object:
    if name != "Server":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from borzoi.testing.server import Server  # noqa: PLC0415 - see the docstring

    globals()[name] = Server
    return Server


def __dir__() -> list[str]:
    return __all__
