"""How people write durations, expiries and sizes, and how those are shown again.

Used by the configuration, the command line and the HTTP front end. Inside the program a duration is an
integer of microseconds and a size an integer of bytes; text exists only at the edges.

    kind             text                                               integer
    duration         0  unlimited  disabled  none                       0
                     7 days | 2 days 4 hours | 1h 1m 1s | 500ms         microseconds
    expiry           none  None  unlimited  Unlimited  never_expire     U64_MAX (never)
                     default  Default  server_default  Server_default   0 (the server's default)
                     a duration of at most 2^32-1 seconds               microseconds
    byte size        1048576 | 1 MiB | 50.84 MB | 8 Kbit                bytes, rounded up
    max topic size   unlimited                                          U64_MAX
                     0  server_default                                  0 (the server's default)
                     a byte size                                        bytes

Durations ignore case, expiries do not: `1M` is one minute as a duration and one month as an expiry. Every
parser raises `ValueError` with a text that names the value and gives an example. Only integers are used, so
no value is ever off by a rounding error of floating point.
"""

import re

from borzoi.model.limits import U32_MAX, U64_MAX

MICROSECONDS_PER_SECOND = 1_000_000
EXPIRY_NEVER = U64_MAX
EXPIRY_SERVER_DEFAULT = 0
MAX_TOPIC_SIZE_UNLIMITED = U64_MAX
MAX_TOPIC_SIZE_SERVER_DEFAULT = 0

_DURATION_EXAMPLE = 'write for example "30s" or "2 days 4 hours"'
_SIZE_EXAMPLE = 'write for example "1 GiB", "50.5 MB" or a number of bytes'

_NS_PER_US = 1000
_NS_PER_S = 1_000_000_000
_YEAR_S, _MONTH_S, _DAY_S = 31_557_600, 2_630_016, 86_400
_UNITS_NS = {
    name: ns
    for names, ns in (
        ("ns nsec nanos", 1),
        ("us usec \u00b5s", _NS_PER_US),
        ("ms msec millis", 1_000_000),
        ("s sec secs second seconds", _NS_PER_S),
        ("m min mins minute minutes", 60 * _NS_PER_S),
        ("h hr hrs hour hours", 3600 * _NS_PER_S),
        ("d day days", _DAY_S * _NS_PER_S),
        ("w wk wks week weeks", 7 * _DAY_S * _NS_PER_S),
        ("M month months", _MONTH_S * _NS_PER_S),
        ("y yr yrs year years", _YEAR_S * _NS_PER_S),
    )
    for name in names.split()
}
_TERM = re.compile(r"\s*([0-9]{1,30})\s*([A-Za-z\u00b5]+)\s*")

_SIZE = re.compile(r"([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([a-z]*)")
_PREFIXES = ("k", "m", "g", "t", "p", "e")
_SIZE_UNITS_BITS: dict[str, int] = (
    {"": 8, "b": 8, "bit": 1}
    | {p + end: 8 * 1000**n for n, p in enumerate(_PREFIXES, 1) for end in ("", "b")}
    | {p + end: 8 * 1024**n for n, p in enumerate(_PREFIXES, 1) for end in ("i", "ib")}
    | {p + "bit": 1000**n for n, p in enumerate(_PREFIXES, 1)}
    | {p + "ibit": 1024**n for n, p in enumerate(_PREFIXES, 1)}
)
_EXACT_UNITS: list[tuple[int, str]] = sorted(
    [(1, "B")]
    + [(1000**n, f"{p.upper()}B") for n, p in enumerate(_PREFIXES, 1)]
    + [(1024**n, f"{p.upper()}iB") for n, p in enumerate(_PREFIXES, 1)],
    reverse=True,
)


def parse_duration(text: str) -> int:
    """Microseconds of a duration text; the words for "off" are zero."""
    lowered = text.strip().lower()
    if lowered in {"0", "unlimited", "disabled", "none"}:
        return 0
    return _parse_terms(lowered, text, "a duration")


def render_duration(duration_us: int) -> str:
    """The duration as `1year 1month 28days 1h 13m 37s`; zero is `0s`. Parses back to the same value."""
    if duration_us == 0:
        return "0s"
    seconds, fraction_us = divmod(duration_us, MICROSECONDS_PER_SECOND)
    years, seconds = divmod(seconds, _YEAR_S)
    months, seconds = divmod(seconds, _MONTH_S)
    days, seconds = divmod(seconds, _DAY_S)
    terms = [
        f"{count}{name}{'s' if count > 1 else ''}"
        for count, name in ((years, "year"), (months, "month"), (days, "day"))
        if count
    ]
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    millis, micros = divmod(fraction_us, 1000)
    small = ((hours, "h"), (minutes, "m"), (seconds, "s"), (millis, "ms"), (micros, "us"))
    return " ".join(terms + [f"{count}{name}" for count, name in small if count])


