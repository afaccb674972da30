"""Replicas that move between the directories of this broker (KIP-113).

Belongs to the event loop. `replicas.moves.states` decides, `copier` does the work on the
directories' threads, and `runtime.broker.replica_mover` keeps the order and the pace.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, UuidSource
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.replicas.moves.states import MoveAction, MoveEvent, ReplicaMove
from spindle.replicas.partition import Partition

AssignDirectory = Callable[[Uuid, int, Uuid], None]
"""Called with (topic id, partition, directory id) if a replica is not in the recorded directory.
"""

log = logging.getLogger(__name__)


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
