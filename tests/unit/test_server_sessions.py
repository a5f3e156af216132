"""Sessions over real sockets: logins and how they fail, repeated requests, and how sessions end."""

import threading

import pytest

from borzoi.model import requests as rq
from borzoi.model.errors import (
    ConsumerOffsetNotFound,
    InvalidCommand,
    RequestAlreadyApplied,
    StreamNameAlreadyExists,
    Unauthenticated,
)
from borzoi.model.permissions import GlobalPermissions, Permissions
from borzoi.model.values import FENCED_PARTITION_ID, Consumer, ConsumerKind, UserStatus
from borzoi.wire.vsr.frames import EvictionReason
from borzoi.wire.vsr.login import PROTOCOL_VERSION, pack_version
from borzoi.wire.vsr.operations import Operation
from support.in_process import LocalServer, eventually, payloads, poll_request, send_request
from support.wire_client import Evicted, WireClient

CONSUMER = Consumer(ConsumerKind.CONSUMER, "c")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("sessions") / "data") as running:
        running.ask(rq.CreateStream("s"))
        yield running
        assert running.events.of("request failed unexpectedly") == []


@pytest.fixture
def topic(server, request):
    """A topic of its own for each test, with two partitions and a group."""
    name = request.node.name[:200]
    server.ask(rq.CreateTopic("s", 2, name))
    server.ask(rq.CreateConsumerGroup("s", name, "g"))
    return name


@pytest.fixture
def client(server):
    with WireClient(server.port) as connected:
        connected.register()
        yield connected


def reason_of(action) -> EvictionReason:
    with pytest.raises(Evicted) as evicted:
        action()
    return evicted.value.reason


# Logging in


def test_a_login_tells_user_session_and_versions(server):
    with WireClient(server.port) as client:
        first = client.register()
        assert (first.user_id, first.protocol_version) == (0, PROTOCOL_VERSION)
        assert first.session > 0
        assert first.server_version.count(".") == 2
        assert client.register().session > first.session


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("iggy", "wrong"),
        ("nobody", "iggy"),
        ("iggy", ""),
        ("ig", "iggy"),
        ("i" * 51, "iggy"),
        ("iggy", "p" * 101),
    ],
)
def test_wrong_credentials_do_not_tell_what_was_wrong(server, username, password):
    with WireClient(server.port) as client:
        assert reason_of(lambda: client.register(username, password)) is EvictionReason.INVALID_CREDENTIALS
        with pytest.raises(Unauthenticated):
            client.request(rq.GetStreams())
        client.register()  # the connection can still be used


def test_tokens_log_in_until_they_expire_or_are_deleted(server):
    good = server.add_user("with-token")
    expired = server.add_user("with-old-token", expires_at_us=1)
    with WireClient(server.port) as client:
        assert reason_of(lambda: client.register_with_token("no such token")) is EvictionReason.INVALID_TOKEN
        assert reason_of(lambda: client.register_with_token(expired)) is EvictionReason.INVALID_TOKEN
        client.register_with_token(good)
        client.request(rq.DeleteToken("test token"))
        client.request(rq.GetTokens())  # the session goes on
    with WireClient(server.port) as client:
        assert reason_of(lambda: client.register_with_token(good)) is EvictionReason.INVALID_TOKEN


def test_an_inactive_user_cannot_log_in(server):
    token = server.add_user("resting", status=UserStatus.INACTIVE)
    with WireClient(server.port) as client:
        assert reason_of(lambda: client.register("resting", "secret")) is EvictionReason.INVALID_CREDENTIALS
        assert reason_of(lambda: client.register_with_token(token)) is EvictionReason.USER_INACTIVE
        server.ask(rq.UpdateUser("resting", status=UserStatus.ACTIVE))
        client.register("resting", "secret")


