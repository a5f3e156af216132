"""What a pipe's task makes of splits: the same messages, or what a function makes of them. No Spark here."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from borzoi.client.values import PollingStrategy, SendMessage
from borzoi.model.errors import InvalidOptionValue
from borzoi.spark import epochs, pipe
from borzoi.spark.connections import close_all
from borzoi.spark.epochs import Attempt
from borzoi.spark.fused import (
    PIPE_MODES,
    Copier,
    SplitSource,
    TransformFailed,
    _SplitRows,
    pickled,
    splits_of,
)
from borzoi.spark.plan import Split
from borzoi.spark.rows import ROW_SCHEMA
from borzoi.spark.sink_columns import UnsuitableColumns
from borzoi.spark.sink_options import SinkOptions
from borzoi.wire.batch import (
    HEADER,
    NewMessage,
    build,
    frames,
    prove,
    read_header,
    verify_header,
    verify_messages,
)
from borzoi.wire.columns import columns
from borzoi.wire.copies import RawCopies

ROWS = ROW_SCHEMA.json()
ATTEMPT = Attempt("p", 0, 0, 1)


def as_stored(batch, partition, base_offset):
    """Roughly what a broker makes of a batch: it has a place and a time."""
    header = read_header(batch)
    HEADER.pack_into(batch, 0, partition, base_offset, 77, *header[3:])
    return batch


messages = st.lists(
    st.builds(
        NewMessage,
        st.binary(min_size=1, max_size=40),
        st.integers(0, 2**128 - 1),
        st.just(b""),
        st.integers(0, 2**34),
    ),
    min_size=1,
    max_size=30,
)


def origins_fit(batch):
    times = [message.origin_timestamp_us for message in batch]
    return max(times) - min(times) < 2**32


@settings(max_examples=80, deadline=None)
@given(st.data(), st.lists(messages.filter(origins_fit), min_size=1, max_size=8))
def test_copies_have_exactly_the_messages_that_were_found(data, stored):
    """Whatever their sizes and times, and if a fetcher has chosen some from the middle of its buffer."""
    buffer, offset = bytearray(), 0
    for batch in stored:
        buffer += as_stored(build(batch), 3, offset)
        offset += len(batch)
    first = data.draw(st.integers(0, offset))
    last = data.draw(st.integers(first, offset))
    batch_rows = data.draw(st.integers(1, 50))
    copies = RawCopies(data.draw(st.integers(200, 4000)), batch_rows)
    found = []
    given = data.draw(st.sampled_from([bytes(buffer), buffer]), "read-only or not")
    for copy, count in copies.batches(columns(given).part(first, last)):
        view = memoryview(copy)
        layout = prove(view, count)
        assert count <= max(batch_rows, *map(len, stored))
        verify_header(view, layout)
        verify_messages(view, layout)
        header = read_header(view)
        assert header[:3] == (0, 0, 0)
        for frame in frames(view):
            origin_us = header.origin_timestamp_us + frame.timestamp_delta_us
            found.append((bytes(frame.payload), frame.id, origin_us))
    wanted = [
        (message.payload, message.id, message.origin_timestamp_us) for batch in stored for message in batch
    ]
    assert found == wanted[first:last]


def test_large_batches_are_sent_as_they_are_and_small_ones_together():
    large = as_stored(build([NewMessage(b"x" * 1000, n + 1) for n in range(200)]), 0, 0)
    small = [as_stored(build([NewMessage(b"s", n + 1)]), 0, 200 + n) for n in range(50)]
    copies = list(RawCopies(1 << 20, 10_000).batches(columns(b"".join([large, *small]))))
    assert [count for _, count in copies] == [200, 50]
    assert copies[0][0][256:] == large[256:]


def test_a_split_passes_through_a_row():
    split = Split(3, 5, 2**40, 1794789144442806, 100)
    (row,) = _SplitRows().fetch(split)
    assert list(splits_of([row])) == [split]
    assert row.schema.names == SplitSource({}).schema().fieldNames()


@pytest.fixture(autouse=True)
def no_connections_left():
    yield
    close_all()


@pytest.fixture
def topics(borzoi):
    borzoi.create_stream("s")
    borzoi.create_topic("s", "in", 3)
    borzoi.create_topic("s", "out", 2)
    for partition in range(3):
        for batch in range(4):
            borzoi.send_messages(
                "s",
                "in",
                partition,
                [SendMessage(f"{partition}-{batch}-{n}", n + 1, {"key": f"k{n % 3}"}) for n in range(10)],
            )
    return borzoi


@pytest.fixture
def run(topics, borzoi_server):
    """Copies splits of the topic "in" to "out", as a task and the driver do."""

    def run(splits, fn=None, *, rows=ROWS, **given):
        source = {"connection": borzoi_server.connection_string, "stream": "s", "topic": "in"}
        options = SinkOptions.of({**source, "topic": "out", **given}, PIPE_MODES)
        copier = Copier(source, options, 2, rows, pickled(fn) if fn else "")
        created = topics.get_topic_extent("s", "in").created_at_us
        cut = [Split(partition, start, end, created, 50) for partition, start, end in splits]
        report = copier.stage(cut, ATTEMPT)
        epochs.commit(topics, options.target, 0, [report])
        return report

    return run


def stored(client, partition):
    return client.poll_messages("s", "out", partition, PollingStrategy.First(), auto_commit=False)


def texts(client, partition):
    return [message.payload.decode() for message in stored(client, partition)]


def expected(partition, start=0, end=40):
    return [f"{partition}-{n // 10}-{n % 10}" for n in range(start, end)]


@pytest.mark.parametrize("here", [{}, {"batchRows": "25"}], ids=["by the server", "here"])
def test_messages_are_copied_to_the_partition_of_the_same_number(topics, run, here):
    run([(0, 0, 40), (1, 7, 33), (2, 0, 40)], rows="", **here)
    assert texts(topics, 0) == expected(0) + expected(2)
    assert texts(topics, 1) == expected(1, 7, 33)
    original = topics.poll_messages("s", "in", 1, PollingStrategy.Offset(7), 26, auto_commit=False)
    for before, after in zip(original, stored(topics, 1), strict=True):
        assert (before.id, before.headers, before.origin_timestamp) == (
            after.id,
            after.headers,
            after.origin_timestamp,
        )


def test_messages_can_be_copied_anywhere(topics, run):
    run([(0, 0, 40)], rows="", partitioning="balanced", batchRows="10")
    assert sorted(texts(topics, 0) + texts(topics, 1)) == sorted(expected(0))


def test_messages_can_be_copied_by_key(topics, run):
    run([(0, 0, 40), (1, 0, 40)], partitioning="key")
    places = {}
    for partition in (0, 1):
        for message in stored(topics, partition):
            places.setdefault(message.headers["key"], set()).add(partition)
    assert len(places) == 3
    assert all(len(found) == 1 for found in places.values())
    assert len(texts(topics, 0) + texts(topics, 1)) == 80


def test_a_function_makes_the_rows_that_are_written(topics, run):
    def shout(rows):
        payloads = [payload.decode().replace("-", "!") for payload in rows["payload"].to_pylist()]
        return pa.RecordBatch.from_pydict({"payload": payloads, "id": rows["id"]})

    report = run([(0, 0, 40), (1, 0, 5)], shout)
    assert report.messages_count == 45
    assert texts(topics, 0) == [text.replace("-", "!") for text in expected(0)]
    assert [message.id for message in stored(topics, 1)] == [1, 2, 3, 4, 5]


def test_a_function_may_drop_rows_or_all_of_them(topics, run):
    report = run([(0, 0, 40)], lambda rows: rows.slice(0, 1).select(["payload"]))
    assert report.messages_count < 40
    assert texts(topics, 0)[0] == "0-0-0"


def test_a_function_may_return_nothing(topics, run):
    assert run([(0, 0, 40)], lambda _: None).messages_count == 0
    assert texts(topics, 0) == []


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda rows: rows.to_pylist(), TransformFailed, "returned a list"),
        (lambda rows: rows.select(["offset"]), UnsuitableColumns, '"payload" is missing'),
        (lambda rows: rows.rename_columns(["x", *rows.schema.names[1:]]), UnsuitableColumns, 'column "x"'),
    ],
)
def test_what_a_function_returns_is_checked(run, fn, error, text):
    with pytest.raises(error, match=text):
        run([(0, 0, 40)], fn)


def test_a_format_writes_what_a_function_returns(topics, run):
    run([(0, 0, 2)], lambda rows: rows.select(["offset"]), format="json")
    assert [json.loads(message.payload) for message in stored(topics, 0)] == [{"offset": 0}, {"offset": 1}]


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ({}, {}, '"connection" is missing'),
        ({"endingOffsets": "latest"}, {}, 'option "endingOffsets"'),
        ({}, {"partitionning": "key"}, 'did you mean "partitioning"'),
        ({}, {"topic": ""}, '"topic" is missing'),
        ({}, {"epoch": 3, "producer": "p"}, "counts its epochs itself"),
    ],
)
def test_options_are_checked_before_anything_starts(source, target, text):
    place = {} if "connection" in text else {"connection": "iggy://iggy:iggy@127.0.0.1:1"}
    with pytest.raises(InvalidOptionValue, match=text):
        pipe(
            {**place, "stream": "s", "topic": "in", **source},
            checkpoint="nowhere",
            **{"stream": "s", "topic": "out", **target},
        )


def test_a_dataframe_is_no_source():
    with pytest.raises(TypeError, match="rows of a DataFrame are in the JVM already"):
        pipe(object(), checkpoint="nowhere", stream="s", topic="t")


def test_what_is_no_function_is_refused():
    place = {"connection": "iggy://iggy:iggy@127.0.0.1:1", "stream": "s", "topic": "in"}
    with pytest.raises(TypeError, match="fn is a function"):
        pipe(place, "abc", checkpoint="nowhere", stream="s", topic="out")


def test_a_function_that_cannot_be_sent_is_refused():
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot be sent to Spark's workers"):
        pickled(lambda rows: rows if lock else None)
