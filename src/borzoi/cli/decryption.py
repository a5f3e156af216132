"""Payloads as they were before `--encryption-key` was applied to them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from borzoi.client.cipher import Cipher
    from borzoi.client.received import ReceivedMessage


def decrypted(messages: "list[ReceivedMessage]", cipher: "Cipher | None") -> "list[ReceivedMessage]":
    """The messages with readable payloads. One that is not encrypted with this key is named."""
    if cipher is None:
        return messages
    import msgspec

    from borzoi.model.errors import CannotDecryptData

    found = []
    for message in messages:
        try:
            payload = cipher.decrypt(message.payload)
        except CannotDecryptData as error:
            error.add_note(
                f"It is the message at offset {message.offset} of partition {message.partition_id}."
            )
            raise
        found.append(msgspec.structs.replace(message, payload=payload))
    return found
