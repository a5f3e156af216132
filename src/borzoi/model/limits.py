"""Every limit the platform enforces, in one place.

Sizes are bytes, counts are plain numbers. Tests check each limit at the limit and one past it.
"""

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

NAME_BYTES_MAX = 255
USERNAME_BYTES_MIN, USERNAME_BYTES_MAX = 3, 50
PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX = 3, 100
TOKEN_NAME_BYTES_MIN, TOKEN_NAME_BYTES_MAX = 3, 30
TOKEN_BYTES_MAX = 100
TOKENS_PER_USER_MAX = 100
PARTITIONING_KEY_BYTES_MAX = 255

PARTITIONS_PER_REQUEST_MAX = 1000
STREAMS_MAX = 1 << 20
TOPICS_PER_STREAM_MAX = 4096
PARTITIONS_PER_TOPIC_MAX = 1_000_000
CONSUMER_OFFSETS_PER_PARTITION_MAX = 65_536
GROUP_MEMBERS_MAX = 65_536

PAYLOAD_BYTES_MAX = 64_000_000
USER_HEADERS_BYTES_MAX = 100_000
HEADER_FIELD_BYTES_MAX = 255

OPTIONS_MAX = 1024
OPTIONS_BYTES_MAX = 100_000

SEGMENT_BYTES_MIN = 1 << 20
SEGMENT_BYTES_MAX = 1 << 30
SEGMENT_BYTES_MULTIPLE = 512
PREALLOCATED_BYTES_MAX = 64 << 30
MESSAGES_REQUIRED_TO_SAVE_MAX = 1 << 24

FRAME_BYTES_DEFAULT = 64 << 20
FRAME_BYTES_CEILING = 256 << 20
# Before a login only a ping and a login are understood; nothing they carry is larger.
FRAME_BYTES_UNAUTHENTICATED = 4096
# A poll answers with at least one message and otherwise stops here, whatever count was asked for.
POLL_REPLY_BYTES_MAX = 16 << 20

# What waits for its epoch to be committed, in the whole server: each costs memory, and an attempt a file.
STAGED_ATTEMPTS_MAX = 65_536
STAGED_BATCHES_MAX = 1 << 20
# At one task of an epoch. Two can be at work, if one is thought dead and is not; the others have failed.
STAGED_ATTEMPTS_PER_TASK_MAX = 4
