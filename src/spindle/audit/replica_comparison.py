"""Replicas of a partition on several nodes against each other, below the high watermark."""

from collections import Counter
from collections.abc import Sequence

from spindle.audit.digests import STRETCH_OFFSETS
from spindle.audit.findings import AuditFinding, Collector, FindingKind, Severity
from spindle.audit.placement import ClusterPlacement
from spindle.audit.replica import AuditedReplica
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.log.formats.names import DirectoryKind


def compare_replicas(
    replicas: Sequence[AuditedReplica],
    placement: ClusterPlacement | None,
) -> list[AuditFinding]:
    """Return the replicas whose batches differ from those of the replica that is right.

    Args:
        placement: says which replica leads, and which ones are in sync, if it is known.
    """
    findings = Collector()
    for (partition, topic_id), group in replica_groups(replicas, are_compacted=False).items():
        counts = Counter(_content(replica) for replica in group)
        votes = [counts[_content(replica)] for replica in group]
        index, reason = right_one(group, votes, partition, topic_id, placement)
        best = group[index]
        for replica in group:
            # Two replicas of one node are another finding.
            if replica is not best and replica.place.node_id != best.place.node_id:
                _compare(findings, replica, best, reason, committed_until(group))
    return findings.found


def replica_groups(
    replicas: Sequence[AuditedReplica], *, are_compacted: bool
) -> dict[tuple[TopicPartition, Uuid], list[AuditedReplica]]:
    """Return the replicas of each partition with the same topic id, if there are several.

    Args:
        are_compacted: return the partitions of which a replica was compacted; else the others.
            Compaction removes other batches on each broker.
    """
    groups: dict[tuple[TopicPartition, Uuid], list[AuditedReplica]] = {}
    for replica in replicas:
        place = replica.place
        is_plain = place.kind is DirectoryKind.CURRENT and not place.is_metadata_log
        if is_plain and replica.topic_id is not None:
            groups.setdefault((place.partition, replica.topic_id), []).append(replica)
    found = {}
    for key, group in groups.items():
        if any(replica.is_compacted for replica in group) is are_compacted:
            kept = [each for each in group if are_compacted or each.digest is not None]
            if len(kept) > 1:
                found[key] = kept
    return found


def committed_until(group: Sequence[AuditedReplica]) -> int:
    """Return an offset up to which all is committed; checkpoints are behind, never ahead."""
    return max(replica.place.checkpointed.high_watermark or 0 for replica in group)


def right_one(
    group: Sequence[AuditedReplica],
    votes: Sequence[int],
    partition: TopicPartition,
    topic_id: Uuid,
    placement: ClusterPlacement | None,
) -> tuple[int, str]:
    """Return the index of the replica to trust, and why.

    Args:
        votes: of each replica, the count of replicas with the same content.
    """
    registered = None if placement is None else placement.partition(topic_id, partition.partition)
    leader = None if registered is None else registered.leader
    in_sync = () if registered is None else registered.isr

    def is_of_most(index: int) -> bool:
        """Tell whether the replica is in sync and most replicas have the same content.

        If bytes changed on the leader's disk, these are the replicas that copied them before.
        Replicas out of sync have no say: they may agree on records that were never committed.
        """
        return group[index].place.node_id in in_sync and votes[index] * 2 > len(group)

    def rank(index: int) -> tuple[bool, bool, bool, bool, int, int, int]:
        replica = group[index]
        node = replica.place.node_id
        is_sound = not any(f.kind.severity is Severity.ERROR for f in replica.findings)
        return (
            is_sound,
            is_of_most(index),
            node is not None and node == leader,
            node in in_sync,
            votes[index],
            replica.latest_epoch,
            replica.end_offset,
        )

    best = max(range(len(group)), key=rank)
    node = group[best].place.node_id
    if node is not None and node == leader:
        return best, "leads the partition"
    if is_of_most(best):
        return best, "is in sync and agrees with most replicas"
    if node in in_sync:
        return best, "is in sync"
    if votes[best] > 1:
        return best, "agrees with another replica"
    return best, "has the newest leader epoch, or the longest log"


def _content(replica: AuditedReplica) -> tuple[tuple[int, int], ...]:
    assert replica.digest is not None
    return tuple(sorted(replica.digest.sums.items()))


def _compare(
    findings: Collector, replica: AuditedReplica, best: AuditedReplica, reason: str, end: int
) -> None:
    assert replica.digest is not None
    assert best.digest is not None
    starts = (replica.start_offset, best.start_offset)
    ends = (min(replica.end_offset, end), min(best.end_offset, end))
    stretches = range(max(starts) // STRETCH_OFFSETS, -(-min(ends) // STRETCH_OFFSETS))
    # Most stretches of a log with a large gap have no batch.
    filled = sorted(replica.digest.sums.keys() | best.digest.sums.keys())
    wrong = []
    for stretch in (each for each in filled if each in stretches):
        first, last = stretch * STRETCH_OFFSETS, (stretch + 1) * STRETCH_OFFSETS
        # A stretch that is not whole in both compares only if both have the same part of it.
        has_start = first >= max(starts) or starts[0] == starts[1]
        has_end = last <= min(ends) or (
            replica.end_offset == best.end_offset and replica.end_offset <= end
        )
        sums = (replica.digest.sums.get(stretch), best.digest.sums.get(stretch))
        if has_start and has_end and sums[0] != sums[1]:
            wrong.append(max(first, max(starts)))
    if wrong:
        findings.replica = str(replica.place.path)
        findings.add(
            FindingKind.REPLICA_DIFFERS,
            replica.place.path,
            f"its batches from about offset {wrong[0]} on are not those of {best.place.path}, "
            f"which {reason}",
            offset=wrong[0],
        )
