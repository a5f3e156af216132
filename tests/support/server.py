"""A real server process for tests: started, awaited, killed, restarted on the same directory and port.

The process is the one a user runs, `python -m borzoi server`, with a clean environment: no `IGGY_*` or
`BORZOI_*` variable of the caller reaches it, only those passed in. Its output goes to a file, which is
printed when the `with` block ends in an exception and quoted when the server fails to start or stop.

`BORZOI_TEST_SERVER` replaces the command, to run the same suites against another build.
"""

import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from support.paths import REPOSITORY

HOST = "127.0.0.1"
READY_DEADLINE_S = 30.0
EXIT_DEADLINE_S = 30.0
LOG_TAIL_LINES = 60

COMMAND_VARIABLE = "BORZOI_TEST_SERVER"
READY_LINE = re.compile(r"ready.*\btcp=[\"']?[^\s\"':]+:(\d+)|\btcp=[\"']?[^\s\"':]+:(\d+).*ready")

# Ports the kernel does not hand out by itself: while the server is down nobody else, not even a client that
# dials the dead port, can be given the same number.
FIRST_FIXED_PORT = 20_000
LAST_FIXED_PORT = 32_000


class ServerError(Exception):
    """The server process did not do what every test takes for granted."""


class ServerProcess:
    """One server on one data directory, over any number of process lifetimes.

    `port` 0 lets the server choose on the first start; later starts reuse what it chose.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.port = port
        self.log = data.with_name(f"{data.name}.log")
        self._environment = _clean_environment(environment or {})
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> Self:
        """Starts the process and returns when it has said that it is ready."""
        self.spawn()
        self.wait_until_ready()
        return self

    def spawn(self) -> None:
        """Starts the process without waiting: for tests that kill it while it recovers."""
        if self._process is not None:
            raise ServerError("the server already runs")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start_bytes = self.log.stat().st_size if self.log.exists() else 0
        command = [*_command(), "--data", str(self.data), "--tcp", self.address, *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, deadline_s: float = READY_DEADLINE_S) -> None:
        process = self._running()
        give_up = time.monotonic() + deadline_s
        while time.monotonic() < give_up:
            found = READY_LINE.search(self._output())
            if found is not None:
                self.port = int(found.group(1) or found.group(2))
                return
            if process.poll() is not None:
                self._process = None
                raise ServerError(
                    f"the server exited with {process.returncode} before it was ready{self._quote()}"
                )
            time.sleep(0.01)
        self.kill()
        raise ServerError(f"the server was not ready within {deadline_s} s{self._quote()}")

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to flush anything."""
        process = self._running()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._process = None

    def terminate(self, deadline_s: float = EXIT_DEADLINE_S) -> None:
        """SIGTERM; a server that does not then exit with 0 in time is a failure."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server ignored SIGTERM for {deadline_s} s{self._quote()}") from None
        self._process = None
        if code != 0:
            raise ServerError(f"the server exited with {code} after SIGTERM{self._quote()}")

    def restart(self) -> None:
        """An orderly stop and a new process on the same directory and port."""
        self.terminate()
        self.start()

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(f"--- {self.log} ---\n{self.log_tail()}")
        process = self._process
        if process is None:
            return
        if process.poll() is not None:
            self._process = None
            if kind is None:
                raise ServerError(f"the server died with {process.returncode} during the test{self._quote()}")
        elif kind is None:
            self.terminate()
        else:
            self.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server does not run")
        return self._process

    def _output(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start_bytes)
            return log.read().decode(errors="replace")

    def _quote(self) -> str:
        return f"\n--- {self.log} ---\n{self.log_tail()}"


def fixed_port() -> int:
    """A free port that stays free while a server is down between two lifetimes."""
    for _ in range(100):
        port = random.randint(FIRST_FIXED_PORT, LAST_FIXED_PORT)
        if is_free(port):
            return port
    raise ServerError("no free port")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _command() -> list[str]:
    replaced = os.environ.get(COMMAND_VARIABLE)
    return shlex.split(replaced) if replaced else [sys.executable, "-m", "borzoi", "server"]


def _clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("IGGY_", "BORZOI_", "PYTEST"))
    }
    # The server may be asked for tracebacks at any time; colour codes would only hide the ready line.
    return {**inherited, "PYTHONFAULTHANDLER": "1", "NO_COLOR": "1", **settings}
