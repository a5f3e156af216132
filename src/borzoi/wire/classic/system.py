"""Bodies of the commands about the server itself and its clients: those of `borzoi.wire.system`.

Ids are numbered as the dialect has it, and "no user" is written as `classic.ids` says.
"""

from borzoi.wire.classic.ids import Ids
from borzoi.wire.commands import Code
from borzoi.wire.records import Layout
from borzoi.wire.system import system_layouts


def layouts(ids: Ids) -> dict[Code, Layout]:
    return system_layouts(ids.number, ids.optional_user)
