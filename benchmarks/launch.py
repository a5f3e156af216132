"""Server processes of a benchmark: start, wait for the ready line, read their CPU clock, stop."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

READY_DEADLINE_S = 20.0
EXIT_DEADLINE_S = 20.0
READY_PORT = re.compile(r"\btcp=[\"']?[^\s\"':]+:(\d+)")


class Launched:
    """One running server, listening on `port`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("IGGY_", "BORZOI_"))}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(command),
                env={**inherited, "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.port = self._wait_until_ready()

    def cpu_s(self) -> float:
        """CPU time the process and its threads have used, from its own clock: nanoseconds, not ticks."""
        process_clock = (~self._process.pid << 3) | 2
        return time.clock_gettime(process_clock)

    def pin(self, cores: set[int]) -> None:
        """Restricts every thread the server has now; threads it starts later inherit it."""
        for thread in os.listdir(f"/proc/{self._process.pid}/task"):
            os.sched_setaffinity(int(thread), cores)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(EXIT_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _wait_until_ready(self) -> int:
        give_up = time.monotonic() + READY_DEADLINE_S
        while time.monotonic() < give_up and self._process.poll() is None:
            for line in self._log.read_text(errors="replace").splitlines():
                found = READY_PORT.search(line)
                if "ready" in line and found:
                    return int(found.group(1))
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"the server did not get ready:\n{self._log.read_text(errors='replace')}")
