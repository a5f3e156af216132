"""`borzoi.testing.ServerProcess`: the broker in a process of its own."""

import pytest

from borzoi.model.errors import StreamNameAlreadyExists
from borzoi.server.config.errors import ConfigError
from borzoi.testing import ServerProcess
from borzoi.testing.process import ServerError


def test_nothing_acknowledged_is_lost_when_it_is_killed():
    with ServerProcess() as server:
        with server.client() as client:
            client.create_stream("s")
            client.create_topic("s", "t", 1)
            client.send_messages("s", "t", 0, ["one"])
        first, address = server.pid, server.address
        server.kill()
        server.start()
        assert server.pid != first
        assert server.address == address
        with server.client() as client:
            assert [message.payload for message in client.poll_messages("s", "t", 0)] == [b"one"]


def test_temporary_data_goes_with_it_and_given_data_stays(tmp_path):
    with ServerProcess() as server:
        temporary = server.data
        assert temporary.is_dir()
    assert not temporary.parent.exists()
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        client.create_stream("s")
    with (
        ServerProcess(tmp_path / "data") as server,
        server.client() as client,
        pytest.raises(StreamNameAlreadyExists),
    ):
        client.create_stream("s")


async def test_an_asynchronous_client():
    with ServerProcess() as server:
        async with server.async_client() as client:
            assert await client.get_streams() == ()


def test_settings_are_configuration_keys():
    with ServerProcess(system__segment__size="1 MiB") as server, server.client() as client:
        client.create_stream("s")
        client.create_topic("s", "t", 1)
        batch = ["x" * 500_000]
        for _ in range(6):
            client.send_messages("s", "t", 0, batch)
        (partition,) = client.get_topic("s", "t").partitions
        assert partition.segments_count > 1


def test_wrong_settings_are_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="no such key"):
        ServerProcess(sistem__path="x")


def test_a_server_that_does_not_start_says_why(tmp_path):
    with (
        pytest.raises(ServerError, match="before it was ready") as failed,
        ServerProcess(tmp_path / "data", arguments=["--nonsense"]),
    ):
        pass
    assert "--nonsense" in str(failed.value)


def test_a_server_that_dies_during_a_test_is_a_failure(tmp_path):
    def lose_it():
        with ServerProcess(tmp_path / "data") as server:
            server._process.kill()
            server._process.wait()

    with pytest.raises(ServerError, match="died"):
        lose_it()
