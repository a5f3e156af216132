"""Tells the server how far a streaming query has come, as the offsets of a consumer group.

Nobody reads them back: the checkpoint is the truth, and a query that is started again goes on from there.
They make `borzoi lag` show the query beside all other consumers, and let a consumer take over from it.

The server takes offsets of a group only from the member that owns the partition. So the query joins the
group, alone: where the group has other members nothing is published and a warning says so, since joining
would take partitions away from them. All this happens on a thread with a connection of its own; whatever goes
wrong there is said once in the log and neither fails nor delays the query.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from borzoi.client.sync import Client
from borzoi.client.values import Consumer
from borzoi.model.errors import BorzoiError, ConsumerGroupNameAlreadyExists
from borzoi.spark.connections import new_client
from borzoi.spark.options import Target, redacted

logger = logging.getLogger("borzoi.spark")

# How long the end of a query waits for its last offsets to be published.
_STOP_S = 2.0
# How long a group that others are members of is left alone: to look costs a login.
_LOOK_AGAIN_S = 30.0


class Publisher:
    """`publish` returns at once; of positions that come faster than they can be sent, the last ones count."""

    def __init__(self, target: Target, group: str) -> None:
        self._target = target
        self._group = group
        self._changed = threading.Condition()
        self._wanted: dict[int, int] = {}
        self._is_busy = self._is_stopping = False
        self._thread: threading.Thread | None = None
        # Of the thread alone.
        self._client: Client | None = None
        self._sent: dict[int, int] = {}
        self._warned = ""
        self._look_again_s = 0.0

    def publish(self, next_offsets: Mapping[int, int]) -> None:
        with self._changed:
            if self._wanted == next_offsets or self._is_stopping:
                return
            self._wanted = dict(next_offsets)
            self._is_busy = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="borzoi-publish", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self) -> None:
        """Give what is wanted a moment to be published, then end."""
        with self._changed:
            if self._thread is None:
                return
            self._settle()
            self._is_stopping = True
            self._changed.notify_all()
        client = self._client
        if client is not None:
            with suppress(BorzoiError):
                client.leave_consumer_group(
                    self._target.stream, self._target.topic, self._group, deadline_s=_STOP_S
                )
            client.close()
        self._thread.join(_STOP_S)

    def _settle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy, _STOP_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_busy or self._is_stopping)
                if self._is_stopping:
                    return
                wanted = self._wanted
            try:
                if self._send(wanted):
                    self._warned = ""
            except BorzoiError as error:
                self._leave()
                self._warn(redacted(str(error)))
            with self._changed:
                if self._wanted is wanted:
                    self._is_busy = False
                    self._changed.notify_all()

    def _send(self, wanted: Mapping[int, int]) -> bool:
        """False: nothing may be published at the moment."""
        if self._client is None:
            if time.monotonic() < self._look_again_s:
                return False
            self._client = self._joined()
            if self._client is None:
                self._look_again_s = time.monotonic() + _LOOK_AGAIN_S
                return False
        where = self._target.stream, self._target.topic
        who = Consumer.group(self._group)
        for partition_id, next_offset in wanted.items():
            if next_offset and self._sent.get(partition_id) != next_offset:
                self._client.store_consumer_offset(*where, partition_id, offset=next_offset - 1, consumer=who)
                self._sent[partition_id] = next_offset
        return True

    def _joined(self) -> Client | None:
        """A client that is the group's only member; None if there are others."""
        where = self._target.stream, self._target.topic
        client = new_client(self._target)
        try:
            found = client.get_consumer_group(*where, self._group)
            if found is None:
                with suppress(ConsumerGroupNameAlreadyExists):
                    client.create_consumer_group(*where, self._group)
            elif found.members:
                self._warn(
                    f"it has other members ({len(found.members)}); give this query a group of its own with "
                    'the option "group"'
                )
                client.close()
                return None
            client.join_consumer_group(*where, self._group)
        except BaseException:
            client.close()
            raise
        return client

    def _leave(self) -> None:
        """Whatever went wrong, the next attempt begins anew: the topic may be another one by then."""
        if self._client is not None:
            self._client.close()
        self._client = None
        self._sent.clear()

    def _warn(self, reason: str) -> None:
        if reason != self._warned and not self._is_stopping:
            logger.warning(
                'progress in %s is not published as consumer group "%s": %s',
                self._target,
                self._group,
                reason,
            )
        self._warned = reason
