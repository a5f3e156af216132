import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from borzoi.broker.access import GRANTS, allows
from borzoi.model.access import Access
from borzoi.model.permissions import (
    ROOT_PERMISSIONS,
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)

STREAM, OTHER_STREAM = 0, 7
TOPIC, OTHER_TOPIC = 0, 3

OPEN = {Access.PUBLIC, Access.AUTHENTICATED}

# The rules as the protocol states them, spelled out flag by flag: g global, s that stream, t that topic.
RULES = {
    Access.READ_SERVERS: "g.manage_servers g.read_servers",
    Access.READ_USERS: "g.manage_users g.read_users",
    Access.MANAGE_USERS: "g.manage_users",
    Access.LIST_STREAMS: "g.manage_streams g.read_streams",
    Access.READ_STREAM: "g.manage_streams g.read_streams s.manage_stream s.read_stream",
    Access.CREATE_STREAM: "g.manage_streams",
    Access.MANAGE_STREAM: "g.manage_streams s.manage_stream",
    Access.CREATE_TOPIC: "g.manage_streams g.manage_topics s.manage_stream s.manage_topics",
    Access.LIST_TOPICS: (
        "g.read_streams g.manage_streams g.manage_topics g.read_topics "
        "s.manage_stream s.read_stream s.manage_topics s.read_topics"
    ),
    Access.READ_TOPIC: (
        "g.read_streams g.manage_streams g.manage_topics g.read_topics "
        "s.manage_stream s.read_stream s.manage_topics s.read_topics "
        "t.manage_topic t.read_topic"
    ),
    Access.MANAGE_TOPIC: "g.manage_streams g.manage_topics s.manage_stream s.manage_topics t.manage_topic",
    Access.POLL: (
        "g.poll_messages g.read_topics g.manage_topics g.read_streams g.manage_streams "
        "s.poll_messages s.read_topics s.manage_topics s.read_stream s.manage_stream "
        "t.poll_messages t.read_topic t.manage_topic"
    ),
    Access.SEND: (
        "g.send_messages g.manage_topics g.manage_streams "
        "s.send_messages s.manage_topics s.manage_stream "
        "t.send_messages t.manage_topic"
    ),
}


def flags_of(level):
    return [field.name for field in fields(level) if field.name != "topics"]


def general(flag):
    return Permissions(GlobalPermissions(**{flag: True}))


def on_stream(stream_id, flag):
    return Permissions(streams={stream_id: StreamPermissions(**{flag: True})})


def on_topic(stream_id, topic_id, flag):
    topics = {topic_id: TopicPermissions(**{flag: True})}
    return Permissions(streams={stream_id: StreamPermissions(topics=topics)})


# Every single flag at every place it can stand: its name in RULES (if it can count), and permissions with
# nothing but that flag.
SINGLE_FLAGS = [
    *((f"g.{flag}", general(flag)) for flag in flags_of(GlobalPermissions)),
    *((f"s.{flag}", on_stream(STREAM, flag)) for flag in flags_of(StreamPermissions)),
    *((f"other-stream.{flag}", on_stream(OTHER_STREAM, flag)) for flag in flags_of(StreamPermissions)),
    *((f"t.{flag}", on_topic(STREAM, TOPIC, flag)) for flag in flags_of(TopicPermissions)),
    *((f"other-topic.{flag}", on_topic(STREAM, OTHER_TOPIC, flag)) for flag in flags_of(TopicPermissions)),
    *((f"elsewhere.{flag}", on_topic(OTHER_STREAM, TOPIC, flag)) for flag in flags_of(TopicPermissions)),
]


def test_every_right_has_a_rule():
    assert set(RULES) | OPEN == set(Access)
    assert set(GRANTS) == set(RULES)


@pytest.mark.parametrize("access", RULES)
def test_a_single_flag_grants_exactly_what_the_rules_say(access):
    granted = {place for place, permissions in SINGLE_FLAGS if allows(permissions, access, STREAM, TOPIC)}
    assert granted == set(RULES[access].split())


