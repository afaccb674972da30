"""A flush as a task for another thread.

Syncing a gigabyte takes seconds, which would block the directory's thread. So the log lists the
files to sync, another thread syncs them through its own descriptors, and the log records the
result. A file that no longer exists belongs to a deleted or replaced segment, and needs no sync.
"""

from spindle.common.ports import FileSystem


class FlushTask:
    """Files to sync; afterwards the log is safe up to `end_offset` (exclusive)."""

    __slots__ = ("_directory", "_file_system", "_paths", "end_offset")

    def __init__(
        self, file_system: FileSystem, directory: str, paths: list[str], end_offset: int
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._paths = paths
        self.end_offset = end_offset

    def run(self) -> None:
        """Sync the files and their directory. May run in any thread; raises OSError."""
        try:
            for path in self._paths:
                self._sync(path)
            self._file_system.sync_directory(self._directory)
        except FileNotFoundError:
            # The directory was renamed or removed since: the log then ignores this flush.
            return

    def _sync(self, path: str) -> None:
        try:
            file = self._file_system.open(path)
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()
