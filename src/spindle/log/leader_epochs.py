"""Which leader epoch wrote which offsets of a log: `leader-epoch-checkpoint` (KIP-101, KIP-279).

Entries are (epoch, start offset), both strictly ascending. A new entry is in the file at once, and
on the device before the first record of its epoch is written (`make_durable`): a broker that
becomes leader of a thousand idle partitions waits for no disk. Removal may reach the device later
still, because a load cuts the history to the log.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from spindle.common.errors import CorruptLog
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import FileSystem
from spindle.log.formats.checkpoints import checkpoint_content, checkpoint_lines
from spindle.log.formats.names import LEADER_EPOCH_CHECKPOINT

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
UNDEFINED: Final = OffsetAndEpoch(UNDEFINED_OFFSET, UNDEFINED_EPOCH)
_BEFORE_FIRST_ENTRY: Final = b"0\n1\n"
_LINES_OF_ONE_ENTRY: Final = 3


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
        """An empty history; `load` reads the file."""
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
        if not self._file_system.exists(path):
            self._file_system.open(path, create=True).close()
            return
        content = self._file_system.read_bytes(path)
        # Zeros are what a power failure may leave of a file that was never brought to the device.
        if not content.strip(b"\0") or _is_torn_first_entry(content):
            return
        self._has_content = True
        for line in checkpoint_lines(path, content):
            try:
                epoch, start = map(int, line.split())
            except ValueError as error:
                raise CorruptLog(path, 0, f"malformed line {line!r}") from error
            self._remove_from(epoch, start)
            self._epochs.append(epoch)
            self._starts.append(start)

    def moved_to(self, directory: str) -> None:
        """The log's directory has a new name."""
        self._directory = directory

    @property
    def latest(self) -> int | None:
        """The newest epoch with an entry."""
        return self._epochs[-1] if self._epochs else None

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records from `start_offset` on are of `epoch`; entries that contradict are dropped."""
        if self.note(epoch, start_offset):
            self.store()

    def note(self, epoch: int, start_offset: int) -> bool:
        """`assign` in memory only, with `store` or `make_durable` to follow; True if it is news."""
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: want 0 or more")
        self._remove_from(epoch, start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.is_stored = False
        self._is_durable = False
        return True

    def _remove_from(self, epoch: int, start_offset: int) -> None:
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[keep:]
        del self._starts[keep:]

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`, or None if the history does not reach back."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Where the largest epoch not above `epoch` ends, as OffsetsForLeaderEpoch answers it.

        An epoch that is unknown because it is newer than all known ones, or any epoch on an empty
        history, gives (-1, -1).
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return OffsetAndEpoch(log_end_offset, epoch)
        above = bisect_right(self._epochs, epoch)
        found = self._epochs[above - 1] if above > 0 else epoch
        return OffsetAndEpoch(self._starts[above], found)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that start at or after `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self.store()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that end at or before `start_offset`; the one there begins at it now."""
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or (self._starts[first] == start_offset and first == 0):
            return
        del self._epochs[:first]
        del self._starts[:first]
        self._starts[0] = start_offset
        self.store()

    def clear(self) -> None:
        """Drop all epochs."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.store()

    def store(self) -> None:
        """Replace the file with the present entries, without waiting for the device."""
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
        """Return when the present entries are on the device."""
        if not self._is_durable:
            path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._file_system.write_atomically(path, self._content())
            self._has_content = True
            self.is_stored = True
            self._is_durable = True

    def _content(self) -> bytes:
        return checkpoint_content([f"{epoch} {start}" for epoch, start in self.entries])


def _is_torn_first_entry(content: bytes) -> bool:
    """Whether a power failure left only a part of a log's first entry.

    The entry is on the device before the first record is written: such a log has no records.
    """
    if _BEFORE_FIRST_ENTRY.startswith(content):
        return True
    return content.startswith(_BEFORE_FIRST_ENTRY) and content.count(b"\n") < _LINES_OF_ONE_ENTRY
