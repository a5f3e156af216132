"""A consumer's partitions, and the proof that they are its own.

As a member of a group a consumer must know that a partition is still its own before it delivers a message or
stores an offset. `prove` asks for the assignment if the last answer is older than `_PROOF_S` or came over
another connection. If the group's generation or the connection is another one, stored offsets are read again,
and holdings that somebody else went past are begun anew:

    still assigned, offset as we left it     go on with what is buffered
    taken away on the same connection        deliver what was polled, store each, poll no more: the server
                                             waits for that before it gives the partition to the next member
    taken away with the connection           dropped; what was not stored will be delivered elsewhere
    offset stored by somebody else           dropped; begin after that offset

So no message is delivered that is known to be committed, and no stored offset goes back. This relies on the
server's rebalancing timeout being longer than `_PROOF_S`.

Without a group there is one partition and nothing to prove. Callers of what is awaited take turns; nothing
here locks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from borzoi.client.aio import AsyncClient
from borzoi.client.attachment import connection_number, forget_group, joined_groups
from borzoi.client.holdings import Holding, begin
from borzoi.client.memberships import GroupKey
from borzoi.client.values import Consumer
from borzoi.model import values
from borzoi.model.errors import (
    BorzoiError,
    ConsumerGroupMemberNotFound,
    ConsumerGroupNameAlreadyExists,
    ConsumerGroupPartitionNotOwned,
    Disconnected,
    ResourceNotFound,
)
from borzoi.model.replies import GroupAssignment
from borzoi.model.values import Identifier

_PROOF_S = 1.0
# Giving up a membership is a courtesy when the server is away: the membership is then gone anyway.
_LEAVE_S = 5.0
_RETRY_PAUSE_S = 0.05
_NEVER_S = float("-inf")
# How a server refuses to store an offset for a partition that is in another member's hands.
_NOT_OURS = (ResourceNotFound, ConsumerGroupPartitionNotOwned)
_logger = logging.getLogger("borzoi.client")


async def persist(call: Callable[[float], Awaitable[object]], deadline_s: float) -> None:
    """Repeat what does no harm when it is done twice, until it is known to be done.

    The call is given the time that is left.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + deadline_s
    while True:
        try:
            await call(max(give_up_s - loop.time(), _RETRY_PAUSE_S))
        except Disconnected:
            if loop.time() + _RETRY_PAUSE_S >= give_up_s:
                raise
            await asyncio.sleep(_RETRY_PAUSE_S)
        else:
            return


class Answer(NamedTuple):
    """What the group said, over which connection; None: that has ended since."""

    assignment: GroupAssignment | None
    connection: int | None
    asked_at_s: float


