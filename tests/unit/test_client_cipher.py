"""Encryption between producers and consumers: the layout, what is refused, what becomes of dead letters."""

import asyncio
import base64
import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from borzoi import (
    AsyncConsumer,
    AsyncProducer,
    Cipher,
    DeadLetter,
    PollingStrategy,
    SendFailed,
    SendMessage,
    UndecodablePayload,
    codecs,
)
from borzoi.client import cipher as module
from borzoi.model.errors import (
    CannotDecryptData,
    EmptyMessagePayload,
    InvalidEncryptionKey,
    TooBigMessagePayload,
)
from borzoi.model.limits import PAYLOAD_BYTES_MAX
from borzoi.testing import Server

KEY = bytes(range(32))
WITHIN_S = 10


@given(st.binary())
def test_what_was_encrypted_is_decrypted(payload):
    cipher = Cipher(KEY)
    sealed = cipher.encrypt(payload)
    assert len(sealed) == len(payload) + module.OVERHEAD_BYTES
    assert cipher.decrypt(sealed) == payload


def test_the_layout_is_nonce_ciphertext_tag():
    """As Iggy's own clients have it, spelled out with the library alone."""
    sealed = Cipher(KEY).encrypt(b"hello")
    assert AESGCM(KEY).decrypt(sealed[:12], sealed[12:], None) == b"hello"
    nonce = bytes(12)
    assert Cipher(KEY).decrypt(nonce + AESGCM(KEY).encrypt(nonce, b"hello", None)) == b"hello"
    # The test case of the GCM specification with a key and nonce of zeros, 16 bytes of zeros.
    known = bytes.fromhex("cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919")
    assert Cipher(bytes(32)).decrypt(bytes(12) + known) == bytes(16)


def test_no_two_payloads_look_alike():
    cipher = Cipher(KEY)
    assert len({cipher.encrypt(b"same") for _ in range(100)}) == 100


@given(st.integers(0, 8 * 33 - 1))
def test_every_changed_bit_is_noticed(bit):
    cipher = Cipher(KEY)
    sealed = bytearray(cipher.encrypt(b"hello"))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CannotDecryptData):
        cipher.decrypt(bytes(sealed))


@pytest.mark.parametrize("payload", [b"", b"short", bytes(27), b"not encrypted, but long enough"])
def test_what_was_not_encrypted_is_refused(payload):
    with pytest.raises(CannotDecryptData):
        Cipher(KEY).decrypt(payload)


def test_a_key_has_32_bytes_and_is_not_shown():
    for key in (b"", bytes(31), bytes(33), "0" * 32):
        with pytest.raises(InvalidEncryptionKey):
            Cipher(key)
    for text in ("", "not base64!", base64.b64encode(bytes(16)).decode()):
        with pytest.raises(InvalidEncryptionKey):
            Cipher.from_base64(text)
    cipher = Cipher.from_base64(base64.b64encode(KEY).decode())
    assert Cipher(KEY).decrypt(cipher.encrypt(b"x")) == b"x"
    assert repr(cipher) == "Cipher(...)"


# Producers and consumers


@pytest.fixture(scope="module")
def server():
    with Server(memory=True) as running:
        with running.client() as client:
            client.create_stream("s")
        yield running


@pytest.fixture
async def client(server):
    async with server.async_client() as connected:
        yield connected


@pytest.fixture
async def topic(client, request):
    await client.create_topic("s", request.node.name, 1)
    return request.node.name


def consumer_of(client, topic, **how):
    return AsyncConsumer(client, "s", topic, consumer="c", partition_id=0, **how)


async def stored(client, topic):
    return await client.poll_messages("s", topic, 0, PollingStrategy.First(), auto_commit=False)


async def test_the_server_sees_no_payload_and_all_headers(client, topic):
    cipher = Cipher(os.urandom(32))
    async with AsyncProducer(client, "s", topic, codec=codecs.TEXT, cipher=cipher) as producer:
        await producer.send("a secret", headers={"kind": "open"}, id=7)
        await producer.send(SendMessage("another", id=8))
    for message in await stored(client, topic):
        assert b"secret" not in message.payload
    assert [(message.id, message.headers) for message in await stored(client, topic)] == [
        (7, {"kind": "open"}),
        (8, {}),
    ]
    async with (
        asyncio.timeout(WITHIN_S),
        consumer_of(client, topic, codec=codecs.TEXT, cipher=cipher) as consumer,
    ):
        first, second = [await anext(consumer), await anext(consumer)]
    assert (first.value, first.payload, first.headers) == ("a secret", b"a secret", {"kind": "open"})
    assert second.value == "another"


async def test_another_key_makes_an_undecodable_payload(client, topic):
    async with AsyncProducer(client, "s", topic, cipher=Cipher(KEY)) as producer:
        await producer.send("one")
    await client.send_messages("s", topic, 0, ["plain", Cipher(bytes(32)).encrypt(b"three")])
    async with (
        asyncio.timeout(WITHIN_S),
        consumer_of(client, topic, cipher=Cipher(bytes(32))) as consumer,
    ):
        for offset in (0, 1):
            with pytest.raises(UndecodablePayload) as refused:
                await anext(consumer)
            assert refused.value.offset == offset
            assert isinstance(refused.value.__cause__, CannotDecryptData)
        assert (await anext(consumer)).value == b"three"


async def test_dead_letters_of_an_encrypted_topic_stay_encrypted(client, topic):
    cipher = Cipher(KEY)
    async with AsyncProducer(client, "s", topic, cipher=cipher, partitioning=0) as producer:
        await producer.send("poison")
        await producer.send("good")
    async with consumer_of(client, topic, cipher=cipher) as consumer:

        async def handle(message):
            if message.value == b"poison":
                raise OSError("no")
            consumer.stop()

        async with asyncio.timeout(WITHIN_S):
            await consumer.run(handle, dead_letter_topic=f"{topic}-dlq")
    original, _ = await stored(client, topic)
    (letter,) = map(DeadLetter.of, await stored(client, f"{topic}-dlq"))
    assert letter.payload == original.payload
    async with (
        asyncio.timeout(WITHIN_S),
        AsyncConsumer(
            client, "s", f"{topic}-dlq", consumer="clerk", partition_id=0, cipher=cipher
        ) as dead_letters,
    ):
        opened = DeadLetter.of(await anext(dead_letters))
    assert (opened.payload, opened.cause) == (b"poison", "no")


async def test_what_a_failure_carries_is_plain_and_can_be_sent_again(client, topic):
    cipher = Cipher(KEY)
    with pytest.raises(SendFailed) as failed:
        async with AsyncProducer(client, "s", topic, cipher=cipher, partitioning=9) as producer:
            await producer.send(b"again")
    (message,) = failed.value.unsent
    assert message.payload == b"again"
    async with AsyncProducer(client, "s", topic, cipher=cipher) as producer:
        await producer.send(message)
    (found,) = await stored(client, topic)
    assert cipher.decrypt(found.payload) == b"again"


async def test_a_payload_has_to_fit_when_it_is_encrypted(client, topic):
    async with AsyncProducer(client, "s", topic, codec=codecs.TEXT, cipher=Cipher(KEY)) as producer:
        with pytest.raises(EmptyMessagePayload):
            await producer.send("")
    async with AsyncProducer(client, "s", topic, cipher=Cipher(KEY)) as producer:
        with pytest.raises(TooBigMessagePayload, match="encrypted"):
            await producer.send(bytes(PAYLOAD_BYTES_MAX - module.OVERHEAD_BYTES + 1))
        assert producer.buffered == ()
