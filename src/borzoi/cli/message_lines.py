"""Messages as lines of JSON, printed by `message poll --json` and read by `message send --file`.

    payload              a text; when sending also an object, list, number or flag, which is sent as JSON
    payload_base64       instead of `payload`, for bytes that are no text
    id                   a number, or its digits as a text; printed as a text, because it has up to 128 bits
    headers              {"key": {"kind": "string", "value": "..."}}; when sending also {"key": value}
    offset, partition_id, timestamp, origin_timestamp
                         printed, and ignored when sending

The value of a header of kind `raw` is base64. A header whose key is not a text is printed by its value.
What is printed can be sent again as it is.
"""

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from borzoi.client.received import ReceivedMessage
    from borzoi.client.values import SendMessage
    from borzoi.model.headers import HeaderField, HeaderKey
    from borzoi.model.values import TypedValue

_PRINTED_ONLY = {"offset", "partition_id", "timestamp", "origin_timestamp"}
_READ = {"payload", "payload_base64", "id", "headers"}


def message_fields(message: "ReceivedMessage") -> dict[str, Any]:
    """What JSON says of a message."""
    fields: dict[str, Any] = {
        "offset": message.offset,
        "partition_id": message.partition_id,
        "timestamp": message.timestamp,
        "origin_timestamp": message.origin_timestamp,
        "id": str(message.id),
    }
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    if message.user_headers:
        fields["headers"] = {
            header_text(key): {"kind": value.kind.name.lower(), "value": _header_json(value)}
            for key, value in message.typed_headers.items()
        }
    return fields


def parse_line(line: bytes) -> "SendMessage":
    """The message that a line stands for; `ValueError` says what is wrong with it."""
    from borzoi.client.values import SendMessage

    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("no UTF-8") from None
    if not isinstance(fields, dict):
        raise ValueError('a message is an object, as {"payload": "hello"}')  # noqa: TRY004 - a fault of the line
    if unknown := fields.keys() - _READ - _PRINTED_ONLY:
        raise ValueError(f"unknown key {', '.join(sorted(unknown))}; known are {', '.join(sorted(_READ))}")
    return SendMessage(_payload(fields), _id(fields.get("id")), _headers(fields.get("headers", {})))


def parse_header(text: str) -> tuple[str, "TypedValue"]:
    """A header written as `key:kind:value`; the value may have further colons."""
    key, first, rest = text.partition(":")
    kind, second, value = rest.partition(":")
    if not (key and first and second):
        raise ValueError(f'"{text}" is no header; write key:kind:value, for example region:string:eu')
    return key, _typed(kind, value.encode() if kind == "raw" else value)


def header_text(value: "TypedValue") -> str:
    """A header's key or value for people."""
    from borzoi.model.headers import to_python

    shown = to_python(value)
    return shown.hex() if isinstance(shown, bytes) else str(shown)


def _header_json(value: "TypedValue") -> Any:
    from borzoi.model.headers import to_python

    shown = to_python(value)
    return base64.b64encode(shown).decode() if isinstance(shown, bytes) else shown


def _payload(fields: dict[str, Any]) -> bytes | str:
    if ("payload" in fields) == ("payload_base64" in fields):
        raise ValueError("a message has either payload or payload_base64")
    if "payload_base64" in fields:
        return _bytes(fields["payload_base64"], "payload_base64")
    payload = fields["payload"]
    if isinstance(payload, str):
        return payload
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def _id(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    raise ValueError(f"id {value!r} is no number")


def _headers(value: Any) -> "dict[HeaderKey, HeaderField]":
    if not isinstance(value, dict):
        raise ValueError('headers is an object: {"key": value}')  # noqa: TRY004 - a fault of the line
    return {key: _header(key, item) for key, item in value.items()}


def _header(key: str, item: Any) -> "HeaderField":
    if isinstance(item, str | bool | int | float):
        return item
    if not isinstance(item, dict) or item.keys() != {"kind", "value"}:
        raise ValueError(f'header {key} is a value or {{"kind": ..., "value": ...}}')
    value = item["value"]
    return _typed(item["kind"], _bytes(value, f"header {key}") if item["kind"] == "raw" else value)


def _typed(kind: Any, value: Any) -> "TypedValue":
    """A value of a kind; numbers and flags may be written as texts."""
    from borzoi.model.errors import InvalidHeaderValue
    from borzoi.model.headers import from_python
    from borzoi.model.values import HeaderKind

    kinds = {each.name.lower(): each for each in HeaderKind}
    if kind not in kinds:
        raise ValueError(f"there is no header kind {kind}; there are {', '.join(kinds)}")
    if isinstance(value, str) and kind != "string":
        value = _number(kind, value)
    try:
        return from_python(value, kinds[kind])
    except (InvalidHeaderValue, TypeError) as error:
        raise ValueError(str(error)) from None


def _number(kind: str, text: str) -> bool | int | float:
    if kind == "bool":
        if text not in ("true", "false"):
            raise ValueError(f'"{text}" is neither true nor false')
        return text == "true"
    try:
        return float(text) if kind.startswith("float") else int(text)
    except ValueError:
        raise ValueError(f'"{text}" is no {kind}') from None


def _bytes(value: Any, what: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{what} is no base64") from None
