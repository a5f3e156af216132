"""What is said on one connection, without I/O.

Every exchange is a generator: it yields the parts of a frame to send, is sent the reply frame, and returns
the decoded reply or raises the error it carries. A driver may run several exchanges at once as long as it
sends frames in the order they were yielded; the server answers in that order.

    numbers    a request that changes something has the next number; a read repeats the number that the
               next change will have. Every login starts anew, with a new client id and a new session.
    results    an error comes as the status of a reply, as a result section before its payload, or as an
               eviction; all three become an exception of `borzoi.model.errors`
    groups     a poll for a group that names no partition becomes a sync now and then and a poll of the
               next partition of the assignment; a fence means: sync and try once more

An eviction, other than of a login that failed, ends the session. What to do then, about connections and
about requests without an answer, is in `client.recovery`.
"""

import time
import uuid
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

from borzoi import __version__
from borzoi.client.memberships import GroupKey, Memberships
from borzoi.client.values import UNNAMED_CONSUMER, Consumer
from borzoi.model.errors import (
    BorzoiError,
    CommandLengthError,
    ConsumerGroupMemberNotFound,
    ConsumerGroupPartitionNotOwned,
    IncompatibleProtocolVersion,
    InvalidCommand,
    InvalidCredentials,
    InvalidFormat,
    InvalidPersonalAccessToken,
    InvalidSession,
    LocalProtocolError,
    RemoteProtocolError,
    StaleClient,
    Unauthenticated,
    UserInactive,
    error_for,
)
from borzoi.model.limits import FRAME_BYTES_CEILING
from borzoi.model.replies import GroupAssignment, PolledMessages
from borzoi.model.requests import (
    LoginUser,
    LoginWithToken,
    LogoutUser,
    Ping,
    PollMessages,
    Request,
    SendMessages,
    StageMessages,
    SyncConsumerGroup,
)
from borzoi.model.values import FENCED_PARTITION_ID, BytesLike, ConsumerKind
from borzoi.wire.commands import COMMAND_BY_REQUEST, Generation
from borzoi.wire.vsr import codec
from borzoi.wire.vsr.frames import (
    COMMAND_EVICTION,
    COMMAND_REPLY,
    HEADER_BYTES,
    SIZE_AND_COMMAND,
    EvictionReason,
    pack_request,
    unpack_eviction,
    unpack_reply,
)
from borzoi.wire.vsr.login import (
    PROTOCOL_VERSION,
    ClientVersion,
    Register,
    RegisterReply,
    decode_register_reply,
    encode_register,
    unpack_version,
)
from borzoi.wire.vsr.messages import poll_body, send_prefix
from borzoi.wire.vsr.operations import OPERATION_BY_CODE, Operation, is_result_framed
from borzoi.wire.vsr.transactions import stage_prefix

T = TypeVar("T")

Parts = Sequence[BytesLike]
Exchange = Generator[Parts, memoryview, T]
Credentials = LoginUser | LoginWithToken

_SDK_NAME = "borzoi"
_NO_CHECKSUM = bytes(16)
# Fields that tell which thing a request was about. Nothing secret is among them.
_TELLING_FIELDS = ("stream", "topic", "group", "name", "partition_id", "user", "username", "client_id")

_EVICTIONS: dict[EvictionReason, type[BorzoiError]] = {
    EvictionReason.NO_SESSION: Unauthenticated,
    EvictionReason.CLIENT_RELEASE_TOO_LOW: InvalidCommand,
    EvictionReason.CLIENT_RELEASE_TOO_HIGH: InvalidCommand,
    EvictionReason.INVALID_REQUEST_OPERATION: InvalidCommand,
    EvictionReason.INVALID_REQUEST_BODY: InvalidCommand,
    EvictionReason.INVALID_REQUEST_BODY_SIZE: InvalidCommand,
    EvictionReason.SESSION_TOO_LOW: Unauthenticated,
    EvictionReason.SESSION_RELEASE_MISMATCH: Unauthenticated,
    EvictionReason.INVALID_CREDENTIALS: InvalidCredentials,
    EvictionReason.INVALID_TOKEN: InvalidPersonalAccessToken,
    EvictionReason.USER_INACTIVE: UserInactive,
    EvictionReason.SESSION_ERROR: Unauthenticated,
    EvictionReason.STALE_CLIENT: StaleClient,
    EvictionReason.INCOMPATIBLE_PROTOCOL: IncompatibleProtocolVersion,
    EvictionReason.MALFORMED_LOGIN: InvalidFormat,
}


