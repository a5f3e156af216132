"""Bodies of the consumer-group commands.

    create                    identifier stream, identifier topic, [u32 wanted id: A and B,] name8 name
    list                      identifier stream, identifier topic
    get, delete, join, leave  identifier stream, identifier topic, identifier group

    GroupInfo     u32 id, u32 partitions_count, u32 members_count, name8 name
    GroupMember   u32 id, u32 count, u32 partition_id * count
    GroupDetails  GroupInfo, GroupMember * members_count

Create answers GroupDetails, get GroupDetails or an empty body, list GroupInfo to the end of the body, the
others nothing.
"""

from borzoi.model.replies import GroupDetails, GroupInfo, GroupMember
from borzoi.model.requests import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetConsumerGroups,
    JoinConsumerGroup,
    LeaveConsumerGroup,
)
from borzoi.wire.classic.ids import Ids
from borzoi.wire.commands import Code
from borzoi.wire.fields import NAME8, U32
from borzoi.wire.records import NOTHING, Counted, Details, Layout, Many, OrNothing, Record


def layouts(ids: Ids) -> dict[Code, Layout]:
    topic = {"stream": ids.identifier, "topic": ids.identifier}
    group = {**topic, "group": ids.identifier}
    info = Record(GroupInfo, id=ids.number, partitions_count=U32, members_count=U32, name=NAME8)
    member = Record(GroupMember, id=ids.number, partitions=Counted(ids.number))
    details = Details(GroupDetails, "members_count", group=info, members=member)
    return {
        Code.GET_CONSUMER_GROUP: Layout(Record(GetConsumerGroup, **group), OrNothing(details)),
        Code.GET_CONSUMER_GROUPS: Layout(Record(GetConsumerGroups, **topic), Many(info)),
        Code.CREATE_CONSUMER_GROUP: Layout(
            Record(CreateConsumerGroup, **topic, wanted_id=ids.wanted, name=NAME8), details
        ),
        Code.DELETE_CONSUMER_GROUP: Layout(Record(DeleteConsumerGroup, **group), NOTHING),
        Code.JOIN_CONSUMER_GROUP: Layout(Record(JoinConsumerGroup, **group), NOTHING),
        Code.LEAVE_CONSUMER_GROUP: Layout(Record(LeaveConsumerGroup, **group), NOTHING),
    }
