"""`spindle disks add`, `online` and `remove`: change the log directories of a running broker."""

import json
import shlex
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

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
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import printable
from spindle.common.uuids import uuid_text
from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse, ReplicaState


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


@click.command(
    "remove",
    epilog=examples("spindle disks remove 2 /disk2"),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("path")
@cluster_command
@click.pass_context
def remove_command(
    context: click.Context, client: WireClient, as_json: bool, broker: int, path: str
) -> None:
    """Remove the log directory PATH from a running broker.

    If replicas are in it, the command ends with 1 and shows how to move them to the broker's other
    directories. If the directory has failed, its replicas are created in the other directories and
    copied from their leaders; the command ends with 1 if it has the only replica of a partition.
    The property file is not changed: remove the directory from log.dirs there.
    """
    try:
        altered = alter_disks(client, broker, DirectoryAction.REMOVE, path)
    except DirectoryInUse as error:
        if as_json:
            plan = {"reassignment": _plan(client, broker, error)}
            click.echo(json.dumps(refusal_document(broker, error) | plan))
        else:
            for line in _way_out(client, broker, error):
                click.echo(line, err=True)
        context.exit(1)
    if as_json:
        click.echo(json.dumps(altered_document(broker, altered)))
        return
    click.echo(f"Broker {broker} no longer uses {altered.path}. Remove it from log.dirs, too.")
    for line in replica_lines(altered.replicas):
        click.echo(line)


def _way_out(client: WireClient, broker: int, error: DirectoryInUse) -> Iterable[str]:
    yield f"{error.message}."
    yield from replica_lines(error.replicas)
    if not _can_move(error):
        return
    plan = _plan(client, broker, error)
    yield ""
    if plan is None:
        yield f"Broker {broker} has no other directory that takes replicas: add one first."
        return
    yield "To move them, save the last line as moves.json, run these commands, and remove it again:"
    yield f"  spindle disks cordon {broker} {error.path}"
    yield "  spindle kafka reassign-partitions --reassignment-json-file moves.json --execute"
    yield "  spindle kafka reassign-partitions --reassignment-json-file moves.json --verify"
    yield json.dumps(plan)


def _can_move(error: DirectoryInUse) -> bool:
    return ReplicaState.PRESENT in error.replicas.values()


def _plan(client: WireClient, broker: int, error: DirectoryInUse) -> dict[str, Any] | None:
    """Return a reassignment that moves the replicas to the broker's other directories in turn.

    None if no other directory takes replicas, or if those of the error are lost.
    """
    if not _can_move(error):
        return None
    targets = [
        view.path
        for view in client.describe_log_dirs({}).get(broker, ())
        if view.path != error.path and view.error is ErrorCode.NONE and not view.is_cordoned
    ]
    if not targets:
        return None
    names = list(dict.fromkeys(where.topic for where in error.replicas))
    topics = client.metadata(names).topics
    turns = cycle(targets)
    return {
        "version": 1,
        "partitions": [
            _moved(where, topics[where.topic].partitions[where.partition].replicas, broker, turns)
            for where in error.replicas
            if where.topic in topics and where.partition in topics[where.topic].partitions
        ],
    }


def _moved(
    where: TopicPartition, replicas: Sequence[int], broker: int, turns: Iterable[str]
) -> dict[str, Any]:
    target = next(iter(turns))
    return {
        "topic": where.topic,
        "partition": where.partition,
        "replicas": list(replicas),
        "log_dirs": [target if replica == broker else "any" for replica in replicas],
    }
