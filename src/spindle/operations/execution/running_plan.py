"""A plan during its execution: the moves that wait, run, or have ended."""

from collections.abc import Collection, Mapping
from typing import Final

from spindle.client.log_dirs import LogDirView
from spindle.common.ids import TopicPartition
from spindle.operations.events import MovesLeft, WaitsForDeletions
from spindle.operations.execution.active_moves import ActiveMoves
from spindle.operations.execution.disk_full_guard import copyable_bytes
from spindle.operations.reassignment import Plan, Replica
from spindle.planner.limits import PlanLimits
from spindle.planner.model import DirectoryModel
from spindle.planner.plan import PlacementPlan, PlannedMove
from spindle.planner.rolling import RollingMoves

_MAX_UNSEEN_CHECKS: Final = 3
"""After this many checks in a row without a report of a broker, a move has ended."""

Described = Mapping[int, Collection[LogDirView]]

_DELETION_CHECK_S: Final = 30.0
"""Brokers remove files at most this long after their deletion delay."""


class PlanUnderWay:
    """Compares a plan with the state of the cluster.

    Attributes:
        rolling: the waiting and the running moves.
        due_moves: chosen by the last `due`, and not begun yet.

    Args:
        highest_fill: copies begin only where the file system has room below this share.
    """

    def __init__(self, plan: PlacementPlan, limits: PlanLimits, highest_fill: float) -> None:
        self.rolling = RollingMoves(plan, limits)
        self.due_moves: list[PlannedMove] = []
        self._plan = plan
        self._highest_fill = highest_fill
        self._unseen: dict[PlannedMove, int] = {}
        self._cluster: object = None
        self._is_wait_reported = False
        self._idle_since_s: float | None = None

    def note_moving(self) -> None:
        """Record that a move is running or has just begun."""
        self._idle_since_s = None

    def may_free_space(self, directory: DirectoryModel, now_s: float) -> bool:
        """Return whether deletions that were due when the last move ended may still free space.

        A busy topic always has deleted segments, which do not free the space for a move. So the
        wait ends one deletion delay, and one check for deletions of a broker, after the last move.
        """
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        limit_s = directory.deletion_delay_ms / 1000 + _DELETION_CHECK_S
        return now_s - self._idle_since_s < limit_s

    def partition(self, move: PlannedMove) -> TopicPartition:
        """Return the partition that a move changes."""
        return self._plan.cluster.partitions[move.partition].name

    def directory(self, number: int) -> DirectoryModel:
        """Return a directory of the plan by its index."""
        return self._plan.cluster.directories[number]

    def change(self, move: PlannedMove) -> tuple[TopicPartition, tuple[int, ...], tuple[int, ...]]:
        """Return the partition of a move, and its brokers before and after it."""
        before = self.rolling.brokers(move.partition)
        after = list(before)
        after[move.slot] = self.directory(move.target).broker_id
        return self.partition(move), before, tuple(after)

    def sees_same_cluster(
        self, offline: Mapping[int, Collection[str]], alive: Collection[int]
    ) -> bool:
        """Return False if directories or brokers went offline or came back since the last call.

        The waiting moves are then dropped, because the plan was made for another cluster. True if
        none were waiting.
        """
        failed = frozenset((broker, path) for broker, paths in offline.items() for path in paths)
        cluster = (failed, frozenset(alive))
        if self._cluster is None:
            self._cluster = cluster
        if cluster == self._cluster:
            return True
        self._cluster = cluster
        has_waiting = bool(self.rolling.waiting)
        self.rolling.stop()
        return not has_waiting

    def due(self, begun: Plan, now: ActiveMoves, described: Described) -> list[PlannedMove]:
        """Choose the moves that begin now.

        Args:
            begun: the running moves of this execution.
        """
        free_bytes = copyable_bytes(begun, now, described, self._highest_fill)
        indexes = {
            (directory.broker_id, directory.path): number
            for number, directory in enumerate(self._plan.cluster.directories)
        }
        left = {indexes[place]: size for place, size in free_bytes.items() if place in indexes}
        for move in self.rolling.under_way:
            if move in self._unseen and move.target in left:
                left[move.target] -= move.size_bytes
        sizes = now.online

        def size_of(move: PlannedMove) -> int:
            model = self._plan.cluster.partitions[move.partition]
            replica = Replica(self.directory(move.source).broker_id, model.name)
            leader = Replica(model.leader, model.name)
            return max(move.size_bytes, sizes.get(replica, 0), sizes.get(leader, 0))

        self.due_moves = self.rolling.begin(left, size_of)
        return list(self.due_moves)

    def note_begun(self) -> None:
        """Record that the due moves have begun."""
        self._unseen |= dict.fromkeys(self.due_moves, 0)
        self.due_moves = []

    def drop(self, move: PlannedMove) -> None:
        """Drop a due move, and the later moves of its partition."""
        self.due_moves.remove(move)
        self.rolling.end(move, has_moved=False)

    def ended(self, now: ActiveMoves, described: Described) -> dict[PlannedMove, bool]:
        """Return the moves that ended since the last call, and whether each replica has moved."""
        places = {
            (broker, where): view.path
            for broker, views in described.items()
            for view in views
            for where, replica in view.replicas.items()
            if not replica.is_future
        }
        ended_moves = {}
        for move in list(self.rolling.under_way):
            name, target = self.partition(move), self.directory(move.target)
            has_moved = places.get((target.broker_id, name)) == target.path
            if name in now.reassigned or Replica(target.broker_id, name) in now.copies:
                self._unseen.pop(move, None)
                continue
            if move in self._unseen and not has_moved:
                self._unseen[move] += 1
                if self._unseen[move] < _MAX_UNSEEN_CHECKS:
                    continue
            self._unseen.pop(move, None)
            ended_moves[move] = has_moved
            self.rolling.end(move, has_moved=has_moved)
        return ended_moves

    def progress(self) -> MovesLeft:
        """Return an event with the remaining and the running moves."""
        left = list(self.rolling.left())
        size_bytes = sum(move.size_bytes for move in left)
        return MovesLeft(len(left), size_bytes, len(self.rolling.under_way))

    def wait_event(self, pending: Collection[DirectoryModel]) -> WaitsForDeletions | None:
        """Return the event that moves wait for deletions; None after the first time."""
        if self._is_wait_reported:
            return None
        self._is_wait_reported = True
        return WaitsForDeletions(list(map(str, pending)), len(self.rolling.waiting))
