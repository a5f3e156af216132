"""The server's side of a classic conversation: clients of Iggy 0.4 to 0.8, in their four dialects.

Every error is the status of a reply, which then has no body. Where classic servers say more or less than
the broker does, it is evened out here:

- "get one" of anything missing, or in anything missing, answers an empty body;
- a group's poll without a partition goes round the partitions of the member, one per poll;
- a poll or a stored offset of somebody who is no member is a 5006, of a partition that is another
  member's an empty answer or a 3022;
- an automatic commit stores what the poll returned, also if that is a step back;
- sends and offsets name exactly what is missing;
- another login on the same connection changes the user and leaves the memberships alone;
- an update of a topic replaces its settings, and a setting of 0 is the server's default.

Messages are translated on the way in and out, a batch at a time (`borzoi.wire.classic.translate`).
"""

import random
import struct
from collections.abc import Callable
from functools import partial

from borzoi.broker import messages
from borzoi.broker.broker import Broker
from borzoi.broker.catalog import Group, Topic
from borzoi.broker.handlers import Context, handle
from borzoi.broker.handlers.users import log_in, log_in_with_token
from borzoi.broker.options import derived_options
from borzoi.broker.pending import AfterSync, OnThread, Pending
from borzoi.broker.sessions import Client, Session
from borzoi.broker.users import User, check_password, check_username
from borzoi.model.access import Access
from borzoi.model.errors import (
    BorzoiError,
    ConsumerGroupMemberNotFound,
    ConsumerOffsetNotFound,
    Error,
    InvalidCommand,
    InvalidCredentials,
    InvalidPersonalAccessToken,
    IoError,
    NotFound,
    NotResolvedConsumer,
    RemoteProtocolError,
    ResourceNotFound,
    StaleClient,
    TopicIdNotFound,
    Unauthenticated,
    Unauthorized,
    UserInactive,
)
from borzoi.model.limits import FRAME_BYTES_UNAUTHENTICATED
from borzoi.model.replies import ClusterMetadata, LoggedIn, PolledMessages
from borzoi.model.requests import (
    DeleteConsumerOffset,
    GetSnapshot,
    LoginUser,
    LoginWithToken,
    LogoutUser,
    PollMessages,
    StoreConsumerOffset,
    UpdateTopic,
)
from borzoi.model.values import (
    FENCED_PARTITION_ID,
    ConsumerKind,
    Identifier,
    Partitioning,
    PartitioningKind,
    SnapshotPart,
    UserStatus,
)
from borzoi.server.conversation import Answer, Waiting
from borzoi.wire.classic import codec
from borzoi.wire.classic.dialect import Dialect, DialectSniffer, dialect_of_version
from borzoi.wire.classic.frames import LENGTH_BYTES, frame_size, pack_reply, request_code
from borzoi.wire.classic.messages import decode_poll, decode_send, poll_reply_prefix
from borzoi.wire.classic.translate import from_batches, to_batch
from borzoi.wire.classic.users import decode_login
from borzoi.wire.commands import COMMAND_BY_CODE, Code, Generation
from borzoi.wire.commands import Answer as Answers

# Ids of messages must be unlike each other, not unguessable; the system's source costs ten times as much.
_random_bytes = random.Random().randbytes  # noqa: S311 - see above

_HEADER_BYTES = 8
_ROUTES_MAX = 1024
# What consumers ask when their client is back. Several tasks of a client reconnect at once, and one of them
# may log in on a connection that another has replaced by then, so that this comes before the login on the new
# one. An Unauthenticated would make all of them dial again, which goes on until some consumer gives up for
# good; after any other error they ask again once the login is there.
_REJOINING = frozenset({Code.GET_CONSUMER_GROUP, Code.JOIN_CONSUMER_GROUP})
# Only messages need more; everything else is refused before it is decoded.
_CONTROL_BYTES_MAX = 10 << 20
# Members are told apart by their connection. The ids that vsr clients choose have 128 bits, so that none of
# them is one of these.
_FIRST_MEMBER_ID = 1 << 128
# Where a polled message has its offset.
_OFFSET = struct.Struct("<Q")
_OFFSET_AT = {Dialect.A: 0, Dialect.B: 24, Dialect.C: 24, Dialect.D: 24}
# What a topic is always given in this generation.
_SETTINGS = ("message_expiry", "max_topic_size")
_NOBODY = PolledMessages(FENCED_PARTITION_ID, 0, 0)

