"""Arguments that many commands have."""

from typing import Annotated

import typer

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="Id or name of a stream.", show_default=False)]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Id or name of a topic.", show_default=False)]
Partition = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, help="Id of a partition.", show_default=False)
]
Count = Annotated[
    int, typer.Argument(metavar="COUNT", min=1, max=100_000, help="How many.", show_default=False)
]
