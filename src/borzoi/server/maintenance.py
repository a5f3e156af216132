"""The clockwork: runs the broker's upkeep when it is due.

Each chore has its own period. A chore that fails is logged and tried again at its next turn; it never
stops the others.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from borzoi.broker import upkeep
from borzoi.broker.broker import Broker
from borzoi.model.errors import BorzoiError
from borzoi.server.config import Config
from borzoi.server.tcp.listener import TcpListener
from borzoi.server.waiting import Worker

_SECOND_US = 1_000_000
# How often an epoch is tried again that the disk had no room for, and idle ones are looked for.
_EPOCHS_PERIOD_US = 10 * _SECOND_US


@dataclass(frozen=True, slots=True)
class Chore:
    name: str
    period_us: int
    run: Callable[[int], object]


def chores(config: Config, broker: Broker, worker: Worker, listener: TcpListener) -> list[Chore]:
    result = [
        Chore("connections", _SECOND_US, listener.tick),
        Chore("background work", _SECOND_US, lambda _now_us: worker.run_background()),
        Chore(
            "rebalances",
            min(_SECOND_US, config.consumer_group.rebalancing_check_interval_us),
            lambda now_us: upkeep.expire_rebalances(broker, now_us),
        ),
        Chore("epochs", _EPOCHS_PERIOD_US, lambda now_us: look_after_epochs(broker, worker, now_us)),
    ]
    saver = config.message_saver
    if saver.enabled and saver.enforce_fsync:
        result.append(Chore("message saver", saver.interval_us, lambda _now_us: save(broker, worker)))
    cleaner = config.data_maintenance.messages
    if cleaner.cleaner_enabled:
        result.append(
            Chore("retention", cleaner.interval_us, lambda now_us: upkeep.clean_messages(broker, now_us))
        )
    tokens = config.personal_access_token.cleaner
    if tokens.enabled:
        result.append(Chore("tokens", tokens.interval_us, lambda now_us: upkeep.clean_tokens(broker, now_us)))
    if config.heartbeat.enabled:
        period_us = max(_SECOND_US // 4, config.heartbeat.interval_us // 4)
        result.append(
            Chore("heartbeats", period_us, lambda now_us: upkeep.evict_silent_members(broker, now_us))
        )
    return result


def look_after_epochs(broker: Broker, worker: Worker, now_us: int) -> None:
    """Finish what was decided, and drop what nobody is going to commit."""

    def done(outcome: object) -> None:
        if isinstance(outcome, BorzoiError):
            broker.logger.warning("epoch is tried again later", reason=str(outcome))

    upkeep.drop_idle_epochs(broker, now_us)
    for work in upkeep.unfinished_epochs(broker, now_us):
        worker.start(work, done)


def save(broker: Broker, worker: Worker) -> None:
    """Bring to the device what was written since the last time, without anybody waiting for it."""

    def done(error: OSError | None) -> None:
        if error is not None:
            broker.logger.error("message saver could not sync", reason=str(error))

    for partition in broker.catalog.partitions():
        try:
            if partition.log.dirty:
                worker.syncer.submit(partition.log.sync_jobs(indexes=True), done)
            if partition.offsets.is_dirty:
                worker.syncer.submit([partition.offsets.sync_job()], done)
        except OSError as error:
            done(error)  # and on with the others


async def run(chore: Chore, broker: Broker) -> None:
    while True:
        await asyncio.sleep(chore.period_us / _SECOND_US)
        try:
            chore.run(time.time_ns() // 1000)
        except Exception as error:
            broker.logger.exception("chore failed", chore=chore.name, reason=repr(error))
