"""`borzoi server`: turns flags into settings, loads the configuration and hands over to the server."""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

_EXIT_UNUSABLE = 2


def server(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings in TOML.", show_default="what IGGY_CONFIG_PATH names, or none"
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where all data is kept.", show_default="local_data")
    ] = None,
    tcp: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Listen here; port 0 picks a free one.", show_default="127.0.0.1:8090"
        ),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT|off", help="HTTP listener.", show_default="off")
    ] = None,
    quic: Annotated[
        str | None, typer.Option(metavar="HOST:PORT|off", help="QUIC listener.", show_default="off")
    ] = None,
    ws: Annotated[
        str | None, typer.Option(metavar="HOST:PORT|off", help="WebSocket listener.", show_default="off")
    ] = None,
    shards: Annotated[int, typer.Option(metavar="N", min=1, help="Processes that share the work.")] = 1,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Delete all data in the data directory first.", show_default="keep it"),
    ] = False,
) -> None:
    """Run a server until SIGTERM or Ctrl-C.

    Settings come from the file, then IGGY_* variables, then these flags; the later one wins. One line with
    the word "ready" is logged when clients can connect.

    \b
    A throw-away server on a free port:
        borzoi server --data ./try --fresh --tcp 127.0.0.1:0

    \b
    Every acknowledged message on the device:
        IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC=true borzoi server
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.server.config import ConfigError, load

    for flag, value in (("--http", http), ("--quic", quic), ("--ws", ws)):
        if value not in {None, "off"}:
            _refuse(f"{flag} {value}: this listener is not available in this version; write {flag} off")
    if shards != 1:
        _refuse(f"--shards {shards}: more than one shard is not available in this version; write --shards 1")

    flags: dict[str, str] = {}
    flag_names: dict[str, str] = {}

    def put(flag: str, key: str, value: str) -> None:
        flags[key], flag_names[key] = value, flag

    if data is not None:
        put("--data", "system.path", data)
    if tcp is not None:
        put("--tcp", "tcp.enabled", "true")
        put("--tcp", "tcp.address", tcp)
    for flag, key, value in (
        ("--http", "http.enabled", http),
        ("--quic", "quic.enabled", quic),
        ("--ws", "websocket.enabled", ws),
    ):
        if value == "off":
            put(flag, key, "false")
    try:
        loaded = load(path=config, env=os.environ, flags=flags, flag_names=flag_names)
    except ConfigError as error:
        _refuse(*error.problems)

    from borzoi.server.app import run

    raise typer.Exit(run(loaded, fresh=fresh))


def _refuse(*problems: str) -> NoReturn:
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    raise typer.Exit(_EXIT_UNUSABLE)
