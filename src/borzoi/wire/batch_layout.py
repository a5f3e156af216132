"""The bytes of a message batch: the one layout on the wire, on disk and in a poll reply.

    batch = 256-byte header, then message frames back to back
    frame = 48-byte header, payload, user headers

    batch header                                frame header
    off size                                    off size
      0    8  partition_id                        0    8  checksum, XXH3-64 of the frame from byte 8 on
      8    8  base_offset                         8   16  message id
     16    8  base_timestamp (us, broker)        24    4  offset_delta: 0, 1, 2, ... within the batch
     24    8  origin_timestamp (us, producer)    28    4  timestamp_delta (us, to origin_timestamp)
     32    8  batch_length, header included      32    4  user_headers_length
     40    8  batch_checksum                     36    4  payload_length
     48    4  message_count                      40    8  reserved, zero
     52  204  reserved, zero

The batch checksum is XXH3-64 over header bytes 0..40, header bytes 48..52 and the checksum field
of every frame in order.

`wire.batch` proves and reads batches, `wire.build` makes them, `wire.columns` reads many at once.
"""

import struct

import numpy as np

from borzoi.model.errors import RemoteProtocolError
from borzoi.model.limits import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX

HEADER_BYTES = 256
FRAME_HEADER_BYTES = 48

HEADER = struct.Struct("<6QI204s")
FRAME = struct.Struct("<QQQIIIIQ")
RESERVED = bytes(204)

# A frame's header for NumPy; what its checksum covers begins at byte 8.
FRAME_FORM = np.dtype(
    [
        ("checksum", "<u8"),
        ("id_low", "<u8"),
        ("id_high", "<u8"),
        ("offset_delta", "<u4"),
        ("time_delta", "<u4"),
        ("headers", "<u4"),
        ("payload", "<u4"),
        ("zero", "<u8"),
    ]
)
CHECKED_FROM = 8
LENGTHS_AT = 32
LENGTHS = struct.Struct("<II")  # of user headers and payload

_TOO_BIG_USER_HEADERS = 4017
_TOO_BIG_PAYLOAD = 4022
_INVALID_PAYLOAD_LENGTH = 4025


def check_lengths(index: int, headers: int, payload: int) -> None:
    """Raise if a message may not have user headers and a payload of so many bytes."""
    if payload == 0:
        raise RemoteProtocolError(f"message {index} has an empty payload", _INVALID_PAYLOAD_LENGTH)
    if payload > PAYLOAD_BYTES_MAX:
        raise RemoteProtocolError(f"payload of message {index} has {payload} bytes", _TOO_BIG_PAYLOAD)
    if headers > USER_HEADERS_BYTES_MAX:
        raise RemoteProtocolError(
            f"user headers of message {index} have {headers} bytes", _TOO_BIG_USER_HEADERS
        )
