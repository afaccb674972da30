"""The lease of a log: the native lane of the directory appends to it and reads it.

While a log is leased, its end and its high watermark are the lane's. Everything else of the log is
brought up to date before the directory's thread runs its next function (`record_progress`), so a
function finds the log as if the thread itself had appended. A function that changes the log ends
the lease first.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from spindle.log.producers.append import ProducerAppendInfo


class SegmentProgress(NamedTuple):
    """The state of the active segment after appends; see `Segment` and its indexes."""

    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_index_entry: int
    offset_entries: int
    last_entry_offset: int
    last_entry_position: int
    time_entries: int
    last_entry_timestamp: int
    last_entry_timestamp_offset: int


ProducerBatches = Sequence[tuple[int, int, int, int]]
"""Last sequence, last offset, offset delta and timestamp in ms of the last batches."""


class LeasedProducer(NamedTuple):
    """The state of an idempotent producer."""

    producer_id: int
    epoch: int
    batches: ProducerBatches


class LogLease(ABC):
    """The permission that a lane has for one log."""

    @property
    @abstractmethod
    def end_offset(self) -> int:
        """The log end offset; it may grow at any time until the lease has ended."""

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """The high watermark; it may grow at any time."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """True if the lane uses the log no more, but for a request that it serves now."""

    @abstractmethod
    def end(self, *, was_cut: bool = False) -> None:
        """End the lease; with `was_cut`, records are removed from the end of the log."""

    @abstractmethod
    def wake_for_appends(self, *, is_waiting: bool) -> None:
        """Set whether the event loop is woken for each append."""

    @abstractmethod
    def raise_high_watermark(self, offset: int) -> None:
        """Raise the high watermark, at most to the log end."""

    @abstractmethod
    def refresh(
        self,
        end_offset: int,
        high_watermark: int,
        progress: SegmentProgress,
        producers: Sequence[LeasedProducer],
    ) -> None:
        """Store what the directory's thread has appended; a producer without batches is unknown."""


class LeasableOffsets:
    """The end and the high watermark of a log, which are those of its lease while it has one."""

    __slots__ = ("_high_watermark", "_log_end_offset", "former_lease", "lease")

    def __init__(self, log_end_offset: int, high_watermark: int) -> None:
        self.lease: LogLease | None = None
        self.former_lease: LogLease | None = None
        self._log_end_offset = log_end_offset
        self._high_watermark = high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""
        lease = self.lease
        return self._log_end_offset if lease is None else lease.end_offset

    @log_end_offset.setter
    def log_end_offset(self, offset: int) -> None:
        assert self.lease is None, "a leased log is changed"
        self._log_end_offset = offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which the records are committed, as far as this log knows."""
        lease = self.lease
        return self._high_watermark if lease is None else lease.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if self.lease is None:
            self._high_watermark = offset
        else:
            self.lease.raise_high_watermark(offset)

    def end_lease(self, *, was_cut: bool = False) -> None:
        """Take the log back, on the directory's thread."""
        lease = self.lease
        if lease is not None:
            lease.end(was_cut=was_cut)
            self.lease_ended(lease.end_offset, lease.high_watermark)
        elif was_cut and self.former_lease is not None:
            self.former_lease.end(was_cut=True)  # slow clients may still read what it located

    def suspend_lease(self) -> LogLease | None:
        """Take the log back for one append; `after_append` or `LogLease.end` must follow."""
        lease = self.lease
        if lease is not None:
            self.lease_ended(lease.end_offset, lease.high_watermark)
        return lease

    def after_append(
        self,
        lease: LogLease,
        progress: SegmentProgress | None,
        changes: Sequence[ProducerAppendInfo],
    ) -> None:
        """Lend the log again after an append, or end the lease if only Python can continue.

        Args:
            progress: None if the append has begun another segment or leader epoch.
            changes: of the producers.
        """
        if progress is None or any(change.is_transactional for change in changes):
            lease.end()
            # The event loop may have raised it during the append.
            raised = min(lease.high_watermark, self._log_end_offset)
            self._high_watermark = max(self._high_watermark, raised)
            return
        producers = [
            LeasedProducer(entry.producer_id, entry.producer_epoch, entry.batches)
            for entry in (change.entry for change in changes)
        ]
        lease.refresh(self._log_end_offset, self._high_watermark, progress, producers)
        self.lease = lease

    def lease_ended(self, log_end_offset: int, high_watermark: int) -> None:
        """Store the last offsets of the lease that has ended."""
        self._log_end_offset = log_end_offset
        self._high_watermark = high_watermark
        self.former_lease, self.lease = self.lease, None


class LeaseTerms(NamedTuple):
    """The description of a log for a lane.

    Attributes:
        is_sole_replica: records are committed as soon as they are written.
        may_append: the settings of the topic permit appends without a look at the records.
        has_transactions: consumers that read committed records need the aborted transactions.
        rules: maximum size of a batch, whether it gets the time of the append, how much newer than
            now a timestamp may be in ms, and whether decompressed records have a limit.
        paths: of the active segment, its offset index and its time index.
        limits: maximum size of the segment, largest timestamp, index interval, and maximum entries
            of both indexes.
        older: base offset, size, paths of segment and offset index, and index entries of the other
            segments.
    """

    topic: bytes
    topic_id: bytes
    partition: int
    leader_epoch: int
    is_sole_replica: bool
    may_append: bool
    has_transactions: bool
    log_start_offset: int
    end_offset: int
    high_watermark: int
    rules: tuple[int, bool, int, bool]
    paths: tuple[str, str, str]
    base_offset: int
    limits: tuple[int, int, int, int, int]
    progress: SegmentProgress
    older: list[tuple[int, int, str, str, int]]
    producers: list[LeasedProducer]
