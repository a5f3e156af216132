"""What tasks of a write stage, and how the driver makes messages of it: all of an epoch, once, or nothing.

    executor    stage_all(batches)     puts them aside, numbered from 0
                -> TaskReport          travels to the driver with the task's success
    driver      commit(reports)        one request; everything becomes messages
                abort(...)             drops what is staged, unless it is committed

An epoch is known by its producer's name and its number, which grow in order. A committed epoch is committed
for good: whoever stages for it is told so and stops, a second commit changes nothing, and an abort does not
touch it. Spark needs all three, because it repeats a micro-batch when it does not know how the last try at it
ended, and aborts after a commit whose answer it did not see.

A stream repeats at most the last micro-batch it has written, with the same rows, because its checkpoint says
which those were. If a checkpoint has lost its end (restored from a copy, say), old numbers come back with new
rows, and to take them for written would lose these. So a stream that comes with an older epoch than the
topic knows is stopped, and the rows of a repeated one are counted and compared.

An attempt's number is never used twice, not even after the driver has been started again: half of it is
random. Spark's own attempt numbers start over then, and batches that a dead attempt has staged would be taken
for those of a new one, with other rows in them.

All of these requests can be repeated, and are, while the failure may pass and the deadline has not. Nothing
here knows Spark or Arrow.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from borzoi.client.retry import RetryPolicy
from borzoi.model import values
from borzoi.model.errors import BorzoiError, EpochMismatch, TaskTimeout
from borzoi.model.limits import U32_MAX
from borzoi.model.replies import Copied, EpochCommitted, ProducerEpoch, Staged
from borzoi.model.requests import StagedPart
from borzoi.model.values import Identifier
from borzoi.spark.options import Target

logger = logging.getLogger("borzoi.spark")

T = TypeVar("T")


class CheckpointLost(  # noqa: N818 - named like the platform's other errors
    BorzoiError,
    text="The checkpoint does not know what the query has written",
    hint='Start with a new checkpoint and say where with "startingOffsets", or accept the loss with '
    '.option("failOnDataLoss", "false").',
):
    """Says which epoch, and how it differs. Nothing was written."""

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.hint}"


# How often a commit that is decided is waited for, each time for the whole deadline.
_COMMIT_ROUNDS = 10
# How long a server that did not answer a commit is asked what became of it.
_ASK_S = 10.0
_RETRY = RetryPolicy(attempts=1 << 31, backoff_s=0.05, longest_backoff_s=1.0)


class EpochClient(Protocol):
    """What is asked of a `borzoi.Client` here."""

    def stage_messages(
        self,
        stream: Identifier,
        topic: Identifier,
        partitioning: values.Partitioning | int,
        batch: values.BytesLike,
        messages_count: int,
        *,
        producer: str,
        epoch: int,
        task: int,
        attempt: int,
        sequence: int,
        deadline_s: float | None = None,
    ) -> Staged: ...

    def stage_copy(
        self,
        stream: Identifier,
        topic: Identifier,
        partitioning: values.Partitioning | int,
        source_stream: Identifier,
        source_topic: Identifier,
        source_partition: int,
        offset: int,
        count: int,
        *,
        producer: str,
        epoch: int,
        task: int,
        attempt: int,
        sequence: int,
        deadline_s: float | None = None,
    ) -> Copied: ...

    def commit_epoch(
        self,
        stream: Identifier,
        topic: Identifier,
        producer: str,
        epoch: int,
        parts: Iterable[StagedPart],
        *,
        deadline_s: float | None = None,
    ) -> EpochCommitted: ...

    def abort_epoch(
        self,
        stream: Identifier,
        topic: Identifier,
        producer: str,
        epoch: int,
        *,
        deadline_s: float | None = None,
    ) -> None: ...

    def forget_producer(
        self, stream: Identifier, topic: Identifier, producer: str, *, deadline_s: float | None = None
    ) -> None: ...

    def get_producer_epoch(
        self, stream: Identifier, topic: Identifier, producer: str, *, deadline_s: float | None = None
    ) -> ProducerEpoch | None: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try at a part of an epoch."""

    producer: str
    epoch: int
    task: int
    number: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task says when it is done. `is_committed`: the epoch was committed before the task was done."""

    producer: str
    epoch: int
    task: int
    attempt: int
    batches_count: int
    messages_count: int
    is_committed: bool


def attempt_number(spark_attempt: int) -> int:
    """A number that no other attempt has; Spark's number is its lower half."""
    return int.from_bytes(os.urandom(4), "little") << 32 | (spark_attempt & U32_MAX)


