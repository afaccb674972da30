"""Leader epochs that have begun in logs of a directory, and are not in the logs' files yet.

A broker that starts, or takes over from another one, becomes leader of thousands of partitions at
once. Writing thousands of files first would delay clients, and no reader needs them yet: an epoch
is on the device before its first record is (see `LeaderEpochs`), and loading drops epochs without
records. The files are written later, a few at a time, and at a clean stop.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from spindle.log.gaps import accept_gaps
from spindle.log.log import Log

_AT_ONCE: Final = 10


class PendingEpochCheckpoints:
    """The pending epochs of one directory. Only `is_empty` may be called on another thread."""

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs: dict[Log, None] = {}

    @property
    def is_empty(self) -> bool:
        """True if every file has its epochs, as far as is known."""
        return not self._logs

    def begin(self, leaders: Sequence[tuple[Log, int]]) -> None:
        """Note in these logs that the leader epochs begin at their ends (KIP-101)."""
        for log, epoch in leaders:
            accept_gaps(log)
            log.assign_epoch_start(epoch, log.log_end_offset)
            self._logs[log] = None

    def write_some(self) -> bool:
        """Write the files of a few logs; return True if there are more."""
        for log in list(islice(self._logs, _AT_ONCE)):
            del self._logs[log]
            if not (log.epochs.is_stored or log.is_deleted):
                log.epochs.store()
        return bool(self._logs)

    def store_all(self) -> None:
        """Write the files of all logs."""
        while self.write_some():
            pass
