"""File work of the quorum, in rounds on the metadata directory's thread.

The work of steps taken during a round becomes the next round, with a single flush. So appends are
committed in groups without waiting for one another.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import Bytes
from spindle.disks.executor import DirectoryExecutor
from spindle.metadata_log.metadata_log import MetadataLog, UnfitSnapshot
from spindle.metadata_log.snapshots import SnapshotInfo
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from spindle.raft.ready import (
    AppendBatches,
    Flush,
    InstallSnapshot,
    LogOperation,
    ReadLog,
    ReadSnapshot,
    Ready,
    Truncate,
    WriteSnapshotChunk,
)


class InstalledSnapshot(NamedTuple):
    """A fetched snapshot that was installed, or the reason why it was not."""

    snapshot_id: OffsetAndEpoch
    info: SnapshotInfo | UnfitSnapshot


class SnapshotSlice(NamedTuple):
    """Bytes of a snapshot, and the size of the whole file."""

    data: bytes
    size_bytes: int


FoundBytes: TypeAlias = Bytes | SnapshotSlice | None
"""The bytes read for a reply; None for a snapshot that was removed meanwhile."""


class Round(NamedTuple):
    """Steps whose file work is done.

    Attributes:
        reads: the bytes read for replies, by the token of the request.
        installed: a snapshot that replaced the log, or was damaged.
    """

    readies: list[Ready]
    reads: dict[int, FoundBytes]
    installed: InstalledSnapshot | None = None


class DiskRounds:
    """Runs the file work of `Ready`s in their order.

    Args:
        kraft_version: returns the present kraft.version, which decides the form of the quorum-state
            file.
        on_done: called with each finished round, on the event loop.
        on_error: called with the fault that ended the work.
    """

    def __init__(
        self,
        log: MetadataLog,
        thread: DirectoryExecutor,
        clock: Callable[[], int],
        kraft_version: Callable[[], int],
        on_done: Callable[[Round], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._thread = thread
        self._clock = clock
        self._kraft_version = kraft_version
        self._on_done = on_done
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Ready] = deque()
        self._is_busy = False
        self._is_due = False
        self._is_stopped = False
        self._idle: list[asyncio.Future[None]] = []

    def add(self, ready: Ready) -> None:
        """Queue a step's work; it begins in the next iteration of the event loop."""
        self._waiting.append(ready)
        if not self._is_due and not self._is_busy:
            self._is_due = True
            self._loop.call_soon(self._begin)

    def stop(self) -> None:
        """Start no further round, and report none."""
        self._is_stopped = True
        self._tell_idle()

    async def until_idle(self, deadline: float) -> None:
        """Return when all work is done, or at `deadline` in the event loop's time."""
        if (self._waiting or self._is_busy) and not self._is_stopped:
            idle: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(idle)
            await asyncio.wait([idle], timeout=max(0.0, deadline - self._loop.time()))

    def _begin(self) -> None:
        self._is_due = False
        if self._is_busy or self._is_stopped:
            return
        readies = list(self._waiting)
        self._waiting.clear()
        if any(_needs_disk(ready) for ready in readies):
            self._is_busy = True
            self._thread.call(self._end, self._run, readies, self._kraft_version(), self._clock())
        else:
            self._finish(Round(readies, {}))

    def _end(self, finished: Round | None, error: BaseException | None) -> None:
        self._is_busy = False
        if error is not None:
            self._on_error(error)
        elif finished is not None and not self._is_stopped:
            self._finish(finished)

    def _finish(self, finished: Round) -> None:
        self._on_done(finished)
        if self._waiting and not self._is_due and not self._is_busy:
            self._begin()
        if not self._waiting and not self._is_busy:
            self._tell_idle()

    def _tell_idle(self) -> None:
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._idle.clear()

    # ------------------------------------------------------------ on the directory's thread

    def _run(self, readies: list[Ready], kraft_version: int, now_ms: int) -> Round:
        reads: dict[int, FoundBytes] = {}
        installed: InstalledSnapshot | None = None
        last_flush = max(
            (index for index, ready in enumerate(readies) if _flushes(ready)), default=-1
        )
        for index, ready in enumerate(readies):
            if ready.election_state is not None:
                self._log.write_election_state(ready.election_state, kraft_version)
            for operation in ready.log_operations:
                installed = self._do(operation, now_ms) or installed
            if index == last_flush:
                self._log.flush()
            for reply in ready.replies:
                if reply.read is not None:
                    reads[reply.token] = self._read(reply.read)
        return Round(readies, reads, installed)

    def _do(self, operation: LogOperation, now_ms: int) -> InstalledSnapshot | None:
        match operation:
            case AppendBatches(batches=batches):
                self._log.append(batches, now_ms)
            case Truncate(offset):
                self._log.truncate_to(offset)
            case WriteSnapshotChunk(snapshot_id, position, data):
                self._log.write_fetched_chunk(snapshot_id, position, data)
            case InstallSnapshot(snapshot_id):
                try:
                    return InstalledSnapshot(snapshot_id, self._log.install_snapshot(snapshot_id))
                except UnfitSnapshot as reason:
                    return InstalledSnapshot(snapshot_id, reason)
        return None

    def _read(self, read: ReadLog | ReadSnapshot) -> FoundBytes:
        if isinstance(read, ReadSnapshot):
            if read.snapshot_id not in self._log.snapshot_ids:
                return None  # cleaned up since the request was accepted
            return SnapshotSlice(
                *self._log.read_snapshot_slice(read.snapshot_id, read.position, read.max_bytes)
            )
        if self._log.start_offset <= read.offset < self._log.end_offset:
            return self._log.read(read.offset, read.max_bytes)
        return b""


def add_bytes(response: Message, read: ReadLog | ReadSnapshot, found: FoundBytes) -> None:
    """Add the bytes that a round has read to the response."""
    if isinstance(response, FetchResponse) and not isinstance(found, SnapshotSlice):
        response.responses[0].partitions[0].records = found
    elif isinstance(response, FetchSnapshotResponse) and isinstance(read, ReadSnapshot):
        partition = response.topics[0].partitions[0]
        if not isinstance(found, SnapshotSlice):
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif read.position >= found.size_bytes:
            partition.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            partition.size = found.size_bytes
            partition.unaligned_records = found.data


def _needs_disk(ready: Ready) -> bool:
    return (
        ready.election_state is not None
        or bool(ready.log_operations)
        or any(reply.read is not None for reply in ready.replies)
    )


def _flushes(ready: Ready) -> bool:
    return any(isinstance(operation, Flush) for operation in ready.log_operations)
