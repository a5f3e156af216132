"""What `borzoi doctor` looks at where a server runs, or would: data directory, ports, the server itself.

Looking disturbs nothing: the data directory's lock is not taken, only looked for, and ports are released at
once.
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from borzoi.cli.findings import Finding, State
from borzoi.cli.options import SERVER_VARIABLE
from borzoi.cli.output import shown_size
from borzoi.log.directory import FORMAT
from borzoi.model.errors import AccessDenied, BorzoiError
from borzoi.model.units import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from borzoi.cli.connection import Invocation

_HOST = "127.0.0.1"
# Port, what listens there by default, and of which kind it is.
PORTS = (
    (8090, "tcp", socket.SOCK_STREAM),
    (3000, "http", socket.SOCK_STREAM),
    (8080, "quic", socket.SOCK_DGRAM),
    (8092, "websocket", socket.SOCK_STREAM),
)
_ANSWER_S = 1.0
_FREE_BYTES_MIN, _FREE_BYTES_GOOD = 100 << 20, 1 << 30
_SKEW_WARNING_S, _SKEW_WRONG_S = 5.0, 60.0


def data_directory(path: Path) -> Iterator[Finding]:
    advice = "choose another: borzoi server --data DIR"
    if not path.exists():
        parent = next(each for each in (*path.absolute().parents, Path("/")) if each.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("data directory", State.OK, f"{path} is new; `borzoi server` makes it")
            yield _free_space(parent)
        else:
            yield Finding("data directory", State.WRONG, f"{parent} cannot be written", advice)
        return
    if not path.is_dir():
        yield Finding("data directory", State.WRONG, f"{path} is no directory", advice)
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(
            "data directory", State.WRONG, f"{path} cannot be written", f"chown or chmod it, or {advice}"
        )
        return
    owner = _lock_owner(path / "lock")
    yield Finding(
        "data directory",
        State.OK,
        f"{path}, {f'in use by the server with process id {owner}' if owner else 'not in use'}",
    )
    yield _data_format(path)
    yield _free_space(path)


def _data_format(path: Path) -> Finding:
    file = path / "format"
    try:
        found = json.loads(file.read_text())["format"]
    except FileNotFoundError:
        if (path / "streams").exists():
            return Finding(
                "data format", State.WRONG, f"{file} is missing", f'restore it: {{"format": {FORMAT}}}'
            )
        return Finding("data format", State.OK, "no data yet")
    except (OSError, ValueError, KeyError, TypeError):
        return Finding(
            "data format", State.WRONG, f"{file} cannot be read", f'it should say {{"format": {FORMAT}}}'
        )
    if type(found) is not int or found < 1:
        return Finding("data format", State.WRONG, f"{file} says {found!r}", "restore it from a backup")
    if found > FORMAT:
        return Finding(
            "data format", State.WRONG, f"{found}, this version reads up to {FORMAT}", "use a newer Borzoi"
        )
    return Finding("data format", State.OK, str(found))


def _free_space(path: Path) -> Finding:
    usage = shutil.disk_usage(path)
    found = f"{shown_size(usage.free)} of {shown_size(usage.total)} at {path}"
    advice = "free some, or limit topics: borzoi topic update --max-topic-size"
    if usage.free < _FREE_BYTES_MIN:
        return Finding("free space", State.WRONG, found, advice)
    if usage.free < _FREE_BYTES_GOOD:
        return Finding("free space", State.WARNING, found, advice)
    return Finding("free space", State.OK, found)


def _lock_owner(lock: Path) -> int | None:
    """The process that holds a lock on the file, as Linux tells it; None if there is none, or it does not."""
    try:
        inode = lock.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None


def ports() -> Iterator[Finding]:
    for number, name, kind in PORTS:
        yield port(number, name, kind)


def port(number: int, name: str, kind: socket.SocketKind) -> Finding:
    check = f"port {number} ({name})"
    with socket.socket(socket.AF_INET, kind) as trial:
        if kind is socket.SOCK_STREAM:
            # As the server does: a connection that has just ended does not count.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((_HOST, number))
            if kind is socket.SOCK_STREAM:
                trial.listen(1)
        except OSError as error:
            taken = error.strerror
        else:
            return Finding(check, State.OK, "free")
    if (name == "tcp" and _is_server(number)) or (name == "http" and _is_http_server(number)):
        return Finding(check, State.OK, "a Borzoi or Iggy server answers")
    owner = _process_at(number)
    found = f"taken by {owner}" if owner else f"taken: {taken}"
    flag = {"tcp": "tcp", "websocket": "ws"}.get(name, name)
    return Finding(
        check,
        State.WRONG if name == "tcp" else State.WARNING,
        found,
        f"stop that program, or choose another port: borzoi server --{flag} {_HOST}:PORT",
    )


def _is_server(number: int) -> bool:
    from borzoi.client.sync import Client

    client = Client(_HOST, number)
    try:
        client.connect(deadline_s=_ANSWER_S)
        client.ping(deadline_s=_ANSWER_S)
    except BorzoiError:
        return False
    finally:
        client.close()
    return True


def _is_http_server(number: int) -> bool:
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(_HOST, number, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().read(64).strip() == b"pong"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _process_at(number: int) -> str | None:
    """Name and id of the process at a port; None if the system does not tell, as about other users' ones."""
    import psutil

    try:
        for each in psutil.net_connections("inet"):
            if each.laddr and each.laddr.port == number and each.pid and not each.raddr:
                return f"{psutil.Process(each.pid).name()}, process id {each.pid}"
    except (psutil.Error, OSError):
        return None
    return None


