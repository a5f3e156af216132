"""Options of a topic, from arguments to what a request carries.

A text, number or flag under a key that the server adds later goes through `options` in the kind that suits
its Python type; which keys and values there are is the server's business (`describe_options`).
"""

import datetime as dt
from collections.abc import Mapping

from borzoi.client.values import expiry_us, size_bytes
from borzoi.model.errors import InvalidHeaderValue, InvalidOptionValue
from borzoi.model.headers import HeaderObject, from_python
from borzoi.model.units import MAX_TOPIC_SIZE_UNLIMITED
from borzoi.model.values import Compression, HeaderKind, Options, TypedValue

OptionValue = TypedValue | HeaderObject


def encode_options(options: Mapping[str, OptionValue] | None) -> Options:
    if not options:
        return {}
    return {key: _typed(key, value) for key, value in options.items()}


def topic_options(
    *,
    compression_algorithm: Compression | str | None,
    message_expiry: dt.timedelta | int | str | None,
    max_topic_size: int | str | None,
    segment_size: int | str | None = None,
    durability: str | None = None,
    consumer_offset_durability: str | None = None,
    messages_required_to_save: int | None = None,
    size_of_messages_required_to_save: int | str | None = None,
    preallocate_segments: bool | None = None,
    options: Mapping[str, OptionValue] | None,
) -> Options:
    """What was given; what is None is the server's to choose, or stays as it is."""
    if isinstance(compression_algorithm, Compression):
        compression_algorithm = compression_algorithm.name.lower()
    named: dict[str, tuple[HeaderKind, HeaderObject | None]] = {
        "compression_algorithm": (HeaderKind.STRING, compression_algorithm),
        "message_expiry": (
            HeaderKind.UINT64,
            None if message_expiry is None else expiry_us(message_expiry),
        ),
        "max_topic_size": (HeaderKind.UINT64, _max_topic_size(max_topic_size)),
        "segment_size": (HeaderKind.UINT64, None if segment_size is None else size_bytes(segment_size)),
        "durability": (HeaderKind.STRING, durability),
        "consumer_offset_durability": (HeaderKind.STRING, consumer_offset_durability),
        "messages_required_to_save": (HeaderKind.UINT32, messages_required_to_save),
        "size_of_messages_required_to_save": (
            HeaderKind.UINT64,
            None
            if size_of_messages_required_to_save is None
            else size_bytes(size_of_messages_required_to_save),
        ),
        "preallocate_segments": (HeaderKind.BOOL, preallocate_segments),
    }
    given = {key: _typed(key, value, kind) for key, (kind, value) in named.items() if value is not None}
    return {**given, **encode_options(options)}


def _max_topic_size(value: int | str | None) -> int | None:
    if value is None:
        return None
    return MAX_TOPIC_SIZE_UNLIMITED if value == "unlimited" else size_bytes(value)


def _typed(key: str, value: OptionValue, kind: HeaderKind | None = None) -> TypedValue:
    if isinstance(value, TypedValue):
        return value
    try:
        return from_python(value, kind)
    except InvalidHeaderValue as error:
        raise InvalidOptionValue(f"{key}: {error.detail}") from None
