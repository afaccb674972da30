"""Arrange moves in rounds that are feasible at every step.

A copy takes space in its target while the source still has the replica, and the source keeps the
space for the deletion delay after that. So a round begins a move only if its target has room for it
before any source of the round is freed, and a round waits if only deletions make room. A
partition has at most one move in a round, so its replicas change one after the other.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spindle.common.text import size_text
from spindle.planner.free_space import FreeSpaceIndex
from spindle.planner.infeasibility import refuse_space
from spindle.planner.layout import Layout
from spindle.planner.limits import PlanLimits
from spindle.planner.plan import BindingLimit, Infeasible, PlannedMove, PlannedRound

Lane = tuple[str, int]
"""A direction of copies, and a broker. Each lane has the whole throttle."""


@dataclass(slots=True)
class _Load:
    size_bytes: int = 0
    bytes_per_second: int = 0


@dataclass(slots=True)
class _OpenRound:
    """A round to which moves can still be added."""

    layout: Layout
    limits: PlanLimits
    ceilings: Mapping[int, int]
    chosen: dict[int, int] = field(default_factory=dict)
    busy: dict[int, int] = field(default_factory=dict)
    incoming: dict[int, int] = field(default_factory=dict)
    lanes: dict[Lane, _Load] = field(default_factory=dict)
    partitions: dict[int, None] = field(default_factory=dict)

    def is_full(self, directory: int) -> bool:
        """Return whether as many moves as allowed begin or end in a directory.

        Nothing is read from a directory that is offline: its replicas are copied from the leaders.
        """
        if not self.layout.cluster.directories[directory].is_online:
            return False
        return self.busy.get(directory, 0) >= self.limits.parallel_moves

    def add(self, replica: int, target: int) -> bool:
        """Add a move if it keeps all limits, and return whether it does."""
        layout = self.layout
        source, size = layout.place[replica], layout.size[replica]
        number = layout.partition[replica]
        incoming = self.incoming.get(target, 0) + size
        if self.is_full(source) or self.is_full(target) or number in self.partitions:
            return False
        if layout.used[target] + layout.deleted[target] + incoming > self.ceilings.get(target, 0):
            return False
        if not layout.is_legal(replica, target):
            return False
        rate = layout.cluster.partitions[number].write_bytes_per_second
        lanes = lanes_of(layout, replica, target)
        loads = [self.lanes.setdefault(lane, _Load()) for lane in lanes]
        if any(
            load.bytes_per_second + rate >= self.limits.throttle_bytes_per_second for load in loads
        ):
            return False
        for load in loads:
            load.size_bytes += size
            load.bytes_per_second += rate
        self.incoming[target] = incoming
        self.partitions[number] = None
        for directory in (source, target):
            self.busy[directory] = self.busy.get(directory, 0) + 1
        self.chosen[replica] = target
        return True

    def close(self, wait_ms: int) -> PlannedRound:
        """Apply the moves to the layout, and return the round.

        Args:
            wait_ms: the time before the round.
        """
        moves = [self.layout.move_to(replica, to) for replica, to in self.chosen.items()]
        for replica, target in self.chosen.items():
            self.layout.move(replica, target)
        return PlannedRound(tuple(moves), self._duration_ms(), wait_ms)

    def _duration_ms(self) -> int:
        throttle = self.limits.throttle_bytes_per_second
        return max(
            -(-load.size_bytes * 1000 // (throttle - load.bytes_per_second))
            for load in self.lanes.values()
        )


def lanes_of(layout: Layout, replica: int, target: int) -> list[Lane]:
    """Return the lanes that a move loads. Another broker copies from the partition's leader."""
    here, there = layout.broker[layout.place[replica]], layout.broker[target]
    if here == there:
        return [("between directories", here)]
    return [("out", layout.leader_broker(layout.partition[replica])), ("in", there)]


