"""Rows of Arrow become batches that decode to the same rows."""

import os
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.model.errors import (
    EmptyMessagePayload,
    InvalidHeaderValue,
    InvalidIdentifier,
    InvalidKeyValueLength,
    PartitionNotFound,
)
from borzoi.model.headers import decode_user_headers, to_python
from borzoi.model.values import PartitioningKind
from borzoi.spark.encode import Encoder, first_id
from borzoi.spark.routing import by_key, by_partition, partition_of_key
from borzoi.wire.batch import frames, prove, read_header, verify_header, verify_messages

ROW = pa.schema(
    [
        ("payload", pa.binary()),
        ("partition", pa.int32()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("id", pa.binary()),
    ]
)


def encoder(
    *, routed=True, headers=True, ids=True, partitions=4, batch_bytes=1 << 20, batch_rows=10_000, first=0
):
    return Encoder(
        lambda rows: rows.column("payload"),
        (lambda rows: by_partition(rows.column("partition"), "partition", partitions, is_modulo=False))
        if routed
        else (lambda _: None),
        headers="headers" if headers else None,
        ids="id" if ids else None,
        first_id=first,
        batch_bytes=batch_bytes,
        batch_rows=batch_rows,
    )


def rows_of(payloads, partitions=None, headers=None, ids=None):
    count = len(payloads)
    return pa.RecordBatch.from_pydict(
        {
            "payload": payloads,
            "partition": partitions or [0] * count,
            "headers": headers or [None] * count,
            "id": ids or [bytes(16)] * count,
        },
        ROW,
    )


def decoded(batches):
    """(payload, id, headers) of every message, by partition; None for balanced."""
    found = {}
    for partitioning, batch, count in batches:
        view = memoryview(batch)
        layout = prove(view, count)
        verify_header(view, layout)
        verify_messages(view, layout)
        assert read_header(view).base_offset == 0
        is_balanced = partitioning.kind is PartitioningKind.BALANCED
        place = None if is_balanced else int.from_bytes(partitioning.value, "little")
        for frame in frames(view):
            headers = {
                to_python(key): to_python(value)
                for key, value in decode_user_headers(frame.user_headers).items()
            }
            found.setdefault(place, []).append((bytes(frame.payload), frame.id, headers))
    return found


def run(coder, batches):
    out = [each for rows in batches for each in coder.encode(rows)]
    return [*out, *coder.flush()]


rows_strategy = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=300),
        st.integers(0, 3),
        st.none()
        | st.dictionaries(st.text("abc", min_size=1, max_size=3), st.binary(min_size=1, max_size=5)),
        st.binary(min_size=16, max_size=16),
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(rows_strategy, max_size=4), st.integers(300, 3000), st.integers(1, 40), st.booleans())
def test_rows_come_back_by_partition_in_order(chunks, batch_bytes, batch_rows, use_slices):
    coder = encoder(batch_bytes=batch_bytes, batch_rows=batch_rows)
    batches = []
    for chunk in chunks:
        columns = [list(column) for column in zip(*chunk, strict=True)] if chunk else [[], [], [], []]
        rows = rows_of(*columns)
        if use_slices:
            padded = pa.concat_batches([rows_of([b"before"]), rows, rows_of([b"after"])])
            rows = padded.slice(1, len(chunk))
        batches.append(rows)
    wanted = {}
    for chunk in chunks:
        for payload, partition, headers, message_id in chunk:
            number = int.from_bytes(message_id, "little")
            wanted.setdefault(partition, []).append((payload, number, headers or {}))
    encoded = run(coder, batches)
    assert decoded(encoded) == wanted
    assert all(each.messages_count <= batch_rows for each in encoded)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=200), st.integers(1, 5), st.integers(300, 5000))
def test_ids_depend_on_rows_and_not_on_how_they_are_cut(sizes, chunks, batch_bytes):
    payloads = [bytes([size % 256]) * size for size in sizes]
    partitions = [size % 3 for size in sizes]
    first = first_id("producer", 7, 3)

    def ids(pieces, limit):
        edges = np.linspace(0, len(payloads), pieces + 1).astype(int).tolist()
        parts = [rows_of(payloads[a:b], partitions[a:b]) for a, b in pairwise(edges)]
        return decoded(run(encoder(ids=False, first=first, batch_bytes=limit), parts))

    found = ids(chunks, batch_bytes)
    assert found == ids(1, 1 << 20)
    numbers = sorted(number for messages in found.values() for _, number, _ in messages)
    assert numbers == list(range(first, first + len(sizes)))


