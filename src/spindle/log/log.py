"""One partition's log: append, read, truncate, and the offsets that describe it.

The log is used by one thread, that of its directory. The plain integers `log_start_offset`,
`log_end_offset`, `high_watermark` and `last_stable_offset` may be read by others at any time. An
`OSError` leaves the log in an undefined state and is not caught here: the directory has failed
then.

Invariants: log_start_offset <= high_watermark <= log_end_offset; recovery_point <= log_end_offset.
"""

import logging
from collections.abc import Sequence
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OffsetAndEpoch, TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import Uuid
from spindle.log.append_batches import follower_batches, place_batches, writable
from spindle.log.cleaning.abort import CleaningAbort
from spindle.log.errors import LogDeleted, OffsetOutOfRange
from spindle.log.flushing import FlushTask
from spindle.log.formats.index_entries import MAX_RELATIVE_OFFSET
from spindle.log.formats.partition_metadata import write_partition_metadata
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.lease import LeasableOffsets
from spindle.log.log_config import LogConfig
from spindle.log.log_values import (
    AppendInfo,
    FetchedRecords,
    LoadedState,
    MovedLogState,
    duplicate_append,
    nothing_appended,
)
from spindle.log.open_files import FileHandles
from spindle.log.producers.append import CompletedTransaction
from spindle.log.producers.entry import ProducerStateEntry
from spindle.log.producers.transaction_changes import (
    find_duplicate,
    producer_changes,
    replay_producers,
)
from spindle.log.producers.verification import NO_TRANSACTION, TransactionContext
from spindle.log.segments.lookup import TimestampSearch
from spindle.log.segments.retention import deletable_segments
from spindle.log.segments.rolling import must_roll
from spindle.log.segments.segment import Segment
from spindle.log.segments.segment_list import Segments
from spindle.log.storage import LogStorage
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.validation import AppendOrigin, validate_for_append
from spindle.protocol.sentinels import NO_TIMESTAMP

logger = logging.getLogger(__name__)

_NO_UNSTABLE_OFFSET: Final = 2**63 - 1
NEVER_TRUNCATED: Final = 2**63 - 1
LOG_END: Final = 2**63 - 1  # as a high watermark: all records are committed


