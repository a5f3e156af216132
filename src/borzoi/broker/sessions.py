"""Who is connected, who is logged in, and which groups they belong to.

A `Client` is one connection. A `Session` is one login on it; a connection may carry several, one after
the other. Group membership belongs to the session's client id and ends with the session, however that
ends: logout, disconnect, eviction, or the removal of its user.
"""

from collections.abc import Iterator

from borzoi.broker.catalog import Group
from borzoi.broker.users import User
from borzoi.model.values import Transport


class Session:
    __slots__ = ("client", "client_id", "groups", "is_alive", "is_evicted", "number", "user_id", "username")

    def __init__(self, client: "Client", client_id: int, number: int, user: User) -> None:
        self.client = client
        self.client_id = client_id  # the u128 the client chose; identifies a group member
        self.number = number
        self.user_id = user.id
        self.username = user.username
        self.groups: dict[tuple[int, int, int], Group] = {}
        self.is_alive = True
        self.is_evicted = False  # ended by the broker; the client is told with its next request


class Client:
    __slots__ = ("address", "id", "last_seen_us", "session", "transport")

    def __init__(self, client_id: int, transport: Transport, address: str, now_us: int) -> None:
        self.id = client_id
        self.transport = transport
        self.address = address
        self.last_seen_us = now_us
        self.session: Session | None = None


class Clients:
    """Every open connection, by a number that is unique while the server runs."""

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def connect(self, transport: Transport, address: str, now_us: int) -> Client:
        client = Client(self._next_id, transport, address, now_us)
        self._clients[client.id] = client
        self._next_id = self._next_id % 0xFFFF_FFFE + 1
        return client

    def disconnect(self, client: Client) -> None:
        self._clients.pop(client.id, None)

    def find(self, client_id: int) -> Client | None:
        return self._clients.get(client_id)

    def with_id(self, client_id: int) -> list[Session]:
        """Sessions of clients that call themselves so; one at most, unless a client came back."""
        return [
            client.session
            for client in self._clients.values()
            if client.session is not None and client.session.client_id == client_id
        ]

    def of_user(self, user_id: int) -> list[Session]:
        return [
            client.session
            for client in self._clients.values()
            if client.session is not None and client.session.user_id == user_id
        ]

    def silent_members(self, before_us: int) -> list[Session]:
        """Sessions that belong to a group and were not heard of since `before_us`."""
        return [
            client.session
            for client in self._clients.values()
            if client.session is not None and client.session.groups and client.last_seen_us < before_us
        ]
