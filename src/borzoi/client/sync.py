"""The blocking driver: `Client`. Needs no event loop.

A client may be shared by threads: a lock lets one call at a time use its one connection. It may be used in
processes forked from the one that made it: the child drops the inherited socket, which stays the parent's,
and connects for itself with its first call.

A member of a group has a thread that pings, so that it is not taken for gone while it works.
"""

import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from borzoi.client import groups, messages, offsets, streams, system, topics, transactions, users
from borzoi.client.base import ClientBase, method_signature
from borzoi.client.call import Call
from borzoi.client.dialogue import Dialogue, Exchange, Parts
from borzoi.client.incoming import ReplyStream
from borzoi.client.recovery import Alone, DeadlinePassed, Dial, LinkLost, Pause, Steps, Talk
from borzoi.model.errors import BorzoiError, InvalidTlsCertificate, TaskTimeout
from borzoi.model.requests import JoinConsumerGroup, Ping

T = TypeVar("T")
P = ParamSpec("P")

# Parts of a frame below this are joined into one write; above, copying costs more than a second write.
_JOIN_BYTES = 64 * 1024
# How long `close` waits for a call of another thread to notice.
_CLOSE_S = 1.0


class SocketLink:
    """A connected socket and what is said on it."""

    def __init__(self, connected: socket.socket, dialogue: Dialogue) -> None:
        self.dialogue = dialogue
        self._socket = connected
        self._replies = ReplyStream()

    def ask(self, parts: Parts, give_up_s: float) -> memoryview:
        """The answer to a frame. Whatever is raised, the connection must not be used again."""
        self.send(parts, give_up_s)
        return self.receive(give_up_s)

    def send(self, parts: Parts, give_up_s: float) -> None:
        try:
            self._limit(give_up_s)
            if sum(map(len, parts)) < _JOIN_BYTES:
                self._socket.sendall(b"".join(parts))
            else:
                self._socket.sendall(b"".join(parts[:-1]))
                self._socket.sendall(parts[-1])
        except OSError as error:
            raise _lost(error) from error

    def receive(self, give_up_s: float) -> memoryview:
        frames: list[memoryview] = []
        while not frames:
            try:
                self._limit(give_up_s)
                count = self._socket.recv_into(self._replies.space())
            except OSError as error:
                raise _lost(error) from error
            if not count:
                raise LinkLost("the server closed the connection")
            frames = self._replies.received(count)
        if len(frames) > 1 or not self._replies.is_between_frames:
            raise LinkLost("the server sent more than an answer")
        return frames[0]

    def is_usable(self) -> bool:
        """Nothing is expected now, so whatever can be received is the end, or says that it is the end."""
        try:
            self._socket.settimeout(0)
            self._socket.recv_into(self._replies.space())
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def interrupt(self) -> None:
        """Wake up a thread that waits for an answer; it gets a `LinkLost`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended by itself

    def abandon(self) -> None:
        # Only this process' hold on it: in a forked child the parent's connection goes on.
        self._socket.close()

    def _limit(self, give_up_s: float) -> None:
        remaining_s = give_up_s - time.monotonic()
        if remaining_s <= 0:
            raise DeadlinePassed
        self._socket.settimeout(remaining_s)


def _lost(error: OSError) -> Exception:
    if isinstance(error, TimeoutError) and error.errno is None:
        return DeadlinePassed()
    return LinkLost(str(error))


def _method(command: Callable[P, Call[T]]) -> Callable[Concatenate["Client", P], T]:
    """A command's function as a method that carries out the call."""

    @wraps(command)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(command(*args, **kwargs))

    method.__signature__ = method_signature(command)  # type: ignore[attr-defined] # inspect reads it
    return method


