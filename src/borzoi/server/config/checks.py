"""Rules that span several keys. A rule about one key alone belongs to that key's kind."""

from collections.abc import Iterator

from borzoi.model.units import MAX_TOPIC_SIZE_UNLIMITED, render_byte_size
from borzoi.server.config.addresses import is_loopback, split_address
from borzoi.server.config.sections import Config

_SHORTEST_INTERVAL_US = 1000


def contradictions(config: Config) -> Iterator[str]:
    """What cannot be meant, one sentence each."""
    intervals = (
        ("message_saver.interval", config.message_saver.enabled, config.message_saver.interval_us),
        ("heartbeat.interval", config.heartbeat.enabled, config.heartbeat.interval_us),
        (
            "personal_access_token.cleaner.interval",
            config.personal_access_token.cleaner.enabled,
            config.personal_access_token.cleaner.interval_us,
        ),
        (
            "data_maintenance.messages.interval",
            config.data_maintenance.messages.cleaner_enabled,
            config.data_maintenance.messages.interval_us,
        ),
        (
            "system.message_deduplication.expiry",
            config.system.message_deduplication.enabled,
            config.system.message_deduplication.expiry_us,
        ),
    )
    for name, enabled, interval_us in intervals:
        if enabled and interval_us < _SHORTEST_INTERVAL_US:
            yield f"{name}: at least 1ms while it is enabled"
    topic, segment = config.system.topic, config.system.segment
    if topic.max_size_bytes < segment.size_bytes:
        yield (
            f"system.topic.max_size: {render_byte_size(topic.max_size_bytes)} is less than"
            f" system.segment.size, {render_byte_size(segment.size_bytes)}"
        )
    limits = config.limits
    if limits.max_buffered_bytes < limits.max_frame_bytes:
        yield (
            f"limits.max_buffered_bytes: {render_byte_size(limits.max_buffered_bytes)} is less than"
            f" limits.max_frame_size, {render_byte_size(limits.max_frame_bytes)}"
        )
    tls = config.tcp.tls
    if config.tcp.enabled and tls.enabled and bool(tls.cert_file) != bool(tls.key_file):
        yield "tcp.tls: cert_file and key_file are set together or not at all"
    if config.tcp.enabled and tls.enabled and not tls.self_signed and not tls.cert_file:
        yield "tcp.tls: needs cert_file and key_file, or self_signed = true"


def ineffective(config: Config) -> Iterator[str]:
    """Settings that are in order but do nothing together, one sentence each."""
    topic = config.system.topic
    if topic.max_size_bytes != MAX_TOPIC_SIZE_UNLIMITED and not topic.delete_oldest_segments:
        yield "system.topic.max_size has no effect while system.topic.delete_oldest_segments is false"


def forbids_default_password(config: Config) -> bool:
    """Whether strangers could reach the server, so that root must not have the password everybody knows."""
    host, _ = split_address(config.tcp.address)
    return config.tcp.enabled and not config.system.allow_default_password and not is_loopback(host)
