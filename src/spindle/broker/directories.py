"""A log directory as the broker sees it: its identity, its I/O thread, whether it is alive."""

import shutil

from spindle.broker.ports import DirectoryExecutor
from spindle.common.uuids import Uuid
from spindle.log.directory import LogDirectory


class BrokerDirectory:
    """One entry of `log.dirs`. `store` belongs to the I/O thread, the rest to the event loop."""

    __slots__ = ("directory_id", "executor", "log_count", "path", "store")

    def __init__(
        self, path: str, directory_id: Uuid, executor: DirectoryExecutor, store: LogDirectory
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.executor = executor
        self.store = store
        self.log_count = 0

    @property
    def is_offline(self) -> bool:
        return self.executor.failure is not None

    def capacity(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system (KIP-827). On the directory's thread."""
        usage = shutil.disk_usage(self.path)
        return usage.total, usage.free


def least_loaded(
    directories: list[BrokerDirectory], cordoned: tuple[str, ...]
) -> BrokerDirectory | None:
    """Where a new log goes: the online directory with the fewest logs, the first of them on a tie.

    Cordoned directories are passed over unless every online one is cordoned; then it is the first
    (KIP-1066). None when every directory is offline.
    """
    online = [d for d in directories if not d.is_offline]
    if not online:
        return None
    candidates = [d for d in online if d.path not in cordoned]
    if not candidates:
        return online[0]
    return min(candidates, key=lambda d: d.log_count)
