"""Messages that could not be handled, as they are stored in a dead-letter topic.

A dead letter has the payload, the id and the user headers of the message, and these headers besides. The
payload is the stored one: if it was encrypted, it is so here.

    dlq.cause       str    the last error's text, cut to what a header holds
    dlq.error       str    the last error's type
    dlq.stream      str, int     where the message came from, as the consumer named it
    dlq.topic       str, int
    dlq.partition   int
    dlq.offset      int
    dlq.timestamp   int    when it was stored there, microseconds since 1970
    dlq.attempts    int    how often a handler was tried; 0 if the payload could not be decoded

The message's own headers are left out if they cannot be read or leave no room for these.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from borzoi.client.aio import AsyncClient
from borzoi.client.ownership import persist
from borzoi.client.received import ReceivedMessage
from borzoi.client.values import Partitioning, SendMessage
from borzoi.model.errors import RemoteProtocolError, TooBigUserHeaders, TopicNameAlreadyExists
from borzoi.model.headers import HeaderField, HeaderKey, HeaderObject, encode_user_headers
from borzoi.model.limits import HEADER_FIELD_BYTES_MAX
from borzoi.model.values import Identifier

_PREFIX = "dlq."
_logger = logging.getLogger("borzoi.client")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message of a dead-letter topic, taken apart. `headers` are the message's own."""

    payload: bytes
    id: int
    headers: Mapping[HeaderObject, HeaderObject]
    cause: str
    error: str
    stream: Identifier
    topic: Identifier
    partition_id: int
    offset: int
    timestamp: int
    attempts: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> "DeadLetter | None":
        """None if the message is none."""
        headers = message.headers
        own = {name: headers.pop(_PREFIX + name, None) for name in _KINDS}
        if not all(isinstance(own[name], kind) for name, kind in _KINDS.items()):
            return None
        return cls(message.payload, message.id, headers, *own.values())  # type: ignore[arg-type] # just checked


_KINDS: dict[str, type | tuple[type, ...]] = {
    "cause": str,
    "error": str,
    "stream": (str, int),
    "topic": (str, int),
    "partition": int,
    "offset": int,
    "timestamp": int,
    "attempts": int,
}


def dead_letter(
    message: ReceivedMessage, stream: Identifier, topic: Identifier, error: BaseException, attempts: int
) -> SendMessage:
    """What goes to the dead-letter topic for a message that failed."""
    own: dict[HeaderKey, HeaderField] = {
        _PREFIX + "cause": _cut(str(error) or repr(error)),
        _PREFIX + "error": _cut(type(error).__name__),
        _PREFIX + "stream": stream,
        _PREFIX + "topic": topic,
        _PREFIX + "partition": message.partition_id,
        _PREFIX + "offset": message.offset,
        _PREFIX + "timestamp": message.timestamp,
        _PREFIX + "attempts": attempts,
    }
    try:
        headers: dict[HeaderKey, HeaderField] = dict(message.typed_headers.items())
        headers.update(own)
        encode_user_headers(headers)
    except (RemoteProtocolError, TooBigUserHeaders):
        headers = own
    return SendMessage(message.payload, message.id, headers)


class DeadLetterTopic:
    """Where messages of one topic go that could not be handled."""

    def __init__(self, client: AsyncClient, stream: Identifier, topic: str, deadline_s: float) -> None:
        self._client = client
        self._stream = stream
        self._topic = topic
        self._deadline_s = deadline_s

    async def make(self) -> None:
        """With one partition, if it is missing."""
        if await self._client.get_topic(self._stream, self._topic, deadline_s=self._deadline_s) is None:
            # Another consumer may have made it meanwhile.
            with suppress(TopicNameAlreadyExists):
                await self._client.create_topic(self._stream, self._topic, 1, deadline_s=self._deadline_s)

    async def put(
        self,
        message: ReceivedMessage,
        stream: Identifier,
        topic: Identifier,
        error: BaseException,
        attempts: int,
    ) -> None:
        """Return when the letter is stored."""
        letter = dead_letter(message, stream, topic, error, attempts)
        _logger.warning(
            "message %s of partition %s goes to %s after %s attempts: %r",
            *(message.offset, message.partition_id, self._topic, attempts, error),
        )
        # The same letter always goes to the same partition, where a server that drops duplicates knows it.
        where = Partitioning.key(f"{message.partition_id}:{message.offset}")
        await persist(
            lambda left_s: self._client.send_messages(
                self._stream, self._topic, where, [letter], deadline_s=left_s
            ),
            self._deadline_s,
        )


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:HEADER_FIELD_BYTES_MAX].decode(errors="ignore")
