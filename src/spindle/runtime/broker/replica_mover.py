"""Moves replicas between the directories of this broker: a task for each move, a few at a time.

`num.replica.alter.log.dirs.threads` moves run at the same time, in the order of their names. Each
copies in small jobs on the directories' own threads. `lock` is held during a reaction to metadata.
While a move begins or two logs are swapped, the reactions skip this replica, and its instructions
are applied afterwards: a disk that hangs delays no other replica.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from spindle.common.errors import CorruptLog, CorruptRecords, ErrorCode, LogDirectoryFailed
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.moves.copier import Comparison, ReplicaCopy
from spindle.replicas.moves.move import Move
from spindle.replicas.moves.states import MoveEvent, MoveState
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.background import end, run_once
from spindle.serving.quotas.replication import ReplicationQuota

log = logging.getLogger(__name__)

_NEWS_S: Final = 0.05
"""Pause between two checks for new records, of a move that has all records."""


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
            return await replicas.begin_move(
                partition, target, needs_assignment=self._needs_assignment()
            )

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
            copy = ReplicaCopy(move, self._now_ms)
            task = self._running[move] = MoveTask(
                move, copy, self._replicas, self._quota, self.alone
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


class MoveTask:
    """One running move."""

    def __init__(
        self,
        move: Move,
        copy: ReplicaCopy,
        replicas: ReplicaManager,
        quota: ReplicationQuota,
        alone: Callable[[Partition], AbstractAsyncContextManager[None]],
    ) -> None:
        self._move = move
        self._replicas = replicas
        self._moves = replicas.moves
        self._quota = quota
        self._alone = alone
        self._copy = copy
        self._is_news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[Move], None]) -> None:
        self.task = run_once(self._run(), f"move {self._move}")
        self.task.add_done_callback(lambda _: ended(self._move))

    def wake(self) -> None:
        self._is_news.set()

    async def _run(self) -> None:
        try:
            if self._move.course.is_under_way:
                await self._copy.begin()
            while self._move.course.is_under_way:
                await self._turn(self._move.course.state)
        except LogDirectoryFailed as failure:
            # `Moves.directory_failed` has ended the move, or is about to.
            log.warning("the move of %s stops: %s", self._move, failure)
        except (CorruptLog, CorruptRecords) as error:
            log.error("the move of %s meets a damaged batch: %s", self._move, error)
            partition = self._move.partition
            self._replicas.damages.note(partition.log, error)
            self._happened(MoveEvent.BROKEN)
        except Exception:  # after an error of this program, the move must end
            log.exception("the move of %s", self._move)
            self._happened(MoveEvent.BROKEN)

    async def _turn(self, state: MoveState) -> None:
        self._is_news.clear()
        match state:
            case MoveState.COPYING:
                if await self._copy_some():
                    self._happened(MoveEvent.CAUGHT_UP)
            case MoveState.VERIFYING:
                await self._verify(self._move.future.log_end_offset)
                if self._move.course.state is MoveState.VERIFYING:
                    await self._copy.flush()
                    self._happened(MoveEvent.EQUAL)
            case MoveState.ASSIGNING:
                if await self._copy_some():
                    await self._wait_for_news()
            case _ if self._quota.is_exceeded:
                # As in Kafka: the quota also delays the swap of a log that is copied in one chunk.
                await self._wait_for_news()
            case _:
                await self._swap()

    async def _copy_some(self) -> bool:
        """Copy one chunk within the quota; return True if no record is missing."""
        if self._quota.is_exceeded:
            await self._wait_for_news()
            return False
        copied = await self._copy.copy_chunk()
        self._quota.record(copied.size_bytes)
        return copied.has_all

    async def _wait_for_news(self) -> None:
        """Return when an event has come since the beginning of the turn, or after a short time."""
        try:
            async with asyncio.timeout(_NEWS_S):
                await self._is_news.wait()
        except TimeoutError:
            pass

    async def _verify(self, end_offset: int) -> bool:
        """Compare up to `end_offset`; return True if all of it is equal."""
        course = self._move.course
        while course.is_under_way and course.verified_end_offset < end_offset:
            match await self._copy.compare_chunk(end_offset):
                case Comparison.DIFFERENT:
                    self._happened(MoveEvent.DIFFERENT)
                    if course.is_under_way:
                        await self._copy.start_over()
                    return False
                case Comparison.TRUNCATED | Comparison.START_MOVED:
                    await self._copy.copy_chunk()
                    end_offset = min(end_offset, self._move.future.log_end_offset)
        return course.is_under_way

    async def _swap(self) -> None:
        """Copy almost everything first; then block appends and copy the last records."""
        await self._copy_rest()
        if not await self._verify(self._move.future.log_end_offset):
            return
        async with self._alone(self._move.partition):
            if self._move.course.state is MoveState.SWAPPING:
                await self._replicas.while_held(self._move.partition, self._swap_held)
        if self._move.course.state is MoveState.DONE:
            await self._copy.clean_up()

    async def _copy_rest(self) -> None:
        """Copy the last few records even above the quota; later copies wait for it."""
        has_all = False
        while self._move.course.is_under_way and not has_all:
            copied = await self._copy.copy_chunk()
            self._quota.record(copied.size_bytes)
            has_all = copied.has_all

    async def _swap_held(self) -> None:
        move, copy = self._move, self._copy
        former = await copy.state_for_copy()
        await self._copy_rest()
        if not await self._verify(former.log_end_offset) or move.lag:
            return
        await copy.adopt_state(former)
        if not move.course.is_under_way:
            return
        await copy.set_aside()
        self._happened(MoveEvent.SET_ASIDE)
        if move.course.state is MoveState.PROMOTING:
            await copy.promote()
            move.partition.replace_log(move.future, move.target)
            self._happened(MoveEvent.SWAPPED)
        else:
            await copy.put_back()

    def _happened(self, event: MoveEvent) -> None:
        self._moves.apply(self._move, event)
