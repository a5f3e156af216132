"""Bodies of the stream commands.

    create       name8 name, options
    update       identifier stream, name8 name, options
    get, delete, purge   identifier stream
    list         -

    StreamInfo     u32 id, u64 created_at_us, u32 topics_count, u64 size_bytes, u64 messages_count,
                   name8 name, u32 length + options
    StreamDetails  StreamInfo, TopicInfo * topics_count

Create answers StreamDetails, get StreamDetails or an empty body, list StreamInfo to the end of the body,
the others nothing.
"""

from borzoi.model.replies import StreamDetails, StreamInfo
from borzoi.model.requests import CreateStream, DeleteStream, GetStream, GetStreams, PurgeStream, UpdateStream
from borzoi.wire.commands import Code
from borzoi.wire.fields import IDENTIFIER, NAME8, U32, U64
from borzoi.wire.records import NOT_SENT, NOTHING, Details, Layout, Many, OrNothing, Record
from borzoi.wire.vsr.options import OPTIONS, OPTIONS32
from borzoi.wire.vsr.topics import TOPIC_INFO

STREAM_INFO = Record(
    StreamInfo,
    id=U32,
    created_at_us=U64,
    topics_count=U32,
    size_bytes=U64,
    messages_count=U64,
    name=NAME8,
    options=OPTIONS32,
)
STREAM_DETAILS = Details(StreamDetails, "topics_count", stream=STREAM_INFO, topics=TOPIC_INFO)

LAYOUTS = {
    Code.GET_STREAM: Layout(Record(GetStream, stream=IDENTIFIER), OrNothing(STREAM_DETAILS)),
    Code.GET_STREAMS: Layout(Record(GetStreams), Many(STREAM_INFO)),
    Code.CREATE_STREAM: Layout(
        Record(CreateStream, name=NAME8, options=OPTIONS, wanted_id=NOT_SENT), STREAM_DETAILS
    ),
    Code.DELETE_STREAM: Layout(Record(DeleteStream, stream=IDENTIFIER), NOTHING),
    Code.UPDATE_STREAM: Layout(Record(UpdateStream, stream=IDENTIFIER, name=NAME8, options=OPTIONS), NOTHING),
    Code.PURGE_STREAM: Layout(Record(PurgeStream, stream=IDENTIFIER), NOTHING),
}
