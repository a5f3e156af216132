"""The official suites of the older clients, unmodified, from their source distributions on the package index.

Every release ships one: iggy-py 0.4.0 a single test, apache-iggy 0.5.0 to 0.8.0 `test_iggy_sdk`, and 0.8.0
`test_tls` as well. All of them talk to one server on one port, at the same time. Two suites want their server
in a container, which is replaced by a stand-in that names the server under test; the certificates of the TLS
suite are not in the archive, so that it is given the server's own authority.
"""

import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from classic_container import PORT_VARIABLE

from support.clients import OfficialClient, official_client
from support.sdist import unpacked_sdist
from support.server import ServerProcess

SDK_SUITES = {"0.5.0": 15, "0.6.0": 17, "0.7.0": 18, "0.8.0": 18}
TLS_TESTS = 6
TLS_CLIENTS = ("0.6.0", "0.7.0", "0.8.0")
DEADLINE_S = 120
HERE = Path(__file__).parent


@pytest.mark.conformance
@pytest.mark.timeout(300)
def test_the_suites_of_all_older_clients_pass_against_one_server(tmp_path, capsys):
    clients = {version: official_client("apache-iggy", version) for version in SDK_SUITES}
    oldest = official_client("iggy-py", "0.4.0")
    roots = {client: unpacked_sdist(client) for client in (*clients.values(), oldest)}
    with ServerProcess(tmp_path / "data") as server, ThreadPoolExecutor() as threads:
        where = {"IGGY_SERVER_HOST": "127.0.0.1", "IGGY_SERVER_TCP_PORT": str(server.port)}
        runs = {
            client: threads.submit(
                run_suite,
                client,
                roots[client] / "foreign" / "python",
                "tests/test_iggy_sdk.py",
                roots[client] / "pyproject.toml",
                where,
                tmp_path,
            )
            for client in clients.values()
        }
        runs[oldest] = threads.submit(
            run_suite,
            oldest,
            roots[oldest],
            "tests",
            roots[oldest] / "pyproject.toml",
            stand_in(tmp_path, server),
            tmp_path,
        )
        results = {client: run.result() for client, run in runs.items()}
    with capsys.disabled():
        print()
        for client, (passed, failures) in results.items():
            print(f"official suite {client}: {passed} passed, {len(failures)} failed")
    assert [failure for _, failures in results.values() for failure in failures] == []
    assert {client: passed for client, (passed, _) in results.items()} == {
        oldest: 1,
        **{clients[version]: tests for version, tests in SDK_SUITES.items()},
    }


@pytest.mark.conformance
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", TLS_CLIENTS)
def test_the_tls_suite_passes(tmp_path, version):
    """That of 0.8.0, which older clients pass as well."""
    client = official_client("apache-iggy", version)
    source = unpacked_sdist(official_client("apache-iggy", "0.8.0"))
    root = tmp_path / "repository"
    shutil.copytree(source / "foreign" / "python" / "tests", root / "foreign" / "python" / "tests")
    certificates = root / "core" / "certs"
    certificates.mkdir(parents=True)
    environment = {"IGGY_TCP_TLS_ENABLED": "true"}
    with ServerProcess(tmp_path / "data", environment=environment) as server:
        shutil.copy(server.data / "tls" / "ca.pem", certificates / "iggy_ca_cert.pem")
        passed, failures = run_suite(
            client,
            root / "foreign" / "python",
            "tests/test_tls.py",
            source / "pyproject.toml",
            stand_in(tmp_path, server),
            tmp_path,
        )
    assert failures == []
    assert passed == TLS_TESTS


def stand_in(directory: Path, server: ServerProcess) -> dict[str, str]:
    """What makes a suite import the stand-in for its container library."""
    package = directory / "packages" / "testcontainers" / "core"
    package.mkdir(parents=True)
    (package / "container.py").write_text("from classic_container import DockerContainer\n")
    (package / "waiting_utils.py").write_text("from classic_container import wait_for_logs\n")
    return {"PYTHONPATH": f"{directory / 'packages'}:{HERE}", PORT_VARIABLE: str(server.port)}


def run_suite(
    client: OfficialClient,
    home: Path,
    tests: str,
    configuration: Path,
    environment: Mapping[str, str],
    results: Path,
) -> tuple[int, list[str]]:
    """How many tests passed, and the text of everything that did not."""
    junit = results / f"{client.version}.xml"
    done = subprocess.run(
        [
            *(str(client.python), "-m", "pytest", tests, "-c", str(configuration), "--rootdir", str(home)),
            *("-p", "no:cacheprovider", "--quiet", "--tb=short", f"--junitxml={junit}"),
        ],
        cwd=home,
        env=client.environment({"PYTHONDONTWRITEBYTECODE": "1", **environment}),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S,
        check=False,
    )
    if not junit.exists():
        raise RuntimeError(f"the suite of {client} left no results:\n{done.stdout}{done.stderr}")
    passed, failures = 0, []
    for case in ET.parse(junit).getroot().iter("testcase"):
        trouble = [child for child in case if child.tag in {"failure", "error", "skipped"}]
        passed += not trouble
        failures += [f"{client} {case.get('name')}: {child.tag}\n{child.text}" for child in trouble]
    return passed, failures
