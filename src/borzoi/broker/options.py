"""The options a topic can have: their kinds, defaults and rules.

Clients send them as text or in the canonical kind; they are kept in the canonical kind. `TopicOptions`
is what the rest of the broker reads. Streams and users have no options.
"""

from collections.abc import Callable
from dataclasses import dataclass

from borzoi.broker.settings import BrokerSettings
from borzoi.model import limits
from borzoi.model.errors import InvalidOptionValue, InvalidTopicSize, UnsupportedOptionKey
from borzoi.model.replies import OptionSpec
from borzoi.model.units import parse_byte_size, parse_expiry, parse_max_topic_size
from borzoi.model.values import Compression, HeaderKind, Options, TypedValue

PERSISTED = "persisted"
REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class TopicOptions:
    compression: Compression
    message_expiry_us: int
    max_topic_bytes: int
    segment_bytes: int
    is_persisted: bool
    are_offsets_persisted: bool
    messages_required_to_save: int
    bytes_required_to_save: int
    preallocate_segments: bool


@dataclass(frozen=True, slots=True)
class _Option:
    """`canonical` turns what a client sent into the stored form, None = as if it had not been sent."""

    description: str
    is_updatable: bool
    default: Callable[[BrokerSettings], TypedValue]
    canonical: Callable[[TypedValue], TypedValue | None]


def _u64(number: int) -> TypedValue:
    return TypedValue(HeaderKind.UINT64, number.to_bytes(8, "little"))


def _u32(number: int) -> TypedValue:
    return TypedValue(HeaderKind.UINT32, number.to_bytes(4, "little"))


def _text(text: str) -> TypedValue:
    return TypedValue(HeaderKind.STRING, text.encode())


def _bool(flag: bool) -> TypedValue:
    return TypedValue(HeaderKind.BOOL, bytes([flag]))


def _as_text(value: TypedValue) -> str:
    try:
        return value.data.decode()
    except UnicodeDecodeError:
        raise ValueError("text that is not UTF-8") from None


def _number(value: TypedValue, kind: HeaderKind, size: int, parse: Callable[[str], int]) -> int:
    if value.kind is HeaderKind.STRING:
        return parse(_as_text(value))
    if value.kind is not kind or len(value.data) != size:
        raise ValueError(f"{value.kind.name.lower()} of {len(value.data)} bytes")
    return int.from_bytes(value.data, "little")


