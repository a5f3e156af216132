"""Dead letters as the command line sees them: read, recognised, and made ready to be sent back.

A letter is recognised by its `dlq.*` headers (`borzoi.client.dead_letters`). Sent back, it has its own
headers without those, and `dlq.replayed`, which says how often it was sent back; a consumer that puts it
aside again keeps that header, so a message that goes in circles is seen.

Nothing here talks to a server.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from borzoi.client.dead_letters import DeadLetter
from borzoi.client.received import ReceivedMessage
from borzoi.client.values import SendMessage
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.headers import HeaderField, HeaderKey, to_python

if TYPE_CHECKING:
    from borzoi.model.values import Identifier

PREFIX = "dlq."
REPLAYED = "dlq.replayed"
_ID_BYTES = 16
# Room for the rest of a line on a wide terminal.
_PREVIEW_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter where it lies."""

    message: ReceivedMessage
    content: DeadLetter

    @classmethod
    def of(cls, message: ReceivedMessage) -> "Letter | None":
        """None if it is none."""
        try:
            content = DeadLetter.of(message)
        except RemoteProtocolError:
            return None  # headers that nobody can read were not written by a consumer of ours
        return None if content is None else cls(message, content)

    @property
    def replayed_count(self) -> int:
        count = self.content.headers.get(REPLAYED, 0)
        return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0

    def has_cause(self, text: str) -> bool:
        """Whether the text is in the cause or in the name of the error, whatever its case."""
        wanted = text.casefold()
        return wanted in self.content.cause.casefold() or wanted in self.content.error.casefold()

    def returned(self, *, with_new_id: bool) -> SendMessage:
        """The message as it goes back. A new id is the same each time the same letter is sent."""
        headers: dict[HeaderKey, HeaderField] = {
            key: value for key, value in self.message.typed_headers.items() if not _is_ours(to_python(key))
        }
        headers[REPLAYED] = self.replayed_count + 1
        return SendMessage(self.message.payload, self._new_id() if with_new_id else self.message.id, headers)

    def _new_id(self) -> int:
        """Other than the message's, and known again: a repeat after a crash is no second message."""
        message = self.message
        text = f"{message.id}:{message.partition_id}:{message.offset}:{message.timestamp}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).digest(), "little")


@dataclass(slots=True)
class Progress:
    """How far letters of a partition were sent back without a gap; `offset` is the last of these.

    It never goes back, and does not jump over a letter that was left out.
    """

    first_offset: int
    offset: int | None

    @property
    def next_offset(self) -> int:
        return self.first_offset if self.offset is None else max(self.offset + 1, self.first_offset)

    def passed(self, offset: int) -> bool:
        """Note a letter that was sent back; whether there is something new to remember."""
        if offset != self.next_offset:
            return False
        self.offset = offset
        return True


@dataclass(frozen=True, slots=True)
class Destination:
    """Where letters go; None stands for where each came from."""

    stream: "Identifier | None" = None
    topic: "Identifier | None" = None

    def of(self, letter: Letter) -> "tuple[Identifier, Identifier]":
        content = letter.content
        return (
            content.stream if self.stream is None else self.stream,
            content.topic if self.topic is None else self.topic,
        )


def letter_fields(letter: Letter) -> dict[str, Any]:
    """What JSON says of a letter; `headers` are the message's own."""
    from borzoi.cli.message_lines import message_fields

    content = letter.content
    fields = message_fields(letter.message)
    headers = fields.pop("headers", {})
    return {
        **fields,
        "cause": content.cause,
        "error": content.error,
        "attempts": content.attempts,
        "replayed": letter.replayed_count,
        "origin": {
            "stream": content.stream,
            "topic": content.topic,
            "partition_id": content.partition_id,
            "offset": content.offset,
            "timestamp": content.timestamp,
        },
        "headers": {key: value for key, value in headers.items() if not _is_ours(key)},
    }


def preview(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    return text if len(text) <= _PREVIEW_CHARACTERS else f"{text[:_PREVIEW_CHARACTERS]}..."


def _is_ours(key: object) -> bool:
    return isinstance(key, str) and key.startswith(PREFIX)