class Log(LeasableOffsets):
    """A partition's log in its directory; made by `spindle.log.loading`."""

    __slots__ = (
        "_cleaning",
        "_first_unstable_offset",
        "_flushing",
        "_segment_config",
        "_storage",
        "_unflushed_since_ms",
        "config",
        "epochs",
        "has_durable_identity",
        "is_deleted",
        "is_moving",
        "log_start_offset",
        "lowest_end_offset",
        "path",
        "producers",
        "recovery_point",
        "segments",
        "topic_id",
        "topic_partition",
        "truncation_count",
        "unverified_gaps",
    )

    def __init__(
        self,
        storage: LogStorage,
        path: str,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        state: LoadedState,
        *,
        has_durable_identity: bool,
    ) -> None:
        super().__init__(state.log_end_offset, state.log_start_offset)
        self._storage = storage
        self.has_durable_identity = has_durable_identity
        self._flushing: FlushTask | None = None
        self._cleaning: CleaningAbort | None = None
        self._unflushed_since_ms: int | None = None
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        """The topic's settings; after a load at start, defaults until the metadata is available."""
        self._segment_config = config
        self.segments, self.epochs = state.segments, state.epochs
        self.producers = state.producers
        self.log_start_offset = state.log_start_offset
        self.recovery_point = state.recovery_point
        self.unverified_gaps = state.unverified_gaps
        """Gaps that an unclean stop or compaction left, in order of offsets. A follower compares
        them with the leader's log (`confirm_gaps_below`, `truncate_to`)."""
        self.truncation_count = 0
        self.lowest_end_offset = NEVER_TRUNCATED
        """Lowest end offset after a truncation since the last reset."""
        self.is_moving = self.is_deleted = False
        self._first_unstable_offset = _NO_UNSTABLE_OFFSET
        self._note_unstable()

    def __repr__(self) -> str:
        return (
            f"Log({self.path}, log_start_offset={self.log_start_offset}, "
            f"high_watermark={self.high_watermark}, log_end_offset={self.log_end_offset})"
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed consumers: the first open transaction or high watermark."""
        return min(self.high_watermark, self._first_unstable_offset)

    @property
    def first_unstable_offset(self) -> int:
        """The start of the first unstable transaction; far beyond the log end if there is none.

        A transaction is unstable while it is open, or its marker is not below the high watermark.
        """
        return self._first_unstable_offset

    @property
    def has_open_transactions(self) -> bool:
        """Whether a transaction is open, or its marker is not below the high watermark."""
        return self._first_unstable_offset != _NO_UNSTABLE_OFFSET

    # Append.

    def append_as_leader(
        self,
        records: Bytes,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        terms: TransactionContext = NO_TRANSACTION,
        validated: bool = False,
    ) -> AppendInfo:
        """Check the batches, assign offsets and the leader epoch, and write them.

        Args:
            records: whole batches; a writable buffer is patched in place, another is copied once.
            terms: of transactional records and of markers.
            validated: the checks of `validate_for_append` were made already.

        Raises:
            ApiError: what `validate_for_append` or a producer's sequence refuses. Nothing is
                written then.
        """
        buffer = writable(records)
        if validated:
            headers = list(batches(buffer))
        else:
            buffer, headers = validate_for_append(
                buffer, self.config.append_rules, now_ms, origin, self.topic_partition
            )
        if not headers:
            return nothing_appended(self.log_start_offset, self.log_end_offset)
        if origin is AppendOrigin.CLIENT:
            duplicate = find_duplicate(self.producers, headers)
            if duplicate is not None:
                return duplicate_append(*duplicate, self.log_start_offset)
        placed = place_batches(buffer, headers, self.log_end_offset, leader_epoch)
        return self._append(buffer, placed, origin, now_ms, terms)

    def append_as_follower(self, records: Bytes, leader_epoch: int, now_ms: int = 0) -> AppendInfo:
        """Write the leader's batches with their offsets and epochs.

        An incomplete batch at the end, and everything from the first batch with an epoch above
        `leader_epoch` on, is left out: only a leader of that epoch may send it.

        Raises:
            CorruptRecords: a checksum is wrong or offsets do not ascend.
            UnexpectedAppendOffset: the first batch begins below the log end.
        """
        headers, end = follower_batches(
            records, leader_epoch, self.log_end_offset, self.topic_partition
        )
        if not headers:
            return nothing_appended(self.log_start_offset, self.log_end_offset)
        return self._append(memoryview(records)[:end], headers, AppendOrigin.REPLICATION, now_ms)

    def _append(
        self,
        records: Bytes,
        placed: Sequence[tuple[int, BatchHeader]],
        origin: AppendOrigin,
        now_ms: int,
        terms: TransactionContext = NO_TRANSACTION,
    ) -> AppendInfo:
        self._refuse_if_deleted()
        first, last = placed[0][1], placed[-1][1]
        changes, completed = producer_changes(
            self.producers,
            records,
            placed,
            origin,
            terms,
            must_be_verified=(origin is AppendOrigin.CLIENT and self.config.verifies_transactions),
        )
        max_timestamp = max([header.max_timestamp for _, header in placed])
        last_offset = last.base_offset + last.last_offset_delta
        lease = None
        if self.lease is not None:
            before, epoch, lease = self.segments.active, self.epochs.latest, self.suspend_lease()
        end_offset = last_offset + 1
        try:
            segment = self._segment_for(records, first, last_offset, max_timestamp, now_ms)
            self._assign_epochs(placed)
            segment.append(records, placed)
            self._log_end_offset = end_offset
            for change in changes:
                self.producers.apply(change)
            for transaction in completed:
                self._complete(transaction, segment)
        except BaseException:
            if lease is not None:
                lease.end()
            raise
        if lease is not None:
            is_same = segment is before and self.epochs.latest == epoch
            self.after_append(lease, segment.progress() if is_same else None, changes)
        if changes:
            self._note_unstable()
        self.note_unflushed(now_ms)
        if end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return AppendInfo(
            first.base_offset,
            last_offset,
            max_timestamp,
            last.max_timestamp if last.has_log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            False,
            len(records),
            records,
        )

    def _segment_for(
        self, records: Bytes, first: BatchHeader, last_offset: int, timestamp_ms: int, now_ms: int
    ) -> Segment:
        """Return the active segment, with the newest settings; a new one if it is finished."""
        segment, config = self.segments.active, self.config
        if self._segment_config is not config:
            self._segment_config = config
            segment.use_settings(config)
        if must_roll(segment, len(records), last_offset, timestamp_ms, config, now_ms):
            segment = self._roll_for(first.base_offset, last_offset, now_ms)
        if not self.has_durable_identity:
            self._make_identity_durable()
        return segment

    def note_unflushed(self, now_ms: int) -> None:
        """Record that something is not on the device since `now_ms`, if not earlier."""
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms

    def prepare_lease(self) -> None:
        """Apply the newest settings to the active segment, for a lane that will append to it."""
        self._segment_config = self.config
        self.segments.active.use_settings(self.config)
        self.segments.active.prepare_lease()

    def _assign_epochs(self, placed: Sequence[tuple[int, BatchHeader]]) -> None:
        latest = self.epochs.latest
        for _, header in placed:
            if header.leader_epoch != latest and header.leader_epoch >= 0:
                self.epochs.assign(header.leader_epoch, header.base_offset)
                latest = self.epochs.latest
        self.epochs.make_durable()

    def identify(self, topic_id: Uuid) -> None:
        """Set the topic id of a log that lost it; the id is on the device on return."""
        self.topic_id = topic_id
        self._make_identity_durable()

    def _make_identity_durable(self) -> None:
        """Sync the topic id before the first byte of data can reach the device."""
        file_system = self._storage.file_system
        if self.topic_id is not None:
            write_partition_metadata(file_system, self.path, self.topic_id, is_durable=True)
        file_system.sync_directory(self._storage.path)
        self.has_durable_identity = True

    # Producers.

    def _complete(self, transaction: CompletedTransaction, segment: Segment) -> None:
        if transaction.is_aborted:
            stable = self.producers.last_stable_offset_after(transaction)
            segment.transaction_index.append(
                AbortedTransaction(
                    transaction.producer_id,
                    transaction.first_offset,
                    transaction.last_offset,
                    stable,
                )
            )
        self.producers.complete(transaction)

    def _note_unstable(self) -> None:
        first = self.producers.first_unstable_offset
        start = self.log_start_offset  # the first records of a transaction may be deleted
        self._first_unstable_offset = _NO_UNSTABLE_OFFSET if first is None else max(first, start)

    def active_producers(self) -> list[ProducerStateEntry]:
        """Return the state of every known producer."""
        return self.producers.entries()

    def remove_expired_producers(self, now_ms: int) -> None:
        """Remove producers that have been idle for `producer.id.expiration.ms`."""
        self.end_lease()
        self.producers.remove_expired(now_ms, self.config.producer_id_expiration_ms)

    # Read.

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True
    ) -> FetchedRecords:
        """Return whole batches of one segment, from the batch that holds `offset` to below
        `end_offset`.

        At most `max_bytes`, but at least one batch (if there is one) with `min_one_batch`.

        Raises:
            OffsetOutOfRange: `offset` is below the log start or above the log end.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(
                self.topic_partition, offset, self.log_start_offset, log_end_offset
            )
        limit = min(end_offset, log_end_offset)
        if offset < limit:
            if self.is_deleted:
                raise LogDeleted(self.topic_partition)
            for segment in self.segments.from_offset(offset):
                data = segment.read(offset, max_bytes, limit, min_one_batch=min_one_batch)
                if data is not None:
                    first = int.from_bytes(data[:8], "big") if data else offset
                    return FetchedRecords(data, first)
        return FetchedRecords(memoryview(b""), offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in [start_offset, end_offset), by their ends."""
        self._refuse_if_deleted()
        return self.segments.aborted_transactions(start_offset, end_offset)

    def advance_search(self, search: TimestampSearch) -> None:
        """Run the next step of a search by timestamp; see `TimestampSearch.advance`."""
        self._refuse_if_deleted()
        search.advance(self.segments, self.log_start_offset)

    # Epochs and offsets.

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return where `epoch`, or the largest known one below it, ends; (-1, -1) if unknown."""
        return self.epochs.log_end_offset_for(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note that a leader of `epoch` begins to write at `offset`; see `LeaderEpochs.assign`."""
        self._refuse_if_deleted()
        self.end_lease()
        self.epochs.assign(epoch, offset)

    def update_high_watermark(self, offset: int) -> None:
        """Set the high watermark, kept within log start and log end."""
        if self.lease is not None:
            self.lease.raise_high_watermark(offset)
        else:
            limited = min(offset, self._log_end_offset)
            self._high_watermark = max(self.log_start_offset, limited)
        if self._first_unstable_offset != _NO_UNSTABLE_OFFSET:
            self.producers.on_high_watermark(self.high_watermark)
            self._note_unstable()

    def increment_log_start_offset(self, offset: int) -> None:
        """Delete the records below `offset`, unless it is at or below the log start.

        Their segments are deleted by the next `delete_old_segments`.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition "
                f"{self.topic_partition} since it is larger than the high watermark "
                f"{self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self._refuse_if_deleted()
            self.end_lease()
            self.log_start_offset = offset
            self.confirm_gaps_below(offset)
            self.epochs.truncate_from_start(offset)
            self.producers.on_log_start(offset)
            self._note_unstable()

    # Truncation.

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Remove all records from `offset` on, durably when this returns.

        Records that were replaced must not come back after a power failure. A batch that contains
        `offset` is removed as a whole: the log ends at a batch boundary.

        Raises:
            CorruptLog: the batch cannot be found; nothing is removed.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to offset {offset}")
        self._refuse_if_deleted()
        self.end_lease(was_cut=offset < self.log_end_offset)
        if offset >= self.log_end_offset:
            # A former leader may have noted its epoch without having written a record.
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if self.segments.first.base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return
        last = self.segments.from_offset(offset)[0]
        position = last.position_of(offset)  # may raise, so it comes before any removal
        self._abort_cleaning()
        while self.segments.active is not last:
            segment = self.segments.active
            self.segments.remove(segment)
            segment.delete()
        last.truncate_to(offset, position)
        self.segments.active.sync()
        self._storage.file_system.sync_directory(self.path)
        offset, _ = self.segments.active.end_of_batches()
        self.truncation_count += 1
        self.lowest_end_offset = min(self.lowest_end_offset, offset)
        self.log_end_offset = offset
        self.epochs.truncate_from_end(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.unverified_gaps = tuple(g for g in self.unverified_gaps if g.end_offset <= offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._limit_flush(offset)
        self._rebuild_producers(now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the log begins and ends at `offset`."""
        self._refuse_if_deleted()
        self.end_lease(was_cut=True)
        self._abort_cleaning()
        if not self.has_durable_identity:
            self._make_identity_durable()
        for segment in list(self.segments):
            segment.delete()
        fresh = self._new_segment(offset, 0)
        fresh.sync()
        self._storage.file_system.sync_directory(self.path)
        self.segments = Segments([fresh])
        self.truncation_count += 1
        self.lowest_end_offset = min(self.lowest_end_offset, offset)
        self.epochs.truncate_from_end(0)
        self.producers.reset(offset)
        self.log_start_offset = offset
        self.log_end_offset = offset
        self.recovery_point = offset
        self.unverified_gaps = ()
        self.high_watermark = offset
        self._limit_flush(offset)
        self._note_unstable()

    # Gaps that an unclean stop may have made.

    def confirm_gaps_below(self, offset: int) -> None:
        """Keep the unverified gaps below `offset`: the leader has no records there either."""
        if self.unverified_gaps:
            self.unverified_gaps = tuple(
                gap._replace(first_offset=max(gap.first_offset, offset))
                for gap in self.unverified_gaps
                if gap.end_offset > offset
            )

    @property
    def recovery_point_to_store(self) -> int:
        """The recovery point for the checkpoint, below which the next start checks no gaps."""
        return min([self.recovery_point, *(gap.first_offset for gap in self.unverified_gaps)])

    def _limit_flush(self, offset: int) -> None:
        """Exclude all records from `offset` on from the flush in flight."""
        if self._flushing is not None:
            self._flushing.end_offset = min(self._flushing.end_offset, offset)

    def _rebuild_producers(self, now_ms: int) -> None:
        producers = self.producers
        expiration_ms = self.config.producer_id_expiration_ms
        producers.reload(self.log_start_offset, self.log_end_offset, now_ms, expiration_ms)
        replay_producers(self.segments, producers, self.log_end_offset)
        producers.on_high_watermark(self.high_watermark)
        self._note_unstable()

    # Replacing another copy of the log (KIP-113).

    def begin_move(self) -> None:
        """Begin a copy of the log: from now on compaction does not replace its segments."""
        self.end_lease()
        self.is_moving = True
        self._abort_cleaning()

    def end_move(self) -> None:
        """End the copy of the log."""
        self.is_moving = False

    def state_for_copy(self) -> MovedLogState:
        """Return the state for the copy that replaces this log."""
        return MovedLogState(
            self.log_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self.recovery_point,
            self.epochs.entries,
            self.producers,
            self.unverified_gaps,
        )

    def adopt_state(self, former: MovedLogState) -> None:
        """Adopt the in-memory state of the replaced copy, and flush up to its flushed offset.

        Both copies have the same records; no records are added until this has returned.

        Raises:
            ValueError: the replaced log ends at another offset.
        """
        if former.log_end_offset != self.log_end_offset:
            raise ValueError(f"{self} does not end at {former.log_end_offset}, as the former log")
        self.producers.map_end_offset = self.log_end_offset
        self.producers.adopt_state(former.producers)
        self.unverified_gaps = former.unverified_gaps
        self.update_high_watermark(former.high_watermark)
        self.increment_log_start_offset(former.log_start_offset)
        self.epochs.replace(former.epochs)
        self._note_unstable()
        if not self.has_durable_identity:
            self._make_identity_durable()
        if self.recovery_point < former.recovery_point:
            self.flush()

    # Segments.

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active segment is empty."""
        if self.segments.active.size_bytes:
            self._roll_at(self.log_end_offset, now_ms)

    def _roll_for(self, first_offset: int, last_offset: int, now_ms: int) -> Segment:
        """Begin the segment for a leader's or follower's next batches.

        It begins at the log end even if the batches come after a gap. So a gap between segments has
        one of two causes: compaction, or a loss of data. The gap stays only where offsets would be
        too far from such a base.
        """
        if last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET:
            return self._roll_at(self.log_end_offset, now_ms)
        return self._roll_at(first_offset, now_ms)

    def _roll_at(self, base_offset: int, now_ms: int) -> Segment:
        self.end_lease()
        active = self.segments.active
        self._storage.request_flush()
        if active.size_bytes == 0:
            # An empty segment cannot hold an offset that far from its base: it is replaced.
            self.segments.remove(active)
            active.delete()
        else:
            active.become_inactive()
            if self.recovery_point >= self.log_end_offset:
                # No flush to come would include this segment, whose indexes just changed.
                active.sync()
            # A flush in progress may have synced the indexes before they changed: leave the last
            # record to the next flush, so that it includes this segment.
            self._limit_flush(self.log_end_offset - 1)
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot()
        fresh = self._new_segment(base_offset, now_ms)
        self.segments.add(fresh)
        return fresh

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        fresh = Segment(self._storage.handles, self.path, base_offset, self.config, now_ms)
        fresh.create()
        return fresh

    def delete_old_segments(self, now_ms: int, *, only_below_start: bool = False) -> int:
        """Apply retention; return the number of deleted segments.

        The files stay for `file.delete.delay.ms`. A log that is being compacted keeps its segments
        until the pass is over. With `only_below_start`, age and size of the log are ignored.
        """
        if self.is_being_cleaned:
            return 0
        doomed = deletable_segments(
            self.segments,
            self.config,
            now_ms,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
            only_below_start=only_below_start,
        )
        if not doomed:
            return 0
        self.end_lease()
        if doomed[-1] is self.segments.active:
            self._roll_at(self.log_end_offset, now_ms)
        for segment in doomed:
            self.segments.remove(segment)
            self.discard(segment, now_ms + self.config.file_delete_delay_ms)
        first_offset = self.segments.first.base_offset
        if first_offset > self.log_start_offset:
            self.increment_log_start_offset(first_offset)
        return len(doomed)

    def discard(self, segment: Segment, due_ms: int) -> None:
        """Mark the files of a segment that left the log as deleted, to be removed at `due_ms`."""
        paths = segment.mark_deleted()
        snapshot = self.producers.mark_snapshot_deleted(segment.base_offset)
        self.delete_later([*paths, *([snapshot] if snapshot else [])], due_ms, segment.size_bytes)

    def delete_later(self, paths: Sequence[str], due_ms: int, size_bytes: int = 0) -> None:
        """Remove files of the log, with this total size in bytes, at `due_ms`."""
        for number, path in enumerate(paths):
            self._storage.delete_later(path, due_ms, 0 if number else size_bytes)

    @property
    def handles(self) -> FileHandles:
        """The open files of the log's directory."""
        return self._storage.handles

    # Flush.

    def begin_flush(self) -> FlushTask:
        """Return the files to sync for the log to be safe up to its current end.

        A later flush replaces this one.
        """
        self._refuse_if_deleted()
        self._make_small_files_durable()
        unflushed = self.segments.from_offset(self.recovery_point)
        self._flushing = FlushTask(
            self._storage.file_system,
            self.path,
            [path for segment in unflushed for path in segment.paths()],
            self.log_end_offset,
        )
        return self._flushing

    def complete_flush(self, task: FlushTask) -> None:
        """Move the recovery point to the end of the flush, or to a later truncation.

        Ignore a flush that another one has replaced, or whose files were renamed meanwhile: it may
        not have synced them.
        """
        if task is not self._flushing:
            return
        self._flushing = None
        self.recovery_point = max(self.recovery_point, min(task.end_offset, self.log_end_offset))
        if self.recovery_point == self.log_end_offset:
            self._unflushed_since_ms = None

    def flush(self) -> None:
        """Return when everything up to the log end is on the device; moves the recovery point."""
        if self.recovery_point < self.log_end_offset:
            self._make_small_files_durable()
            for segment in self.segments.from_offset(self.recovery_point):
                segment.sync()
            self._storage.file_system.sync_directory(self.path)
            self.recovery_point = self.log_end_offset
            self._unflushed_since_ms = None

    def _make_small_files_durable(self) -> None:
        if not self.has_durable_identity:
            self._make_identity_durable()
        self.epochs.make_durable()

    def must_flush(self, now_ms: int) -> bool:
        """Return whether a flush is due, by `flush.ms` or for a finished segment.

        An append itself flushes for `flush.messages`.
        """
        if self.has_unflushed_segments:
            return True
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0 or self._unflushed_since_ms is None:
            return False
        return now_ms - self._unflushed_since_ms >= self.config.flush_ms

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a finished segment (any but the active one) is not flushed yet."""
        return self.recovery_point < self.segments.active.base_offset

    # Compaction, which runs beside the directory's thread.

    def begin_cleaning(self) -> CleaningAbort:
        """Record that a compaction pass reads this log's files until `end_cleaning`."""
        self._abort_cleaning()
        self._cleaning = CleaningAbort()
        return self._cleaning

    def end_cleaning(self) -> None:
        """Record the end of the compaction pass."""
        self._cleaning = None

    @property
    def is_being_cleaned(self) -> bool:
        """Whether a compaction pass is running, aborted or not."""
        return self._cleaning is not None

    def _abort_cleaning(self) -> None:
        """Signal the compaction pass to end before its files are removed or renamed."""
        if self._cleaning is not None:
            self._cleaning.abort()

    # Names, end of life.

    def mark_deleted(self, new_directory_name: str) -> None:
        """Rename the partition's directory to one that will be removed.

        From now on every access to the files is refused (`LogDeleted`): jobs queued before the
        deletion may still arrive.
        """
        self.is_deleted = True
        self.rename(new_directory_name)

    def _refuse_if_deleted(self) -> None:
        if self.is_deleted:
            raise LogDeleted(self.topic_partition)

    def rename(self, new_directory_name: str) -> None:
        """Give the partition's directory another name in the same log directory."""
        if not self.has_durable_identity:
            self._make_identity_durable()
        self.end_lease()
        self._abort_cleaning()
        if self._flushing is not None:
            self._flushing = None
            self._storage.request_flush()
        if not self.is_deleted:
            self.segments.active.give_back_space()
        self._storage.handles.release_below(self.path)
        path = f"{self._storage.path}/{new_directory_name}"
        self._storage.file_system.rename(self.path, path)
        self._storage.file_system.sync_directory(self._storage.path)
        self.path = path
        self.epochs.moved_to(path)
        self.producers.moved_to(path)
        for segment in self.segments:
            segment.moved_to(path)

    def close(self) -> None:
        """Flush, and leave the files so that they can be loaded without recovery."""
        self.end_lease()
        if not self.has_durable_identity:
            self._make_identity_durable()
        self.segments.active.become_inactive()
        self.flush()
        self.segments.active.sync()
        self.producers.map_end_offset = self.log_end_offset
        self.producers.take_snapshot()
        self._storage.handles.release_below(self.path)

    def delete(self) -> None:
        """Remove the partition's directory with everything in it, at once."""
        self.end_lease()
        self._storage.handles.release_below(self.path)
        self._storage.file_system.remove_tree(self.path)
