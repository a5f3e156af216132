"""The wire generations served on one port, recognised by the first bytes of a connection."""

from collections.abc import Callable
from dataclasses import dataclass

from borzoi.broker.broker import Broker
from borzoi.broker.sessions import Client
from borzoi.model.errors import RemoteProtocolError
from borzoi.server.conversation import Conversation
from borzoi.server.vsr import VsrConversation
from borzoi.wire.vsr.frames import PREAMBLE as VSR_PREAMBLE

PREAMBLE_BYTES = 4


@dataclass(frozen=True, slots=True)
class ServedGeneration:
    name: str
    is_spoken: Callable[[bytes], bool]
    converse: Callable[[Broker, Client, int], Conversation]


GENERATIONS = (ServedGeneration("vsr", lambda preamble: preamble == VSR_PREAMBLE, VsrConversation),)


def recognise(preamble: bytes, broker: Broker, client: Client, frame_bytes_max: int) -> Conversation:
    """The conversation to have with a client that starts with these bytes."""
    for generation in GENERATIONS:
        if generation.is_spoken(preamble):
            return generation.converse(broker, client, frame_bytes_max)
    raise RemoteProtocolError(f"no known protocol starts with {preamble.hex()}")
