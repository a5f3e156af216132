"""The wire generations served on one port, recognised by the first bytes of a connection.

A generation's code is imported by its first client, or by `warm_up` once the server has started, so that
start-up does not wait for what most servers never need.
"""

from collections.abc import Callable
from dataclasses import dataclass

from borzoi.broker.broker import Broker
from borzoi.broker.sessions import Client
from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import FRAME_BYTES_UNAUTHENTICATED
from borzoi.server.conversation import Conversation
from borzoi.server.vsr import VsrConversation
from borzoi.wire.vsr.frames import PREAMBLE as VSR_PREAMBLE

PREAMBLE_BYTES = 4


@dataclass(frozen=True, slots=True)
class ServedGeneration:
    name: str
    is_spoken: Callable[[bytes], bool]
    converse: Callable[[Broker, Client, int], Conversation]


def _converse_classic(broker: Broker, client: Client, frame_bytes_max: int) -> Conversation:
    from borzoi.server.classic import ClassicConversation  # noqa: PLC0415 - see the module's docstring

    return ClassicConversation(broker, client, frame_bytes_max)


def warm_up() -> None:
    """Import what a first client would otherwise wait for."""
    import borzoi.server.classic  # noqa: F401, PLC0415


GENERATIONS = (
    ServedGeneration("vsr", lambda preamble: preamble == VSR_PREAMBLE, VsrConversation),
    # A classic frame starts with its length, which is never zero and, before a login, never large.
    ServedGeneration(
        "classic",
        lambda preamble: 0 < int.from_bytes(preamble, "little") <= FRAME_BYTES_UNAUTHENTICATED,
        _converse_classic,
    ),
)


def recognise(preamble: bytes, broker: Broker, client: Client, frame_bytes_max: int) -> Conversation:
    """The conversation to have with a client that starts with these bytes."""
    for generation in GENERATIONS:
        if generation.is_spoken(preamble):
            return generation.converse(broker, client, frame_bytes_max)
    raise RemoteProtocolError(f"no known protocol starts with {preamble.hex()}")
