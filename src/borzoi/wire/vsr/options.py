"""The options block of a stream, topic or user.

Entries up to the end of the block, in any order and without a count:

    off  size  field
      0     1  key kind      2 (string)
      1     4  key length    1..255
      5     n  key           UTF-8, no two alike
    5+n     1  value kind    1..15, see HeaderKind
    6+n     4  value length  1..255
   10+n     m  value

At most OPTIONS_MAX entries and OPTIONS_BYTES_MAX bytes. Only the structure is checked here; which keys
exist and which values they take is the broker's business.
"""

from borzoi.model.errors import LocalProtocolError, RemoteProtocolError
from borzoi.model.limits import HEADER_FIELD_BYTES_MAX, OPTIONS_BYTES_MAX, OPTIONS_MAX
from borzoi.model.values import HeaderKind, Options, TypedValue
from borzoi.wire.cursor import Cursor
from borzoi.wire.fields import U32, Blob, Codec, Enumerated, Text
from borzoi.wire.records import Sized

_KIND = Enumerated(HeaderKind)
_DATA = Blob(U32, least=1, most=HEADER_FIELD_BYTES_MAX)
_KEY = Text(_DATA)


class OptionsBlock(Codec[Options]):
    """Reads to the end of its cursor: the last field of a body, or inside a `Sized`."""

    least_bytes = 0

    def read(self, cursor: Cursor) -> Options:
        if cursor.remaining_bytes > OPTIONS_BYTES_MAX:
            raise RemoteProtocolError(f"{cursor.remaining_bytes} bytes of options")
        options: Options = {}
        while cursor.remaining_bytes:
            if len(options) == OPTIONS_MAX:
                raise RemoteProtocolError(f"more than {OPTIONS_MAX} options")
            if _KIND.read(cursor) is not HeaderKind.STRING:
                raise RemoteProtocolError("an option's key is no string")
            key = _KEY.read(cursor)
            if key in options:
                raise RemoteProtocolError(f"option {key!r} comes twice")
            options[key] = TypedValue(_KIND.read(cursor), _DATA.read(cursor))
        return options

    def write(self, out: bytearray, value: Options) -> None:
        if len(value) > OPTIONS_MAX:
            raise LocalProtocolError(f"{len(value)} options are more than {OPTIONS_MAX}")
        block = bytearray()
        for key, typed in value.items():
            _KIND.write(block, HeaderKind.STRING)
            _KEY.write(block, key)
            _KIND.write(block, typed.kind)
            _DATA.write(block, typed.data)
        if len(block) > OPTIONS_BYTES_MAX:
            raise LocalProtocolError(f"{len(block)} bytes of options are more than {OPTIONS_BYTES_MAX}")
        out += block


OPTIONS = OptionsBlock()
OPTIONS32 = Sized(OPTIONS)
