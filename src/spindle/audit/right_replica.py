"""Choose among replicas that differ the one to trust, if there is evidence for one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spindle.audit.findings import Collector, FindingKind, Severity
from spindle.audit.placement import ClusterPlacement, PlacedPartition
from spindle.audit.replica import AuditedReplica
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid


@dataclass(frozen=True, slots=True)
class RightReplica:
    """The replica to compare the others with.

    Attributes:
        index: in its group.
        reason: why it is right, part of a sentence.
        is_certain: False if another replica with other records has the same evidence for it.
    """

    index: int
    reason: str
    is_certain: bool


def right_replica(
    group: Sequence[AuditedReplica],
    votes: Sequence[int],
    different: Collection[tuple[int, int]],
    registered: PlacedPartition | None,
) -> RightReplica:
    """Return the replica to trust among those that differ.

    Args:
        votes: of each replica, the count of replicas with the same records, itself included.
        different: the pairs of indexes whose records differ, both ways round; not empty.
        registered: the partition in the metadata, None if it is not known.
    """
    leader = None if registered is None else registered.leader
    in_sync = () if registered is None else registered.isr or registered.elr

    def is_in_majority(index: int) -> bool:
        """Return whether the replica is in sync and most replicas have the same records.

        If bytes changed on the leader's disk, these are the replicas that copied them before.
        Replicas out of sync have no say: they may agree on records that were never committed.
        """
        return group[index].place.node_id in in_sync and votes[index] * 2 > len(group)

    def rank(index: int) -> tuple[bool, bool, bool, bool, int, int]:
        replica = group[index]
        node = replica.place.node_id
        is_sound = not any(f.kind.severity is Severity.ERROR for f in replica.findings)
        return (
            is_sound,
            is_in_majority(index),
            node is not None and node == leader,
            node in in_sync,
            votes[index],
            replica.latest_epoch,
        )

    candidates = sorted({index for index, _ in different})
    best = max(candidates, key=lambda index: (rank(index), group[index].end_offset))
    is_certain = not any(
        rank(index) == rank(best) for index in candidates if (index, best) in different
    )
    node = group[best].place.node_id
    if node is not None and node == leader:
        reason = "leads the partition"
    elif is_in_majority(best):
        reason = "is in sync and agrees with most replicas"
    elif node in in_sync and registered is not None and registered.isr:
        reason = "is in sync"
    elif node in in_sync:
        reason = "is eligible to lead (ELR), while no replica is in sync"
    elif votes[best] > 1:
        reason = "agrees with another replica"
    elif all(
        group[index].latest_epoch < group[best].latest_epoch
        for index in candidates
        if (index, best) in different
    ):
        reason = "has the newest leader epoch"
    else:
        reason = "has no damage of its own"
    return RightReplica(best, reason, is_certain)


def registered_partition(
    placement: ClusterPlacement | None, partition: TopicPartition, topic_id: Uuid
) -> PlacedPartition | None:
    """Return the partition in the metadata, None if it is not known."""
    return None if placement is None else placement.partition(topic_id, partition.partition)


def add_difference(
    findings: Collector,
    replica: AuditedReplica,
    best: AuditedReplica,
    right: RightReplica,
    *,
    what: str,
    details: str = "",
    offset: int,
) -> None:
    """Report a replica that differs from the right one, or from one that may be right.

    Args:
        what: the records that differ, the subject of the sentence.
        details: more at the end of the sentence.
    """
    findings.replica = str(replica.place.path)
    if right.is_certain:
        kind, reason = FindingKind.REPLICA_DIFFERS, f", which {right.reason}"
    else:
        kind = FindingKind.REPLICA_UNDECIDED
        reason = ", and nothing known here tells which of them are right"
    findings.add(
        kind,
        replica.place.path,
        f"{what} are not those of {best.place.path}{reason}{details}",
        offset=offset,
    )
