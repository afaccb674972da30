"""`kafka-metadata-quorum`: the state of the metadata quorum, and changes of its voters."""

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from typing import Final

import click

from spindle.cli.tools.arguments import ArgumentParser, add_servers, argument_main, connect_by
from spindle.cli.tools.bootstrap import properties_of
from spindle.cli.tools.command import FAILED, ToolCommand
from spindle.cli.tools.failures import Failure, ToolFailed
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


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="kafka-metadata-quorum",
        description="This tool describes kraft metadata quorum status.",
    )
    add_servers(parser)
    parser.add_argument("--command-config", help="Property file of the client.")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Show the state of the quorum.")
    describe.add_argument("--status", action="store_true", help="A summary.")
    describe.add_argument("--replication", action="store_true", help="Every replica.")
    describe.add_argument("--human-readable", action="store_true", help="Times as distances.")
    describe.add_argument("--json", action="store_true", help="Print JSON.")
    add = commands.add_parser("add-controller", help="Make the controller of a file a voter.")
    add.add_argument("--dry-run", action="store_true", help="Only say what would be done.")
    remove = commands.add_parser("remove-controller", help="Take the vote of a controller.")
    remove.add_argument("--controller-id", "-i", type=int, required=True, help="Its number.")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="Its directory.")
    remove.add_argument("--dry-run", action="store_true", help="Only say what would be done.")
    return parser


def _run(given: argparse.Namespace) -> None:
    if given.command == "describe":
        _describe(given)
    elif given.command == "add-controller":
        _add(given)
    else:
        _remove(given)


def _describe(given: argparse.Namespace) -> None:
    if given.status and given.replication:
        raise ToolFailed(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not given.status and not given.replication:
        raise ToolFailed(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if given.status and given.human_readable:
        raise ToolFailed("The option --human-readable is only supported along with --replication")
    with connect_by(given, given.command_config) as client:
        quorum = describe_quorum(client)
        controllers = given.bootstrap_server is None
        cluster_id = describe_cluster(client, controllers=controllers).cluster_id
    if given.json:
        click.echo(json.dumps(_document(cluster_id, quorum)))
    elif given.status:
        click.echo("\n".join(status_lines(cluster_id, quorum)))
    else:
        now_ms = int(time.time() * _MS) if given.human_readable else None
        click.echo("\n".join(table([_COLUMNS, *replica_rows(quorum, now_ms)])))


def status_lines(cluster_id: str, quorum: QuorumDescription) -> list[str]:
    """The summary."""
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
    """A row for each replica: the leader, the followers, the observers.

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


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns filled up with spaces, each followed by a tab."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
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
    return f"[{', '.join(_replica_text(quorum, each) for each in replicas)}]"


def _replica_text(quorum: QuorumDescription, replica: QuorumReplica) -> str:
    parts = [f'"id": {replica.node_id}']
    if replica.directory_id != ZERO_UUID:
        parts.append(f'"directoryId": "{uuid_text(replica.directory_id)}"')
    endpoints = [f'"{_endpoint(*each)}"' for each in quorum.endpoints.get(replica.node_id, ())]
    if endpoints:
        parts.append(f'"endpoints": [{", ".join(endpoints)}]')
    return "{" + ", ".join(parts) + "}"


def _endpoint(name: str, host: str, port: int) -> str:
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"


def _document(cluster_id: str, quorum: QuorumDescription) -> dict[str, object]:
    def entries(replicas: Sequence[QuorumReplica]) -> list[dict[str, object]]:
        return [
            {
                "id": each.node_id,
                "directoryId": uuid_text(each.directory_id),
                "endpoints": [_endpoint(*e) for e in quorum.endpoints.get(each.node_id, ())],
                "logEndOffset": each.end_offset,
                "lastFetchTimestamp": each.last_fetch_ms,
                "lastCaughtUpTimestamp": each.last_caught_up_ms,
            }
            for each in replicas
        ]

    return {
        "clusterId": cluster_id,
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "voters": entries(quorum.voters),
        "observers": entries(quorum.observers),
    }


def _add(given: argparse.Namespace) -> None:
    if given.command_config is None:
        raise ToolFailed(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller."
        )
    voter = joining_voter(properties_of(given.command_config))
    if not given.dry_run:
        with connect_by(given, None) as client:
            add_voter(client, voter.node_id, voter.directory_id, voter.listeners)
    endpoints = ", ".join(_endpoint(*each) for each in voter.listeners)
    click.echo(
        f"{'DRY RUN of adding' if given.dry_run else 'Added'} controller {voter.node_id} with "
        f"directory id {uuid_text(voter.directory_id)} and endpoints: {endpoints}"
    )


def _remove(given: argparse.Namespace) -> None:
    if given.controller_id < 0:
        raise ToolFailed(f"Invalid negative --controller-id: {given.controller_id}")
    try:
        directory_id = parse_uuid(given.controller_directory_id)
    except ValueError as error:
        raise ToolFailed(f"Failed to parse --controller-directory-id: {error}") from None
    if not given.dry_run:
        with connect_by(given, given.command_config) as client:
            remove_voter(client, given.controller_id, directory_id)
    click.echo(
        f"{'DRY RUN of removing ' if given.dry_run else 'Removed '} KRaft controller "
        f"{given.controller_id} with directory id {uuid_text(directory_id)}"
    )


def _report(found: Failure) -> int:
    refused = found.java_class.startswith("org.apache.kafka.common.errors.")
    click.echo(str(found) if refused else found.text, err=True)
    return FAILED


quorum = ToolCommand("quorum", argument_main(_parser(), _run, _report))
