"""A server, and a client of each classic dialect, for tests that talk in the old generation's frames."""

import itertools

import pytest

from borzoi.model import requests as rq
from borzoi.wire.classic.dialect import Dialect
from support.classic_wire import logged_in
from support.in_process import LocalServer

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("classic") / "data") as running:
        yield running
        assert running.events.of("request failed unexpectedly") == []


@pytest.fixture(params=Dialect, ids=lambda dialect: dialect.name)
def dialect(request):
    return request.param


@pytest.fixture
def client(server, dialect):
    with logged_in(server.port, dialect) as connected:
        yield connected


@pytest.fixture
def stream(server):
    """A stream of this test's own, with a topic `t` of three partitions."""
    name = f"own-{next(NUMBERS)}"
    server.ask(rq.CreateStream(name))
    server.ask(rq.CreateTopic(name, 3, "t"))
    return name