_SendKey = tuple[Identifier, Identifier, Partitioning]


class ClassicConversation:
    header_bytes = LENGTH_BYTES

    def __init__(self, broker: Broker, client: Client, frame_bytes_max: int) -> None:
        self._broker = broker
        self._client = client
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_allowed = FRAME_BYTES_UNAUTHENTICATED
        self._session: Session | None = None
        self._sniffer = DialectSniffer()
        self._dialect: Dialect | None = None  # as the login said; None = to be told from the frames
        self._send_routes: dict[_SendKey, messages.SendRoute] = {}
        # Where each group's polls without a partition are in their round, by group.
        self._rounds: dict[Group, int] = {}

    @property
    def is_authenticated(self) -> bool:
        return self._session is not None

    def frame_size(self, data: bytearray, position: int) -> int:
        return frame_size(data, position, self._frame_bytes_allowed)

    def receive(self, data: memoryview, position: int, end: int, now_us: int) -> Answer | Waiting:
        self._client.last_seen_us = now_us
        body = data[position + _HEADER_BYTES : end]
        try:
            code = _code_of(request_code(data, position))
            return self._dispatch(code, body, now_us)
        except BorzoiError as error:
            return _refuse(error)
        except OSError as error:
            self._broker.logger.error("request failed", reason=str(error))
            return _refuse(IoError(error.strerror or str(error)))
        except Exception as error:
            # A fault of ours must not take the connections of others down.
            self._broker.logger.exception("request failed unexpectedly", reason=repr(error))
            return _refuse(Error("internal error"))

    def _dispatch(self, code: Code, body: memoryview, now_us: int) -> Answer | Waiting:
        if code is Code.PING:
            return _reply(b"")
        if code is Code.LOGIN_USER:
            return self._log_in(body)
        if code is Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN:
            return self._log_in_with_token(body, now_us)
        if code is Code.GET_CLUSTER_METADATA:
            return self._tell_cluster(body)
        session = self._session
        if session is None or not session.is_alive:
            self._session = None
            if session is not None and session.is_evicted:
                raise StaleClient(session.username)
            raise Unauthorized("log in first") if code in _REJOINING else Unauthenticated()
        dialect = self._dialect or self._sniffer.feed(code, body)
        if code is Code.SEND_MESSAGES:
            return self._send(session, body, dialect, now_us)
        if len(body) > _CONTROL_BYTES_MAX:
            raise InvalidCommand(f"{code.name} of {len(body)} bytes")
        if code is Code.POLL_MESSAGES:
            return self._poll(session, decode_poll(body, dialect), dialect, now_us)
        request = codec.decode_request(code, body, dialect)
        if isinstance(request, StoreConsumerOffset | DeleteConsumerOffset):
            return self._write_offset(session, request, now_us)
        if isinstance(request, UpdateTopic):
            request = self._with_defaults(request)
        elif isinstance(request, GetSnapshot):
            _check_parts(request)
        elif isinstance(request, LogoutUser):
            self._session = None
        context = Context(self._broker, session, COMMAND_BY_CODE[code].access, now_us)
        try:
            reply = handle(context, request)
        except NotFound:
            if COMMAND_BY_CODE[code].answer is not Answers.ONE_OR_NONE:
                raise
            reply = None
        return _answer(reply, partial(codec.encode_reply, code, dialect=dialect))

    # Logins

    def _log_in(self, body: memoryview) -> Answer | Waiting:
        credentials, version = decode_login(body)
        try:
            check_username(credentials.username)
            check_password(credentials.password)
        except BorzoiError:
            raise InvalidCredentials(credentials.username) from None
        dialect = dialect_of_version(version) if version else None

        def finish(outcome: object) -> Answer:
            if not isinstance(outcome, User):
                return _refuse(outcome)
            return self._logged_in(outcome, dialect)

        return Waiting(self._check(credentials), finish)

    def _check(self, credentials: LoginUser) -> OnThread:
        """Like `log_in`, but who knows the password of an inactive user is told that it is inactive."""
        checked = log_in(self._broker, credentials)

        def then(is_right: bool) -> User:
            user = self._broker.users.find(credentials.username)
            if is_right and user is not None and user.status is not UserStatus.ACTIVE:
                raise UserInactive(user.username)
            found: User = checked.then(is_right)
            return found

        return OnThread(checked.work, then)

    def _log_in_with_token(self, body: memoryview, now_us: int) -> Answer:
        request = codec.decode_request(Code.LOGIN_WITH_PERSONAL_ACCESS_TOKEN, body, Dialect.D)
        if not isinstance(request, LoginWithToken):
            raise RemoteProtocolError("a token login without a token")
        try:
            user = log_in_with_token(self._broker, request, now_us)
        except InvalidPersonalAccessToken as error:
            raise ResourceNotFound("no such token") from error
        return self._logged_in(user, None)

    def _logged_in(self, user: User, dialect: Dialect | None) -> Answer:
        session = self._session
        if session is not None and session.is_alive:
            session.user_id, session.username = user.id, user.username
            self._broker.logger.info("logged in again", user=user.username, client=self._client.id)
        else:
            self._session = self._broker.start_session(self._client, _FIRST_MEMBER_ID + self._client.id, user)
        self._frame_bytes_allowed = self._frame_bytes_max
        self._dialect = dialect
        self._send_routes.clear()
        reply = LoggedIn(user.id)
        return _reply(codec.encode_reply(Code.LOGIN_USER, reply, dialect or self._sniffer.dialect))

    def _tell_cluster(self, body: memoryview) -> Answer:
        """To anyone, for the same reason as `_REJOINING`; who asks knows the address that is told."""
        dialect = self._dialect or self._sniffer.feed(Code.GET_CLUSTER_METADATA, body)
        codec.decode_request(Code.GET_CLUSTER_METADATA, body, dialect)
        settings = self._broker.settings
        metadata = ClusterMetadata(settings.cluster_name, (settings.node,))
        return _reply(codec.encode_reply(Code.GET_CLUSTER_METADATA, metadata, dialect))

    # Messages

    def _send(self, session: Session, body: memoryview, dialect: Dialect, now_us: int) -> Answer | Waiting:
        parts = decode_send(body, dialect)
        key = (parts.stream, parts.topic, parts.partitioning)
        route = self._send_routes.get(key)
        broker = self._broker
        if route is None or route.version != broker.metadata.version:
            route = self._resolve_send(session, *key)
        batch, count = to_batch(
            parts.messages,
            parts.messages_count,
            parts.index_entries,
            dialect,
            now_us=now_us,
            random_bytes=_random_bytes,
        )
        reply = messages.send(broker, route, batch, count, now_us, is_verified=True)
        if isinstance(reply, AfterSync):
            return Waiting(reply, lambda outcome: _finish(outcome, _nothing))
        return _reply(b"")

    def _resolve_send(
        self, session: Session, stream: Identifier, topic: Identifier, partitioning: Partitioning
    ) -> messages.SendRoute:
        found = self._topic(session, Access.SEND, stream, topic)
        if partitioning.kind is PartitioningKind.PARTITION_ID:
            found.partition(int.from_bytes(partitioning.value, "little"))
        elif not found.partitions:
            raise TopicIdNotFound(f"{found.name} has no partitions")
        route = messages.resolve_send(self._broker, session, stream, topic, partitioning)
        if len(self._send_routes) >= _ROUTES_MAX:
            self._send_routes.clear()
        self._send_routes[stream, topic, partitioning] = route
        return route

    def _poll(
        self, session: Session, request: PollMessages, dialect: Dialect, now_us: int
    ) -> Answer | Waiting:
        partition_id = request.partition_id
        if request.consumer.kind is ConsumerKind.GROUP:
            group = self._group_of_member(session, request)
            if partition_id is None:
                partition_id = self._next_partition(session, group)
                if partition_id is None:
                    return _polled(_NOBODY, memoryview(b""), 0, dialect)
        route = messages.resolve_poll(
            self._broker, session, request.consumer, request.stream, request.topic, partition_id
        )
        strategy = request.strategy
        reply = messages.poll(
            self._broker, session, route, strategy.kind, strategy.value, request.count, False, now_us
        )
        if not isinstance(reply, PolledMessages):
            raise TypeError("a poll that stores nothing has nothing to wait for")
        records, count = from_batches(reply.batches, dialect)
        answer = _polled(reply, records, count, dialect)
        if not (request.auto_commit and count):
            return answer
        # Offsets have no gaps; and what could not be translated is not stored as read.
        last_offset = _first_offset(records, dialect) + count - 1
        stored = messages.store_offset(self._broker, session, route, last_offset, now_us)
        if stored is None:
            return answer
        return Waiting(stored, lambda error: _refuse(error) if isinstance(error, BorzoiError) else answer)

    def _topic(self, session: Session, access: Access, stream: Identifier, topic: Identifier) -> Topic:
        found = self._broker.catalog.topic(stream, topic)
        self._broker.require(session, access, found.stream.id, found.id)
        return found

    def _group_of_member(
        self, session: Session, request: PollMessages | StoreConsumerOffset | DeleteConsumerOffset
    ) -> Group:
        group = self._topic(session, Access.POLL, request.stream, request.topic).group(request.consumer.id)
        if not group.members.is_member(session.client_id):
            raise ConsumerGroupMemberNotFound(f"{session.username} in group {group.name}")
        return group

    def _next_partition(self, session: Session, group: Group) -> int | None:
        """One partition of the member per poll, in turn; an empty one is not skipped."""
        assignment = group.members.assignment(session.client_id)
        if assignment is None or not assignment.partitions:
            return None
        turn = self._rounds.get(group, -1) + 1
        self._rounds[group] = turn
        return assignment.partitions[turn % len(assignment.partitions)]

    def _write_offset(
        self, session: Session, request: StoreConsumerOffset | DeleteConsumerOffset, now_us: int
    ) -> Answer | Waiting:
        partition_id = request.partition_id
        if request.consumer.kind is ConsumerKind.GROUP:
            group = self._group_of_member(session, request)
            if partition_id is None:
                partition_id = self._current_partition(session, group)
            if not group.members.owner_may_commit(session.client_id, partition_id):
                raise NotResolvedConsumer(f"partition {partition_id} is not in the hands of this member")
        route = messages.resolve_poll(
            self._broker, session, request.consumer, request.stream, request.topic, partition_id
        )
        if isinstance(request, StoreConsumerOffset):
            reply = messages.store_offset(self._broker, session, route, request.offset, now_us)
            return _answer(reply, _nothing)
        if not messages.delete_offset(self._broker, session, route, now_us):
            raise ConsumerOffsetNotFound(f"{request.consumer.id}")
        return _reply(b"")

    def _current_partition(self, session: Session, group: Group) -> int:
        """The partition that the member's last poll without one went to."""
        assignment = group.members.assignment(session.client_id)
        if assignment is None or not assignment.partitions:
            raise NotResolvedConsumer(f"{session.username} has no partition of group {group.name}")
        return assignment.partitions[max(0, self._rounds.get(group, 0)) % len(assignment.partitions)]

    # Topics

    def _with_defaults(self, request: UpdateTopic) -> UpdateTopic:
        """A setting that the request left to the server, decided: the topic's own must not stay."""
        defaults = derived_options({}, self._broker.settings)
        decided = {key: defaults[key] for key in _SETTINGS}
        return UpdateTopic(request.stream, request.topic, request.name, decided | request.options)


