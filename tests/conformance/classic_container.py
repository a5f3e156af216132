"""Takes the place of the container library in official suites that want a server in a container.

The server is started by the test that runs the suite; this only says where it is. What a suite tells its
container (image, environment, volumes) is taken and ignored.
"""

import os
from typing import Any, Self

PORT_VARIABLE = "STAND_IN_PORT"


class DockerContainer:
    def __init__(self, image: str) -> None:
        self.image = image

    def _told(self, *_: Any, **__: Any) -> Self:
        return self

    with_exposed_ports = with_env = with_volume_mapping = with_kwargs = _told

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        """The server outlives the suite."""

    def get_container_host_ip(self) -> str:
        return "127.0.0.1"

    def get_exposed_port(self, _: int) -> str:
        return os.environ[PORT_VARIABLE]


def wait_for_logs(*_: Any, **__: Any) -> None:
    """The server was ready before the suite began."""
