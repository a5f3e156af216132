"""Options of topics: what a client may send, what is kept, and what is answered."""

import pytest

from borzoi.broker.options import OPTIONS
from borzoi.model import requests as rq
from borzoi.model.errors import InvalidOptionValue, InvalidTopicSize, UnsupportedOptionKey
from borzoi.model.limits import U64_MAX
from borzoi.model.values import Compression, HeaderKind, OptionScope, TypedValue, UserStatus
from support.in_process import LocalBroker

GIB = 1 << 30


@pytest.fixture
def local(tmp_path):
    with LocalBroker(tmp_path / "data") as broker:
        broker.ask(rq.CreateStream("s"))
        yield broker


def u64(number):
    return TypedValue(HeaderKind.UINT64, number.to_bytes(8, "little"))


def u32(number):
    return TypedValue(HeaderKind.UINT32, number.to_bytes(4, "little"))


def text(value):
    return TypedValue(HeaderKind.STRING, value.encode())


def flag(value):
    return TypedValue(HeaderKind.BOOL, bytes([value]))


DEFAULTS = {
    "compression_algorithm": text("none"),
    "message_expiry": u64(U64_MAX),
    "max_topic_size": u64(U64_MAX),
    "segment_size": u64(GIB),
    "durability": text("replicated"),
    "consumer_offset_durability": text("replicated"),
    "messages_required_to_save": u32(1024),
    "size_of_messages_required_to_save": u64(1 << 20),
    "preallocate_segments": flag(False),
}

# What a client sends, and what is kept of it; None = as if it had not been sent.
ACCEPTED = [
    ("compression_algorithm", text("gzip"), text("gzip")),
    ("compression_algorithm", text("None"), text("none")),
    ("compression_algorithm", TypedValue(HeaderKind.UINT8, b"\x02"), text("gzip")),
    ("message_expiry", u64(5), u64(5)),
    ("message_expiry", text("7 days"), u64(7 * 86_400_000_000)),
    ("message_expiry", text("none"), u64(U64_MAX)),
    ("message_expiry", u64(0), None),
    ("max_topic_size", u64(GIB), u64(GIB)),
    ("max_topic_size", text("2 GiB"), u64(2 * GIB)),
    ("max_topic_size", text("unlimited"), u64(U64_MAX)),
    ("max_topic_size", u64(0), None),
    ("segment_size", u64(1 << 20), u64(1 << 20)),
    ("segment_size", u64(GIB), u64(GIB)),
    ("segment_size", text("2 MiB"), u64(2 << 20)),
    ("segment_size", u64(0), None),
    ("durability", text("persisted"), text("persisted")),
    ("durability", text("PERSISTED"), text("persisted")),
    ("consumer_offset_durability", text("Replicated"), text("replicated")),
    ("messages_required_to_save", u32(1), u32(1)),
    ("messages_required_to_save", u32(1 << 24), u32(1 << 24)),
    ("messages_required_to_save", text("77"), u32(77)),
    ("size_of_messages_required_to_save", u64(GIB), u64(GIB)),
    ("size_of_messages_required_to_save", text("4 KiB"), u64(4096)),
    ("size_of_messages_required_to_save", u64(0), None),
    ("preallocate_segments", flag(False), flag(False)),
    ("preallocate_segments", text("false"), flag(False)),
]

REFUSED = [
    ("compression_algorithm", text("zstd"), InvalidOptionValue),
    ("compression_algorithm", TypedValue(HeaderKind.UINT8, b"\x03"), InvalidOptionValue),
    ("compression_algorithm", u32(1), InvalidOptionValue),
    ("compression_algorithm", TypedValue(HeaderKind.STRING, b"\xff"), InvalidOptionValue),
    ("message_expiry", text("soon"), InvalidOptionValue),
    ("message_expiry", u32(5), InvalidOptionValue),
    ("message_expiry", TypedValue(HeaderKind.UINT64, b"\x01"), InvalidOptionValue),
    ("message_expiry", text("999999999999999999999 days"), InvalidOptionValue),
    ("max_topic_size", text("much"), InvalidOptionValue),
    ("max_topic_size", u64(GIB - 1), InvalidTopicSize),
    ("max_topic_size", u64(1), InvalidTopicSize),
    ("segment_size", u64((1 << 20) - 512), InvalidOptionValue),
    ("segment_size", u64(GIB + 512), InvalidOptionValue),
    ("segment_size", u64((1 << 20) + 1), InvalidOptionValue),
    ("durability", text("maybe"), InvalidOptionValue),
    ("durability", flag(True), InvalidOptionValue),
    ("consumer_offset_durability", text(" persisted"), InvalidOptionValue),
    ("messages_required_to_save", u32(0), InvalidOptionValue),
    ("messages_required_to_save", u32((1 << 24) + 1), InvalidOptionValue),
    ("messages_required_to_save", u64(5), InvalidOptionValue),
    ("messages_required_to_save", text("-1"), InvalidOptionValue),
    ("messages_required_to_save", text("1_000"), InvalidOptionValue),
    ("messages_required_to_save", text("9" * 200), InvalidOptionValue),
    ("size_of_messages_required_to_save", u64(GIB + 1), InvalidOptionValue),
    ("preallocate_segments", TypedValue(HeaderKind.BOOL, b"\x02"), InvalidOptionValue),
    ("preallocate_segments", TypedValue(HeaderKind.BOOL, b"\x00\x00"), InvalidOptionValue),
    ("preallocate_segments", text("perhaps"), InvalidOptionValue),
    ("enforce_fsync", flag(True), UnsupportedOptionKey),
    ("Durability", text("persisted"), UnsupportedOptionKey),
]