@pytest.mark.parametrize("access", RULES)
def test_flags_of_a_stream_count_only_if_the_stream_is_named(access):
    for place, permissions in SINGLE_FLAGS:
        expected = place in RULES[access].split() and place.startswith("g.")
        assert allows(permissions, access) is expected, place


@pytest.mark.parametrize("access", RULES)
def test_flags_of_a_topic_count_only_if_the_topic_is_named(access):
    for place, permissions in SINGLE_FLAGS:
        expected = place in RULES[access].split() and not place.startswith("t.")
        assert allows(permissions, access, STREAM) is expected, place


@pytest.mark.parametrize("access", Access)
def test_no_permissions_allow_only_what_needs_none(access):
    assert allows(None, access, STREAM, TOPIC) is (access in OPEN)
    assert allows(Permissions(), access, STREAM, TOPIC) is (access in OPEN)


@pytest.mark.parametrize("access", Access)
def test_root_permissions_allow_everything(access):
    assert allows(ROOT_PERMISSIONS, access)
    assert allows(ROOT_PERMISSIONS, access, STREAM, TOPIC)


def test_reading_never_allows_sending():
    readers = Permissions(
        GlobalPermissions(read_streams=True, read_topics=True, poll_messages=True),
        {STREAM: StreamPermissions(read_stream=True, read_topics=True, poll_messages=True)},
    )
    assert not allows(readers, Access.SEND, STREAM, TOPIC)


ids = st.sampled_from([STREAM, OTHER_STREAM])
topic_permissions = st.builds(TopicPermissions, *[st.booleans()] * 4)
stream_permissions = st.builds(
    StreamPermissions, *[st.booleans()] * 6, st.dictionaries(ids, topic_permissions, max_size=2)
)
all_permissions = st.builds(
    Permissions,
    st.builds(GlobalPermissions, *[st.booleans()] * 10),
    st.dictionaries(ids, stream_permissions, max_size=2),
)


@given(
    permissions=all_permissions,
    flag=st.one_of(
        st.tuples(st.just("general"), st.sampled_from(flags_of(GlobalPermissions))),
        st.tuples(st.just("stream"), st.sampled_from(flags_of(StreamPermissions))),
        st.tuples(st.just("topic"), st.sampled_from(flags_of(TopicPermissions))),
    ),
    changed=st.tuples(ids, ids),
    asked=st.tuples(ids, ids),
    access=st.sampled_from(Access),
)
def test_one_more_flag_never_takes_a_right_away(permissions, flag, changed, asked, access):
    level, name = flag
    stream_id, topic_id = changed
    stream = permissions.streams.get(stream_id, StreamPermissions())
    if level == "general":
        more = replace(permissions, general=replace(permissions.general, **{name: True}))
    elif level == "stream":
        stream = replace(stream, **{name: True})
        more = replace(permissions, streams={**permissions.streams, stream_id: stream})
    else:
        topic = replace(stream.topics.get(topic_id, TopicPermissions()), **{name: True})
        stream = replace(stream, topics={**stream.topics, topic_id: topic})
        more = replace(permissions, streams={**permissions.streams, stream_id: stream})
    assert allows(more, access, *asked) or not allows(permissions, access, *asked)


@given(permissions=all_permissions, asked=st.tuples(ids, ids), access=st.sampled_from(list(RULES)))
def test_several_flags_grant_what_one_of_them_grants(permissions, asked, access):
    stream_id, topic_id = asked
    stream = permissions.streams.get(stream_id, StreamPermissions())
    topic = stream.topics.get(topic_id, TopicPermissions())
    held = {
        f"{letter}.{flag}"
        for letter, level in (("g", permissions.general), ("s", stream), ("t", topic))
        for flag in flags_of(level)
        if getattr(level, flag)
    }
    assert allows(permissions, access, stream_id, topic_id) is bool(held & set(RULES[access].split()))