def server(run: "Invocation") -> Iterator[Finding]:
    """The server that other commands would talk to, the login, and how far its clock is from ours."""
    is_named = bool(run.asked.server or run.asked.address or os.environ.get(SERVER_VARIABLE))
    try:
        place = run.place()
        settings = place.settings
        is_named |= place.context is not None and "tcp_server_address" in place.context.keys
        # First without the client, which would try again for a while.
        socket.create_connection((settings.host, settings.port), _ANSWER_S).close()
        with run.connect(log_in=False) as client:
            client.ping()
    except OSError as error:
        found = f"nothing answers at {settings.address}: {error.strerror or error}"
        if is_named:
            yield Finding("server", State.WRONG, found, "check the address, or start one: borzoi server")
        else:
            yield Finding("server", State.WARNING, found, "start one: borzoi server")
        return
    except BorzoiError as error:
        yield Finding("server", State.WRONG, str(error), error.hint or "check address and context")
        return
    try:
        with run.connect() as client:
            yield Finding("server", State.OK, f"answers at {settings.address}, the login is right")
            before_us = time.time_ns() // 1000
            stats = client.get_stats()
            after_us = time.time_ns() // 1000
    except BorzoiError as error:
        if isinstance(error, AccessDenied):
            advice = error.hint or "check the login"
            yield Finding("server", State.WRONG, f"{settings.address} does not let us in: {error}", advice)
        else:
            yield Finding("server", State.WRONG, str(error), error.hint or "look at the server's log")
        return
    now_us = stats.start_time_us + stats.run_time_us
    yield server_clock(now_us, before_us, after_us)


def server_clock(server_us: int, before_us: int, after_us: int) -> Finding:
    """The server's clock was read some time between the two of ours."""
    apart_s = max(before_us - server_us, server_us - after_us, 0) / MICROSECONDS_PER_SECOND
    found = f"{apart_s:.1f} s apart" if apart_s >= 1 else "less than a second apart"
    if apart_s < _SKEW_WARNING_S:
        return Finding("server's clock", State.OK, found)
    state = State.WRONG if apart_s >= _SKEW_WRONG_S else State.WARNING
    return Finding("server's clock", state, found, "set both clocks, for example with NTP")
