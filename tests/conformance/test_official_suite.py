"""The official client's own test suite, unmodified, against a fresh server."""

import pytest

from support.clients import official_client
from support.official_suite import DEFAULT_TCP_PORT, DESELECTED, provide_server_binary, run_official_suite
from support.sdist import unpacked_sdist
from support.server import ServerProcess, is_free

# What the suite of 0.9.0 holds for a server that serves TCP alone: 817 tests without the TLS containers, less
# eleven that log in over HTTP, QUIC or WebSocket and five hard-coded addresses of these.
MINIMUM_PASSED = 801
HARD_CODED_TCP_CASES = 3


@pytest.mark.conformance
@pytest.mark.timeout(1800)
def test_official_suite_passes_over_tcp(tmp_path, capsys):
    client = official_client("apache-iggy", "0.9.0")
    sdist = unpacked_sdist(client)
    provide_server_binary(sdist)
    serves = {"tcp", "server binary"}
    minimum = MINIMUM_PASSED
    if is_free(DEFAULT_TCP_PORT):
        port = DEFAULT_TCP_PORT
        serves.add("tcp on 8090")
    else:
        port = 0
        minimum -= HARD_CODED_TCP_CASES
        with capsys.disabled():
            print(
                f"\nport {DEFAULT_TCP_PORT} taken: {HARD_CODED_TCP_CASES} tests of that address are left out"
            )

    with ServerProcess(tmp_path / "data", port=port) as server:
        result = run_official_suite(client, sdist, server.port, serves, tmp_path / "results.xml")

    with capsys.disabled():
        print(
            f"\nofficial suite {client} over tcp: {result.passed} passed, {len(result.failures)} failed, "
            f"{result.deselected} deselected"
        )
        for entry in DESELECTED:
            if entry.needs not in serves:
                print(f"  left out, needs {entry.needs}: {entry.prefix} ({entry.reason})")
    assert not result.failures, "\n\n".join(result.failures)
    assert result.passed >= minimum, result.output
