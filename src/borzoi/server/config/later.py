"""Keys that are accepted and checked but have no effect in this version.

A configuration written for Iggy 0.6 to 0.9, or taken from its guides, loads without changes; the loader warns
about each of these keys that is set to something else than its default. The `refused` ones accept nothing but
their default, because a server that ignored another value would store clear text or delete what it was told
to archive. A key moves from here to `sections` when the server starts to act on it.
"""

from borzoi.model.limits import U64_MAX
from borzoi.server.config.kinds import (
    Address,
    Boolean,
    ByteSize,
    Choice,
    CpuAllocation,
    Duration,
    Expiry,
    IndexCache,
    Integer,
    Kind,
    MetricsEndpoint,
    OptionalByteSize,
    Plain,
    Tables,
    TextList,
)
from borzoi.server.config.schema import Key, Status

_FLAG = Boolean()
_TEXT = Kind()
_SIZE = ByteSize()
_DURATION = Duration()
_LIST = TextList()
_TABLES = Tables()
_COUNT = Integer(1)
_OTLP = Choice("grpc", "http")


def _later(section: str, *rows: tuple[str, Kind, Plain, str]) -> list[Key]:
    return [Key(f"{section}.{name}", kind, default, text, Status.LATER) for name, kind, default, text in rows]


def _secret(name: str, meaning: str) -> Key:
    return Key(name, _TEXT, "", meaning, Status.LATER, secret=True)


def _refused(name: str, meaning: str) -> Key:
    return Key(name, _FLAG, False, meaning, Status.REFUSED)


