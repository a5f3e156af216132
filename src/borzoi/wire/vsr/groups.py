"""Bodies of the consumer-group commands.

    create                          identifier stream, identifier topic, name8 name
    list                            identifier stream, identifier topic
    get, delete, join, leave, sync  identifier stream, identifier topic, identifier group

    GroupInfo        u32 id, u32 partitions_count, u32 members_count, name8 name
    GroupMember      u32 id, u32 count, u32 partition_id * count
    GroupDetails     GroupInfo, GroupMember * members_count
    GroupAssignment  u64 generation, u32 count, u32 partition_id * count

Create answers GroupDetails, get GroupDetails or an empty body, list GroupInfo to the end of the body, sync
GroupAssignment or, to a client that is no member, an empty body. The others answer nothing.
"""

from borzoi.model.replies import GroupAssignment, GroupDetails, GroupInfo, GroupMember
from borzoi.model.requests import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetConsumerGroups,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    SyncConsumerGroup,
)
from borzoi.wire.commands import Code
from borzoi.wire.fields import IDENTIFIER, NAME8, U32, U64
from borzoi.wire.records import NOT_SENT, NOTHING, Counted, Details, Layout, Many, OrNothing, Record

GROUP_INFO = Record(GroupInfo, id=U32, partitions_count=U32, members_count=U32, name=NAME8)
GROUP_MEMBER = Record(GroupMember, id=U32, partitions=Counted(U32))
GROUP_DETAILS = Details(GroupDetails, "members_count", group=GROUP_INFO, members=GROUP_MEMBER)
GROUP_ASSIGNMENT = Record(GroupAssignment, generation=U64, partitions=Counted(U32))

_TOPIC = {"stream": IDENTIFIER, "topic": IDENTIFIER}
_GROUP = {**_TOPIC, "group": IDENTIFIER}

LAYOUTS = {
    Code.GET_CONSUMER_GROUP: Layout(Record(GetConsumerGroup, **_GROUP), OrNothing(GROUP_DETAILS)),
    Code.GET_CONSUMER_GROUPS: Layout(Record(GetConsumerGroups, **_TOPIC), Many(GROUP_INFO)),
    Code.CREATE_CONSUMER_GROUP: Layout(
        Record(CreateConsumerGroup, **_TOPIC, name=NAME8, wanted_id=NOT_SENT), GROUP_DETAILS
    ),
    Code.DELETE_CONSUMER_GROUP: Layout(Record(DeleteConsumerGroup, **_GROUP), NOTHING),
    Code.JOIN_CONSUMER_GROUP: Layout(Record(JoinConsumerGroup, **_GROUP), NOTHING),
    Code.LEAVE_CONSUMER_GROUP: Layout(Record(LeaveConsumerGroup, **_GROUP), NOTHING),
    Code.SYNC_CONSUMER_GROUP: Layout(Record(SyncConsumerGroup, **_GROUP), OrNothing(GROUP_ASSIGNMENT)),
}
