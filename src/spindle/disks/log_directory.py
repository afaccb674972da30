"""A log directory as the event loop sees it."""

from spindle.common.uuids import Uuid
from spindle.disks.cleaner import Cleaner
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.executor import DirectoryExecutor


class LogDirectory:
    """One entry of `log.dirs`.

    Attributes:
        executor: runs everything that uses the directory's files.
        store, cleaner: belong to the I/O thread; the event loop only submits their methods, and
            reads counts of deleted files and strays.
        directory_id: empty if the directory could not be read when the node started.
        log_count: current and future logs, for the placement of new replicas.
        mount_point: where its file system was mounted when the broker took it into use; empty if
            that is not known.
    """

    __slots__ = (
        "cleaner",
        "directory_id",
        "executor",
        "log_count",
        "mount_point",
        "path",
        "store",
    )

    def __init__(
        self,
        path: str,
        directory_id: Uuid,
        executor: DirectoryExecutor,
        store: DirectoryStore,
        mount_point: str = "",
    ) -> None:
        self.path = path
        self.mount_point = mount_point
        self.directory_id = directory_id
        self.executor = executor
        self.store = store
        self.cleaner = Cleaner(store)
        self.log_count = 0

    @property
    def is_offline(self) -> bool:
        return self.executor.failure is not None
