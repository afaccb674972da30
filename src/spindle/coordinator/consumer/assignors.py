"""The server-side assignors of KIP-848, `uniform` and `range`: from subscriptions to a target.

Both are pure and deterministic: the same group gives the same assignment on every coordinator.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.member import Partitions
from spindle.coordinator.consumer.partition_pool import PartitionPool

Assignment: TypeAlias = dict[str, dict[Uuid, frozenset[int]]]
"""The partitions of each member by member id."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, as an assignor sees it. `topic_ids` are the existing topics it subscribes to."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[Uuid]


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """A group: its members, the partition counts of their topics, and the present target."""

    subscribers: Sequence[Subscriber]
    partition_counts: Mapping[Uuid, int]
    current: Mapping[str, Partitions]


def assign_ranges(group: AssignorInput) -> Assignment:
    """Give each member a range of every topic; the first members get one partition more.

    Members are ordered by instance id, then by member id, so topics with equally many partitions
    are co-partitioned.
    """
    members = sorted(
        group.subscribers,
        key=lambda m: (m.instance_id is None, m.instance_id or m.member_id, m.member_id),
    )
    assignment: Assignment = {member.member_id: {} for member in members}
    for topic_id in sorted(group.partition_counts):
        readers = [member for member in members if topic_id in member.topic_ids]
        if not readers:
            continue
        quota, extra = divmod(group.partition_counts[topic_id], len(readers))
        start = 0
        for number, member in enumerate(readers):
            end = start + quota + (number < extra)
            if end > start:
                assignment[member.member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assignment


def assign_uniformly(group: AssignorInput) -> Assignment:
    """Give all members equally many partitions, and move as few of them as possible.

    If members subscribe to different topics, a partition goes to the subscriber with the fewest
    partitions, and partitions move while this makes two members more equal.
    """
    if len({member.topic_ids for member in group.subscribers}) <= 1:
        return _assign_homogeneous(group)
    return _assign_heterogeneous(group)


def _assign_homogeneous(group: AssignorInput) -> Assignment:
    members = sorted(group.subscribers, key=lambda m: m.member_id)
    if not members:
        return {}
    everything = _partitions(group, members[0].topic_ids)
    minimum, with_one_more = divmod(len(everything), len(members))
    held = _held(group, members)
    # The members that hold most keep the extra partitions, so that these do not move.
    by_size = sorted(members, key=lambda m: -len(held[m.member_id]))
    quotas = {
        member.member_id: minimum + (number < with_one_more)
        for number, member in enumerate(by_size)
    }
    kept = {name: partitions[: quotas[name]] for name, partitions in held.items()}
    taken = {partition for partitions in kept.values() for partition in partitions}
    free = iter([partition for partition in everything if partition not in taken])
    for member in members:
        mine = kept[member.member_id]
        while len(mine) < quotas[member.member_id]:
            mine.append(next(free))
    return _grouped(kept)


def _assign_heterogeneous(group: AssignorInput) -> Assignment:
    members = sorted(group.subscribers, key=lambda m: m.member_id)
    counts = {member.member_id: 0 for member in members}
    pools: list[PartitionPool] = []
    pool_of: dict[Uuid, PartitionPool] = {}
    # Partitions with the fewest possible readers first: they have the least choice.
    for readers, topic_ids in _topics_by_readers(members):
        pools.append(PartitionPool(readers, counts))
        pool_of.update(dict.fromkeys(topic_ids, pools[-1]))
    held = _held(group, members)
    for member_id, partitions in held.items():
        for partition in partitions:
            pool_of[partition[0]].keep(member_id, partition)
    taken = {partition for partitions in held.values() for partition in partitions}
    free: dict[PartitionPool, list[TopicIdPartition]] = {pool: [] for pool in pools}
    for partition in _partitions(group, pool_of.keys()):
        if partition not in taken:
            free[pool_of[partition[0]]].append(partition)
    for pool, partitions in free.items():
        pool.deal(partitions)
    # A move in one pool may allow another one in a pool that shares readers with it.
    while sum(pool.level() for pool in pools):
        pass
    assigned: dict[str, list[TopicIdPartition]] = {member.member_id: [] for member in members}
    for pool in pools:
        for member_id, partitions in pool.held.items():
            assigned[member_id] += partitions
    return _grouped(assigned)


def _topics_by_readers(members: Sequence[Subscriber]) -> list[tuple[tuple[str, ...], list[Uuid]]]:
    """Return the topics by the members that subscribe to them, the fewest members first."""
    readers: dict[Uuid, list[str]] = {}
    for member in members:
        for topic_id in member.topic_ids:
            readers.setdefault(topic_id, []).append(member.member_id)
    topics: dict[tuple[str, ...], list[Uuid]] = {}
    for topic_id in sorted(readers):
        topics.setdefault(tuple(readers[topic_id]), []).append(topic_id)
    return sorted(topics.items(), key=lambda entry: len(entry[0]))


def _partitions(group: AssignorInput, topic_ids: Collection[Uuid]) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(group.partition_counts[topic_id])
    ]


def _held(group: AssignorInput, members: Sequence[Subscriber]) -> dict[str, list[TopicIdPartition]]:
    """Return the partitions of the present target that each member may keep, each only once."""
    taken: set[TopicIdPartition] = set()
    held: dict[str, list[TopicIdPartition]] = {}
    for member in members:
        mine = held[member.member_id] = []
        current = group.current.get(member.member_id, {})
        for topic_id in sorted(current):
            if topic_id not in member.topic_ids:
                continue
            for partition in sorted(current[topic_id]):
                name = TopicIdPartition(topic_id, partition)
                if 0 <= partition < group.partition_counts[topic_id] and name not in taken:
                    taken.add(name)
                    mine.append(name)
    return held


def _grouped(held: Mapping[str, Sequence[TopicIdPartition]]) -> Assignment:
    assignment: Assignment = {}
    for member_id, partitions in held.items():
        by_topic: dict[Uuid, set[int]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, set()).add(partition)
        assignment[member_id] = {t: frozenset(indexes) for t, indexes in by_topic.items()}
    return assignment


ASSIGNORS: Final[Mapping[str, Callable[[AssignorInput], Assignment]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
"""The assignors by the names in `group.consumer.assignors`."""
