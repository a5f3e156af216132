"""Payloads that only their producers and consumers can read: AES-256-GCM.

    offset   size
    0        12     nonce, random for every message
    12       n      ciphertext, as long as the payload
    12 + n   16     tag

Clients of Iggy that were given the same key read and write the same. Only payloads are encrypted: ids,
headers, sizes and times are not. Nothing binds a payload to its place, so whoever can write to the topic can
repeat it.

A key is good for some 2^32 messages, because nonces are random.
"""

import base64
import binascii
import os

from borzoi.model.errors import CannotDecryptData, InvalidEncryptionKey

KEY_BYTES = 32
OVERHEAD_BYTES = 28

_NONCE_BYTES = 12


class Cipher:
    """Encrypts and decrypts with a key of 32 bytes, which has to be kept secret."""

    __slots__ = ("_aead",)

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes | bytearray) or len(key) != KEY_BYTES:
            raise InvalidEncryptionKey(f"a key is {KEY_BYTES} bytes; os.urandom({KEY_BYTES}) makes one")
        # Loading it takes longer than the rest of the client, and most programs do not encrypt.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._aead = AESGCM(bytes(key))

    @classmethod
    def from_base64(cls, text: str) -> "Cipher":
        """For a key as configurations and command lines have it."""
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidEncryptionKey(f"the key is not the base64 of {KEY_BYTES} bytes") from None
        return cls(key)

    def encrypt(self, payload: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, payload, None)

    def decrypt(self, payload: bytes) -> bytes:
        """Raises `CannotDecryptData` if it was not encrypted with this key, or was changed since."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - loaded by now

        if len(payload) < OVERHEAD_BYTES:
            raise CannotDecryptData(f"{len(payload)} bytes are too few to be encrypted")
        try:
            return self._aead.decrypt(payload[:_NONCE_BYTES], payload[_NONCE_BYTES:], None)
        except InvalidTag:
            raise CannotDecryptData("encrypted with another key, changed since, or not encrypted") from None

    def __repr__(self) -> str:
        return "Cipher(...)"
