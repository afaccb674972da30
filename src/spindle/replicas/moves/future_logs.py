"""Future and `-delete` logs that a start finds on disk: resume, finish or delete each of them.

A swap renames the source to `-delete`, and then the future log to the plain name. So a `-delete`
directory may be the only whole copy while the other directory is offline. The same holds for the
former log of a rebuild that a restart interrupted: an unclean election may choose the new log,
which lacks records. A `-delete` log is removed if the metadata places no such replica here, or if
the replica that took its place was seen in sync, with all records. Otherwise it is kept, and
restored where a new log would be created.

Belongs to the event loop (KIP-113, KIP-858).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from spindle.common.errors import LogDirectoryFailed
from spindle.common.ids import NO_LEADER, OffsetAndEpoch, TopicPartition
from spindle.common.uuids import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    Uuid,
    UuidSource,
)
from spindle.disks.deleted_log import DeletedLog
from spindle.disks.log_directory import LogDirectory
from spindle.log.formats.names import MAX_NAME_BYTES, replaced_directory
from spindle.log.log import Log
from spindle.metadata.local_changes import BecomeFollower, BecomeLeader
from spindle.replicas.found_logs import reaches
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.moves.move import AssignDirectory, Move, Moves
from spindle.replicas.partition import Partition
from spindle.replicas.topic_settings import TopicSettings

log = logging.getLogger(__name__)

Place = tuple[Log, LogDirectory]
DeletedPlace = tuple[DeletedLog, LogDirectory]


class FutureLogs:
    """Future and `-delete` logs found at start-up, until each is resumed, promoted or deleted.

    Args:
        has_offline: returns whether a directory of this broker is offline.
        report_directory: sends the directory of a replica to the controller.
        settings_of: the settings of a topic by name, from the committed image.
    """

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataView,
        moves: Moves,
        has_offline: Callable[[], bool],
        report_directory: AssignDirectory,
        settings_of: Callable[[str], TopicSettings],
        now_ms: Callable[[], int],
        new_uuid: UuidSource,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._moves = moves
        self._has_offline = has_offline
        self._on_misplaced = report_directory
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._found: dict[TopicPartition, list[Place]] = {}
        self._settings_of = settings_of
        self._deleted: list[DeletedPlace] = []
        self._names_of_deleted: set[str] = set()
        self._noted: set[str] = set()
        self._ends: dict[str, OffsetAndEpoch | None] = {}
        self._removed: list[tuple[int, DeletedPlace, LogDirectory]] = []
        """Due time in ms of removals, and the directory of the log that has the records."""
        moves.on_source_failed = self._keep
        moves.on_copy_lost = self._keep_source

    def add(self, directory: LogDirectory) -> None:
        """Add the logs that were found in a directory at the start."""
        for future in directory.store.future_logs.values():
            self._found.setdefault(future.topic_partition, []).append((future, directory))
        deleted = directory.store.deleted_at_start
        self._deleted += [(log, directory) for log in deleted]
        self._names_of_deleted.update(log.name for log in deleted)

    def _keep(self, move: Move) -> None:
        """Keep the future log of a move whose source failed until the replica is hosted again."""
        where = move.partition.topic_partition
        self._found.setdefault(where, []).append((move.future, move.target))

    def _keep_source(self, move: Move) -> None:
        """Keep the log that a recent move replaced, because its copy is lost."""
        kept = partial(self._kept, move.source)
        move.source.executor.call(kept, move.source.store.keep_replaced, move.current)

    def directory_failed(self, failed: LogDirectory) -> None:
        """Keep the `-delete` logs that are about to be removed, if their records were there."""
        removed, self._removed = self._removed, []
        for removal in removed:
            due_ms, (deleted, directory), holder = removal
            if holder is not failed:
                self._removed.append(removal)
            elif due_ms > self._now_ms() and not directory.is_offline:
                directory.executor.call(
                    partial(self._kept, directory), directory.store.keep_deleted, deleted
                )

    def _kept(
        self, directory: LogDirectory, deleted: DeletedLog | None, error: BaseException | None
    ) -> None:
        if deleted is not None:
            self._deleted.append((deleted, directory))

    def forget(self, directory: LogDirectory) -> None:
        """Forget the logs found in a directory that is no longer in use."""
        for where, places in list(self._found.items()):
            self._found[where] = [place for place in places if place[1] is not directory]
        self._deleted = [place for place in self._deleted if place[1] is not directory]

    def of(self, where: TopicPartition, topic_id: Uuid | None) -> list[Place]:
        """Return the future logs of a replica in directories that are online.

        A future log without a topic id is included if the metadata records its directory, because a
        move has reported it.
        """
        recorded = self._recorded(where, topic_id)
        return [
            (future, at)
            for future, at in self._found.get(where, ())
            if not at.is_offline
            and (
                future.topic_id == topic_id
                or (future.topic_id is None and at.directory_id == recorded)
            )
        ]

    def _recorded(self, where: TopicPartition, topic_id: Uuid | None) -> Uuid | None:
        """Return the recorded directory of this broker's replica; None without a replica."""
        topic = None if topic_id is None else self._metadata.image.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(where.partition)
        if partition is None or self._broker_id not in partition.replicas:
            return None
        return partition.directory(self._broker_id)

    def in_directory(self, directory: LogDirectory) -> list[Log]:
        """Return the future logs in a directory that belong to no move and to no replica yet."""
        return [
            future for places in self._found.values() for future, at in places if at is directory
        ]

    def replicas_in(self, directory: LogDirectory) -> list[TopicPartition]:
        """Return the replicas of an offline directory whose only log may be in this directory."""
        deleted = [self._replica_of(log) for log, at in self._deleted if at is directory]
        future = [log.topic_partition for log in self.in_directory(directory)]
        return [where for where in (*future, *deleted) if where is not None]

    def is_in(self, where: TopicPartition, recorded: Uuid) -> bool:
        """Return True if a future log is in the recorded directory: its move will resume."""
        places = self._found.get(where, ())
        return any(at.directory_id == recorded and not at.is_offline for _, at in places)

    async def resolve(
        self, hosted: Callable[[TopicPartition], Partition | None], *, needs_assignment: bool
    ) -> None:
        """Resume the moves of an earlier run, and delete future logs that belong to no move.

        Keep the future logs of replicas that stay offline. Delete the `-delete` logs that are not
        needed.
        """
        unresolved, self._found = self._found, {}
        for where, places in unresolved.items():
            partition = hosted(where)
            chosen = None if partition is None else self._to_resume(partition, places)
            for future, directory in places:
                if partition is not None and future is chosen:
                    self._resume(partition, future, directory, needs_assignment)
                elif self._may_be_needed(where, partition, future):
                    self._found.setdefault(where, []).append((future, directory))
                else:
                    await self._drop(future, directory)
        await self._remove_superseded(hosted)

    def _resume(
        self, partition: Partition, future: Log, directory: LogDirectory, needs_assignment: bool
    ) -> None:
        registration = partition.registration
        recorded = None if registration is None else registration.directory(self._broker_id)
        self._moves.begin(
            partition,
            directory,
            future,
            needs_assignment=needs_assignment,
            is_recorded=recorded == directory.directory_id,
        )

    def _to_resume(self, partition: Partition, places: Sequence[Place]) -> Log | None:
        """Return this replica's future log, preferably the one in the recorded directory."""
        if partition.is_offline or partition.registration is None:
            return None
        recorded = partition.registration.directory(self._broker_id)
        own = [
            (future, at)
            for future, at in places
            if future.topic_id == partition.topic_id
            and at is not partition.directory
            and not at.is_offline
        ]
        own.sort(key=lambda pair: pair[1].directory_id != recorded)
        return own[0][0] if own else None

    def _may_be_needed(
        self, where: TopicPartition, partition: Partition | None, future: Log
    ) -> bool:
        """Return True unless an online log has all records of the future log."""
        if partition is not None and future.topic_id in (partition.topic_id, None):
            return partition.is_offline
        return self._is_replica_here(where, future.topic_id)

    def _is_replica_here(self, where: TopicPartition, topic_id: Uuid | None) -> bool:
        """Return True if the metadata names this broker as a replica of the partition.

        A log without a topic id may belong to any topic of that name.
        """
        known = self._metadata.image.topics.by_name.get(where.topic)
        return (
            known is not None
            and topic_id in (known.topic_id, None)
            and where.partition in known.partitions
            and self._broker_id in known.partitions[where.partition].replicas
        )

    async def promote(self, instruction: BecomeLeader | BecomeFollower) -> Place | None:
        """Promote a future log whose replica has no current log, if no record is lost.

        Returns:
            The log and its directory. None if the replica stays offline: the broker reports this,
            the controller removes the replica from the ISR, and this method is called again.
        """
        where = instruction.topic_partition
        recorded = instruction.partition.directory(self._broker_id)
        own = self.of(where, instruction.topic_id)
        own.sort(key=lambda pair: (not self._is_whole(pair[0]), pair[1].directory_id != recorded))
        future, directory = own[0]
        if not self._may_promote(instruction, future):
            log.error("%s stays offline: its copy may lack the last records", where)
            if recorded != DIRECTORY_LOST:
                self._on_misplaced(instruction.topic_id, where.partition, DIRECTORY_LOST)
            return None
        self._found[where].remove(own[0])
        log.warning("%s: the future log in %s takes its place", where, directory.path)
        try:
            if future.topic_id is None:
                await directory.executor.submit(future.identify, instruction.topic_id)
            await directory.executor.submit(directory.store.promote_future, where)
        except LogDirectoryFailed as failure:
            log.error("%s was not renamed: %s", where, failure)
            return None
        return future, directory

    def has_whole(self, where: TopicPartition, topic_id: Uuid | None) -> bool:
        """Return True if a swap of the replica was interrupted between its two renames."""
        return any(self._is_whole(future) for future, _ in self.of(where, topic_id))

    def _is_whole(self, future: Log) -> bool:
        """Return True if the current log was already renamed to `-delete` for the future log."""
        name = future.path.rpartition("/")[2]
        return replaced_directory(future.topic_partition, name) in self._names_of_deleted

    def _may_promote(self, instruction: BecomeLeader | BecomeFollower, future: Log) -> bool:
        """Return True if no committed record is missing that only this replica may have.

        The copy has everything if a swap was interrupted between its two renames. It may lack
        records if this replica is neither the leader nor in the ISR or the ELR, because it then
        fetches them. If there is no other replica and all directories are online, the disk of the
        current log was replaced, and the copy holds all records that are left.
        """
        if self._is_whole(future):
            return True
        partition = instruction.partition
        trusted = {partition.leader, *partition.isr, *partition.elr, *partition.last_known_elr}
        if self._broker_id not in trusted:
            return True
        return trusted <= {self._broker_id, NO_LEADER} and not self._has_offline()

    # -- what was renamed to `-delete`

    async def restore(self, instruction: BecomeLeader | BecomeFollower) -> Place | None:
        """Restore a `-delete` log as the current log of the replica; return None if there is none.

        Call it only when no other log can exist, before an empty log is created.

        Raises:
            CorruptLog: a small file of the log is malformed.
            LogDirectoryFailed: the directory that has it failed.
        """
        where, topic_id = instruction.topic_partition, instruction.topic_id
        own = [
            (deleted, at)
            for deleted, at in self._deleted
            if deleted.topic_id == topic_id
            and self._replica_of(deleted) == where
            and not at.is_offline
        ]
        sizes = [await at.executor.submit(at.store.bytes_of_deleted, log) for log, at in own]
        if not any(sizes):
            return None
        chosen = own[sizes.index(max(sizes))]
        deleted, directory = chosen
        config = self._settings_of(where.topic).log_config
        restored = await directory.executor.submit(
            directory.store.restore, deleted, where, config, self._now_ms()
        )
        self._deleted.remove(chosen)
        # From now on it gets records that its future log, if that comes back, does not have.
        self._names_of_deleted.discard(deleted.name)
        log.warning(
            "%s: the only log left is %s in %s, which is restored with end offset %d",
            where,
            deleted.name,
            directory.path,
            restored.log_end_offset,
        )
        return restored, directory

    async def _remove_superseded(
        self, hosted: Callable[[TopicPartition], Partition | None]
    ) -> None:
        """Remove the `-delete` logs that are not needed, after `file.delete.delay.ms`."""
        for place in list(self._deleted):
            deleted, directory = place
            if directory.is_offline:
                continue
            where = self._replica_of(deleted)
            partition: Partition | None = None
            if where is not None:
                if self._is_superseded(deleted, hosted(where)):
                    await self._read_end(place)
                # Look again: a disk may have failed meanwhile, or a rebuild begun.
                partition = hosted(where)
                is_superseded = self._is_superseded(deleted, partition)
                if not (is_superseded and self._has_records_of(deleted, partition)):
                    self._note_kept(deleted, directory, where)
                    continue
            topic = deleted.topic_partition.topic if where is None else where.topic
            delay_ms = self._settings_of(topic).log_config.file_delete_delay_ms
            now_ms = self._now_ms()
            directory.executor.submit_nowait(
                directory.store.remove_deleted, deleted, now_ms + delay_ms
            )
            self._deleted.remove(place)
            self._removed = [removal for removal in self._removed if removal[0] > now_ms]
            if where is not None and partition is not None:
                self._removed.append((now_ms + delay_ms, place, partition.directory))

    def _is_superseded(self, deleted: DeletedLog, partition: Partition | None) -> bool:
        """Return True if a `-delete` log is empty, or another log has all its records.

        A log without a topic id cannot be restored. It is superseded as soon as the replica is in
        sync together with another one.
        """
        if deleted.topic_id is None:
            if not deleted.has_records:
                return True
            registration = None if partition is None else partition.registration
            if registration is None or set(registration.isr) <= {self._broker_id}:
                return False
        return self._is_in_place(partition, deleted.topic_id)

    async def _read_end(self, place: DeletedPlace) -> None:
        """Return the end of a `-delete` log; read it only once."""
        deleted, directory = place
        if deleted.name not in self._ends:
            try:
                self._ends[deleted.name] = await directory.executor.submit(
                    directory.store.end_of_deleted, deleted
                )
            except LogDirectoryFailed as failure:
                log.error("the end of %s was not read: %s", deleted.name, failure)

    def _has_records_of(self, deleted: DeletedLog, partition: Partition | None) -> bool:
        """Return True if a replica's log has all records up to the end of a `-delete` log.

        It does not if the two logs diverge earlier: after an unclean election, or because the
        records were never committed. The files do not show which.
        """
        if partition is None or deleted.topic_id is None:
            return True
        if deleted.name not in self._ends:
            return False
        end = self._ends[deleted.name]
        return end is None or reaches(partition.log, end)

    def _note_kept(
        self, deleted: DeletedLog, directory: LogDirectory, where: TopicPartition
    ) -> None:
        """Log once why a `-delete` log is not removed."""
        if deleted.name in self._noted:
            return
        self._noted.add(deleted.name)
        if deleted.topic_id is None:
            log.warning(
                "%s in %s is kept: it may have the only records of %s, but its topic id is lost, "
                "so it is not put back. It is removed once the replica is in sync with another; "
                "to put it back, stop the broker, write the topic id into partition.metadata there "
                "and rename the directory to %s",
                deleted.name,
                directory.path,
                where,
                where,
            )
            return
        log.warning(
            "%s in %s is kept: it may be the only whole copy of %s, until that replica is in sync "
            "in the directory where the metadata records it, and has the records of this log",
            deleted.name,
            directory.path,
            where,
        )

    def _replica_of(self, deleted: DeletedLog) -> TopicPartition | None:
        """Return the partition of a deleted log; None if this broker has no replica of it."""
        topics = self._metadata.image.topics
        cut, index = deleted.topic_partition
        if deleted.topic_id is not None:
            topic = topics.by_id.get(deleted.topic_id)
        elif len(deleted.name) < MAX_NAME_BYTES:
            topic = topics.by_name.get(cut)
        else:
            topic = next((t for t in topics.by_name.values() if t.name.startswith(cut)), None)
        if topic is None or index not in topic.partitions:
            return None
        if self._broker_id not in topic.partitions[index].replicas:
            return None
        return TopicPartition(topic.name, index)

    def _is_in_place(self, partition: Partition | None, topic_id: Uuid | None) -> bool:
        """Return True if a replica is online, in sync, and where the metadata records it."""
        if partition is None or partition.is_offline or partition.registration is None:
            return False
        if topic_id not in (partition.topic_id, None):
            return False
        registration, directory_id = partition.registration, partition.directory.directory_id
        is_in_sync = self._broker_id in (registration.leader, *registration.isr)
        recorded = registration.directory(self._broker_id)
        return is_in_sync and recorded in (directory_id, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)

    async def _drop(self, future: Log, directory: LogDirectory) -> None:
        log.warning("%s in %s belongs to no move: deleted", future.topic_partition, directory.path)
        try:
            await directory.executor.submit(
                directory.store.delete_logs, [future], self._new_uuid, self._now_ms()
            )
        except LogDirectoryFailed as failure:
            log.error("%s was not deleted: %s", future.topic_partition, failure)
