"""One log directory: the logs of all partitions that live on one disk, and its checkpoint files.

Used by the directory's I/O thread only. An `OSError` of any method and a `CorruptLog` of `load`
mean that the directory is lost until the next start; the caller then calls `close_without_flush`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from spindle.common.errors import CorruptLog
from spindle.common.ids import OffsetAndEpoch, TopicPartition
from spindle.common.ports import FileSystem
from spindle.common.uuids import Uuid, UuidSource
from spindle.disks.deleted_log import DeletedLog, bytes_of_segments, end_of_log
from spindle.disks.offset_checkpoints import OffsetCheckpoints
from spindle.disks.pending_epoch_checkpoints import PendingEpochCheckpoints
from spindle.log.errors import DuplicateLogDirectories, UnexpectedDirectory
from spindle.log.flushing import FlushTask
from spindle.log.formats.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from spindle.log.formats.clean_shutdown import remove_clean_shutdown, write_clean_shutdown
from spindle.log.formats.names import (
    PASSED_OVER,
    LogKind,
    PartitionDirectoryName,
    current_directory,
    deleted_directory,
    future_directory,
    is_metadata_directory,
    parse_directory_name,
    replaced_directory,
    stray_directory,
)
from spindle.log.formats.partition_metadata import read_partition_metadata
from spindle.log.loading import create_log, load_log
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.open_files import DEFAULT_OPEN_FILES
from spindle.log.storage import LogStorage

logger = logging.getLogger(__name__)


class NewLog(NamedTuple):
    """A log to be created."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig


class LoadedLogs(NamedTuple):
    """The result of `load`.

    Attributes:
        was_clean: the directory had been closed in order.
        log_count: logs loaded, of every kind.
        deletion_count: `-delete` directories; the metadata decides whether they are removed.
        current: the current logs.
    """

    was_clean: bool
    log_count: int
    deletion_count: int
    current: list[Log]