@pytest.mark.parametrize(
    "version", [pack_version(0, 10, 9), pack_version(0, 12, 0), pack_version(1, 0, 0), 0]
)
def test_another_protocol_version_is_told_the_window(server, version):
    with WireClient(server.port) as client:
        with pytest.raises(Evicted) as evicted:
            client.register(version=version)
        assert evicted.value.reason is EvictionReason.INCOMPATIBLE_PROTOCOL
        assert (evicted.value.version_min, evicted.value.version_max) == (PROTOCOL_VERSION, PROTOCOL_VERSION)


def test_a_newer_patch_of_the_protocol_is_welcome(server):
    with WireClient(server.port) as client:
        client.register(version=PROTOCOL_VERSION + 5)


def test_replies_echo_what_other_clients_may_check(client):
    frame = client.frame_of(rq.CreateStream("echoed"))
    client.raw(frame)
    reply = client.receive().header
    assert reply.client == client.client_id == frame[128:144]
    assert reply.request_checksum == frame[144:160]
    assert (reply.request, reply.operation) == (client.number, Operation.CREATE_STREAM)
    client.raw(client.frame_of(rq.DeleteStream("echoed")))
    assert client.receive().header.commit > reply.commit


# Repeated requests


def test_a_repeated_metadata_request_is_answered_again_and_not_done_again(server, client):
    created = client.request(rq.CreateStream("once"))
    assert client.request(rq.CreateStream("once"), number=client.number) == created
    with pytest.raises(StreamNameAlreadyExists):
        client.request(rq.CreateStream("once"))  # a new number is a new request
    client.request(rq.DeleteStream("once"))
    with pytest.raises(RequestAlreadyApplied):
        client.request(rq.CreateStream("other"), number=1)  # same number, another request
    assert client.request(rq.GetStream("other")) is None


def test_an_old_metadata_request_whose_reply_is_gone_is_refused(client):
    client.request(rq.CreateStream("old"))
    first = client.number
    for number in range(20):
        client.request(
            rq.UpdateStream("old", f"old{number}")
            if not number
            else rq.UpdateStream(f"old{number - 1}", f"old{number}")
        )
    with pytest.raises(RequestAlreadyApplied):
        client.request(rq.CreateStream("old"), number=first)
    client.request(rq.DeleteStream("old19"))


def test_a_refused_request_may_be_tried_again_under_its_number(client):
    with pytest.raises(StreamNameAlreadyExists):
        client.request(rq.CreateStream("s"))
    client.request(rq.CreateStream("retried"), number=client.number)
    client.request(rq.DeleteStream("retried"))


def test_a_repeated_send_is_acknowledged_and_stored_once(client, topic):
    (stored,) = client.request(send_request("s", topic, [b"once"]))
    assert client.request(send_request("s", topic, [b"once"]), number=client.number) == ()
    assert payloads(client.request(poll_request("s", topic))) == [b"once"]
    client.request(send_request("s", topic, [b"twice"]))
    assert payloads(client.request(poll_request("s", topic))) == [b"once", b"twice"]
    assert stored.base_offset == 0


def test_a_repeated_offset_write_is_acknowledged_and_done_once(client, topic):
    client.request(send_request("s", topic, [b"0", b"1", b"2"]))
    client.request(rq.StoreConsumerOffset(CONSUMER, "s", topic, 0, 2))
    assert client.request(rq.StoreConsumerOffset(CONSUMER, "s", topic, 0, 0), number=client.number) is None
    assert client.request(rq.GetConsumerOffset(CONSUMER, "s", topic, 0)).stored_offset == 2
    client.request(rq.DeleteConsumerOffset(CONSUMER, "s", topic, 0))
    assert client.request(rq.DeleteConsumerOffset(CONSUMER, "s", topic, 0), number=client.number) is None
    with pytest.raises(ConsumerOffsetNotFound):
        client.request(rq.DeleteConsumerOffset(CONSUMER, "s", topic, 0))


def test_request_numbers_may_have_gaps_and_start_anew_with_a_login(client, topic):
    client.request(send_request("s", topic, [b"a"]), number=1000)
    client.register()
    client.request(send_request("s", topic, [b"b"]), number=1)
    assert payloads(client.request(poll_request("s", topic))) == [b"a", b"b"]


