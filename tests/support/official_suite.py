"""Running the test suite that ships in an official client's source distribution, and counting its results.

The suite is run as it is, from the unpacked archive, by the client's own environment. What cannot run is
named in `DESELECTED`, each entry with what it needs; an entry is dropped as soon as the server under test
`serves` that. Results are read from the JUnit file and not from the exit code: the client is known to abort
at interpreter exit after all work is done.
"""

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from support.clients import OfficialClient
from support.server import COMMAND_VARIABLE

SUITE_DEADLINE_S = 1500
OUTPUT_TAIL_LINES = 80
DEFAULT_TCP_PORT = 8090

# The suite of 0.9.0 imports testcontainers at the top of this module; without it the collection would stop.
IGNORED_MODULES = ("tests/test_tls.py",)


@dataclass(frozen=True, slots=True)
class Deselection:
    """Tests whose node id starts with `prefix` need something that a run may not have."""

    prefix: str
    needs: str
    reason: str


# Pytest names a parameter by its value, or by its position when the value is too long for a name.
CONNECT = "tests/test_connectivity.py::TestConnectivity::test_valid_connection_string"

DESELECTED = (
    Deselection(f"{CONNECT}[iggy://", "tcp on 8090", "hard-coded TCP address"),
    Deselection(f"{CONNECT}[iggy+tcp://", "tcp on 8090", "hard-coded TCP address"),
    Deselection(f"{CONNECT}[connection_string2]", "tcp on 8090", "hard-coded TCP address with options"),
    Deselection(f"{CONNECT}[iggy+http://", "http", "hard-coded HTTP address"),
    Deselection(f"{CONNECT}[iggy+ws://", "websocket", "hard-coded WebSocket address"),
    Deselection(f"{CONNECT}[connection_string6]", "websocket", "hard-coded WebSocket address with options"),
    Deselection(f"{CONNECT}[iggy+quic://", "quic", "hard-coded QUIC address"),
    Deselection(
        "tests/test_http_config.py::TestHttpConfigAgainstServer", "http", "logs in, sends and polls over HTTP"
    ),
    Deselection(
        "tests/test_quic_config.py::TestAutoLoginAgainstServer", "quic", "connects and logs in over QUIC"
    ),
    Deselection(
        "tests/test_websocket_config.py::TestAutoLoginAgainstServer",
        "websocket",
        "connects and logs in over WebSocket",
    ),
    Deselection(
        "tests/test_producer.py::TestProducerValidationAndRetries"
        "::test_background_write_reconnects_after_server_restart",
        "server binary",
        "starts a server binary from a build tree",
    ),
)


# Where the suite of 0.9.0 looks for a server it can start by itself, below the root of its archive.
SERVER_BINARY = Path("target", "debug", "iggy-server")
SERVER_BINARY_SCRIPT = Path(__file__).with_name("server_binary.py")


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """Counts of one run, with the text of everything that did not pass."""

    passed: int
    skipped: int
    deselected: int
    failures: tuple[str, ...]
    output: str


def provide_server_binary(sdist: Path) -> None:
    """Puts a script that starts the server under test where the suite expects a compiled server."""
    binary = sdist / SERVER_BINARY
    binary.parent.mkdir(parents=True, exist_ok=True)
    interpreter, script = (shlex.quote(str(part)) for part in (sys.executable, SERVER_BINARY_SCRIPT))
    # The suite does not inherit the variable that replaces the server under test, so it is written down.
    replaced = shlex.quote(os.environ.get(COMMAND_VARIABLE, ""))
    binary.write_text(f"#!/bin/sh\n{COMMAND_VARIABLE}={replaced} exec {interpreter} {script}\n")
    binary.chmod(0o755)


def run_official_suite(
    client: OfficialClient, sdist: Path, port: int, serves: Collection[str], junit: Path
) -> SuiteResult:
    """Runs every test that needs nothing beyond what the server `serves`."""
    home = sdist / "foreign" / "python"
    skipped_prefixes = [entry.prefix for entry in DESELECTED if entry.needs not in serves]
    command = [
        *(str(client.python), "-m", "pytest", "tests"),
        *("-c", str(sdist / "pyproject.toml"), "--rootdir", str(home), "-p", "no:cacheprovider"),
        *("--quiet", "--tb=short", f"--junitxml={junit}"),
        *(f"--ignore={module}" for module in IGNORED_MODULES),
        *(f"--deselect={prefix}" for prefix in skipped_prefixes),
    ]
    environment = client.environment(
        {
            "IGGY_SERVER_HOST": "127.0.0.1",
            "IGGY_SERVER_TCP_PORT": str(port),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )
    done = subprocess.run(
        command,
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=SUITE_DEADLINE_S,
        check=False,
    )
    tail = "\n".join(done.stdout.splitlines()[-OUTPUT_TAIL_LINES:])
    if not junit.exists():
        raise RuntimeError(f"the suite ended with {done.returncode} and left no results:\n{tail}")
    return _read_results(junit, tail)


def _read_results(junit: Path, output: str) -> SuiteResult:
    passed = skipped = 0
    failures = []
    for case in ET.parse(junit).getroot().iter("testcase"):
        trouble = [child for child in case if child.tag in {"failure", "error"}]
        if trouble:
            text = trouble[0].text or trouble[0].get("message") or ""
            failures.append(f"{case.get('classname')}::{case.get('name')}\n{text}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    found = re.search(r"(\d+) deselected", output)
    return SuiteResult(passed, skipped, int(found.group(1)) if found else 0, tuple(failures), output)
