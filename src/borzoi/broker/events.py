"""Every change of the metadata, as a fact. Replaying them in order gives the metadata back.

An event carries everything that was decided (ids, times, hashes), so applying it decides nothing. They
are stored as JSON with a `type` tag; a field that is added later needs a default, a field is never
renamed. The snapshot of the metadata is a list of events too.
"""

import msgspec

from borzoi.model.permissions import Permissions
from borzoi.model.values import Options, UserStatus


class Event(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    pass


class StreamCreated(Event, frozen=True):
    stream_id: int
    name: str
    at_us: int


class StreamRenamed(Event, frozen=True):
    stream_id: int
    name: str


class StreamDeleted(Event, frozen=True):
    stream_id: int


class TopicCreated(Event, frozen=True):
    stream_id: int
    topic_id: int
    name: str
    partitions: list[int]  # when each was created (us), by partition id
    options: Options
    at_us: int
    next_group_id: int = 0


class TopicUpdated(Event, frozen=True):
    stream_id: int
    topic_id: int
    name: str
    options: Options


class TopicDeleted(Event, frozen=True):
    stream_id: int
    topic_id: int


class PartitionsAdded(Event, frozen=True):
    stream_id: int
    topic_id: int
    count: int
    at_us: int


class PartitionsRemoved(Event, frozen=True):
    stream_id: int
    topic_id: int
    count: int


class GroupCreated(Event, frozen=True):
    stream_id: int
    topic_id: int
    group_id: int
    name: str


class GroupDeleted(Event, frozen=True):
    stream_id: int
    topic_id: int
    group_id: int


class EpochCommitted(Event, frozen=True):
    """The decision: from now on the epoch is committed, and what it consists of will be appended.

    `parts` are (task, attempt, batches) in order, `next_offsets` (partition id, offset) of every partition
    that gets something, and `boot_id` tells the run of the machine; all three are needed until the epoch is
    applied. `messages_count` is how many messages it has.
    """

    stream_id: int
    topic_id: int
    producer: str
    epoch: int
    at_us: int
    messages_count: int
    parts: list[tuple[int, int, int]] = []
    next_offsets: list[tuple[int, int]] = []
    boot_id: str = ""
    is_applied: bool = False


class EpochApplied(Event, frozen=True):
    """Every message of the producer's last epoch is in its log."""

    stream_id: int
    topic_id: int
    producer: str
    epoch: int


class ProducerForgotten(Event, frozen=True):
    stream_id: int
    topic_id: int
    producer: str


class UserCreated(Event, frozen=True):
    user_id: int
    username: str
    password_hash: str
    status: UserStatus
    permissions: Permissions | None
    at_us: int


class UserUpdated(Event, frozen=True):
    user_id: int
    username: str
    status: UserStatus


class UserDeleted(Event, frozen=True):
    user_id: int


class PasswordChanged(Event, frozen=True):
    user_id: int
    password_hash: str


class PermissionsChanged(Event, frozen=True):
    user_id: int
    permissions: Permissions | None


class TokenCreated(Event, frozen=True):
    user_id: int
    name: str
    token_hash: str
    expires_at_us: int  # 0 = never


class TokenDeleted(Event, frozen=True):
    user_id: int
    name: str


CatalogEvent = (
    StreamCreated
    | StreamRenamed
    | StreamDeleted
    | TopicCreated
    | TopicUpdated
    | TopicDeleted
    | PartitionsAdded
    | PartitionsRemoved
    | GroupCreated
    | GroupDeleted
    | EpochCommitted
    | EpochApplied
    | ProducerForgotten
)
UserEvent = (
    UserCreated
    | UserUpdated
    | UserDeleted
    | PasswordChanged
    | PermissionsChanged
    | TokenCreated
    | TokenDeleted
)
AnyEvent = CatalogEvent | UserEvent
