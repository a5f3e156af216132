"""The settings this version acts on, one frozen class per section, nested into `Config`.

The attribute carries the unit (`interval_us`, `size_bytes`) although the key in TOML does not (`interval`,
`size`). U64_MAX stands for "never" and "unlimited", so that comparisons need no special case. Keys that are
accepted without effect are in `later`; rules that span several keys are in `checks`.
"""

# ruff: noqa: RUF009 - key() and section() return dataclass fields, not values

from dataclasses import dataclass
from pathlib import Path

from borzoi.model.limits import (
    FRAME_BYTES_CEILING,
    MESSAGES_REQUIRED_TO_SAVE_MAX,
    PASSWORD_BYTES_MAX,
    PASSWORD_BYTES_MIN,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_BYTES_MULTIPLE,
    TOKENS_PER_USER_MAX,
    USERNAME_BYTES_MAX,
    USERNAME_BYTES_MIN,
)
from borzoi.server.config.kinds import (
    Address,
    Boolean,
    ByteSize,
    Choice,
    Duration,
    Expiry,
    FilePath,
    Integer,
    Kind,
    MaxTopicSize,
    SizedText,
)
from borzoi.server.config.schema import key, section

_FLAG = Boolean()
_DURATION = Duration()
_TIMEOUT = Duration(minimum_us=1000)


@dataclass(frozen=True, slots=True)
class TcpTls:
    """TLS of the TCP listener."""

    enabled: bool = key("enabled", _FLAG, False, "Encrypt TCP connections.")
    self_signed: bool = key(
        "self_signed", _FLAG, True, "Make a certificate at start when `cert_file` does not exist."
    )
    cert_file: str = key("cert_file", Kind(), "", "Certificate chain in PEM form.")
    key_file: str = key("key_file", Kind(), "", "Private key in PEM form.")


@dataclass(frozen=True, slots=True)
class Tcp:
    """The TCP listener, for clients of every wire generation."""

    enabled: bool = key("enabled", _FLAG, True, "Listen for TCP clients.")
    address: str = key(
        "address", Address(), "127.0.0.1:8090", "Where to listen. Port 0 picks a free port and logs it."
    )
    nodelay: bool = key("nodelay", _FLAG, True, "Send replies at once instead of gathering small ones.")
    tls: TcpTls = section(TcpTls)


