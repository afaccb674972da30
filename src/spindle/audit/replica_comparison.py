"""Compare the replicas of a partition on several nodes, below the high watermark."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from spindle.audit.digests import OFFSETS_PER_RANGE
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.placement import ClusterPlacement, PlacedPartition
from spindle.audit.reference_replica import (
    RightReplica,
    add_difference,
    registered_partition,
    right_replica,
)
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ClosingState
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid

_MAX_DIFFERENT: Final = 100
"""After this many different ranges, the rest of two replicas is not compared."""


def compare_replicas(
    replicas: Sequence[AuditedReplica],
    placement: ClusterPlacement | None,
) -> list[AuditFinding]:
    """Return the replicas whose batches differ from the reference replica.

    Args:
        placement: names the leader and the ISR, if known.
    """
    findings = Collector()
    for (partition, topic_id), group in replica_groups(replicas, are_compacted=False).items():
        # Two replicas on one node are a different finding.
        pairs = {
            (index, other): _compare(one, another, compared_until(group, one, another))
            for (index, one), (other, another) in combinations(enumerate(group), 2)
            if one.place.node_id != another.place.node_id
        }
        numbers = sorted({number for pair in pairs.values() for number in pair.different})
        if not numbers:
            _add_uncompared(findings, group)
            continue
        registered = registered_partition(placement, partition, topic_id)
        wrong: dict[int, _Wrong] = {}
        for number in numbers:
            right, offsets = _right_in(number, group, pairs, registered)
            for index, offset in offsets.items():
                before = wrong.get(index)
                if before is None or (right.is_certain and not before.right.is_certain):
                    wrong[index] = _Wrong(right, offset)
        for index, fault in sorted(wrong.items()):
            what = f"its batches from about offset {fault.offset} on"
            best = group[fault.right.index]
            add_difference(
                findings, group[index], best, fault.right, what=what, offset=fault.offset
            )
    return findings.found


class _Wrong(NamedTuple):
    """A replica that differs from the reference replica, and the first different offset."""

    right: RightReplica
    offset: int


def _right_in(
    number: int,
    group: Sequence[AuditedReplica],
    pairs: Mapping[tuple[int, int], "_Comparison"],
    registered: PlacedPartition | None,
) -> tuple[RightReplica, dict[int, int]]:
    """Return the correct replica of a range, and those that differ from it, with offsets.

    Each range is decided separately: two replicas may be damaged at different places.
    """
    votes = [1] * len(group)
    different: dict[tuple[int, int], int] = {}
    for (index, other), comparison in pairs.items():
        if number in comparison.different:
            offset = comparison.different[number]
            different[index, other] = different[other, index] = offset
        elif comparison.has_compared(number):
            votes[index] += 1
            votes[other] += 1
    right = right_replica(group, votes, different, registered)
    return right, {
        index: offset for (index, other), offset in different.items() if other == right.index
    }


def _add_uncompared(findings: Collector, group: Sequence[AuditedReplica]) -> None:
    """Report replicas that share offsets, none of which is known to be committed.

    Replicas of directories in use may be new: their checkpoints are written every few seconds.
    """
    are_filled = all(replica.end_offset > replica.start_offset for replica in group)
    if not are_filled or any(replica.place.state is ClosingState.IN_USE for replica in group):
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
    replica_groups = {}
    for key, group in groups.items():
        if any(replica.is_compacted for replica in group) is are_compacted:
            kept = [replica for replica in group if are_compacted or replica.digest is not None]
            if len(kept) > 1:
                replica_groups[key] = kept
    return replica_groups


def committed_until(group: Sequence[AuditedReplica]) -> int:
    """Return an offset up to which all records are committed; checkpoints may lag, never lead."""
    return max(replica.place.checkpointed.high_watermark or 0 for replica in group)


def compared_until(
    group: Sequence[AuditedReplica], one: AuditedReplica, another: AuditedReplica
) -> int:
    """Return an offset up to which two replicas of a group must have the same records.

    These are the committed records, and those up to the last offset with the same leader epoch in
    both: an epoch has one leader, and its followers have copied everything before it from the same
    log. In directories in use the second rule applies only without any high watermark, because a
    log that is truncated while it is read has parts of two logs.
    """
    committed = committed_until(group)
    if committed and any(replica.place.state is ClosingState.IN_USE for replica in group):
        return committed
    agreeing = [
        min(last, other_last) + 1
        for epoch, first, last in one.epochs
        for other_epoch, other_first, other_last in another.epochs
        if epoch == other_epoch >= 0 and max(first, other_first) <= min(last, other_last)
    ]
    return max([committed, *agreeing])


class _Comparison(NamedTuple):
    """The compared ranges of two replicas.

    Attributes:
        compared: (first, last) range; last is below first if there are none.
        different: the first different offset of the first different ranges, by range.
    """

    compared: tuple[int, int]
    different: dict[int, int]

    def has_compared(self, number: int) -> bool:
        """Return True if a range was compared; after too many differences, the others are not."""
        first, last = self.compared
        return first <= number <= last


def _compare(one: AuditedReplica, another: AuditedReplica, end: int) -> _Comparison:
    """Compare the sums of all ranges that begin below an offset."""
    assert one.digest is not None
    assert another.digest is not None
    starts = (one.start_offset, another.start_offset)
    end = min(one.end_offset, another.end_offset, end)
    # A range whose start is missing is compared only if both replicas have the same part.
    start = min(starts) if starts[0] == starts[1] else max(starts) + OFFSETS_PER_RANGE - 1
    first, last = start // OFFSETS_PER_RANGE, (end - 1) // OFFSETS_PER_RANGE
    known = [digest.sum_until(last, end) for digest in (one.digest, another.digest)]
    if None in known:
        last -= 1  # one replica has grown far beyond the other
    different: dict[int, int] = {}
    # Most ranges of a log with a large gap have no batch.
    for number in sorted(one.digest.sums.keys() | another.digest.sums.keys()):
        if not first <= number <= last:
            continue
        if one.digest.sum_until(number, end) != another.digest.sum_until(number, end):
            different[number] = max(number * OFFSETS_PER_RANGE, *starts)
            if len(different) == _MAX_DIFFERENT:
                return _Comparison((first, number), different)
    return _Comparison((first, last), different)
