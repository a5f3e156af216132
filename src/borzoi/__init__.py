"""Borzoi: a persistent message streaming platform that speaks Apache Iggy's wire protocols.

The client's names can be imported from here; they are loaded when first used, so that the server and the
command line do not pay for them.
"""

# What type checkers take for true; importing `typing` for it would cost more than the rest of this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from borzoi.client import codecs
    from borzoi.client.aio import AsyncClient
    from borzoi.client.blocking_consumer import Consumer
    from borzoi.client.blocking_producer import Producer
    from borzoi.client.cipher import Cipher
    from borzoi.client.codecs import Codec
    from borzoi.client.consumer import AsyncConsumer
    from borzoi.client.dead_letters import DeadLetter
    from borzoi.client.details import (
        ClientDetails,
        ConsumerGroupDetails,
        StreamDetails,
        TopicDetails,
        UserDetails,
    )
    from borzoi.client.holdings import OffsetGap
    from borzoi.client.payloads import Message, UndecodablePayload, UnencodableValue
    from borzoi.client.producer import AsyncProducer, SendFailed
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.retry import RetryPolicy
    from borzoi.client.sync import Client
    from borzoi.client.values import (
        ConnectionState,
        Partitioning,
        PollingStrategy,
        SendMessage,
    )
    from borzoi.model.errors import BorzoiError
    from borzoi.model.permissions import GlobalPermissions, Permissions, StreamPermissions, TopicPermissions
    from borzoi.model.requests import ByteCut, StagedPart
    from borzoi.model.values import Compression, HeaderKind, TypedValue, UserStatus
    from borzoi.wire.batch import BatchHeader

__version__ = "0.1.0"

_MODULES = {
    "AsyncClient": "borzoi.client.aio",
    "AsyncConsumer": "borzoi.client.consumer",
    "AsyncProducer": "borzoi.client.producer",
    "BatchHeader": "borzoi.wire.batch",
    "BorzoiError": "borzoi.model.errors",
    "ByteCut": "borzoi.model.requests",
    "Cipher": "borzoi.client.cipher",
    "Client": "borzoi.client.sync",
    "ClientDetails": "borzoi.client.details",
    "Codec": "borzoi.client.codecs",
    "Compression": "borzoi.model.values",
    "ConnectionState": "borzoi.client.values",
    "Consumer": "borzoi.client.blocking_consumer",
    "ConsumerGroupDetails": "borzoi.client.details",
    "DeadLetter": "borzoi.client.dead_letters",
    "GlobalPermissions": "borzoi.model.permissions",
    "HeaderKind": "borzoi.model.values",
    "Message": "borzoi.client.payloads",
    "OffsetGap": "borzoi.client.holdings",
    "Partitioning": "borzoi.client.values",
    "Permissions": "borzoi.model.permissions",
    "PollingStrategy": "borzoi.client.values",
    "Producer": "borzoi.client.blocking_producer",
    "ReceivedMessage": "borzoi.client.received",
    "RetryPolicy": "borzoi.client.retry",
    "SendFailed": "borzoi.client.producer",
    "SendMessage": "borzoi.client.values",
    "StagedPart": "borzoi.model.requests",
    "StreamDetails": "borzoi.client.details",
    "StreamPermissions": "borzoi.model.permissions",
    "TopicDetails": "borzoi.client.details",
    "TopicPermissions": "borzoi.model.permissions",
    "TypedValue": "borzoi.model.values",
    "UndecodablePayload": "borzoi.client.payloads",
    "UnencodableValue": "borzoi.client.payloads",
    "UserDetails": "borzoi.client.details",
    "UserStatus": "borzoi.model.values",
    "codecs": "borzoi.client.codecs",
}

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchHeader",
    "BorzoiError",
    "ByteCut",
    "Cipher",
    "Client",
    "ClientDetails",
    "Codec",
    "Compression",
    "ConnectionState",
    "Consumer",
    "ConsumerGroupDetails",
    "DeadLetter",
    "GlobalPermissions",
    "HeaderKind",
    "Message",
    "OffsetGap",
    "Partitioning",
    "Permissions",
    "PollingStrategy",
    "Producer",
    "ReceivedMessage",
    "RetryPolicy",
    "SendFailed",
    "SendMessage",
    "StagedPart",
    "StreamDetails",
    "StreamPermissions",
    "TopicDetails",
    "TopicPermissions",
    "TypedValue",
    "UndecodablePayload",
    "UnencodableValue",
    "UserDetails",
    "UserStatus",
    "__version__",
    "codecs",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only users of the client pay for it

    loaded = import_module(module)
    value: object = loaded if module.endswith(f".{name}") else getattr(loaded, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