class Client(ClientBase):
    __doc__ = ClientBase.__doc__

    _heartbeat: threading.Thread | None

    def _prepare(self) -> None:
        self._start_anew()
        _clients.add(self)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, *, deadline_s: float | None = None) -> None:
        """Connect and log in now, instead of with the first call."""
        deadline_s = self._deadline_s(deadline_s)
        self._carry_out(self._recovery.connect(deadline_s), deadline_s)

    def close(self) -> None:
        """Close the connection. Calls under way and later ones raise `ClientShutdown`. Can be repeated."""
        link = self._recovery.close()
        self._closing.set()
        if isinstance(link, SocketLink):
            link.interrupt()
            # A thread that is still at it would find its socket's number given to somebody else.
            is_free = self._lock.acquire(timeout=_CLOSE_S)
            link.abandon()
            if is_free:
                self._lock.release()
        heartbeat = self._heartbeat
        if heartbeat is not None and heartbeat is not threading.current_thread():
            heartbeat.join(_CLOSE_S)

    ping = _method(system.ping)
    get_stats = _method(system.get_stats)
    snapshot = _method(system.snapshot)
    get_cluster_metadata = _method(system.get_cluster_metadata)
    describe_options = _method(system.describe_options)
    get_me = _method(system.get_me)
    get_client = _method(system.get_client)
    get_clients = _method(system.get_clients)

    login_user = _method(users.login_user)
    login_with_personal_access_token = _method(users.login_with_personal_access_token)
    logout_user = _method(users.logout_user)
    get_user = _method(users.get_user)
    get_users = _method(users.get_users)
    create_user = _method(users.create_user)
    update_user = _method(users.update_user)
    update_permissions = _method(users.update_permissions)
    change_password = _method(users.change_password)
    delete_user = _method(users.delete_user)
    get_personal_access_tokens = _method(users.get_personal_access_tokens)
    create_personal_access_token = _method(users.create_personal_access_token)
    delete_personal_access_token = _method(users.delete_personal_access_token)

    create_stream = _method(streams.create_stream)
    get_stream = _method(streams.get_stream)
    get_streams = _method(streams.get_streams)
    update_stream = _method(streams.update_stream)
    delete_stream = _method(streams.delete_stream)
    purge_stream = _method(streams.purge_stream)

    create_topic = _method(topics.create_topic)
    get_topic = _method(topics.get_topic)
    get_topics = _method(topics.get_topics)
    update_topic = _method(topics.update_topic)
    delete_topic = _method(topics.delete_topic)
    purge_topic = _method(topics.purge_topic)
    create_partitions = _method(topics.create_partitions)
    delete_partitions = _method(topics.delete_partitions)
    delete_segments = _method(topics.delete_segments)

    send_messages = _method(messages.send_messages)
    poll_messages = _method(messages.poll_messages)
    poll_batches = _method(messages.poll_batches)
    flush_unsaved_buffer = _method(messages.flush_unsaved_buffer)
    get_consumer_offset = _method(offsets.get_consumer_offset)
    store_consumer_offset = _method(offsets.store_consumer_offset)
    delete_consumer_offset = _method(offsets.delete_consumer_offset)

    get_topic_extent = _method(transactions.get_topic_extent)
    stage_messages = _method(transactions.stage_messages)
    stage_copy = _method(transactions.stage_copy)
    commit_epoch = _method(transactions.commit_epoch)
    abort_epoch = _method(transactions.abort_epoch)
    get_producer_epoch = _method(transactions.get_producer_epoch)
    forget_producer = _method(transactions.forget_producer)

    create_consumer_group = _method(groups.create_consumer_group)
    get_consumer_group = _method(groups.get_consumer_group)
    get_consumer_groups = _method(groups.get_consumer_groups)
    delete_consumer_group = _method(groups.delete_consumer_group)
    join_consumer_group = _method(groups.join_consumer_group)
    leave_consumer_group = _method(groups.leave_consumer_group)
    sync_consumer_group = _method(groups.sync_consumer_group)

    def _call(self, call: Call[T]) -> T:
        deadline_s = self._deadline_s(call.deadline_s)
        reply = self._carry_out(self._recovery.call(call.request, deadline_s), deadline_s)
        if isinstance(call.request, JoinConsumerGroup):
            self._start_heartbeat()
        return call.convert(reply)

    def _carry_out(self, steps: Steps[T], deadline_s: float) -> T:
        give_up_s = time.monotonic() + deadline_s
        if not self._lock.acquire(timeout=deadline_s):
            raise TaskTimeout(f"calls of other threads left no time within {deadline_s:g} s")
        try:
            return self._drive(steps, give_up_s)
        finally:
            self._lock.release()

    def _drive(self, steps: Steps[T], give_up_s: float) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._do(step, give_up_s)
                except BaseException as error:  # noqa: BLE001 - the steps decide, about Ctrl-C too
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as stop:
            return cast("T", stop.value)

    def _do(self, step: Dial | Talk | Pause | Alone, give_up_s: float) -> Any:
        match step:
            case Talk(link, exchange):
                return self._talk(link, exchange, give_up_s)
            case Alone(steps):
                return self._drive(steps, give_up_s)  # the lock is held
            case Pause(seconds):
                return self._pause(seconds, give_up_s)
            case Dial():
                return self._dial(give_up_s)

    def _talk(self, link: SocketLink, exchange: Exchange[Any], give_up_s: float) -> Any:
        is_answered = True
        try:
            parts = next(exchange)
            while True:
                is_answered = False
                answer = link.ask(parts, give_up_s)
                is_answered = True
                parts = exchange.send(answer)
        except StopIteration as stop:
            return stop.value
        finally:
            if not is_answered:
                # Whatever interrupted it, the answer may still come.
                link.abandon()
                self._recovery.lost(link)

    def _pause(self, seconds: float, give_up_s: float) -> None:
        remaining_s = give_up_s - time.monotonic()
        self._closing.wait(min(seconds, max(remaining_s, 0)))
        if remaining_s < seconds:
            raise DeadlinePassed

    def _dial(self, give_up_s: float) -> SocketLink:
        settings = self._settings
        connected = _connected_socket(settings.host, settings.port, give_up_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.nodelay)
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_hostname=settings.server_name)
        except ssl.SSLCertVerificationError as error:
            connected.close()
            raise InvalidTlsCertificate(error.verify_message) from error
        except BaseException:
            connected.close()
            raise
        return SocketLink(connected, self._recovery.new_dialogue())

    def _start_heartbeat(self) -> None:
        with self._heartbeat_lock:
            if self._heartbeat is not None:
                return
            self._heartbeat = threading.Thread(
                target=_beat,
                args=(weakref.ref(self), self._closing, self._settings.heartbeat_interval_s),
                name="borzoi-heartbeat",
                daemon=True,
            )
            self._heartbeat.start()

    def _show_life(self) -> None:
        """Ping, unless a call is under way or there is nobody to ping: the next call will connect."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            link = self._recovery.link
            if isinstance(link, SocketLink):
                give_up_s = time.monotonic() + self._settings.heartbeat_interval_s
                self._talk(link, link.dialogue.perform(Ping()), give_up_s)
        except (LinkLost, DeadlinePassed, BorzoiError):
            return  # the link is given up, or the next call is told
        finally:
            self._lock.release()

    def _start_anew(self) -> None:
        """With locks and threads of this process."""
        self._lock = threading.Lock()
        self._heartbeat_lock = threading.Lock()
        self._closing = threading.Event()
        self._heartbeat = None

    def _forget_parent(self) -> None:
        link = self._recovery.forget_link()
        if link is not None:
            link.abandon()
        self._start_anew()


def _connected_socket(host: str, port: int, give_up_s: float) -> socket.socket:
    """Like `socket.create_connection`, but with one deadline for all addresses of the host."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        remaining_s = give_up_s - time.monotonic()
        if remaining_s <= 0:
            raise DeadlinePassed
        tried = socket.socket(family, kind, protocol)
        try:
            tried.settimeout(remaining_s)
            tried.connect(address)
        except OSError as error:
            tried.close()
            failure = error
        except BaseException:
            tried.close()
            raise
        else:
            return tried
    raise failure or OSError(f"{host} has no address")


def _beat(client: "weakref.ref[Client]", closing: threading.Event, interval_s: float) -> None:
    while not closing.wait(interval_s):
        alive = client()
        if alive is None:
            return
        alive._show_life()
        del alive


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
