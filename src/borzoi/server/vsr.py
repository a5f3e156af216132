"""The server's side of a vsr conversation: login, sessions, and what each request is answered with.

How an error reaches the client:

    status in the reply header   everything that concerns one request
    eviction frame               the login failed, or there is no session for what needs one

Sends, polls and stored offsets do not go through the general decoder: the bytes that name their target
are looked up in a table of routes that this connection resolved before (see `borzoi.broker.messages`).
"""

import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from xxhash import xxh3_64_intdigest

from borzoi.broker import messages
from borzoi.broker.broker import Broker
from borzoi.broker.groups import ChangeReason
from borzoi.broker.handlers import Context, handle
from borzoi.broker.handlers.users import log_in, log_in_with_token
from borzoi.broker.pending import AfterSync, Pending
from borzoi.broker.sessions import Client, Session
from borzoi.broker.users import User, check_password, check_username
from borzoi.model.errors import (
    BorzoiError,
    Error,
    FeatureUnavailable,
    InvalidCommand,
    InvalidFormat,
    IoError,
    RemoteProtocolError,
    RequestAlreadyApplied,
    Unauthenticated,
    UserInactive,
)
from borzoi.model.limits import FRAME_BYTES_UNAUTHENTICATED
from borzoi.model.replies import Confirmation, PolledMessages
from borzoi.model.requests import LoginUser, LoginWithToken
from borzoi.model.values import BytesLike, PollingKind
from borzoi.server.conversation import Answer, Waiting
from borzoi.wire.commands import COMMAND_BY_CODE, Code
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.frames import (
    COMMAND_REQUEST,
    HEADER_BYTES,
    REQUEST,
    SIZE_AND_COMMAND,
    EvictionReason,
    RequestHeader,
    frame_size,
    pack_eviction,
    pack_reply,
)
from borzoi.wire.vsr.login import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    Register,
    RegisterReply,
    decode_client_version,
    decode_register,
    encode_register_reply,
    is_version_accepted,
)
from borzoi.wire.vsr.messages import (
    POLL_SUFFIX,
    decode_poll_target,
    decode_send_target,
    poll_reply_prefix,
    send_reply,
)
from borzoi.wire.vsr.offsets import STORE_SUFFIX, decode_target
from borzoi.wire.vsr.operations import (
    CODE_BY_OPERATION,
    LEGACY_LOGIN_CODES,
    NON_REPLICATED_CODES,
    Operation,
    is_result_framed,
)

_U32 = struct.Struct("<I")
_METADATA_LENGTH_BYTES = 4
_COUNT_BYTES = 4
# Routes and replies kept per connection; a client that needs more pays for resolving again.
_ROUTES_MAX = 1024
_REPLIES_MAX = 16
_METADATA_OPERATIONS = range(128, 150)
# Plain numbers: reading a member of an enumeration costs more than comparing it.
_SEND = Operation.SEND_MESSAGES.value
_NON_REPLICATED = Operation.NON_REPLICATED.value
_POLL = Code.POLL_MESSAGES.value
_POLLING_KINDS = range(PollingKind.OFFSET, PollingKind.NEXT + 1)

# What RequestHeader._make does, without a call of its own.
_as_tuple: Callable[[type[RequestHeader], tuple[Any, ...]], RequestHeader] = tuple.__new__

_Route = TypeVar("_Route", messages.SendRoute, messages.PollRoute)


