"""One move of a replica to another log directory, from the first copy to the swap (KIP-113).

`MoveTask` has the order of the steps, one method for each state of `spindle.replicas.moves.move`.
`ReplicaCopy` does the work on the threads of the two directories, in small jobs of at most
`CHUNK_BYTES`, so that requests of producers and consumers wait for one job, and not for the whole
copy. `UnverifiedRanges` has copied records synced and read back while more are copied: this keeps
the final comparison short and bounds unsynced data.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from spindle.common.errors import CorruptLog, CorruptRecords, LogDirectoryFailed
from spindle.disks.copied_range import COPIED_RANGE_BYTES, CopiedRange, read_back
from spindle.disks.log_copy import (
    CHUNK_BYTES,
    Chunk,
    CopyPosition,
    Digest,
    append_chunk,
    begin_copy,
    digest,
    read_chunk,
    start_over,
    truncate_as_read,
)
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.log.log_values import MovedLogState
from spindle.replicas.moves.move import Move, MoveEvent, MoveState
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.background import run_once
from spindle.serving.quotas.replication import ReplicationQuota

log = logging.getLogger(__name__)

_NEWS_S: Final = 0.05
"""Pause between two checks for new records, of a move that has all records."""
MIN_BYTES: Final = 1024 * 1024
"""A shorter range is not synced: comparing both logs there is cheaper."""

_MAX_UNSYNCED: Final = 2

T = TypeVar("T")
U = TypeVar("U")


class MoveTask:
    """One running move.

    Args:
        alone: prevents other changes of a replica's directory while its body runs.
    """

    def __init__(
        self,
        move: Move,
        replicas: ReplicaManager,
        quota: ReplicationQuota,
        alone: Callable[[Partition], AbstractAsyncContextManager[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._move = move
        self._replicas = replicas
        self._moves = replicas.moves
        self._quota = quota
        self._alone = alone
        self._copy = ReplicaCopy(move, now_ms)
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
            log.error("the move of %s found a damaged batch: %s", self._move, error)
            partition = self._move.partition
            self._replicas.damages.note(partition.log, error)
            self._happened(MoveEvent.BROKEN)
        except Exception:  # after an error of this program, the move must end
            log.exception("the move of %s failed", self._move)
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


class UnverifiedRanges:
    """The records that were copied in this run and not compared yet, in their order."""

    def __init__(self, move: Move) -> None:
        self._move = move
        self._open: CopiedRange | None = None
        self._closed: deque[tuple[CopiedRange, asyncio.Future[int | None]]] = deque()

    @property
    def open_crc(self) -> int:
        """The checksum of the open range; the checksum of the next records continues it."""
        return 0 if self._open is None else self._open.crc

    async def add(self, written: CopiedRange) -> None:
        """Add records, whose `crc` continues `open_crc`; wait while too many bytes are unsynced."""
        self._open = written if self._open is None else self._open.extended(written)
        if self._open.size_bytes >= COPIED_RANGE_BYTES:
            self._close()
            if len(self._closed) > _MAX_UNSYNCED:
                await self._closed[-1 - _MAX_UNSYNCED][1]

    def _close(self) -> None:
        assert self._open is not None, "there is nothing to read back"
        copied, self._open = self._open, None
        target = self._move.target
        verification = asyncio.ensure_future(
            target.executor.submit_beside(read_back, target.store.storage.file_system, copied)
        )
        verification.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._closed.append((copied, verification))

    def clear(self) -> None:
        """Forget everything."""
        self._open = None
        self._closed.clear()

    def truncated_to(self, offset: int) -> None:
        """Drop the ranges with records at or after this offset."""
        while self._closed and self._closed[-1][0].end_offset > offset:
            self._closed.pop()
        if self._open is not None and self._open.end_offset > offset:
            self._open = None

    def first_from(self, offset: int) -> CopiedRange | None:
        """Drop the ranges that end at or below this offset; return the next one, if any."""
        while self._closed and self._closed[0][0].end_offset <= offset:
            self._closed.popleft()
        if not self._closed and self._open is not None:
            if self._open.end_offset > offset and self._open.size_bytes >= MIN_BYTES:
                self._close()
            else:
                self._open = None
        return self._closed[0][0] if self._closed else None

    async def read_back(self) -> int | None:
        """Read the next range back from the device; return its checksum and drop the range.

        Return None if a file of the range was removed.
        """
        return await self._closed.popleft()[1]


class Comparison(Enum):
    """The result of a comparison of the two logs."""

    EQUAL = "equal"
    DIFFERENT = "different"
    TRUNCATED = "the current log was truncated meanwhile"
    START_MOVED = "the start of the current log has moved"


class Copied(NamedTuple):
    """The result of copying a chunk.

    Attributes:
        has_all: the future log ends where the current log ended when the chunk was read.
    """

    size_bytes: int
    has_all: bool


class ReplicaCopy:
    """Copies, compares and swaps the two logs of a move.

    Every method raises `LogDirectoryFailed` if one of the directories fails. Do not call any method
    after the end of the move.
    """

    def __init__(self, move: Move, now_ms: Callable[[], int]) -> None:
        self._move = move
        self._now_ms = now_ms
        self._ahead: Chunk | None = None
        self._unverified_ranges = UnverifiedRanges(move)

    async def begin(self) -> None:
        """Stop compaction of the current log.

        Truncate the future log to the records that it shares with the current log, and before any
        gap that an unclean stop left.
        """
        move = self._move
        end_offset = await move.source.executor.submit(begin_copy, move.current)
        for gap in move.future.unverified_gaps[:1]:
            end_offset = min(end_offset, gap.first_offset)
        if move.future.log_end_offset > end_offset:
            await move.target.executor.submit(_truncate, move.target, move.future, end_offset)

    async def copy_chunk(self) -> Copied:
        """Append the next batches to the future log, while the batches that follow are being read.

        When `has_all` is True, no batch was read ahead.
        """
        move = self._move
        chunk = await self._next_chunk()
        if not move.course.is_under_way:
            return Copied(0, has_all=False)
        move.course.truncated_to(chunk.truncated_to)
        self._unverified_ranges.truncated_to(chunk.truncated_to)
        append = move.target.executor.submit(
            _append,
            move.target,
            move.future,
            chunk,
            self._now_ms(),
            self._unverified_ranges.open_crc,
        )
        if chunk.records and chunk.end_offset < chunk.log_end_offset:
            position, self._ahead = await _both(append, self._read(chunk.end_offset))
        else:
            position = await append
        size_bytes = 0
        if position.written is not None:
            size_bytes = position.written.size_bytes
            move.copied_bytes += size_bytes
            await self._unverified_ranges.add(position.written)
        return Copied(size_bytes, position.end_offset >= chunk.log_end_offset)

    async def _next_chunk(self) -> Chunk:
        """Return the batches after the future log's end, from memory if they were read ahead."""
        end_offset = self._move.future.log_end_offset
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return await self._read(end_offset)
        if ahead.first_offset == end_offset:
            return ahead
        chunk = await self._read(end_offset)
        return chunk._replace(truncated_to=min(chunk.truncated_to, ahead.truncated_to))

    def _read(self, offset: int) -> Awaitable[Chunk]:
        move = self._move
        return move.source.executor.submit(read_chunk, move.current, offset, CHUNK_BYTES)

    async def compare_chunk(self, end_offset: int) -> Comparison:
        """Compare the next uncompared batches below `end_offset`."""
        move = self._move
        course = move.course
        count = move.current.truncation_count
        begin = max(course.verified_end_offset, move.current.log_start_offset)
        copied = self._unverified_ranges.first_from(begin)
        if copied is not None and copied.first_offset <= begin:
            return await self._compare_copied_range(copied)
        if copied is not None:
            end_offset = min(end_offset, copied.first_offset)
        source, target = await self._digest_both(begin, end_offset)
        if not course.is_under_way:
            return Comparison.EQUAL
        if move.current.truncation_count != count:
            return Comparison.TRUNCATED
        if source.first_offset > begin:
            return Comparison.START_MOVED
        if target != source:
            return Comparison.DIFFERENT
        is_empty = source.end_offset == source.first_offset
        course.verified_end_offset = max(source.end_offset, end_offset if is_empty else 0)
        return Comparison.EQUAL

    async def _compare_copied_range(self, copied: CopiedRange) -> Comparison:
        """Compare copied records with the checksum that was taken during the copy."""
        crc = await self._unverified_ranges.read_back()
        if crc is None or self._move.future.truncation_count != copied.truncation_count:
            return Comparison.EQUAL  # nothing is compared: the two logs will be
        if crc != copied.crc:
            return Comparison.DIFFERENT
        self._move.course.verified_end_offset = copied.end_offset
        return Comparison.EQUAL

    async def _digest_both(self, begin: int, end_offset: int) -> tuple[Digest, Digest]:
        """Return both logs' digests from offset `begin`, over the same range if possible."""
        move = self._move
        logs = ((move.source, move.current), (move.target, move.future))
        first, second = (self._digest(at, log, begin, end_offset) for at, log in logs)
        digests = list(await _both(first, second))
        # The ends of segments limit a range, and the two logs have them at different offsets.
        while move.course.is_under_way and digests[0].end_offset != digests[1].end_offset:
            behind = int(digests[1].end_offset < digests[0].end_offset)
            known, goal = digests[behind], digests[1 - behind].end_offset
            part = await self._digest(*logs[behind], known.end_offset, goal, known.crc)
            if part.end_offset <= known.end_offset or part.first_offset != known.end_offset:
                break
            digests[behind] = part._replace(first_offset=known.first_offset)
        return digests[0], digests[1]

    def _digest(
        self, directory: LogDirectory, log: Log, offset: int, end_offset: int, crc: int = 0
    ) -> Awaitable[Digest]:
        return directory.executor.submit(digest, log, offset, end_offset, crc)

    async def start_over(self) -> None:
        """Truncate the future log to nothing. Batches that were read ahead are dropped."""
        self._ahead = None
        self._unverified_ranges.clear()
        await self._move.target.executor.submit(_start_over, self._move.target, self._move.future)

    async def flush(self) -> None:
        """Flush the future log outside the target's thread; record its offsets."""
        move = self._move
        task = await move.target.executor.submit(move.future.begin_flush)
        await move.target.executor.submit_beside(task.run)
        await move.target.executor.submit(move.future.complete_flush, task)
        await move.target.executor.submit(_checkpoint, move.target)

    async def state_for_copy(self) -> MovedLogState:
        """Wait for appends in flight; return the producer state that the future log needs."""
        return await self._move.source.executor.submit(self._move.current.state_for_copy)

    async def adopt_state(self, former: MovedLogState) -> None:
        """Copy the current log's state to the future log, and flush the future log."""
        move = self._move
        await move.target.executor.submit(_adopt_state, move.target, move.future, former)

    async def set_aside(self) -> None:
        """Take the name from the current log by renaming it; it can still be read.

        At no time are there two current logs. A restart before `promote` finds the future log alone
        and the metadata naming its directory.
        """
        move = self._move
        await move.source.executor.submit(
            move.source.store.rename_to_replaced, move.current, move.future.path
        )

    async def promote(self) -> None:
        """Rename the future log to the name of the current log, which was renamed before.

        Raises:
            LogDirectoryFailed: the target failed. The current log has its name back, unless its
                directory failed, too.
        """
        move = self._move
        try:
            await move.target.executor.submit(_promote, move.target, move.future)
            if move.target.executor.failure is not None:
                # It failed after the rename: the move has ended, and the metadata name the source.
                raise move.target.executor.failure
        except Exception:
            await self.put_back()
            raise

    async def put_back(self) -> None:
        """Undo `set_aside`."""
        move = self._move
        await move.source.executor.submit(move.source.store.put_back, move.current)

    async def clean_up(self) -> None:
        """Schedule the deletion of the former log, and write the checkpoints of the new one."""
        move = self._move
        cleaned: int | None = None
        with suppress(LogDirectoryFailed):
            # Without this offset the log is compacted from its start.
            cleaned = await move.source.executor.submit(
                move.source.store.cleaner_offset, move.current.topic_partition
            )
        await move.target.executor.submit(_note_promoted, move.target, move.future, cleaned)
        await move.source.executor.submit(
            move.source.store.delete_replaced, move.current, self._now_ms()
        )


