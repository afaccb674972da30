"""A cluster that carries out moves: copies grow, deleted replicas stay, and no step breaks a limit.

It shares no code with the planner. The throttle of a broker is shared equally by its copies.
"""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlannedMove


@dataclass
class SimulatedMoves:
    """The directories of a cluster while replicas are copied."""

    cluster: ClusterModel
    limits: PlanLimits
    time_ms: Fraction = Fraction(0)
    left_bytes: dict[PlannedMove, Fraction] = field(default_factory=dict)
    places: list[list[int]] = field(init=False)
    used: list[Fraction] = field(init=False)
    deleted: list[tuple[Fraction, int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.places = [list(partition.directories) for partition in self.cluster.partitions]
        self.used = [Fraction(directory.used_bytes) for directory in self.cluster.directories]
        self.deleted = [
            (Fraction(directory.deletion_delay_ms), number, directory.deleted_bytes)
            for number, directory in enumerate(self.cluster.directories)
            if directory.deleted_bytes
        ]
        self._remove_due()

    def rooms(self) -> dict[int, int]:
        """Return the room of each directory, less what is still to be copied into it."""
        rooms = {
            number: int(self.limits.max_fill * directory.capacity_bytes - self.used[number])
            for number, directory in enumerate(self.cluster.directories)
            if directory.capacity_bytes
        }
        for move, left in self.left_bytes.items():
            rooms[move.target] -= int(left)
        return rooms

    def start(self, move: PlannedMove) -> None:
        """Begin a copy, and check that the limits allow it."""
        places = self.places[move.partition]
        assert places[move.slot] == move.source
        assert all(planned_move.partition != move.partition for planned_move in self.left_bytes)
        self.left_bytes[move] = Fraction(move.size_bytes)
        arriving = sum(
            left
            for planned_move, left in self.left_bytes.items()
            if planned_move.target == move.target
        )
        capacity = self.cluster.directories[move.target].capacity_bytes
        assert self.used[move.target] + arriving <= self.limits.max_fill * capacity + 1
        ends = Counter(end for move in self.left_bytes for end in (move.source, move.target))
        for end in (move.source, move.target):
            is_read = self.cluster.directories[end].is_online
            assert ends[end] <= self.limits.parallel_moves or not is_read
        brokers = [self._broker(place) for place in places]
        brokers[move.slot] = self._broker(move.target)
        assert len(set(brokers)) == len(brokers)

    def pass_time(self) -> list[PlannedMove]:
        """Let time pass until a copy ends or a deleted replica is gone; return what has ended."""
        rates = {move: self._rate(move) for move in self.left_bytes}
        steps = [left / rates[move] for move, left in self.left_bytes.items()]
        steps += [gone_ms - self.time_ms for gone_ms, _, _ in self.deleted]
        step_ms = min(steps)
        self.time_ms += step_ms
        ended = []
        for move, rate in rates.items():
            copied = min(self.left_bytes[move], rate * step_ms)
            self.used[move.target] += copied
            self.left_bytes[move] -= copied
            if not self.left_bytes[move]:
                ended.append(move)
        for move in ended:
            del self.left_bytes[move]
            self.places[move.partition][move.slot] = move.target
            delay_ms = self.cluster.directories[move.source].deletion_delay_ms
            self.deleted.append((self.time_ms + delay_ms, move.source, move.size_bytes))
        self._remove_due()
        return ended

    def _remove_due(self) -> None:
        for gone_ms, number, size_bytes in self.deleted:
            if gone_ms <= self.time_ms:
                self.used[number] -= size_bytes
        self.deleted = [deletion for deletion in self.deleted if deletion[0] > self.time_ms]

    def _broker(self, directory: int) -> int:
        return self.cluster.directories[directory].broker_id

    def _lanes(self, move: PlannedMove) -> list[tuple[str, int]]:
        source, target = self._broker(move.source), self._broker(move.target)
        if source == target:
            return [("own", source)]
        model = self.cluster.partitions[move.partition]
        leads = [self._broker(directory) == model.leader for directory in model.directories]
        leader = self.places[move.partition][leads.index(True) if any(leads) else 0]
        return [("out", self._broker(leader)), ("in", target)]

    def _rate(self, move: PlannedMove) -> Fraction:
        """Return the bytes of a copy in a millisecond."""
        lanes = Counter(lane for move in self.left_bytes for lane in self._lanes(move))
        most = max(lanes[lane] for lane in self._lanes(move))
        return Fraction(self.limits.throttle_bytes_per_second, 1000 * most)
