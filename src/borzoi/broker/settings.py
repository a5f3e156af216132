"""What the broker wants to know of the configuration, without knowing where it came from."""

from dataclasses import dataclass, field

from borzoi.model.limits import SEGMENT_BYTES_MAX, TOKENS_PER_USER_MAX, U64_MAX
from borzoi.model.replies import ClusterNode


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    version: str = "0.0.0"
    # Defaults of topics that do not say otherwise.
    segment_bytes: int = SEGMENT_BYTES_MAX
    segment_age_us: int = U64_MAX
    message_expiry_us: int = U64_MAX
    max_topic_bytes: int = U64_MAX
    delete_oldest_segments: bool = True
    messages_required_to_save: int = 1024
    bytes_required_to_save: int = 1 << 20
    # Durability and integrity.
    enforce_fsync: bool = False
    metadata_fsync: bool = True
    verify_reads: bool = True
    verify_messages: bool = False
    recreate_missing_state: bool = False
    # Deduplication by message id; 0 entries = off.
    dedup_entries: int = 0
    dedup_expiry_us: int = 60_000_000
    # Staged batches and the producers that commit them.
    staged_bytes_max: int = 8 << 30
    free_bytes_reserved: int = 256 << 20
    staged_expiry_us: int = 86_400_000_000
    producers_per_topic_max: int = 1000
    producer_expiry_us: int = 30 * 86_400_000_000
    # Groups, sessions, tokens.
    rebalancing_timeout_us: int = 30_000_000
    heartbeat_interval_us: int = 30_000_000  # 0 = silent members are not evicted
    tokens_per_user_max: int = TOKENS_PER_USER_MAX
    root_username: str = "iggy"
    root_password: str = "iggy"
    open_files_max: int = 0
    cluster_name: str = "single-node"
    node: ClusterNode = field(default_factory=lambda: ClusterNode("iggy-node", "127.0.0.1", 8090, 0, 0, 0))
