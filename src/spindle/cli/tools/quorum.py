"""`kafka-metadata-quorum`: the state of the metadata quorum, and changes of its voters."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Final

import click

from spindle.cli.table import tabbed_lines
from spindle.cli.tools.bootstrap import connect, connect_either, properties_of
from spindle.cli.tools.command import ToolCommand, ToolGroup
from spindle.cli.tools.failures import ToolFailed, UsageError, WrongOptions
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.cli.tools.quorum_voter import joining_voter
from spindle.client.admin.cluster import (
    QuorumDescription,
    QuorumReplica,
    add_voter,
    describe_cluster,
    describe_quorum,
    remove_voter,
)
from spindle.common.uuids import ZERO_UUID, parse_uuid, uuid_text

_COLUMNS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
_MS: Final = 1000


DECLARATION: Final = Declaration(
    "Show and change the metadata quorum.",
    (BOOTSTRAP_SERVER, BOOTSTRAP_CONTROLLER, COMMAND_CONFIG),
    examples=("spindle kafka metadata-quorum describe --status",),
)
_DRY_RUN: Final = Option("dry-run", "Only show the change.")
DESCRIBE: Final = Declaration(
    "Show the state of the quorum.",
    (
        Option("status", "A summary."),
        Option("replication", "Every replica."),
        Option("human-readable", "Times as distances from now."),
        JSON,
    ),
    examples=(
        "spindle kafka metadata-quorum describe --status",
        "spindle kafka metadata-quorum describe --replication",
    ),
)
ADD: Final = Declaration(
    "Make the node of --command-config a voter.",
    (_DRY_RUN,),
    examples=(
        "spindle kafka metadata-quorum add-controller --command-config controller.properties",
    ),
)
REMOVE: Final = Declaration(
    "Remove a controller from the voters.",
    (
        Option("controller-id", "The node id of the controller.", "id", short="i"),
        Option("controller-directory-id", "The id of its metadata directory.", "id", short="d"),
        _DRY_RUN,
    ),
    examples=("spindle kafka metadata-quorum remove-controller -i 3 -d DIRECTORY_ID",),
)


def _describe(options: Options) -> None:
    status, replication = options.has("status"), options.has("replication")
    if status and replication:
        raise ToolFailed(
            "Only one of --status or --replication should be specified with describe sub-command",
            plainly="--status cannot be used with --replication",
        )
    if not status and not replication:
        raise WrongOptions(
            "One of --status or --replication must be specified with describe sub-command",
            plainly="give --status or --replication",
        )
    if status and options.has("human-readable"):
        raise ToolFailed("The option --human-readable is only supported along with --replication")
    with connect_either(options) as client:
        quorum = describe_quorum(client)
        controllers = options.has("bootstrap-controller")
        cluster_id = describe_cluster(client, controllers=controllers).cluster_id
    if options.has("json"):
        click.echo(json.dumps(_document(cluster_id, quorum)))
    elif status:
        click.echo("\n".join(status_lines(cluster_id, quorum)))
    else:
        now_ms = int(time.time() * _MS) if options.has("human-readable") else None
        click.echo("\n".join(tabbed_lines([_COLUMNS, *replica_rows(quorum, now_ms)])))


def status_lines(cluster_id: str, quorum: QuorumDescription) -> list[str]:
    """Return the summary of the quorum."""
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda voter: voter.end_offset)
    lag_ms = 0
    if slowest is not leader:
        known = leader.last_caught_up_ms >= 0 and slowest.last_caught_up_ms >= 0
        lag_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms if known else -1
    return [
        f"ClusterId:              {cluster_id}",
        f"LeaderId:               {quorum.leader_id}",
        f"LeaderEpoch:            {quorum.leader_epoch}",
        f"HighWatermark:          {quorum.high_watermark}",
        f"MaxFollowerLag:         {leader.end_offset - slowest.end_offset}",
        f"MaxFollowerLagTimeMs:   {lag_ms}",
        f"CurrentVoters:          {_replicas_text(quorum, quorum.voters)}",
        f"CurrentObservers:       {_replicas_text(quorum, quorum.observers)}",
    ]


def replica_rows(quorum: QuorumDescription, now_ms: int | None) -> list[Sequence[str]]:
    """Return a row for each replica: the leader, the followers, the observers.

    Args:
        now_ms: show times as distances from this time.
    """
    leader = _leader(quorum)
    followers = [voter for voter in quorum.voters if voter is not leader]
    parts: Iterable[tuple[str, Sequence[QuorumReplica]]] = (
        ("Leader", [leader]),
        ("Follower", followers),
        ("Observer", quorum.observers),
    )
    return [
        (
            str(replica.node_id),
            uuid_text(replica.directory_id),
            str(replica.end_offset),
            str(leader.end_offset - replica.end_offset),
            _time(replica.last_fetch_ms, now_ms),
            _time(replica.last_caught_up_ms, now_ms),
            status,
        )
        for status, replicas in parts
        for replica in replicas
    ]


def _leader(quorum: QuorumDescription) -> QuorumReplica:
    for voter in quorum.voters:
        if voter.node_id == quorum.leader_id:
            return voter
    raise ToolFailed("No value present", "java.util.NoSuchElementException")


def _time(time_ms: int, now_ms: int | None) -> str:
    if now_ms is None or time_ms < 0:
        return str(time_ms)
    return f"{max(0, now_ms - time_ms)} ms ago"


def _replicas_text(quorum: QuorumDescription, replicas: Sequence[QuorumReplica]) -> str:
    return f"[{', '.join(_replica_text(quorum, replica) for replica in replicas)}]"


def _replica_text(quorum: QuorumDescription, replica: QuorumReplica) -> str:
    parts = [f'"id": {replica.node_id}']
    if replica.directory_id != ZERO_UUID:
        parts.append(f'"directoryId": "{uuid_text(replica.directory_id)}"')
    endpoints = [
        f'"{_endpoint(*endpoint)}"' for endpoint in quorum.endpoints.get(replica.node_id, ())
    ]
    if endpoints:
        parts.append(f'"endpoints": [{", ".join(endpoints)}]')
    return "{" + ", ".join(parts) + "}"


def _endpoint(name: str, host: str, port: int) -> str:
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"


def _document(cluster_id: str, quorum: QuorumDescription) -> dict[str, object]:
    def entries(replicas: Sequence[QuorumReplica]) -> list[dict[str, object]]:
        return [
            {
                "id": replica.node_id,
                "directoryId": uuid_text(replica.directory_id),
                "endpoints": [_endpoint(*e) for e in quorum.endpoints.get(replica.node_id, ())],
                "logEndOffset": replica.end_offset,
                "lastFetchTimestamp": replica.last_fetch_ms,
                "lastCaughtUpTimestamp": replica.last_caught_up_ms,
            }
            for replica in replicas
        ]

    return {
        "clusterId": cluster_id,
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "voters": entries(quorum.voters),
        "observers": entries(quorum.observers),
    }


def _add(options: Options) -> None:
    file = options.one("command-config")
    if file is None:
        raise ToolFailed(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller.",
            plainly="give the property file of the new controller: --command-config FILE",
        )
    voter = joining_voter(properties_of(file))
    is_dry = options.has("dry-run")
    if not is_dry:
        options.require_servers()
        servers, controllers = options.one("bootstrap-server"), options.one("bootstrap-controller")
        # The file is that of the new controller, not that of this client.
        with connect(servers, {}, controllers=controllers) as client:
            add_voter(client, voter.node_id, voter.directory_id, voter.listeners)
    endpoints = ", ".join(_endpoint(*listener) for listener in voter.listeners)
    click.echo(
        f"{'DRY RUN of adding' if is_dry else 'Added'} controller {voter.node_id} with "
        f"directory id {uuid_text(voter.directory_id)} and endpoints: {endpoints}"
    )


def _remove(options: Options) -> None:
    node_id = options.integer("controller-id")
    if node_id is None:
        raise UsageError("argument --controller-id/-i is required", "--controller-id is missing")
    if not options.has("controller-directory-id"):
        raise UsageError(
            "argument --controller-directory-id/-d is required",
            "--controller-directory-id is missing",
        )
    if node_id < 0:
        raise ToolFailed(f"Invalid negative --controller-id: {node_id}")
    try:
        directory_id = parse_uuid(options.text("controller-directory-id"))
    except ValueError as error:
        raise ToolFailed(f"Failed to parse --controller-directory-id: {error}") from None
    is_dry = options.has("dry-run")
    if not is_dry:
        with connect_either(options) as client:
            remove_voter(client, node_id, directory_id)
    click.echo(
        f"{'DRY RUN of removing' if is_dry else 'Removed'} KRaft controller "
        f"{node_id} with directory id {uuid_text(directory_id)}"
    )


quorum = ToolGroup(
    "metadata-quorum",
    DECLARATION,
    [
        ToolCommand("describe", DESCRIBE, _describe, is_part=True),
        ToolCommand("add-controller", ADD, _add, is_part=True),
        ToolCommand("remove-controller", REMOVE, _remove, is_part=True),
    ],
)
