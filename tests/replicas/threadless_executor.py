"""Executors of log directories that have no thread."""

from spindle.common.errors import LogDirectoryFailed
from spindle.runtime.disks.serial_executor import Job, SerialExecutor


class ThreadlessExecutor(SerialExecutor):
    """Has no thread that could hang; its long work is done in the order of the rest."""

    def _start_beside(self, job: Job) -> None:
        self._enqueue(job)

    def _abandon(self, failure: LogDirectoryFailed) -> None:
        """There is no thread to leave behind."""

    def stop(self, timeout_s: float) -> bool:
        return True

    def hangs(self) -> bool:
        return False
