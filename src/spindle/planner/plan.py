"""A finished plan: rounds of moves and their effect, or the reason why there is no plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from spindle.common.ids import TopicPartition
from spindle.planner.model import ClusterModel


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A move of a replica to another directory, on the same or on another broker.

    Attributes:
        partition: an index into `ClusterModel.partitions`.
        slot: the position of the replica among those of its partition; it stays the same.
        source: an index into `ClusterModel.directories`.
        target: an index into `ClusterModel.directories`.
    """

    partition: int
    slot: int
    source: int
    target: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """Moves that run at the same time; the next round begins when all of them have ended.

    Attributes:
        duration_ms: the minimum duration under the throttle.
        wait_ms: the pause before this round, in which replicas that left a target directory are
            deleted and free its space.
    """

    moves: Sequence[PlannedMove]
    duration_ms: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """Rounds of moves.

    Attributes:
        cluster: the cluster before the first round.
        leaving: the directories that the plan empties, as indexes.
        used_bytes: the used bytes of each directory after the last round and all deletions.
        lower_bound_bytes: no plan for the same goal can move fewer bytes.
        spread_before: the highest fill of the directories that the plan does not empty, less the
            lowest of those that may receive replicas; before the first round.
        spread: the same after the last round.
        remarks: the reasons why the plan does not reach its goal; empty if it does.
        preferred: partitions whose preferred leader changes after the last round, each with the
            position of the replica that becomes the first.
    """

    cluster: ClusterModel
    leaving: Sequence[int]
    rounds: Sequence[PlannedRound]
    used_bytes: Sequence[int]
    lower_bound_bytes: int
    spread_before: float
    spread: float
    remarks: Sequence[str]
    preferred: Mapping[int, int] = field(default_factory=dict)

    def places(self) -> list[list[int]]:
        """Return the directories of the replicas of each partition after the last round."""
        places = [list(partition.directories) for partition in self.cluster.partitions]
        for planned_round in self.rounds:
            for move in planned_round.moves:
                places[move.partition][move.slot] = move.target
        return places

    @property
    def moved_bytes(self) -> int:
        """The bytes of all moves."""
        return sum(move.size_bytes for round_ in self.rounds for move in round_.moves)

    @property
    def duration_ms(self) -> int:
        """The time of all rounds, and of the waits between them."""
        return sum(round_.wait_ms + round_.duration_ms for round_ in self.rounds)


class BindingLimit(StrEnum):
    """The limit that makes every plan infeasible."""

    CAPACITY = "capacity"
    CORDONS = "cordons"
    RACKS = "racks"
    REPLICATION = "replication"
    OFFLINE = "offline"
    THROTTLE = "throttle"


class Infeasible(Exception):
    """No plan is possible. The text names the reason and a remedy.

    Attributes:
        limit: the binding limit.
        partition: the partition that cannot be placed.
        reason: what is missing.
        remedy: what would make a plan possible.
    """

    def __init__(
        self, limit: BindingLimit, partition: TopicPartition, reason: str, remedy: str
    ) -> None:
        super().__init__(f"{partition} cannot move: {reason}. Limit: {limit}. Remedy: {remedy}.")
        self.limit = limit
        self.partition = partition
        self.reason = reason
        self.remedy = remedy
