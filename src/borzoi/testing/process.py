"""`ServerProcess`: the broker as users run it, in a process of its own that a test may kill.

    with ServerProcess() as server, server.client() as client:
        client.create_stream("orders")
        server.kill()
        server.start()

The process is `python -m borzoi server` with a clean environment: no `IGGY_*` or `BORZOI_*` variable of the
caller reaches it, only the settings that are passed. Its output goes to a file beside the data, which is
shown when the `with` block ends in an exception and quoted when the server fails to start or to stop.

Nobody can move the clock of another process, or let its writes fail: for that there is `Server`.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from borzoi.client.aio import AsyncClient
from borzoi.client.sync import Client
from borzoi.server.config.schema import environment_name
from borzoi.testing.settings import SettingValue, by_key

HOST = "127.0.0.1"
READY_DEADLINE_S = 30.0
EXIT_DEADLINE_S = 30.0
_LOG_TAIL_LINES = 60
_POLL_S = 0.01
_READY_LINE = re.compile(r"ready.*\btcp=[\"']?[^\s\"':]+:(\d+)|\btcp=[\"']?[^\s\"':]+:(\d+).*ready")


class ServerError(Exception):
    """The server process did not do what every test takes for granted."""


class ServerProcess:
    """One server on one data directory, over any number of process lifetimes.

    `data` stays; without it there is a temporary directory, which the end of the `with` block removes. `port`
    0 lets the server choose on the first start; later starts reuse what it chose. `settings` and keyword
    arguments are configuration keys, as for `Server`; `environment` and `arguments` are passed on as given.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, SettingValue] | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        command: Sequence[str] = (sys.executable, "-m", "borzoi", "server"),
        **keywords: SettingValue,
    ) -> None:
        texts = by_key(settings, keywords)
        self._temporary: Path | None = None
        if data is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="borzoi-test-"))
            data = self._temporary / "data"
        self.data = data
        self.port = port
        self.log = self.data.with_name(f"{self.data.name}.log")
        self._environment = _clean_environment(
            {environment_name(key): text for key, text in texts.items()} | dict(environment or {})
        )
        self._command = (*command, "--data", str(self.data))
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connection_string(self) -> str:
        """For clients that log in as root, whose password is the default one."""
        return f"iggy://iggy:iggy@{self.address}"

    def client(self, **options: Any) -> Client:
        """A new client, root's unless `options` (those of `borzoi.Client`) say otherwise. To be closed."""
        return Client(self.connection_string, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """The same for asyncio: a `borzoi.AsyncClient`."""
        return AsyncClient(self.connection_string, **options)

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
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the server, with the test's own arguments
                [*self._command, "--tcp", self.address, *self._arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, deadline_s: float = READY_DEADLINE_S) -> None:
        process = self._running()
        give_up_s = time.monotonic() + deadline_s
        while time.monotonic() < give_up_s:
            found = _READY_LINE.search(self._output())
            if found is not None:
                self.port = int(found.group(1) or found.group(2))
                return
            if process.poll() is not None:
                self._process = None
                raise ServerError(
                    f"the server exited with {process.returncode} before it was ready{self._quote()}"
                )
            time.sleep(_POLL_S)
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
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._remove()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end(kind)
        finally:
            self._remove()

    def _end(self, kind: type[BaseException] | None) -> None:
        if kind is not None:
            print(f"--- {self.log} ---\n{self.log_tail()}")  # noqa: T201 - test runners show it
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

    def _remove(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("IGGY_", "BORZOI_", "PYTEST"))
    }
    # The server may be asked for tracebacks at any time; colour codes would only hide the ready line.
    return {**inherited, "PYTHONFAULTHANDLER": "1", "NO_COLOR": "1", **settings}
