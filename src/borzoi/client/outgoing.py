"""Messages on their way into a producer's buffer: made of values, checked, given an id; and encrypted later.

What no server would take is refused here, before it is buffered. Nothing here waits or knows a connection,
and threads may share it.
"""

import asyncio
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from borzoi.client.cipher import OVERHEAD_BYTES, Cipher
from borzoi.client.codecs import Codec
from borzoi.client.payloads import payload_of
from borzoi.client.values import SendMessage, new_messages, partitioning_of
from borzoi.model import values
from borzoi.model.errors import TooBigMessagePayload
from borzoi.model.headers import HeaderField, HeaderKey
from borzoi.model.limits import PAYLOAD_BYTES_MAX
from borzoi.model.replies import Confirmation
from borzoi.wire.batch import FRAME_HEADER_BYTES

if TYPE_CHECKING:
    # Type checkers bring this with them, whether it is installed or not.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes | str)
else:
    from typing import TypeVar

    T = TypeVar("T")

ID_BYTES = 16
Headers = Mapping[HeaderKey, HeaderField]

_IDS = 1 << 8 * ID_BYTES


@dataclass(slots=True)
class Entry:
    """A message that has been checked. Number and deadline are given when it is buffered."""

    message: SendMessage
    size_bytes: int
    lane: values.Partitioning
    waiter: asyncio.Future[Confirmation | None] | None = None
    number: int = -1
    give_up_s: float = 0.0


class Outgoing(Generic[T]):
    def __init__(
        self, codec: Codec[T] | None, cipher: Cipher | None, partitioning: values.Partitioning | int
    ) -> None:
        self._codec = codec
        self._cipher = cipher
        self._partitioning = partitioning_of(partitioning)
        self._ids = itertools.count(int.from_bytes(os.urandom(ID_BYTES), "little"))

    def check(
        self,
        message: T | SendMessage,
        partitioning: values.Partitioning | int | None,
        message_id: int | None,
        headers: Headers | None,
    ) -> Entry:
        """Check a message before it is buffered."""
        lane = self._partitioning if partitioning is None else partitioning_of(partitioning)
        if not isinstance(message, SendMessage):
            taken = SendMessage(payload_of(message, self._codec), message_id, headers)
        elif message_id is None and headers is None:
            taken = message
        else:
            raise ValueError("a SendMessage has its own id and headers")
        if taken.id is None:
            taken = SendMessage(taken.payload, next(self._ids) % _IDS, taken.headers)
        (checked,) = new_messages([taken])
        payload_bytes = len(checked.payload)
        if self._cipher is not None:
            payload_bytes += OVERHEAD_BYTES
            if payload_bytes > PAYLOAD_BYTES_MAX:
                raise TooBigMessagePayload(
                    f"{payload_bytes} bytes encrypted, {PAYLOAD_BYTES_MAX} are allowed"
                )
        return Entry(taken, FRAME_HEADER_BYTES + payload_bytes + len(checked.user_headers), lane)

    def sealed(self, message: SendMessage) -> SendMessage:
        if self._cipher is None:
            return message
        payload = message.payload.encode() if isinstance(message.payload, str) else message.payload
        return SendMessage(self._cipher.encrypt(payload), message.id, message.headers)
