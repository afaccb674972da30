"""The replicas of a cluster while moves are being chosen.

A replica is a number: the replicas of one partition have consecutive numbers, in their order.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from spindle.common.ids import NO_LEADER
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlannedMove


class Layout:
    """The directory of each replica, and the legal moves.

    Args:
        cluster: the state at the beginning.
        leaving: the directories that get no replica because the plan empties them.
        cordons_leaving: they are cordoned while the moves are carried out.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        leaving: Iterable[int] = (),
        *,
        keeps_racks: bool = True,
        cordons_leaving: bool = False,
    ) -> None:
        rack_by_broker = {broker.broker_id: broker.rack for broker in cluster.brokers}
        numbers: dict[tuple[str | None, int], int] = {}
        self.cluster = cluster
        self.keeps_racks = keeps_racks
        self.broker = [directory.broker_id for directory in cluster.directories]
        self.rack: list[int] = []
        for broker in self.broker:
            rack = rack_by_broker[broker]
            key = (rack, -1) if rack else (None, broker)
            self.rack.append(numbers.setdefault(key, len(numbers)))
        gone = frozenset(leaving)
        self.leaving = sorted(gone)
        self.receives = [
            directory.is_online
            and not directory.is_cordoned
            and directory.capacity_bytes > 0
            and i not in gone
            for i, directory in enumerate(cluster.directories)
        ]
        self.capacity_bytes = [directory.capacity_bytes for directory in cluster.directories]
        # Deleted replicas still have their space: the goal counts it as free, a copy does not.
        self.used = [directory.kept_bytes for directory in cluster.directories]
        self.deleted = [directory.deleted_bytes for directory in cluster.directories]
        self.first: list[int] = []
        self.partition: list[int] = []
        self.size: list[int] = []
        self.place: list[int] = []
        # A dict keeps the order of its keys, so that the plan does not depend on hashes.
        self.held: list[dict[int, None]] = [{} for _ in cluster.directories]
        for number, partition in enumerate(cluster.partitions):
            self.first.append(len(self.place))
            self.partition.extend([number] * len(partition.directories))
            self.size.extend(partition.size_bytes)
            self.place.extend(partition.directories)
        self.first.append(len(self.place))
        for replica, place in enumerate(self.place):
            self.held[place][replica] = None
        self.origin: Sequence[int] = tuple(self.place)
        self.replica_bytes = [sum(self.size[directory] for directory in held) for held in self.held]
        cordoned = cluster.cordoned_brokers()
        self._on_cordoned = self._on_brokers(cordoned)
        closing = cluster.cordoned_brokers(gone) - cordoned if cordons_leaving else frozenset()
        self._on_closing = self._on_brokers(closing)

    def _on_brokers(self, brokers: Collection[int]) -> dict[int, set[int]]:
        """Return the replicas on these brokers, by the number of their partition."""
        replicas: dict[int, set[int]] = {}
        for directory, broker in enumerate(self.broker):
            if broker in brokers:
                for replica in self.held[directory]:
                    replicas.setdefault(self.partition[replica], set()).add(replica)
        return replicas

    def moved(self) -> dict[int, int]:
        """Return the current directories of the replicas that have moved."""
        return {
            replica: place
            for replica, place in enumerate(self.place)
            if place != self.origin[replica]
        }

    def largest_first(self, directories: Iterable[int]) -> list[int]:
        """Return the replicas of directories, largest first."""
        held = [replica for directory in directories for replica in self.held[directory]]
        return sorted(held, key=lambda replica: (-self.size[replica], replica))

    def places(self) -> list[list[int]]:
        """Return the directories of the replicas of each partition."""
        return [self.place[begin:end] for begin, end in pairwise(self.first)]

    def others(self, replica: int) -> list[int]:
        """Return the directories of the other replicas of the same partition."""
        number = self.partition[replica]
        begin, end = self.first[number], self.first[number + 1]
        return [self.place[other] for other in range(begin, end) if other != replica]

    def may_enter_rack(self, replica: int, rack: int) -> bool:
        """Return whether the partition has as many racks as before after a move to a rack."""
        own = self.rack[self.place[replica]]
        if own == rack or not self.keeps_racks:
            return True
        racks = [self.rack[place] for place in self.others(replica)]
        return rack not in racks or own in racks

    def may_enter_broker(self, replica: int, directory: int) -> bool:
        """Return whether the replica may move to the broker of another directory."""
        source, broker = self.place[replica], self.broker[directory]
        if self.broker[source] == broker:
            # A broker copies between its directories only what it can read.
            return source != directory and self.cluster.directories[source].is_online
        # Another broker copies from the leader.
        if self.cluster.partitions[self.partition[replica]].leader == NO_LEADER:
            return False
        if self.cordoned_siblings(replica):
            return False
        return all(self.broker[place] != broker for place in self.others(replica))

    def cordoned_siblings(self, replica: int) -> set[int]:
        """Return the other replicas that keep this one from other brokers.

        They are on brokers that are wholly cordoned, so a reassignment must not include them.
        """
        if not self._on_cordoned and not self._on_closing:
            return set()
        number = self.partition[replica]
        siblings = self._on_cordoned.get(number, set()) - {replica}
        closing = self._on_closing.get(number, set())
        return siblings if replica in closing else siblings | closing

    def is_legal(self, replica: int, directory: int) -> bool:
        """Return whether a move keeps all rules except the space limits."""
        return (
            self.receives[directory]
            and self.may_enter_broker(replica, directory)
            and self.may_enter_rack(replica, self.rack[directory])
        )

    def move(self, replica: int, directory: int) -> None:
        """Put a replica into another directory."""
        source, size = self.place[replica], self.size[replica]
        del self.held[source][replica]
        self.held[directory][replica] = None
        self.used[source] -= size
        self.used[directory] += size
        self.replica_bytes[source] -= size
        self.replica_bytes[directory] += size
        self.place[replica] = directory

    def fill(self, directory: int) -> float:
        """Return the used share of a directory's capacity."""
        capacity_bytes = self.capacity_bytes[directory]
        return self.used[directory] / capacity_bytes if capacity_bytes else 0.0

    def spread(self) -> float:
        """Return the highest fill of remaining minus the lowest of receiving directories."""
        fills = [self.fill(directory) for directory in self.staying()]
        lowest = [self.fill(number) for number, receives in enumerate(self.receives) if receives]
        return max(0.0, max(fills) - min(lowest)) if lowest else 0.0

    def unevenness(self) -> tuple[float, float]:
        """Return the spread, and the variance of the fills of the remaining directories."""
        fills = [self.fill(directory) for directory in self.staying()]
        mean = sum(fills) / len(fills) if fills else 0.0
        return self.spread(), sum((fill - mean) ** 2 for fill in fills)

    def staying(self) -> list[int]:
        """Return the directories with a known fill that the plan does not empty."""
        gone = frozenset(self.leaving)
        return [
            i
            for i, directory in enumerate(self.cluster.directories)
            if directory.is_online and directory.capacity_bytes > 0 and i not in gone
        ]

    def move_to(self, replica: int, directory: int) -> PlannedMove:
        """Return a move of a replica from its current directory."""
        number = self.partition[replica]
        slot = replica - self.first[number]
        return PlannedMove(number, slot, self.place[replica], directory, self.size[replica])

    def leader_broker(self, partition: int) -> int:
        """Return the broker that new replicas copy from.

        If the leader has moved, the replica that took its position leads.
        """
        model = self.cluster.partitions[partition]
        begin = self.first[partition]
        slots = range(len(model.directories))
        led = [slot for slot in slots if self.broker[model.directories[slot]] == model.leader]
        return self.broker[self.place[begin + (led[0] if led else 0)]]
