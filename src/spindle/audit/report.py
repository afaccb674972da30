"""The first and the last step of an audit: list the replicas, and join the results to a report.

Between them `audit.replica.audit_replica` runs for each place. It needs only the place, so it may
run in another process or on the machine that has the disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spindle.audit.findings import AuditFinding, RepairKind, Severity, is_unread
from spindle.audit.log_directory import ListedLogDirectory, list_log_directory
from spindle.audit.placement import ClusterPlacement
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_comparison import compare_replicas
from spindle.audit.replica_place import ReplicaPlace


@dataclass(frozen=True, slots=True)
class AuditListing:
    """The log directories and replicas of an audit, before they are read."""

    directories: tuple[ListedLogDirectory, ...]
    places: tuple[ReplicaPlace, ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        replicas: the replicas that existed until the end.
        findings: of all files, errors first, then by path and position.
        left_out: findings beyond those that are listed.
        moved_away: replicas that were moved or deleted meanwhile.
        resumed: replicas with results of an interrupted audit.
        placement: the metadata of the cluster, None if it is not known.
    """

    directories: tuple[ListedLogDirectory, ...]
    replicas: tuple[AuditedReplica, ...]
    findings: tuple[AuditFinding, ...]
    left_out: int
    moved_away: int
    resumed: int = 0
    placement: ClusterPlacement | None = None

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)

    @property
    def batch_count(self) -> int:
        return sum(replica.batch_count for replica in self.replicas)


def list_audit(
    paths: Sequence[Path], policies: Mapping[str, bool] | None, *, checks_records: bool
) -> AuditListing:
    """List log directories.

    Args:
        paths: roots of log directories, of one or several nodes.
        policies: whether topics are compacted, for topics whose policy is known.
        checks_records: decode the records of all batches, too.

    A directory that cannot be read is a finding.
    """
    directories = tuple(list_log_directory(path, policies) for path in paths)
    places = tuple(
        replace(place, checks_records=checks_records)
        for directory in directories
        for place in directory.replicas
    )
    return AuditListing(directories, places)


def audit_report(
    listing: AuditListing,
    audited: Sequence[AuditedReplica | None],
    placement: ClusterPlacement | None,
    confirmed: Sequence[AuditFinding],
) -> AuditReport:
    """Join the results of all replicas, and compare replicas with each other.

    Args:
        audited: the results for `listing.places`, in any order; None for one that is gone.
        placement: the metadata of the cluster, None if it is not known.
        confirmed: the findings of later scans of the directories (`confirmed_findings`).
    """
    replicas = [replica for replica in audited if replica is not None]
    findings = [finding for replica in replicas for finding in replica.findings]
    findings += compare_replicas(replicas, placement)
    findings += [*confirmed, *_unread(listing.directories, confirmed)]
    findings = _with_remedies(findings, replicas, placement)
    return AuditReport(
        listing.directories,
        tuple(replicas),
        tuple(sorted(findings, key=_order)),
        sum(replica.left_out for replica in replicas),
        len(audited) - len(replicas),
        placement=placement,
    )


def _with_remedies(
    findings: Sequence[AuditFinding],
    replicas: Sequence[AuditedReplica],
    placement: ClusterPlacement | None,
) -> list[AuditFinding]:
    """Add the command that copies a damaged replica again, where possible."""
    remedies = {str(replica.place.path): rebuild_remedy(replica, placement) for replica in replicas}
    return [
        replace(finding, remedy=remedies.get(finding.replica, ""))
        if finding.kind.repair is RepairKind.COPY_AGAIN
        else finding
        for finding in findings
    ]


def rebuild_remedy(audited: AuditedReplica, placement: ClusterPlacement | None) -> str:
    """Return the command that copies a replica again while its broker runs; empty if impossible.

    Args:
        placement: the metadata of the cluster, None if it is not known.
    """
    place = audited.place
    if place.node_id is None or not place.is_current_of_topic:
        return ""
    known = None
    if placement is not None and audited.topic_id is not None:
        known = placement.partition(audited.topic_id, place.partition.partition)
    if known is not None and (len(known.replicas) == 1 or place.node_id not in known.replicas):
        return ""
    command = f"`{rebuild_command(place)}`"
    stopped = (
        "on Apache Kafka, move this replica's directory away while the broker is stopped, and "
        "start it"
    )
    if known is not None and known.leader == place.node_id:
        return (
            "let another replica lead first (`spindle kafka reassign-partitions` with the same "
            f"replicas in another order, then `spindle topic elect`); then run {command} "
            f"while the broker runs: it copies the records from the leader; {stopped}"
        )
    return (
        f"run {command} while the broker runs: it copies the records from the leader, and refuses "
        f"if this replica leads or too few others are in sync; then let another replica lead "
        f"first; {stopped}"
    )


def rebuild_command(place: ReplicaPlace) -> str:
    """Return the command that copies a replica of a known node again."""
    return f"spindle disks rebuild {place.node_id} {place.partition}"


def _order(finding: AuditFinding) -> tuple[bool, str, int]:
    return finding.kind.severity is not Severity.ERROR, finding.path, finding.position or 0


def _unread(
    listed: Sequence[ListedLogDirectory], confirmed: Sequence[AuditFinding]
) -> list[AuditFinding]:
    """Return the paths that only a later scan could read, so that they were not audited."""
    known = {finding.path for finding in confirmed if is_unread([finding])}
    findings = [finding for entry in listed for finding in entry.findings]
    return [finding for finding in findings if is_unread([finding]) and finding.path not in known]