class _Deletions:
    """The deleted replicas, and the time at which each frees its space."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._delays_ms = [directory.deletion_delay_ms for directory in layout.cluster.directories]
        self._pending: list[tuple[int, int, int]] = []
        self._now_ms = 0
        for number, size_bytes in enumerate(layout.deleted):
            if size_bytes:
                self._pending.append((self._delays_ms[number], number, size_bytes))

    def end(self, planned: PlannedRound) -> None:
        """Let the time of a round pass; the replicas that it moves are deleted at its end."""
        self._pass(planned.duration_ms)
        for move in planned.moves:
            self._layout.deleted[move.source] += move.size_bytes
            gone_ms = self._now_ms + self._delays_ms[move.source]
            self._pending.append((gone_ms, move.source, move.size_bytes))

    def wait(self, directories: Collection[int]) -> int:
        """Advance the time until deleted replicas have left these directories; return it in ms."""
        last_ms = max((ms for ms, number, _ in self._pending if number in directories), default=0)
        wait_ms = max(0, last_ms - self._now_ms)
        self._pass(wait_ms)
        return wait_ms

    def _pass(self, time_ms: int) -> None:
        self._now_ms += time_ms
        for gone_ms, number, size_bytes in self._pending:
            if gone_ms <= self._now_ms:
                self._layout.deleted[number] -= size_bytes
        self._pending = [deletion for deletion in self._pending if deletion[0] > self._now_ms]


@dataclass(slots=True)
class RoundPlanner:
    """Makes rounds until all moves are arranged.

    Args:
        layout: the cluster before the first round; its state follows the rounds.
        targets: the replicas to move, and their target directories.
        limits: of each round.
    """

    layout: Layout
    targets: dict[int, int]
    limits: PlanLimits
    rounds: list[PlannedRound] = field(default_factory=list)
    dropped: list[PlannedMove] = field(default_factory=list)
    unevenness: list[tuple[float, float]] = field(default_factory=list)
    initial_spread: float = field(init=False)

    def __post_init__(self) -> None:
        self.unevenness.append(self.layout.unevenness())
        self.initial_spread = self.layout.spread()

    def run(self) -> None:
        """Make the rounds; drop moves that are neither possible nor necessary.

        Raises:
            Infeasible: a replica cannot leave a directory that the plan empties.
        """
        ceilings = FreeSpaceIndex.ceilings(self.layout, self.limits.max_fill)
        self._refuse_fast_writers()
        queues = self._queues()
        deletions, wait_ms = _Deletions(self.layout), 0
        while any(queues.values()):
            opened = _OpenRound(self.layout, self.limits, ceilings)
            fullest = sorted(queues, key=lambda each: (-self.layout.fill(each), each))
            for source in fullest:
                queues[source] = self._take(opened, source, queues[source])
            if opened.chosen:
                self.rounds.append(opened.close(wait_ms))
                self.unevenness.append(self.layout.unevenness())
                deletions.end(self.rounds[-1])
                wait_ms = 0
            elif freed := self._freed_later(queues):
                wait_ms += deletions.wait(freed)
            else:
                queues = self._unblocked(queues, ceilings)

    def fast_remarks(self) -> list[str]:
        """Return a remark for each dropped move of a replica that grows faster than its copy."""
        throttle = self.limits.throttle_bytes_per_second
        models = [self.layout.cluster.partitions[move.partition] for move in self.dropped]
        return [
            f"{model.name} does not move: {size_text(model.write_bytes_per_second)}/s are "
            "produced, "
            f"and the throttle is {size_text(throttle)}/s"
            for model in models
            if model.write_bytes_per_second >= throttle
        ]

    def drop_rounds_that_worsen(self) -> None:
        """Drop the last rounds while the spread was smaller before them.

        A round that moves a replica out of a directory that the plan empties is always kept.
        """
        leaving = frozenset(self.layout.leaving)
        needed = [
            number
            for number, planned_round in enumerate(self.rounds, start=1)
            if any(move.source in leaving for move in planned_round.moves)
        ]
        first = max(needed, default=0)
        counts = range(first, len(self.unevenness))
        best = min(counts, key=lambda number: (*self.unevenness[number], number))
        for planned_round in reversed(self.rounds[best:]):
            for move in planned_round.moves:
                self.layout.move(self.layout.first[move.partition] + move.slot, move.source)
                self.dropped.append(move)
        del self.rounds[best:], self.unevenness[best + 1 :]

    def _queues(self) -> dict[int, list[int]]:
        """Return the replicas to move by source directory, largest first."""
        queues: dict[int, list[int]] = {}
        layout = self.layout
        for replica in sorted(self.targets, key=lambda each: (-layout.size[each], each)):
            queues.setdefault(layout.place[replica], []).append(replica)
        return queues

    def _take(self, opened: _OpenRound, source: int, queue: list[int]) -> list[int]:
        """Add moves of a queue to a round; return the moves that do not fit."""
        left: list[int] = []
        for position, replica in enumerate(queue):
            if opened.is_full(source):
                return [*left, *queue[position:]]
            if not opened.add(replica, self.targets[replica]):
                left.append(replica)
        return left

    def _freed_later(self, queues: Mapping[int, list[int]]) -> set[int]:
        """Return the target directories in which deleted replicas still use space."""
        waiting = (replica for queue in queues.values() for replica in queue)
        return {to for number in waiting if self.layout.deleted[to := self.targets[number]]}

    def _must_move(self, replica: int) -> bool:
        return self.layout.place[replica] in self.layout.leaving

    def _unblocked(
        self, queues: Mapping[int, list[int]], ceilings: Mapping[int, int]
    ) -> dict[int, list[int]]:
        """Choose another target for one replica, or drop an unnecessary move."""
        rooms = FreeSpaceIndex(self.layout, ceilings)
        waiting = [replica for queue in queues.values() for replica in queue]
        forced = [replica for replica in waiting if self._must_move(replica)]
        for replica in forced:
            target = rooms.most_free(replica)
            if target is not None:
                self.targets[replica] = target
                return dict(queues)
        if forced:
            layout = self.layout
            legal = [
                directory
                for directory in range(len(layout.receives))
                if layout.is_legal(forced[0], directory)
            ]
            refuse_space(layout, forced, legal or [self.targets[forced[0]]], self.limits)
        self.dropped += [self.layout.move_to(replica, self.targets[replica]) for replica in waiting]
        return {}

    def _refuse_fast_writers(self) -> None:
        """Refuse a replica that grows faster than it is copied; drop it if it need not move."""
        throttle = self.limits.throttle_bytes_per_second
        for replica in list(self.targets):
            model = self.layout.cluster.partitions[self.layout.partition[replica]]
            rate = model.write_bytes_per_second
            if rate < throttle:
                continue
            if self._must_move(replica):
                raise Infeasible(
                    BindingLimit.THROTTLE,
                    model.name,
                    f"it grows by {size_text(rate)}/s, and the throttle is {size_text(throttle)}/s",
                    f"raise the throttle above {size_text(rate)}/s",
                )
            self.dropped.append(self.layout.move_to(replica, self.targets.pop(replica)))
