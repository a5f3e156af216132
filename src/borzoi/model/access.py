"""The rights that commands ask for, one member per rule.

The command table names the right of every command; which flags of a user's permissions grant it is decided in
`borzoi.broker.access`.
"""

from enum import Enum, auto


class Access(Enum):
    PUBLIC = auto()  # no login needed: ping, login
    AUTHENTICATED = auto()  # any logged-in user, whatever the permissions

    READ_SERVERS = auto()  # stats, clients, snapshot
    READ_USERS = auto()
    MANAGE_USERS = auto()

    LIST_STREAMS = auto()
    READ_STREAM = auto()
    CREATE_STREAM = auto()
    MANAGE_STREAM = auto()  # update, delete, purge

    LIST_TOPICS = auto()
    READ_TOPIC = auto()  # also every consumer-group command
    CREATE_TOPIC = auto()
    MANAGE_TOPIC = auto()  # update, delete, purge; its partitions and segments

    POLL = auto()  # also consumer offsets: get, store, delete
    SEND = auto()  # also flush