def _truncate(directory: LogDirectory, future: Log, end_offset: int) -> None:
    future.truncate_to(end_offset)
    directory.store.note_truncated([future])


def _append(
    directory: LogDirectory, future: Log, chunk: Chunk, now_ms: int, crc: int
) -> CopyPosition:
    if truncate_as_read(future, chunk, now_ms):
        directory.store.note_truncated([future])
    log_start_offset = future.log_start_offset
    position = append_chunk(future, chunk, now_ms, crc)
    if future.log_start_offset != log_start_offset:
        # The source may have stored it already, and its checkpoint is of no use after the swap.
        directory.store.checkpoint_log_starts()
    return position


def _start_over(directory: LogDirectory, future: Log) -> None:
    start_over(future)
    directory.store.note_truncated([future])


def _checkpoint(directory: LogDirectory) -> None:
    directory.store.checkpoint_recovery_points()
    directory.store.checkpoint_log_starts()
    directory.store.checkpoint_high_watermarks()


def _adopt_state(directory: LogDirectory, future: Log, former: MovedLogState) -> None:
    has_moved = future.log_start_offset < former.log_start_offset
    future.adopt_state(former)
    if has_moved:
        directory.store.checkpoint_log_starts()


def _promote(directory: LogDirectory, future: Log) -> None:
    directory.store.promote_future(future.topic_partition)


def _note_promoted(directory: LogDirectory, promoted: Log, cleaner_offset: int | None) -> None:
    if cleaner_offset is not None:
        directory.store.set_cleaner_offset(promoted.topic_partition, cleaner_offset)
    _checkpoint(directory)


async def _both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Run two jobs concurrently; wait for both, even if one fails."""
    try:
        one = await first
    except Exception:  # the other error, if there is one, must be retrieved as well
        await second
        raise
    return one, await second
