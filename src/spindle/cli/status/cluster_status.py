"""The state of a cluster, and the problems that need attention."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from spindle.cli.disks.broker_poll import BrokerReport, Survey
from spindle.cli.disks.state_text import hangs, health_text, silence_text
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.cluster import (
    ClusterDescription,
    QuorumDescription,
    describe_brokers,
    describe_quorum,
)
from spindle.client.admin.partitions import Reassignment, list_reassignments
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import ClusterView, PartitionView
from spindle.client.disks import DiskView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun, size_text
from spindle.operations.throttles import has_throttle

FULL: Final = 0.9
"""The used share of a file system above which a directory needs attention."""


class Problem(NamedTuple):
    """A problem. Its key stays the same while it lasts.

    Attributes:
        kind: the screen shows the number of problems of each kind.
        broker_id: the broker that reported it; None if it came from the metadata.
    """

    key: str
    kind: str
    text: str
    broker_id: int | None = None


class Status(NamedTuple):
    """The responses of the cluster.

    Attributes:
        quorum: the description, or the error of the request.
        reports: the directories of each broker, or the error of its request.
        reassigned: the partitions whose replicas move to other brokers, if the user may see them.
        throttled: brokers with throttles for moves although nothing moves.
    """

    cluster: ClusterDescription
    quorum: QuorumDescription | str
    view: ClusterView
    reports: Sequence[BrokerReport]
    reassigned: Mapping[TopicPartition, Reassignment] = MappingProxyType({})
    throttled: Sequence[int] = ()

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionView]]:
        """Yield all partitions."""
        for topic in self.view.topics.values():
            for number, partition in topic.partitions.items():
                yield TopicPartition(topic.name, number), partition

    def disks_of(self, node_id: int) -> Sequence[DiskView]:
        """Return the directories of a broker; empty if it did not answer."""
        for report in self.reports:
            if report.node.node_id == node_id and report.disks is not None:
                return report.disks.disks
        return ()

    @property
    def moving(self) -> list[TopicPartition]:
        """The partitions of replicas that move between directories of their brokers."""
        return [
            move.partition
            for report in self.reports
            if report.disks is not None
            for move in report.disks.moves
        ]

    @property
    def leaderless(self) -> list[TopicPartition]:
        """The partitions that no live broker leads."""
        live = {node.node_id for node in self.cluster.nodes if not node.is_fenced}
        return [where for where, partition in self.partitions() if partition.leader not in live]

    @property
    def leaderless_on_lost_disks(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Partitions without a leader whose in-sync brokers all run but have lost the replica.

        The log directory is offline or was replaced. The values are the ids of those brokers.
        """
        live = {node.node_id for node in self.cluster.nodes if not node.is_fenced}
        return {
            where: partition.isr
            for where, partition in self.partitions()
            if partition.leader not in live
            and partition.isr
            and live.intersection(partition.offline_replicas).issuperset(partition.isr)
        }

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """The partitions with replicas out of sync; replicas that a move adds do not count."""
        return [
            where
            for where, partition in self.partitions()
            if set(partition.replicas).difference(partition.isr, self._adding(where))
        ]

    def _adding(self, where: TopicPartition) -> Collection[int]:
        moved = self.reassigned.get(where)
        return moved.adding if moved is not None else ()

    def problems(self) -> list[Problem]:
        """Return all problems, the worst first.

        Cordons and moves are intended, so they are no problems.
        """
        problems = [
            Problem(f"leaderless {where}", "partitions without a leader", f"{where} has no leader")
            for where in self.leaderless
        ]
        for report in self.reports:
            problems += _broker_problems(report)
        if isinstance(self.quorum, str):
            problems.append(
                Problem(
                    "quorum", "unknown quorum", f"the quorum cannot be described: {self.quorum}"
                )
            )
        problems += [
            Problem(
                f"under-replicated {where}",
                "under-replicated partitions",
                f"{where} has replicas that are not in sync",
            )
            for where in self.under_replicated
        ]
        return problems


