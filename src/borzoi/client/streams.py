"""Commands for streams."""

from borzoi.client.call import Call, or_none
from borzoi.client.details import StreamDetails, stream_details
from borzoi.client.values import identifier
from borzoi.model import requests as rq
from borzoi.model.replies import StreamInfo
from borzoi.model.values import Identifier


def create_stream(name: str, *, deadline_s: float | None = None) -> Call[StreamDetails]:
    """Create a stream; `StreamNameAlreadyExists` if there is one of that name."""
    return Call(rq.CreateStream(name), deadline_s, stream_details)


def get_stream(stream: Identifier, *, deadline_s: float | None = None) -> Call[StreamDetails | None]:
    """The stream and its topics, or None."""
    return Call(rq.GetStream(identifier(stream)), deadline_s, or_none(stream_details))


def get_streams(*, deadline_s: float | None = None) -> Call[tuple[StreamInfo, ...]]:
    return Call(rq.GetStreams(), deadline_s)


def update_stream(stream: Identifier, name: str, *, deadline_s: float | None = None) -> Call[None]:
    """Rename a stream."""
    return Call(rq.UpdateStream(identifier(stream), name), deadline_s)


def delete_stream(stream: Identifier, *, deadline_s: float | None = None) -> Call[None]:
    """Delete a stream with everything in it."""
    return Call(rq.DeleteStream(identifier(stream)), deadline_s)


def purge_stream(stream: Identifier, *, deadline_s: float | None = None) -> Call[None]:
    """Delete the messages of all topics of a stream; offsets start at 0 again."""
    return Call(rq.PurgeStream(identifier(stream)), deadline_s)
