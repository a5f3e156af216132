"""One handler per command, in one module per domain; `HANDLERS` finds it by the request's class.

A handler resolves what the request names, checks the right that the command table asks for, and answers
a reply, None, or something `Pending`. Errors are raised. Nothing here waits or looks at a clock.
"""

from collections.abc import Mapping
from types import MappingProxyType

from borzoi.broker.broker import Broker
from borzoi.broker.handlers import (
    data,
    extents,
    groups,
    streams,
    system,
    tokens,
    topics,
    transactions,
    users,
)
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.pending import AfterSync, Pending

HANDLERS: Mapping[type, Handler] = MappingProxyType(
    system.HANDLERS
    | users.HANDLERS
    | tokens.HANDLERS
    | streams.HANDLERS
    | topics.HANDLERS
    | groups.HANDLERS
    | data.HANDLERS
    | extents.HANDLERS
    | transactions.HANDLERS
)


def handle(context: Context, request: object) -> object:
    """Run a request; answers a reply, None or something pending."""
    return durable(context.broker, HANDLERS[type(request)](context, request))


def durable(broker: Broker, reply: object) -> object:
    """Let a reply wait for the metadata it is about, if that was changed and has to be on the device."""
    metadata = broker.metadata
    if isinstance(reply, Pending) or not metadata.is_dirty:
        return reply
    metadata.is_dirty = False
    return AfterSync(reply, [metadata.journal.sync_job()]) if broker.settings.metadata_fsync else reply


__all__ = ["HANDLERS", "Context", "Handler", "durable", "handle"]
