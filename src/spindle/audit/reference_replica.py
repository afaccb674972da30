"""Choose the reference among replicas that differ, if there is evidence for one."""

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

    A leader epoch has one leader, from which all others copied. So if the epoch histories agree,
    all replicas once had the same bytes, and the bytes of the majority are right, whichever replica
    leads or stopped last. If the histories contradict each other, a leader was elected without the
    records of the others, and the metadata shows which history continued.

    Args:
        votes: of each replica, the count of replicas with the same records, itself included.
        different: the pairs of indexes whose records differ, both ways round; not empty.
        registered: the partition in the metadata, None if it is not known.
    """
    leader = None if registered is None else registered.leader
    in_sync = () if registered is None else registered.isr or registered.elr

    def is_sound(index: int) -> bool:
        return not any(f.kind.severity is Severity.ERROR for f in group[index].findings)

    def continuity(index: int) -> tuple[bool, bool, int]:
        """Return the evidence that the history of a replica is the one that continued."""
        node = group[index].place.node_id
        return node is not None and node == leader, node in in_sync, group[index].latest_epoch

    def is_better(index: int, rival: int) -> str:
        """Return the reason why a replica is right and its rival is not; empty without a reason.

        Damage or another history is no reason against records that more replicas have.
        """
        if votes[index] < votes[rival]:
            return ""
        has_diverged = _has_diverged(group[index], group[rival])
        if votes[index] > votes[rival] and not has_diverged:
            count = votes[index] - 1
            return "agrees with another replica" if count == 1 else f"agrees with {count} others"
        if is_sound(index) and not is_sound(rival):
            return "has no damage of its own"
        if has_diverged and continuity(index) > continuity(rival):
            is_leader, is_in_sync, _ = continuity(index)
            if is_leader:
                return "leads the partition, with other leader epochs"
            return "is in sync" if is_in_sync else "has the newest leader epoch"
        return ""

    candidates = sorted({index for index, _ in different})
    best = max(
        candidates,
        key=lambda index: (
            votes[index],
            is_sound(index),
            continuity(index),
            group[index].end_offset,
        ),
    )
    reasons = [is_better(best, index) for index in candidates if (index, best) in different]
    return RightReplica(best, reasons[0], all(reasons))


def _has_diverged(one: AuditedReplica, another: AuditedReplica) -> bool:
    """Return whether two replicas have batches of different leader epochs at the same offsets."""
    return any(
        epoch != other_epoch and max(first, other_first) <= min(last, other_last)
        for epoch, first, last in one.epochs
        for other_epoch, other_first, other_last in another.epochs
    )


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
        reason = ", and nothing known here shows which of them are right"
    findings.add(
        kind,
        replica.place.path,
        f"{what} are not those of {best.place.path}{reason}{details}",
        offset=offset,
    )
