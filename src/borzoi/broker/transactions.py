"""Epochs: batches that become messages together, or not at all.

A producer, known by name, stages batches for an epoch of a topic and then commits the epoch. What is staged
lies in files of its own (`borzoi.log.staging`), where no reader looks. A commit goes through these states,
and may be taken up again in each of them by whoever comes next: the client that asks again, the upkeep, or
the next start.

    staged      the files are written; synced first where the topic's messages are
    decided     EpochCommitted is in the metadata: from here on the epoch is committed, whatever happens
    appended    every batch is in its log; `borzoi.broker.application`
    applied     EpochApplied is in the metadata, the staged files go

Of a producer's epochs on a topic, one is worked on at a time and the one before it is applied first. Others
wait for that with `AfterWork`. Everything else here happens at once. Time is an argument, and files are the
only thing touched besides the broker's state.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from borzoi.broker import events as ev
from borzoi.broker.application import Item, find_by_content, put_in_logs
from borzoi.broker.catalog import Topic
from borzoi.broker.pending import AfterWork, InSteps, Steps, Work, run_at_once
from borzoi.broker.staged import StagedEpochs, key_of
from borzoi.log.places import PlacesFile
from borzoi.log.staging import StagedFile, boot_id
from borzoi.log.sync import SyncJob
from borzoi.model.errors import BorzoiError, CannotDeleteFile, EpochMismatch, ResourceNotFound
from borzoi.model.limits import U64_MAX
from borzoi.model.replies import EpochCommitted
from borzoi.model.requests import StagedPart

if TYPE_CHECKING:
    from borzoi.broker.broker import Broker


class Transactions:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.staged = StagedEpochs(broker)
        self._busy: dict[tuple[int, int, str], Work] = {}

    # Start

    def open(self, now_us: int) -> None:
        """Take back what was staged before the last stop, then finish every epoch that was decided.

        What goes wrong here is logged and never keeps the server from starting.
        """
        self.staged.open(now_us)
        for topic in self._broker.catalog.topics():
            for producer in _undone(topic):
                try:
                    run_at_once(self._finish_alone(topic, producer, now_us))
                    self._broker.logger.info("epoch finished", topic=topic.name, producer=producer)
                except (BorzoiError, OSError) as error:
                    self._broker.logger.error(
                        "epoch not applied yet", topic=topic.name, producer=producer, reason=str(error)
                    )

    # Commit

    def commit(
        self, topic: Topic, producer: str, epoch: int, parts: Sequence[StagedPart], now_us: int
    ) -> EpochCommitted | InSteps:
        last = topic.epochs.get(producer)
        if last is not None and (epoch < last.epoch or (epoch == last.epoch and last.is_applied)):
            return _reply(last, epoch, is_repeated=True)
        return InSteps(self._commit(topic, producer, epoch, parts, now_us))

    def _commit(
        self, topic: Topic, producer: str, epoch: int, parts: Sequence[StagedPart], now_us: int
    ) -> Steps[EpochCommitted | AfterWork | InSteps]:
        work = self._busy.get((*key_of(topic), producer))
        if work is not None:
            return AfterWork(work, partial(self.commit, topic, producer, epoch, parts, now_us))
        with self._hold(topic, producer):
            self._require(topic)
            last = topic.epochs.get(producer)
            if last is not None and not last.is_applied:
                yield from self._finish(topic, producer, now_us)
                self._require(topic)
            if last is not None and epoch <= last.epoch:
                return _reply(last, epoch, is_repeated=True)
            self.staged.admit_producer(topic, producer, now_us)
            chosen = self._chosen(topic, producer, epoch, parts)
            if chosen and self._is_durable(topic):
                yield self._sync_jobs([file for file, _ in chosen])
                self._require(topic)
            decided = self._decision(topic, producer, epoch, chosen, now_us)
            self._broker.record(decided)
            self.staged.drop_below(topic, producer, epoch)
            if decided.is_applied:
                yield from self._sync_journal()
                self._require(topic)
                self.staged.drop(topic, producer, epoch)
            else:
                yield from self._finish(topic, producer, now_us)
            return _reply(decided, epoch, is_repeated=False)

    def _chosen(
        self, topic: Topic, producer: str, epoch: int, parts: Sequence[StagedPart]
    ) -> list[tuple[StagedFile, int]]:
        """Files, by task, and how many of their batches count. Raises EpochMismatch if they do not fit."""
        staged = self.staged.find(topic, producer, epoch)
        if staged is not None:
            self.staged.read_again(topic, staged)
        chosen: list[tuple[StagedFile, int]] = []
        task = -1
        for part in sorted(parts, key=lambda part: part.task):
            if part.task == task:
                raise EpochMismatch(f"epoch {epoch}: task {task} is named twice")
            task = part.task
            file = staged.files.get((task, part.attempt)) if staged is not None else None
            found = len(file.batches) if file is not None else 0
            if found != part.batches_count:
                raise EpochMismatch(
                    f"epoch {epoch}: {found} batches are staged for attempt {part.attempt} at task {task}, "
                    f"the commit names {part.batches_count}"
                )
            if file is not None:
                chosen.append((file, found))
        return chosen

    def _decision(
        self, topic: Topic, producer: str, epoch: int, chosen: list[tuple[StagedFile, int]], now_us: int
    ) -> ev.EpochCommitted:
        batches = [batch for file, count in chosen for batch in file.batches[:count]]
        targets = sorted({batch.partition_id for batch in batches})
        if targets and targets[-1] >= len(topic.partitions):
            raise EpochMismatch(
                f"epoch {epoch}: partition {targets[-1]} was deleted after a batch was staged for it"
            )
        return ev.EpochCommitted(
            stream_id=topic.stream.id,
            topic_id=topic.id,
            producer=producer,
            epoch=epoch,
            at_us=now_us,
            messages_count=sum(batch.message_count for batch in batches),
            parts=[(file.head.task, file.head.attempt, count) for file, count in chosen],
            next_offsets=[(number, topic.partitions[number].log.next_offset) for number in targets],
            boot_id=boot_id() if chosen else "",
            is_applied=not chosen,
        )

    # Finish what is decided

    def unfinished(self, now_us: int) -> list[InSteps]:
        """Work on epochs that are decided and that nobody works on: an earlier try failed."""
        return [
            InSteps(self._finish_alone(topic, producer, now_us))
            for topic in self._broker.catalog.topics()
            for producer in _undone(topic)
            if not self.is_busy(topic, producer)
        ]

    def _finish_alone(self, topic: Topic, producer: str, now_us: int) -> Steps[None]:
        if self.is_busy(topic, producer) or producer not in _undone(topic):
            return
        with self._hold(topic, producer):
            self._require(topic)
            yield from self._finish(topic, producer, now_us)

    def _finish(self, topic: Topic, producer: str, now_us: int) -> Steps[None]:
        """Append what the producer's last epoch consists of, as far as that is not done yet."""
        decided = topic.epochs[producer]
        broker = self._broker

        def is_wanted() -> bool:
            """False once a purge has settled the epoch, or the topic is deleted."""
            return topic.epochs.get(producer) is decided and self._is_known(topic)

        # No message may reach the device before the decision does.
        yield from self._sync_journal()
        self._require(topic)
        if not is_wanted():
            return
        staged = self.staged.find(topic, producer, decided.epoch)
        if staged is not None:
            self.staged.read_again(topic, staged)
        items = self._items(topic, decided)
        places = PlacesFile(self.staged.directory(topic, producer, decided.epoch))
        if decided.boot_id and boot_id() not in {"", decided.boot_id}:
            yield from find_by_content(broker, topic, items, places, decided.next_offsets)
        yield from put_in_logs(broker, topic, items, places, is_wanted, now_us)
        if is_wanted() and self._is_durable(topic):
            yield [
                job
                for number, _ in decided.next_offsets
                if number < len(topic.partitions)
                for job in topic.partitions[number].log.sync_jobs()
            ]
        self._require(topic)
        if is_wanted():
            self._record_applied(topic, decided)
            if self._is_durable(topic):
                # Or a power failure could leave a decision whose files are gone: a false alarm at a start.
                yield from self._sync_journal()
                self._require(topic)
            self.staged.drop(topic, producer, decided.epoch)

    def _items(self, topic: Topic, decided: ev.EpochCommitted) -> list[Item]:
        staged = self.staged.find(topic, decided.producer, decided.epoch)
        items: list[Item] = []
        number = 0
        for task, attempt, count in decided.parts:
            file = staged.files.get((task, attempt)) if staged is not None else None
            found = min(count, len(file.batches)) if file is not None else 0
            if file is not None:
                items += [Item(number + sequence, file, sequence) for sequence in range(found)]
            if found < count:
                self._broker.logger.error(
                    "messages of a committed epoch lost: staged batches are missing",
                    topic=topic.name,
                    producer=decided.producer,
                    epoch=decided.epoch,
                    task=task,
                    attempt=attempt,
                    missing=count - found,
                    batches=count,
                )
            number += count
        return items

    def _record_applied(self, topic: Topic, decided: ev.EpochCommitted) -> None:
        """Nobody has to wait until this is on the device: without it a start finds that all is there."""
        metadata = self._broker.metadata
        is_dirty = metadata.is_dirty
        self._broker.record(
            ev.EpochApplied(
                stream_id=topic.stream.id, topic_id=topic.id, producer=decided.producer, epoch=decided.epoch
            )
        )
        metadata.is_dirty = is_dirty

    def _sync_journal(self) -> Steps[None]:
        metadata = self._broker.metadata
        if not self._broker.settings.metadata_fsync:
            return
        index = metadata.journal.index
        yield [metadata.journal.sync_job()]
        if metadata.journal.index == index:
            metadata.is_dirty = False

    def _sync_jobs(self, files: list[StagedFile]) -> list[SyncJob]:
        """For the files, and for the names of all directories down to theirs."""
        root = self._broker.directory.path
        above = [path for path in files[0].path.parent.parents if path.is_relative_to(root)]
        return [*(file.sync_job() for file in files), *map(_directory_job, above)]

    # Drop

    def abort(self, topic: Topic, producer: str, epoch: int) -> AfterWork | None:
        """Drop what is staged for an epoch, unless it is committed."""
        work = self._busy.get((*key_of(topic), producer))
        if work is not None:
            return AfterWork(work, partial(self.abort, topic, producer, epoch))
        last = topic.epochs.get(producer)
        if last is None or epoch > last.epoch:
            directory = self.staged.directory(topic, producer, epoch)
            self.staged.drop(topic, producer, epoch)
            if directory.exists():
                raise CannotDeleteFile(f"{directory}")
        return None

    def forget(self, topic: Topic, producer: str) -> AfterWork | None:
        """Forget a producer and what it has staged, unless an epoch of its is still to be appended."""
        work = self._busy.get((*key_of(topic), producer))
        if work is not None:
            return AfterWork(work, partial(self.forget, topic, producer))
        last = topic.epochs.get(producer)
        if last is not None and not last.is_applied:
            raise EpochMismatch(f"epoch {last.epoch} of {producer} is decided, but not in the logs yet")
        self.staged.drop_below(topic, producer, U64_MAX + 1)
        if last is not None:
            self._broker.record(
                ev.ProducerForgotten(stream_id=topic.stream.id, topic_id=topic.id, producer=producer)
            )
        return None

    def settle(self, topic: Topic) -> None:
        """The topic was purged: of epochs that were being applied, nothing more is to come.

        Called when the logs are empty. If the server is killed before this is recorded, the epochs are
        appended to what was purged, whole.
        """
        for producer in _undone(topic):
            decided = topic.epochs[producer]
            self._record_applied(topic, decided)
            self.staged.drop(topic, producer, decided.epoch)

    def drop_idle(self, now_us: int) -> int:
        """Drop epochs that nobody has staged anything for in a long time; returns how many."""
        idle_since_us = now_us - self._broker.settings.staged_expiry_us
        due = [
            (topic, producer, epoch)
            for topic in self._broker.catalog.topics()
            for producer, epoch, staged in self.staged.of(topic)
            if staged.touched_at_us <= idle_since_us
            and not self.is_busy(topic, producer)
            and not _is_decided(topic, producer, epoch)
        ]
        for topic, producer, epoch in due:
            self.staged.drop(topic, producer, epoch)
            self._broker.logger.warning(
                "staged epoch expired", topic=topic.name, producer=producer, epoch=epoch
            )
        return len(due)

    # State

    def is_busy(self, topic: Topic, producer: str) -> bool:
        """Whether an epoch of the producer is being committed or appended."""
        return (*key_of(topic), producer) in self._busy

    def _is_durable(self, topic: Topic) -> bool:
        return self._broker.settings.enforce_fsync or self._broker.options_of(topic).is_persisted

    def _is_known(self, topic: Topic) -> bool:
        return self._broker.catalog.find_topic(topic.stream.id, topic.id) is topic

    def _require(self, topic: Topic) -> None:
        if not self._is_known(topic):
            raise ResourceNotFound(f"topic {topic.name} was deleted")

    @contextmanager
    def _hold(self, topic: Topic, producer: str) -> Iterator[None]:
        """Keep others from this producer's epochs."""
        key = (*key_of(topic), producer)
        work = self._busy[key] = Work()
        try:
            yield
        finally:
            del self._busy[key]
            work.end()


def _undone(topic: Topic) -> list[str]:
    return [last.producer for last in topic.epochs.values() if not last.is_applied]


def _is_decided(topic: Topic, producer: str, epoch: int) -> bool:
    last = topic.epochs.get(producer)
    return last is not None and last.epoch == epoch and not last.is_applied


def _reply(last: ev.EpochCommitted, epoch: int, *, is_repeated: bool) -> EpochCommitted:
    """How many messages an epoch before the last one had is not known any more."""
    return EpochCommitted(epoch, is_repeated, last.messages_count if epoch == last.epoch else 0)


def _directory_job(path: Path) -> SyncJob:
    def finish(_error: OSError | None) -> None:
        return None

    def open_fds() -> list[int]:
        return [os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]

    return SyncJob(key=("directory", path), open_fds=open_fds, finish=finish)
