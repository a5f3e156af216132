"""`borzoi user`: users, their passwords and what they may do.

Permissions are written as JSON, in the form that `borzoi user get --json` prints them; what is left out is
not allowed:

    {"general": {"read_streams": true},
     "streams": {"1": {"read_topics": true, "topics": {"2": {"poll_messages": true}}}}}
"""

import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from borzoi.cli.connection import Invocation, command_group, identifier, refuse, register, wrong_usage
from borzoi.cli.output import shown_time
from borzoi.cli.secret import ask_secret

if TYPE_CHECKING:
    from borzoi.model.permissions import Permissions


class Status(Enum):
    """Whether a user can log in."""

    ACTIVE = "active"
    INACTIVE = "inactive"


_User = Annotated[str, typer.Argument(metavar="USER", help="Id or name of a user.", show_default=False)]
_PERMISSIONS_HELP = 'JSON, as `user get --json` prints it: {"general": {"read_streams": true}}.'

user_commands = command_group("Create, show, change and delete users.\n\nExample: borzoi user create alice")


@register(user_commands, "create", "c")
def create(
    run: Invocation,
    username: Annotated[
        str, typer.Argument(metavar="USERNAME", help="Name to log in with.", show_default=False)
    ],
    password: Annotated[
        str | None,
        typer.Argument(metavar="PASSWORD", help="Asked for if not given.", show_default=False),
    ] = None,
    status: Annotated[
        Status, typer.Option("-u", "--user-status", help="Whether the user can log in.")
    ] = Status.ACTIVE,
    permissions: Annotated[
        str | None, typer.Option(metavar="JSON", help=_PERMISSIONS_HELP, show_default="none")
    ] = None,
) -> None:
    """Create a user. A password that is not given is asked for, or read from standard input.

    \b
        borzoi user create alice
        borzoi user create alice --permissions '{"general": {"read_streams": true}}' < password.txt
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.model.values import UserStatus

    allowed = None if permissions is None else _parse_permissions(permissions)
    secret = _secret(password, "Password", repeat=True)
    with run.connect() as client:
        user = client.create_user(username, secret, status=UserStatus[status.name], permissions=allowed)
    run.out.done(f'user "{username}" created, id {user.id}', id=user.id, username=user.username)


@register(user_commands, "get", "g")
def get(run: Invocation, user: _User) -> None:
    """Show a user and what they may do.

    \b
        borzoi user get alice
    """  # noqa: D301
    with run.connect() as client:
        found = client.get_user(identifier(user))
    if found is None:
        refuse(f'there is no user "{user}"; `borzoi user list` shows those there are')
    pairs: list[tuple[str, Any]] = [
        ("User ID", found.id),
        ("Username", found.username),
        ("Created", shown_time(found.created_at_us)),
        ("Status", found.status),
    ]
    granted = found.permissions
    pairs.append(("Global permissions", None if granted is None else _allowed(granted.general)))
    for stream_id, stream in granted.streams.items() if granted is not None else ():
        pairs.append((f"Stream {stream_id}", _allowed(stream)))
        pairs += [
            (f"Stream {stream_id}, topic {topic_id}", _allowed(topic))
            for topic_id, topic in stream.topics.items()
        ]
    run.out.properties(found, pairs)


@register(user_commands, "list", "l")
def list_users(run: Invocation) -> None:
    """Show all users.

    \b
        borzoi user list
    """  # noqa: D301
    with run.connect() as client:
        users = client.get_users()
    run.out.rows(
        users,
        ("ID", "Username", "Created", "Status"),
        ((each.id, each.username, shown_time(each.created_at_us), each.status) for each in users),
    )


@register(user_commands, "delete", "d")
def delete(run: Invocation, user: _User) -> None:
    """Delete a user.

    \b
        borzoi user delete alice
    """  # noqa: D301
    with run.connect() as client:
        client.delete_user(identifier(user))
    run.out.done(f'user "{user}" deleted', user=identifier(user))


@register(user_commands, "name", "n")
def rename(
    run: Invocation,
    user: _User,
    name: Annotated[str, typer.Argument(metavar="USERNAME", help="The new name.", show_default=False)],
) -> None:
    """Rename a user.

    \b
        borzoi user name alice bob
    """  # noqa: D301
    with run.connect() as client:
        client.update_user(identifier(user), username=name)
    run.out.done(f'user "{user}" is now "{name}"', user=identifier(user), username=name)


@register(user_commands, "status", "s")
def set_status(
    run: Invocation,
    user: _User,
    status: Annotated[Status, typer.Argument(help="Whether the user can log in.", show_default=False)],
) -> None:
    """Let a user log in, or not.

    \b
        borzoi user status alice inactive
    """  # noqa: D301
    from borzoi.model.values import UserStatus

    with run.connect() as client:
        client.update_user(identifier(user), status=UserStatus[status.name])
    run.out.done(f'user "{user}" is {status.value}', user=identifier(user), status=status.value)


@register(user_commands, "password", "pwd")
def password(
    run: Invocation,
    user: _User,
    current: Annotated[
        str | None, typer.Argument(metavar="CURRENT", help="Asked for if not given.", show_default=False)
    ] = None,
    new: Annotated[
        str | None, typer.Argument(metavar="NEW", help="Asked for if not given.", show_default=False)
    ] = None,
) -> None:
    """Change a password. Those not given are asked for, or read from standard input, a line each.

    \b
        borzoi user password alice
    """  # noqa: D301
    before = _secret(current, "Current password")
    after = _secret(new, "New password", repeat=True)
    with run.connect() as client:
        client.change_password(identifier(user), before, after)
    run.out.done(f'password of user "{user}" changed', user=identifier(user))


@register(user_commands, "permissions", "p")
def set_permissions(
    run: Invocation,
    user: _User,
    permissions: Annotated[
        str,
        typer.Argument(
            metavar="JSON", help=f'{_PERMISSIONS_HELP} "none" takes all away.', show_default=False
        ),
    ],
) -> None:
    """Replace what a user may do.

    \b
        borzoi user permissions alice '{"general": {"read_streams": true}}'
        borzoi user permissions alice none
    """  # noqa: D301
    allowed = None if permissions == "none" else _parse_permissions(permissions)
    with run.connect() as client:
        client.update_permissions(identifier(user), allowed)
    run.out.done(f'permissions of user "{user}" replaced', user=identifier(user), permissions=allowed)


def _parse_permissions(text: str) -> "Permissions":
    import msgspec

    from borzoi.cli.output import plain
    from borzoi.model.permissions import Permissions

    try:
        permissions = msgspec.json.decode(text, type=Permissions)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        wrong_usage(f"the permissions cannot be read: {error}")
    unknown = _unknown_keys(json.loads(text), plain(permissions))
    if unknown:
        wrong_usage(f"there is no permission {', '.join(sorted(unknown))}")
    return permissions


def _unknown_keys(given: dict[str, Any], understood: dict[str, Any]) -> set[str]:
    """Keys that were left aside: a permission that is misspelt must not get lost."""
    unknown = {f'"{key}"' for key in given if key not in understood}
    for key, value in given.items():
        if isinstance(value, dict) and key in understood:
            unknown |= _unknown_keys(value, understood[key])
    return unknown


def _allowed(flags: Any) -> str | None:
    names = [name for name in flags.__struct_fields__ if getattr(flags, name) is True]
    return ", ".join(names) or None


def _secret(given: str | None, prompt: str, *, repeat: bool = False) -> str:
    return ask_secret(prompt, repeat=repeat) if given is None else given
