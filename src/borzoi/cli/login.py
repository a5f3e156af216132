"""`borzoi login`, `logout` and `session`: log in once, then run commands without a password.

A session is a personal access token of a fixed name, which `login` makes on the server and keeps in a file
(`borzoi.cli.tokens_file`), by the server's address. It is one for each user: logging in somewhere else as the
same user ends it.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.connection import (
    Invocation,
    command_group,
    is_session_over,
    refuse,
    register,
    single_command,
    wrong_usage,
)
from borzoi.cli.options import CONNECTING, LOGGING_IN
from borzoi.cli.output import shown_time

if TYPE_CHECKING:
    from borzoi.cli.target import Target

SESSION_NAME = "iggy-cli-session"
_DEFAULT_EXPIRY = "15 minutes"

login_command, logout_command = single_command(), single_command()
session_commands = command_group("Show whether you are logged in.\n\nExample: borzoi session status")


@register(login_command, "login", options=LOGGING_IN)
def login(
    run: Invocation,
    expiry: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPIRY", help='How long: "8 hours", or none for ever.', show_default=_DEFAULT_EXPIRY
        ),
    ] = None,
) -> None:
    """Log in once: later commands need no password until the session expires.

    The session is a token in a file that only you can read; `borzoi logout` ends it.

    \b
        borzoi login --username alice
        borzoi login 8 hours --username alice
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.cli import tokens_file
    from borzoi.model.units import EXPIRY_SERVER_DEFAULT, parse_expiry

    try:
        expiry_us = parse_expiry(" ".join(expiry) if expiry else _DEFAULT_EXPIRY)
    except ValueError as error:
        wrong_usage(f"EXPIRY: {error}")
    if expiry_us == EXPIRY_SERVER_DEFAULT:
        wrong_usage('EXPIRY: write a duration, for example "8 hours", or none for a session without an end')
    place, asked = run.place(), run.asked
    address = place.key
    names_somebody = asked.username or asked.token or asked.token_name or place.settings.credentials
    if not expiry and not names_somebody and _is_alive(run):
        run.out.done(f"already logged in at {address}", address=address, is_new=False, expires_at=None)
        return
    with run.connect_to(_who(run)) as client:
        tokens = client.get_personal_access_tokens()
        if any(each.name == SESSION_NAME for each in tokens):
            client.delete_personal_access_token(SESSION_NAME)
        made = client.create_personal_access_token(SESSION_NAME, expiry=expiry_us)
        try:
            tokens_file.store_session(address, made.token)
        except BaseException:  # nobody could use it, and nobody would delete it
            client.delete_personal_access_token(SESSION_NAME)
            raise
        (kept,) = (each for each in client.get_personal_access_tokens() if each.name == SESSION_NAME)
    until = f"until {shown_time(kept.expires_at_us)}" if kept.expires_at_us else "until you log out"
    run.out.done(
        f"logged in at {address}, {until}", address=address, is_new=True, expires_at=kept.expires_at_us
    )


@register(logout_command, "logout")
def logout(run: Invocation) -> None:
    """End the session, on the server too.

    \b
        borzoi logout
    """  # noqa: D301
    from borzoi.cli import tokens_file
    from borzoi.model.errors import BorzoiError

    address = run.place().key
    target = _session(run)
    if target is None:
        refuse(f"not logged in at {address}")
    text = f"logged out at {address}"
    try:
        with run.connect_to(target) as client:
            client.delete_personal_access_token(SESSION_NAME)
            tokens_file.forget_session(address)
    except BorzoiError as error:
        if not is_session_over(error):
            raise
        text += "; the session had ended already"
    run.out.done(text, address=address)


@register(session_commands, "status", "s", options=CONNECTING)
def status(run: Invocation) -> None:
    """Show whether there is a session for a server, without asking the server.

    \b
        borzoi session status
    """  # noqa: D301
    from borzoi.cli import tokens_file

    address = run.place().key
    is_active = tokens_file.session(address) is not None
    run.out.properties(
        {"server_address": address, "session_active": is_active},
        [("Server address", address), ("Session active", is_active)],
    )


def _who(run: Invocation) -> "Target":
    """The login that a session is made with; the one there is, if there is no other."""
    from borzoi.cli.target import NoCredentials, resolve

    try:
        return resolve(run.asked, use_session=False)
    except NoCredentials:
        target = _session(run)
        if target is None:
            raise
        return target


def _session(run: Invocation) -> "Target | None":
    from dataclasses import replace

    from borzoi.cli import tokens_file
    from borzoi.cli.target import Source, Target
    from borzoi.model.requests import LoginWithToken

    place = run.place()
    token = tokens_file.session(place.key)
    if token is None:
        return None
    return Target(replace(place.settings, credentials=LoginWithToken(token)), Source.SESSION)


def _is_alive(run: Invocation) -> bool:
    """Whether there is a session that the server still takes; one that it does not is forgotten."""
    from borzoi.model.errors import BorzoiError

    target = _session(run)
    if target is None:
        return False
    try:
        with run.connect_to(target) as client:
            client.ping()
    except BorzoiError as error:
        if not is_session_over(error):
            raise
        return False
    return True
