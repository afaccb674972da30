"""`spindle disks add`: add a log directory to a running broker."""

import json

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.replica_lines import altered_document, replica_lines, stray_lines
from spindle.cli.examples import examples
from spindle.cli.parameter_types import WholeRange
from spindle.client.admin.disks import alter_disks
from spindle.client.blocking.client import WireClient
from spindle.common.uuids import uuid_text
from spindle.disks.alter_disks import DirectoryAction


@click.command(
    "add",
    epilog=examples("spindle disks add 2 /disk4"),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("path")
@cluster_command
def add_command(client: WireClient, as_json: bool, broker: int, path: str) -> None:
    """Use the directory PATH, on the machine of a broker, as a log directory of that broker.

    The directory must be empty, or one that this broker had before; it is made if its parent
    exists. The broker formats it and uses it at once, and after a restart. The property file is not
    changed: add the directory to log.dirs there.
    """
    altered = alter_disks(client, broker, DirectoryAction.ADD, path)
    if as_json:
        click.echo(json.dumps(altered_document(broker, altered)))
        return
    how = "formatted it and uses it" if altered.was_formatted else "uses it again"
    click.echo(
        f"Broker {broker} {how}: {altered.path}, directory id {uuid_text(altered.directory_id)}."
    )
    click.echo("Add it to log.dirs in the property file; until then the broker remembers it.")
    for line in (*replica_lines(altered.replicas), *stray_lines(client, broker, altered.path)):
        click.echo(line)