def test_every_option_of_the_catalogue_is_tried():
    assert set(OPTIONS) == set(DEFAULTS) == {key for key, _, _ in ACCEPTED}
    assert {key for key, _, _ in REFUSED} >= set(OPTIONS)


@pytest.mark.parametrize(("key", "sent", "kept"), ACCEPTED)
def test_an_option_is_kept_in_one_form_and_the_others_are_derived(local, key, sent, kept):
    explicit = {} if kept is None else {key: kept}
    topic = local.ask(rq.CreateTopic("s", 1, "t", {key: sent})).topic
    assert topic.explicit_options == explicit
    assert topic.derived_options == {name: value for name, value in DEFAULTS.items() if name not in explicit}
    local.reopen()
    assert local.ask(rq.GetTopic("s", "t")).topic == topic


@pytest.mark.parametrize(("key", "sent", "error"), REFUSED)
def test_an_option_that_breaks_a_rule_is_refused_and_nothing_is_made(local, key, sent, error):
    with pytest.raises(error):
        local.ask(rq.CreateTopic("s", 1, "t", {key: sent}))
    assert local.ask(rq.GetTopics("s")) == ()
    assert not local.directory.topic(0, 0).exists()


def test_the_size_limit_is_compared_with_the_segment_size_that_holds(local):
    small = {"segment_size": u64(1 << 20), "max_topic_size": u64(1 << 20)}
    assert local.ask(rq.CreateTopic("s", 1, "t", small)).topic.max_topic_size == 1 << 20
    with pytest.raises(InvalidTopicSize):
        local.ask(rq.UpdateTopic("s", "t", "t", {"max_topic_size": u64((1 << 20) - 1)}))


def test_reserved_space_is_bounded_over_all_partitions(local):
    reserved = {"preallocate_segments": flag(True)}
    with pytest.raises(InvalidOptionValue):
        local.ask(rq.CreateTopic("s", 65, "t", reserved))
    local.ask(rq.CreateTopic("s", 64, "t", reserved))
    with pytest.raises(InvalidOptionValue):
        local.ask(rq.CreatePartitions("s", "t", 1))


def test_an_update_changes_what_it_names_and_keeps_the_rest(local):
    local.ask(rq.CreateTopic("s", 1, "t", {"durability": text("persisted"), "message_expiry": u64(5)}))
    local.ask(
        rq.UpdateTopic("s", "t", "t", {"compression_algorithm": text("gzip"), "message_expiry": u64(9)})
    )
    local.ask(rq.UpdateTopic("s", "t", "t", {"message_expiry": u64(0)}))  # as if it had not been sent
    topic = local.ask(rq.GetTopic("s", "t")).topic
    assert topic.explicit_options == {
        "durability": text("persisted"),
        "message_expiry": u64(9),
        "compression_algorithm": text("gzip"),
    }
    assert (topic.message_expiry_us, topic.compression) == (9, Compression.GZIP)


@pytest.mark.parametrize(
    "key", sorted(set(DEFAULTS) - {"compression_algorithm", "message_expiry", "max_topic_size"})
)
def test_what_is_fixed_at_creation_cannot_be_updated(local, key):
    local.ask(rq.CreateTopic("s", 1, "t"))
    with pytest.raises(UnsupportedOptionKey):
        local.ask(rq.UpdateTopic("s", "t", "renamed", {key: DEFAULTS[key]}))
    assert local.ask(rq.GetTopic("s", "t")) is not None


def test_streams_and_users_have_no_options(local):
    some = {"durability": text("persisted")}
    local.ask(rq.CreateUser("user", "secret", UserStatus.ACTIVE, None))
    for request in (
        rq.CreateStream("r", some),
        rq.UpdateStream("s", "s", some),
        rq.CreateUser("other", "secret", UserStatus.ACTIVE, None, some),
        rq.UpdateUser("user", options=some),
    ):
        with pytest.raises(UnsupportedOptionKey):
            local.ask(request)


def test_options_can_be_described(local):
    described = local.ask(rq.DescribeOptions(OptionScope.TOPIC))
    assert {spec.key: TypedValue(spec.kind, spec.default) for spec in described} == DEFAULTS
    assert all(spec.description for spec in described)
    assert local.ask(rq.DescribeOptions(OptionScope.STREAM)) == ()
    assert local.ask(rq.DescribeOptions(OptionScope.USER)) == ()


def test_defaults_come_from_the_settings_of_the_server(tmp_path):
    settings = {"segment_bytes": 1 << 20, "message_expiry_us": 7, "max_topic_bytes": 1 << 21}
    with LocalBroker(tmp_path / "data", **settings) as local:
        local.ask(rq.CreateStream("s"))
        topic = local.ask(rq.CreateTopic("s", 1, "t")).topic
        assert (topic.message_expiry_us, topic.max_topic_size) == (7, 1 << 21)
        assert topic.derived_options["segment_size"] == u64(1 << 20)
        local.reopen(message_expiry_us=8)
        assert local.ask(rq.GetTopic("s", "t")).topic.message_expiry_us == 8