@dataclass(frozen=True, slots=True)
class MessageSaver:
    """The background task that brings written messages to the device."""

    enabled: bool = key("enabled", _FLAG, True, "Run the background saver.")
    enforce_fsync: bool = key(
        "enforce_fsync", _FLAG, True, "Force messages to the device at each interval, not only to the system."
    )
    interval_us: int = key("interval", _DURATION, "30s", "Time between two runs of the saver.")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Eviction of silent clients."""

    enabled: bool = key("enabled", _FLAG, True, "Evict clients that have been silent too long.")
    interval_us: int = key(
        "interval", _DURATION, "30s", "How often a client must be heard; it is evicted after 1.2 intervals."
    )


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """Rebalancing of consumer groups."""

    rebalancing_timeout_us: int = key(
        "rebalancing_timeout", _TIMEOUT, "30s", "A member that has not given up a partition by then loses it."
    )
    rebalancing_check_interval_us: int = key(
        "rebalancing_check_interval", _TIMEOUT, "5s", "How often that is looked at."
    )


@dataclass(frozen=True, slots=True)
class TokenCleaner:
    """Removal of expired personal access tokens."""

    enabled: bool = key("enabled", _FLAG, True, "Remove expired tokens.")
    interval_us: int = key("interval", _DURATION, "1m", "Time between two removals.")


@dataclass(frozen=True, slots=True)
class PersonalAccessToken:
    """Personal access tokens."""

    max_tokens_per_user: int = key(
        "max_tokens_per_user", Integer(1, TOKENS_PER_USER_MAX), 100, "How many tokens a user may hold."
    )
    cleaner: TokenCleaner = section(TokenCleaner)


@dataclass(frozen=True, slots=True)
class MessagesMaintenance:
    """Retention."""

    cleaner_enabled: bool = key(
        "cleaner_enabled", _FLAG, True, "Delete segments that have expired or exceed their topic's size."
    )
    interval_us: int = key("interval", _DURATION, "1m", "Time between two runs of the cleaner.")


@dataclass(frozen=True, slots=True)
class DataMaintenance:
    """Background work on stored data."""

    messages: MessagesMaintenance = section(MessagesMaintenance)


@dataclass(frozen=True, slots=True)
class State:
    """The log of metadata: streams, topics, groups, users, tokens."""

    enforce_fsync: bool = key(
        "enforce_fsync", _FLAG, True, "Force each metadata change to the device before it is acknowledged."
    )


@dataclass(frozen=True, slots=True)
class Logging:
    """What the server says about itself."""

    level: str = key(
        "level",
        Choice("trace", "debug", "info", "warn", "error", "off", "none"),
        "info",
        "The least important level that is logged.",
    )


@dataclass(frozen=True, slots=True)
class Topic:
    """What topics get that do not say otherwise."""

    max_size_bytes: int = key(
        "max_size", MaxTopicSize(), "unlimited", "Default size limit of a topic; at least one segment."
    )
    message_expiry_us: int = key(
        "message_expiry", Expiry(), "none", "Default age at which a topic's messages expire."
    )
    delete_oldest_segments: bool = key(
        "delete_oldest_segments", _FLAG, True, "Make room in a full topic by deleting its oldest segments."
    )


@dataclass(frozen=True, slots=True)
class Partition:
    """When the messages of a partition are forced to the device, and how they are checked."""

    enforce_fsync: bool = key(
        "enforce_fsync", _FLAG, False, "Acknowledge messages only once they are on the device."
    )
    messages_required_to_save: int = key(
        "messages_required_to_save",
        Integer(1, MESSAGES_REQUIRED_TO_SAVE_MAX),
        1024,
        "So many unsaved messages are saved without waiting for the saver.",
    )
    size_of_messages_required_to_save_bytes: int = key(
        "size_of_messages_required_to_save",
        ByteSize(1, SEGMENT_BYTES_MAX),
        "1 MiB",
        "So many unsaved bytes are saved without waiting for the saver.",
    )
    validate_checksum: bool = key(
        "validate_checksum", _FLAG, True, "Verify the checksums of stored batches when they are loaded."
    )
    verify_message_checksums: bool = key(
        "verify_message_checksums", _FLAG, False, "Verify each message's own checksum when it is received."
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """Segment files."""

    size_bytes: int = key(
        "size",
        ByteSize(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MULTIPLE),
        "1 GiB",
        "A segment that has reached this size is sealed; its last batch stays whole.",
    )
    max_age_us: int = key(
        "max_age", Expiry(), "none", "A segment whose first message is this old is sealed whatever its size."
    )


@dataclass(frozen=True, slots=True)
class MessageDeduplication:
    """Dropping of messages whose id a partition has seen before."""

    enabled: bool = key("enabled", _FLAG, False, "Drop messages with an id that was seen lately.")
    max_entries: int = key("max_entries", Integer(1), 10000, "How many ids a partition remembers.")
    expiry_us: int = key("expiry", _DURATION, "1m", "How long a partition remembers an id.")


@dataclass(frozen=True, slots=True)
class Staging:
    """Batches that wait for their epoch to be committed, and the producers that commit epochs."""

    max_size_bytes: int = key(
        "max_size", ByteSize(1), "8 GiB", "How much may be staged at once, for all topics together."
    )
    free_space_bytes: int = key(
        "free_space",
        ByteSize(),
        "256 MiB",
        "Batches are staged only while the disk has so much free on top of what committing them takes.",
    )
    expiry_us: int = key(
        "expiry", _TIMEOUT, "1 day", "An epoch for which nothing was staged for so long is dropped."
    )
    max_producers: int = key(
        "max_producers", Integer(1), 1000, "How many producers a topic remembers the last epoch of."
    )
    producer_expiry_us: int = key(
        "producer_expiry",
        _TIMEOUT,
        "30 days",
        "A producer that has committed nothing for so long may be forgotten to make room for another.",
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """What start-up does about missing metadata."""

    recreate_missing_state: bool = key(
        "recreate_missing_state", _FLAG, False, "Rebuild missing metadata from the segment files."
    )


@dataclass(frozen=True, slots=True)
class System:
    """Storage and its defaults."""

    path: Path = key("path", FilePath(), "local_data", "Where all data is kept.")
    allow_default_password: bool = key(
        "allow_default_password",
        _FLAG,
        False,
        "Listen on addresses other machines can reach although root has the default password.",
    )
    state: State = section(State)
    logging: Logging = section(Logging)
    topic: Topic = section(Topic)
    partition: Partition = section(Partition)
    segment: Segment = section(Segment)
    message_deduplication: MessageDeduplication = section(MessageDeduplication)
    staging: Staging = section(Staging)
    recovery: Recovery = section(Recovery)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process spends on its clients."""

    max_frame_bytes: int = key(
        "max_frame_size", ByteSize(64 << 10, FRAME_BYTES_CEILING), "64 MiB", "The largest request."
    )
    max_connections: int = key("max_connections", Integer(1), 10000, "How many connections may be open.")
    max_buffered_bytes: int = key(
        "max_buffered_bytes", ByteSize(1), "1 GiB", "What the requests of all connections may hold in memory."
    )
    frame_timeout_us: int = key(
        "frame_timeout", _TIMEOUT, "30s", "A request that has begun is whole by then."
    )
    login_timeout_us: int = key(
        "login_timeout", _TIMEOUT, "1m", "A connection that is silent so long before it logs in is closed."
    )
    max_open_files: int = key(
        "max_open_files", Integer(), 0, "Files kept open; 0 derives it from the process's limit."
    )


@dataclass(frozen=True, slots=True)
class Root:
    """The credentials root gets when the data directory is new."""

    username: str = key(
        "username",
        SizedText(USERNAME_BYTES_MIN, USERNAME_BYTES_MAX),
        "iggy",
        "Name of the first user.",
        environment_only=True,
    )
    password: str = key(
        "password",
        SizedText(PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX),
        "iggy",
        "Password of the first user.",
        secret=True,
        environment_only=True,
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the server was told."""

    tcp: Tcp = section(Tcp)
    system: System = section(System)
    message_saver: MessageSaver = section(MessageSaver)
    data_maintenance: DataMaintenance = section(DataMaintenance)
    consumer_group: ConsumerGroup = section(ConsumerGroup)
    heartbeat: Heartbeat = section(Heartbeat)
    personal_access_token: PersonalAccessToken = section(PersonalAccessToken)
    limits: Limits = section(Limits)
    root: Root = section(Root)
