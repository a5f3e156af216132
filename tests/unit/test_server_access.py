"""Who may do what, over real sockets: every command, without a login and with every single permission.

What is expected is written out here flag by flag from the protocol's table, not taken from the program:
`g.` a global flag, `s.` one of the stream the command names, `t.` one of its topic.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from borzoi.model import requests as rq
from borzoi.model.errors import (
    BorzoiError,
    ConsumerGroupIdNotFound,
    ResourceNotFound,
    StreamIdNotFound,
    TopicIdNotFound,
    Unauthenticated,
    Unauthorized,
    error_for,
)
from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
from borzoi.model.values import (
    Consumer,
    ConsumerKind,
    OptionScope,
    Partitioning,
    PartitioningKind,
    SnapshotCompression,
    SnapshotPart,
    UserStatus,
)
from borzoi.wire.batch import NewMessage, build
from borzoi.wire.commands import COMMANDS, Generation
from borzoi.wire.vsr.frames import EvictionReason
from borzoi.wire.vsr.operations import OPERATION_BY_CODE, Operation
from support.in_process import LocalServer, poll_request, send_request
from support.wire_client import Evicted, WireClient

GENERAL = (
    *("manage_servers", "read_servers", "manage_users", "read_users", "manage_streams", "read_streams"),
    *("manage_topics", "read_topics", "poll_messages", "send_messages"),
)
OF_STREAM = ("manage_stream", "read_stream", "manage_topics", "read_topics", "poll_messages", "send_messages")
OF_TOPIC = ("manage_topic", "read_topic", "poll_messages", "send_messages")

# Stream 0 and its topic 0 are what every command names; the others must never help.
HERE, ELSEWHERE = 0, 1


def only_in_topic(stream: int, topic: int, flag: str) -> Permissions:
    return Permissions(streams={stream: StreamPermissions(topics={topic: TopicPermissions(**{flag: True})})})


HOLDERS: dict[str, Permissions | None] = {
    "no permissions": None,
    "empty permissions": Permissions(),
    **{f"g.{flag}": Permissions(GlobalPermissions(**{flag: True})) for flag in GENERAL},
    **{f"s.{flag}": Permissions(streams={HERE: StreamPermissions(**{flag: True})}) for flag in OF_STREAM},
    **{f"t.{flag}": only_in_topic(HERE, HERE, flag) for flag in OF_TOPIC},
    **{
        f"another stream's {flag}": Permissions(streams={ELSEWHERE: StreamPermissions(**{flag: True})})
        for flag in OF_STREAM
    },
    **{f"another topic's {flag}": only_in_topic(HERE, ELSEWHERE, flag) for flag in OF_TOPIC},
    **{f"{flag} of the topic in another stream": only_in_topic(ELSEWHERE, HERE, flag) for flag in OF_TOPIC},
}

ANYONE = frozenset(HOLDERS)


def flags(text: str) -> frozenset[str]:
    return frozenset(text.split())


SERVERS = flags("g.manage_servers g.read_servers")
READ_USERS = flags("g.manage_users g.read_users")
MANAGE_USERS = flags("g.manage_users")
LIST_STREAMS = flags("g.manage_streams g.read_streams")
READ_STREAM = flags("g.manage_streams g.read_streams s.manage_stream s.read_stream")
CREATE_STREAM = flags("g.manage_streams")
MANAGE_STREAM = flags("g.manage_streams s.manage_stream")
CREATE_TOPIC = flags("g.manage_streams g.manage_topics s.manage_stream s.manage_topics")
LIST_TOPICS = flags(
    "g.read_streams g.manage_streams g.manage_topics g.read_topics "
    "s.manage_stream s.read_stream s.manage_topics s.read_topics"
)
READ_TOPIC = LIST_TOPICS | flags("t.manage_topic t.read_topic")
MANAGE_TOPIC = CREATE_TOPIC | flags("t.manage_topic")
POLL = READ_TOPIC | flags("g.poll_messages s.poll_messages t.poll_messages")
SEND = MANAGE_TOPIC | flags("g.send_messages s.send_messages t.send_messages")

CONSUMER = Consumer(ConsumerKind.CONSUMER, 7)
BALANCED = Partitioning(PartitioningKind.BALANCED)
STAGED_BATCH = bytes(build([NewMessage(b"staged")]))


@dataclass(frozen=True)
class Expectation:
    """A request that succeeds for whoever may make it, and who that is."""

    request: Any
    allowed: frozenset[str]
    changes_something: bool = False


EXPECTED: dict[str, Expectation] = {
    "ping": Expectation(rq.Ping(), ANYONE),
    "get_stats": Expectation(rq.GetStats(), SERVERS),
    "snapshot": Expectation(rq.GetSnapshot(SnapshotCompression.STORED, (SnapshotPart.TEST,)), SERVERS),
    "get_cluster_metadata": Expectation(rq.GetClusterMetadata(), ANYONE),
    "describe_options": Expectation(rq.DescribeOptions(OptionScope.TOPIC), ANYONE),
    "get_me": Expectation(rq.GetMe(), ANYONE),
    "get_client": Expectation(rq.GetClient(1), SERVERS),
    "get_clients": Expectation(rq.GetClients(), SERVERS),
    "get_user": Expectation(rq.GetUser("somebody"), READ_USERS),
    "get_users": Expectation(rq.GetUsers(), READ_USERS),
    "create_user": Expectation(
        rq.CreateUser("newcomer", "secret", UserStatus.ACTIVE, None), MANAGE_USERS, changes_something=True
    ),
    "delete_user": Expectation(rq.DeleteUser("somebody"), MANAGE_USERS, changes_something=True),
    "update_user": Expectation(rq.UpdateUser("somebody", status=UserStatus.INACTIVE), MANAGE_USERS),
    "update_permissions": Expectation(rq.UpdatePermissions("somebody", Permissions()), MANAGE_USERS),
    "change_password": Expectation(rq.ChangePassword("somebody", "secret", "secret"), MANAGE_USERS),
    "get_personal_access_tokens": Expectation(rq.GetTokens(), ANYONE),
    "create_personal_access_token": Expectation(rq.CreateToken("new token", 0), ANYONE),
    "delete_personal_access_token": Expectation(rq.DeleteToken("new token"), ANYONE),
    "poll_messages": Expectation(poll_request(HERE, HERE), POLL),
    "send_messages": Expectation(send_request(HERE, HERE, [b"x"]), SEND),
    "flush_unsaved_buffer": Expectation(rq.FlushUnsavedBuffer(HERE, HERE, 0, fsync=False), SEND),
    "get_consumer_offset": Expectation(rq.GetConsumerOffset(CONSUMER, HERE, HERE, 0), POLL),
    "store_consumer_offset": Expectation(rq.StoreConsumerOffset(CONSUMER, HERE, HERE, 0, 0), POLL),
    "delete_consumer_offset": Expectation(
        rq.DeleteConsumerOffset(CONSUMER, HERE, HERE, 0), POLL, changes_something=True
    ),
    "get_stream": Expectation(rq.GetStream(HERE), READ_STREAM),
    "get_streams": Expectation(rq.GetStreams(), LIST_STREAMS),
    "create_stream": Expectation(rq.CreateStream("newcomer"), CREATE_STREAM, changes_something=True),
    "delete_stream": Expectation(rq.DeleteStream(HERE), MANAGE_STREAM, changes_something=True),
    "update_stream": Expectation(rq.UpdateStream(HERE, "here"), MANAGE_STREAM),
    "purge_stream": Expectation(rq.PurgeStream(HERE), MANAGE_STREAM, changes_something=True),
    "get_topic": Expectation(rq.GetTopic(HERE, HERE), READ_TOPIC),
    "get_topics": Expectation(rq.GetTopics(HERE), LIST_TOPICS),
    "create_topic": Expectation(rq.CreateTopic(HERE, 1, "newcomer"), CREATE_TOPIC, changes_something=True),
    "delete_topic": Expectation(rq.DeleteTopic(HERE, HERE), MANAGE_TOPIC, changes_something=True),
    "update_topic": Expectation(rq.UpdateTopic(HERE, HERE, "topic 0"), MANAGE_TOPIC),
    "purge_topic": Expectation(rq.PurgeTopic(HERE, HERE), MANAGE_TOPIC, changes_something=True),
    "create_partitions": Expectation(rq.CreatePartitions(HERE, HERE, 1), MANAGE_TOPIC),
    "delete_partitions": Expectation(rq.DeletePartitions(HERE, HERE, 1), MANAGE_TOPIC),
    "delete_segments": Expectation(rq.DeleteSegments(HERE, HERE, 0, 1), MANAGE_TOPIC),
    "get_consumer_group": Expectation(rq.GetConsumerGroup(HERE, HERE, "group"), READ_TOPIC),
    "get_consumer_groups": Expectation(rq.GetConsumerGroups(HERE, HERE), READ_TOPIC),
    "create_consumer_group": Expectation(
        rq.CreateConsumerGroup(HERE, HERE, "newcomer"), READ_TOPIC, changes_something=True
    ),
    "delete_consumer_group": Expectation(
        rq.DeleteConsumerGroup(HERE, HERE, "group"), READ_TOPIC, changes_something=True
    ),
    "join_consumer_group": Expectation(rq.JoinConsumerGroup(HERE, HERE, "group"), READ_TOPIC),
    "leave_consumer_group": Expectation(rq.LeaveConsumerGroup(HERE, HERE, "group"), READ_TOPIC),
    "sync_consumer_group": Expectation(rq.SyncConsumerGroup(HERE, HERE, "group"), ANYONE),
    "get_topic_extent": Expectation(rq.GetTopicExtent(HERE, HERE, (rq.ByteCut(0, 0, 1),)), POLL),
    "stage_messages": Expectation(
        rq.StageMessages(HERE, HERE, "producer", 2, 0, 0, 0, BALANCED, 1, STAGED_BATCH),
        SEND,
    ),
    "commit_epoch": Expectation(rq.CommitEpoch(HERE, HERE, "producer", 1, ()), SEND),
    "abort_epoch": Expectation(rq.AbortEpoch(HERE, HERE, "producer", 2), SEND),
    "get_producer_epoch": Expectation(rq.GetProducerEpoch(HERE, HERE, "producer"), SEND),
    "forget_producer": Expectation(rq.ForgetProducer(HERE, HERE, "nobody"), SEND),
    "stage_copy": Expectation(
        rq.StageCopy(HERE, HERE, "producer", 2, 0, 1, 0, BALANCED, HERE, HERE, 0, 0, 1), SEND & POLL
    ),
    # Last, as it ends the session.
    "logout_user": Expectation(rq.LogoutUser(), ANYONE),
}

# Logins are no requests within a session; everything else of the table must be here.
LOGINS = {"login_user", "login_register", "login_with_personal_access_token"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("access") / "data") as running:
        restore(running)
        yield running


def restore(server: LocalServer) -> None:
    """Put everything in place that a successful command has changed."""
    catalog, users = server.broker.catalog, server.broker.users
    for stream, name in ((HERE, "here"), (ELSEWHERE, "elsewhere")):
        if catalog.find_stream(stream) is None:
            server.ask(rq.CreateStream(name))
        for topic in (HERE, ELSEWHERE):
            if catalog.find_topic(stream, topic) is None:
                server.ask(rq.CreateTopic(stream, 1, f"topic {topic}"))
    topic = catalog.topic(HERE, HERE)
    if topic.find_group("group") is None:
        server.ask(rq.CreateConsumerGroup(HERE, HERE, "group"))
    if not topic.messages_count:
        server.ask(send_request(HERE, HERE, [b"first"]))
    server.ask(rq.StoreConsumerOffset(CONSUMER, HERE, HERE, 0, 0))
    if users.find("somebody") is None:
        server.add_user("somebody")
    if users.find("newcomer") is not None:
        server.ask(rq.DeleteUser("newcomer"))
    if catalog.find_stream("newcomer") is not None:
        server.ask(rq.DeleteStream("newcomer"))
    if catalog.find_topic(HERE, "newcomer") is not None:
        server.ask(rq.DeleteTopic(HERE, "newcomer"))
    if topic.find_group("newcomer") is not None:
        server.ask(rq.DeleteConsumerGroup(HERE, HERE, "newcomer"))


def test_every_command_has_an_expectation():
    assert set(EXPECTED) == {command.name for command in COMMANDS} - LOGINS


@pytest.mark.parametrize("name", EXPECTED)
def test_without_a_login_only_ping_and_logout_are_answered(server, name):
    with WireClient(server.port) as client:
        code = next(command for command in COMMANDS if command.name == name).codes[Generation.VSR]
        request = EXPECTED[name].request
        if name in {"ping", "logout_user"}:
            assert client.request(request) is None
        elif OPERATION_BY_CODE[code] is Operation.NON_REPLICATED:
            with pytest.raises(Unauthenticated):
                client.request(request)
        else:
            with pytest.raises(Evicted) as evicted:
                client.request(request)
            assert evicted.value.reason is EvictionReason.NO_SESSION
        # The connection is as good as before: the login that follows works.
        client.request(rq.Ping())
        assert client.register().user_id == 0


@pytest.mark.parametrize("name", EXPECTED)
def test_a_session_number_without_a_login_gives_no_rights(server, name):
    with WireClient(server.port) as known, WireClient(server.port) as client:
        known.register()
        client.client_id, client.session = known.client_id, known.session
        if name in {"ping", "logout_user"}:
            return
        with pytest.raises((Unauthenticated, Evicted)):
            client.request(EXPECTED[name].request)


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_permission_allows_its_commands_and_no_other(server, holder):
    token = server.add_user(f"user {list(HOLDERS).index(holder)}", HOLDERS[holder])
    outcomes, expected = {}, {}
    with WireClient(server.port) as client:
        client.register_with_token(token)
        for name, expectation in EXPECTED.items():
            expected[name] = "allowed" if holder in expectation.allowed else "41"
            try:
                client.request(expectation.request)
                outcomes[name] = "allowed"
            except BorzoiError as error:
                outcomes[name] = str(error.code)
            if expectation.changes_something and outcomes[name] == "allowed":
                restore(server)
    assert outcomes == expected


def test_root_may_do_everything(server):
    with WireClient(server.port) as client:
        client.register()
        for expectation in EXPECTED.values():
            client.request(expectation.request)
            if expectation.changes_something:
                restore(server)


def test_users_see_themselves_and_change_their_own_password(server):
    token = server.add_user("modest", password="before")
    with WireClient(server.port) as client:
        user_id = client.register_with_token(token).user_id
        assert client.request(rq.GetUser("modest")).user.id == user_id
        assert client.request(rq.GetUser(user_id)).user.username == "modest"
        client.request(rq.ChangePassword(user_id, "before", "after"))
        with pytest.raises(Unauthorized):
            client.request(rq.UpdateUser("modest", username="other"))
        with pytest.raises(Unauthorized):
            client.request(rq.UpdatePermissions("modest", Permissions(GlobalPermissions(manage_users=True))))
        with pytest.raises(Unauthorized):
            client.request(rq.DeleteUser("modest"))
        with pytest.raises(Unauthorized):
            client.request(rq.ChangePassword(0, "iggy", "hacked"))
    with WireClient(server.port) as client:
        client.register("modest", "after")


MISSING = 77
ABSENT: list[tuple[Any, type[BorzoiError] | None]] = [
    (rq.GetUser("nobody"), None),
    (rq.DeleteUser("nobody"), ResourceNotFound),
    (rq.UpdateUser("nobody"), ResourceNotFound),
    (rq.UpdatePermissions("nobody", None), ResourceNotFound),
    (rq.ChangePassword("nobody", "secret", "secret"), ResourceNotFound),
    (poll_request(MISSING, HERE), StreamIdNotFound),
    (poll_request(HERE, MISSING), TopicIdNotFound),
    (send_request(MISSING, HERE, [b"x"]), ResourceNotFound),
    (send_request(HERE, MISSING, [b"x"]), ResourceNotFound),
    (rq.FlushUnsavedBuffer(HERE, MISSING, 0, fsync=False), TopicIdNotFound),
    (rq.GetConsumerOffset(CONSUMER, MISSING, HERE, 0), None),
    (rq.GetConsumerOffset(CONSUMER, HERE, MISSING, 0), None),
    (rq.StoreConsumerOffset(CONSUMER, MISSING, HERE, 0, 0), ResourceNotFound),
    (rq.StoreConsumerOffset(CONSUMER, HERE, MISSING, 0, 0), ResourceNotFound),
    (rq.DeleteConsumerOffset(CONSUMER, HERE, MISSING, 0), ResourceNotFound),
    (rq.GetStream(MISSING), None),
    (rq.DeleteStream("nothing"), StreamIdNotFound),
    (rq.UpdateStream(MISSING, "x"), StreamIdNotFound),
    (rq.PurgeStream(MISSING), StreamIdNotFound),
    (rq.GetTopic(MISSING, HERE), None),
    (rq.GetTopic(HERE, MISSING), None),
    (rq.GetTopics(MISSING), ()),
    (rq.CreateTopic(MISSING, 1, "x"), StreamIdNotFound),
    (rq.DeleteTopic(MISSING, HERE), StreamIdNotFound),
    (rq.DeleteTopic(HERE, "nothing"), TopicIdNotFound),
    (rq.UpdateTopic(HERE, MISSING, "x"), TopicIdNotFound),
    (rq.PurgeTopic(HERE, MISSING), TopicIdNotFound),
    (rq.CreatePartitions(HERE, MISSING, 1), TopicIdNotFound),
    (rq.DeletePartitions(HERE, MISSING, 1), TopicIdNotFound),
    (rq.DeleteSegments(HERE, MISSING, 0, 1), TopicIdNotFound),
    (rq.GetConsumerGroup(MISSING, HERE, "group"), StreamIdNotFound),
    (rq.GetConsumerGroup(HERE, MISSING, "group"), TopicIdNotFound),
    (rq.GetConsumerGroups(HERE, MISSING), TopicIdNotFound),
    (rq.CreateConsumerGroup(HERE, MISSING, "x"), TopicIdNotFound),
    (rq.DeleteConsumerGroup(MISSING, HERE, "group"), StreamIdNotFound),
    (rq.JoinConsumerGroup(HERE, MISSING, "group"), TopicIdNotFound),
    (rq.LeaveConsumerGroup(HERE, MISSING, "group"), TopicIdNotFound),
    (rq.SyncConsumerGroup(MISSING, HERE, "group"), None),
    (rq.GetTopicExtent(MISSING, HERE), StreamIdNotFound),
    (rq.GetTopicExtent(HERE, MISSING), TopicIdNotFound),
    (
        rq.StageMessages(HERE, MISSING, "p", 1, 0, 0, 0, BALANCED, 1, STAGED_BATCH),
        ResourceNotFound,
    ),
    (rq.CommitEpoch(MISSING, HERE, "p", 1, ()), ResourceNotFound),
    (rq.AbortEpoch(HERE, MISSING, "p", 1), ResourceNotFound),
    (rq.GetProducerEpoch(HERE, MISSING, "p"), ResourceNotFound),
    (rq.StageCopy(HERE, MISSING, "p", 1, 0, 0, 0, BALANCED, HERE, HERE, 0, 0, 1), ResourceNotFound),
]


@pytest.mark.parametrize(
    ("request_", "outcome"), ABSENT, ids=[f"{type(r).__name__}-{i}" for i, (r, _) in enumerate(ABSENT)]
)
def test_what_is_missing_is_reported_before_a_missing_permission(server, request_, outcome):
    if server.broker.users.find("powerless") is None:
        server.powerless = server.add_user("powerless")
    with WireClient(server.port) as client:
        client.register_with_token(server.powerless)
        if isinstance(outcome, type):
            with pytest.raises(outcome):
                client.request(request_)
        else:
            assert client.request(request_) == outcome


def test_rights_that_change_count_from_the_next_request_on(server):
    """Also for producers and consumers whose targets were resolved before."""
    token = server.add_user(
        "changing", Permissions(GlobalPermissions(send_messages=True, poll_messages=True))
    )
    with WireClient(server.port) as client:
        client.register_with_token(token)
        for request in (send_request(HERE, HERE, [b"x"]), poll_request(HERE, HERE)):
            client.request(request)
        server.ask(rq.UpdatePermissions("changing", None))
        for request in (
            send_request(HERE, HERE, [b"x"]),
            poll_request(HERE, HERE),
            rq.StoreConsumerOffset(CONSUMER, HERE, HERE, 0, 0),
        ):
            with pytest.raises(Unauthorized):
                client.request(request)
        server.ask(rq.UpdatePermissions("changing", Permissions(GlobalPermissions(send_messages=True))))
        client.request(send_request(HERE, HERE, [b"x"]))


def test_a_group_that_is_missing_is_named_to_those_who_may_look(server):
    with WireClient(server.port) as client:
        client.register()
        with pytest.raises(ConsumerGroupIdNotFound):
            client.request(rq.JoinConsumerGroup(HERE, HERE, "nothing"))
        assert client.request(rq.GetConsumerGroup(HERE, HERE, "nothing")) is None


def test_root_can_neither_be_deleted_nor_restricted(server):
    token = server.add_user("personnel", Permissions(GlobalPermissions(manage_users=True)))
    with WireClient(server.port) as client:
        client.register_with_token(token)
        with pytest.raises(error_for(48)):
            client.request(rq.DeleteUser(0))
        with pytest.raises(error_for(49)):
            client.request(rq.UpdatePermissions("iggy", None))
