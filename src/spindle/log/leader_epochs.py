"""The start offsets of the leader epochs of a log: `leader-epoch-checkpoint` (KIP-101, KIP-279).

Entries are (epoch, start offset), both strictly ascending. A new entry is on the device before the
first record of its epoch is written (`make_durable`). So a broker that becomes leader of a thousand
idle partitions writes no file. The removal of entries may be synced even later, because loading
removes epochs beyond the end of the log.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import FileSystem
from spindle.log.formats.epoch_checkpoint import (
    decode_epoch_checkpoint,
    encode_epoch_checkpoint,
)
from spindle.log.formats.names import LEADER_EPOCH_CHECKPOINT

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
UNDEFINED: Final = OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)


class LeaderEpochs:
    """The epoch history of one log, kept in a file of its directory.

    `is_stored` says whether the file (not necessarily the device) has the present entries.
    """

    __slots__ = (
        "_directory",
        "_epochs",
        "_file_system",
        "_has_content",
        "_is_durable",
        "_starts",
        "is_stored",
    )

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        """Create an empty history; `load` reads the file."""
        self._file_system = file_system
        self._directory = directory
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._has_content = False
        self._is_durable = True
        self.is_stored = True

    def load(self) -> None:
        """Read the file; create an empty one if there is none.

        Raises:
            CorruptLog: the file is malformed.
        """
        path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            content = self._file_system.read_bytes(path)
        except FileNotFoundError:
            self._file_system.open(path, create=True).close()
            return
        self._has_content = bool(content.strip(b"\0"))
        for epoch, start in decode_epoch_checkpoint(path, content):
            self._remove_from(epoch, start)
            self._epochs.append(epoch)
            self._starts.append(start)

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self._directory = directory

    @property
    def latest(self) -> int | None:
        """The newest epoch with an entry."""
        return self._epochs[-1] if self._epochs else None

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def note(self, epoch: int, start_offset: int) -> None:
        """Record in memory that `epoch` begins at `start_offset`; drop entries that contradict it.

        Call `make_durable` before a record of the epoch is written.
        """
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: want 0 or more")
        self._remove_from(epoch, start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.is_stored = False
        self._is_durable = False

    def _remove_from(self, epoch: int, start_offset: int) -> None:
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[keep:]
        del self._starts[keep:]

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`; None if the history begins later."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Return where the largest epoch up to `epoch` ends, as OffsetsForLeaderEpoch answers it.

        Return (-1, -1) for an epoch newer than all entries, and for an empty history.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return OffsetAndEpoch(log_end_offset, epoch)
        above = bisect_right(self._epochs, epoch)
        newest_epoch = self._epochs[above - 1] if above > 0 else epoch
        return OffsetAndEpoch(self._starts[above], newest_epoch)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that start at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self.store()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that end at or before `start_offset`, where the next one then begins."""
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or (self._starts[first] == start_offset and first == 0):
            return
        del self._epochs[:first]
        del self._starts[:first]
        self._starts[0] = start_offset
        self.store()

    def replace(self, entries: Sequence[tuple[int, int]]) -> None:
        """Adopt the history of another copy of the log; it is on the device when this returns."""
        if list(entries) != self.entries:
            self._epochs = [epoch for epoch, _ in entries]
            self._starts = [start for _, start in entries]
            self.is_stored = False
            self._is_durable = False
        self.make_durable()

    def clear(self) -> None:
        """Drop all epochs."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.store()

    def store(self) -> None:
        """Replace the file with the current entries, without waiting for the device."""
        path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
        target = path + ".tmp" if self._has_content else path
        file = self._file_system.open(target, create=True)
        try:
            if file.size():
                file.truncate(0)
            file.pwrite(self._content(), 0)
        finally:
            file.close()
        if self._has_content:
            self._file_system.rename(target, path)
        self._has_content = True
        self.is_stored = True
        self._is_durable = False

    def make_durable(self) -> None:
        """Return when the current entries are on the device."""
        if not self._is_durable:
            path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._file_system.write_atomically(path, self._content())
            self._has_content = True
            self.is_stored = True
            self._is_durable = True

    def _content(self) -> bytes:
        return encode_epoch_checkpoint(self.entries)
