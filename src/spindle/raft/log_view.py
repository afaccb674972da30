"""The log as the state machine sees it: offsets, epochs and snapshot ids, never the bytes.

The view shows the log as it will be when all requested operations are done. Only `flushed_offset`
follows the disk, because acknowledgements and the high watermark depend on it.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from spindle.common.epoch_history import EpochHistory
from spindle.common.ids import OffsetAndEpoch

BOOTSTRAP_SNAPSHOT_ID: Final = OffsetAndEpoch(0, 0)
"""Written by the formatting tool; local to a node, never sent to another."""


class Diverging(NamedTuple):
    """The follower's log diverges: our log ends its epoch at `end`."""

    end: OffsetAndEpoch


class SnapshotNeeded(NamedTuple):
    """The follower needs records that were deleted; it must load this snapshot first."""

    snapshot_id: OffsetAndEpoch


class LogView:
    """Offsets of the metadata log.

    Attributes:
        start_offset: first offset in the log.
        end_offset: offset of the next record.
        flushed_offset: everything below is on the disk.
        snapshots: ids of the complete snapshots, rising.
    """

    __slots__ = ("_flushes", "end_offset", "epochs", "flushed_offset", "snapshots", "start_offset")

    def __init__(
        self,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[OffsetAndEpoch] = (),
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_offset = end_offset
        self.epochs = EpochHistory(epochs)
        self.snapshots = sorted(snapshots)
        self._flushes: deque[int] = deque()

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record in the log, else of the newest snapshot, else 0."""
        epoch = self.epochs.latest
        if epoch is not None:
            return epoch
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The newest snapshot that may be sent to another node."""
        if self.snapshots and self.snapshots[-1] != BOOTSTRAP_SNAPSHOT_ID:
            return self.snapshots[-1]
        return None

    @property
    def is_flushed(self) -> bool:
        return self.flushed_offset == self.end_offset

    def append(self, base_offset: int, end_offset: int, epoch: int) -> None:
        if base_offset != self.end_offset:
            raise ValueError(f"append at {base_offset}, the log ends at {self.end_offset}")
        self.epochs.assign(epoch, base_offset)
        self.end_offset = end_offset

    def flush_started(self) -> None:
        self._flushes.append(self.end_offset)

    def flush_finished(self) -> None:
        """Record the end of the oldest open flush."""
        self.flushed_offset = max(self.flushed_offset, self._flushes.popleft())

    def truncate_to(self, offset: int) -> None:
        self.end_offset = min(self.end_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        # A running flush does not cover appends after the truncation.
        self._flushes = deque(min(end, offset) for end in self._flushes)
        self.epochs.truncate_from_end(offset)

    def reset_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """Restart with an empty log at the end of a snapshot."""
        self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.offset
        self._flushes = deque(snapshot_id.offset for _ in self._flushes)
        self.epochs = EpochHistory()
        self.snapshots = [snapshot_id]

    def add_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        if snapshot_id not in self.snapshots:
            insort(self.snapshots, snapshot_id)

    def cleaned(self, start_offset: int, snapshots: Iterable[OffsetAndEpoch]) -> None:
        """Store the log start and the remaining snapshots after a clean-up."""
        if start_offset > self.start_offset:
            self.start_offset = start_offset
            self.epochs.truncate_from_start(start_offset)
        self.snapshots = sorted(snapshots)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch <= `epoch` that the log knows, and where it ends."""
        end = self.epochs.end_offset_for(epoch, self.end_offset)
        if end is not None:
            if self.snapshots and end.offset == self.snapshots[0].offset:
                return self.snapshots[0] if end.epoch == epoch else end
            return end
        if self.snapshots and self.snapshots[0].epoch <= epoch:
            return self.snapshots[0]
        return self.end

    def validate(self, offset: int, epoch: int) -> Diverging | SnapshotNeeded | None:
        """Compare another log, which ends at `offset` in `epoch`, with this one; None if equal."""
        latest = self.latest_snapshot
        if offset == 0 and latest is not None:
            return SnapshotNeeded(latest)
        if offset == 0 and self.start_offset == 0:
            return None
        if self.snapshots and latest is not None:
            oldest = self.snapshots[0]
            if (
                offset < self.start_offset
                or (offset == self.start_offset and epoch != oldest.epoch)
                or epoch < oldest.epoch
            ):
                return SnapshotNeeded(latest)
        end = self.end_offset_for(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Diverging(end)
        return None
