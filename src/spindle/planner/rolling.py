"""Start the moves of a plan one by one, each as soon as the limits allow it.

Rounds are for tools that wait for the slowest move of a round. Here a move waits only for its own
directories and its own partition. The order of the rounds still matters if space is short: a move
uses no room that an earlier move needs, so all moves stay feasible.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from spindle.planner.layout import Layout
from spindle.planner.limits import PlanLimits
from spindle.planner.plan import PlacementPlan, PlannedMove
from spindle.planner.rounds import Lane, lanes_of


class RollingMoves:
    """The waiting and the running moves of a plan.

    Args:
        plan: its rounds give the order.
        limits: of each directory and broker at every moment.
    """

    def __init__(self, plan: PlacementPlan, limits: PlanLimits) -> None:
        self._layout = Layout(plan.cluster, plan.leaving, keeps_racks=limits.keeps_racks)
        self._limits = limits
        self.waiting = [move for planned_round in plan.rounds for move in planned_round.moves]
        self.under_way: dict[PlannedMove, tuple[Lane, ...]] = {}
        """The running moves, and the lanes that they load."""

    def begin(
        self,
        rooms: Mapping[int, int],
        size_of: Callable[[PlannedMove], int] = lambda move: move.size_bytes,
    ) -> list[PlannedMove]:
        """Return the moves that can start now, and count them as running.

        Args:
            rooms: the bytes that may still be copied into each directory, minus the missing bytes
                of running copies. Directories of unknown space are absent, and unlimited.
            size_of: returns the current size of a replica.
        """
        busy, lanes = self._busy(), self._loads()
        partitions = {move.partition for move in self.under_way}
        left = dict(rooms)
        begun, waiting = [], []
        for move in self.waiting:
            size_bytes = size_of(move)
            has_room = move.target not in left or left[move.target] >= size_bytes
            if move.target in left:
                # A move that is too large now keeps its room from the moves after it.
                left[move.target] -= size_bytes
            new = tuple(self._lanes(move)) if has_room else ()
            if (
                has_room
                and move.partition not in partitions
                and not self._is_full(busy, move)
                and self._keeps_throttle(lanes, move, new)
                and self._is_legal(move)
            ):
                begun.append(move)
                self.under_way[move] = new
                busy.update((move.source, move.target))
                lanes.update(dict.fromkeys(new, self._rate(move)))
            else:
                waiting.append(move)
            # The moves of one partition keep their order.
            partitions.add(move.partition)
        self.waiting = waiting
        return begun

    def end(self, move: PlannedMove, *, has_moved: bool) -> None:
        """Record that a move has ended.

        If it failed, drop the later moves of its partition, which start from its target.
        """
        del self.under_way[move]
        if has_moved:
            self._layout.move(self._replica(move), move.target)
        else:
            self.waiting = [
                planned_move
                for planned_move in self.waiting
                if planned_move.partition != move.partition
            ]

    def stop(self) -> None:
        """Begin no further moves."""
        self.waiting = []

    def brokers(self, partition: int) -> tuple[int, ...]:
        """Return the brokers of the replicas of a partition, after the moves that have ended."""
        first = self._layout.first[partition]
        count = len(self._layout.cluster.partitions[partition].directories)
        places = self._layout.place[first : first + count]
        return tuple(self._layout.broker[place] for place in places)

    def blocked_targets(self) -> set[int]:
        """Return the target directories of waiting moves."""
        return {move.target for move in self.waiting}

    def left(self) -> Iterator[PlannedMove]:
        """Yield the moves that have not ended."""
        yield from self.under_way
        yield from self.waiting

    def _replica(self, move: PlannedMove) -> int:
        return self._layout.first[move.partition] + move.slot

    def _rate(self, move: PlannedMove) -> int:
        return self._layout.cluster.partitions[move.partition].write_bytes_per_second

    def _lanes(self, move: PlannedMove) -> list[Lane]:
        return lanes_of(self._layout, self._replica(move), move.target)

    def _is_legal(self, move: PlannedMove) -> bool:
        replica = self._replica(move)
        return self._layout.place[replica] == move.source and self._layout.is_legal(
            replica, move.target
        )

    def _busy(self) -> Counter[int]:
        return Counter(number for move in self.under_way for number in (move.source, move.target))

    def _is_full(self, busy: Counter[int], move: PlannedMove) -> bool:
        # Nothing is read from a directory that is offline.
        directories = self._layout.cluster.directories
        return any(
            busy[number] >= self._limits.parallel_moves and directories[number].is_online
            for number in (move.source, move.target)
        )

    def _loads(self) -> Counter[Lane]:
        loads: Counter[Lane] = Counter()
        for move, lanes in self.under_way.items():
            loads.update(dict.fromkeys(lanes, self._rate(move)))
        return loads

    def _keeps_throttle(
        self, loads: Counter[Lane], move: PlannedMove, lanes: tuple[Lane, ...]
    ) -> bool:
        throttle = self._limits.throttle_bytes_per_second
        return all(loads[lane] + self._rate(move) < throttle for lane in lanes)
