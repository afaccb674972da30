"""Replicas of a partition on several nodes against each other, below the high watermark."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from spindle.audit.closing_state import ClosingState
from spindle.audit.digests import STRETCH_OFFSETS
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.placement import ClusterPlacement
from spindle.audit.replica import AuditedReplica
from spindle.audit.right_replica import add_difference, registered_partition, right_replica
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid


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
        pairs = _ComparedPairs()
        for (index, one), (other, another) in combinations(enumerate(group), 2):
            # Two replicas of one node are another finding.
            if one.place.node_id != another.place.node_id:
                pairs.take(
                    index, other, _compare(one, another, compared_until(group, one, another))
                )
        if not pairs.different:
            _add_uncompared(findings, group)
            continue
        votes = [1 + sum(index in pair for pair in pairs.equal) for index in range(len(group))]
        registered = registered_partition(placement, partition, topic_id)
        right = right_replica(group, votes, pairs.different, registered)
        for index, replica in enumerate(group):
            offset = pairs.different.get((index, right.index))
            if offset is not None:
                what = f"its batches from about offset {offset} on"
                best = group[right.index]
                add_difference(findings, replica, best, right, what=what, offset=offset)
    return findings.found


@dataclass(slots=True)
class _ComparedPairs:
    """The pairs of replicas of a group that have the same batches, and those that differ.

    Attributes:
        different: the first offset that differs, of each pair of indexes both ways round.
    """

    equal: set[tuple[int, int]] = field(default_factory=set)
    different: dict[tuple[int, int], int] = field(default_factory=dict)

    def take(self, index: int, other: int, found: "_Comparison") -> None:
        """Note what the comparison of a pair gave."""
        if found.first_offset is not None:
            self.different[index, other] = self.different[other, index] = found.first_offset
        elif found.stretch_count:
            self.equal.add((index, other))


def _add_uncompared(findings: Collector, group: Sequence[AuditedReplica]) -> None:
    """Report replicas that share offsets, but of which none is known to be committed.

    Replicas of directories in use may be new: their checkpoints are written every few seconds.
    """
    are_filled = all(each.end_offset > each.start_offset for each in group)
    if not are_filled or any(each.place.state is ClosingState.IN_USE for each in group):
        return
    for one, another in combinations(group, 2):
        is_shared = max(one.start_offset, another.start_offset) < min(
            one.end_offset, another.end_offset
        )
        is_other_node = one.place.node_id != another.place.node_id
        if is_shared and is_other_node and not compared_until(group, one, another):
            findings.replica = str(one.place.path)
            findings.add(
                FindingKind.REPLICA_UNCOMPARED,
                one.place.path,
                f"it was not compared with {another.place.path}: no checkpoint has a high "
                "watermark of the partition, and their batches have no leader epoch in common",
            )


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
        if place.is_current_of_topic and replica.topic_id is not None:
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


def compared_until(
    group: Sequence[AuditedReplica], one: AuditedReplica, another: AuditedReplica
) -> int:
    """Return an offset up to which two replicas of a group must have the same records.

    These are the committed ones, and those up to the last offset that has the same leader epoch in
    both: an epoch has one leader, and its followers have copied all before it from the same log.
    In directories in use this is taken only without any high watermark, because a log that is
    truncated while it is read has parts of two logs.
    """
    committed = committed_until(group)
    if committed and any(each.place.state is ClosingState.IN_USE for each in group):
        return committed
    agreeing = [
        min(last, other_last) + 1
        for epoch, first, last in one.epochs
        for other_epoch, other_first, other_last in another.epochs
        if epoch == other_epoch >= 0 and max(first, other_first) <= min(last, other_last)
    ]
    return max([committed, *agreeing])


class _Comparison(NamedTuple):
    """How many stretches of two replicas were compared, and the first offset that differs."""

    stretch_count: int
    first_offset: int | None


def _compare(one: AuditedReplica, another: AuditedReplica, end: int) -> _Comparison:
    assert one.digest is not None
    assert another.digest is not None
    starts = (one.start_offset, another.start_offset)
    ends = (min(one.end_offset, end), min(another.end_offset, end))
    stretches = range(max(starts) // STRETCH_OFFSETS, -(-min(ends) // STRETCH_OFFSETS))
    # Most stretches of a log with a large gap have no batch.
    filled = sorted(one.digest.sums.keys() | another.digest.sums.keys())
    count = 0
    for stretch in (each for each in filled if each in stretches):
        first, last = stretch * STRETCH_OFFSETS, (stretch + 1) * STRETCH_OFFSETS
        # A stretch that is not whole in both compares only if both have the same part of it.
        has_start = first >= max(starts) or starts[0] == starts[1]
        has_end = last <= min(ends) or (
            one.end_offset == another.end_offset and one.end_offset <= end
        )
        if has_start and has_end:
            count += 1
            if one.digest.sums.get(stretch) != another.digest.sums.get(stretch):
                return _Comparison(count, max(first, max(starts)))
    return _Comparison(count, None)
