"""Commands about the server itself and its clients."""

from collections.abc import Sequence

from borzoi.client.call import Call, or_none
from borzoi.client.details import ClientDetails, client_details
from borzoi.model import requests as rq
from borzoi.model.replies import ClientInfo, ClusterMetadata, OptionSpec, Snapshot, Stats
from borzoi.model.values import OptionScope, SnapshotCompression, SnapshotPart


def ping(*, deadline_s: float | None = None) -> Call[None]:
    """Return when the server has answered. Needs no login."""
    return Call(rq.Ping(), deadline_s)


def get_stats(*, deadline_s: float | None = None) -> Call[Stats]:
    return Call(rq.GetStats(), deadline_s)


def snapshot(
    compression: SnapshotCompression = SnapshotCompression.DEFLATED,
    parts: Sequence[SnapshotPart] = (SnapshotPart.ALL,),
    *,
    deadline_s: float | None = None,
) -> Call[Snapshot]:
    """A ZIP archive with what somebody who helps from afar wants to see."""
    return Call(rq.GetSnapshot(compression, tuple(parts)), deadline_s)


def get_cluster_metadata(*, deadline_s: float | None = None) -> Call[ClusterMetadata]:
    return Call(rq.GetClusterMetadata(), deadline_s)


def describe_options(
    scope: OptionScope = OptionScope.TOPIC, *, deadline_s: float | None = None
) -> Call[tuple[OptionSpec, ...]]:
    """The options that topics, streams or users of this server have."""
    return Call(rq.DescribeOptions(scope), deadline_s)


def get_me(*, deadline_s: float | None = None) -> Call[ClientDetails]:
    """This client as the server sees it."""
    return Call(rq.GetMe(), deadline_s, client_details)


def get_client(client_id: int, *, deadline_s: float | None = None) -> Call[ClientDetails | None]:
    return Call(rq.GetClient(client_id), deadline_s, or_none(client_details))


def get_clients(*, deadline_s: float | None = None) -> Call[tuple[ClientInfo, ...]]:
    return Call(rq.GetClients(), deadline_s)
