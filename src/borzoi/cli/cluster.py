"""`borzoi cluster`: the nodes of the cluster that the server is part of, which may be the server alone."""

from borzoi.cli.connection import Invocation, command_group, register
from borzoi.cli.output import one_line, print_json, print_table

cluster_commands = command_group("Show the nodes of a cluster.\n\nExample: borzoi cluster metadata")


@register(cluster_commands, "metadata", "m")
def metadata(run: Invocation) -> None:
    """Show the nodes of the cluster and the ports they listen on; a port 0 is not in use.

    \b
        borzoi cluster metadata
    """  # noqa: D301 - \b tells the help formatter to keep the lines
    with run.connect() as client:
        found = client.get_cluster_metadata()
    if run.out.as_json:
        print_json(found)
        return
    print(one_line(f"Cluster {found.name}"))
    print_table(
        ("Name", "IP", "TCP", "QUIC", "HTTP", "WebSocket", "Role", "Status"),
        (
            (
                each.name,
                each.ip,
                each.tcp_port,
                each.quic_port,
                each.http_port,
                each.websocket_port,
                each.role,
                each.status,
            )
            for each in found.nodes
        ),
    )
