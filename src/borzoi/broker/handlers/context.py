"""What a handler is given besides the request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from borzoi.broker.broker import Broker
from borzoi.broker.catalog import Stream, Topic
from borzoi.broker.sessions import Session
from borzoi.model.access import Access


@dataclass(frozen=True, slots=True)
class Context:
    broker: Broker
    session: Session
    access: Access  # what the command table asks for
    now_us: int

    def require(self, stream: Stream | None = None, topic: Topic | None = None) -> None:
        """Raise Unauthorized unless the session may do this to the stream or topic."""
        self.broker.require(
            self.session,
            self.access,
            stream.id if stream is not None else None,
            topic.id if topic is not None else None,
        )

    def require_topic(self, topic: Topic) -> None:
        self.require(topic.stream, topic)


# Each takes the request class it is registered for.
Handler = Callable[[Context, Any], Any]
