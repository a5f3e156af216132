"""`borzoi client`: who is connected to the server."""

from typing import Annotated

import typer

from borzoi.cli.connection import Invocation, command_group, refuse, register
from borzoi.cli.output import print_table

client_commands = command_group("Show who is connected.\n\nExample: borzoi client list")


@register(client_commands, "get", "g")
def get(
    run: Invocation,
    client_id: Annotated[
        int, typer.Argument(metavar="CLIENT_ID", min=0, help="As in the list.", show_default=False)
    ],
) -> None:
    """Show a connected client and the groups it is a member of.

    \b
        borzoi client get 1
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        found = client.get_client(client_id)
    if found is None:
        refuse(f"no client {client_id} is connected; `borzoi client list` shows those that are")
    run.out.properties(
        found,
        [
            ("Client ID", found.client_id),
            ("User ID", found.user_id),
            ("Address", found.address),
            ("Transport", found.transport),
            ("Groups", found.consumer_groups_count),
        ],
    )
    if not run.out.as_json and found.consumer_groups:
        print()
        print_table(
            ("Stream ID", "Topic ID", "Group ID"),
            ((each.stream_id, each.topic_id, each.group_id) for each in found.consumer_groups),
        )


@register(client_commands, "list", "l")
def list_clients(run: Invocation) -> None:
    """Show all connected clients; this command is one of them.

    \b
        borzoi client list
    """  # noqa: D301
    with run.connect() as client:
        clients = client.get_clients()
    run.out.rows(
        clients,
        ("Client ID", "User ID", "Address", "Transport", "Groups"),
        (
            (each.client_id, each.user_id, each.address, each.transport, each.consumer_groups_count)
            for each in clients
        ),
    )
