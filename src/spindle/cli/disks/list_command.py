"""`spindle disks list`: every log directory of every broker, with its space and its state."""

import json

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.tools.log_dirs import directory_lines, full_document
from spindle.client.wire.cluster import WireClient


@click.command("list")
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """Show the log directories of all brokers: state, replicas, size, capacity and free space."""
    found = client.describe_log_dirs()
    if as_json:
        click.echo(json.dumps(full_document(found, ())))
    else:
        click.echo("\n".join(directory_lines(found, ())))
