"""Bodies of the stream commands.

    create       [u32 wanted id: A and B,] name8 name
    update       identifier stream, name8 name
    get, delete, purge   identifier stream
    list         -

    StreamInfo     u32 id, u64 created_at_us, u32 topics_count, u64 size_bytes, u64 messages_count, name8 name
    StreamDetails  StreamInfo, TopicInfo * topics_count

Create answers StreamDetails, get StreamDetails or an empty body, list StreamInfo to the end of the body,
the others nothing. Streams have no options here; those of a reply are left out.
"""

from borzoi.model.replies import StreamDetails, StreamInfo
from borzoi.model.requests import CreateStream, DeleteStream, GetStream, GetStreams, PurgeStream, UpdateStream
from borzoi.model.values import Options
from borzoi.wire.classic.ids import Ids
from borzoi.wire.classic.topics import topic_info
from borzoi.wire.commands import Code
from borzoi.wire.fields import NAME8, U32, U64
from borzoi.wire.records import NOTHING, Details, Implied, Layout, Many, OrNothing, Record


def layouts(ids: Ids) -> dict[Code, Layout]:
    stream = {"stream": ids.identifier}
    no_options = Implied[Options](dict)
    info = Record(
        StreamInfo,
        id=ids.number,
        created_at_us=U64,
        topics_count=U32,
        size_bytes=U64,
        messages_count=U64,
        name=NAME8,
        options=Implied(dict, may_be_lost=True),
    )
    details = Details(StreamDetails, "topics_count", stream=info, topics=topic_info(ids))
    return {
        Code.GET_STREAM: Layout(Record(GetStream, **stream), OrNothing(details)),
        Code.GET_STREAMS: Layout(Record(GetStreams), Many(info)),
        Code.CREATE_STREAM: Layout(
            Record(CreateStream, wanted_id=ids.wanted, name=NAME8, options=no_options), details
        ),
        Code.DELETE_STREAM: Layout(Record(DeleteStream, **stream), NOTHING),
        Code.UPDATE_STREAM: Layout(Record(UpdateStream, **stream, name=NAME8, options=no_options), NOTHING),
        Code.PURGE_STREAM: Layout(Record(PurgeStream, **stream), NOTHING),
    }
