"""Writes snapshots of the metadata, and removes old ones with the log before them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import RandomSource
from spindle.disks.executor import DirectoryExecutor
from spindle.metadata_log.metadata_log import MetadataLog
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot
from spindle.raft.core import QuorumCore
from spindle.raft.ready import LogCleaned, SnapshotWritten

_CLEAN_PERIOD_S: Final = 60.0


class SnapshotWriter:
    """Writes one snapshot after another, beside the steps of the quorum.

    Args:
        core: the state of the member, read-only.
        report: called with changes of the files, as events of the quorum.
        on_error: called with a fault after which the member cannot continue.
    """

    def __init__(
        self,
        log: MetadataLog,
        thread: DirectoryExecutor,
        random: RandomSource,
        clock: Callable[[], int],
        core: QuorumCore,
        report: Callable[[SnapshotWritten | LogCleaned], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._thread = thread
        self._random = random
        self._clock = clock
        self._core = core
        self._report = report
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._in_work: set[OffsetAndEpoch] = set()
        self._is_stopped = False
        self._timer = self._loop.call_later(_CLEAN_PERIOD_S, self._clean_periodically)

    def stop(self) -> None:
        """Stop the clean-up of old snapshots."""
        self._is_stopped = True
        self._timer.cancel()

    async def write(
        self, snapshot_id: OffsetAndEpoch, values: Iterable[bytes], last_timestamp_ms: int
    ) -> int:
        """Write a snapshot of the state below `snapshot_id.offset`, then clean up old ones.

        Args:
            values: the framed records; another thread iterates over them.

        Returns its size in bytes, 0 if it was there already.

        Raises:
            ValueError: the offset is not committed, or lies before the log's start.
        """
        core = self._core
        if core.high_watermark is None or snapshot_id.offset > core.high_watermark:
            raise ValueError(f"{snapshot_id} is above the high watermark {core.high_watermark}")
        if snapshot_id.offset <= core.log.start_offset:
            raise ValueError(f"{snapshot_id} is below the log's start {core.log.start_offset}")
        if snapshot_id in core.log.snapshots or snapshot_id in self._in_work:
            return 0
        info = SnapshotInfo(
            last_timestamp_ms,
            core.history.kraft_version_before(snapshot_id.offset),
            core.history.voters_before(snapshot_id.offset),
        )
        token = str(self._random.randrange(0, 2**63))
        self._in_work.add(snapshot_id)
        try:
            # A large image takes seconds to encode, write and flush. The disk's thread stores votes
            # and records meanwhile.
            content = encode_snapshot(values, info, epoch=snapshot_id.epoch, now_ms=self._clock())
            part = await self._thread.submit_beside(
                self._log.write_part, snapshot_id, content, token
            )
            size_bytes = await self._thread.submit(self._log.complete_part, part)
        finally:
            self._in_work.discard(snapshot_id)
        self._report(SnapshotWritten(snapshot_id))
        self._clean()
        return size_bytes

    def _clean_periodically(self) -> None:
        self._timer = self._loop.call_later(_CLEAN_PERIOD_S, self._clean_periodically)
        self._clean()

    def _clean(self) -> None:
        high_watermark = self._core.high_watermark
        if high_watermark is not None and not self._is_stopped:
            self._thread.call(self._cleaned, self._clean_on_disk, high_watermark, self._clock())

    def _clean_on_disk(self, high_watermark: int, now_ms: int) -> LogCleaned | None:
        if not self._log.clean(high_watermark, now_ms):
            return None
        return LogCleaned(self._log.start_offset, self._log.snapshot_ids)

    def _cleaned(self, event: LogCleaned | None, error: BaseException | None) -> None:
        if error is not None:
            self._on_error(error)
        elif event is not None:
            self._report(event)
