"""`spindle disks uncordon`: let a log directory take new replicas again."""

import json

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.numbers import WholeRange
from spindle.client.admin.cordons import shown_path, uncordon
from spindle.client.wire.cluster import WireClient


@click.command("uncordon")
@click.argument("broker", type=WholeRange(min=0))
@click.argument("path")
@cluster_command
def uncordon_command(client: WireClient, as_json: bool, broker: int, path: str) -> None:
    """Let the log directory PATH of a broker take new replicas again; '*' ends a cordon of all.

    A directory that is cordoned because it is nearly full stays so until it has room.
    """
    uncordon(client, broker, path)
    if as_json:
        click.echo(json.dumps({"broker": broker, "path": path}))
    else:
        click.echo(f"Uncordoned {shown_path(path)} of broker {broker}.")