class Dialogue:
    def __init__(self, memberships: Memberships, clock: Callable[[], float] = time.monotonic) -> None:
        self._memberships = memberships
        self._clock = clock
        self._client_id = uuid.uuid4().bytes
        self._next_number = 1
        self.session = 0  # 0 = not logged in

    def log_in(self, credentials: Credentials) -> Exchange[RegisterReply]:
        if self.session:
            yield from self.perform(LogoutUser())
        self._client_id = uuid.uuid4().bytes
        register = Register(ClientVersion(PROTOCOL_VERSION, _SDK_NAME, __version__), credentials)
        try:
            body = encode_register(register)
        except LocalProtocolError as error:
            raise InvalidCredentials(str(error)) from error
        reply = yield self._frame(Operation.REGISTER, 0, [body], number=0, checksum=_checksum(body))
        payload = self._payload(reply, Operation.REGISTER, None)
        if not payload:
            raise RemoteProtocolError("the reply to a login is empty")
        registered = decode_register_reply(payload)
        if not registered.session:
            raise InvalidSession("the server gave the session number 0")
        self.session = registered.session
        self._next_number = 1
        return registered

    def perform(self, request: Request) -> Exchange[Any]:
        if isinstance(request, PollMessages) and request.partition_id is None:
            group = self._group_of(request)
            if group is not None:
                return (yield from self._poll_group(request, group))
        reply = yield from self._ask(request)
        if isinstance(request, LogoutUser):
            self.session = 0
        elif (
            isinstance(request, PollMessages)
            and request.consumer.kind is ConsumerKind.GROUP
            and reply.partition_id == FENCED_PARTITION_ID
        ):
            raise ConsumerGroupPartitionNotOwned(describe(request))
        return reply

    def _group_of(self, request: PollMessages) -> GroupKey | None:
        if request.consumer.kind is ConsumerKind.GROUP:
            return GroupKey(request.stream, request.topic, request.consumer.id)
        if request.consumer is UNNAMED_CONSUMER:
            group = self._memberships.only_group_of(request.stream, request.topic)
            return GroupKey(request.stream, request.topic, group) if group is not None else None
        return None

    def _poll_group(self, request: PollMessages, key: GroupKey) -> Exchange[PolledMessages]:
        memberships = self._memberships
        for _ in range(2):
            if memberships.is_due(key, self._clock()):
                assignment: GroupAssignment | None = yield from self._ask(SyncConsumerGroup(*key))
                if assignment is None:
                    memberships.forget_assignment(key)
                    raise ConsumerGroupMemberNotFound(describe(SyncConsumerGroup(*key)))
                memberships.learn(key, assignment, self._clock())
            partition_id = memberships.next_partition(key)
            if partition_id is None:
                break
            explicit = msgspec.structs.replace(
                request, consumer=Consumer.group(key.group), partition_id=partition_id
            )
            try:
                reply: PolledMessages = yield from self._ask(explicit)
            except ConsumerGroupPartitionNotOwned:
                pass
            else:
                if reply.partition_id != FENCED_PARTITION_ID:
                    return reply
            memberships.forget_assignment(key)
        return PolledMessages(FENCED_PARTITION_ID, 0, 0)

    def _ask(self, request: Request) -> Exchange[Any]:
        code = COMMAND_BY_REQUEST[type(request)].codes[Generation.VSR]
        operation = OPERATION_BY_CODE[code]
        if not self.session and not isinstance(request, Ping | LogoutUser):
            raise Unauthenticated(describe(request))
        body = _body(request)
        if operation is Operation.NON_REPLICATED:
            reply = yield self._frame(operation, code, body, number=self._next_number)
        else:
            number, self._next_number = self._next_number, self._next_number + 1
            # Messages have checksums of their own.
            checksum = _NO_CHECKSUM if operation >= Operation.SEND_MESSAGES else _checksum(body[0])
            reply = yield self._frame(operation, 0, body, number=number, checksum=checksum)
        return codec.decode_reply(code, self._payload(reply, operation, request))

    def _frame(
        self, operation: Operation, code: int, body: Parts, *, number: int, checksum: bytes = _NO_CHECKSUM
    ) -> Parts:
        header = pack_request(
            sum(map(len, body)),
            client=self._client_id,
            operation=operation,
            request=number,
            session=0 if operation is Operation.REGISTER else self.session,
            code=code,
            request_checksum=checksum,
        )
        return [header, *body]

    def _payload(self, frame: memoryview, operation: Operation, request: Request | None) -> memoryview:
        """The reply's payload; raises the error that it carries. None stands for a login."""
        _, command = SIZE_AND_COMMAND.unpack_from(frame)
        if command == COMMAND_EVICTION:
            raise self._evicted(frame, request)
        if command != COMMAND_REPLY:
            raise RemoteProtocolError(f"{describe(request)} was answered by a frame of kind {command}")
        header = unpack_reply(frame)
        if header.operation != operation:
            raise RemoteProtocolError(
                f"{describe(request)} was answered as operation {header.operation}, not {operation}"
            )
        if header.status:
            raise _error(header.status, request)
        payload = frame[HEADER_BYTES:]
        if not is_result_framed(operation) or (operation is Operation.REGISTER and not payload):
            return payload
        code, payload = codec.split_result(payload)
        if code:
            raise _error(code, request)
        return payload

    def _evicted(self, frame: memoryview, request: Request | None) -> BorzoiError:
        self.session = 0
        _, reason, version_max, version_min = unpack_eviction(frame)
        if reason is EvictionReason.INCOMPATIBLE_PROTOCOL:
            ours, lowest, highest = map(_version_text, (PROTOCOL_VERSION, version_min, version_max))
            return IncompatibleProtocolVersion(f"client {ours}, server accepts {lowest} to {highest}")
        return _EVICTIONS[reason](describe(request))


