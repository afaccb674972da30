"""The start offsets of the leader epochs of a log: `leader-epoch-checkpoint` (KIP-101, KIP-279).

A new entry is on the device before the first record of its epoch is written (`make_durable`). So a
broker that becomes leader of a thousand idle partitions writes no file. The removal of entries may
be synced even later, because loading removes epochs beyond the end of the log.
"""

from collections.abc import Sequence
from typing import Final

from spindle.common.epoch_history import EpochHistory
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


class LeaderEpochs(EpochHistory):
    """The epoch history of one log, kept in a file of its directory.

    `is_stored` says whether the file (not necessarily the device) has the present entries.
    """

    __slots__ = (
        "_directory",
        "_file_system",
        "_has_content",
        "_is_durable",
        "is_stored",
    )

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        """Create an empty history; `load` reads the file."""
        super().__init__()
        self._file_system = file_system
        self._directory = directory
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
            super().assign(epoch, start)

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory."""
        self._directory = directory

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; drop entries that contradict.

        Call `make_durable` before a record of the epoch is written.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: want 0 or more")
        is_changed = super().assign(epoch, start_offset)
        if is_changed:
            self.is_stored = self._is_durable = False
        return is_changed

    def log_end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """Return where the largest epoch up to `epoch` ends, as OffsetsForLeaderEpoch answers it.

        Return (-1, -1) for an epoch newer than all entries, and for an empty history.
        """
        latest = self.latest
        if epoch == UNDEFINED_EPOCH or latest is None or epoch > latest:
            return UNDEFINED
        return self.end_offset_for(epoch, log_end_offset) or UNDEFINED

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that start at or after `end_offset`."""
        is_changed = super().truncate_from_end(end_offset)
        if is_changed:
            self.store()
        return is_changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop epochs that end at or before `start_offset`."""
        is_changed = super().truncate_from_start(start_offset)
        if is_changed:
            self.store()
        return is_changed

    def replace(self, entries: Sequence[tuple[int, int]]) -> None:
        """Adopt the history of another copy of the log; it is on the device when this returns."""
        if list(entries) != self.entries:
            super().__init__(entries)
            self.is_stored = self._is_durable = False
        self.make_durable()

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