def _broker_problems(report: BrokerReport) -> Iterator[Problem]:
    node = report.node
    name = f"broker {node.node_id}"
    if node.is_fenced:
        yield Problem(f"fenced {node.node_id}", "fenced brokers", f"{name} is fenced")
    if report.disks is None:
        text = f"{name}: {silence_text(report)}"
        kind = "brokers that refuse access" if report.is_refused else "unresponsive brokers"
        yield Problem(f"silent {node.node_id}", kind, text)
        return
    for damage in report.disks.damages:
        where, holder = damage.partition, damage.broker_id
        text = (
            f"{where} on broker {holder} is damaged: {damage.finding}. Look for the extent with "
            f"`spindle audit`, and copy the replica again from another one: "
            f"`spindle disks rebuild {holder} {where}`"
        )
        yield Problem(f"damaged {holder} {where}", "damaged replicas", text, node.node_id)
    for disk in report.disks.disks:
        for problem in _disk_problems(disk, f"{node.node_id}:{disk.path}"):
            yield problem._replace(broker_id=node.node_id)


def _disk_problems(disk: DiskView, place: str) -> Iterator[Problem]:
    health = health_text(disk)
    if health:
        yield Problem(f"device {place}", "devices with errors", f"{place} on {health}")
    if disk.failure is not None:
        text = f"{place} is offline: {disk.failure}"
        yield Problem(f"offline {place}", "offline directories", text)
        return
    if hangs(disk):
        yield Problem(f"hangs {place}", "hanging directories", f"{place} does not answer")
    if disk.total_bytes > 0 and disk.used_bytes > FULL * disk.total_bytes:
        text = f"{place} is {disk.used_bytes / disk.total_bytes:.1%} full"
        text += f", {size_text(disk.usable_bytes)} are free"
        yield Problem(f"full {place}", f"directories above {FULL:.0%}", text)
    if disk.stray_count:
        text = (
            f"{place} has {count_noun(disk.stray_count, 'stray log')} with "
            f"{size_text(disk.stray_bytes)}: the metadata places their replicas elsewhere; look "
            "at the folders with the suffix -stray, and delete what you do not need"
        )
        yield Problem(f"stray {place}", "directories with stray logs", text)


def take_status(client: WireClient, survey: Survey) -> Status:
    """Query the cluster.

    Raises:
        ApiError, ClientError: its brokers and partitions could not be listed.
    """
    client.forget_metadata()
    cluster, quorum = describe_brokers(client), _quorum(client)
    before = _reassigned(client)
    view = client.metadata()
    # A move that begins or ends between these responses explains its new replicas, too.
    reassigned = {**before, **_reassigned(client)}
    return Status(cluster, quorum, view, tuple(survey.take(cluster)), reassigned)


def with_left_throttles(client: WireClient, found: Status) -> Status:
    """Return the status with the brokers that have throttles for moves although nothing moves."""
    if found.reassigned or found.moving:
        return found
    throttled = []
    for report in found.reports:
        # A broker that did not respond before is not queried again.
        if report.disks is not None:
            with suppress(*FAILURES):
                if has_throttle(client, report.node.node_id):
                    throttled.append(report.node.node_id)
    return found._replace(throttled=throttled)


def _reassigned(client: WireClient) -> Mapping[TopicPartition, Reassignment]:
    try:
        return list_reassignments(client)
    except ApiError:
        return {}


def _quorum(client: WireClient) -> QuorumDescription | str:
    try:
        return describe_quorum(client)
    except ApiError as error:
        reason = failure(error).plainly
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            login = client.settings.security.login
            name = getattr(login, "username", None)
            user = f"User:{name}" if name else "this user"
            reason = f"{user} lacks DESCRIBE on resource Cluster:kafka-cluster ({reason})"
        return reason
