"""Copies from topic to topic that stay within the server: tasks only say what is to be copied.

The server stages what it has (`Client.stage_copy`), a few megabytes at a time, and says how far it got. The
messages need not be fetched and sent back for that.
"""

from collections.abc import Iterable

from borzoi.client.values import Partitioning
from borzoi.model.errors import NotFound
from borzoi.spark.epochs import Attempt, EpochClient, Stager, TaskReport
from borzoi.spark.losses import Losses
from borzoi.spark.options import Target
from borzoi.spark.plan import Split


def copy_all(
    client: EpochClient,
    target: Target,
    attempt: Attempt,
    splits: Iterable[tuple[Split, Partitioning]],
    losses: Losses,
    *,
    is_stream: bool,
) -> TaskReport:
    """Stage splits, each for its place. For an epoch that is committed their messages are only counted."""
    stager = Stager(client, target, attempt)
    stager.begin(is_stream=is_stream)
    for split, place in splits:
        if not stager.is_committed and losses.is_all_lost(split):
            continue
        position = split.start
        while position < split.end and not stager.is_committed:
            position = _copied(stager, split, place, position, losses)
        if stager.is_committed:
            stager.count(split.end - position)
        else:
            losses.check_identity(split)
    return stager.report()


def _copied(stager: Stager, split: Split, place: Partitioning, position: int, losses: Losses) -> int:
    """How far the split is copied now."""
    try:
        taken = stager.copy(place, losses.target, split.partition_id, position, split.end - position)
    except NotFound:
        if losses.has_partition(split.partition_id):
            raise  # it is the target that is missing
        taken = 0
    if not taken and not stager.is_committed:
        return losses.skip(split, position)
    return position + taken