def parse_expiry(text: str) -> int:
    """Microseconds of an expiry text, `EXPIRY_NEVER` or `EXPIRY_SERVER_DEFAULT`."""
    stripped = text.strip()
    if stripped in {"none", "None", "unlimited", "Unlimited", "never_expire"}:
        return EXPIRY_NEVER
    if stripped in {"0", "default", "Default", "server_default", "Server_default"}:
        return EXPIRY_SERVER_DEFAULT
    expiry_us = _parse_terms(stripped, text, "an expiry")
    if expiry_us > U32_MAX * MICROSECONDS_PER_SECOND:
        raise ValueError(f'"{text}" is too long for an expiry: at most {U32_MAX} seconds, about 136 years')
    return expiry_us


def render_expiry(expiry_us: int) -> str:
    if expiry_us == EXPIRY_NEVER:
        return "never_expire"
    if expiry_us == EXPIRY_SERVER_DEFAULT:
        return "server_default"
    return render_duration(expiry_us)


def parse_byte_size(text: str, *, allow_unlimited: bool = False) -> int:
    """Bytes of a size text. With `allow_unlimited` the words for "no limit" are accepted and are zero.

    Decimal and binary prefixes differ: `1 GB` is 1 000 000 000 and `1 GiB` is 1 073 741 824.
    """
    stripped = text.strip()
    if allow_unlimited and stripped in {"unlimited", "Unlimited", "none", "None"}:
        return 0
    match = _SIZE.fullmatch(stripped.lower())
    if match is None:
        raise ValueError(f'"{text}" is not a size; {_SIZE_EXAMPLE}')
    whole, fraction, unit = match[1], match[2] or "", match[3]
    if unit not in _SIZE_UNITS_BITS:
        raise ValueError(f'"{text}" is not a size: unknown unit "{unit}"; {_SIZE_EXAMPLE}')
    if fraction and not unit:
        raise ValueError(f'"{text}" is not a size: a fraction needs a unit; {_SIZE_EXAMPLE}')
    scale = int("1" + "0" * len(fraction))
    size_bytes = -(-int(whole + fraction) * _SIZE_UNITS_BITS[unit] // (8 * scale))
    if size_bytes > U64_MAX:
        raise ValueError(f'"{text}" is too large for a size: at most {U64_MAX} bytes')
    return size_bytes


def render_byte_size(size_bytes: int) -> str:
    """An integer and the largest unit that loses nothing: `10 KiB`, `10 KB`, `1500 B`. Parses back."""
    if size_bytes == 0:
        return "0 B"
    factor, unit = next(pair for pair in _EXACT_UNITS if size_bytes % pair[0] == 0)
    return f"{size_bytes // factor} {unit}"


def render_byte_size_rounded(size_bytes: int) -> str:
    """Two decimals in decimal units, for people: `568.00 MB`, `0 B`. Does not parse back exactly."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    power = min((len(str(size_bytes)) - 1) // 3, len(_PREFIXES))
    hundredths = (size_bytes * 100 + 1000**power // 2) // 1000**power
    return f"{hundredths // 100}.{hundredths % 100:02} {_PREFIXES[power - 1].upper()}B"


def parse_max_topic_size(text: str) -> int:
    """Bytes of a topic's size limit, `MAX_TOPIC_SIZE_UNLIMITED` or `MAX_TOPIC_SIZE_SERVER_DEFAULT`."""
    stripped = text.strip()
    if stripped == "unlimited":
        return MAX_TOPIC_SIZE_UNLIMITED
    if stripped == "server_default":
        return MAX_TOPIC_SIZE_SERVER_DEFAULT
    return parse_byte_size(text)


def render_max_topic_size(size_bytes: int) -> str:
    if size_bytes == MAX_TOPIC_SIZE_UNLIMITED:
        return "unlimited"
    if size_bytes == MAX_TOPIC_SIZE_SERVER_DEFAULT:
        return "server_default"
    return render_byte_size(size_bytes)


def _parse_terms(terms: str, written: str, what: str) -> int:
    """The sum of `<integer><unit>` terms in microseconds; `written` is what error texts quote."""
    position = total_ns = 0
    while match := _TERM.match(terms, position):
        unit_ns = _UNITS_NS.get(match[2])
        if unit_ns is None:
            raise ValueError(f'"{written}" is not {what}: unknown unit "{match[2]}"; {_DURATION_EXAMPLE}')
        total_ns += int(match[1]) * unit_ns
        position = match.end()
    if position == 0 or position != len(terms):
        reason = ": a number needs a unit" if terms.isdecimal() else ""
        raise ValueError(f'"{written}" is not {what}{reason}; {_DURATION_EXAMPLE}')
    total_us = total_ns // _NS_PER_US
    if total_us > U64_MAX:
        raise ValueError(f'"{written}" is too long for {what}: at most {U64_MAX} microseconds')
    # Zero means "off" to most settings, which nobody asks for by writing a tiny duration.
    if total_us == 0 < total_ns:
        raise ValueError(f'"{written}" is too short for {what}: at least 1us')
    return total_us