def test_a_write_without_a_number_is_refused_rather_than_taken_for_a_repetition(client, topic):
    """Acknowledging it without storing it would lose it."""
    for request in (
        send_request("s", topic, [b"unnumbered"]),
        rq.StoreConsumerOffset(CONSUMER, "s", topic, 0, 0),
        rq.DeleteConsumerOffset(CONSUMER, "s", topic, 0),
    ):
        with pytest.raises(InvalidCommand):
            client.request(request, number=0)
    assert client.request(poll_request("s", topic)).messages_count == 0


def test_a_logout_ends_the_session_whatever_its_number(client, topic):
    client.request(send_request("s", topic, [b"x"]))
    client.request(rq.LogoutUser(), number=client.number)
    with pytest.raises(Unauthenticated):
        client.request(rq.GetMe())


@pytest.mark.parametrize("wrong", [0, 2**63])
def test_a_wrong_session_number_is_refused(client, topic, wrong):
    for request in (
        rq.CreateStream("never"),
        send_request("s", topic, [b"never"]),
        rq.StoreConsumerOffset(CONSUMER, "s", topic, 0, 0),
    ):
        assert (
            reason_of(lambda request=request: client.request(request, session=wrong))
            is EvictionReason.SESSION_TOO_LOW
        )
    assert client.request(rq.GetStream("never")) is None
    assert client.request(poll_request("s", topic)).messages_count == 0


# The end of sessions


def test_logging_in_again_is_another_member(server, topic):
    """The client id changes with every login, and the groups of the old one are left."""
    with WireClient(server.port) as client:
        client.register()
        client.request(rq.JoinConsumerGroup("s", topic, "g"))
        assert client.request(rq.SyncConsumerGroup("s", topic, "g")).partitions == (0, 1)
        assert client.request(rq.GetMe()).client.consumer_groups_count == 1
        client.register()
        assert client.request(rq.SyncConsumerGroup("s", topic, "g")) is None
        assert client.request(rq.GetMe()).client.consumer_groups_count == 0
        assert client.request(rq.GetConsumerGroup("s", topic, "g")).members == ()


def test_logging_out_leaves_the_groups_and_keeps_the_connection(server, client, topic):
    client.request(rq.JoinConsumerGroup("s", topic, "g"))
    client.request(rq.LogoutUser())
    with pytest.raises(Unauthenticated):
        client.request(rq.GetMe())
    assert reason_of(lambda: client.request(send_request("s", topic, [b"x"]))) is EvictionReason.NO_SESSION
    client.register()
    assert client.request(rq.GetConsumerGroup("s", topic, "g")).members == ()


def test_a_lost_connection_leaves_the_groups(server, client, topic):
    with WireClient(server.port) as gone:
        gone.register()
        gone.request(rq.JoinConsumerGroup("s", topic, "g"))
        assert client.request(rq.GetConsumerGroup("s", topic, "g")).group.members_count == 1
    assert eventually(lambda: client.request(rq.GetConsumerGroup("s", topic, "g")).group.members_count == 0)


def test_a_client_that_returns_before_its_old_connection_is_noticed_keeps_its_membership(server, topic):
    """The old connection's end must not take away what the new one has joined."""
    with WireClient(server.port) as old, WireClient(server.port) as new:
        old.register()
        old.request(rq.JoinConsumerGroup("s", topic, "g"))
        new.register(client_id=old.client_id)
        new.request(rq.JoinConsumerGroup("s", topic, "g"))
        assert reason_of(lambda: old.request(rq.GetMe())) is EvictionReason.STALE_CLIENT
        old.close()
        assert eventually(lambda: len(new.request(rq.GetClients())) == 1)
        assert new.request(rq.SyncConsumerGroup("s", topic, "g")).partitions == (0, 1)


