"""The `.lock` file of a log directory: no two processes, of Spindle or Kafka, share a directory."""

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
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(self._fd)
            raise ConfigError(
                f"Failed to acquire lock on file {LOCK_FILE} in {directory}: another process uses "
                "this directory; stop it, or take the directory out of log.dirs"
            ) from None

    def release(self) -> None:
        """Release the lock and remove the file."""
        if self._fd >= 0:
            try:
                os.unlink(self._path)
            finally:
                os.close(self._fd)
                self._fd = -1
