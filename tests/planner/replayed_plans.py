"""Replays a plan round by round and checks every rule; it shares no code with the planner.

It reads the data of the cluster and of the plan, and nothing that the planner has computed is
believed: not even the durations and the fills.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from spindle.common.ids import NO_LEADER
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan, PlannedRound


@dataclass
class Replay:
    """The cluster between two rounds: where each replica is, and how full each directory is."""

    cluster: ClusterModel
    limits: PlanLimits
    leaving: frozenset[int]
    places: list[list[int]] = field(init=False)
    used: list[int] = field(init=False)
    deleted: list[tuple[int, int, int]] = field(init=False)
    """Replicas that have left and still have their space: until when in ms, where, and bytes."""
    time_ms: int = 0

    def __post_init__(self) -> None:
        self.places = [list(partition.directories) for partition in self.cluster.partitions]
        directories = self.cluster.directories
        self.used = [directory.used_bytes - directory.deleted_bytes for directory in directories]
        self.deleted = [
            (directory.deletion_delay_ms, number, directory.deleted_bytes)
            for number, directory in enumerate(directories)
        ]

    def broker(self, directory: int) -> int:
        return self.cluster.directories[directory].broker_id

    def racks(self, places: list[int]) -> int:
        """Return the number of racks; a broker without a rack is one of its own."""
        named = {broker.broker_id: broker.rack for broker in self.cluster.brokers}
        return len({named[self.broker(place)] or self.broker(place) for place in places})

    def cordoned_brokers(self) -> set[int]:
        """Return the brokers that no reassignment may include (KIP-1066, Kafka 4.4)."""
        online = [d for d in self.cluster.directories if d.is_online]
        open_ones = {directory.broker_id for directory in online if not directory.is_cordoned}
        return {directory.broker_id for directory in online} - open_ones

    def leader(self, partition: int) -> int:
        """Return the broker that a copy of another broker comes from."""
        model = self.cluster.partitions[partition]
        for position, place in enumerate(model.directories):
            if self.broker(place) == model.leader:
                return self.broker(self.places[partition][position])
        return self.broker(self.places[partition][0])

    def run(self, each: PlannedRound) -> None:
        """Check a round with all copies present and no source freed, then carry it out."""
        assert each.moves
        moved = [move.partition for move in each.moves]
        assert len(moved) == len(set(moved)), "two moves of a partition in one round"
        self.time_ms += each.wait_ms
        self.deleted = [left for left in self.deleted if left[0] > self.time_ms]
        self.check_space(each)
        self.check_throttle(each)
        for move in each.moves:
            places = self.places[move.partition]
            model = self.cluster.partitions[move.partition]
            source, target = move.source, move.target
            to = self.cluster.directories[target]
            assert places[move.slot] == source
            assert source != target
            assert move.size_bytes == model.size_bytes[move.slot]
            assert to.is_online
            assert not to.is_cordoned
            assert target not in self.leaving
            if self.broker(source) == self.broker(target):
                assert self.cluster.directories[source].is_online
            else:
                assert model.leader != NO_LEADER, "nobody to copy from"
                kept = {self.broker(place) for place in places if place != source}
                assert not kept & self.cordoned_brokers()
            racks = self.racks(places)
            places[move.slot] = target
            assert len({self.broker(place) for place in places}) == len(model.directories)
            if self.limits.keeps_racks:
                assert self.racks(places) >= racks
            self.used[source] -= move.size_bytes
            self.used[target] += move.size_bytes
            delay_ms = self.cluster.directories[source].deletion_delay_ms
            gone_ms = self.time_ms + each.duration_ms + delay_ms
            self.deleted.append((gone_ms, source, move.size_bytes))
        self.time_ms += each.duration_ms

    def check_space(self, each: PlannedRound) -> None:
        during = list(self.used)
        for _, directory, size_bytes in self.deleted:
            during[directory] += size_bytes
        for move in each.moves:
            during[move.target] += move.size_bytes
        for move in each.moves:
            capacity = self.cluster.directories[move.target].capacity_bytes
            assert during[move.target] <= self.limits.max_fill * capacity
        ends = Counter(move.source for move in each.moves)
        ends.update(move.target for move in each.moves)
        for directory, count in ends.items():
            is_read = self.cluster.directories[directory].is_online
            assert count <= self.limits.parallel_moves or not is_read

    def check_throttle(self, each: PlannedRound) -> None:
        """Check that the bytes of each broker, new records included, fit into the duration."""
        copied: dict[tuple[str, int], float] = defaultdict(float)
        for move in each.moves:
            rate = self.cluster.partitions[move.partition].write_bytes_per_second
            cost = move.size_bytes + rate * each.duration_ms / 1000
            here, there = self.broker(move.source), self.broker(move.target)
            if here == there:
                copied["own", here] += cost
            else:
                copied["in", there] += cost
                copied["out", self.leader(move.partition)] += cost
        most = self.limits.throttle_bytes_per_second * each.duration_ms / 1000
        assert all(cost <= most * (1 + 1e-9) for cost in copied.values())

    def spread(self) -> float:
        """Return highest less lowest fill; a cordoned directory counts for the highest only."""
        fills = {
            number: self.used[number] / directory.capacity_bytes
            for number, directory in enumerate(self.cluster.directories)
            if directory.is_online and directory.capacity_bytes and number not in self.leaving
        }
        open_ones = [
            fill
            for number, fill in fills.items()
            if not self.cluster.directories[number].is_cordoned
        ]
        return max(0.0, max(fills.values()) - min(open_ones)) if open_ones else 0.0

    def leaders(self, preferred: Mapping[int, int]) -> list[int]:
        """Return the number of partitions of which each broker has the first replica."""
        counts = dict.fromkeys((broker.broker_id for broker in self.cluster.brokers), 0)
        for number, places in enumerate(self.places):
            counts[self.broker(places[preferred.get(number, 0)])] += 1
        return list(counts.values())

    def check_leaders(self, preferred: Mapping[int, int]) -> None:
        """Check that replicas that come first can lead, and that brokers lead more equally."""
        for number, slot in preferred.items():
            assert 0 < slot < len(self.places[number])
            place = self.places[number][slot]
            assert self.cluster.partitions[number].leader != NO_LEADER
            assert self.cluster.directories[place].is_online
            assert place not in self.leaving
        before, after = self.leaders({}), self.leaders(preferred)
        assert sum(after) == len(self.places)
        assert not preferred or sum(n * n for n in after) < sum(n * n for n in before)


def verify(plan: PlacementPlan, limits: PlanLimits) -> Replay:
    """Replay a whole plan and return the state at its end."""
    state = Replay(plan.cluster, limits, frozenset(plan.leaving))
    for planned_round in plan.rounds:
        state.run(planned_round)
    assert state.used == list(plan.used_bytes)
    assert abs(state.spread() - plan.spread) < 1e-9
    state.check_leaders(plan.preferred)
    assert all(place not in state.leaving for places in state.places for place in places)
    return state
