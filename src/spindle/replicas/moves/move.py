"""A replica that moves to another log directory of its broker: its states, and the running moves.

A future log is copied into the target directory until it is equal to the current log (KIP-113).
Then the digests of both are compared, and the new directory is reported to the controller
(KIP-858). When the metadata names it, the future log replaces the current one.

`ReplicaMove` decides, without clock and files. `Moves` has the running moves of a broker and does
what a decision requires. Two modules have the rest:

* `spindle.runtime.broker.move_task` carries out one move, from the first copied batch to the swap;
* `spindle.replicas.moves.future_logs` decides what a start does with a future log.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, UuidSource
from spindle.disks.directory_store import NewLog
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.replicas.partition import Partition

AssignDirectory = Callable[[Uuid, int, Uuid], None]
"""Called with (topic id, partition, directory id) if a replica is not in the recorded directory.
"""

log = logging.getLogger(__name__)


class MoveState(Enum):
    """The state of a move.

    COPYING: the future log lacks records of the current one. VERIFYING: the future log had all
    records; both logs are compared. ASSIGNING: both are equal, but the metadata does not record the
    target yet; copying continues. SWAPPING: appends are held back; the last records are copied and
    compared. PROMOTING: the current log was renamed, and the future log gets its name; the source
    directory is no longer needed. DONE: the replica is in the target directory.
    CANCELLED: the future log is no longer wanted. FAILED: a directory failed, or the copies
    differed too often.
    """

    COPYING = "copying"
    VERIFYING = "verifying"
    ASSIGNING = "assigning"
    SWAPPING = "swapping"
    PROMOTING = "promoting"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class MoveEvent(Enum):
    """Something that happened to a move."""

    CAUGHT_UP = "the future log has all records"
    EQUAL = "the digests of both logs are equal"
    DIFFERENT = "the digests differ"
    RECORDED = "the metadata has the target directory"
    SET_ASIDE = "the current log has given up its name"
    SWAPPED = "the future log is the current one"
    BROKEN = "the current log cannot be copied"
    CANCEL = "the move is not wanted any more"
    SOURCE_FAILED = "the directory of the current log failed"
    TARGET_FAILED = "the directory of the future log failed"


class MoveAction(Enum):
    """An action that an event requires."""

    ASSIGN_TARGET = "report the target directory to the controller"
    ASSIGN_SOURCE = "report to the controller that the replica stays in the source directory"
    START_OVER = "empty the future log"
    DROP_FUTURE = "delete the future log"


_S: Final = MoveState
_E: Final = MoveEvent
_COPIES: Final = 2
"""Number of differing copies after which the move fails."""

_BEFORE_RENAMES: Final = (_S.COPYING, _S.VERIFYING, _S.ASSIGNING, _S.SWAPPING)
_UNDER_WAY: Final = (*_BEFORE_RENAMES, _S.PROMOTING)

_NEXT: Final = {
    (_S.COPYING, _E.CAUGHT_UP): _S.VERIFYING,
    (_S.VERIFYING, _E.EQUAL): _S.ASSIGNING,
    (_S.ASSIGNING, _E.RECORDED): _S.SWAPPING,
    (_S.SWAPPING, _E.SET_ASIDE): _S.PROMOTING,
    (_S.PROMOTING, _E.SWAPPED): _S.DONE,
    **{(state, _E.DIFFERENT): _S.COPYING for state in (_S.VERIFYING, _S.ASSIGNING, _S.SWAPPING)},
    **{(state, _E.BROKEN): _S.FAILED for state in _UNDER_WAY},
    **{(state, _E.CANCEL): _S.CANCELLED for state in _BEFORE_RENAMES},
    **{(state, _E.SOURCE_FAILED): _S.FAILED for state in _BEFORE_RENAMES},
    **{(state, _E.TARGET_FAILED): _S.FAILED for state in _UNDER_WAY},
}
"""(state, event) -> state. Without a row for the present state, an event changes nothing."""


class ReplicaMove:
    """The state machine of one move.

    Attributes:
        is_recorded: True if the metadata names the target directory.
        verified_end_offset: offset up to which the copies are known to be equal (exclusive).
    """

    __slots__ = ("_differences", "_is_assigned", "is_recorded", "state", "verified_end_offset")

    def __init__(self, *, needs_assignment: bool = True, is_recorded: bool = False) -> None:
        """Begin to copy.

        Args:
            needs_assignment: True if the controller knows directories (metadata.version 3.7-IV2).
            is_recorded: True if the target was already recorded in an earlier run of the broker.
        """
        self.state = MoveState.COPYING
        self.is_recorded = is_recorded or not needs_assignment
        self.verified_end_offset = -1
        self._is_assigned = is_recorded
        self._differences = 0

    @property
    def is_under_way(self) -> bool:
        """True if the future log may still become the current one."""
        return self.state in _UNDER_WAY

    @property
    def is_assigned(self) -> bool:
        """True if the target is the directory last reported to the controller."""
        return self._is_assigned

    def step(self, event: MoveEvent) -> tuple[MoveAction, ...]:
        """Apply an event; return the actions that it requires, in their order."""
        if event is MoveEvent.RECORDED and self.is_under_way:
            self.is_recorded = True
        following = _NEXT.get((self.state, event))
        if following is None:
            return ()
        if event is MoveEvent.DIFFERENT:
            return self._differ()
        self.state = following
        if following is MoveState.ASSIGNING:
            return self._assign()
        if following in (MoveState.CANCELLED, MoveState.FAILED):
            return self._revert(drops=event in (MoveEvent.CANCEL, MoveEvent.BROKEN))
        return ()

    def truncated_to(self, offset: int) -> None:
        """Discard the comparison from this offset on: the current log was truncated there."""
        self.verified_end_offset = min(self.verified_end_offset, offset)

    def _assign(self) -> tuple[MoveAction, ...]:
        if self.is_recorded:
            self.state = MoveState.SWAPPING
            return ()
        self._is_assigned = True
        return (MoveAction.ASSIGN_TARGET,)

    def _differ(self) -> tuple[MoveAction, ...]:
        """Copy everything again because the logs differ, or end the move as failed."""
        self._differences += 1
        self.verified_end_offset = -1
        if self._differences < _COPIES:
            self.state = MoveState.COPYING
            return (MoveAction.START_OVER,)
        self.state = MoveState.FAILED
        return self._revert(drops=True)

    def _revert(self, *, drops: bool) -> tuple[MoveAction, ...]:
        """Keep the replica in its source directory; the metadata must name it again."""
        actions = [MoveAction.ASSIGN_SOURCE] if self._is_assigned else []
        self._is_assigned = False
        return (*actions, MoveAction.DROP_FUTURE) if drops else tuple(actions)


class Move:
    """One replica that moves to another directory.

    Attributes:
        source: the directory of the current log.
        target: the directory of the future log.
        copied_bytes: bytes of batches that were copied in this run of the broker.
    """

    __slots__ = ("copied_bytes", "course", "current", "future", "partition", "source", "target")

    def __init__(
        self, partition: Partition, target: LogDirectory, future: Log, course: ReplicaMove
    ) -> None:
        self.partition = partition
        self.source = partition.directory
        self.current = partition.log
        self.target = target
        self.future = future
        self.course = course
        self.copied_bytes = 0

    def __str__(self) -> str:
        return f"{self.partition.topic_partition} from {self.source.path} to {self.target.path}"

    @property
    def lag(self) -> int:
        """The number of offsets that the future log lacks."""
        return max(self.current.log_end_offset - self.future.log_end_offset, 0)

    @property
    def remaining_bytes(self) -> int:
        """The size of the current log minus that of the future log, in bytes."""
        return max(self.current.size_bytes - self.future.size_bytes, 0)


class Moves:
    """All running moves of this broker.

    Args:
        assign: sends the directory of a replica to the controller.

    Attributes:
        on_begun: called with a new move; on_news is called with a move that got an event.
        on_source_failed: called with a move whose future log is kept to resume later.
        on_copy_lost: called with a recently finished move whose target has failed: the source may
            still have its log.
        done, failed: number of moves that ended so since the start.
    """

    def __init__(
        self, assign: AssignDirectory, now_ms: Callable[[], int], new_uuid: UuidSource
    ) -> None:
        self._assign = assign
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._moves: dict[Partition, Move] = {}
        self._beginning: dict[Partition, LogDirectory] = {}
        self.on_begun: Callable[[Move], None] = lambda move: None
        self.on_change: Callable[[Move], None] = lambda move: None
        self.on_source_failed: Callable[[Move], None] = lambda move: None
        self.on_copy_lost: Callable[[Move], None] = lambda move: None
        self._lately_done: list[tuple[int, Move]] = []
        self.done = 0
        self.failed = 0
        self._copied_before: dict[LogDirectory, int] = {}

    def __iter__(self) -> Iterator[Move]:
        return iter(list(self._moves.values()))

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def copied_bytes(self) -> int:
        """Bytes of batches that were copied since the start."""
        before = sum(self._copied_before.values())
        return before + sum(move.copied_bytes for move in self._moves.values())

    def copied_bytes_into(self, target: LogDirectory) -> int:
        """Return the bytes of batches that were copied into a directory since the start."""
        before = self._copied_before.get(target, 0)
        return before + sum(m.copied_bytes for m in self._moves.values() if m.target is target)

    def get(self, partition: Partition) -> Move | None:
        return self._moves.get(partition)

    def into(self, target: LogDirectory) -> list[TopicPartition]:
        """Return the replicas that are moving or about to move into a directory."""
        moving = [move.partition for move in self if move.target is target]
        beginning = [partition for partition, at in self._beginning.items() if at is target]
        return [partition.topic_partition for partition in moving + beginning]

    def create_future(self, partition: Partition, target: LogDirectory) -> Awaitable[Log]:
        """Create a future log in a directory; call it inside of `about_to_begin`."""
        new = NewLog(partition.topic_partition, partition.topic_id, partition.log.config)
        return target.executor.submit(
            target.store.create_future, new, self._new_uuid(), self._now_ms()
        )

    @contextmanager
    def about_to_begin(self, partition: Partition, target: LogDirectory) -> Iterator[None]:
        """Count the move in `into` while its future log is being created."""
        self._beginning[partition] = target
        try:
            yield
        finally:
            del self._beginning[partition]

    def drop(self, target: LogDirectory, future: Log) -> None:
        """Delete a future log that no move needs."""
        target.executor.submit_nowait(
            target.store.delete_logs, [future], self._new_uuid, self._now_ms()
        )

    def begin(
        self,
        partition: Partition,
        target: LogDirectory,
        future: Log,
        *,
        needs_assignment: bool,
        is_recorded: bool = False,
    ) -> Move:
        """Begin to copy the replica into a future log, or resume the copy after a restart."""
        future.config = partition.log.config  # it may have changed since the future log was made
        course = ReplicaMove(needs_assignment=needs_assignment, is_recorded=is_recorded)
        move = self._moves[partition] = Move(partition, target, future, course)
        target.log_count += 1
        log.info("moving %s; %d offsets to copy", move, move.lag)
        self.on_begun(move)
        return move

    def apply(self, move: Move, event: MoveEvent) -> None:
        """Apply an event to a move, and perform the actions that it requires."""
        where = move.partition.topic_partition
        was_under_way = move.course.is_under_way
        for action in move.course.step(event):
            match action:
                case MoveAction.ASSIGN_TARGET:
                    self._assign(move.partition.topic_id, where.partition, move.target.directory_id)
                case MoveAction.ASSIGN_SOURCE:
                    self._assign(move.partition.topic_id, where.partition, move.source.directory_id)
                case MoveAction.START_OVER:
                    log.error("the copy of %s differs: it starts over", move)
                case MoveAction.DROP_FUTURE:
                    self.drop(move.target, move.future)
        if was_under_way and not move.course.is_under_way:
            self._end(move, event)
        self.on_change(move)

    def _end(self, move: Move, event: MoveEvent) -> None:
        if self._moves.get(move.partition) is move:
            del self._moves[move.partition]
        before = self._copied_before.get(move.target, 0)
        self._copied_before[move.target] = before + move.copied_bytes
        if event is MoveEvent.SWAPPED:
            move.source.log_count -= 1
            self.done += 1
            now_ms = self._now_ms()
            due_ms = now_ms + move.current.config.file_delete_delay_ms
            self._lately_done = [item for item in self._lately_done if item[0] > now_ms]
            self._lately_done.append((due_ms, move))
            log.info("moved %s", move)
            return
        move.target.log_count -= 1
        if event is MoveEvent.CANCEL:
            log.info("the move of %s is cancelled", move)
        else:
            self.failed += 1
            log.error("the move of %s has failed: %s", move, event.value)
        if event is MoveEvent.SOURCE_FAILED:
            self.on_source_failed(move)
        move.source.executor.submit_nowait(move.current.end_move)

    def cancel(self, partition: Partition) -> None:
        """End the move of a replica, if there is one, and delete its future log."""
        move = self._moves.get(partition)
        if move is not None:
            self.apply(move, MoveEvent.CANCEL)

    def recorded(self, partition: Partition, directory_id: Uuid) -> bool:
        """Note the directory that the metadata names.

        Returns:
            True if a move explains why the current log is in another directory, so that the
            current directory must not be reported to the controller.
        """
        move = self._moves.get(partition)
        if move is None:
            return False
        if not move.course.is_assigned:
            # The metadata may name the target because the replica was there before; it is not there
            # yet.
            return False
        if directory_id != move.target.directory_id:
            # Not recorded yet, or forgotten: the replica was removed and added again meanwhile.
            where = move.partition.topic_partition
            self._assign(move.partition.topic_id, where.partition, move.target.directory_id)
        elif not move.course.is_recorded:
            self.apply(move, MoveEvent.RECORDED)
        return True

    def directory_failed(self, directory: LogDirectory) -> None:
        """End the moves from and to a dead directory."""
        for move in self:
            if move.source is directory:
                self.apply(move, MoveEvent.SOURCE_FAILED)
            elif move.target is directory:
                self.apply(move, MoveEvent.TARGET_FAILED)
        for due_ms, move in self._lately_done:
            if move.target is directory and due_ms > self._now_ms():
                self.on_copy_lost(move)
        self._lately_done = [item for item in self._lately_done if item[1].target is not directory]
