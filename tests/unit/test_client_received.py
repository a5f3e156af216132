"""Received messages as values: equal by what they hold, and alone when they are copied or pickled."""

import copy
import pickle

import msgspec
import pytest

from borzoi.client import codecs
from borzoi.client.payloads import read
from borzoi.client.received import messages_of
from borzoi.log.batch import stamp
from borzoi.model.replies import PolledMessages
from borzoi.wire.batch import prove
from borzoi.wire.build import NewMessage, build

COUNT = 200


def batch(base_offset=1000, headers=b""):
    made = [NewMessage(b"%5d" % number, 2**100 + number, headers, 10**15 + number) for number in range(COUNT)]
    stored = memoryview(build(made))
    stamp(stored, prove(stored), 3, base_offset, 2 * 10**15)
    return stored


def polled(**how):
    """Messages of one batch, through columns."""
    return messages_of(PolledMessages(3, 0, COUNT, [batch(**how)]))


def test_messages_are_equal_if_all_they_hold_is():
    first, again, later = polled(), polled(), polled(base_offset=1001)
    assert first == again
    assert set(first) == set(again)
    assert first[0] != first[1]
    assert first[0] != later[0]
    assert first[0] != polled(headers=b"h")[0]
    assert first[0] != "a message"
    typed = read(first[0], codecs.Json(int), None)
    assert typed == read(again[0], codecs.Json(int), None)
    assert typed != first[0]
    assert typed != read(again[0], None, None)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("headers", [b"", b"h"])
def test_a_copy_is_the_same_and_takes_nothing_along(copied, headers):
    message = polled(headers=headers)[7]
    for each in (message, read(message, codecs.Json(int), None)):
        alone = copied(each)
        assert alone == each
        assert (alone.id, alone.checksum, alone.user_headers) == (2**100 + 7, message.checksum, headers)
        assert (alone.timestamp, alone.origin_timestamp) == (2 * 10**15, 10**15 + 7)
        assert len(alone.envelopes.offsets) == 1
    assert len(pickle.dumps(message)) < 500


@pytest.mark.parametrize("headers", [b"", b"h"])
def test_the_reply_is_not_kept(headers):
    buffer = bytearray(batch(headers=headers))
    messages = messages_of(PolledMessages(3, 0, COUNT, [buffer]))
    buffer.clear()  # refused as long as anybody has a view of it
    assert (messages[7].id, messages[7].user_headers) == (2**100 + 7, headers)


def test_it_says_what_it_is():
    text = repr(polled()[7])
    assert text.startswith("ReceivedMessage(payload=b'    7', offset=1007, partition_id=3, timestamp=2000")
    assert f"id={2**100 + 7}" in text
    assert "value=7" in repr(read(polled()[7], codecs.Json(int), None))


def test_a_changed_payload_leaves_the_rest():
    message = polled()[7]
    changed = msgspec.structs.replace(message, payload=b"new")
    assert (changed.payload, changed.id, changed.timestamp) == (b"new", message.id, message.timestamp)
