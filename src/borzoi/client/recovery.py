"""What a client does about connections, without I/O: connect, log in, come back, send again or not.

Theory of operation. A driver has at most one *link* (a connection with its dialogue) that calls may use. The
generators here say what to do next, a driver does it and sends the outcome back, or throws what went wrong:

    Dial     open a connection: a link
    Talk     run an exchange of the dialogue on a link: its reply
    Pause    wait
    Alone    carry out steps that change what all calls use, one such at a time: their result

`LinkLost` is thrown when a connection ends, `DeadlinePassed` when the call has used up its time. Connecting,
logging in and logging out are done alone; while one of them is at work there is no link, and calls wait.

After a lost connection:

    a request that was not sent         waits for the next connection
    a read                              is sent again
    joining a group                     is sent again; a membership ends with its connection anyway
    anything else that was sent         its outcome is unknown: `Disconnected`
    answered by "no session"            was not carried out and is sent again, once, after a new login

An auto-commit poll counts as a change: sent again, it would skip the messages of the lost answer.
"""

import logging
import os
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from borzoi.client.dialogue import Credentials, Dialogue, Exchange, describe, is_change
from borzoi.client.memberships import GroupKey, Memberships
from borzoi.client.settings import Settings
from borzoi.client.values import ConnectionState
from borzoi.model.errors import (
    AccessDenied,
    BorzoiError,
    CannotEstablishConnection,
    ClientShutdown,
    ConnectionFailure,
    Disconnected,
    RemoteProtocolError,
    StaleClient,
    TaskTimeout,
    Unauthenticated,
)
from borzoi.model.replies import LoggedIn
from borzoi.model.requests import (
    ChangePassword,
    DeleteConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    LoginUser,
    LoginWithToken,
    LogoutUser,
    Request,
    UpdateUser,
)

T = TypeVar("T")

_FIRST_PAUSE_S = 0.05
_logger = logging.getLogger("borzoi.client")


class LinkLost(Exception):  # noqa: N818 - what happened, and handled here
    """The connection ended while, or before, something was to be said on it."""


class DeadlinePassed(Exception):  # noqa: N818
    """The call's time is used up."""


class Link(Protocol):
    """A connection of a driver."""

    dialogue: Dialogue

    def is_usable(self) -> bool:
        """False if the connection is known to have ended."""
        ...

    def abandon(self) -> None:
        """Close at once, if it is not closed yet; whoever waits for an answer gets a `LinkLost`."""


@dataclass(frozen=True, slots=True)
class Dial:
    pass


@dataclass(frozen=True, slots=True)
class Talk:
    link: Any
    exchange: Exchange[Any]


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Alone:
    steps: "Steps[Any]"


Steps = Generator[Dial | Talk | Pause | Alone, Any, T]
_DIAL = Dial()