def is_change(request: Request) -> bool:
    """Whether carrying the request out twice could differ from carrying it out once."""
    if isinstance(request, PollMessages):
        return request.auto_commit
    code = COMMAND_BY_REQUEST[type(request)].codes[Generation.VSR]
    return OPERATION_BY_CODE[code] is not Operation.NON_REPLICATED


def describe(request: Request | None) -> str:
    """The request for error texts: `create_topic, stream orders, name events`. None is a login."""
    if request is None:
        return "login"
    words = [COMMAND_BY_REQUEST[type(request)].name]
    for field in _TELLING_FIELDS:
        value = getattr(request, field, None)
        if value is not None:
            words.append(f"{field.replace('_', ' ')} {value}")
    return ", ".join(words)


def _body(request: Request) -> Parts:
    try:
        if isinstance(request, SendMessages):
            # As parts, so that the batch is not copied.
            body: Parts = [send_prefix(request), request.batch]
        elif isinstance(request, StageMessages):
            body = [stage_prefix(request), request.batch]
        elif isinstance(request, PollMessages):
            body = [poll_body(request)]
        else:
            body = [codec.encode_request(request)]
    except LocalProtocolError as error:
        raise InvalidFormat(f"{describe(request)}: {error}") from error
    size = HEADER_BYTES + sum(map(len, body))
    if size > FRAME_BYTES_CEILING:
        raise CommandLengthError(
            f"{describe(request)}: {size} bytes, no server takes more than {FRAME_BYTES_CEILING}"
        )
    return body


def _checksum(body: BytesLike) -> bytes:
    return xxh3_64_intdigest(body).to_bytes(16, "little")


def _error(code: int, request: Request | None) -> BorzoiError:
    kind, what = error_for(code), describe(request)
    error = kind(what if code == kind.code else f"{what}: code {code}")
    error.code = code
    return error


def _version_text(version: int) -> str:
    return ".".join(map(str, unpack_version(version)))
