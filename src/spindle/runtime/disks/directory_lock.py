"""The `.lock` file of a log directory: no two processes, of Spindle or Kafka, share a directory.

As in Kafka, the file is removed when the lock is released. So a process may lock a file that its
former owner removes at the same moment, and another disk may be mounted over a locked directory. A
lock is valid only if the file at the path is the locked file.
"""

import fcntl
import os
from typing import Final

from spindle.common.errors import ConfigError

LOCK_FILE: Final = ".lock"


class DirectoryLock:
    """An exclusive lock, held until `release` or the end of the process."""

    def __init__(self, directory: str) -> None:
        """Take the lock.

        Raises:
            ConfigError: another process holds it.
            OSError: the directory cannot be written.
        """
        self._path = os.path.join(directory, LOCK_FILE)
        self._fd = _open_and_lock(self._path)
        while not self._is_at_path():
            os.close(self._fd)
            self._fd = _open_and_lock(self._path)

    def release(self) -> None:
        """Release the lock and remove the file, unless another file has taken its place."""
        if self._fd >= 0:
            try:
                if self._is_at_path():
                    os.unlink(self._path)
            finally:
                os.close(self._fd)
                self._fd = -1

    def _is_at_path(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False


def _open_and_lock(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise ConfigError(
            f"Failed to acquire lock on file {LOCK_FILE} in {os.path.dirname(path)}: another "
            "process uses this directory; stop it, or take the directory out of log.dirs"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
