"""A broker and a listener that fail and dawdle when told to.

They are the real ones with a question in front of a few methods: may this be written, may this be answered
now. Without faults they do what the server does. One `Faults` is shared by all parts of a server and changes
only on its event loop.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from argon2 import PasswordHasher

from borzoi.broker import events as ev
from borzoi.broker.broker import Broker, Logger
from borzoi.broker.catalog import Partition
from borzoi.broker.options import TopicOptions
from borzoi.broker.settings import BrokerSettings
from borzoi.broker.users import ROOT_ID
from borzoi.log.directory import DataDirectory
from borzoi.log.offsets import ConsumerOffsets, OffsetKey
from borzoi.log.partition import PartitionLog
from borzoi.log.segment import Segment
from borzoi.model.permissions import ROOT_PERMISSIONS
from borzoi.model.values import UserStatus
from borzoi.server.config import Config
from borzoi.server.conversation import Answer
from borzoi.server.tcp.connection import Connection
from borzoi.server.tcp.listener import TcpListener
from borzoi.server.waiting import Worker
from borzoi.wire.batch import Layout


class Faults:
    __slots__ = ("answer_delay_s", "write_errno")

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        self.write_errno = 0  # 0 = writes work
        self.answer_delay_s = 0.0

    def refuse_writes(self, error: int) -> None:
        self.write_errno = error

    def delay_answers(self, delay_s: float) -> None:
        self.answer_delay_s = delay_s

    def before_write(self) -> None:
        if self.write_errno:
            raise OSError(self.write_errno, os.strerror(self.write_errno))


class FaultyLog(PartitionLog):
    __slots__ = ("_faults",)

    def __init__(self, log: PartitionLog, faults: Faults) -> None:
        """Takes the place of `log`, which must not be used any more."""
        super().__init__(
            log.directory,
            log.partition_id,
            log.settings,
            log.files,
            log.segments,
            log.next_offset,
            log.report,
        )
        self._faults = faults

    def append(self, batch: memoryview, layout: Layout, now_us: int, *, is_verified: bool = False) -> int:
        self._faults.before_write()
        return super().append(batch, layout, now_us, is_verified=is_verified)

    def roll(self, now_us: int) -> Segment:
        self._faults.before_write()
        return super().roll(now_us)


class FaultyOffsets(ConsumerOffsets):
    __slots__ = ("_faults",)

    def __init__(self, log: PartitionLog, report: Callable[[str], None], faults: Faults) -> None:
        super().__init__(log.directory, log.files, report, log.next_offset)
        self._faults = faults

    def store(self, key: OffsetKey, offset: int) -> None:
        self._faults.before_write()
        super().store(key, offset)


class FaultyBroker(Broker):
    """The broker of a test. Its root user's password is hashed with the least that Argon2 allows.

    That is safe because nobody but the test can reach it, and only because of that.
    """

    def __init__(
        self,
        directory: DataDirectory,
        settings: BrokerSettings,
        logger: Logger,
        now_us: int,
        faults: Faults,
    ) -> None:
        super().__init__(directory, settings, logger, now_us)
        self._faults = faults

    def _open_metadata(self) -> None:
        super()._open_metadata()
        if self.users.find(ROOT_ID) is None:
            hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
            root = ev.UserCreated(
                user_id=ROOT_ID,
                username=self.settings.root_username,
                password_hash=hasher.hash(self.settings.root_password),
                status=UserStatus.ACTIVE,
                permissions=ROOT_PERMISSIONS,
                at_us=self.started_at_us,
            )
            self.metadata.record(root)

    def record(self, event: ev.AnyEvent) -> None:
        self._faults.before_write()
        super().record(event)

    def make_logs(
        self, stream_id: int, topic_id: int, partitions: range, options: TopicOptions
    ) -> list[PartitionLog]:
        self._faults.before_write()
        return super().make_logs(stream_id, topic_id, partitions, options)

    def attach_log(self, partition: Partition, log: PartitionLog) -> None:
        super().attach_log(partition, FaultyLog(log, self._faults))
        partition.offsets = FaultyOffsets(log, self._report_text, self._faults)

    def abandon(self) -> None:
        """Let go of every file as the end of the process would: nothing is flushed, synced or tidied."""
        for partition in self.catalog.partitions():
            for segment in partition.log.segments:
                segment.index._is_lagging = False  # or closing would write what only memory knows
        self.files.close_all()
        journal = self.metadata.journal
        os.close(journal._fd)
        journal._fd = -1
        self.background.clear()


class DelayedConnection(Connection):
    """Holds answers back; they leave in the order in which they were given."""

    def __init__(self, host: TcpListener, faults: Faults) -> None:
        super().__init__(host)
        self._faults = faults
        self._held: deque[Answer] = deque()

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._held

    def _write(self, pieces: Answer) -> None:
        delay_s = self._faults.answer_delay_s
        if not delay_s and not self._held:
            super()._write(pieces)
            return
        # The pieces may be views of a buffer that is used again by the time they are written.
        self._held.append([b"".join(pieces)])
        asyncio.get_running_loop().call_later(delay_s, self._release)

    def _release(self) -> None:
        pieces = self._held.popleft()
        if self._transport is not None and not self._transport.is_closing():
            super()._write(pieces)


class FaultyListener(TcpListener):
    def __init__(
        self,
        config: Config,
        broker: Broker,
        worker: Worker,
        port: socket.socket,
        now_us: Callable[[], int],
        faults: Faults,
    ) -> None:
        super().__init__(config, broker, worker, port, now_us)
        self._faults = faults

    def new_connection(self) -> Connection:
        return DelayedConnection(self, self._faults)