LATER_KEYS: tuple[Key, ...] = (
    *_later(
        "tcp",
        ("ipv6", _FLAG, False, "Not needed: an IPv6 address in `tcp.address` is enough."),
        ("socket_migration", _FLAG, True, "Hand a connection to the shard that owns its partition."),
    ),
    *_later(
        "tcp.socket",
        ("override_defaults", _FLAG, False, "Use the socket options below."),
        ("recv_buffer_size", _SIZE, "100 KB", "Receive buffer of a socket."),
        ("send_buffer_size", _SIZE, "100 KB", "Send buffer of a socket."),
        ("keepalive", _FLAG, False, "Probe idle connections."),
        ("nodelay", _FLAG, False, "See `tcp.nodelay`, which works."),
        ("linger", _DURATION, "0s", "How long a close waits for unsent data."),
    ),
    *_later(
        "http",
        ("enabled", _FLAG, False, "Listen for HTTP clients."),
        ("address", Address(), "127.0.0.1:3000", "Where to listen."),
        ("max_request_size", _SIZE, "2 MB", "The largest request body."),
        ("web_ui", _FLAG, False, "Serve the console under `/ui`."),
    ),
    *_later(
        "http.cors",
        ("enabled", _FLAG, True, "Answer cross-origin requests."),
        ("allowed_methods", _LIST, ["GET", "POST", "PUT", "DELETE"], "Methods allowed across origins."),
        ("allowed_origins", _LIST, ["*"], "Origins allowed; `*` means all."),
        ("allowed_headers", _LIST, ["content-type", "authorization"], "Headers a browser may send."),
        ("exposed_headers", _LIST, [""], "Headers a browser may read."),
        ("allow_credentials", _FLAG, False, "Allow cookies and credentials across origins."),
        ("allow_private_network", _FLAG, False, "Answer requests from public to private networks."),
    ),
    *_later(
        "http.jwt",
        (
            "algorithm",
            Choice("HS256", "HS384", "HS512", "RS256", "RS384", "RS512"),
            "HS256",
            "How access tokens are signed.",
        ),
        ("issuer", _TEXT, "iggy.apache.org", "Issuer written into access tokens."),
        ("audience", _TEXT, "iggy.apache.org", "Audience written into access tokens."),
        ("valid_issuers", _LIST, ["iggy.apache.org"], "Issuers accepted."),
        ("valid_audiences", _LIST, ["iggy.apache.org"], "Audiences accepted."),
        ("access_token_expiry", Expiry(), "1h", "How long an access token is valid."),
        ("clock_skew", _DURATION, "5s", "Difference of clocks that is forgiven."),
        ("not_before", _DURATION, "0s", "Delay before an access token becomes valid."),
        ("use_base64_secret", _FLAG, False, "The secrets are written in base64."),
        ("trusted_issuers", _TABLES, [], "Foreign issuers and the users their tokens stand for."),
    ),
    _secret("http.jwt.encoding_secret", "Secret that signs access tokens; empty makes one at each start."),
    _secret("http.jwt.decoding_secret", "Secret that verifies access tokens; empty makes one at each start."),
    *_later(
        "http.metrics",
        ("enabled", _FLAG, True, "Serve Prometheus metrics."),
        ("endpoint", MetricsEndpoint(), "/metrics", "Path on the HTTP port, or an address of its own."),
    ),
    *_later(
        "http.tls",
        ("enabled", _FLAG, False, "Encrypt HTTP connections."),
        ("cert_file", _TEXT, "", "Certificate chain in PEM form."),
        ("key_file", _TEXT, "", "Private key in PEM form."),
    ),
    *_later(
        "quic",
        ("enabled", _FLAG, False, "Listen for QUIC clients."),
        ("address", Address(), "127.0.0.1:8080", "Where to listen."),
        ("max_concurrent_bidi_streams", _COUNT, 10000, "Open streams of one connection."),
        ("datagram_send_buffer_size", _SIZE, "100 KB", "Buffer of unsent datagrams."),
        ("initial_mtu", _SIZE, "1200 B", "Packet size before the path is probed."),
        ("send_window", _SIZE, "64 MiB", "Unacknowledged bytes in flight."),
        ("receive_window", _SIZE, "64 MiB", "Unread bytes of a connection."),
        ("stream_receive_window", _SIZE, "64 MiB", "Unread bytes of a stream."),
        ("keep_alive_interval", _DURATION, "10s", "Time between two probes; 0 for none."),
        ("max_idle_timeout", _DURATION, "30s", "Silence after which a connection is closed."),
    ),
    *_later(
        "quic.certificate",
        ("self_signed", _FLAG, True, "Make a certificate at start."),
        ("cert_file", _TEXT, "", "Certificate chain in PEM form."),
        ("key_file", _TEXT, "", "Private key in PEM form."),
    ),
    *_later(
        "quic.socket",
        ("override_defaults", _FLAG, False, "Use the socket options below."),
        ("recv_buffer_size", _SIZE, "64 KB", "Receive buffer of the socket."),
        ("send_buffer_size", _SIZE, "64 KB", "Send buffer of the socket."),
        ("keepalive", _FLAG, False, "Probe idle connections."),
    ),
    *_later(
        "websocket",
        ("enabled", _FLAG, False, "Listen for WebSocket clients."),
        ("address", Address(), "127.0.0.1:8092", "Where to listen."),
        ("read_buffer_size", OptionalByteSize(), "", "Read buffer of a connection."),
        ("write_buffer_size", OptionalByteSize(), "", "Write buffer of a connection."),
        ("max_write_buffer_size", OptionalByteSize(), "", "Unsent bytes of a connection."),
        ("max_message_size", OptionalByteSize(), "", "The largest message."),
        ("max_frame_size", OptionalByteSize(), "", "The largest frame."),
        ("accept_unmasked_frames", _FLAG, False, "Accept frames that break the masking rule."),
    ),
    *_later(
        "websocket.tls",
        ("enabled", _FLAG, False, "Encrypt WebSocket connections."),
        ("self_signed", _FLAG, True, "Make a certificate at start."),
        ("cert_file", _TEXT, "", "Certificate chain in PEM form."),
        ("key_file", _TEXT, "", "Private key in PEM form."),
    ),
    *_later(
        "telemetry",
        ("enabled", _FLAG, False, "Send logs and traces to an OpenTelemetry collector."),
        ("service_name", _TEXT, "iggy", "Name of this service in them."),
        ("logs.transport", _OTLP, "grpc", "How logs are sent."),
        ("logs.endpoint", _TEXT, "http://localhost:7281/v1/logs", "Where logs are sent."),
        ("traces.transport", _OTLP, "grpc", "How traces are sent."),
        ("traces.endpoint", _TEXT, "http://localhost:7281/v1/traces", "Where traces are sent."),
    ),
    *_later(
        "consumer_group",
        ("session_timeout", _DURATION, "30s", "Silence of a node after which its members are removed."),
        ("heartbeat_interval", _DURATION, "5s", "How often nodes report their members."),
    ),
    _refused(
        "data_maintenance.messages.archiver_enabled",
        "Archive every sealed segment. Not available: nothing would be archived.",
    ),
    *_later(
        "data_maintenance.state",
        ("overwrite", _FLAG, True, "Keep one copy of the metadata instead of one per run."),
        ("interval", _DURATION, "1m", "Time between two copies of the metadata."),
    ),
    _refused(
        "data_maintenance.state.archiver_enabled",
        "Archive copies of the metadata. Not available: nothing would be archived.",
    ),
    _refused(
        "data_maintenance.archiver.enabled",
        "Archive expired segments. Not available: expired segments would be deleted without a copy.",
    ),
    *_later(
        "data_maintenance.archiver",
        ("kind", Choice("disk", "s3"), "disk", "Where the archive is."),
        ("interval", _DURATION, "1h", "Time between two runs of the archiver."),
        ("disk.path", _TEXT, "local_data/archive", "Directory of the archive."),
        ("s3.access_key_id", _TEXT, "", "Name of the access key; empty uses the environment's."),
        ("s3.bucket", _TEXT, "", "Bucket of the archive."),
        ("s3.key_prefix", _TEXT, "", "What the names of all objects begin with."),
        ("s3.region", _TEXT, "", "Region of the bucket."),
        ("s3.endpoint", _TEXT, "", "Address of a store that is not Amazon's."),
        ("s3.tmp_upload_dir", _TEXT, "local_data/s3_tmp", "Where uploads are prepared."),
    ),
    _secret(
        "data_maintenance.archiver.s3.secret_access_key", "The access key; empty uses the environment's."
    ),
    *_later(
        "system",
        ("backup.path", _TEXT, "backup", "Where data of old formats is moved."),
        ("backup.compatibility.path", _TEXT, "compatibility", "Where it is converted."),
        ("state.max_file_operation_retries", Integer(), 1, "Attempts to write the metadata log."),
        ("state.retry_delay", _DURATION, "1s", "Time between them."),
        ("runtime.path", _TEXT, "runtime", "Files that live as long as the process."),
        ("stream.path", _TEXT, "streams", "Directory of the streams."),
        ("topic.path", _TEXT, "topics", "Directory of a stream's topics."),
        ("partition.path", _TEXT, "partitions", "Directory of a topic's partitions."),
        ("segment.cache_indexes", IndexCache(), "open_segment", "Which offset indexes stay in memory."),
        ("segment.cache_time_indexes", _FLAG, True, "Keep time indexes in memory."),
        ("segment.preallocate", _FLAG, False, "Reserve the space of a segment when it is opened."),
        (
            "segment.server_confirmation",
            Choice("wait", "no_wait"),
            "wait",
            "Whether a send waits for its write.",
        ),
        ("compression.allow_override", _FLAG, False, "Let topics choose their compression."),
        (
            "compression.default_algorithm",
            Choice("none", "gzip", "zstd"),
            "none",
            "Compression of new topics.",
        ),
    ),
    _refused(
        "system.segment.archive_expired",
        "Archive a segment before it is deleted. Not available: segments would be deleted without a copy.",
    ),
    _refused(
        "system.encryption.enabled",
        "Encrypt stored messages with AES-256-GCM. Not available: messages would be stored as clear text.",
    ),
    _secret("system.encryption.key", "32 bytes in base64."),
    *_later(
        "system.logging",
        ("path", _TEXT, "logs", "Directory of the log files."),
        ("file_enabled", _FLAG, False, "Write the log to files as well."),
        ("max_file_size", _SIZE, "500 MB", "Size at which a log file is closed; 0 for none."),
        ("max_total_size", _SIZE, "4 GB", "Size of all log files; 0 for no limit."),
        ("rotation_check_interval", Duration(1_000_000), "1h", "How often log files are looked at."),
        ("retention", _DURATION, "7days", "How long a log file is kept."),
        ("sysinfo_print_interval", _DURATION, "10s", "Time between two lines about the process; 0 for none."),
    ),
    *_later(
        "system.memory_pool",
        ("enabled", _FLAG, True, "Reuse buffers."),
        ("size", ByteSize(512 << 20, U64_MAX, 4096), "4 GiB", "What the pool may hold."),
        ("bucket_capacity", Integer(128), 8192, "Buffers of one size."),
    ),
    *_later(
        "system.sharding",
        (
            "cpu_allocation",
            CpuAllocation(),
            "1",
            "How many shards, or on which processors. This version runs one.",
        ),
        ("pin_cores", _FLAG, False, "Keep each shard on one processor."),
        ("inbox_capacity", _COUNT, 1024, "Requests waiting for a shard."),
        ("reply_inbox_capacity", _COUNT, 1024, "Replies waiting for a shard."),
        ("shutdown_drain_timeout", _DURATION, "10s", "How long a shutdown waits for open requests."),
        ("shutdown_poll_interval", _DURATION, "50ms", "How often it looks at them."),
        ("shutdown_join_timeout", _DURATION, "30s", "How long a shutdown waits for shards."),
        ("reconcile_periodic_interval", _DURATION, "1s", "How often shards compare their partitions."),
    ),
    *_later(
        "cluster",
        ("enabled", _FLAG, False, "Replicate to other nodes."),
        ("name", _TEXT, "iggy-cluster", "Name shared by all nodes."),
        ("node", _TABLES, [], "This node and the others."),
        ("nodes", _TABLES, [], "All nodes."),
        ("tls", _TABLES, [], "Encryption between nodes."),
        ("coordinator", _TABLES, [], "Placement of connections."),
        ("heartbeat_timeout", _DURATION, "5s", "Silence after which a primary is replaced."),
        ("commit_broadcast_interval", _DURATION, "500ms", "How often a primary reports its commits."),
        ("prepare_retransmit_interval", _DURATION, "250ms", "Time between attempts to replicate."),
        ("view_change_retransmit_interval", _DURATION, "500ms", "Time between attempts to elect."),
        ("view_change_status_timeout", _DURATION, "5s", "How long an election may take."),
        (
            "request_start_view_retransmit_interval",
            _DURATION,
            "1s",
            "Time between questions for the primary.",
        ),
        ("view_probe_attempts_max", _COUNT, 5, "Unanswered questions before an election."),
        ("repair_retry_interval", _DURATION, "1s", "Time between attempts to repair."),
        ("repair_gap_debounce_interval", _DURATION, "1s", "Age of a gap before it is repaired."),
        ("repair_chunk_max", _COUNT, 128, "Operations of one repair."),
        ("superblock_wedged_fatal_timeout", _DURATION, "2m", "How long a node runs without its superblock."),
    ),
    Key("cluster.auth", _TABLES, [], "Shared secrets of the nodes.", Status.LATER, secret=True),
    Key("metadata", _TABLES, [], "Queues of metadata replication.", Status.LATER),
    Key("partition", _TABLES, [], "Queues of partition replication.", Status.LATER),
    Key("message_bus", _TABLES, [], "Queues between nodes.", Status.LATER),
)
