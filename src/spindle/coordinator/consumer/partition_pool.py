"""The partitions of all topics that have the same readers, for the assignor `uniform`."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from spindle.common.ids import TopicIdPartition


class PartitionPool:
    """Partitions that each of the readers may have, and the reader that has each.

    All pools of a group share `counts`, the number of partitions of each member.
    """

    __slots__ = ("_counts", "_readers", "held")

    def __init__(self, readers: Sequence[str], counts: dict[str, int]) -> None:
        self._readers = readers
        self._counts = counts
        self.held: dict[str, list[TopicIdPartition]] = {name: [] for name in readers}

    def keep(self, member_id: str, partition: TopicIdPartition) -> None:
        """Let a reader have a partition that it had before."""
        self.held[member_id].append(partition)
        self._counts[member_id] += 1

    def deal(self, free: Iterable[TopicIdPartition]) -> None:
        """Give each partition to the reader with the fewest; of several, to the first by name."""
        fewest = [(self._counts[name], name) for name in self._readers]
        heapify(fewest)
        for partition in free:
            count, name = fewest[0]
            self.keep(name, partition)
            heapreplace(fewest, (count + 1, name))

    def level(self) -> bool:
        """Move partitions to readers that have at least two fewer; return whether one moved.

        Each move makes the sum of the squares of the counts smaller, so repeated calls come to an
        end. In one call a reader either gives partitions away or gets some.
        """
        counts = self._counts
        fewest = [(counts[name], name) for name in self._readers]
        most = [(-counts[name], name) for name, partitions in self.held.items() if partitions]
        heapify(fewest)
        heapify(most)
        has_moved = False
        while most and -most[0][0] - fewest[0][0] > 1:
            giver, taker = most[0][1], fewest[0][1]
            partition = self.held[giver].pop()
            counts[giver] -= 1
            self.keep(taker, partition)
            has_moved = True
            heapreplace(fewest, (counts[taker], taker))
            if self.held[giver]:
                heapreplace(most, (-counts[giver], giver))
            else:
                heappop(most)
        return has_moved
