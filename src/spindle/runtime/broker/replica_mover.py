"""Moves replicas between the directories of this broker: a task for each move, a few at a time.

`num.replica.alter.log.dirs.threads` moves run at the same time, in the order of their names;
`spindle.runtime.broker.move_task` has the steps of one. `lock` is held during a reaction to
metadata. While a move begins or two logs are swapped, the reactions skip this replica, and its
instructions are applied afterwards: a disk that hangs delays no other replica.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from spindle.common.errors import ErrorCode, LogDirectoryFailed
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.replicas.moves.move import Move
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.background import end
from spindle.runtime.broker.move_task import MoveTask
from spindle.serving.quotas.replication import ReplicationQuota

log = logging.getLogger(__name__)


class ReplicaMover:
    """Runs the moves of a broker.

    Args:
        quota: `replica.alter.log.dirs.io.max.bytes.per.second`, over all moves.
        max_at_once: maximum number of moves that copy at the same time, >= 1.
        needs_assignment: True if the controller has to record directories before a swap.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        quota: ReplicationQuota,
        max_at_once: int,
        needs_assignment: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._quota = quota
        self._max_at_once = max_at_once
        self._needs_assignment = needs_assignment
        self._now_ms = now_ms
        self._waiting: list[Move] = []
        self._running: dict[Move, MoveTask] = {}
        self._changes: set[asyncio.Task[ErrorCode]] = set()
        self._is_stopped = False
        self.lock = asyncio.Lock()
        replicas.moves.on_begun = self._begun
        replicas.moves.on_change = self._news

    @property
    def is_busy(self) -> bool:
        """True if a move is running or cleans up."""
        return bool(self._running)

    async def alter(self, partition: Partition, target: LogDirectory) -> ErrorCode:
        """Begin to move a hosted replica. An earlier move to another target ends.

        If the target is the present directory, this only ends a move. The change is completed even
        if its client disconnects.
        """
        change = asyncio.get_running_loop().create_task(self._alter(partition, target))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)

    async def _alter(self, partition: Partition, target: LogDirectory) -> ErrorCode:
        async with self.alone(partition):
            replicas = self._replicas
            moves = replicas.moves
            # It may have been removed or brought back while the replica was busy.
            present = replicas.directory_at(target.path)
            if present is None:
                return ErrorCode.LOG_DIR_NOT_FOUND
            target = present
            if target.is_offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            running = moves.get(partition)
            if running is not None and running.target is not target:
                moves.cancel(partition)
                running = None
            if partition.is_deleted:
                return ErrorCode.REPLICA_NOT_AVAILABLE
            if partition.is_offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if partition.directory is target or running is not None:
                return ErrorCode.NONE
            return await self._begin_move(partition, target)

    async def _begin_move(self, partition: Partition, target: LogDirectory) -> ErrorCode:
        """Create a future log in another directory and begin to copy (KIP-113).

        While any directory is offline, do not create one: that directory may have the future log.
        """
        code = self._why_not_to_move(partition, target)
        if code is not ErrorCode.NONE:
            return code
        moves = self._replicas.moves
        with moves.about_to_begin(partition, target):
            creation = asyncio.ensure_future(moves.create_future(partition, target))
            try:
                future = await asyncio.shield(creation)
            except asyncio.CancelledError:
                # The broker stops; the disk creates the future log nevertheless.
                creation.add_done_callback(partial(self._drop_unwanted, target))
                raise
            except LogDirectoryFailed as failure:
                log.error(
                    "cannot move %s to %s: %s", partition.topic_partition, target.path, failure
                )
                return ErrorCode.KAFKA_STORAGE_ERROR
        # The disk may have taken long: directories may have failed or come and gone since.
        code = self._why_not_to_move(partition, target)
        if code is not ErrorCode.NONE:
            moves.drop(target, future)
            return code
        moves.begin(partition, target, future, needs_assignment=self._needs_assignment())
        return ErrorCode.NONE

    def _drop_unwanted(self, target: LogDirectory, creation: "asyncio.Future[Log]") -> None:
        if not creation.cancelled() and creation.exception() is None:
            self._replicas.moves.drop(target, creation.result())

    def _why_not_to_move(self, partition: Partition, target: LogDirectory) -> ErrorCode:
        replicas = self._replicas
        if partition.is_deleted:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if target not in replicas.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if replicas.rebuilds.running(partition.topic_partition) is not None:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.KAFKA_STORAGE_ERROR if replicas.has_offline() else ErrorCode.NONE

    @asynccontextmanager
    async def alone(self, partition: Partition) -> AsyncIterator[None]:
        """Prevent other changes of the replica's directory, and its deletion, while the body runs.

        Afterwards, apply the instructions of the metadata that arrived meanwhile. The task may be
        cancelled only when the broker stops: otherwise the replica would stay busy and no longer
        follow the metadata.
        """
        busy, where = self._replicas.busy, partition.topic_partition
        while True:
            async with self.lock:
                earlier = busy.end_of(where)
                if earlier is None:
                    busy.begin(where)
                    break
            await earlier.wait()
        is_abandoned = False
        try:
            yield
        except GeneratorExit:
            # The event loop has stopped, so nothing can be awaited.
            is_abandoned = True
            raise
        finally:
            if not self._is_stopped and not is_abandoned:
                async with self.lock:
                    # In their order: they may come from several deltas and from two topics with one
                    # name.
                    for instruction in busy.end(where):
                        await self._replicas.apply([instruction])
                    await self._replicas.put_aside_strays()
                    await self.settle()

    @asynccontextmanager
    async def lock_directory(self, directory: LogDirectory) -> AsyncIterator[None]:
        """Hold the lock while no replica in the directory is busy, so that it can be removed."""
        busy = self._replicas.busy
        while True:
            async with self.lock:
                places = [p.topic_partition for p in self._replicas.in_directory(directory)]
                ends = [end for where in places if (end := busy.end_of(where)) is not None]
                if not ends:
                    yield
                    return
            await ends[0].wait()

    async def settle(self) -> None:
        """Resume the moves of an earlier run. Call it after the first reaction, under the lock."""
        replicas = self._replicas
        await replicas.futures.resolve(
            lambda where: replicas.lookup(*where), needs_assignment=self._needs_assignment()
        )

    async def stop(self) -> None:
        """End all tasks; the future logs stay, and the next run resumes them."""
        self._is_stopped = True
        self._waiting.clear()
        await end(*self._changes, *(task.task for task in self._running.values()))

    def _begun(self, move: Move) -> None:
        self._waiting.append(move)
        self._waiting.sort(key=lambda each: each.partition.topic_partition)
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._max_at_once and not self._is_stopped:
            move = self._waiting.pop(0)
            task = self._running[move] = MoveTask(
                move, self._replicas, self._quota, self.alone, self._now_ms
            )
            task.start(self._ended)

    def _ended(self, move: Move) -> None:
        self._running.pop(move, None)
        self._start_next()

    def _news(self, move: Move) -> None:
        task = self._running.get(move)
        if task is not None:
            task.wake()
        elif move in self._waiting and not move.course.is_under_way:
            self._waiting.remove(move)
