"""`borzoi options`: what can be set for topics, streams and users of a server."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from borzoi.cli.connection import Invocation, register, single_command

if TYPE_CHECKING:
    from borzoi.model.replies import OptionSpec
    from borzoi.model.values import TypedValue


class Scope(Enum):
    """What has options."""

    TOPIC = "topic"
    STREAM = "stream"
    USER = "user"


options_command = single_command()


@register(options_command, "options")
def options(
    run: Invocation,
    scope: Annotated[Scope, typer.Argument(help="Whose options.", show_default=False)],
) -> None:
    """Show which options a topic, a stream or a user of this server can have, and their defaults.

    \b
        borzoi options topic
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    from borzoi.model.headers import to_python
    from borzoi.model.values import OptionScope

    with run.connect() as client:
        found = client.describe_options(OptionScope[scope.name])
    run.out.rows(
        [
            {
                "key": each.key,
                "kind": each.kind,
                "default": _default(each),
                "description": each.description,
            }
            for each in found
        ],
        ("Key", "Kind", "Default", "Description"),
        (
            (
                each.key,
                each.kind,
                None if each.default == b"" else str(to_python(_default(each))),
                each.description,
            )
            for each in found
        ),
    )


def _default(option: "OptionSpec") -> "TypedValue":
    from borzoi.model.values import TypedValue

    return TypedValue(option.kind, option.default)
