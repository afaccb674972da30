"""The I/O threads and the locks of all log directories of one process."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from spindle.common.errors import ConfigError, LogDirectoryFailed
from spindle.common.text import error_text
from spindle.disks.executor import DirectoryExecutor
from spindle.runtime.machine import DirectoryFailureListener, Lock, Machine

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0
"""Interval at which the end of a hang is looked for."""


class OpenDirectories:
    """Opens directories, at the start of the node and later, and closes them at its end.

    Args:
        on_failure: called when a directory goes offline.
        hang_limit_s: a disk that has not responded for this long has failed.
    """

    def __init__(
        self, machine: Machine, on_failure: DirectoryFailureListener, hang_limit_s: float
    ) -> None:
        self._machine = machine
        self._on_failure = on_failure
        self._hang_limit_s = hang_limit_s
        self._threads: dict[str, DirectoryExecutor] = {}
        self._others: list[DirectoryExecutor] = []
        self._locks: dict[str, Lock] = {}

    def __iter__(self) -> Iterator[DirectoryExecutor]:
        """Yield the threads of the directories in use."""
        return iter(list(self._threads.values()))

    def thread(self, path: str) -> DirectoryExecutor:
        """Return the thread of a directory in use."""
        return self._threads[path]

    # -- at the start

    def open(self, path: str, reason: str | None, *, is_vital: bool) -> None:
        """Start the thread of a directory, and lock the directory unless it is already offline.

        Raises:
            ConfigError: another process holds it, or it fails and holds the metadata log.
        """
        thread = self._threads[path] = self._new_thread(path)
        if reason is not None:
            log.error("log directory %s is offline: %s", path, reason)
            thread.fail(reason)
            return
        try:
            self._locks[path] = self._machine.lock_directory(path)
        except OSError as error:
            if is_vital:
                raise ConfigError(
                    f"the metadata log directory {path} fails: {error_text(error)}"
                ) from error
            log.error("log directory %s is offline: %s", path, error_text(error))
            thread.fail(error)

    def check_usable(self, log_dirs: Sequence[str]) -> None:
        """Refuse a start without any log directory.

        Raises:
            ConfigError: all of these have failed.
        """
        failures = [self._threads[path].failure for path in dict.fromkeys(log_dirs)]
        if None not in failures:
            reasons = "; ".join(map(str, failures))
            raise ConfigError(f"none of the log directories can be used: {reasons}")

    def _new_thread(self, path: str) -> DirectoryExecutor:
        return self._machine.open_directory(path, self._on_failure, self._hang_limit_s)

    # -- later

    def probe(self, path: str) -> DirectoryExecutor:
        """Return a thread to examine a directory; `replace` puts it to use.

        An earlier thread of the directory continues to refuse late work.
        """
        thread = self._new_thread(path)
        self._others.append(thread)
        return thread

    async def lock(self, path: str, thread: DirectoryExecutor) -> None:
        """Lock a directory; release the lock of a failed one at this path before.

        Raises: ConfigError: another process holds it. LogDirectoryFailed: its disk has failed.
        """
        await self.unlock(path, thread)
        self._locks[path] = await thread.submit(self._machine.lock_directory, path)

    def failed(self, failure: LogDirectoryFailed) -> None:
        """Close the lock file of a directory that failed, so that its disk can be unmounted.

        The lock stays while a write that hangs may still reach the disk.
        """
        thread, path = self._threads.get(failure.path), failure.path
        if thread is None or thread.failure is not failure or path not in self._locks:
            return
        if thread.hangs():
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self.failed, failure)
        else:
            thread.run_after_failure(_release, self._locks.pop(path))

    async def unlock(self, path: str, thread: DirectoryExecutor) -> None:
        """Release the lock of a directory, if it has one; ignore errors of its disk."""
        lock = self._locks.pop(path, None)
        if lock is not None:
            await thread.submit(_release, lock)

    def replace(self, path: str, thread: DirectoryExecutor) -> None:
        """Put a thread to use; the thread that it replaces continues to refuse late work."""
        self._others.remove(thread)
        self.remove(path)
        self._threads[path] = thread

    def remove(self, path: str) -> None:
        """Remove the thread of a directory."""
        former = self._threads.pop(path, None)
        if former is not None:
            self._others.append(former)

    def hangs(self, path: str) -> bool:
        """Return True if a removed thread still hangs on the disk of this path."""
        return any(thread.hangs() for thread in self._others if thread.path == path)

    # -- at the end

    def wait_at_most(self, hang_limit_s: float) -> None:
        """Lower the time that a disk may take to answer."""
        for thread in (*self._threads.values(), *self._others):
            thread.wait_at_most(hang_limit_s)

    def close(self, timeout_s: float) -> None:
        """End all threads in limited time, and release the locks."""
        for thread in (*self._others, *self._threads.values()):
            if not thread.stop(timeout_s) or thread.hangs():
                log.error("log directory %s hangs; its thread is abandoned", thread.path)
                # The lock file is on that disk; the lock also ends with the process.
                self._locks.pop(thread.path, None)
        for lock in self._locks.values():
            _release(lock)
        self._locks.clear()


def _release(lock: Lock) -> None:
    try:
        lock.release()
    except OSError as error:
        log.warning("a lock file was not released: %s", error_text(error))