def test_first_ids_differ_by_producer_epoch_and_task_and_leave_room():
    made = {first_id(p, e, t) for p in ("a", "b") for e in range(3) for t in range(3)}
    assert len(made) == 18
    assert all(not number >> 63 & 1 for number in made)


def test_big_rows_are_cut_into_batches_of_the_wanted_size():
    payloads = [os.urandom(1000) for _ in range(5000)]
    encoded = run(encoder(routed=False, ids=False, headers=False), [rows_of(payloads)])
    assert [message[0] for message in decoded(encoded)[None]] == payloads
    assert all(500_000 < len(each.batch) <= 1_100_000 for each in encoded)


def test_small_groups_wait_for_more_rows():
    coder = encoder(batch_rows=10)
    first = rows_of([b"a", b"b", b"c"], [0, 1, 0])
    assert list(coder.encode(first)) == []
    full = list(coder.encode(rows_of([b"x"] * 9, [0] * 9)))
    assert [each.messages_count for each in full] == [2, 9]
    assert decoded(coder.flush()) == {1: [(b"b", 0, {})]}
    assert list(coder.flush()) == []


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr("borzoi.spark.encode._WAITING_BYTES_MAX", 1000)
    coder = encoder()
    encoded = list(coder.encode(rows_of([b"x" * 400] * 4, [0, 1, 2, 3])))
    assert sorted(decoded(encoded)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_payloads_of_any_kind_of_text(kind):
    column = pa.array(["one", "two", "three"]).cast(kind)
    rows = pa.RecordBatch.from_arrays([column], ["payload"])
    encoded = run(encoder(routed=False, ids=False, headers=False), [rows])
    assert [message[0] for message in decoded(encoded)[None]] == [b"one", b"two", b"three"]


def test_text_headers_and_repeated_headers():
    kind = pa.map_(pa.string(), pa.string())
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([b"1", b"2", b"3", b"4"]),
            pa.array([[("a", "x"), ("b", "y")], [], None, [("a", "x"), ("b", "y")]], kind),
        ],
        ["payload", "headers"],
    )
    encoded = run(encoder(routed=False, ids=False), [rows])
    found = [message[2] for message in decoded(encoded)[None]]
    assert found == [{"a": "x", "b": "y"}, {}, {}, {"a": "x", "b": "y"}]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"payloads": [b"a", None]}, EmptyMessagePayload, "row 1 of the task has a null payload"),
        ({"payloads": [b"a", b""]}, EmptyMessagePayload, "row 1 of the task has an empty payload"),
        ({"ids": [bytes(16), bytes(15)]}, InvalidIdentifier, '"id" has a value that is not 16 bytes'),
        ({"ids": [bytes(16), None]}, InvalidIdentifier, '"id" has a null'),
        ({"partitions": [0, 4]}, PartitionNotFound, "says partition 4; the topic has partitions 0 to 3"),
        ({"partitions": [0, -1]}, PartitionNotFound, "says partition -1"),
        ({"partitions": [0, None]}, PartitionNotFound, '"partition" has a null'),
        ({"headers": [None, [("a", None)]]}, InvalidHeaderValue, 'null under the key "a"'),
        ({"headers": [None, [("a", b"")]]}, InvalidHeaderValue, "0 bytes"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused(change, error, text):
    with pytest.raises(error, match=text):
        run(encoder(), [rows_of(**{"payloads": [b"a", b"b"], **change})])


def test_keys_choose_partitions_and_rows_without_a_key_are_balanced():
    keys = ["k1", "k2", None, "k1"]
    for kind in (pa.string(), pa.binary()):
        found = by_key(pa.array(keys).cast(kind), "key", 5)
        k1, k2 = partition_of_key("k1", "key", 5), partition_of_key(b"k2", "key", 5)
        assert found.tolist() == [k1, k2, -1, k1]


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_keys_have_a_length(key):
    with pytest.raises(InvalidKeyValueLength, match='column "customer"'):
        by_key(pa.array([key]), "customer", 3)


def test_partitions_start_over_where_that_is_wanted():
    found = by_partition(pa.array([0, 5, 7], pa.int32()), "partition", 3, is_modulo=True)
    assert found.tolist() == [0, 2, 1]


def test_keys_go_where_the_broker_puts_them(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "t", 7)
    from borzoi.client.values import Partitioning

    for key in ("a", "customer 17", "x" * 255):
        (confirmation,) = borzoi.send_messages("s", "t", Partitioning.key(key), [b"m"])
        assert confirmation.partition_id == partition_of_key(key, "key", 7)
