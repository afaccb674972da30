"""The offset checkpoint files of a log directory: recovery points, log starts, high watermarks, and
the clean offsets of compacted logs.

The files know no topic ids. They keep the entries of logs that are not in use and may come back: of
`-delete` directories, and of logs that are missing. Used by the directory's I/O thread only.
"""

from collections.abc import Mapping
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.common.ports import FileSystem
from spindle.log.formats.checkpoints import (
    HIGH_WATERMARKS,
    LISTING_ALL_LOGS,
    LOG_STARTS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    read_or_renew,
    write_offset_checkpoint,
)

_OF_EVERY_LOG: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)


class OffsetCheckpoints:
    """The entries that are stored in one directory.

    Attributes:
        are_lost: `load` found a file empty that lists all logs. Until it is set to False, the high
            watermarks are not written: their empty file shows the loss to a later start.
    """

    __slots__ = ("_files", "_kept", "_path", "_stored", "are_lost")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._path = path
        self._stored: dict[str, Mapping[TopicPartition, int]] = {}
        self._kept: dict[TopicPartition, Mapping[str, int]] = {}
        self.are_lost = False

    def load(self) -> None:
        """Create the files that are missing, and read all.

        Raises:
            CorruptLog: the checkpoint of log starts is malformed.
        """
        paths = {name: f"{self._path}/{name}" for name in OFFSET_CHECKPOINTS}
        for path in paths.values():
            if not self._files.exists(path):
                self._files.open(path, create=True).close()
        for name, path in paths.items():
            self._stored[name] = read_or_renew(self._files, path)
        sizes = {name: self._files.size(paths[name]) for name in LISTING_ALL_LOGS}
        self.are_lost = not all(sizes.values())
        if self.are_lost and sizes[HIGH_WATERMARKS]:
            # The recovery points are written soon. This file then shows the loss to a later start.
            self._files.write_atomically(paths[HIGH_WATERMARKS], b"")

    def stored(self, checkpoint: str) -> Mapping[TopicPartition, int]:
        """Return the entries of a file; none before `load`."""
        return self._stored.get(checkpoint, {})

    def with_records(self) -> dict[TopicPartition, int]:
        """Return the greatest offset among the entries of each log that had records."""
        greatest: dict[TopicPartition, int] = {}
        for checkpoint in _OF_EVERY_LOG:
            for where, offset in self.stored(checkpoint).items():
                if offset > greatest.get(where, 0):
                    greatest[where] = offset
        return greatest

    def keep(self, where: TopicPartition, offsets: Mapping[str, int] | None = None) -> None:
        """Keep the entries of a log that is not in use until `forget`.

        Args:
            offsets: by file; those that are stored by default.
        """
        if offsets is None:
            offsets = {
                checkpoint: self.stored(checkpoint)[where]
                for checkpoint in _OF_EVERY_LOG
                if where in self.stored(checkpoint)
            }
        self._kept[where] = offsets

    def kept(self, where: TopicPartition) -> Mapping[str, int]:
        """Return the entries of a log that is not in use, by file."""
        return self._kept.get(where, {})

    def forget(self, where: TopicPartition) -> None:
        """Drop the entries of a log that is not in use; the next `write` leaves them out."""
        self._kept.pop(where, None)

    def write(self, checkpoint: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the offsets of the logs in use, and those that are kept."""
        if checkpoint == HIGH_WATERMARKS and self.are_lost:
            return
        entries = dict(offsets)
        for where, kept in self._kept.items():
            if checkpoint in kept:
                entries.setdefault(where, kept[checkpoint])
        write_offset_checkpoint(self._files, f"{self._path}/{checkpoint}", entries)
        self._stored[checkpoint] = entries
