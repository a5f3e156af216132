"""One walk through everything a user does with the official client, across a restart of the server."""

import subprocess
import threading
from pathlib import Path

import pytest

from support.clients import official_client
from support.server import ServerProcess, fixed_port

SCRIPT = Path(__file__).with_name("walkthrough.py")
DEADLINE_S = 150


@pytest.mark.conformance
@pytest.mark.timeout(300)
def test_a_user_walks_through_the_server_with_the_official_client(tmp_path):
    client = official_client("apache-iggy", "0.9.0")
    with ServerProcess(tmp_path / "data", port=fixed_port()) as server:
        walk = subprocess.Popen(
            [str(client.python), str(SCRIPT), server.address],
            env=client.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        watchdog = threading.Timer(DEADLINE_S, walk.kill)
        watchdog.start()
        lines = []
        try:
            for line in walk.stdout:
                lines.append(line)
                if line == "restart please\n":
                    server.restart()
                    walk.stdin.write("restarted\n")
                    walk.stdin.flush()
            walk.wait()
        finally:
            watchdog.cancel()
            watchdog.join()
            walk.kill()
            walk.stdin.close()
            walk.stdout.close()
            walk.wait()
        assert lines[-1:] == ["done\n"], "".join(lines)
