"""`spindle status`: the cluster on one screen."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.table import table_lines
from spindle.client.admin.cluster import (
    ClusterDescription,
    QuorumDescription,
    describe_brokers,
    describe_quorum,
)
from spindle.client.cluster import ClusterView
from spindle.client.log_dirs import LogDirView
from spindle.client.wire.cluster import WireClient
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.sizes import size_text

_MOST_NAMED: Final = 5


class Status(NamedTuple):
    """The answers of the cluster."""

    cluster: ClusterDescription
    quorum: QuorumDescription
    view: ClusterView
    directories: Mapping[int, Sequence[LogDirView]]

    def partitions_of(self, node_id: int) -> list[TopicPartition]:
        """Return the partitions with a replica on a broker."""
        return [
            TopicPartition(topic.name, number)
            for topic in self.view.topics.values()
            for number, each in topic.partitions.items()
            if node_id in each.replicas
        ]

    def led_by(self, node_id: int) -> list[TopicPartition]:
        """Return the partitions that a broker leads."""
        return [
            TopicPartition(topic.name, number)
            for topic in self.view.topics.values()
            for number, each in topic.partitions.items()
            if each.leader == node_id
        ]

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.view.topics.values())

    @property
    def moving(self) -> list[TopicPartition]:
        """The replicas that move between directories of their brokers, a partition for each."""
        return [
            where
            for views in self.directories.values()
            for view in views
            for where, replica in view.replicas.items()
            if replica.is_future
        ]

    @property
    def leaderless(self) -> list[TopicPartition]:
        """The partitions that no live broker leads."""
        live = {each.node_id for each in self.cluster.nodes if not each.is_fenced}
        return [
            TopicPartition(topic.name, number)
            for topic in self.view.topics.values()
            for number, each in topic.partitions.items()
            if each.leader not in live
        ]

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """The partitions with replicas that are not in sync."""
        return [
            TopicPartition(topic.name, number)
            for topic in self.view.topics.values()
            for number, each in topic.partitions.items()
            if len(each.isr) < len(each.replicas)
        ]


@click.command(
    "status", epilog=examples("spindle status -b 127.0.0.1:9092", "spindle status --json")
)
@cluster_command
def status(client: WireClient, as_json: bool) -> None:
    """Show brokers, log directories and partitions that need attention."""
    found = Status(
        describe_brokers(client),
        describe_quorum(client),
        client.metadata(),
        client.describe_log_dirs(),
    )
    if as_json:
        click.echo(json.dumps(status_document(found)))
    else:
        click.echo("\n".join(status_lines(found)))


def status_lines(found: Status) -> list[str]:
    """Return the screen of `spindle status`."""
    head = ("BROKER", "ADDRESS", "RACK", "STATE", "REPLICAS", "LEADS", "DIRECTORIES", "FREE")
    rows = [
        (
            str(node.node_id),
            f"{node.host}:{node.port}",
            node.rack or "-",
            "fenced" if node.is_fenced else "serving",
            str(len(found.partitions_of(node.node_id))),
            str(len(found.led_by(node.node_id))),
            _directories_text(found.directories.get(node.node_id, ())),
            _free_text(found.directories.get(node.node_id, ())),
        )
        for node in found.cluster.nodes
    ]
    voters = ", ".join(str(voter.node_id) for voter in found.quorum.voters)
    return [
        f"cluster     {found.cluster.cluster_id}",
        f"controller  {found.quorum.leader_id} leads in epoch {found.quorum.leader_epoch}, "
        f"voters {voters}",
        f"topics      {len(found.view.topics)} with {found.partition_count} partitions",
        f"attention   {_attention(found)}",
        *_explanations(found),
        *([f"moves       {len(found.moving)} between directories"] if found.moving else []),
        "",
        *table_lines(head, rows),
    ]


def _attention(found: Status) -> str:
    fenced = sum(node.is_fenced for node in found.cluster.nodes)
    offline = sum(
        each.error is not ErrorCode.NONE for views in found.directories.values() for each in views
    )
    cordoned = sum(each.is_cordoned for views in found.directories.values() for each in views)
    counts = {
        "fenced brokers": fenced,
        "offline directories": offline,
        "cordoned directories": cordoned,
        "partitions without a leader": len(found.leaderless),
        "under-replicated partitions": len(found.under_replicated),
    }
    return ", ".join(f"{name}: {count}" for name, count in counts.items() if count) or "nothing"


def _explanations(found: Status) -> Iterator[str]:
    """Yield what fenced brokers and partitions without a leader wait for."""
    indent = " " * 12
    fenced = [str(node.node_id) for node in found.cluster.nodes if node.is_fenced]
    if fenced:
        noun, verb = ("broker", "has") if len(fenced) == 1 else ("brokers", "have")
        who = f"{noun} {_named(fenced)} {verb}"
        yield f"{indent}{who} no session with the controller: stopped, cut off, or starting."
        yield (
            f"{indent}A killed broker that was started again registers when its old session ends: "
            "broker.session.timeout.ms, 9 s by default."
        )
    if found.leaderless:
        yield (
            f"{indent}{_named(list(map(str, found.leaderless)))}: led again when a broker is back "
            "that is known to have all records, or was the last leader."
        )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def _directories_text(views: Sequence[LogDirView]) -> str:
    if not views:
        return "-"
    offline = sum(each.error is not ErrorCode.NONE for each in views)
    return f"{len(views)}, {offline} offline" if offline else str(len(views))


def _free_text(views: Sequence[LogDirView]) -> str:
    """Return the free bytes of the fullest directory, which limits the broker first."""
    known = [each.usable_bytes for each in views if each.usable_bytes >= 0]
    return size_text(min(known)) if known else "-"


def status_document(found: Status) -> dict[str, Any]:
    """Return the same facts as a JSON document."""
    return {
        "clusterId": found.cluster.cluster_id,
        "controllerId": found.quorum.leader_id,
        "controllerEpoch": found.quorum.leader_epoch,
        "voters": [voter.node_id for voter in found.quorum.voters],
        "topics": len(found.view.topics),
        "partitions": found.partition_count,
        "partitionsWithoutLeader": list(map(str, found.leaderless)),
        "movingReplicas": list(map(str, found.moving)),
        "underReplicatedPartitions": list(map(str, found.under_replicated)),
        "brokers": [
            {
                "id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "fenced": node.is_fenced,
                "replicas": len(found.partitions_of(node.node_id)),
                "leads": len(found.led_by(node.node_id)),
                "offlineDirectories": [
                    each.path
                    for each in found.directories.get(node.node_id, ())
                    if each.error is not ErrorCode.NONE
                ],
                "cordonedDirectories": [
                    each.path
                    for each in found.directories.get(node.node_id, ())
                    if each.is_cordoned
                ],
            }
            for node in found.cluster.nodes
        ],
    }