def test_a_deleted_users_sessions_end(server, topic):
    token = server.add_user("leaving", Permissions(GlobalPermissions(read_streams=True)))
    with WireClient(server.port) as client:
        client.register_with_token(token)
        client.request(rq.JoinConsumerGroup("s", topic, "g"))
        server.ask(rq.DeleteUser("leaving"))
        assert reason_of(lambda: client.request(rq.GetStreams())) is EvictionReason.STALE_CLIENT
        with pytest.raises(Unauthenticated):
            client.request(rq.GetStreams())
        assert server.ask(rq.GetConsumerGroup("s", topic, "g")).members == ()
        # Whoever gets the free number next is somebody else.
        server.add_user("arriving")
        assert reason_of(lambda: client.register_with_token(token)) is EvictionReason.INVALID_TOKEN


def test_a_session_of_a_user_made_inactive_goes_on(server):
    token = server.add_user("tired")
    with WireClient(server.port) as client:
        client.register_with_token(token)
        server.ask(rq.UpdateUser("tired", status=UserStatus.INACTIVE))
        client.request(rq.GetMe())


def test_a_silent_member_is_evicted_and_told_so_with_its_next_request(tmp_path):
    with LocalServer(tmp_path / "data", {"heartbeat.interval": "200ms"}) as server:
        server.ask(rq.CreateStream("s"))
        server.ask(rq.CreateTopic("s", 2, "t"))
        server.ask(rq.CreateConsumerGroup("s", "t", "g"))
        with (
            WireClient(server.port) as silent,
            WireClient(server.port) as idle,
            WireClient(server.port) as alive,
        ):
            for each in (silent, idle, alive):
                each.register()
            for each in (silent, alive):
                each.request(rq.JoinConsumerGroup("s", "t", "g"))

            def is_alone() -> bool:
                return alive.request(rq.SyncConsumerGroup("s", "t", "g")).partitions == (0, 1)

            assert eventually(is_alone)
            assert (
                reason_of(lambda: silent.request(poll_request("s", "t", group="g")))
                is EvictionReason.STALE_CLIENT
            )
            # Who belongs to no group may be silent; who was evicted may come back.
            idle.request(rq.GetStreams())
            silent.register()
            fenced = silent.request(poll_request("s", "t", group="g"))
            assert fenced.partition_id == FENCED_PARTITION_ID
            assert len(server.events.of("session evicted")) == 1


def test_members_that_are_heard_of_are_not_evicted(tmp_path):
    with LocalServer(tmp_path / "data", {"heartbeat.interval": "200ms"}) as server:
        server.ask(rq.CreateStream("s"))
        server.ask(rq.CreateTopic("s", 1, "t"))
        server.ask(rq.CreateConsumerGroup("s", "t", "g"))
        with WireClient(server.port) as client:
            client.register()
            client.request(rq.JoinConsumerGroup("s", "t", "g"))
            waited = threading.Event()
            for _ in range(12):
                waited.wait(0.05)
                client.request(rq.Ping())
            assert client.request(rq.SyncConsumerGroup("s", "t", "g")).partitions == (0,)


def test_me_and_clients_tell_who_is_connected(server, client):
    with WireClient(server.port) as stranger:
        stranger.request(rq.Ping())
        me = client.request(rq.GetMe()).client
        assert me.user_id == 0
        assert me.address.rpartition(":")[2] == str(client.socket.getsockname()[1])
        listed = {each.client_id: each for each in client.request(rq.GetClients())}
        assert listed[me.client_id] == me
        port = str(stranger.socket.getsockname()[1])
        (other,) = [each for each in listed.values() if each.address.endswith(f":{port}")]
        assert other.user_id is None
        assert client.request(rq.GetClient(other.client_id)).client == other
        assert client.request(rq.GetClient(2**32 - 1)) is None


def test_the_cluster_is_this_one_node_under_its_real_port(server, client):
    cluster = client.request(rq.GetClusterMetadata())
    (node,) = cluster.nodes
    assert (node.ip, node.tcp_port) == ("127.0.0.1", server.port)
    assert (node.role, node.status) == (0, 0)
