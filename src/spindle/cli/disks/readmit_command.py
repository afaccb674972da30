"""`spindle disks readmit`: a running broker uses a log directory again that had failed."""

import json

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.replica_lines import altered_document, replica_lines, stray_lines
from spindle.cli.numbers import WholeRange
from spindle.client.admin.disks import alter_disks
from spindle.client.wire.cluster import WireClient
from spindle.common.uuids import uuid_text
from spindle.disks.alteration import DirectoryAction


@click.command("readmit")
@click.argument("broker", type=WholeRange(min=0))
@click.argument("path")
@cluster_command
def readmit_command(client: WireClient, as_json: bool, broker: int, path: str) -> None:
    """Use the log directory PATH of a broker again, after it had failed.

    A repaired disk keeps its directory id and its logs, which catch up as followers. An empty one
    in its place is formatted with a new id, and its replicas are made anew from their leaders.
    Without a directory at PATH the command refuses, because the disk may not be mounted.
    """
    altered = alter_disks(client, broker, DirectoryAction.READMIT, path)
    if as_json:
        click.echo(json.dumps(altered_document(broker, altered)))
        return
    how = "has formatted it with a new id" if altered.was_formatted else "has its logs back"
    click.echo(
        f"Broker {broker} uses {altered.path} again and {how}: directory id "
        f"{uuid_text(altered.directory_id)}."
    )
    for line in (*replica_lines(altered.replicas), *stray_lines(client, broker, altered.path)):
        click.echo(line)