class Stager:
    """Stages the batches of one attempt, in order."""

    def __init__(self, client: EpochClient, target: Target, attempt: Attempt) -> None:
        self._client = client
        self._target = target
        self._attempt = attempt
        self._batches = 0
        self._messages = 0
        self.is_committed = False

    def begin(self, *, is_stream: bool = False) -> bool:
        """Tell whether there is anything to stage: for an epoch that is committed already there is not."""
        target, attempt = self._target, self._attempt
        last = patiently(
            lambda left_s: self._client.get_producer_epoch(
                target.stream, target.topic, attempt.producer, deadline_s=left_s
            ),
            target.deadline_s,
        )
        if last is not None and last.epoch > attempt.epoch and is_stream:
            raise CheckpointLost(
                f"{target}: {attempt.producer} has written epoch {last.epoch} and comes with {attempt.epoch}"
            )
        self.is_committed = last is not None and last.epoch >= attempt.epoch
        return not self.is_committed

    def stage(self, partitioning: values.Partitioning, batch: values.BytesLike, messages_count: int) -> bool:
        """Put a batch aside. False: the epoch was committed meanwhile, and no more batches are wanted."""
        target, attempt = self._target, self._attempt
        staged = patiently(
            lambda left_s: self._client.stage_messages(
                target.stream,
                target.topic,
                partitioning,
                batch,
                messages_count,
                producer=attempt.producer,
                epoch=attempt.epoch,
                task=attempt.task,
                attempt=attempt.number,
                sequence=self._batches,
                deadline_s=left_s,
            ),
            target.deadline_s,
        )
        self._messages += messages_count
        if staged.is_committed:
            self.is_committed = True
            return False
        self._batches += 1
        return True

    def copy(
        self, partitioning: values.Partitioning, source: Target, partition_id: int, offset: int, count: int
    ) -> int:
        """Let the server put aside messages that it has, `count` at most; returns how many it took.

        None if it does not have the first, or if the epoch was committed meanwhile.
        """
        target, attempt = self._target, self._attempt
        copied = patiently(
            lambda left_s: self._client.stage_copy(
                target.stream,
                target.topic,
                partitioning,
                source.stream,
                source.topic,
                partition_id,
                offset,
                min(count, U32_MAX),
                producer=attempt.producer,
                epoch=attempt.epoch,
                task=attempt.task,
                attempt=attempt.number,
                sequence=self._batches,
                deadline_s=left_s,
            ),
            target.deadline_s,
        )
        if copied.is_committed:
            self.is_committed = True
            return 0
        taken = copied.messages_count - self._messages
        self._batches, self._messages = copied.batches_count, copied.messages_count
        return taken

    def count(self, messages_count: int) -> None:
        """Of a batch that is not staged because its epoch is committed."""
        self._messages += messages_count

    def report(self) -> TaskReport:
        attempt = self._attempt
        return TaskReport(
            attempt.producer,
            attempt.epoch,
            attempt.task,
            attempt.number,
            self._batches,
            self._messages,
            self.is_committed,
        )


def stage_all(
    client: EpochClient,
    target: Target,
    attempt: Attempt,
    batches: Iterable[tuple[values.Partitioning, values.BytesLike, int]],
    *,
    is_stream: bool = False,
) -> TaskReport:
    """Stage batches as they come; while one is sent the next is made.

    Nothing is staged for an epoch that is committed. A stream's batches are then counted; other writers stop.
    """
    stager = Stager(client, target, attempt)
    if not stager.begin(is_stream=is_stream) and not is_stream:
        return stager.report()
    with ThreadPoolExecutor(1, "borzoi-stage") as thread:
        sending: Future[bool] | None = None
        for batch in batches:
            if sending is not None:
                sending.result()
            if not stager.is_committed:
                sending = thread.submit(stager.stage, *batch)
            elif is_stream:
                sending = None
                stager.count(batch[2])
            else:
                return stager.report()
        if sending is not None:
            sending.result()
    return stager.report()


