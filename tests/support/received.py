"""Messages as a poll gives them, for tests that have no server."""

from borzoi.client.received import OpenEnvelopes, ReceivedMessage
from borzoi.model.headers import encode_user_headers


def received(
    payload=b"x",
    offset=0,
    *,
    partition_id=0,
    timestamp=0,
    origin_timestamp=0,
    checksum=0,
    id=0,  # noqa: A002 - what it is
    headers=b"",
):
    """Headers are a mapping, or bytes as they are stored."""
    head = checksum.to_bytes(8, "little") + id.to_bytes(16, "little")
    block = headers if isinstance(headers, bytes) else encode_user_headers(headers)
    envelopes = OpenEnvelopes([offset], [timestamp], [origin_timestamp], [head], [block])
    return ReceivedMessage(payload, offset, partition_id, envelopes)
