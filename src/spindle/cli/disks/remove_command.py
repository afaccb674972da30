"""`spindle disks remove`: remove a log directory from a running broker."""

import json
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.replica_lines import (
    altered_document,
    refusal_document,
    replica_lines,
)
from spindle.cli.examples import examples
from spindle.cli.parameter_types import WholeRange
from spindle.client.admin.disks import alter_disks
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse, ReplicaState


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
