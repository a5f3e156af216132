"""`borzoi.testing.Server`: what a test may rely on."""

import asyncio
import errno
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from borzoi import AsyncClient, Client, Consumer, PollingStrategy
from borzoi.log.directory import DataDirectoryError
from borzoi.model import errors
from borzoi.server.config import ConfigError
from borzoi.testing import Server

PARTITION = 0


@pytest.fixture
def server():
    with Server(memory=True) as running:
        yield running


@pytest.fixture
def client(server):
    with server.client() as connected:
        yield connected


def make_topic(client, **options):
    client.create_stream("s")
    client.create_topic("s", "t", 1, **options)


def poll(client, strategy=None):
    found = client.poll_messages(
        "s", "t", PARTITION, strategy or PollingStrategy.First(), 100, auto_commit=False
    )
    return [bytes(message.payload) for message in found]


def threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("borzoi")}


# Start and stop


def test_a_server_starts_in_less_than_100_ms():
    taken_s = []
    for _ in range(3):
        started_s = time.perf_counter()
        with Server(memory=True):
            taken_s.append(time.perf_counter() - started_s)
    assert min(taken_s) < 0.1


def test_nothing_is_left_of_a_closed_server():
    before = threads()
    with Server() as server, server.client() as client:
        client.ping()
        path = server.path
        assert path.exists()
        assert threads() > before
    assert not path.exists()
    assert threads() == before
    server.close()


def test_a_directory_that_was_given_stays(tmp_path):
    with Server(tmp_path / "data") as server, server.client() as client:
        client.create_stream("kept")
    with Server(tmp_path / "data") as server, server.client() as client:
        assert client.get_stream("kept") is not None


def test_memory_is_where_the_system_has_it(server):
    if Path("/dev/shm").is_dir():
        assert server.path.parent == Path("/dev/shm")
    with pytest.raises(ValueError, match="either"):
        Server("somewhere", memory=True)


def test_servers_live_side_by_side(server):
    with Server() as other, other.client() as there, server.client() as here:
        there.create_stream("there")
        assert not here.get_streams()
        assert other.address != server.address


def test_a_restart_keeps_data_address_and_clients(server, client):
    make_topic(client)
    client.send_messages("s", "t", PARTITION, ["one"])
    address = server.address
    server.restart()
    assert server.address == address
    assert poll(client) == [b"one"]
    client.send_messages("s", "t", PARTITION, ["two"])
    assert poll(client) == [b"one", b"two"]


def test_a_crash_tidies_nothing_up_and_loses_nothing_acknowledged(server, client):
    make_topic(client)
    for number in range(50):
        client.send_messages("s", "t", PARTITION, [f"{number}"])
    client.store_consumer_offset("s", "t", PARTITION, offset=7, consumer=Consumer.single(1))
    snapshots = list(server.path.glob("metadata/snapshot-*"))
    (index,) = server.path.glob("streams/*/topics/*/partitions/*/*.index")
    index_bytes = index.read_bytes()
    server.crash()
    assert not server.is_running
    assert list(server.path.glob("metadata/snapshot-*")) == snapshots
    assert index.read_bytes() == index_bytes
    server.start()
    assert poll(client) == [b"%d" % number for number in range(50)]
    stored = client.get_consumer_offset("s", "t", PARTITION, consumer=Consumer.single(1))
    assert stored.stored_offset == 7


def test_a_stop_tidies_up(server, client):
    make_topic(client)
    for number in range(50):
        client.send_messages("s", "t", PARTITION, [f"{number}"])
    (index,) = server.path.glob("streams/*/topics/*/partitions/*/*.index")
    index_bytes = index.read_bytes()
    server.stop()
    assert list(server.path.glob("metadata/snapshot-*"))
    assert index.read_bytes() != index_bytes
    with pytest.raises(errors.CannotEstablishConnection):
        client.get_stream("s", deadline_s=0.2)
    server.start()
    assert client.get_stream("s") is not None


def test_a_server_that_cannot_start_says_why(server):
    before = threads()
    with pytest.raises(DataDirectoryError, match="in use"), Server(server.path):
        pass
    assert threads() == before


def test_what_needs_a_running_server_says_so():
    server = Server(memory=True)
    with pytest.raises(RuntimeError, match="before it was started"):
        _ = server.address
    with pytest.raises(RuntimeError, match="not running"):
        server.drop_connections()
    with pytest.raises(RuntimeError, match="not running"):
        server.crash()
    server.close()
    assert not server.path.exists()


# Clients


async def test_both_kinds_of_clients_log_in_as_root(server):
    async with server.async_client() as client:
        assert isinstance(client, AsyncClient)
        assert (await client.get_me()).user_id == 0
    with Client(server.connection_string) as client:
        assert client.get_me().user_id == 0


def test_clients_take_the_options_of_clients(server, client):
    client.create_user("ann", "secret")
    with server.client(username="ann", password="secret", deadline_s=5) as other:
        assert other.get_me().user_id != 0
    with pytest.raises(errors.InvalidCredentials), server.client(username="ann", password="wrong"):
        pass


def test_odd_credentials_and_tls_are_in_the_connection_string():
    settings = {"root.username": "a@b", "root.password": "p:/?&", "tcp.tls.enabled": True}
    with Server(memory=True, settings=settings) as server, server.client() as client:
        assert "tls=true" in server.connection_string
        assert client.get_me().user_id == 0


# Settings


