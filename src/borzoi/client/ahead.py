"""Reads that are sent before their answers are wanted, for those who read much and in order.

While the answer to one read is worked on, the server's answer to the next gathers in the socket. When it is
wanted it is there, most of it in one piece. A thread that waits for it would have the same effect, but would
be woken for every part of it that arrives, which costs more than receiving does.

    ahead.send(first)
    while ...:
        answer = ahead.take()
        ahead.send(next)
        ...  # work on the answer

Whatever happens to the connection in between, a read is then done the usual way, with all that a client does
about lost connections; that is why this is for requests that change nothing. So a read may take up to twice
its deadline: once for the answer on its way, once for asking again.
"""

import time
from typing import Any, Generic, NamedTuple, TypeVar

from borzoi.client.call import Call
from borzoi.client.dialogue import Exchange
from borzoi.client.recovery import DeadlinePassed, LinkLost
from borzoi.client.sync import Client, SocketLink
from borzoi.model.errors import RemoteProtocolError, StaleClient, Unauthenticated

T = TypeVar("T")


class _Sent(NamedTuple):
    link: SocketLink
    exchange: Exchange[Any]


class Ahead(Generic[T]):
    """On one client, which nobody else may use meanwhile. At most one read is under way on a client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._wanted: Call[T] | None = None
        self._sent: _Sent | None = None

    @property
    def is_under_way(self) -> bool:
        """Something was asked for whose answer has not been taken."""
        return self._wanted is not None

    def send(self, call: Call[T]) -> None:
        """Ask for something; if there is no connection at the moment, that is left to `take`."""
        if self.is_under_way:
            raise RuntimeError("the answer to the last read has not been taken")
        self._wanted = call
        link = self._client._recovery.link
        if not isinstance(link, SocketLink) or not link.is_usable():
            return
        exchange = link.dialogue.perform(call.request)
        try:
            link.send(next(exchange), self._give_up_s(call))
        except (LinkLost, DeadlinePassed):
            self._give_up(link)
        except BaseException:
            self._give_up(link)  # a part of it may have been sent
            raise
        else:
            self._sent = _Sent(link, exchange)

    def take(self) -> T:
        """The answer to what was asked for; raises what the server says, or what the client would raise."""
        call, sent = self._wanted, self._sent
        if call is None:
            raise RuntimeError("nothing has been asked for")
        self._wanted = self._sent = None
        frame = None if sent is None else self._receive(sent.link, call)
        if sent is not None and frame is not None:
            try:
                sent.exchange.send(frame)
            except StopIteration as stop:
                return call.convert(stop.value)
            except (RemoteProtocolError, Unauthenticated, StaleClient):
                self._give_up(sent.link)
        return self._client._call(call)

    def drop(self) -> None:
        """Nobody wants the answer any more: it must not be taken for another's."""
        if self._sent is not None:
            self._give_up(self._sent.link)
        self._wanted = self._sent = None

    def _receive(self, link: SocketLink, call: Call[T]) -> memoryview | None:
        """None if the connection has ended."""
        try:
            return link.receive(self._give_up_s(call))
        except (LinkLost, DeadlinePassed):
            self._give_up(link)
            return None
        except BaseException:
            self._give_up(link)  # the rest of it may still come
            raise

    def _give_up_s(self, call: Call[T]) -> float:
        return time.monotonic() + self._client._deadline_s(call.deadline_s)

    def _give_up(self, link: SocketLink) -> None:
        link.abandon()
        self._client._recovery.lost(link)
