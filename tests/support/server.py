"""The server process that tests start, and ports that stay theirs while it is down.

`BORZOI_TEST_SERVER` replaces the command, to run the same suites against another build.
"""

import os
import random
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from borzoi.testing import process
from borzoi.testing.process import HOST, ServerError

__all__ = ["COMMAND_VARIABLE", "ServerError", "ServerProcess", "fixed_port", "is_free"]

COMMAND_VARIABLE = "BORZOI_TEST_SERVER"

# Ports the kernel does not hand out by itself: while the server is down nobody else, not even a client that
# dials the dead port, can be given the same number.
FIRST_FIXED_PORT = 20_000
LAST_FIXED_PORT = 32_000


class ServerProcess(process.ServerProcess):
    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        replaced = os.environ.get(COMMAND_VARIABLE)
        command = {"command": shlex.split(replaced)} if replaced else {}
        super().__init__(data, port=port, environment=environment, arguments=arguments, **command)


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
