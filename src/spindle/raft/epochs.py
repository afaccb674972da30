"""The leader epochs by their start offsets: the basis for comparing two logs."""

from bisect import bisect_right
from collections.abc import Iterable

from spindle.common.ids import OffsetAndEpoch


class EpochHistory:
    """Start offsets of epochs, both strictly rising."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """`entries` are (epoch, start offset)."""
        self._entries: list[tuple[int, int]] = list(entries)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    @property
    def last_epoch(self) -> int | None:
        return self._entries[-1][0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`; nothing if it is known already."""
        if self._entries and self._entries[-1][0] >= epoch:
            return
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))

    def truncate_to(self, end_offset: int) -> None:
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end by `start_offset`; the one in force there begins there."""
        kept = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if kept:
            epoch = self._entries[kept - 1][0]
            self._entries[:kept] = [(epoch, start_offset)]

    def reset(self, epoch: int, start_offset: int) -> None:
        self._entries[:] = [(epoch, start_offset)]

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[at - 1][0] if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """Return the largest known epoch <= `epoch` and where it ends; None if no epoch is known.

        An epoch that is older than all of them has no record here: it ends where the first begins.
        """
        if not self._entries:
            return None
        at = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if not at:
            return OffsetAndEpoch(self._entries[0][1], epoch)
        end = self._entries[at][1] if at < len(self._entries) else log_end_offset
        return OffsetAndEpoch(end, self._entries[at - 1][0])
