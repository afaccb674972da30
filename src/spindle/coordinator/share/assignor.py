"""The `simple` assignor of share groups: a partition may have several members (KIP-932)."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.share.member import Partitions

SIMPLE: Final = "simple"
"""Name of the assignor, the only one of Kafka 4.4."""

Readers: TypeAlias = Mapping[str, frozenset[Uuid]]
"""The topics that each member reads."""


def assign(
    readers: Readers, topics: Mapping[Uuid, Iterable[int]], before: Mapping[str, Partitions]
) -> dict[str, dict[Uuid, frozenset[int]]]:
    """Return the partitions of each member.

    Every partition with a reader has at least one member, every member that reads something has at
    least one partition, and the load is even. Where the load allows it, a partition stays where it
    was.
    """
    owned: dict[str, dict[TopicIdPartition, None]] = {member: {} for member in sorted(readers)}
    former = {
        member: [TopicIdPartition(topic, index) for topic, ps in held.items() for index in ps]
        for member, held in before.items()
        if member in owned
    }
    owners = {item: member for member, items in former.items() for item in items}
    sharers: dict[TopicIdPartition, int] = {}
    for topic_id, indexes in sorted(topics.items()):
        members = [member for member in owned if topic_id in readers[member]]
        items = [TopicIdPartition(topic_id, index) for index in sorted(indexes)]
        if members and items:
            _spread(items, members, owned, owners)
            sharers |= dict.fromkeys(items, 1)
    _share(readers, owned, former, sharers)
    return {member: _by_topic(items) for member, items in owned.items()}


def _spread(
    items: list[TopicIdPartition],
    members: list[str],
    owned: dict[str, dict[TopicIdPartition, None]],
    owners: Mapping[TopicIdPartition, str],
) -> None:
    """Give each partition of a topic to its former owner, or else to the member with the fewest."""
    total = sum(len(owned[member]) for member in members) + len(items)
    share, extra = divmod(total, len(members))
    extra -= sum(len(owned[member]) > share for member in members)
    readers = dict.fromkeys(members)
    free = []
    for item in items:
        owner = owners.get(item)
        load = share + 1 if owner is None or owner not in readers else len(owned[owner])
        if owner is not None and load < share:
            owned[owner][item] = None
        elif owner is not None and load == share and extra > 0:
            owned[owner][item] = None
            extra -= 1
        else:
            free.append(item)
    heap = [(len(owned[member]), number, member) for number, member in enumerate(members)]
    heapify(heap)
    for item in free:
        load, number, member = heappop(heap)
        owned[member][item] = None
        heappush(heap, (load + 1, number, member))


def _share(
    readers: Readers,
    owned: dict[str, dict[TopicIdPartition, None]],
    former: Mapping[str, list[TopicIdPartition]],
    sharers: dict[TopicIdPartition, int],
) -> None:
    """Let members that got nothing share the partitions with the fewest members."""
    idle = [member for member, items in owned.items() if not items and readers[member]]
    limit = -(-len(owned) // max(len(sharers), 1))
    heaps: dict[frozenset[Uuid], list[tuple[int, TopicIdPartition]]] = {}
    for member in idle:
        for item in former.get(member, ()):
            if item.topic_id in readers[member] and 0 < sharers.get(item, 0) < limit:
                owned[member][item] = None
                sharers[item] += 1
                break
    for member in idle:
        if owned[member]:
            continue
        heap = heaps.get(readers[member])
        if heap is None:
            heap = [(n, item) for item, n in sharers.items() if item.topic_id in readers[member]]
            heapify(heap)
            heaps[readers[member]] = heap
        while heap:
            count, item = heappop(heap)
            if count < sharers[item]:
                heappush(heap, (sharers[item], item))  # shared meanwhile
                continue
            owned[member][item] = None
            sharers[item] += 1
            heappush(heap, (sharers[item], item))
            break


def _by_topic(items: Iterable[TopicIdPartition]) -> dict[Uuid, frozenset[int]]:
    grouped: dict[Uuid, list[int]] = {}
    for topic_id, index in items:
        grouped.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in grouped.items()}
