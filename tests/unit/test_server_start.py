"""The server process from start to stop: what it refuses, what it leaves behind, what it says."""

import json
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import tomllib

import pytest

from borzoi.model import requests as rq
from borzoi.model.values import UserStatus
from borzoi.server.config import load
from borzoi.server.tcp.tls import TlsError, self_signed, server_context
from support.in_process import payloads, poll_request, send_request
from support.server import COMMAND_VARIABLE, ServerProcess
from support.wire_client import Evicted, WireClient

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning|error) +\S")


def run_to_the_end(data, *arguments, tcp="127.0.0.1:0", **environment):
    """Exit code and output of a server that should not start."""
    done = subprocess.run(
        [sys.executable, "-m", "borzoi", "server", "--data", str(data), "--tcp", tcp, *arguments],
        env={"PATH": "", "HOME": str(data.parent), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def refused(data, *arguments, **options):
    """The one line that says why the server did not start."""
    code, output = run_to_the_end(data, *arguments, **options)
    assert code == 1, output
    lines = [line for line in output.splitlines() if " error " in line]
    assert len(lines) == 1, output
    assert "Traceback" not in output
    return lines[0]


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


# What is refused


def test_a_second_server_on_the_same_directory_is_refused(data):
    with ServerProcess(data) as server:
        line = refused(data)
        assert "in use by another server" in line
        assert str(server.pid) in line
        assert "in use by another server" in refused(data, "--fresh")
        with WireClient(server.port) as client:
            client.register()


def test_a_directory_of_a_newer_version_is_refused_and_left_alone(data):
    with ServerProcess(data):
        pass
    (data / "format").write_text(json.dumps({"format": 2}))
    before = sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*") if path.name != "lock")
    assert "newer" in refused(data)
    assert "newer" in refused(data, "--fresh")
    after = sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*") if path.name != "lock")
    assert after == before


def test_a_port_in_use_is_refused(data):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused(data, tcp=address)
        assert address in line
        assert "in use" in line


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "data directory" in refused(tmp_path / "file" / "data")


def test_the_default_password_is_refused_where_others_can_reach_it(data):
    line = refused(data, tcp="0.0.0.0:0")
    assert "default password" in line
    assert "allow_default_password" in line
    # The password that counts is the one root has, not the one the settings name.
    refused(data, tcp="0.0.0.0:0", IGGY_ROOT_USERNAME="iggy", IGGY_ROOT_PASSWORD="another")


@pytest.mark.parametrize(
    "environment",
    [
        {"IGGY_SYSTEM_ALLOW_DEFAULT_PASSWORD": "true"},
        {"IGGY_ROOT_USERNAME": "iggy", "IGGY_ROOT_PASSWORD": "another"},
    ],
    ids=["allowed", "another password"],
)
def test_other_addresses_are_served_once_that_is_settled(data, environment):
    with (
        ServerProcess(
            data,
            environment={**environment, "IGGY_TCP_ADDRESS": "0.0.0.0:0"},
            arguments=["--tcp", "0.0.0.0:0"],
        ) as server,
        WireClient(server.port) as client,
    ):
        client.register("iggy", environment.get("IGGY_ROOT_PASSWORD", "iggy"))


def test_root_gets_the_credentials_of_the_environment(data):
    with (
        ServerProcess(
            data, environment={"IGGY_ROOT_USERNAME": "boss", "IGGY_ROOT_PASSWORD": "of all"}
        ) as server,
        WireClient(server.port) as client,
    ):
        client.register("boss", "of all")
        with pytest.raises(Evicted):
            WireClient.register(client, "iggy", "iggy")


# Stopping and starting again


def test_a_restart_keeps_everything_and_a_fresh_start_nothing(data):
    server = ServerProcess(data)
    with server:
        with WireClient(server.port) as client:
            client.register()
            client.request(rq.CreateStream("s"))
            client.request(rq.CreateTopic("s", 1, "t"))
            client.request(send_request("s", "t", [b"kept"]))
        server.restart()
        with WireClient(server.port) as client:
            client.register()
            assert payloads(client.request(poll_request("s", "t"))) == [b"kept"]
    fresh = ServerProcess(data, arguments=["--fresh"])
    with fresh, WireClient(fresh.port) as client:
        client.register()
        assert client.request(rq.GetStreams()) == ()
        assert not list((data / "streams").iterdir())


def test_stopping_while_producers_send_loses_nothing_acknowledged(data):
    server = ServerProcess(data)
    acknowledged = [0] * 3
    with server:
        with WireClient(server.port) as client:
            client.register()
            client.request(rq.CreateStream("s"))
            client.request(rq.CreateTopic("s", 3, "t"))
        started = threading.Barrier(4)

        def produce(partition):
            with WireClient(server.port) as producer:
                producer.register()
                started.wait()
                try:
                    while True:
                        producer.request(send_request("s", "t", [b"%d" % acknowledged[partition]], partition))
                        acknowledged[partition] += 1
                except OSError:
                    pass

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        threading.Event().wait(0.3)
        server.terminate()  # fails unless the exit code is 0
        for thread in threads:
            thread.join(20)
        server.start()
        with WireClient(server.port) as client:
            client.register()
            for partition, count in enumerate(acknowledged):
                found = []
                while True:
                    polled = client.request(
                        poll_request("s", "t", partition=partition, value=len(found), count=10_000)
                    )
                    if not polled.messages_count:
                        break
                    found += payloads(polled)
                assert count > 0
                assert found[:count] == [b"%d" % number for number in range(count)]
                assert len(found) <= count + 1  # the one that was under way


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_end_the_server_in_good_order(data, number):
    server = ServerProcess(data).start()
    with WireClient(server.port) as client:
        client.register()
        server._running().send_signal(number)
        assert server._running().wait(20) == 0
        assert client.is_closed_by_server()
    output = server.log.read_text()
    assert " stopping connections=1" in output
    assert output.splitlines()[-1].endswith(" stopped")


def test_a_client_that_does_not_read_cannot_keep_the_server_from_stopping(data, monkeypatch):
    impatient = (
        "import borzoi.server.serving as serving; serving._DRAIN_SECONDS = 0.5; "
        "from borzoi.cli.main import main; main()"
    )
    monkeypatch.setenv(COMMAND_VARIABLE, shlex.join([sys.executable, "-c", impatient, "server"]))
    server = ServerProcess(data)
    with server, WireClient(server.port, receive_buffer_bytes=4096) as client:
        client.register()
        client.request(rq.CreateStream("s"))
        client.request(rq.CreateTopic("s", 1, "t"))
        for _ in range(8):
            client.request(send_request("s", "t", [bytes(1 << 20)]))
        client.raw(client.frame_of(poll_request("s", "t")))
        threading.Event().wait(0.2)
        server.terminate(deadline_s=10)


# What it says and writes


def test_the_log_has_one_line_per_event(data):
    server = ServerProcess(data)
    with server, WireClient(server.port) as client:
        client.register()
        client.request(rq.CreateUser("new\nline \x1b[31m", "secret", UserStatus.ACTIVE, None))
        client.register("new\nline \x1b[31m", "secret")
    lines = server.log.read_text().splitlines()
    assert all(LINE.match(line) for line in lines), lines
    (ready,) = [line for line in lines if " ready " in line]
    assert f"tcp=127.0.0.1:{server.port}" in ready
    assert f"data={data}" in ready
    assert any(r'user="new\nline \x1b[31m"' in line for line in lines)


def test_the_effective_configuration_is_written_without_secrets(data):
    environment = {
        "IGGY_ROOT_USERNAME": "boss",
        "IGGY_ROOT_PASSWORD": "a rare secret",
        "IGGY_SYSTEM_SEGMENT_SIZE": "2 MiB",
    }
    with ServerProcess(data, environment=environment):
        text = (data / "runtime" / "current_config.toml").read_text()
    assert "a rare secret" not in text
    written = tomllib.loads(text)
    assert written["system"]["path"] == str(data)
    kept = load(path=None, env={}, flags={"system.segment.size": str(written["system"]["segment"]["size"])})
    assert kept.config.system.segment.size_bytes == 2 << 20
    everything = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert b"a rare secret" not in everything


def test_a_level_silences_what_is_less_important(data):
    server = ServerProcess(data, environment={"IGGY_SYSTEM_LOGGING_LEVEL": "error"})
    server.spawn()
    for _ in range(500):
        if (data / "runtime" / "current_config.toml").exists():
            break
        threading.Event().wait(0.01)
    threading.Event().wait(0.2)
    server.terminate()
    assert server.log.read_text() == ""


# TLS


def test_tls_with_a_certificate_of_its_own_making(data):
    environment = {"IGGY_TCP_TLS_ENABLED": "true"}
    server = ServerProcess(data, environment=environment)
    with server:
        trusting = ssl.create_default_context(cafile=data / "tls" / "ca.pem")
        assert trusting.check_hostname
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        for name in ("127.0.0.1", "localhost"):
            with WireClient(server.port, tls=trusting, server_name=name) as client:
                client.register()
                client.request(rq.Ping())
        with pytest.raises(ssl.SSLCertVerificationError):
            WireClient(server.port, tls=ssl.create_default_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            WireClient(server.port, tls=trusting, server_name="elsewhere.example")
        with WireClient(server.port) as plain:
            plain.raw(plain.frame_of(rq.Ping()))
            assert plain.is_closed_by_server()
        assert (data / "tls" / "server.key").stat().st_mode & 0o077 == 0
        authority = (data / "tls" / "ca.pem").read_bytes()
        server.restart()
        assert (data / "tls" / "ca.pem").read_bytes() == authority  # clients need not be told anew
        with WireClient(server.port, tls=trusting) as client:
            client.register()
            client.request(rq.CreateStream("s"))
            client.request(rq.CreateTopic("s", 1, "t"))
            client.request(send_request("s", "t", [bytes(3 << 20)]))
            assert payloads(client.request(poll_request("s", "t"))) == [bytes(3 << 20)]


def test_tls_with_a_certificate_of_the_operator(data, tmp_path):
    certificate, key = self_signed(tmp_path / "own", "127.0.0.1")
    environment = {
        "IGGY_TCP_TLS_ENABLED": "true",
        "IGGY_TCP_TLS_SELF_SIGNED": "false",
        "IGGY_TCP_TLS_CERT_FILE": str(certificate),
        "IGGY_TCP_TLS_KEY_FILE": str(key),
    }
    server = ServerProcess(data, environment=environment)
    with server:
        trusting = ssl.create_default_context(cafile=tmp_path / "own" / "ca.pem")
        with WireClient(server.port, tls=trusting) as client:
            client.register()
        assert not (data / "tls").exists()


def test_a_certificate_that_cannot_be_used_is_refused(data, tmp_path):
    (tmp_path / "broken.pem").write_text("no certificate")
    line = refused(
        data,
        IGGY_TCP_TLS_ENABLED="true",
        IGGY_TCP_TLS_CERT_FILE=str(tmp_path / "broken.pem"),
        IGGY_TCP_TLS_KEY_FILE=str(tmp_path / "broken.pem"),
    )
    assert "broken.pem" in line


def test_certificates_are_made_anew_only_when_they_are_of_no_use(tmp_path):
    directory = tmp_path / "tls"
    certificate, key = self_signed(directory, "127.0.0.1")

    def content():
        return [path.read_bytes() for path in (directory / "ca.pem", certificate, key)]

    made = content()
    for host in ("127.0.0.1", "localhost", "::1", "0:0:0:0:0:0:0:1"):
        self_signed(directory, host)
        assert content() == made
    self_signed(directory, "broker.example")
    assert content() != made
    made = content()
    # The rest of an interrupted attempt, a lost file, something else altogether.
    for damage in (
        lambda: key.write_bytes(self_signed(tmp_path / "other", "localhost")[1].read_bytes()),
        (directory / "ca.pem").unlink,
        lambda: certificate.write_text("no certificate"),
    ):
        damage()
        server_context(*self_signed(directory, "broker.example"))
        assert content() != made
        made = content()


def test_a_place_where_no_certificate_can_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TlsError, match="cannot make a certificate"):
        self_signed(tmp_path / "file" / "tls", "localhost")
