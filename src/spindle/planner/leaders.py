"""Choose preferred leaders (first replicas) so that brokers lead equally many partitions.

Reordering replicas moves no bytes. A preferred leader election then applies it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan

_MAX_PASSES: Final = 20


def count_leaders(
    cluster: ClusterModel, places: Sequence[Sequence[int]], slots: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Return the number of partitions of which each broker has the preferred leader.

    Args:
        places: the directories of the replicas of each partition.
        slots: the position of the replica that shall be first, by partition; by default 0.
    """
    counts: Counter[int] = Counter({broker.broker_id: 0 for broker in cluster.brokers})
    for number, place in enumerate(places):
        slot = slots.get(number, 0) if slots else 0
        counts[cluster.directories[place[slot]].broker_id] += 1
    return dict(sorted(counts.items()))


def even_leaders(
    cluster: ClusterModel, places: Sequence[Sequence[int]], partitions: Iterable[int]
) -> dict[int, int]:
    """Return the partitions that need another first replica, and the position of that replica.

    Leadership moves only to a broker that leads at least two partitions fewer. Partitions without a
    leader, whose first replica is offline, or with a replica on a wholly cordoned broker (which no
    reassignment may include) are unchanged.

    Args:
        places: the directories of the replicas of each partition.
        partitions: the partitions whose order may change.
    """
    directories = cluster.directories
    brokers = [directory.broker_id for directory in directories]
    cordoned = cluster.cordoned_brokers()
    counts = count_leaders(cluster, places)
    slots = {
        number: 0
        for number in sorted(partitions)
        if cluster.partitions[number].leader != NO_LEADER
        and directories[places[number][0]].is_online
        and not cordoned.intersection(brokers[place] for place in places[number])
    }
    for _ in range(_MAX_PASSES):
        is_changed = False
        for number, now in slots.items():
            replicas = places[number]
            here = brokers[replicas[now]]
            best, fewest = now, counts[here] - 1
            for slot, place in enumerate(replicas):
                if counts[brokers[place]] < fewest and directories[place].is_online:
                    best, fewest = slot, counts[brokers[place]]
            if best != now:
                counts[here] -= 1
                counts[brokers[replicas[best]]] += 1
                slots[number] = best
                is_changed = True
        if not is_changed:
            break
    return {number: slot for number, slot in slots.items() if slot}


def leaders_of_plan(plan: PlacementPlan) -> tuple[dict[int, int], dict[int, int]]:
    """Return the preferred leaders of each broker before a plan and after it."""
    before = count_leaders(
        plan.cluster, [partition.directories for partition in plan.cluster.partitions]
    )
    return before, count_leaders(plan.cluster, plan.places(), plan.preferred)


def preferred_orders(plan: PlacementPlan) -> dict[TopicPartition, list[int]]:
    """Return the brokers of the partitions whose order a plan changes, the leader first."""
    places, orders = plan.places(), {}
    for number, slot in plan.preferred.items():
        brokers = [plan.cluster.directories[place].broker_id for place in places[number]]
        first = brokers.pop(slot)
        orders[plan.cluster.partitions[number].name] = [first, *brokers]
    return orders