class Recovery:
    def __init__(self, settings: Settings, on_state_change: Callable[[ConnectionState], None] | None) -> None:
        self.settings = settings
        self.memberships = Memberships(settings.heartbeat_interval_s)
        self.state = ConnectionState.DISCONNECTED
        self.link: Link | None = None
        self._unready: Link | None = None  # being logged in or out, and not for calls
        self._on_state_change = on_state_change
        self._credentials: Credentials | None = settings.credentials
        self._user_id: int | None = None
        self._failures = 0  # since something was last answered
        self._last_failure = ""
        self._connected_at_s = -settings.reestablish_after_s
        self._dialled = 0

    @property
    def credentials(self) -> Credentials | None:
        """What the next connection will log in with."""
        return self._credentials

    @property
    def connection_number(self) -> int | None:
        """Which connection calls use, counted from 1; None if they would have to make one."""
        # There is never more than one, so the one in use is the last that was made.
        return self._dialled if self.link is not None and self.link.is_usable() else None

    @property
    def is_closed(self) -> bool:
        return self.state is ConnectionState.CLOSED

    def new_dialogue(self) -> Dialogue:
        return Dialogue(self.memberships)

    # Calls

    def call(self, request: Request, deadline_s: float) -> Steps[Any]:
        """The reply to any request."""
        if isinstance(request, LoginUser | LoginWithToken):
            return (yield from self._alone(self._log_in(request), deadline_s))
        if isinstance(request, LogoutUser):
            return (yield from self._alone(self._log_out(), deadline_s))
        is_second_login = False
        while True:
            link = yield from self.connect(deadline_s)
            try:
                reply = yield Talk(link, link.dialogue.perform(request))
            except LinkLost as lost:
                self._lost_while(request, lost)
            except DeadlinePassed:
                # The answer may still come, and must not be taken for that to another request.
                link.abandon()
                self.lost(link)
                raise _late(request, deadline_s) from None
            except RemoteProtocolError:
                link.abandon()
                self.lost(link)
                raise
            except (Unauthenticated, StaleClient):
                if self._credentials is None or is_second_login:
                    raise
                is_second_login = True
                link.abandon()
                self.lost(link)
            except BorzoiError:
                self._failures = 0
                raise
            else:
                self._failures = 0
                self._learn(request)
                return reply

    def connect(self, deadline_s: float) -> Steps[Link]:
        """The link for calls: the present one, or a new one."""
        link = self.link
        if link is not None:
            if link.is_usable():
                return link
            link.abandon()
            self.lost(link)
        made: Link = yield from self._alone(self._connected(), deadline_s)
        return made

    def _alone(self, steps: Steps[T], deadline_s: float) -> Steps[T]:
        try:
            result: T = yield Alone(steps)
        except DeadlinePassed:
            raise self._unreachable(f"within {deadline_s:g} s") from None
        return result

    def _lost_while(self, request: Request, lost: LinkLost) -> None:
        """Return if the request may be sent again."""
        self._failed(lost)
        if self.is_closed:
            raise ClientShutdown(describe(request)) from lost
        if isinstance(request, LeaveConsumerGroup):
            self._learn(request)  # with the connection the membership is gone
        if is_change(request) and not isinstance(request, JoinConsumerGroup):
            raise Disconnected(f"{describe(request)}: it may or may not have been applied; {lost}") from lost

    def _learn(self, request: Request) -> None:
        """What a request that was carried out means for the next connection."""
        match request:
            case JoinConsumerGroup(stream, topic, group):
                self.memberships.join(GroupKey(stream, topic, group))
            case LeaveConsumerGroup(stream, topic, group) | DeleteConsumerGroup(stream, topic, group):
                self.memberships.leave(GroupKey(stream, topic, group))
            case ChangePassword(user, _, new_password):
                self._change_own_login(user, password=new_password)
            case UpdateUser(user, str(username), _, _):
                self._change_own_login(user, username=username)

    def _change_own_login(self, user: int | str, **changes: str) -> None:
        mine = self._credentials
        if isinstance(mine, LoginUser) and user in (mine.username, self._user_id):
            self._credentials = msgspec.structs.replace(mine, **changes)

    # What is done alone

    def _connected(self) -> Steps[Link]:
        # Somebody else may have connected while this waited for its turn.
        return self.link or (yield from self._establish())

    def _establish(self) -> Steps[Link]:
        """A link that is logged in, if there is something to log in with, and a member of its groups."""
        attempts = 0
        while True:
            pause_s = self._pause_s()
            if pause_s > 0:
                yield Pause(pause_s)
            self._require_open()
            self._enter(ConnectionState.CONNECTING)
            attempts += 1
            try:
                link: Link = yield _DIAL
                self._unready = link
                self._dialled += 1
                self._connected_at_s = time.monotonic()
                self._last_failure = "the server accepts connections but does not answer"
                self._enter(ConnectionState.CONNECTED)
                if self._credentials is not None:
                    yield from self._register(link, self._credentials)
                    yield from self._rejoin(link)
                self._require_open()
            except (OSError, LinkLost, ConnectionFailure) as error:
                self._give_back(self._unready)
                self._failed(error)
                retries = self.settings.reconnection_retries
                if retries is not None and attempts > retries:
                    raise self._unreachable(f"in {attempts} attempts") from error
            except BaseException:
                self._give_back(self._unready)
                raise
            else:
                self._last_failure = ""
                self._publish(link)
                return link

    def _log_in(self, credentials: Credentials) -> Steps[LoggedIn]:
        """Continue as this user: a new session, and a member of no group."""
        self._require_open()
        self.memberships.leave_all()
        self._credentials = credentials
        link = self._withdraw()
        try:
            if link is not None:
                try:
                    yield from self._register(link, credentials)
                except LinkLost:
                    self._give_back(link)
                else:
                    self._publish(link)
            if self.link is None:
                yield from self._establish()
        except BaseException as error:
            self._credentials = None
            if isinstance(error, AccessDenied) and link is not None:
                self._publish(link)  # refused; the connection is good for another try
            else:
                self._give_back(link)
            raise
        return LoggedIn(self._user_id or 0)

    def _log_out(self) -> Steps[None]:
        self._require_open()
        self.memberships.leave_all()
        self._credentials = None
        self._user_id = None
        link = self._withdraw()
        if link is None:
            return
        try:
            yield Talk(link, link.dialogue.perform(LogoutUser()))
        except (LinkLost, DeadlinePassed):
            self._give_back(link)  # which is a logout too
        except BaseException:
            self._give_back(link)
            raise
        else:
            self._publish(link)

    # What happens to connections

    def close(self) -> Link | None:
        """From now on every call is refused. Returns the link that is to be closed, if any."""
        link = self.link or self._unready
        self.link = self._unready = None
        self.memberships.leave_all()
        self._enter(ConnectionState.CLOSED)
        return link

    def lost(self, link: Link) -> None:
        """A connection ended, or must not be used any more. Safe to say more than once."""
        if self.link is link:
            self.link = None
            self._enter(ConnectionState.DISCONNECTED)

    def forget_link(self) -> Link | None:
        """The link belongs to somebody else: a parent process, or an event loop that is gone."""
        link = self.link or self._unready
        self.link = self._unready = None
        self._failures = 0
        if not self.is_closed:
            self.state = ConnectionState.DISCONNECTED
        return link

    # Parts of the above

    def _register(self, link: Link, credentials: Credentials) -> Steps[None]:
        registered = yield Talk(link, link.dialogue.log_in(credentials))
        self._user_id = registered.user_id
        self.memberships.forget_assignments()

    def _rejoin(self, link: Link) -> Steps[None]:
        for key in self.memberships.joined:
            try:
                yield Talk(link, link.dialogue.perform(JoinConsumerGroup(*key)))
            except (ConnectionFailure, RemoteProtocolError):
                raise
            except BorzoiError as error:
                # Gone or forbidden by now. Whoever polls it will be told; other calls can go on.
                self.memberships.leave(key)
                _logger.warning(
                    "cannot join group %s of %s/%s again: %s", key.group, key.stream, key.topic, error
                )

    def _pause_s(self) -> float:
        settings = self.settings
        since_s = time.monotonic() - self._connected_at_s
        pause_s = settings.reestablish_after_s - since_s
        if self._failures > 1:
            longest_s = settings.reconnection_interval_s
            backoff_s = min(longest_s, _FIRST_PAUSE_S * 2.0 ** min(self._failures - 2, 16))
            # Clients that lost their server together should not come back together.
            pause_s = max(pause_s, backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        return pause_s

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, ConnectionError | TimeoutError) and error.errno:
            self._last_failure = os.strerror(error.errno)  # asyncio's own text says only that it failed
        else:
            self._last_failure = str(error) or type(error).__name__

    def _withdraw(self) -> Link | None:
        """Take the link, if there is one, from the calls."""
        self._unready, self.link = self.link, None
        return self._unready

    def _publish(self, link: Link) -> None:
        """Let calls use the link."""
        self.link, self._unready = link, None
        is_logged_in = link.dialogue.session != 0
        self._enter(ConnectionState.AUTHENTICATED if is_logged_in else ConnectionState.CONNECTED)

    def _give_back(self, link: Link | None) -> None:
        self._unready = None
        if link is not None:
            link.abandon()
        self._enter(ConnectionState.DISCONNECTED)

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientShutdown

    def _enter(self, state: ConnectionState) -> None:
        if state is self.state or self.is_closed:
            return
        self.state = state
        if self._on_state_change is None:
            return
        try:
            self._on_state_change(state)
        except Exception:
            # It is the user's; what goes wrong in it must not leave a connection half made.
            _logger.exception("on_state_change failed")

    def _unreachable(self, how_long: str) -> CannotEstablishConnection:
        reason = f": {self._last_failure}" if self._last_failure else ""
        return CannotEstablishConnection(f"{self.settings.address} {how_long}{reason}")


def _late(request: Request, deadline_s: float) -> BorzoiError:
    what = f"{describe(request)}: no answer within {deadline_s:g} s"
    if is_change(request):
        return Disconnected(f"{what}; it may or may not have been applied")
    return TaskTimeout(what)