class VsrConversation:
    header_bytes = HEADER_BYTES

    def __init__(self, broker: Broker, client: Client, frame_bytes_max: int) -> None:
        self._broker = broker
        self._client = client
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_allowed = FRAME_BYTES_UNAUTHENTICATED
        self._session: Session | None = None
        self._send_routes: dict[bytes, messages.SendRoute] = {}
        self._poll_routes: dict[bytes, messages.PollRoute] = {}
        self._store_routes: dict[bytes, messages.PollRoute] = {}
        # The highest request number carried out in this session, and the last replies to metadata requests.
        self._applied = 0
        self._replies: OrderedDict[int, tuple[bytes, Answer]] = OrderedDict()

    @property
    def is_authenticated(self) -> bool:
        return self._session is not None

    def frame_size(self, data: bytearray, position: int) -> int:
        size: int
        size, command = SIZE_AND_COMMAND.unpack_from(data, position)
        if command == COMMAND_REQUEST and HEADER_BYTES <= size <= self._frame_bytes_allowed:
            return size
        return frame_size(data, position, self._frame_bytes_allowed)  # to say what is wrong

    def receive(self, data: memoryview, position: int, end: int, now_us: int) -> Answer | Waiting:
        header = _as_tuple(RequestHeader, REQUEST.unpack_from(data, position))
        self._client.last_seen_us = now_us
        body = data[position + HEADER_BYTES : end]
        try:
            session = self._session
            if session is not None and session.is_alive:
                if header.operation == _SEND:
                    return self._send(session, header, body, now_us)
                if header.operation == _NON_REPLICATED and header.code == _POLL:
                    return self._poll(session, header, body, now_us)
                return self._dispatch(session, header, body, now_us)
            if session is not None and session.is_evicted:
                self._session = None
                return [pack_eviction(header.client, EvictionReason.STALE_CLIENT)]
            self._session = None
            return self._receive_without_session(header, body, now_us)
        except BorzoiError as error:
            return self._refuse(header, error)
        except OSError as error:
            self._broker.logger.error("request failed", reason=str(error))
            return self._refuse(header, IoError(error.strerror or str(error)))
        except Exception as error:
            # A fault of ours must not take the connections of others down.
            self._broker.logger.exception("request failed unexpectedly", reason=repr(error))
            return self._refuse(header, Error("internal error"))

    # Without a session

    def _receive_without_session(
        self, header: RequestHeader, body: memoryview, now_us: int
    ) -> Answer | Waiting:
        match header.operation:
            case Operation.REGISTER:
                return self._register(header, body, now_us)
            case Operation.LOGOUT:
                return self._reply(header, b"")
            case Operation.NON_REPLICATED:
                if header.code == Code.PING:
                    return self._reply(header, b"")
                if header.code in LEGACY_LOGIN_CODES:
                    return [pack_eviction(header.client, EvictionReason.MALFORMED_LOGIN)]
                # An eviction here would tear down the connection that the login is about to use.
                return self._refuse(header, Unauthenticated())
            case operation if operation in CODE_BY_OPERATION:
                return [pack_eviction(header.client, EvictionReason.NO_SESSION)]
            case _:
                return [pack_eviction(header.client, EvictionReason.INVALID_REQUEST_OPERATION)]

    def _register(self, header: RequestHeader, body: memoryview, now_us: int) -> Answer | Waiting:
        if header.client == bytes(16):
            return [pack_eviction(header.client, EvictionReason.MALFORMED_LOGIN)]
        try:
            version = decode_client_version(body)
            if not is_version_accepted(version.protocol_version):
                return [
                    pack_eviction(
                        header.client,
                        EvictionReason.INCOMPATIBLE_PROTOCOL,
                        PROTOCOL_VERSION,
                        PROTOCOL_VERSION_MIN,
                    )
                ]
            register = decode_register(body)
        except RemoteProtocolError:
            return [pack_eviction(header.client, EvictionReason.MALFORMED_LOGIN)]
        if isinstance(register.credentials, LoginWithToken):
            return self._log_in_with_token(header, register.credentials, now_us)
        return self._log_in(header, register, register.credentials, now_us)

    def _log_in(
        self, header: RequestHeader, register: Register, credentials: LoginUser, now_us: int
    ) -> Answer | Waiting:
        try:
            check_username(credentials.username)
            check_password(credentials.password)
        except BorzoiError:
            return self._log_in_otherwise(header, register, now_us)

        def finish(outcome: object) -> Answer:
            if isinstance(outcome, User):
                return self._logged_in(header, outcome)
            return self._log_in_otherwise(header, register, now_us)

        return Waiting(log_in(self._broker, credentials), finish)

    def _log_in_otherwise(self, header: RequestHeader, register: Register, now_us: int) -> Answer:
        """The password did not fit; the same bytes may still be a token."""
        if register.alternative is not None:
            return self._log_in_with_token(header, register.alternative, now_us)
        return [pack_eviction(header.client, EvictionReason.INVALID_CREDENTIALS)]

    def _log_in_with_token(self, header: RequestHeader, credentials: LoginWithToken, now_us: int) -> Answer:
        try:
            return self._logged_in(header, log_in_with_token(self._broker, credentials, now_us))
        except UserInactive:
            return [pack_eviction(header.client, EvictionReason.USER_INACTIVE)]
        except BorzoiError:
            return [pack_eviction(header.client, EvictionReason.INVALID_TOKEN)]

    def _logged_in(self, header: RequestHeader, user: User) -> Answer:
        session = self._broker.start_session(self._client, int.from_bytes(header.client, "little"), user)
        self._session = session
        self._frame_bytes_allowed = self._frame_bytes_max
        self._forget_requests()
        reply = RegisterReply(user.id, session.number, PROTOCOL_VERSION, self._broker.settings.version)
        return self._reply(header, codec.frame_result(encode_register_reply(reply)))

    def _forget_requests(self) -> None:
        for routes in (self._send_routes, self._poll_routes, self._store_routes):
            routes.clear()
        self._applied = 0
        self._replies.clear()

    # With a session

    def _dispatch(
        self, session: Session, header: RequestHeader, body: memoryview, now_us: int
    ) -> Answer | Waiting:
        operation = header.operation
        if operation == Operation.REGISTER:
            self._broker.end_session(session, ChangeReason.LEFT, now_us)
            self._session = None
            return self._register(header, body, now_us)
        if operation == Operation.NON_REPLICATED:
            if header.code in LEGACY_LOGIN_CODES:
                return [pack_eviction(header.client, EvictionReason.MALFORMED_LOGIN)]
            return self._run(session, header, _code_of(header.code), body, now_us)
        code = CODE_BY_OPERATION.get(operation)
        if code is None:
            return [pack_eviction(header.client, EvictionReason.INVALID_REQUEST_OPERATION)]
        if header.session != session.number:
            return [pack_eviction(header.client, EvictionReason.SESSION_TOO_LOW)]
        _check_body(header, body)
        if operation == Operation.LOGOUT:
            self._session = None
            self._frame_bytes_allowed = FRAME_BYTES_UNAUTHENTICATED
            return self._run(session, header, code, body, now_us)
        _require_number(header)
        if code is Code.STORE_CONSUMER_OFFSET:
            return self._store_offset(session, header, body, now_us)
        if operation in _METADATA_OPERATIONS:
            repeated = self._repeated(header)
            if repeated is not None:
                return repeated
        elif header.request <= self._applied:
            return self._reply(header, codec.RESULT_OK if is_result_framed(operation) else b"")
        return self._run(session, header, code, body, now_us)

    def _run(
        self, session: Session, header: RequestHeader, code: Code, body: memoryview, now_us: int
    ) -> Answer | Waiting:
        request = codec.decode_request(code, body)
        context = Context(self._broker, session, COMMAND_BY_CODE[code].access, now_us)
        return self._answer(header, handle(context, request), partial(codec.encode_reply, code))

    def _repeated(self, header: RequestHeader) -> Answer | None:
        """The answer given before, if a metadata request comes a second time."""
        if header.request > self._applied:
            return None
        stored = self._replies.get(header.request)
        if stored is None or stored[0] != header.request_checksum:
            raise RequestAlreadyApplied(f"request {header.request}")
        return stored[1]

    def _send(
        self, session: Session, header: RequestHeader, body: memoryview, now_us: int
    ) -> Answer | Waiting:
        if header.session != session.number:
            return [pack_eviction(header.client, EvictionReason.SESSION_TOO_LOW)]
        if header.request <= self._applied:
            _require_number(header)
            return self._reply(header, b"")
        size = len(body)
        batch_at = _METADATA_LENGTH_BYTES + (
            _U32.unpack_from(body)[0] if size >= _METADATA_LENGTH_BYTES else 0
        )
        if not _METADATA_LENGTH_BYTES + _COUNT_BYTES <= batch_at <= size:
            raise RemoteProtocolError(f"metadata of a send ends at {batch_at} of {size} bytes")
        target = bytes(body[_METADATA_LENGTH_BYTES : batch_at - _COUNT_BYTES])
        (count,) = _U32.unpack_from(body, batch_at - _COUNT_BYTES)
        route = self._send_routes.get(target)
        broker = self._broker
        if route is None or route.version != broker.metadata.version:
            route = messages.resolve_send(broker, session, *decode_send_target(target))
            _remember(self._send_routes, target, route)
        reply = messages.send(broker, route, body[batch_at:], count, now_us)
        if isinstance(reply, AfterSync):
            return Waiting(reply, lambda outcome: self._finish_send(header, outcome))
        return self._finish_send(header, reply)

    def _finish_send(self, header: RequestHeader, outcome: object) -> Answer:
        if isinstance(outcome, Confirmation):
            self._applied = header.request
            body = send_reply(outcome)
            return [pack_reply(header, len(body), self._broker.commit) + body]
        if outcome is None:  # every message was a duplicate: stored before, nothing to confirm
            self._applied = header.request
            return self._reply(header, b"")
        return self._refuse(header, outcome)

    def _poll(
        self, session: Session, header: RequestHeader, body: memoryview, now_us: int
    ) -> Answer | Waiting:
        suffix_at = len(body) - POLL_SUFFIX.size
        if suffix_at < 0:
            raise RemoteProtocolError(f"a poll of {len(body)} bytes is cut short")
        kind, value, count, auto_commit = POLL_SUFFIX.unpack_from(body, suffix_at)
        if kind not in _POLLING_KINDS or auto_commit > 1:
            raise RemoteProtocolError(f"polling strategy {kind}, auto commit {auto_commit}")
        target = bytes(body[:suffix_at])
        route = self._poll_routes.get(target)
        broker = self._broker
        if route is None or route.version != broker.metadata.version:
            route = messages.resolve_poll(broker, session, *decode_poll_target(target))
            _remember(self._poll_routes, target, route)
        reply = messages.poll(broker, session, route, kind, value, count, bool(auto_commit), now_us)
        if isinstance(reply, PolledMessages):
            return self._polled(header, reply)
        return Waiting(reply, lambda outcome: self._finish_poll(header, outcome))

    def _finish_poll(self, header: RequestHeader, outcome: object) -> Answer:
        if isinstance(outcome, PolledMessages):
            return self._polled(header, outcome)
        return self._refuse(header, outcome)

    def _polled(self, header: RequestHeader, reply: PolledMessages) -> Answer:
        prefix = poll_reply_prefix(reply.partition_id, reply.current_offset, reply.messages_count)
        size = len(prefix) + sum(map(len, reply.batches))
        return [pack_reply(header, size, self._broker.commit) + prefix, *reply.batches]

    def _store_offset(
        self, session: Session, header: RequestHeader, body: memoryview, now_us: int
    ) -> Answer | Waiting:
        if header.request <= self._applied:
            return self._reply(header, codec.RESULT_OK)
        suffix_at = len(body) - STORE_SUFFIX.size
        if suffix_at < 0:
            raise RemoteProtocolError(f"an offset of {len(body)} bytes is cut short")
        offset, _ack = STORE_SUFFIX.unpack_from(body, suffix_at)
        target = bytes(body[:suffix_at])
        route = self._store_routes.get(target)
        broker = self._broker
        if route is None or route.version != broker.metadata.version:
            route = messages.resolve_offset_write(broker, session, *decode_target(target))
            _remember(self._store_routes, target, route)
        reply = messages.store_offset(broker, session, route, offset, now_us)
        return self._answer(header, reply, lambda _reply: b"")

    # Answers

    def _answer(
        self, header: RequestHeader, reply: object, encode: Callable[[object], BytesLike]
    ) -> Answer | Waiting:
        if isinstance(reply, Pending):
            return Waiting(reply, lambda outcome: self._finish(header, outcome, encode))
        return self._finish(header, reply, encode)

    def _finish(
        self, header: RequestHeader, outcome: object, encode: Callable[[object], BytesLike]
    ) -> Answer:
        if isinstance(outcome, BorzoiError):
            return self._refuse(header, outcome)
        try:
            body = encode(outcome)
        except Exception as error:
            # Nobody catches this behind something pending, and a client without an answer waits.
            self._broker.logger.exception("request failed unexpectedly", reason=repr(error))
            return self._refuse(header, Error("internal error"))
        if is_result_framed(header.operation):
            body = codec.frame_result(body)
        answer = self._reply(header, body)
        if header.operation >= Operation.CREATE_STREAM:
            self._applied = max(self._applied, header.request)
            if header.operation in _METADATA_OPERATIONS:
                self._replies[header.request] = (header.request_checksum, answer)
                if len(self._replies) > _REPLIES_MAX:
                    self._replies.popitem(last=False)
        return answer

    def _reply(self, header: RequestHeader, body: BytesLike) -> Answer:
        return [pack_reply(header, len(body), self._broker.commit) + body]

    def _refuse(self, header: RequestHeader, error: object) -> Answer:
        code = error.code if isinstance(error, BorzoiError) else Error.code
        return [pack_reply(header, 0, self._broker.commit, code)]


def _code_of(number: int) -> Code:
    """The command of a non-replicated request."""
    try:
        code = Code(number)
    except ValueError:
        raise InvalidCommand(f"code {number}") from None
    if code not in NON_REPLICATED_CODES:
        raise FeatureUnavailable(f"{code.name} does not travel as operation 2")
    return code


def _require_number(header: RequestHeader) -> None:
    """A write without a number cannot be told from a repetition, and must not be acknowledged as one."""
    if not header.request:
        raise RemoteProtocolError("a write without a request number")


def _check_body(header: RequestHeader, body: memoryview) -> None:
    """Compare the body with the checksum of the header, where the client gave one."""
    checksum = int.from_bytes(header.request_checksum[:8], "little")
    if checksum and checksum != xxh3_64_intdigest(body):
        raise InvalidFormat("the body does not match its checksum")


def _remember(routes: dict[bytes, _Route], target: bytes, route: _Route) -> None:
    if len(routes) >= _ROUTES_MAX:
        routes.clear()
    routes[target] = route
