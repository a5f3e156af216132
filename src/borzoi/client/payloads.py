"""From values to payloads and back, through a codec and a cipher, either of which may be missing.

    value --codec--> plain payload --cipher--> stored payload

Without a codec the value is the payload. What goes wrong on the way is an `UnencodableValue` or an
`UndecodablePayload`, whatever the codec raised; that is its `__cause__`.
"""

from typing import TYPE_CHECKING, Any, Generic

import msgspec

from borzoi.client.cipher import Cipher
from borzoi.client.codecs import Codec
from borzoi.client.received import ReceivedMessage
from borzoi.model.errors import BorzoiError, EmptyMessagePayload

if TYPE_CHECKING:
    # Type checkers bring this with them, whether it is installed or not.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")


class UnencodableValue(  # noqa: N818 - named like the platform's other errors
    BorzoiError,
    text="Unencodable value",
    hint="Send what the producer's codec is for, or a SendMessage whose payload is made already.",
):
    """The codec makes no payload of this value. Nothing was buffered; the reason is in `__cause__`."""


class UndecodablePayload(  # noqa: N818 - named like the platform's other errors
    BorzoiError,
    text="Undecodable payload",
    hint="Check that consumer and producer have the same codec and key; iterate again to go on after it.",
):
    """A stored payload that the cipher or the codec can make nothing of. The reason is in `__cause__`."""

    def __init__(self, message: ReceivedMessage, reason: BaseException) -> None:
        self.message = message
        """The message as it is stored."""
        self.partition_id = message.partition_id
        self.offset = message.offset
        why = str(reason) or type(reason).__name__
        super().__init__(f"partition {self.partition_id}, offset {self.offset}: {why}")


class Message(ReceivedMessage, Generic[T], frozen=True, kw_only=True, gc=True):
    """A message with what its payload says: `value`. `payload` is the plain one, if it was encrypted."""

    value: T


def payload_of(value: Any, codec: Codec[Any] | None) -> bytes | str:
    """The payload before encryption."""
    if codec is None:
        payload: bytes | str = value
    else:
        try:
            payload = codec.encode(value)
        except Exception as error:
            raise UnencodableValue(f"{codec!r}: {error}") from error
        if not isinstance(payload, bytes):
            raise UnencodableValue(f"{codec!r} made {type(payload).__name__}, and a payload is bytes")
    if not payload:
        raise EmptyMessagePayload
    return payload


def read(stored: ReceivedMessage, codec: Codec[T] | None, cipher: Cipher | None) -> Message[T]:
    """Raises `UndecodablePayload`."""
    try:
        plain = (
            stored
            if cipher is None
            else msgspec.structs.replace(stored, payload=cipher.decrypt(stored.payload))
        )
        # Without a codec, T is bytes.
        value: Any = plain.payload if codec is None else codec.decode(plain.payload)
    except Exception as error:
        raise UndecodablePayload(stored, error) from error
    return Message(*msgspec.structs.astuple(plain), value=value)
