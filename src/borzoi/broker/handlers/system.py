"""The server itself: ping, statistics, clients, cluster, options, support snapshot."""

from functools import partial

from borzoi.broker.broker import Broker
from borzoi.broker.handlers.context import Context, Handler
from borzoi.broker.options import option_specs
from borzoi.broker.pending import OnThread
from borzoi.broker.sessions import Client
from borzoi.broker.snapshot import make_archive
from borzoi.broker.stats import Counts, process_stats
from borzoi.model.replies import (
    ClientDetails,
    ClientGroup,
    ClientInfo,
    ClusterMetadata,
    OptionSpec,
    Snapshot,
)
from borzoi.model.requests import (
    DescribeOptions,
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetMe,
    GetSnapshot,
    GetStats,
    Ping,
)
from borzoi.model.values import OptionScope


def ping(_context: Context, _request: Ping) -> None:
    """Being heard is all a ping is for; the transport notes that for any request."""


def get_stats(context: Context, _request: GetStats) -> OnThread:
    context.require()
    broker = context.broker
    work = partial(
        process_stats,
        counts(broker),
        broker.directory.path,
        broker.settings.version,
        broker.started_at_us,
        context.now_us,
    )
    return OnThread(work, lambda stats: stats)


def get_snapshot(context: Context, request: GetSnapshot) -> OnThread:
    context.require()
    broker = context.broker
    work = partial(make_archive, request.compression, request.parts, broker.directory.path, broker.settings)
    return OnThread(work, Snapshot)


def get_cluster_metadata(context: Context, _request: GetClusterMetadata) -> ClusterMetadata:
    """Exactly one node: an empty list or a second one changes how clients behave."""
    settings = context.broker.settings
    return ClusterMetadata(settings.cluster_name, (settings.node,))


def describe_options(context: Context, request: DescribeOptions) -> tuple[OptionSpec, ...]:
    return option_specs(context.broker.settings) if request.scope is OptionScope.TOPIC else ()


def get_me(context: Context, _request: GetMe) -> ClientDetails:
    return client_details(context.session.client)


def get_client(context: Context, request: GetClient) -> ClientDetails | None:
    context.require()
    client = context.broker.clients.find(request.client_id)
    return client_details(client) if client is not None else None


def get_clients(context: Context, _request: GetClients) -> tuple[ClientInfo, ...]:
    context.require()
    return tuple(client_info(client) for client in context.broker.clients)


def client_info(client: Client) -> ClientInfo:
    session = client.session
    return ClientInfo(
        client.id,
        session.user_id if session is not None else None,
        client.transport,
        client.address,
        len(session.groups) if session is not None else 0,
    )


def client_details(client: Client) -> ClientDetails:
    groups = client.session.groups if client.session is not None else {}
    return ClientDetails(client_info(client), tuple(ClientGroup(*key) for key in sorted(groups)))


def counts(broker: Broker) -> Counts:
    partitions = list(broker.catalog.partitions())
    topics = list(broker.catalog.topics())
    return Counts(
        streams=len(broker.catalog.streams),
        topics=len(topics),
        partitions=len(partitions),
        segments=sum(partition.log.segments_count for partition in partitions),
        messages=sum(partition.log.messages_count for partition in partitions),
        size_bytes=sum(partition.log.size_bytes for partition in partitions),
        clients=len(broker.clients),
        groups=sum(len(topic.groups) for topic in topics),
    )


HANDLERS: dict[type, Handler] = {
    Ping: ping,
    GetStats: get_stats,
    GetSnapshot: get_snapshot,
    GetClusterMetadata: get_cluster_metadata,
    DescribeOptions: describe_options,
    GetMe: get_me,
    GetClient: get_client,
    GetClients: get_clients,
}
