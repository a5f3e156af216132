"""What is staged: which batches wait for which epoch, and how much that may be.

The table follows the files (`borzoi.log.staging`): it is filled from them at a start, grows with every
batch that was written, and an epoch leaves it together with its directory. What the epochs become is
decided by `borzoi.broker.transactions`.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from borzoi.broker import events as ev
from borzoi.broker.catalog import Partition, Topic
from borzoi.log.staging import SUFFIX, StagedFile, StagedHead, epoch_name, open_staged
from borzoi.model.errors import (
    CannotReadMessage,
    CannotWriteToFile,
    StagedOutOfOrder,
    StagingFull,
    TooManyProducers,
)
from borzoi.model.limits import STAGED_ATTEMPTS_MAX, STAGED_ATTEMPTS_PER_TASK_MAX, STAGED_BATCHES_MAX
from borzoi.model.replies import Copied

if TYPE_CHECKING:
    from borzoi.broker.broker import Broker

TopicKey = tuple[int, int]


class StagedEpoch:
    """What is staged for one epoch, by task and attempt, the oldest first."""

    __slots__ = ("directory", "files", "touched_at_us", "unread")

    def __init__(self, directory: Path, now_us: int) -> None:
        self.directory = directory
        self.files: dict[tuple[int, int], StagedFile] = {}
        self.unread: list[Path] = []  # files that could not be read at the start
        self.touched_at_us = now_us


class StagedEpochs:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # By topic, producer and epoch. A producer that is in it has an epoch, and an epoch has a file.
        self._staged: dict[TopicKey, dict[str, dict[int, StagedEpoch]]] = {}
        self.size_bytes = self.attempts_count = self.batches_count = 0

    def open(self, now_us: int) -> None:
        """Take back what was staged before the last stop; remove what nobody can commit any more."""
        for stream_id, topic_id, path in list(self._broker.directory.found_staged()):
            topic = self._broker.catalog.find_topic(stream_id, topic_id)
            if topic is None:
                self._remove(path)
                continue
            for directory in sorted(path.iterdir()):
                self._take_back(topic, directory, now_us)

    def _take_back(self, topic: Topic, directory: Path, now_us: int) -> None:
        found = StagedEpoch(directory, now_us)
        for path in sorted(directory.glob(f"*{SUFFIX}"), key=_changed_at):
            try:
                self._take_back_file(topic, found, path)
            except OSError as error:
                self._broker.logger.error("staged batches not readable", path=str(path), reason=str(error))
                found.unread.append(path)
        whose = next(((file.head.producer, file.head.epoch) for file in found.files.values()), None)
        if whose is None and found.unread:
            whose = _decided(topic, directory)
            if whose is None:
                return  # whose it is can only be read in the files; the next start tries again
        if whose is None or not _is_open(topic, *whose):
            self._remove(directory)
            return
        producer, epoch = whose
        self._staged.setdefault(key_of(topic), {}).setdefault(producer, {})[epoch] = found
        self._count(found, 1)

    def _take_back_file(self, topic: Topic, staged: StagedEpoch, path: Path) -> StagedFile | None:
        """A file as it was left; None if it was of no use and is removed. Raises OSError if nobody knows."""
        file = open_staged(path, self._report)
        if file is None or not _belongs(file.head, topic, staged.directory):
            with suppress(OSError):
                path.unlink()
            return None
        staged.files[file.head.task, file.head.attempt] = file
        return file

    def read_again(self, topic: Topic, staged: StagedEpoch) -> None:
        """Read what could not be read at the start. Raises CannotReadMessage if it still cannot be."""
        for path in list(staged.unread):
            try:
                file = self._take_back_file(topic, staged, path)
            except FileNotFoundError:
                file = None
            except OSError as error:
                raise CannotReadMessage(f"{path}: {error.strerror or error}") from error
            staged.unread.remove(path)
            if file is not None:
                self._count_files([file], 1)

    def _report(self, text: str) -> None:
        self._broker.logger.warning("staged batches repaired", what=text)

    def find(self, topic: Topic, producer: str, epoch: int) -> StagedEpoch | None:
        return self._staged.get(key_of(topic), {}).get(producer, {}).get(epoch)

    def of(self, topic: Topic) -> Iterator[tuple[str, int, StagedEpoch]]:
        """Producer, epoch and what is staged for it."""
        for producer, epochs in self._staged.get(key_of(topic), {}).items():
            for epoch, staged in epochs.items():
                yield producer, epoch, staged

    def directory(self, topic: Topic, producer: str, epoch: int) -> Path:
        return self._broker.directory.staged(topic.stream.id, topic.id) / epoch_name(producer, epoch)

    def awaits(self, topic: Topic, head: StagedHead, sequence: int) -> bool:
        """Whether this is the next batch of an attempt; otherwise it is staged, or its epoch committed."""
        found = self.so_far(topic, head)
        if found.is_committed:
            return False
        staged_count = found.batches_count
        if sequence > staged_count:
            raise StagedOutOfOrder(
                f"batch {sequence} of attempt {head.attempt} at task {head.task}, but "
                f"{staged_count} are staged"
            )
        return sequence == staged_count

    def so_far(self, topic: Topic, head: StagedHead) -> Copied:
        """What is staged for an attempt."""
        last = topic.epochs.get(head.producer)
        if last is not None and head.epoch <= last.epoch:
            return Copied(is_committed=True, batches_count=0, messages_count=0)
        known = self.find(topic, head.producer, head.epoch)
        file = known.files.get((head.task, head.attempt)) if known is not None else None
        if file is None:
            return Copied(is_committed=False, batches_count=0, messages_count=0)
        return Copied(is_committed=False, batches_count=len(file.batches), messages_count=file.messages_count)

    def stage(
        self,
        topic: Topic,
        partition: Partition | None,
        head: StagedHead,
        batch: memoryview,
        message_count: int,
        now_us: int,
        *,
        is_verified: bool,
    ) -> None:
        """Keep a proven batch for later, that `awaits` says is the next one of its attempt.

        `partition` is None if the topic's partitions take turns.
        """
        producer, epoch, task, attempt = head.producer, head.epoch, head.task, head.attempt
        known = self.find(topic, producer, epoch)
        file = known.files.get((task, attempt)) if known is not None else None
        self.admit_producer(topic, producer, now_us)
        if file is None and known is not None:
            self._drop_old_attempts(topic, known, head)
        self._admit_batch(len(batch), is_new=file is None)
        epoch_staged = known or StagedEpoch(self.directory(topic, producer, epoch), now_us)
        if file is None:
            file = StagedFile(epoch_staged.directory, head)
        if partition is None:
            partition = topic.partitions[topic.balanced_cursor % len(topic.partitions)]
            topic.balanced_cursor += 1
        size_bytes = file.size_bytes
        try:
            if not size_bytes:
                epoch_staged.directory.mkdir(parents=True, exist_ok=True)
            file.append(batch, message_count, partition.id, is_verified=is_verified)
        except OSError as error:
            self._broker.logger.error("batch not staged", path=str(file.path), reason=str(error))
            raise CannotWriteToFile(error.strerror or str(error)) from error
        if not size_bytes:
            epoch_staged.files[task, attempt] = file
            self._staged.setdefault(key_of(topic), {}).setdefault(producer, {})[epoch] = epoch_staged
            self.attempts_count += 1
        self.batches_count += 1
        self.size_bytes += file.size_bytes - size_bytes
        epoch_staged.touched_at_us = now_us

    def _drop_old_attempts(self, topic: Topic, staged: StagedEpoch, head: StagedHead) -> None:
        """Of attempts at one task only the newest are kept: the others are of tries that failed.

        Or a query that fails time and again would fill up what is there for all producers. Nothing is dropped
        while a commit is under way, which may have chosen it.
        """
        if self._broker.transactions.is_busy(topic, head.producer):
            return
        attempts = [key for key in staged.files if key[0] == head.task]
        for key in attempts[: max(0, len(attempts) - STAGED_ATTEMPTS_PER_TASK_MAX + 1)]:
            file = staged.files[key]
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                self._broker.logger.error("attempt not dropped", path=str(file.path), reason=str(error))
                continue
            del staged.files[key]
            self._count_files([file], -1)

    def _admit_batch(self, size_bytes: int, *, is_new: bool) -> None:
        settings = self._broker.settings
        if self.size_bytes + size_bytes > settings.staged_bytes_max:
            raise StagingFull(f"{self.size_bytes} bytes are staged, at most {settings.staged_bytes_max}")
        if self.batches_count >= STAGED_BATCHES_MAX:
            raise StagingFull(f"{self.batches_count} batches are staged, no more are taken")
        if is_new and self.attempts_count >= STAGED_ATTEMPTS_MAX:
            raise StagingFull(f"{self.attempts_count} attempts are staged, no more are taken")
        disk = os.statvfs(self._broker.directory.path)
        # A commit copies what is staged, so there has to be room for all of it a second time.
        needed = settings.free_bytes_reserved + self.size_bytes + 2 * size_bytes
        if disk.f_bavail * disk.f_frsize < needed:
            raise StagingFull(f"{needed} free bytes are needed on the disk to commit all that is staged")

    def admit_producer(self, topic: Topic, producer: str, now_us: int) -> None:
        """Make room for a new producer by forgetting the one that has been silent the longest."""
        settings = self._broker.settings
        staging = self._staged.get(key_of(topic), {})
        if producer in staging or producer in topic.epochs:
            return
        names = topic.epochs.keys() | staging.keys()
        if len(names) < settings.producers_per_topic_max:
            return
        forgettable = [
            last
            for last in topic.epochs.values()
            if last.is_applied
            and last.producer not in staging
            and last.at_us + settings.producer_expiry_us <= now_us
        ]
        if not forgettable:
            raise TooManyProducers(f"topic {topic.name} knows {len(names)}")
        oldest = min(forgettable, key=lambda last: last.at_us)
        self._broker.record(
            ev.ProducerForgotten(stream_id=topic.stream.id, topic_id=topic.id, producer=oldest.producer)
        )
        self._broker.logger.info("producer forgotten", topic=topic.name, producer=oldest.producer)

    def drop_below(self, topic: Topic, producer: str, epoch: int) -> None:
        for lower in [each for each in self._staged.get(key_of(topic), {}).get(producer, {}) if each < epoch]:
            self.drop(topic, producer, lower)

    def drop(self, topic: Topic, producer: str, epoch: int) -> None:
        producers = self._staged.get(key_of(topic), {})
        epochs = producers.get(producer, {})
        staged = epochs.pop(epoch, None)
        if staged is None:
            return
        self._count(staged, -1)
        if not epochs:
            del producers[producer]
        self._remove(staged.directory)

    def forget_stream(self, stream_id: int) -> None:
        for topic_id in [topic for stream, topic in self._staged if stream == stream_id]:
            self.forget_topic(stream_id, topic_id)

    def forget_topic(self, stream_id: int, topic_id: int) -> None:
        for epochs in self._staged.pop((stream_id, topic_id), {}).values():
            for staged in epochs.values():
                self._count(staged, -1)
        path = self._broker.directory.staged(stream_id, topic_id)
        if path.exists():
            self._remove(path)

    def _remove(self, path: Path) -> None:
        """What cannot be removed now, the next start removes."""
        try:
            self._broker.remove_directory(path)
        except OSError as error:
            self._broker.logger.error("staged batches not removed", path=str(path), reason=str(error))

    def _count(self, staged: StagedEpoch, sign: int) -> None:
        self._count_files(staged.files.values(), sign)

    def _count_files(self, files: Collection[StagedFile], sign: int) -> None:
        self.attempts_count += sign * len(files)
        self.batches_count += sign * sum(len(file.batches) for file in files)
        self.size_bytes += sign * sum(file.size_bytes for file in files)


def key_of(topic: Topic) -> TopicKey:
    return topic.stream.id, topic.id


def _is_open(topic: Topic, producer: str, epoch: int) -> bool:
    """Whether anything that is staged for the epoch is still needed."""
    last = topic.epochs.get(producer)
    return last is None or epoch > last.epoch or (epoch == last.epoch and not last.is_applied)


def _decided(topic: Topic, directory: Path) -> tuple[str, int] | None:
    """The producer and epoch of a directory, if that epoch is decided."""
    for last in topic.epochs.values():
        if not last.is_applied and directory.name == epoch_name(last.producer, last.epoch):
            return last.producer, last.epoch
    return None


def _changed_at(path: Path) -> tuple[int, Path]:
    try:
        return path.stat().st_mtime_ns, path
    except OSError:
        return 0, path


def _belongs(head: StagedHead, topic: Topic, directory: Path) -> bool:
    return head.topic_created_at_us == topic.created_at_us and directory.name == epoch_name(
        head.producer, head.epoch
    )
