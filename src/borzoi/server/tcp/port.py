"""Taking a TCP port."""

import socket

from borzoi.server.config import split_address
from borzoi.server.errors import StartError

BACKLOG = 1024


def take_port(address: str) -> socket.socket:
    """A socket that listens on `host:port`; nobody accepts its connections yet. Raises StartError."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise StartError(f"cannot listen on {address}: {error.strerror}") from error
    listening.setblocking(False)
    return listening


def address_of(port: socket.socket) -> str:
    """The address it really has, also if the port was left to the system."""
    bound = port.getsockname()
    return f"[{bound[0]}]:{bound[1]}" if port.family == socket.AF_INET6 else f"{bound[0]}:{bound[1]}"
