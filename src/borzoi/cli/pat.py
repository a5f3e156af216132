"""`borzoi pat`: personal access tokens, to log in with instead of a password."""

from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.connection import Invocation, command_group, register, wrong_usage
from borzoi.cli.output import shown_time

if TYPE_CHECKING:
    from borzoi.client.sync import Client

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.", show_default=False)]

token_commands = command_group(
    "Create, list and delete your personal access tokens.\n\nExample: borzoi pat create deploy 30 days"
)


@register(token_commands, "create", "c")
def create(
    run: Invocation,
    name: _Name,
    expiry: Annotated[
        list[str] | None,
        typer.Argument(metavar="EXPIRY", help="How long it is valid.", show_default="for ever"),
    ] = None,
    store_token: Annotated[
        bool,
        typer.Option(
            "-s",
            "--store-token",
            help="Keep it for --token-name instead of printing it.",
            show_default="print",
        ),
    ] = False,
) -> None:
    """Create a token for yourself and print it: only now can it be seen.

    With --quiet the token is all that is printed.

    \b
        borzoi pat create deploy 30 days
        BORZOI_SERVER=iggy://TOKEN@127.0.0.1:8090 borzoi me
        borzoi pat create deploy --store-token
        borzoi --token-name deploy me
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.model.units import parse_expiry

    try:
        expiry_us = parse_expiry(" ".join(expiry)) if expiry else None
    except ValueError as error:
        wrong_usage(f"EXPIRY: {error}")
    with run.connect() as client:
        made = client.create_personal_access_token(name, expiry=expiry_us)
        if store_token:
            _store(run, client, name, made.token)
            run.out.done(f'token "{name}" stored; use it: borzoi --token-name {name} me', name=name)
            return
    if run.out.quiet:
        run.out.result(made.token)
    else:
        run.out.done(f"Token: {made.token}", name=name, token=made.token)


@register(token_commands, "list", "l")
def list_tokens(run: Invocation) -> None:
    """Show the names of your tokens and when they expire.

    \b
        borzoi pat list
    """  # noqa: D301
    with run.connect() as client:
        tokens = client.get_personal_access_tokens()
    run.out.rows(
        tokens,
        ("Name", "Expires"),
        ((each.name, shown_time(each.expires_at_us) if each.expires_at_us else "never") for each in tokens),
    )


@register(token_commands, "delete", "d")
def delete(run: Invocation, name: _Name) -> None:
    """Delete a token: nobody can log in with it any more. If it is stored here, that is removed too.

    \b
        borzoi pat delete deploy
    """  # noqa: D301
    from borzoi.cli.tokens_file import forget_token

    with run.connect() as client:
        client.delete_personal_access_token(name)
    forget_token(run.place().key, name)
    run.out.done(f'token "{name}" deleted', name=name)


def _store(run: Invocation, client: "Client", name: str, token: str) -> None:
    """A token that cannot be kept can never be seen again, so it is not left behind on the server."""
    from borzoi.cli.tokens_file import store_token

    try:
        store_token(run.place().key, name, token)
    except BaseException:
        client.delete_personal_access_token(name)
        raise