def test_settings_are_keys_with_dots_or_underscores():
    settings = {"system.topic.message_expiry": timedelta(minutes=5)}
    with (
        Server(memory=True, settings=settings, limits__max_connections=1) as server,
        server.client() as client,
    ):
        make_topic(client)
        assert client.get_topic("s", "t").message_expiry_us == 300_000_000
        with pytest.raises(errors.CannotEstablishConnection), server.client(deadline_s=0.3):
            pass


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"heartbeat.intervall": "5s"}, "did you mean heartbeat.interval"),
        ({"heartbeat.interval": "soon"}, "heartbeat.interval"),
        ({"system.path": "elsewhere"}, "path"),
        ({"tcp.address": "0.0.0.0:0"}, "loopback"),
    ],
)
def test_a_wrong_setting_is_refused_and_leaves_nothing_behind(settings, text, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=text):
        Server(settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_not_looked_at(monkeypatch):
    monkeypatch.setenv("IGGY_ROOT_USERNAME", "someone")
    monkeypatch.setenv("IGGY_ROOT_PASSWORD", "something")
    with Server(memory=True) as server, server.client() as client:
        assert client.get_me().user_id == 0


# Time


def test_messages_expire_when_the_clock_has_moved_far_enough(server, client):
    make_topic(client, message_expiry=timedelta(hours=1))
    client.send_messages("s", "t", PARTITION, ["old"])
    server.advance(1800)
    client.send_messages("s", "t", PARTITION, ["young"])
    assert poll(client) == [b"old", b"young"]
    server.advance(3601)
    assert poll(client) == []
    client.send_messages("s", "t", PARTITION, ["new"])
    assert [message.offset for message in client.poll_messages("s", "t", PARTITION)] == [2]


def test_tokens_expire_with_the_clock(server, client):
    token = client.create_personal_access_token("a token", expiry=timedelta(minutes=10)).token
    with Client(server.address, token=token) as other:
        other.ping()
    server.advance(601)
    assert not client.get_personal_access_tokens()
    with pytest.raises(errors.BorzoiError), Client(server.address, token=token):
        pass


def test_the_moved_clock_stamps_messages_also_after_a_restart(server, client):
    make_topic(client)
    day_us = 86_400_000_000
    server.advance(86_400)
    server.stop()
    server.advance(86_400)
    server.start()
    client.send_messages("s", "t", PARTITION, ["x"])
    (message,) = client.poll_messages("s", "t", PARTITION)
    moved_us = server.now_us - time.time_ns() // 1000
    assert abs(moved_us - 2 * day_us) < 1_000_000
    tomorrow = PollingStrategy.Timestamp(server.now_us - day_us)
    assert poll(client, tomorrow) == [b"x"]
    assert poll(client, PollingStrategy.Timestamp(server.now_us + day_us)) == []
    assert message.payload == b"x"


def test_members_stay_in_their_group_unless_they_are_silent(server, client):
    make_topic(client)
    client.create_consumer_group("s", "t", "g")
    with server.client() as member:
        member.join_consumer_group("s", "t", "g")
        server.advance(3600)
        assert client.get_consumer_group("s", "t", "g").members_count == 1
        server.advance(3600, silent=True)
        assert client.get_consumer_group("s", "t", "g").members_count == 0


def test_time_does_not_go_back(server):
    with pytest.raises(ValueError, match="back"):
        server.advance(-1)


# Faults


def test_clients_come_back_after_their_connection_was_cut(server, client):
    client.create_stream("s")
    with server.client() as other:
        other.ping()
        assert server.drop_connections() == 2
    assert client.get_stream("s") is not None


def test_a_full_disk_refuses_writes_until_it_is_healed(server, client, caplog):
    make_topic(client)
    client.send_messages("s", "t", PARTITION, ["before"])
    server.refuse_writes()
    with pytest.raises(errors.CannotAppendMessage):
        client.send_messages("s", "t", PARTITION, ["lost"])
    assert "No space left" in caplog.text
    with pytest.raises(errors.IoError):
        client.create_stream("another")
    with pytest.raises(errors.IoError):
        client.create_topic("s", "another", 1)
    with pytest.raises(errors.CannotWriteToFile):
        client.store_consumer_offset("s", "t", PARTITION, offset=0, consumer=Consumer.single(1))
    assert poll(client) == [b"before"]
    server.heal()
    client.send_messages("s", "t", PARTITION, ["after"])
    client.create_stream("another")
    client.create_topic("s", "another", 1)
    assert poll(client) == [b"before", b"after"]
    server.restart()
    assert poll(client) == [b"before", b"after"]


def test_writes_can_fail_for_another_reason(server, client, caplog):
    make_topic(client)
    server.refuse_writes(errno.EIO)
    with pytest.raises(errors.CannotAppendMessage):
        client.send_messages("s", "t", PARTITION, ["lost"])
    assert "Input/output error" in caplog.text


async def test_delayed_answers_come_late_and_in_order(server):
    async with server.async_client() as client:
        await client.create_stream("s")
        server.delay_answers(0.1)
        started_s = time.perf_counter()
        assert (await client.get_stream("s")).name == "s"
        assert time.perf_counter() - started_s >= 0.095
        late = asyncio.create_task(client.get_stream("s"))
        await asyncio.sleep(0.01)
        server.heal()
        soon = asyncio.create_task(client.get_streams())
        assert (await late).name == "s"
        assert [stream.name for stream in await soon] == ["s"]


def test_a_request_whose_answer_is_late_has_been_carried_out(server, client):
    make_topic(client)
    server.delay_answers(5)
    with pytest.raises(errors.BorzoiError):
        client.send_messages("s", "t", PARTITION, ["done"], deadline_s=0.2)
    server.heal()
    server.drop_connections()
    assert poll(client) == [b"done"]


@pytest.mark.parametrize("call", [lambda s: s.refuse_writes(0), lambda s: s.delay_answers(-1)])
def test_faults_that_make_no_sense_are_refused(server, call):
    with pytest.raises(ValueError):
        call(server)
