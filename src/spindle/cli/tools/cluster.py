"""`kafka-cluster`: show the cluster's id, nodes and API versions; unregister a node."""

import json
from collections.abc import Callable, Sequence
from typing import Final

import click

from spindle.cli.tools.api_versions import (
    KNOWN_BY_BROKERS,
    KNOWN_BY_CONTROLLERS,
    show_versions,
)
from spindle.cli.tools.bootstrap import connect_either
from spindle.cli.tools.command import ToolCommand, ToolGroup
from spindle.cli.tools.failures import UsageError
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.cluster import (
    ClusterDescription,
    ClusterNode,
    describe_cluster,
    unregister_broker,
    unregister_controller,
)
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import UnsupportedByPeer

_COLUMNS: Final = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


_COMMON: Final = (
    BOOTSTRAP_SERVER,
    Option("bootstrap-controller", str(BOOTSTRAP_CONTROLLER.help), "host:port,...", short="C"),
    Option("command-config", "Property file of the client.", "file", short="c", aliases=["config"]),
    JSON,
)
DECLARATION: Final = Declaration(
    "Show the id and the nodes of the cluster; unregister a broker.",
    (),
    examples=("spindle kafka cluster cluster-id",),
)
CLUSTER_ID: Final = Declaration(
    "Show the id of the cluster.",
    _COMMON,
    examples=("spindle kafka cluster cluster-id",),
)
UNREGISTER: Final = Declaration(
    "Unregister a broker that will not return.",
    (*_COMMON, Option("id", "The node id of the broker.", "id", short="i")),
    examples=("spindle kafka cluster unregister --id 3",),
)
UNREGISTER_CONTROLLER: Final = Declaration(
    "Unregister a controller that will not return.",
    (*_COMMON, Option("id", "The node id of the controller.", "id", short="i")),
    examples=("spindle kafka cluster unregister-controller --id 3",),
)
API_VERSIONS: Final = Declaration(
    "Show the versions of each API that brokers or controllers serve.",
    _COMMON,
    examples=("spindle kafka cluster api-versions",),
)
LIST_ENDPOINTS: Final = Declaration(
    "Show the nodes of the cluster.",
    (*_COMMON, Option("include-fenced-brokers", "Show brokers that do not serve, too.")),
    examples=("spindle kafka cluster list-endpoints",),
)


def _show_id(options: Options) -> None:
    description = _describe(options, include_fenced=False)
    if options.has("json"):
        click.echo(json.dumps(_document(options, description)))
    else:
        click.echo(f"Cluster ID: {description.cluster_id}")


def _list_endpoints(options: Options) -> None:
    description = _describe(options, include_fenced=options.has("include-fenced-brokers"))
    if options.has("json"):
        click.echo(json.dumps(_document(options, description)))
    else:
        click.echo("\n".join(endpoint_lines(description.nodes, _kind(options))))


def _unregister(options: Options) -> None:
    _forget(options, "broker", unregister_broker)


def _unregister_controller(options: Options) -> None:
    _forget(options, "controller", unregister_controller)


def _forget(options: Options, kind: str, unregister: Callable[[WireClient, int], None]) -> None:
    node_id = options.integer("id")
    if node_id is None:
        raise UsageError("argument --id/-i is required", "--id is missing")
    with connect_either(options) as client:
        try:
            unregister(client, node_id)
        except UnsupportedByPeer:
            click.echo(f"The target cluster does not support the {kind} unregistration API.")
        else:
            click.echo(f"{kind.capitalize()} {node_id} is no longer registered.")


def _show_api_versions(options: Options) -> None:
    of_controllers = options.has("bootstrap-controller")
    with connect_either(options) as client:
        nodes = [
            BrokerAddress(node.node_id, node.host, node.port, node.rack)
            for node in describe_cluster(client, controllers=of_controllers).nodes
        ]
        apis = KNOWN_BY_CONTROLLERS if of_controllers else KNOWN_BY_BROKERS
        show_versions(client, nodes, apis, is_json=options.has("json"))


def _describe(options: Options, *, include_fenced: bool) -> ClusterDescription:
    with connect_either(options) as client:
        return describe_cluster(
            client,
            controllers=options.has("bootstrap-controller"),
            include_fenced=include_fenced,
        )


def _kind(options: Options) -> str:
    return "controller" if options.has("bootstrap-controller") else "broker"


def endpoint_lines(nodes: Sequence[ClusterNode], kind: str) -> list[str]:
    """Return the table of the nodes. `kind` is broker or controller."""
    hosts = max([9, *(len(node.host) for node in nodes)])
    racks = max([10, *(len(node.rack or "") for node in nodes)])
    widths = (10, hosts, 10, racks, 10, 15)
    rows: list[Sequence[str]] = [_COLUMNS]
    rows += [
        (
            str(node.node_id),
            node.host,
            str(node.port),
            node.rack or "null",
            "fenced" if node.is_fenced else "unfenced",
            kind,
        )
        for node in nodes
    ]
    return [
        " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _document(options: Options, found: ClusterDescription) -> dict[str, object]:
    return {
        "clusterId": found.cluster_id,
        f"{_kind(options)}s": [
            {
                "id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
            }
            for node in found.nodes
        ],
    }


cluster = ToolGroup(
    "cluster",
    DECLARATION,
    [
        ToolCommand("cluster-id", CLUSTER_ID, _show_id, is_part=True),
        ToolCommand("unregister", UNREGISTER, _unregister, is_part=True),
        ToolCommand(
            "unregister-controller", UNREGISTER_CONTROLLER, _unregister_controller, is_part=True
        ),
        ToolCommand("list-endpoints", LIST_ENDPOINTS, _list_endpoints, is_part=True),
        ToolCommand("api-versions", API_VERSIONS, _show_api_versions, is_part=True),
    ],
)
