"""Options as users write them: what they become, and what is said about those that are wrong."""

import pytest

pytest.importorskip("pyspark", reason="needs borzoi[spark]")

from borzoi.model.errors import InvalidOptionValue
from borzoi.spark.offsets import Bound, Word
from borzoi.spark.options import TARGET_OPTIONS, Options, Target, redacted
from borzoi.spark.source_options import DEFAULT_SPLIT_BYTES, DEFAULT_TRIGGER_BYTES, SourceOptions

CONNECTION = "iggy://root:s3cret@127.0.0.1:8090"
TARGET = {"connection": CONNECTION, "stream": "orders", "topic": "events"}


def source(**given):
    return SourceOptions.of(TARGET | given)


def fault(**given):
    with pytest.raises(InvalidOptionValue) as caught:
        source(**given)
    return str(caught.value)


def test_only_the_target_has_to_be_given():
    found = source()
    assert found.target == Target(CONNECTION, "orders", "events", 60.0)
    assert found.starting == Bound(Word.EARLIEST)
    assert found.ending == Bound(Word.LATEST)
    assert found.limits.bytes_max == DEFAULT_TRIGGER_BYTES
    assert found.limits.rows_max is None
    assert found.split_bytes_max == DEFAULT_SPLIT_BYTES
    assert found.fail_on_data_loss
    assert found.group == "spark"


@pytest.mark.parametrize("name", ["connection", "stream", "topic"])
def test_a_missing_option_is_named_with_an_example(name):
    given = {key: value for key, value in TARGET.items() if key != name}
    with pytest.raises(InvalidOptionValue, match=rf'"{name}" is missing: \.option\("{name}", "'):
        SourceOptions.of(given)


def test_names_have_no_case():
    assert SourceOptions.of({name.upper(): value for name, value in TARGET.items()}).target.topic == "events"
    assert source(MAXROWSPERTRIGGER="7").limits.rows_max == 7


def test_an_unknown_option_is_refused_and_the_nearest_is_named():
    assert 'there is no option "startingofsets"; did you mean "startingOffsets"?' in fault(startingofsets="x")


def test_an_unknown_option_that_is_like_none_gets_the_whole_list():
    assert "known are connection, stream, topic" in fault(zzzz="x")


@pytest.mark.parametrize("name", ["path", "checkpointLocation", "queryName"])
def test_what_spark_adds_by_itself_is_passed_over(name):
    assert source(**{name: "anything"}) == source()


def test_a_table_is_refused_because_spark_would_forget_its_options():
    assert "use CREATE TEMPORARY VIEW" in fault(**{"option.topic": "t", "provider": "borzoi"})


def test_digits_are_ids():
    found = source(stream="7", topic="0007").target
    assert (found.stream, found.topic) == (7, 7)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("maxBytesPerTrigger", "64 apples", "unknown unit"),
        ("maxBytesPerTrigger", "-1", "is not a size"),
        ("maxRowsPerTrigger", "many", "write a whole number from 1"),
        ("minPartitions", "0", "write a whole number from 1 to"),
        ("failOnDataLoss", "maybe", "write true or false"),
        ("deadline", "0", "longer than zero"),
        ("deadline", "soon", "is not a duration"),
        ("startingOffsets", "oldest", "write earliest or latest or group"),
        ("startingOffsets", '{"0": ', "it is not JSON"),
        ("startingOffsets", '{"zero": 1}', '"zero" is no partition'),
        ("startingOffsets", '{"0": -2}', 'partition 0: write an offset, "earliest" or "latest"'),
        ("startingOffsets", '{"0": true}', 'partition 0: write an offset, "earliest" or "latest"'),
        ("startingOffsets", '{"0": 9223372036854775808}', "partition 0: write an offset"),
        ("endingOffsets", "earliest", "write latest"),
        ("startingTimestamp", "yesterday", "write a time like"),
        ("startingTimestamp", "1969-12-31T23:59:59Z", "before 1970"),
        ("columns", "offset,,payload", "a name is empty"),
        ("group", "12", "a group is named here"),
        ("group", "g" * 256, "g"),
        ("format", "jsn", "write raw or text or json"),
        ("schema", "user string", 'say of which "format" they are'),
        ("mode", "FAILFAST", 'say of which "format" they are'),
        ("stream", "s" * 256, "s"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(option, value, said):
    text = fault(**{option: value})
    assert f'option "{option}"' in text
    assert said in text


@pytest.mark.parametrize(
    ("written", "size"), [("1048576", 1 << 20), ("64mb", 64_000_000), ("1 MiB", 1 << 20), ("unlimited", None)]
)
def test_sizes_may_have_units(written, size):
    assert source(maxBytesPerTrigger=written).limits.bytes_max == size


def test_the_trigger_can_be_unlimited_by_rows_too():
    assert source(maxRowsPerTrigger="unlimited").limits.rows_max is None


@pytest.mark.parametrize(
    "written",
    ["1767268800000000", "2026-01-01T12:00:00Z", "2026-01-01T12:00:00", "2026-01-01T14:00:00+02:00"],
)
def test_a_moment_is_microseconds_or_iso_8601_which_is_utc_without_a_zone(written):
    assert source(startingTimestamp=written).starting == Bound(timestamp_us=1767268800000000)


def test_partitions_may_start_at_different_places():
    found = source(startingOffsets='{"0": 5, "1": "latest", "2": "earliest"}').starting
    assert found.each == {0: 5, 1: Word.LATEST, 2: Word.EARLIEST}
    assert found.word is Word.EARLIEST


def test_a_start_is_an_offset_or_a_time_not_both():
    assert 'give either "startingOffsets" or "startingTimestamp"' in fault(
        startingOffsets="latest", startingTimestamp="0"
    )


def test_starting_where_a_group_is_needs_its_name():
    assert 'name it with the option "group"' in fault(startingOffsets="group")
    assert source(startingOffsets="group", group="billing").starting.word is Word.GROUP


def test_options_of_the_other_mode_are_refused():
    given = TARGET | {"endingOffsets": "latest"}
    with pytest.raises(InvalidOptionValue, match="it concerns reads that end"):
        SourceOptions.of(given).for_stream(given)
    given = TARGET | {"maxRowsPerTrigger": "5"}
    with pytest.raises(InvalidOptionValue, match="it concerns streams"):
        SourceOptions.of(given).for_batch(given)


@pytest.mark.parametrize(
    "connection",
    [
        "kafka://root:s3cret@127.0.0.1",
        "iggy://root:s3cret@127.0.0.1:notaport",
        "iggy://root:s3cret@host?nonsense=1",
        "iggy://root:p@s3cret@127.0.0.1",
        "iggy://root:p@rt?s3cret@127.0.0.1",
        "root:s3cret@127.0.0.1",
    ],
)
def test_no_error_shows_a_password(connection):
    text = fault(connection=connection)
    assert text.startswith('Invalid option value: option "connection"')
    assert "s3cret" not in text


def test_a_target_shows_no_password():
    target = source().target
    assert "s3cret" not in repr(target) + str(target)
    assert "s3cret" not in repr(source())
    assert redacted(f"cannot reach {CONNECTION}") == "cannot reach iggy://***@127.0.0.1:8090"


def test_a_connection_string_given_in_the_wrong_place_is_redacted():
    assert "s3cret" not in fault(minPartitions=CONNECTION)
    with pytest.raises(InvalidOptionValue) as caught:
        Options({CONNECTION: "x"}, TARGET_OPTIONS)
    assert "s3cret" not in str(caught.value)


def test_empty_values_count_as_not_given():
    assert source(maxRowsPerTrigger=" ", columns="") == source()