def _code_of(number: int) -> Code:
    try:
        code = Code(number)
    except ValueError:
        raise InvalidCommand(f"code {number}") from None
    if COMMAND_BY_CODE[code].codes.get(Generation.CLASSIC) is not code:
        raise InvalidCommand(f"{code.name} is not of this generation")
    return code


def _check_parts(request: GetSnapshot) -> None:
    if SnapshotPart.ALL in request.parts and len(request.parts) > 1:
        raise InvalidCommand("a snapshot of everything and of something more")


def _answer(reply: object, encode: Callable[[object], bytes]) -> Answer | Waiting:
    if isinstance(reply, Pending):
        return Waiting(reply, lambda outcome: _finish(outcome, encode))
    return _finish(reply, encode)


def _finish(outcome: object, encode: Callable[[object], bytes]) -> Answer:
    if isinstance(outcome, BorzoiError):
        return _refuse(outcome)
    return _reply(encode(outcome))


def _nothing(_reply: object) -> bytes:
    return b""


def _polled(reply: PolledMessages, records: memoryview, count: int, dialect: Dialect) -> Answer:
    prefix = poll_reply_prefix(reply.partition_id, reply.current_offset, count, dialect)
    head = pack_reply(0, len(prefix) + len(records)) + prefix
    return [head, records] if len(records) else [head]


def _first_offset(records: memoryview, dialect: Dialect) -> int:
    offset: int = _OFFSET.unpack_from(records, _OFFSET_AT[dialect])[0]
    return offset


def _reply(body: bytes) -> Answer:
    return [pack_reply(0, len(body)) + body]


def _refuse(error: object) -> Answer:
    return [pack_reply(error.code if isinstance(error, BorzoiError) else Error.code)]
