"""`kafka-cluster`: the cluster's id and nodes, and forgetting a broker."""

import argparse
import json
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.tools.arguments import ArgumentParser, add_servers, argument_main, connect_by
from spindle.cli.tools.command import FAILED, ToolCommand
from spindle.cli.tools.failures import Failure
from spindle.client.admin.cluster import (
    ClusterNode,
    describe_cluster,
    unregister_broker,
)
from spindle.client.errors import UnsupportedByPeer

_COLUMNS: Final = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="kafka-cluster", description="The Kafka cluster tool.")
    commands = parser.add_subparsers(dest="command", required=True)
    cluster_id = commands.add_parser("cluster-id", help="Show the id of the cluster.")
    unregister = commands.add_parser("unregister", help="Forget a broker that is gone for good.")
    endpoints = commands.add_parser("list-endpoints", help="Show the nodes of the cluster.")
    for each in (cluster_id, unregister, endpoints):
        add_servers(each, short=True)
        each.add_argument("--config", "--command-config", "-c", help="Property file of the client.")
        each.add_argument("--json", action="store_true", help="Print JSON.")
    unregister.add_argument("--id", "-i", type=int, required=True, help="The broker's number.")
    endpoints.add_argument(
        "--include-fenced-brokers", action="store_true", help="Brokers that do not serve, too."
    )
    return parser


def _run(given: argparse.Namespace) -> None:
    by_controller = given.bootstrap_server is None
    with connect_by(given, given.config) as client:
        if given.command == "unregister":
            try:
                unregister_broker(client, given.id)
            except UnsupportedByPeer:
                click.echo("The target cluster does not support the broker unregistration API.")
            else:
                click.echo(f"Broker {given.id} is no longer registered.")
            return
        found = describe_cluster(
            client,
            controllers=by_controller,
            include_fenced=given.command == "list-endpoints" and given.include_fenced_brokers,
        )
    kind = "controller" if by_controller else "broker"
    if given.json:
        click.echo(json.dumps({"clusterId": found.cluster_id, **_nodes_json(found.nodes, kind)}))
    elif given.command == "cluster-id":
        click.echo(f"Cluster ID: {found.cluster_id}")
    else:
        click.echo("\n".join(endpoint_lines(found.nodes, kind)))


def endpoint_lines(nodes: Sequence[ClusterNode], kind: str) -> list[str]:
    """The table of nodes. `kind` is broker or controller."""
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


def _nodes_json(nodes: Sequence[ClusterNode], kind: str) -> dict[str, object]:
    return {
        f"{kind}s": [
            {
                "id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
            }
            for node in nodes
        ]
    }


def _report(found: Failure) -> int:
    refused = found.java_class.startswith("org.apache.kafka.common.errors.")
    click.echo(str(found) if refused else found.text, err=True)
    return FAILED


cluster = ToolCommand("cluster", argument_main(_parser(), _run, _report))
