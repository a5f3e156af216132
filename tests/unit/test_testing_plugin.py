"""The pytest plugin, seen from a test suite of somebody else's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import REPOSITORY

pytest_plugins = ["pytester"]

INI = """
[pytest]
asyncio_mode = {mode}
asyncio_default_fixture_loop_scope = function
addopts = --strict-markers -p no:cacheprovider
filterwarnings = error
"""


@pytest.fixture
def run(pytester):
    def run(text, mode="auto", *, passed):
        pytester.makeini(INI.format(mode=mode))
        pytester.makepyfile(text)
        # In a process of its own, because NumPy cannot be imported twice in one.
        result = pytester.runpytest_subprocess(timeout=60)
        result.assert_outcomes(passed=passed)

    return run


def test_servers_are_fresh_shared_or_configured_as_documented(run):
    run(
        """
        import pytest

        pytestmark = pytest.mark.borzoi_settings({"root.username": "far", "root.password": "secret"})

        @pytest.mark.parametrize("n", [1, 2])
        def test_every_test_has_a_server_of_its_own(borzoi, borzoi_server, n):
            assert not borzoi.get_streams()
            borzoi.create_stream("orders")
            assert borzoi.address == borzoi_server.address

        def test_the_session_server_is_the_same(borzoi_session_server):
            with borzoi_session_server.client() as client:
                client.create_stream("shared")

        def test_for_all_tests(borzoi_session_server):
            with borzoi_session_server.client() as client:
                assert client.get_stream("shared") is not None

        def test_markers_configure_the_server(borzoi):
            assert borzoi.get_user("far") is not None

        @pytest.mark.borzoi_settings(root__username="near")
        def test_and_the_nearest_wins(borzoi):
            assert borzoi.get_user("near") is not None
            assert borzoi.get_user("far") is None
        """,
        passed=6,
    )


def test_the_async_client_works_in_the_strict_mode_of_pytest_asyncio(run):
    run(
        """
        import pytest

        @pytest.mark.asyncio
        async def test_async(borzoi_async, borzoi):
            await borzoi_async.create_stream("orders")
            assert borzoi.get_stream("orders") is not None
        """,
        "strict",
        passed=1,
    )


def test_the_documented_examples_run(run):
    text = (REPOSITORY / "docs" / "testing.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(examples) == 5
    run("import pytest\nrun_my_program = len\n" + "\n".join(examples), "auto", passed=5)


def test_the_plugin_loads_nothing_that_takes_time():
    code = (
        "import pytest, pytest_asyncio, sys; before = set(sys.modules); import borzoi.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == ["borzoi", "borzoi.testing", "borzoi.testing.plugin"]


def test_without_pytest_asyncio_the_fixtures_are_there():
    code = (
        "import sys; sys.modules['pytest_asyncio'] = None; import borzoi.testing.plugin as plugin; "
        "print(type(plugin.borzoi_async).__name__)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "FixtureFunctionDefinition"


def test_a_server_that_nobody_closed_does_not_outlive_the_process():
    code = "from borzoi.testing import Server; s = Server(memory=True); s.start(); print(s.path)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stderr == ""
    assert not Path(ended.stdout.strip()).exists()