def _decimal(text: str) -> int:
    """Digits and nothing else; Python's own `int` takes signs, spaces, underscores and other scripts."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("not a decimal number")
    return int(text)


def _compression(value: TypedValue) -> TypedValue:
    if value.kind is HeaderKind.UINT8 and len(value.data) == 1:
        return _text(Compression(value.data[0]).name.lower())
    if value.kind is not HeaderKind.STRING:
        raise ValueError("neither text nor a code")
    return _text(Compression[_as_text(value).upper()].name.lower())


def _expiry(value: TypedValue) -> TypedValue | None:
    micros = _number(value, HeaderKind.UINT64, 8, parse_expiry)
    return _u64(micros) if micros else None


def _max_size(value: TypedValue) -> TypedValue | None:
    size = _number(value, HeaderKind.UINT64, 8, parse_max_topic_size)
    return _u64(size) if size else None


def _segment_size(value: TypedValue) -> TypedValue | None:
    size = _number(value, HeaderKind.UINT64, 8, parse_byte_size)
    if not size:
        return None
    if not limits.SEGMENT_BYTES_MIN <= size <= limits.SEGMENT_BYTES_MAX:
        raise ValueError("a segment has 1 MiB to 1 GiB")
    if size % limits.SEGMENT_BYTES_MULTIPLE:
        raise ValueError("a segment's size is a multiple of 512")
    return _u64(size)


def _durability(value: TypedValue) -> TypedValue:
    text = _as_text(value).lower()
    if value.kind is not HeaderKind.STRING or text not in (REPLICATED, PERSISTED):
        raise ValueError(f"{REPLICATED} or {PERSISTED}")
    return _text(text)


def _messages_to_save(value: TypedValue) -> TypedValue:
    count = _number(value, HeaderKind.UINT32, 4, _decimal)
    if not 1 <= count <= limits.MESSAGES_REQUIRED_TO_SAVE_MAX:
        raise ValueError(f"1 to {limits.MESSAGES_REQUIRED_TO_SAVE_MAX}")
    return _u32(count)


def _bytes_to_save(value: TypedValue) -> TypedValue | None:
    size = _number(value, HeaderKind.UINT64, 8, parse_byte_size)
    if size > limits.SEGMENT_BYTES_MAX:
        raise ValueError("at most 1 GiB")
    return _u64(size) if size else None


def _flag(value: TypedValue) -> TypedValue:
    if value.kind is HeaderKind.STRING:
        return _bool({"true": True, "false": False}[_as_text(value).lower()])
    if value.kind is not HeaderKind.BOOL or value.data not in (b"\0", b"\1"):
        raise ValueError("a boolean is one byte, 0 or 1")
    return value


OPTIONS: dict[str, _Option] = {
    "compression_algorithm": _Option(
        "How messages are compressed: none or gzip.",
        True,
        lambda _: _text("none"),
        _compression,
    ),
    "message_expiry": _Option(
        "How long messages are kept, in microseconds or as text such as '7 days'.",
        True,
        lambda settings: _u64(settings.message_expiry_us),
        _expiry,
    ),
    "max_topic_size": _Option(
        "How large the topic may grow, in bytes or as text such as '10 GiB'.",
        True,
        lambda settings: _u64(settings.max_topic_bytes),
        _max_size,
    ),
    "segment_size": _Option(
        "Size at which a segment is sealed and the next one begun.",
        False,
        lambda settings: _u64(settings.segment_bytes),
        _segment_size,
    ),
    "durability": _Option(
        "When a send is acknowledged: replicated (the operating system has it) or persisted (it is on disk).",
        False,
        lambda _: _text(REPLICATED),
        _durability,
    ),
    "consumer_offset_durability": _Option(
        "When a stored offset is acknowledged: replicated or persisted.",
        False,
        lambda _: _text(REPLICATED),
        _durability,
    ),
    "messages_required_to_save": _Option(
        "With fsync enforced: how many messages may wait for it.",
        False,
        lambda settings: _u32(settings.messages_required_to_save),
        _messages_to_save,
    ),
    "size_of_messages_required_to_save": _Option(
        "With fsync enforced: how many bytes may wait for it.",
        False,
        lambda settings: _u64(settings.bytes_required_to_save),
        _bytes_to_save,
    ),
    "preallocate_segments": _Option(
        "Reserve a segment's disk space when it is begun.",
        False,
        lambda _: _bool(False),
        _flag,
    ),
}


def canonical_options(sent: Options, *, is_update: bool = False) -> Options:
    """The options a client sent, checked and in their stored form."""
    result: Options = {}
    for key, value in sent.items():
        option = OPTIONS.get(key)
        if option is None or (is_update and not option.is_updatable):
            raise UnsupportedOptionKey(key)
        try:
            stored = option.canonical(value)
        except (ValueError, KeyError, OverflowError) as error:
            raise InvalidOptionValue(f"{key}: {error}") from None
        if stored is not None:
            result[key] = stored
    return result


def refuse_options(sent: Options) -> None:
    """For streams and users, which have none."""
    for key in sent:
        raise UnsupportedOptionKey(key)


def derived_options(explicit: Options, settings: BrokerSettings) -> Options:
    """Every option that was not set, with its default."""
    return {key: option.default(settings) for key, option in OPTIONS.items() if key not in explicit}


def effective_options(explicit: Options, settings: BrokerSettings) -> TopicOptions:
    values = {**derived_options(explicit, settings), **explicit}
    numbers = {
        key: int.from_bytes(value.data, "little")
        for key, value in values.items()
        if value.kind in (HeaderKind.UINT64, HeaderKind.UINT32, HeaderKind.BOOL)
    }
    return TopicOptions(
        Compression[_as_text(values["compression_algorithm"]).upper()],
        numbers["message_expiry"],
        numbers["max_topic_size"],
        numbers["segment_size"],
        _as_text(values["durability"]) == PERSISTED,
        _as_text(values["consumer_offset_durability"]) == PERSISTED,
        numbers["messages_required_to_save"],
        numbers["size_of_messages_required_to_save"],
        bool(numbers["preallocate_segments"]),
    )


def check_topic(options: TopicOptions, partitions_count: int) -> None:
    """Rules that concern several options at once."""
    if options.max_topic_bytes < options.segment_bytes:
        raise InvalidTopicSize(f"{options.max_topic_bytes} bytes are less than one segment")
    if options.preallocate_segments:
        total = options.segment_bytes * partitions_count
        if total > limits.PREALLOCATED_BYTES_MAX:
            raise InvalidOptionValue(f"preallocate_segments: {total} bytes in all are too many")


def option_specs(settings: BrokerSettings) -> tuple[OptionSpec, ...]:
    specs = []
    for key, option in OPTIONS.items():
        default = option.default(settings)
        specs.append(OptionSpec(key, default.kind, default.data, option.description))
    return tuple(specs)