class Ownership:
    """The holdings by partition. `group` is None for a consumer of the one partition `partition_id`."""

    def __init__(
        self,
        client: AsyncClient,
        stream: Identifier,
        topic: Identifier,
        *,
        group: Identifier | None,
        consumer: Identifier,
        partition_id: int,
        start: values.PollingStrategy,
        deadline_s: float,
    ) -> None:
        self.holdings: dict[int, Holding] = {}
        self.in_hand: Holding | None = None  # whose message the application is working on
        self.who = Consumer.group(group) if group is not None else Consumer.single(consumer)
        self._client = client
        self._stream = stream
        self._topic = topic
        self._group = group
        self._partition_id = partition_id
        self._start = start
        self._deadline_s = deadline_s
        self._connection: int | None = None  # the one that the holdings are good for
        self._generation = -1
        self._proved_at_s = _NEVER_S
        self._is_member = False

    async def join(self, *, create_group: bool) -> None:
        group = self._group
        if group is None:
            return
        key = GroupKey(self._stream, self._topic, group)
        if key in joined_groups(self._client):
            raise RuntimeError(
                "this client is a member of the group already; each member needs its own client"
            )
        if create_group and isinstance(group, str):
            found = await self._client.get_consumer_group(*key, deadline_s=self._deadline_s)
            if found is None:
                # Another member may have made it meanwhile.
                with suppress(ConsumerGroupNameAlreadyExists):
                    await self._client.create_consumer_group(
                        self._stream, self._topic, group, deadline_s=self._deadline_s
                    )
        await self._client.join_consumer_group(*key, deadline_s=self._deadline_s)
        self._is_member = True

    async def leave(self) -> None:
        if self._group is None or not self._is_member:
            return
        self._is_member = False
        key = GroupKey(self._stream, self._topic, self._group)
        try:
            await self._client.leave_consumer_group(*key, deadline_s=min(_LEAVE_S, self._deadline_s))
        except BorzoiError as error:
            _logger.info("group %s was not left in order: %s", self._group, error)
        finally:
            forget_group(self._client, key)

    @property
    def is_proved(self) -> bool:
        """Whether the holdings are known to be ours at this moment; see the module's docstring."""
        if self._group is None:
            return bool(self.holdings)
        age_s = asyncio.get_running_loop().time() - self._proved_at_s
        if age_s >= _PROOF_S or self._connection is None:
            return False
        # A request that is made now is written on this very connection, or fails with it.
        return connection_number(self._client) == self._connection

    async def prove(self) -> None:
        """Return when the holdings are known to be ours."""
        if self.is_proved:
            return
        if self._group is None:
            self._begin(self._partition_id, await self._stored_offset(self._partition_id))
        else:
            await self.adapt(await self.ask_assignment())

    async def ask_assignment(self) -> Answer:
        asked_at_s = asyncio.get_running_loop().time()
        assignment = await self._client.sync_consumer_group(
            self._stream, self._topic, self.who.id, deadline_s=self._deadline_s
        )
        return Answer(assignment, connection_number(self._client), asked_at_s)

    async def adapt(self, answer: Answer) -> None:
        """Change the holdings to what the group says, unless nothing has changed."""
        has_joined = False
        while True:
            assignment, connection, asked_at_s = answer
            if assignment is None:
                if has_joined:
                    raise ConsumerGroupMemberNotFound(f"group {self._group}")
                has_joined = True
                await self._client.join_consumer_group(
                    self._stream, self._topic, self.who.id, deadline_s=self._deadline_s
                )
                # Thrown out, by an operator say who resets offsets: what was held says nothing now, and a
                # group that was made anew may have come to the same generation.
                self._connection = None
            elif connection is not None:
                is_new = connection != self._connection
                if is_new or assignment.generation != self._generation:
                    await self._rebalance(assignment, is_new_session=is_new)
                if connection == connection_number(self._client):
                    self._connection, self._generation = connection, assignment.generation
                    self._proved_at_s = asked_at_s
                    return
            answer = await self.ask_assignment()

    async def _rebalance(self, assignment: GroupAssignment, *, is_new_session: bool) -> None:
        self._proved_at_s = _NEVER_S  # until the offsets are known
        for partition_id, holding in list(self.holdings.items()):
            holding.is_leaving = partition_id not in assignment.partitions
            if holding.is_leaving and (is_new_session or self._is_idle(holding)):
                self._forget(holding)
        partitions = sorted({*assignment.partitions, *self.holdings})
        found = await asyncio.gather(*map(self._stored_offset, partitions), return_exceptions=True)
        for partition_id, stored_offset in zip(partitions, found, strict=True):
            if isinstance(stored_offset, BaseException):
                raise stored_offset
            self._begin(partition_id, stored_offset)

    async def _stored_offset(self, partition_id: int) -> int | None:
        found = await self._client.get_consumer_offset(
            self._stream, self._topic, partition_id, consumer=self.who, deadline_s=self._deadline_s
        )
        return None if found is None else found.stored_offset

    def _begin(self, partition_id: int, stored_offset: int | None) -> None:
        """Go on with a holding if it agrees with the stored offset, else begin it anew."""
        holding = self.holdings.get(partition_id)
        if holding is not None and holding.agrees_with(stored_offset):
            return
        if holding is not None and holding.is_leaving:
            self._forget(holding)
        else:
            self.holdings[partition_id] = begin(partition_id, stored_offset, self._start)

    def _is_idle(self, holding: Holding) -> bool:
        return not holding.buffer and holding.is_settled and holding is not self.in_hand

    async def store(self, holding: Holding) -> None:
        """Store what is finished, unless the partition is not ours any more."""

        async def attempt(left_s: float) -> None:
            await self.prove()
            offset = holding.finished_offset
            is_ours = self.holdings.get(holding.partition_id) is holding
            if offset is None or holding.is_settled or not is_ours:
                return
            holding.storing_offset = offset
            await self._client.store_consumer_offset(
                self._stream,
                self._topic,
                holding.partition_id,
                offset=offset,
                consumer=self.who,
                deadline_s=left_s,
            )
            holding.stored(offset)

        try:
            await persist(attempt, self._deadline_s)
        except _NOT_OURS:
            if self._group is None:
                raise
            # Thrown out of the group, maybe; a proof joins it again.
            self._proved_at_s = _NEVER_S
            try:
                await persist(attempt, self._deadline_s)
            except _NOT_OURS:
                # Another member has it. What was not stored will be delivered there.
                self._forget(holding)
        if holding.is_leaving and self._is_idle(holding):
            self._forget(holding)

    def _forget(self, holding: Holding) -> None:
        if self.holdings.get(holding.partition_id) is holding:
            del self.holdings[holding.partition_id]
