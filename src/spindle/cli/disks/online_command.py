"""`spindle disks online`: bring a failed log directory of a running broker back online."""

import json
import shlex
from collections.abc import Iterable

import click
from click.core import ParameterSource

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.replica_lines import (
    altered_document,
    refusal_document,
    replica_lines,
    stray_lines,
)
from spindle.cli.examples import examples
from spindle.cli.parameter_types import PARTITION, WholeRange
from spindle.client.admin.disks import alter_disks
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.common.text import printable
from spindle.common.uuids import uuid_text
from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse


@click.command(
    "online",
    epilog=examples(
        "spindle disks online 2 /disk2", "spindle disks online 2 /disk2 --accept-loss orders-3"
    ),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("path")
@click.option(
    "--accept-loss",
    "accepted",
    metavar="TOPIC-PARTITION",
    multiple=True,
    type=PARTITION,
    help="Create this replica empty, although its records are lost. May be repeated.",
)
@cluster_command
@click.pass_context
def online_command(
    context: click.Context,
    client: WireClient,
    as_json: bool,
    broker: int,
    path: str,
    accepted: tuple[TopicPartition, ...],
) -> None:
    """Bring the log directory PATH of a broker back online after a failure.

    A repaired disk keeps its directory id and its logs, which catch up as followers. An empty disk
    in its place is formatted with a new id, and its replicas are copied from their leaders again.
    The command refuses if there is no directory at PATH, or only the empty mount point of a disk
    that is not mounted. It also refuses, exits with 1 and names the replicas, if a replica would be
    lost because no other broker leads its partition: mount the right disk, or name each replica
    with --accept-loss.
    """
    try:
        altered = alter_disks(client, broker, DirectoryAction.ONLINE, path, accepted)
    except DirectoryInUse as error:
        command = _accepting_command(context, broker, path, (*accepted, *error.replicas))
        _refused(error, broker, command, as_json=as_json)
        context.exit(1)
    if as_json:
        click.echo(json.dumps(altered_document(broker, altered)))
        return
    if accepted and not altered.was_formatted:
        click.echo(f"Broker {broker} creates replicas whose records were lost:")
        for line in replica_lines(altered.replicas):
            click.echo(line)
        return
    how = "has formatted it with a new id" if altered.was_formatted else "has its logs back"
    click.echo(
        f"Broker {broker} uses {altered.path} again and {how}: directory id "
        f"{uuid_text(altered.directory_id)}."
    )
    for line in (*replica_lines(altered.replicas), *stray_lines(client, broker, altered.path)):
        click.echo(line)


def _accepting_command(
    context: click.Context, broker: int, path: str, lost: Iterable[TopicPartition]
) -> str:
    """Return the command that accepts the loss of these replicas, for a shell."""
    words = ["spindle", "disks", "online", str(broker), path]
    for option, name in (("--bootstrap-server", "servers"), ("--command-config", "file")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [option, context.params[name]]
    for where in dict.fromkeys(lost):
        words += ["--accept-loss", str(where)]
    return shlex.join(words)


def _refused(error: DirectoryInUse, broker: int, command: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**refusal_document(broker, error), "acceptingCommand": command}))
        return
    lines = [f"{error.message}.", *replica_lines(error.replicas)]
    lines += ["", "If these records are gone for good, this command creates the replicas empty:"]
    for line in (*map(printable, lines), f"  {command}"):
        click.echo(line, err=True)
