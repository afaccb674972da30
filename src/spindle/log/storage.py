"""The open files and pending deletions that all logs of a log directory share."""

from typing import Final

from spindle.common.ports import FileSystem
from spindle.log.formats.names import LOG_SUFFIX
from spindle.log.open_files import DEFAULT_OPEN_FILES, FileHandles

_NEVER_MS: Final = 2**63 - 1


class LogStorage:
    """The file system, the open files and the pending deletions of one log directory.

    Renamed files and directories stay for `file.delete.delay.ms`, so that programs that are reading
    the files directly can finish.

    Attributes:
        deleted_bytes: of the logs and segments that are renamed and not removed yet.
    """

    __slots__ = (
        "_doomed",
        "_next_due_ms",
        "deleted_bytes",
        "file_system",
        "flush_request_count",
        "handles",
        "path",
    )

    def __init__(
        self, file_system: FileSystem, path: str, open_files: int = DEFAULT_OPEN_FILES
    ) -> None:
        self.file_system = file_system
        self.path = path
        self.handles = FileHandles(file_system, open_files)
        self._doomed: list[tuple[int, str, int]] = []
        self.deleted_bytes = 0
        self._next_due_ms = _NEVER_MS
        self.flush_request_count = 0

    def request_flush(self) -> None:
        """Record that one of the logs has a finished segment that is not flushed yet."""
        self.flush_request_count += 1

    def delete_later(self, path: str, due_ms: int, size_bytes: int = 0) -> None:
        """Remove a file or directory of this size in bytes at `due_ms`."""
        self._doomed.append((due_ms, path, size_bytes))
        self.deleted_bytes += size_bytes
        self._next_due_ms = min(self._next_due_ms, due_ms)

    def keep(self, path: str) -> None:
        """Cancel the scheduled removal of a file or directory, if there is one."""
        kept_bytes = sum(entry[2] for entry in self._doomed if entry[1] == path)
        self._doomed = [entry for entry in self._doomed if entry[1] != path]
        self.deleted_bytes -= kept_bytes

    def is_removed_later(self, path: str) -> bool:
        """Return whether the removal of a file or directory is scheduled."""
        return any(doomed == path for _, doomed, _ in self._doomed)

    def delete_expired(self, now_ms: int) -> int:
        """Remove the files and directories that are due; return their number.

        A path that no longer exists, because its directory was renamed or removed, is no failure.
        """
        if now_ms < self._next_due_ms:
            return 0
        due = [(path, size_bytes) for due_ms, path, size_bytes in self._doomed if due_ms <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        self._next_due_ms = min((due_ms for due_ms, *_ in self._doomed), default=_NEVER_MS)
        count = 0
        for path, size_bytes in due:
            self.handles.release(path)
            self.handles.release_below(path)
            count += self.remove_if_there(path)
            self.deleted_bytes -= size_bytes
        return count

    def remove_if_there(self, path: str) -> bool:
        """Remove a file or a whole directory; return False if there was none.

        The segments of a directory are removed first: if the removal is interrupted, the remaining
        directory has no records, whichever other files it has.
        """
        files = self.file_system
        try:
            if not files.is_directory(path):
                files.remove(path)
                return True
            for name in files.list_directory(path):
                if name.endswith(LOG_SUFFIX):
                    files.remove(f"{path}/{name}")
            files.remove_tree(path)
        except FileNotFoundError:
            return False
        return True
