"""What may be built on top of a client: which connection it uses, which groups it is in, another one like it.

A producer or a consumer needs no more of a client than its methods and this. A membership in a group ends
with its connection, so whoever depends on one has to notice that there is another connection. These are
functions and not methods because programs that only make calls have no use for them.
"""

from dataclasses import replace

from borzoi.client.aio import AsyncClient
from borzoi.client.base import ClientBase
from borzoi.client.memberships import GroupKey
from borzoi.client.settings import Settings
from borzoi.client.values import ConnectionState
from borzoi.model.errors import ClientShutdown


def connection_number(client: AsyncClient) -> int | None:
    """Which connection the client's next call uses, counted from 1; None if it has to make one first.

    A call that is begun before anything else happens goes out on this connection or fails with it. What the
    server ties to a connection is gone when the number is another.
    """
    return client._recovery.connection_number


def joined_groups(client: ClientBase) -> tuple[GroupKey, ...]:
    """The groups that the client joins again after a reconnect, as they were named."""
    return client._recovery.memberships.joined


def forget_group(client: ClientBase, key: GroupKey) -> None:
    """Do not join the group again: for when the server could not be told that the client leaves it."""
    client._recovery.memberships.leave(key)


def settings_in_use(client: ClientBase) -> Settings:
    """Where and how the client connects, with the login that was used last."""
    return replace(client._settings, credentials=client._recovery.credentials)


def async_client_like(client: ClientBase | str) -> AsyncClient:
    """A client of one's own, that connects as the given one does, or as a connection string says."""
    if isinstance(client, str):
        return AsyncClient(client)
    if client.state is ConnectionState.CLOSED:
        raise ClientShutdown("the client is closed")
    made = AsyncClient.__new__(AsyncClient)
    made._begin(settings_in_use(client), None)
    return made
