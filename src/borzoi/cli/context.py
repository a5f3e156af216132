"""`borzoi context`: servers and logins that have a name; the active one is used by every command."""

from typing import Annotated, Any

import typer

from borzoi.cli.connection import Invocation, command_group, register_local, wrong_usage

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)]
_HIDDEN = "******"

context_commands = command_group(
    "Keep servers and logins under a name.\n\n"
    "Example: borzoi context create prod --tcp-server-address 192.0.2.7:8090 --username alice"
)


def _text(*names: str, metavar: str, text: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, show_default=False)


@register_local(context_commands, "list", "l")
def list_contexts(run: Invocation) -> None:
    """Show all contexts; the active one has a star.

    \b
        borzoi context list
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.cli import contexts_file

    active = contexts_file.active_name()
    found = contexts_file.contexts()
    run.out.rows(
        [
            {"name": name, "is_active": name == active, "tcp_server_address": each.text("tcp_server_address")}
            for name, each in found.items()
        ],
        ("Name", "Server"),
        (
            (f"{name}*" if name == active else name, each.text("tcp_server_address"))
            for name, each in found.items()
        ),
    )


@register_local(context_commands, "use", "u")
def use(run: Invocation, name: _Name) -> None:
    """Make a context the active one.

    \b
        borzoi context use prod
        borzoi context use default
    """  # noqa: D301
    from borzoi.cli import contexts_file

    contexts_file.use(name)
    run.out.done(f'context "{name}" is the active one', name=name)


@register_local(context_commands, "create", "c")
def create(
    run: Invocation,
    name: _Name,
    address: Annotated[
        str | None, _text("--tcp-server-address", metavar="HOST:PORT", text="Where the server is.")
    ] = None,
    username: Annotated[str | None, _text("-u", "--username", metavar="NAME", text="Who logs in.")] = None,
    password: Annotated[
        str | None, _text("-p", "--password", metavar="PASSWORD", text="Without it, commands ask for it.")
    ] = None,
    token: Annotated[
        str | None, _text("-t", "--token", metavar="TOKEN", text="Log in with this token.")
    ] = None,
    token_name: Annotated[
        str | None,
        _text("-n", "--token-name", metavar="NAME", text="A token of `pat create --store-token`."),
    ] = None,
    transport: Annotated[
        str | None, _text("--transport", metavar="tcp", text="Only tcp can be used.")
    ] = None,
    tls: Annotated[
        str | None, _text("--tcp-tls-enabled", metavar="true|false", text="Whether to encrypt.")
    ] = None,
    tls_domain: Annotated[
        str | None, _text("--tcp-tls-domain", metavar="NAME", text="The name in the certificate.")
    ] = None,
    tls_ca_file: Annotated[
        str | None, _text("--tcp-tls-ca-file", metavar="FILE", text="The authority to trust.")
    ] = None,
    encryption_key: Annotated[
        str | None, _text("--encryption-key", metavar="BASE64", text="For payloads; 32 bytes.")
    ] = None,
) -> None:
    """Keep a server and a login under a name. What is not given is as without a context.

    Everything is written to contexts.toml as it is, the password too; only you can read that file.

    \b
        borzoi context create prod --tcp-server-address 192.0.2.7:8090 --username alice
        borzoi context create staging --tcp-server-address 192.0.2.8:8090 --token-name deploy
    """  # noqa: D301
    from borzoi.cli import contexts_file

    if sum(each is not None for each in (username, token, token_name)) > 1:
        wrong_usage("give --username, --token or --token-name, one of them")
    if password is not None and username is None:
        wrong_usage("--password needs --username")
    if transport not in (None, "tcp"):
        wrong_usage(f"--transport {transport}: this command line speaks TCP only; write tcp")
    if tls not in (None, "true", "false"):
        wrong_usage(f'--tcp-tls-enabled is true or false, not "{tls}"')
    if address is not None:
        _check_address(address)
    keys = {
        "transport": transport,
        "tcp_server_address": address,
        "tcp_tls_enabled": None if tls is None else tls == "true",
        "tcp_tls_domain": tls_domain,
        "tcp_tls_ca_file": tls_ca_file,
        "username": username,
        "password": password,
        "token": token,
        "token_name": token_name,
        "encryption_key": encryption_key,
    }
    contexts_file.create(name, {key: value for key, value in keys.items() if value is not None})
    run.out.done(f'context "{name}" created; use it: borzoi context use {name}', name=name)


@register_local(context_commands, "delete", "d")
def delete(run: Invocation, name: _Name) -> None:
    """Delete a context. If it is the active one, `default` is now.

    \b
        borzoi context delete staging
    """  # noqa: D301
    from borzoi.cli import contexts_file

    was_active = contexts_file.delete(name)
    text = f'context "{name}" deleted'
    run.out.done(
        f'{text}; "{contexts_file.DEFAULT_NAME}" is now the active one' if was_active else text,
        name=name,
        was_active=was_active,
    )


@register_local(context_commands, "show", "s")
def show(
    run: Invocation,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the context.", show_default="the active one"),
    ] = None,
) -> None:
    """Show what a context says. Passwords, tokens and keys are shown as stars.

    \b
        borzoi context show prod
    """  # noqa: D301
    from borzoi.cli import contexts_file

    chosen = contexts_file.active() if name is None else contexts_file.get(name)
    shown = {
        key: _HIDDEN if key in contexts_file.SECRET_KEYS else value for key, value in chosen.keys.items()
    }
    is_active = chosen.name == contexts_file.active_name()
    run.out.properties(
        {"name": chosen.name, "is_active": is_active, "keys": _plain(shown)},
        [("Name", chosen.name), ("Active", is_active), *shown.items()],
    )


def _plain(value: Any) -> Any:
    """TOML has dates and times, JSON has not."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float) else str(value)


def _check_address(text: str) -> None:
    from borzoi.client.settings import parse_address

    parse_address(text)
