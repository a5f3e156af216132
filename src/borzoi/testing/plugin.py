"""Fixtures for pytest, which finds them by the distribution's entry point; nothing has to be imported.

    borzoi_server           a server of the test's own, in memory
    borzoi                  a connected `borzoi.Client` of that server
    borzoi_async            a connected `borzoi.AsyncClient` of that server
    borzoi_session_server   one server for the whole run, for tests that do not mind each other's streams

`@pytest.mark.borzoi_settings({"heartbeat.interval": "5s"})` configures `borzoi_server`. The asynchronous
fixture needs pytest-asyncio or anyio's plugin.

Loaded at every start of pytest, so this imports nothing that pytest has not imported anyway.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from borzoi import AsyncClient, Client
    from borzoi.testing.server import Server

_MARKER = "borzoi_settings"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARKER}(settings, **keywords): configuration keys of the borzoi_server fixture"
    )


@pytest.fixture
def borzoi_server(request: pytest.FixtureRequest) -> "Iterator[Server]":
    """A Borzoi server of the test's own, with no streams; configured by the marker `borzoi_settings`."""
    from borzoi.testing.server import Server  # noqa: PLC0415 - see the module's docstring

    settings: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(_MARKER))):  # the nearest has the last word
        for each in marker.args:
            settings.update(each)
        settings.update({name.replace("__", "."): value for name, value in marker.kwargs.items()})
    with Server(memory=True, settings=settings) as server:
        yield server


@pytest.fixture(scope="session")
def borzoi_session_server() -> "Iterator[Server]":
    """One Borzoi server for all tests of the run; they see each other's streams."""
    from borzoi.testing.server import Server  # noqa: PLC0415 - see the module's docstring

    with Server(memory=True) as server:
        yield server


@pytest.fixture
def borzoi(borzoi_server: "Server") -> "Iterator[Client]":
    """A connected client of `borzoi_server`, logged in as root."""
    with borzoi_server.client() as client:
        yield client


async def _borzoi_async(borzoi_server: "Server") -> "AsyncIterator[AsyncClient]":
    """A connected asyncio client of `borzoi_server`, logged in as root."""
    async with borzoi_server.async_client() as client:
        yield client


borzoi_async: Any
try:
    from pytest_asyncio import fixture as _async_fixture
except ImportError:
    borzoi_async = pytest.fixture(_borzoi_async, name="borzoi_async")  # anyio's plugin runs it
else:
    borzoi_async = _async_fixture(_borzoi_async, name="borzoi_async")
