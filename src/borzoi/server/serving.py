"""The running server: open everything, accept, say `ready`, and on SIGTERM or SIGINT stop in good order.

Stop: accept no more, finish what was begun, sync, let go.
"""

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Callable

from borzoi import __version__
from borzoi.broker.broker import Broker
from borzoi.broker.metadata import MetadataError
from borzoi.broker.settings import BrokerSettings
from borzoi.broker.users import ROOT_ID, is_password
from borzoi.log.directory import DataDirectory
from borzoi.model.limits import U64_MAX
from borzoi.model.replies import ClusterNode
from borzoi.server import maintenance
from borzoi.server.config import Config, Loaded, forbids_default_password, split_address
from borzoi.server.config.sections import Root
from borzoi.server.errors import StartError
from borzoi.server.generations import warm_up
from borzoi.server.logs import EventLogger
from borzoi.server.tcp.listener import TcpListener
from borzoi.server.tcp.port import address_of
from borzoi.server.tcp.tls import TlsError
from borzoi.server.waiting import Worker

_DRAIN_SECONDS = 10.0
_FAREWELL_SECONDS = 2.0
_DRAIN_POLL_SECONDS = 0.02
_WARM_UP_SECONDS = 0.5
_GC_THRESHOLD = 50_000

# Iggy's version whose behaviour we follow; clients are told this one and some decide by it.
COMPATIBLE_VERSION = "0.9.0"


def serve(loaded: Loaded, directory: DataDirectory, port: socket.socket, logger: EventLogger) -> None:
    """Serve an open data directory on a listening socket until told to stop. Raises StartError."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_Server(loaded, directory, port, logger).serve())


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - used where it is installed
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class _Server:
    def __init__(
        self, loaded: Loaded, directory: DataDirectory, port: socket.socket, logger: EventLogger
    ) -> None:
        self.loaded = loaded
        self.config = loaded.config
        self.directory = directory
        self.port = port
        self.logger = logger

    async def serve(self) -> None:
        config = self.config
        now_us = time.time_ns() // 1000
        settings = broker_settings(config, address_of(self.port))
        broker = Broker(self.directory, settings, self.logger, now_us)
        worker = Worker(broker, asyncio.get_running_loop())
        listener = TcpListener(config, broker, worker, self.port)
        stop = _stop_event()
        try:
            try:
                broker.open(now_us)
            except MetadataError as error:
                raise StartError(str(error)) from error
            except OSError as error:
                raise StartError(f"cannot read {self.directory.path}: {error}") from error
            self._refuse_default_password(broker)
            try:
                self._write_runtime_config()
                await listener.start()
            except TlsError as error:
                raise StartError(str(error)) from error
            except OSError as error:
                raise StartError(
                    f"cannot serve {self.directory.path} on {listener.address}: {error}"
                ) from error
        except BaseException:
            listener.stop_accepting()
            worker.close()
            raise
        _settle_memory()
        self.logger.info(
            "ready",
            version=__version__,
            data=str(self.directory.path),
            tcp=listener.address,
            tls=config.tcp.tls.enabled,
            pid=os.getpid(),
            partitions=sum(1 for _ in broker.catalog.partitions()),
        )
        asyncio.get_running_loop().call_later(_WARM_UP_SECONDS, warm_up)
        async with asyncio.TaskGroup() as tasks:
            chores = [
                tasks.create_task(maintenance.run(chore, broker), name=chore.name)
                for chore in maintenance.chores(config, broker, worker, listener)
            ]
            await stop.wait()
            for chore in chores:
                chore.cancel()
        await self._stop(broker, worker, listener)

    async def _stop(self, broker: Broker, worker: Worker, listener: TcpListener) -> None:
        self.logger.info("stopping", connections=len(listener.connections))
        listener.stop_accepting()
        await _until(lambda: listener.is_idle, _DRAIN_SECONDS)
        listener.close_connections("server is stopping")
        await _until(lambda: not listener.connections, _FAREWELL_SECONDS)
        listener.abort_connections()  # they do not take what they asked for
        await asyncio.to_thread(worker.close)
        broker.close()
        self.logger.info("stopped")

    def _refuse_default_password(self, broker: Broker) -> None:
        """Whoever can reach the port could log in as root with a password everybody knows."""
        config = self.config
        if not forbids_default_password(config):
            return
        if is_password(broker.users.by_id[ROOT_ID].password_hash, Root().password):
            raise StartError(
                f"tcp.address {config.tcp.address} can be reached from other machines and root has the "
                "default password. Start with a fresh data directory and IGGY_ROOT_USERNAME and "
                "IGGY_ROOT_PASSWORD set, change the password over a loopback address first, or set "
                "system.allow_default_password = true."
            )

    def _write_runtime_config(self) -> None:
        """What is in effect, for people and for support snapshots; secrets are masked."""
        from borzoi.server.config.render import effective_toml  # noqa: PLC0415 - 5 ms that can wait for here

        path = self.directory.path / "runtime"
        path.mkdir(exist_ok=True)
        (path / "current_config.toml").write_text(effective_toml(self.loaded, everything=True))


def _settle_memory() -> None:
    """Keep the garbage collector away from what start-up made, and from most requests.

    A request makes a few short-lived objects and no cycles; collecting after every 700 of them, as is the
    default, would walk young objects many times a second for nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 100)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for something that signals nothing, but not forever."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - see the docstring
        await asyncio.sleep(_DRAIN_POLL_SECONDS)


def _stop_event() -> asyncio.Event:
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event


def broker_settings(config: Config, address: str) -> BrokerSettings:
    """What of the configuration concerns the broker. `address` is where clients really find it."""
    partition, topic, segment = config.system.partition, config.system.topic, config.system.segment
    dedup, staging = config.system.message_deduplication, config.system.staging
    host, port = split_address(address) if address else ("", 0)
    return BrokerSettings(
        version=COMPATIBLE_VERSION,
        segment_bytes=segment.size_bytes,
        segment_age_us=segment.max_age_us,
        message_expiry_us=topic.message_expiry_us,
        max_topic_bytes=topic.max_size_bytes or U64_MAX,
        delete_oldest_segments=topic.delete_oldest_segments,
        messages_required_to_save=partition.messages_required_to_save,
        bytes_required_to_save=partition.size_of_messages_required_to_save_bytes,
        enforce_fsync=partition.enforce_fsync,
        metadata_fsync=config.system.state.enforce_fsync,
        verify_reads=partition.validate_checksum,
        verify_messages=partition.verify_message_checksums,
        recreate_missing_state=config.system.recovery.recreate_missing_state,
        dedup_entries=dedup.max_entries if dedup.enabled else 0,
        dedup_expiry_us=dedup.expiry_us,
        staged_bytes_max=staging.max_size_bytes,
        free_bytes_reserved=staging.free_space_bytes,
        staged_expiry_us=staging.expiry_us,
        producers_per_topic_max=staging.max_producers,
        producer_expiry_us=staging.producer_expiry_us,
        rebalancing_timeout_us=config.consumer_group.rebalancing_timeout_us,
        heartbeat_interval_us=config.heartbeat.interval_us if config.heartbeat.enabled else 0,
        tokens_per_user_max=config.personal_access_token.max_tokens_per_user,
        root_username=config.root.username,
        root_password=config.root.password,
        open_files_max=config.limits.max_open_files,
        node=ClusterNode("iggy-node", host, port, 0, 0, 0),
    )
