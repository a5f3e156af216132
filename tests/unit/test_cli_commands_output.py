"""What commands print: tables that line up, and messages as JSON that can be read back exactly."""

import json

from hypothesis import given
from hypothesis import strategies as st

from borzoi import Compression, HeaderKind, SendMessage
from borzoi.cli.message_lines import message_fields, parse_line
from borzoi.cli.output import Output, one_line, print_table
from borzoi.model.headers import encode_user_headers, from_python
from support.received import received

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
fields = st.one_of(
    texts,
    st.binary(min_size=1, max_size=20),
    st.booleans(),
    st.integers(-(2**127), 2**128 - 1),
    st.floats(allow_nan=False),
    st.integers(0, 255).map(lambda number: from_python(number, HeaderKind.UINT8)),
)


@given(
    payload=st.one_of(st.binary(min_size=1), texts.map(str.encode)),
    number=st.integers(0, 2**128 - 1),
    headers=st.dictionaries(texts, fields, max_size=3),
)
def test_a_message_that_is_printed_is_read_back_as_it_was(payload, number, headers):
    block = encode_user_headers(headers)
    line = json.dumps(message_fields(received(payload, id=number, headers=block)))
    read = parse_line(line.encode())
    made = read.payload.encode() if isinstance(read.payload, str) else read.payload
    assert (made, read.id) == (payload, number)
    assert encode_user_headers(read.headers) == block


@given(st.text())
def test_whatever_is_printed_stays_on_its_line(text):
    assert one_line(text).isprintable()


def test_headers_of_a_line_may_be_plain_values():
    read = parse_line(b'{"payload": [1, "\xc3\xa9"], "headers": {"n": 1, "ok": true}}')
    assert read == SendMessage('[1,"é"]', None, {"n": 1, "ok": True})


def test_columns_line_up_and_numbers_are_aligned_to_the_right(capsys):
    print_table(
        ("Name", "Size", "Kind", "End"),
        [("日本", 5, Compression.NONE, "x"), ("b", 100, Compression.GZIP, None)],
    )
    assert capsys.readouterr().out == (
        "Name  Size  Kind  End\n"
        "日本     5  none  x\n"
        "b      100  gzip  -\n"
    )  # fmt: skip


def test_an_empty_list_is_a_head_without_rows_and_an_empty_array(capsys):
    Output(as_json=False).rows((), ("ID", "Name"), ())
    Output(as_json=True).rows((), ("ID", "Name"), ())
    assert capsys.readouterr().out == "ID  Name\n[]\n"
