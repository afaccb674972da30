"""`spindle disks uncordon`: allow new replicas in a log directory again."""

import json
from collections.abc import Sequence

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import WholeRange
from spindle.client.admin.cordons import shown_path, uncordon
from spindle.client.blocking.client import WireClient


@click.command(
    "uncordon",
    epilog=examples("spindle disks uncordon 2 /disk2"),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@cluster_command
def uncordon_command(client: WireClient, as_json: bool, broker: int, paths: Sequence[str]) -> None:
    """Allow new replicas in log directories of a broker again; '*' ends a cordon of all.

    A directory that is cordoned because it is nearly full stays so until it has space. --json
    prints an object for each directory.
    """
    for path in paths:
        uncordon(client, broker, path)
        if as_json:
            click.echo(json.dumps({"broker": broker, "path": path}))
        else:
            click.echo(f"Uncordoned {shown_path(path)} of broker {broker}.")
