"""Bodies of the commands about the server itself and its clients: those of `borzoi.wire.system`, and

    describe options  u8 scope (1 topic, 2 stream, 3 user)
    OptionSpec        name8 key, u8 kind, u32 length + default, str32 description

Describe options answers u32 count and OptionSpec * count. No user is 2^32-1.
"""

from borzoi.model.limits import U32_MAX
from borzoi.model.replies import OptionSpec
from borzoi.model.requests import DescribeOptions
from borzoi.model.values import HeaderKind, OptionScope
from borzoi.wire.commands import Code
from borzoi.wire.fields import BYTES32, NAME8, STR32, U32, Enumerated
from borzoi.wire.records import Counted, Layout, Nullable, Record
from borzoi.wire.system import system_layouts

OPTION_SPEC = Record(OptionSpec, key=NAME8, kind=Enumerated(HeaderKind), default=BYTES32, description=STR32)

LAYOUTS = {
    **system_layouts(U32, Nullable(U32, null=U32_MAX)),
    Code.DESCRIBE_OPTIONS: Layout(
        Record(DescribeOptions, scope=Enumerated(OptionScope)), Counted(OPTION_SPEC)
    ),
}
