"""The lane of one log directory, as the directory's Python thread and the event loop use it."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spindle.common.errors import is_out_of_descriptors
from spindle.disks.io_counts import DirectoryIo
from spindle.disks.log_directory import LogDirectory
from spindle.log.lease import LeasedProducer, LogLease, SegmentProgress
from spindle.log.leasing import lease_terms, record_progress
from spindle.log.log import Log
from spindle.runtime.disks.serial_executor import LogGuard
from spindle.runtime.disks.watchdog import WatchedThread

if TYPE_CHECKING:
    from spindle._native import Lane, Lease

logger = logging.getLogger(__name__)


class GrantedLease(LogLease):
    """A lease of a log; see `spindle.log.lease.LogLease`."""

    __slots__ = ("config", "lane", "log", "native")

    def __init__(self, native: "Lease", lane: "DirectoryLane", log: Log) -> None:
        self.native = native
        self.lane = lane
        self.log = log
        self.config = log.config

    @property
    def number(self) -> int:
        """The number of the lease in its lane."""
        return self.native.id

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which the lane may append."""
        return self.native.leader_epoch

    @property
    def has_ended(self) -> bool:
        """True if the lane uses the log no more, but for a request that it serves now."""
        return self.native.has_ended

    @property
    def end_offset(self) -> int:
        """See `LogLease`."""
        return self.native.end_offset

    @property
    def high_watermark(self) -> int:
        """See `LogLease`."""
        return self.native.high_watermark

    def activate(self) -> None:
        """Let the lane use the lease."""
        self.native.activate()

    def end(self, *, was_cut: bool = False) -> None:
        """See `LogLease`."""
        self.native.end(was_cut)

    def raise_high_watermark(self, offset: int) -> None:
        """See `LogLease`."""
        self.native.raise_high_watermark(offset)

    def refresh(
        self,
        end_offset: int,
        high_watermark: int,
        progress: SegmentProgress,
        producers: Sequence[LeasedProducer],
    ) -> None:
        """See `LogLease`."""
        entries = [(p.producer_id, p.epoch, list(p.batches)) for p in producers]
        self.native.refresh(end_offset, high_watermark, progress, entries)

    def wake_for_appends(self, *, is_waiting: bool) -> None:
        """Set whether the event loop is woken for each append."""
        self.native.wake_for_appends(is_waiting)
        if is_waiting and self.lane.native.has_progress:
            self.lane.on_missed_progress()

    def take_counts(self) -> tuple[int, int, int, int, int, int]:
        """Return what the lane has served since the last call.

        These are produces, failed produces, bytes and messages in, fetches, and bytes out.
        """
        return self.native.take_counts()


class DirectoryLane(LogGuard):
    """A lane, the leases that it has, and the gate between it and the directory's thread.

    Attributes:
        native: the lane.
        granted: all leases that may still report progress, by number; they belong to the thread
            and, for reading, to the event loop.
        on_missed_progress: called on the event loop to take progress soon.
    """

    def __init__(
        self,
        native: "Lane",
        directory: LogDirectory,
        io: DirectoryIo,
        on_missed_progress: Callable[[], None],
    ) -> None:
        self.native = native
        self.directory = directory
        self.granted: dict[int, GrantedLease] = {}
        self.on_missed_progress = on_missed_progress
        self._io = io
        self._removed: deque[int] = deque()
        """Leases that the lane has removed, whose last progress the event loop may still take."""
        self._forgettable: list[int] = []

    # -- on the directory's thread

    def enter(self) -> None:
        """Wait until the lane works with no log, and bring the logs up to date."""
        self.native.enter()
        try:
            self._bring_up_to_date()
        except Exception as error:
            # The gate is passed: what runs next must not use a log that is not up to date.
            logger.exception("the logs of %s cannot follow their lane", self.native.path)
            self.directory.executor.fail(error)

    def _bring_up_to_date(self) -> None:
        changes, ended, times = self.native.take_changes()
        for number, _, _, first_append_ms, progress, producers in changes:
            lease = self.granted[number]
            record_progress(lease.log, first_append_ms, SegmentProgress(*progress), producers)
        for number, end_offset, high_watermark in ended:
            log = self.granted[number].log
            if log.lease is self.granted[number]:
                log.lease_ended(end_offset, high_watermark)
            self._removed.append(number)
        if times is not None:
            reads, writes = times
            self._io.reads.add(*reads)
            self._io.writes.add(*writes)

    def leave(self) -> None:
        """Let the lane continue."""
        self.native.leave()

    def end(self) -> None:
        """Serve nothing more; it may be called from any thread."""
        self.native.fail()

    def hangs(self) -> bool:
        """Return True while the lane still works with the disk, after `end`."""
        return self.native.disk_steps % 2 == 1

    def grant(self, log: Log, leader_epoch: int, is_sole_replica: bool) -> GrantedLease | None:
        """Lend the log to the lane; return None if only Python can serve it now.

        The lease has to be activated.
        """
        terms = lease_terms(log, leader_epoch, is_sole_replica=is_sole_replica)
        if terms is None:
            return None
        try:
            native = self.native.grant(**terms._asdict(), former=self._former(log))
        except OSError as error:
            if is_out_of_descriptors(error):
                return None  # the disk is not at fault
            raise
        lease = GrantedLease(native, self, log)
        self.granted[lease.number] = lease
        log.lease = lease
        return lease

    def _former(self, log: Log) -> "Lease | None":
        former = log.former_lease
        if isinstance(former, GrantedLease) and former.lane is self:
            return former.native
        return None

    # -- on the event loop

    def forget_ended(self) -> None:
        """Drop the leases that were removed at the previous call, whose progress is taken since."""
        for number in self._forgettable:
            del self.granted[number]
        self._forgettable = [self._removed.popleft() for _ in range(len(self._removed))]


class WatchedLane(WatchedThread):
    """The lane as the watchdog sees it: it hangs if a step with the disk does not end."""

    def __init__(self, native: "Lane") -> None:
        self._native = native
        super().__init__(lambda: float(native.disk_steps))

    @property
    def function(self) -> Callable[..., object] | None:
        """The work with the disk, or None."""
        return self._native.enter if self._native.disk_steps % 2 else None

    @function.setter
    def function(self, value: object) -> None:
        """Ignore it: the lane itself counts its steps."""