def commit(
    client: EpochClient, target: Target, epoch: int, reports: Iterable[TaskReport]
) -> EpochCommitted | None:
    """Make messages of what the tasks staged, in the order of the tasks. None: there were no tasks."""
    in_order = sorted(reports, key=lambda report: report.task)
    if not in_order:
        return None
    first = in_order[0]
    for report in in_order:
        if (report.producer, report.epoch) != (first.producer, epoch):
            raise EpochMismatch(
                f"{target}: epoch {epoch} of {first.producer} is to be committed, "
                f"task {report.task} wrote epoch {report.epoch} of {report.producer}"
            )
    # A task without rows staged nothing and is no part; an epoch may consist of such tasks only.
    parts = [
        StagedPart(report.task, report.attempt, report.batches_count)
        for report in in_order
        if report.batches_count and not report.is_committed
    ]

    def commit_once() -> EpochCommitted:
        return patiently(
            lambda left_s: client.commit_epoch(
                target.stream, target.topic, first.producer, epoch, parts, deadline_s=left_s
            ),
            target.deadline_s,
        )

    try:
        return commit_once()
    except BorzoiError as error:
        if not _may_pass(error) or not _is_decided(client, target, first.producer, epoch):
            raise
        reason: BorzoiError = error
    # What is decided becomes messages, however long that takes. To call it failed invites a second write.
    for _ in range(_COMMIT_ROUNDS):
        logger.warning(
            "epoch %d of %s is committed, but not all of it is in %s yet: %s",
            epoch,
            first.producer,
            target,
            reason,
        )
        try:
            return commit_once()
        except BorzoiError as error:
            if not _may_pass(error):
                raise
            reason = error
    messages_count = sum(report.messages_count for report in in_order)
    return EpochCommitted(epoch, is_repeated=False, messages_count=messages_count)


def _is_decided(client: EpochClient, target: Target, producer: str, epoch: int) -> bool:
    """Whether a commit without an answer counts. If not it never will: what is staged is dropped.

    Raises an error if the server does not even say that.
    """
    if _has_committed(client, target, producer, epoch):
        return True
    abort(client, target, producer, epoch)  # which waits for a commit under way
    return _has_committed(client, target, producer, epoch)


def _has_committed(client: EpochClient, target: Target, producer: str, epoch: int) -> bool:
    last = patiently(
        lambda left_s: client.get_producer_epoch(target.stream, target.topic, producer, deadline_s=left_s),
        min(target.deadline_s, _ASK_S),
    )
    return last is not None and last.epoch >= epoch


def compare(target: Target, done: EpochCommitted, reports: Iterable[TaskReport]) -> None:
    """Raise CheckpointLost if a stream's epoch that was written before had other rows than it has now."""
    counted = sum(report.messages_count for report in reports)
    if done.is_repeated and done.messages_count != counted:
        raise CheckpointLost(
            f"{target}: epoch {done.epoch} was written with {done.messages_count} messages and has "
            f"{counted} now"
        )


def abort(client: EpochClient, target: Target, producer: str, epoch: int) -> None:
    """Drop what is staged for the epoch. One that is committed stays."""
    patiently(
        lambda left_s: client.abort_epoch(target.stream, target.topic, producer, epoch, deadline_s=left_s),
        target.deadline_s,
    )


def forget(client: EpochClient, target: Target, producer: str) -> None:
    """Let the broker forget a producer that has committed its only epoch."""
    patiently(
        lambda left_s: client.forget_producer(target.stream, target.topic, producer, deadline_s=left_s),
        target.deadline_s,
    )


def patiently(request: Callable[[float], T], deadline_s: float) -> T:
    """The answer to a request that may be sent more than once, tried until the deadline has passed."""
    give_up_s = time.monotonic() + deadline_s
    failures = 0
    while True:
        left_s = give_up_s - time.monotonic()
        try:
            return request(max(left_s, 0.001))
        except BorzoiError as error:
            failures += 1
            pause_s = _RETRY.pause_s(failures) or 0.0
            left_s = give_up_s - time.monotonic()
            if not error.retryable or isinstance(error, TaskTimeout) or left_s <= pause_s:
                raise
        time.sleep(pause_s)


def _may_pass(error: BorzoiError) -> bool:
    """Time was up; the server did not say no."""
    return error.retryable or isinstance(error, TaskTimeout)