class DirectoryStore:
    """The partitions of one directory, current, future and stray."""

    __slots__ = (
        "_aside",
        "_checkpoints",
        "_cleaner_offsets",
        "_is_loaded",
        "_owners_of_entries",
        "_removed_later",
        "_seen_flush_requests",
        "checkpoints_name_strays",
        "deleted_at_start",
        "future_logs",
        "lacks_checkpoints",
        "logs",
        "missing_at_start",
        "new_epochs",
        "path",
        "storage",
        "stray_logs",
    )

    def __init__(
        self, file_system: FileSystem, path: str, open_files: int = DEFAULT_OPEN_FILES
    ) -> None:
        """Nothing is read yet; see `load`."""
        self.path = path
        self.storage = LogStorage(file_system, path, open_files)
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        self.stray_logs: dict[TopicPartition, Log] = {}
        self._aside: dict[TopicPartition, Log] = {}
        self.new_epochs = PendingEpochCheckpoints()
        self._cleaner_offsets: dict[TopicPartition, int] = {}
        self._checkpoints = OffsetCheckpoints(file_system, path)
        self._removed_later: dict[str, TopicPartition] = {}
        self._is_loaded = False
        self.checkpoints_name_strays = False
        """True from the renaming of a log to `-stray` until `checkpoint_logs_in_use`."""
        self._seen_flush_requests = -1
        self.deleted_at_start: list[DeletedLog] = []
        """The `-delete` directories that `load` found, until `remove_deleted` or `restore`."""
        self._owners_of_entries: dict[TopicPartition, set[Uuid | None]] = {}
        self.missing_at_start: set[TopicPartition] = set()
        """Partitions with records by the checkpoints, of which `load` found no log here, until a
        log is created. Other threads may ask as well."""
        self.lacks_checkpoints = False
        """True if `load` found a checkpoint empty that lists all logs, until `settle_missing`: then
        nothing shows which logs are missing. Other threads may ask as well."""

    @property
    def has_lost_checkpoints(self) -> bool:
        """True if a checkpoint that lists all logs was lost, until all logs are known to be here.

        Other threads may ask as well.
        """
        return self._checkpoints.are_lost

    # Loading.

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> LoadedLogs:
        """Load every log of the directory.

        `-delete` directories stay: whether another copy has taken the place of such a log is known
        only when all directories and the metadata have been read.

        Args:
            config_of: the settings of a topic by its name.
            on_progress: called with the count of loaded logs and the count of all logs.

        Raises:
            CorruptLog: the checkpoint of log starts or another small file is malformed.
            UnexpectedDirectory: a directory is none of a partition.
            DuplicateLogDirectories: two future logs of one partition.
        """
        files = self.storage.file_system
        partition_directories = self._partition_directories()
        was_clean = remove_clean_shutdown(files, self.path)
        self._checkpoints.load()
        self.lacks_checkpoints = self._checkpoints.are_lost
        self._cleaner_offsets = dict(self._checkpoints.stored(CLEANER_OFFSETS))
        to_load = [entry for entry in partition_directories if entry[1].kind is not LogKind.DELETED]
        self.deleted_at_start = [
            DeletedLog(
                name,
                parsed.topic_partition,
                self._topic_id(name),
                bytes_of_segments(self.storage, f"{self.path}/{name}") > 0,
            )
            for name, parsed in partition_directories
            if parsed.kind is LogKind.DELETED
        ]
        present = [parsed for _, parsed in partition_directories]
        self._keep_offsets_of_deleted(present)
        self._find_missing(present)
        for count, (name, parsed) in enumerate(to_load, start=1):
            topic_partition = parsed.topic_partition
            log = load_log(
                self.storage,
                name,
                topic_partition,
                config_of(topic_partition.topic),
                now_ms,
                is_clean=was_clean,
                recovery_point=self._stored_offset(RECOVERY_POINTS, parsed),
                clean_offset=self._stored_offset(CLEANER_OFFSETS, parsed),
                log_start_offset=self._stored_offset(LOG_STARTS, parsed),
            )
            log.update_high_watermark(self._stored_offset(HIGH_WATERMARKS, parsed))
            self._add(log, parsed.kind)
            if on_progress is not None:
                on_progress(count, len(to_load))
        self._is_loaded = True
        current = list(self.logs.values())
        return LoadedLogs(was_clean, len(to_load), len(self.deleted_at_start), current)

    def _stored_offset(self, checkpoint: str, name: PartitionDirectoryName) -> int:
        """Return the checkpoint entry of a directory, 0 if it has none.

        The checkpoints know no topic ids: an entry may be of a log that has the name of a stray.
        """
        if name.kind is LogKind.STRAY:
            return 0
        return self._checkpoints.stored(checkpoint).get(name.topic_partition, 0)

    def _keep_offsets_of_deleted(self, present: Iterable[PartitionDirectoryName]) -> None:
        counts = Counter(name.topic_partition for name in present)
        for deleted in self.deleted_at_start:
            if counts[deleted.topic_partition] == 1:  # the checkpoints know no topic ids
                self._checkpoints.keep(deleted.topic_partition)

    def _find_missing(self, present: Iterable[PartitionDirectoryName]) -> None:
        """Find the logs that had records and are missing; keep their checkpoint entries.

        The next checkpoint would drop the entries, and a later start would have no evidence. An
        entry beside a `-delete` directory of its name may be of that one.
        """
        had_records = self._checkpoints.with_records()
        passed_over = (LogKind.STRAY, LogKind.DELETED)
        here = {name.topic_partition for name in present if name.kind not in passed_over}
        missing = had_records.keys() - here
        for deleted in self.deleted_at_start:
            if (where := deleted.topic_partition) in missing:
                end = self.end_of_deleted(deleted)
                may_be_its_own = end is not None and end.offset >= had_records[where]
                owners = self._owners_of_entries.setdefault(where, set())
                owners.update({deleted.topic_id} if may_be_its_own else ())
        self.missing_at_start = missing.difference(self._owners_of_entries)
        for where in missing:
            self._checkpoints.keep(where)

    def has_records_missing(self, where: TopicPartition, topic_id: Uuid) -> bool:
        """Return True if checkpoints show records of a log that `load` did not find here."""
        owners = self._owners_of_entries.get(where, {topic_id})
        return where in self.missing_at_start or topic_id not in owners

    def may_lack(self, where: TopicPartition, topic_id: Uuid) -> bool:
        """Return True if a log with records may be missing here: checkpoints show it, or are lost.

        Any thread may ask. A log that never had records may be missing after a power failure, which
        is no loss.
        """
        return self.lacks_checkpoints or self.has_records_missing(where, topic_id)

    @property
    def unexplained_entries(self) -> set[TopicPartition]:
        """Partitions of which a log with records may be missing by the checkpoints; a copy."""
        return self.missing_at_start.union(self._owners_of_entries)

    def settle_missing(
        self, needed: Collection[TopicPartition], undecided: Collection[TopicPartition] = ()
    ) -> None:
        """Count these logs, and no others, as missing; the next checkpoints drop the other entries.

        While a log is missed of which no checkpoint has an entry, that of the high watermarks stays
        empty: otherwise the next start would take the log for one that never had records.

        Args:
            undecided: logs of replicas that are busy; what is known about them stays.
        """
        for where in self.unexplained_entries.difference(needed, undecided):
            self.missing_at_start.discard(where)
            if not self._owners_of_entries.pop(where, None):
                self._checkpoints.forget(where)
        self.missing_at_start.update(needed)
        self.lacks_checkpoints = False
        if self.has_lost_checkpoints and not needed:
            # At once: after a kill, empty checkpoints would show nothing again.
            self._checkpoints.are_lost = False
            self.checkpoint_recovery_points()
            self.checkpoint_high_watermarks()

    def _topic_id(self, name: str) -> Uuid | None:
        """Return the topic id in a directory whose removal may have been interrupted."""
        try:
            return read_partition_metadata(self.storage.file_system, f"{self.path}/{name}")
        except CorruptLog:
            return None

    def _partition_directories(self) -> list[tuple[str, PartitionDirectoryName]]:
        files = self.storage.file_system
        partition_directories: list[tuple[str, PartitionDirectoryName]] = []
        for name in files.list_directory(self.path):
            path = f"{self.path}/{name}"
            is_other = name in PASSED_OVER or is_metadata_directory(name)
            if is_other or not files.is_directory(path):
                continue
            try:
                partition_directories.append((name, parse_directory_name(name)))
            except ValueError as error:
                raise UnexpectedDirectory(path, str(error)) from error
        return partition_directories

    def _add(self, log: Log, kind: LogKind) -> None:
        logs = {
            LogKind.FUTURE: self.future_logs,
            LogKind.STRAY: self.stray_logs,
        }.get(kind, self.logs)
        earlier = logs.get(log.topic_partition)
        if earlier is not None and kind is not LogKind.STRAY:
            raise DuplicateLogDirectories(
                f"duplicate log directories found: {earlier.path} and {log.path} both hold "
                f"{log.topic_partition}; remove the one that is not wanted"
            )
        logs[log.topic_partition] = log

    # Logs come and go.

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        now_ms: int,
        *,
        future_unique: Uuid | None = None,
    ) -> Log:
        """Create a log; with `future_unique` a future log with that unique part in its name.

        Raises:
            DuplicateLogDirectories: there is such a log already.
            ValueError: the name of the future log is too long.
        """
        if future_unique is None:
            kind, name = LogKind.CURRENT, current_directory(topic_partition)
        else:
            kind, name = (
                LogKind.FUTURE,
                future_directory(topic_partition, future_unique),
            )
        existing = self.logs if kind is LogKind.CURRENT else self.future_logs
        if topic_partition in existing:
            raise DuplicateLogDirectories(f"{topic_partition} is in {self.path} already")
        self._forget_predecessor(topic_partition)
        log = create_log(self.storage, name, topic_partition, topic_id, config, now_ms)
        self._add(log, kind)
        return log

    def create_logs(self, wanted: Sequence[NewLog], now_ms: int) -> list[Log]:
        """Create current logs; return them in the same order."""
        return [
            self.create(new.topic_partition, new.topic_id, new.config, now_ms) for new in wanted
        ]

    def create_future(self, new: NewLog, unique: Uuid, now_ms: int) -> Log:
        """Create a future log: the copy that is to replace the log of another directory."""
        return self.create(
            new.topic_partition, new.topic_id, new.config, now_ms, future_unique=unique
        )

    def _forget_predecessor(self, topic_partition: TopicPartition) -> None:
        """Remove an earlier log of this name from the checkpoints, which know no topic ids."""
        self._cleaner_offsets.pop(topic_partition, None)
        self._checkpoints.forget(topic_partition)
        self.missing_at_start.discard(topic_partition)
        self._owners_of_entries.pop(topic_partition, None)
        self._checkpoints.are_lost &= self.lacks_checkpoints or bool(self.missing_at_start)
        self._aside.pop(topic_partition, None)
        for checkpoint, write in (
            (RECOVERY_POINTS, self.checkpoint_recovery_points),
            (LOG_STARTS, self.checkpoint_log_starts),
            (HIGH_WATERMARKS, self.checkpoint_high_watermarks),
            (CLEANER_OFFSETS, self._write_cleaner_offsets),
        ):
            if topic_partition in self._checkpoints.stored(checkpoint):
                write()

    def promote_future(self, topic_partition: TopicPartition) -> Log:
        """Make the future log the current one, under the plain name.

        The former current log, if it was in this directory, has to be deleted before.
        """
        log = self.future_logs[topic_partition]
        if topic_partition in self.logs:
            raise DuplicateLogDirectories(f"{topic_partition} has a current log in {self.path}")
        log.rename(current_directory(topic_partition))
        del self.future_logs[topic_partition]
        self.logs[topic_partition] = log
        return log

    def delete_later(self, log: Log, unique: Uuid, now_ms: int) -> None:
        """Rename the log's directory to `-delete`; remove it after `file.delete.delay.ms`."""
        self.delete_logs([log], lambda: unique, now_ms)

    def delete_logs(self, doomed: Sequence[Log], new_uuid: UuidSource, now_ms: int) -> None:
        """Delete several logs, each as `delete_later` does.

        The checkpoints are written before: an entry beside a `-delete` directory of another topic
        shows that the log of a later topic of this name is missing.
        """
        for log in doomed:
            self._forget(log)
            self._cleaner_offsets.pop(log.topic_partition, None)
        self.checkpoint_logs_in_use()
        for log in doomed:
            log.mark_deleted(deleted_directory(log.topic_partition, new_uuid()))
            due_ms = now_ms + log.config.file_delete_delay_ms
            self.storage.delete_later(log.path, due_ms, log.size_bytes)

    def rename_to_replaced(self, log: Log, future_path: str) -> None:
        """Rename the log's directory to `-delete` because this future log takes its place.

        The log can still be read, until `delete_replaced`. Its checkpoint entries stay until then:
        it is the only whole copy as long as the future log is not promoted.
        """
        log.rename(replaced_directory(log.topic_partition, future_path.rpartition("/")[2]))
        self._forget(log)
        self._aside[log.topic_partition] = log

    def put_back(self, log: Log) -> None:
        """Undo `rename_to_replaced`."""
        if log.topic_partition in self.logs:
            raise DuplicateLogDirectories(f"{log.topic_partition} has a current log in {self.path}")
        log.rename(current_directory(log.topic_partition))
        self._aside.pop(log.topic_partition, None)
        self.logs[log.topic_partition] = log

    def delete_replaced(self, log: Log, now_ms: int) -> None:
        """Stop serving a log of `rename_to_replaced`; remove it after `file.delete.delay.ms`.

        Call it after the future log that replaces it was promoted. Does nothing after
        `keep_replaced`.
        """
        if self._aside.get(log.topic_partition) is not log:
            return
        self._leave_aside(log)
        due_ms = now_ms + log.config.file_delete_delay_ms
        self.storage.delete_later(log.path, due_ms, log.size_bytes)
        self._cleaner_offsets.pop(log.topic_partition, None)
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()

    def replace_with_empty(self, log: Log, unique: Uuid, now_ms: int) -> Log:
        """Rename the log's directory to `-delete`, and create an empty log in its place.

        The former log stays until `remove_former` or `put_former_back`. A start that finds both
        keeps it until the replica is in sync; one that finds it alone restores it.
        """
        where = log.topic_partition
        log.rename(deleted_directory(where, unique))
        self._forget(log)
        # The checkpoint entries stay until the new log exists. If the process is killed before, the
        # next start restores the former log, and needs its log start.
        name = current_directory(where)
        new = create_log(self.storage, name, where, log.topic_id, log.config, now_ms)
        self._add(new, LogKind.CURRENT)
        self._forget_predecessor(where)
        return new

    def remove_former(self, former: Log, now_ms: int) -> None:
        """Remove a log that `replace_with_empty` renamed, after `file.delete.delay.ms`."""
        former.is_deleted = True
        self.storage.handles.release_below(former.path)
        due_ms = now_ms + former.config.file_delete_delay_ms
        self.storage.delete_later(former.path, due_ms, former.size_bytes)

    def put_former_back(self, former: Log, new: Log, unique: Uuid, now_ms: int) -> None:
        """Undo `replace_with_empty`: delete the new log, and use the former one again."""
        former.config = new.config
        self.delete_later(new, unique, now_ms)
        self.put_back(former)
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()

    def keep_replaced(self, log: Log) -> DeletedLog | None:
        """Keep a log whose place another one has taken that is lost; None if it is removed already.

        To be called before or after `delete_replaced`.
        """
        name = log.path.rpartition("/")[2]
        if self._aside.get(log.topic_partition) is log:
            self._leave_aside(log)
        self.storage.keep(log.path)
        if not bytes_of_segments(self.storage, log.path):
            return None
        where = log.topic_partition
        if where not in self.logs and where not in self.future_logs:
            offsets = {
                RECOVERY_POINTS: log.recovery_point_to_store,
                LOG_STARTS: log.log_start_offset,
                HIGH_WATERMARKS: log.high_watermark,
            }
            self._checkpoints.keep(where, offsets)
            self.checkpoint_recovery_points()
            self.checkpoint_log_starts()
            self.checkpoint_high_watermarks()
        kept = DeletedLog(name, where, log.topic_id)
        self.deleted_at_start.append(kept)
        return kept

    def _leave_aside(self, log: Log) -> None:
        log.is_deleted = True
        del self._aside[log.topic_partition]
        self.storage.handles.release_below(log.path)

    def remove_deleted(self, deleted: DeletedLog, due_ms: int) -> None:
        """Remove a `-delete` directory that `load` found once the time is `due_ms`."""
        self.deleted_at_start.remove(deleted)
        size_bytes = self.bytes_of_deleted(deleted)
        path = f"{self.path}/{deleted.name}"
        self._removed_later[path] = deleted.topic_partition
        self.storage.delete_later(path, due_ms, size_bytes)

    def keep_deleted(self, deleted: DeletedLog) -> DeletedLog | None:
        """Undo `remove_deleted`; return None if the records are removed already."""
        path = f"{self.path}/{deleted.name}"
        self.storage.keep(path)
        if self._removed_later.pop(path, None) is None or not self.bytes_of_deleted(deleted):
            return None
        self.deleted_at_start.append(deleted)
        return deleted

    def bytes_of_deleted(self, deleted: DeletedLog) -> int:
        """Return the bytes of the segments in a `-delete` directory; 0 if it is gone."""
        return bytes_of_segments(self.storage, f"{self.path}/{deleted.name}")

    def end_of_deleted(self, deleted: DeletedLog) -> OffsetAndEpoch | None:
        """Return the end offset of a `-delete` directory and the epoch of its last batch.

        None if it has no batch. Bytes behind a damaged batch do not count: a load cuts it off.
        """
        return end_of_log(self.storage, f"{self.path}/{deleted.name}")

    def restore(
        self, deleted: DeletedLog, where: TopicPartition, config: LogConfig, now_ms: int
    ) -> Log:
        """Load a `-delete` directory that `load` found and make it the current log of `where`.

        Raises:
            DuplicateLogDirectories: there is a current log already.
        """
        if where in self.logs:
            raise DuplicateLogDirectories(f"{where} has a current log in {self.path}")
        kept = self._checkpoints.kept(where)
        log = load_log(
            self.storage,
            deleted.name,
            where,
            config,
            now_ms,
            is_clean=False,
            recovery_point=kept.get(RECOVERY_POINTS, 0),
            log_start_offset=kept.get(LOG_STARTS, 0),
        )
        log.update_high_watermark(kept.get(HIGH_WATERMARKS, 0))
        log.rename(current_directory(where))
        self.deleted_at_start.remove(deleted)
        self._checkpoints.forget(where)
        self.logs[where] = log
        return log

    def mark_stray(self, log: Log, unique: Uuid) -> None:
        """Rename the log's directory to `-stray`, because the metadata does not place it here.

        A stray is never removed; if the metadata was wrong, it is the only copy.
        """
        self._forget(log)
        log.rename(stray_directory(log.topic_partition, unique))
        self.stray_logs[log.topic_partition] = log
        self.checkpoints_name_strays = True

    def checkpoint_logs_in_use(self) -> None:
        """Write the checkpoints without the logs that have left; `-delete` before the rename.

        After a kill, an entry would look like that of a later topic's log of the same name, which
        is missing. Strays, which are many at a start, leave the checkpoints after the last rename.
        """
        self.checkpoints_name_strays = False
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()

    def _forget(self, log: Log) -> None:
        for logs in (self.logs, self.future_logs):
            if logs.get(log.topic_partition) is log:
                del logs[log.topic_partition]

    def all_logs(self) -> Iterator[Log]:
        """Yield current and future logs."""
        yield from self.logs.values()
        yield from self.future_logs.values()

    def stray_bytes(self) -> int:
        """Return the bytes of all stray logs, which are never removed."""
        return sum(log.size_bytes for log in list(self.stray_logs.values()))

    def size_bytes(self) -> int:
        """Return the bytes of all batches, strays not counted."""
        return sum(log.size_bytes for log in self.all_logs())

    # Work that comes round.

    def apply_retention(self, now_ms: int) -> int:
        """Delete old segments, free unused reserved space; return the count of segments."""
        self.storage.handles.reserved.give_back_unused()
        deleted = 0
        for log in list(self.all_logs()):
            # A future log ages with the log that it is copied from.
            is_future = self.future_logs.get(log.topic_partition) is log
            try:
                deleted += log.delete_old_segments(now_ms, only_below_start=is_future)
            except OSError:
                raise
            except Exception:  # the other logs age as well
                logger.exception("retention of %s", log.path)
        return deleted

    def forget_producers(self, now_ms: int) -> None:
        """Forget producers that have sent nothing for `producer.id.expiration.ms`."""
        for log in self.all_logs():
            log.remove_expired_producers(now_ms)

    def delete_expired(self, now_ms: int) -> int:
        """Remove renamed files and directories whose delay is over; return how many."""
        count = self.storage.delete_expired(now_ms)
        if count and self._removed_later:
            for path, where in list(self._removed_later.items()):
                if not self.storage.is_removed_later(path):
                    del self._removed_later[path]
                    if where not in self.missing_at_start:
                        self._checkpoints.forget(where)
        return count

    def capacity(self) -> tuple[int, int]:
        """Return (total, usable) bytes of the file system (KIP-827)."""
        return self.storage.file_system.capacity(self.path)

    # Flushes: begun and completed here, run beside this thread.

    def begin_flushes(self, now_ms: int) -> list[tuple[Log, FlushTask]]:
        """Begin the flushes that `flush.ms` or a finished segment asks for."""
        return [(log, log.begin_flush()) for log in self.all_logs() if log.must_flush(now_ms)]

    def begin_flushes_of_finished_segments(self) -> list[tuple[Log, FlushTask]]:
        """Begin the flushes of finished segments; look for some only after a roll."""
        request_count = self.storage.flush_request_count
        if request_count == self._seen_flush_requests:
            return []
        self._seen_flush_requests = request_count
        return [(log, log.begin_flush()) for log in self.all_logs() if log.has_unflushed_segments]

    def complete_flushes(self, done: Sequence[tuple[Log, FlushTask]]) -> None:
        """Move the recovery points of logs whose flush tasks were run."""
        for log, task in done:
            log.complete_flush(task)

    # Checkpoints.

    def _checkpointed(self) -> Collection[Log]:
        """Return the logs whose offsets the checkpoints must contain."""
        return (self._aside | self.logs | self.future_logs).values()

    def checkpoint_recovery_points(self) -> None:
        """Write the offset from which each log would have to be recovered."""
        offsets = {log.topic_partition: log.recovery_point_to_store for log in self._checkpointed()}
        self._checkpoints.write(RECOVERY_POINTS, offsets)

    def checkpoint_recovery_point(self, log: Log) -> None:
        """Write the recovery points, unless that of this log is stored already."""
        stored = self._checkpoints.stored(RECOVERY_POINTS).get(log.topic_partition)
        if stored != log.recovery_point_to_store:
            self.checkpoint_recovery_points()

    def checkpoint_log_starts(self) -> None:
        """Write the log starts that differ from the base offset of the first segment."""
        starts = {
            log.topic_partition: log.log_start_offset
            for log in self._checkpointed()
            if log.log_start_offset > log.segments.first.base_offset
        }
        self._checkpoints.write(LOG_STARTS, starts)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark of each log."""
        offsets = {log.topic_partition: log.high_watermark for log in self._checkpointed()}
        self._checkpoints.write(HIGH_WATERMARKS, offsets)

    def note_truncated(self, logs: Sequence[Log]) -> None:
        """Lower the checkpoints of logs that were truncated.

        Call it before anything is appended: new records at these offsets are neither flushed,
        committed nor cleaned.
        """
        for log in logs:
            cleaned = self._cleaner_offsets.get(log.topic_partition)
            if cleaned is not None and cleaned > log.log_end_offset:
                self.set_cleaner_offset(log.topic_partition, log.log_end_offset)
        self.checkpoint_recovery_points()
        self.checkpoint_high_watermarks()
        starts = self._checkpoints.stored(LOG_STARTS)
        if any(starts.get(log.topic_partition, 0) > log.log_start_offset for log in logs):
            # A start would delete what is appended below the former log start.
            self.checkpoint_log_starts()

    def cleaner_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the end of the clean part of a compacted log (exclusive); None if unknown."""
        return self._cleaner_offsets.get(topic_partition)

    def set_cleaner_offset(self, topic_partition: TopicPartition, offset: int | None) -> None:
        """Note and store how far a log was cleaned; None forgets it."""
        if offset is None:
            self._cleaner_offsets.pop(topic_partition, None)
        else:
            self._cleaner_offsets[topic_partition] = offset
        self._write_cleaner_offsets()

    def _write_cleaner_offsets(self) -> None:
        self._checkpoints.write(CLEANER_OFFSETS, self._cleaner_offsets)

    # The end.

    def close(self, broker_epoch: int) -> None:
        """Flush and close all logs, write the checkpoints and the clean-shutdown file.

        A directory that was not loaded completely gets no clean-shutdown file.
        """
        self.new_epochs.store_all()
        for log in self.all_logs():
            log.close()
        if self._is_loaded:
            self.checkpoint_recovery_points()
            self.checkpoint_log_starts()
            self.checkpoint_high_watermarks()
            write_clean_shutdown(self.storage.file_system, self.path, broker_epoch)
        self.storage.handles.close()

    def close_without_flush(self) -> None:
        """Drop the logs and stop using the disk.

        Descriptors are closed if the disk allows it.
        """
        self._is_loaded = False
        for logs in (self.logs, self.future_logs, self.stray_logs, self._aside):
            logs.clear()
        self.deleted_at_start.clear()
        self.missing_at_start.clear()
        self._owners_of_entries.clear()
        self.lacks_checkpoints = self._checkpoints.are_lost = False
        self.storage.handles.abandon()
