"""Which leader epoch wrote which offsets of a log: how two logs are compared (KIP-101, KIP-279)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from spindle.common.ids import OffsetAndEpoch


class EpochHistory:
    """Entries of (epoch, start offset), both strictly ascending.

    The methods that change the history return True if they have changed it.
    """

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self._epochs.append(epoch)
            self._starts.append(start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int | None:
        """The newest epoch with an entry."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; drop entries that contradict."""
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        self._epochs[keep:] = [epoch]
        self._starts[keep:] = [start_offset]
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that start at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        del self._epochs[keep:]
        del self._starts[keep:]
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop epochs that end at or before `start_offset`; the epoch that holds it begins at it
        now.
        """
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or (self._starts[first] == start_offset and first == 0):
            return False
        del self._epochs[:first]
        del self._starts[:first]
        self._starts[0] = start_offset
        return True

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`; None if the history does not reach back."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """Return the largest known epoch <= `epoch` and where it ends; None if no epoch is known.

        An epoch that is older than all of them has no record here: it ends where the first begins.
        """
        if not self._epochs:
            return None
        above = bisect_right(self._epochs, epoch)
        end = self._starts[above] if above < len(self._starts) else log_end_offset
        return OffsetAndEpoch(end, self._epochs[above - 1] if above else epoch)


def truncation_offset(
    own_end: OffsetAndEpoch, leader_end: OffsetAndEpoch, log_end_offset: int
) -> int:
    """Return the offset below which a follower's log may agree with the leader's.

    If the log does not have the leader's epoch, truncate to the end of its largest epoch below
    that one; the next fetch then asks about that epoch.

    Args:
        own_end: where the log ends the leader's epoch, or its largest epoch below that one;
            epoch -1 if the log knows nothing about it.
        leader_end: an epoch of the leader's log, and where it ends there.
    """
    if own_end.epoch in (leader_end.epoch, -1):
        leader_offset = min(leader_end.offset, log_end_offset)
        return leader_offset if own_end.epoch < 0 else min(own_end.offset, leader_offset)
    return min(own_end.offset, log_end_offset)
