"""All replicas of this broker: finds them for handlers, and follows the committed metadata.

`apply` carries out the instructions of one metadata delta (`metadata.local_changes`): it creates,
leads, follows and deletes replicas, and reports replicas that are not in the directory that the
metadata records.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from spindle.common.errors import ApiError, CorruptLog, ErrorCode, LogDirectoryFailed
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.uuids import DIRECTORY_LOST, ZERO_UUID, Uuid, UuidSource, uuid_text
from spindle.disks.cordons import Cordon
from spindle.disks.log_directory import LogDirectory
from spindle.disks.replica_placement import choose_directory, is_lost_log_needed, missing_from
from spindle.log.log import Log
from spindle.metadata.local_changes import BecomeFollower, BecomeLeader, DeleteReplica, Instruction
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.damages import Damage, DamagedReplicas
from spindle.replicas.follower_appends import begin_to_follow_all
from spindle.replicas.found_logs import FoundLog, may_be_own_log, own_log
from spindle.replicas.log_creation import HostReplica, LogCreation
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.moves.future_logs import FutureLogs
from spindle.replicas.moves.held_instructions import BusyReplicas
from spindle.replicas.moves.move import AssignDirectory, Moves
from spindle.replicas.partition import Partition, ReplicationContext
from spindle.replicas.ports import FetchStart, ReplicaFetcherPort
from spindle.replicas.rebuilds import Rebuilds
from spindle.replicas.topic_settings import TopicSettings

log = logging.getLogger(__name__)

_NAMED_PARTITIONS: Final = 20
"""Number of replicas that a log message names when a directory fails; the rest are counted."""
_TOPIC_DELETED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_REPLICA_MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class ReplicaManager:
    """The hosted partitions, by topic and index.

    Args:
        directories: in the order of `log.dirs`; the list changes when a directory is added.
        settings_of: the settings of a topic by name, from the committed image.
        report_directory: reports the directory of a replica (KIP-858).
        fetching: fetches for follower replicas.
        now_ms: the wall clock.
        damages: the replicas whose records cannot be read; none so far by default.
    """

    def __init__(
        self,
        context: ReplicationContext,
        directories: list[LogDirectory],
        settings_of: Callable[[str], TopicSettings],
        report_directory: AssignDirectory,
        fetching: ReplicaFetcherPort,
        now_ms: Callable[[], int],
        new_uuid: UuidSource,
        damages: DamagedReplicas | None = None,
    ) -> None:
        self.broker_id = context.broker_id
        self.directories = directories
        self._context = context
        self.decoding = context.decoding
        self.damages = DamagedReplicas() if damages is None else damages
        self._metadata: MetadataView = context.metadata
        self._settings_of = settings_of
        self._on_misplaced = report_directory
        self._fetching = fetching
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._cordons: Mapping[str, Sequence[Cordon]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._accepted_losses: set[TopicPartition] = set()
        self._not_following: dict[Partition, tuple[int, str]] = {}
        self._loaded: dict[TopicPartition, list[FoundLog]] = {}
        self._unidentified: dict[TopicPartition, list[FoundLog]] = {}
        self.missing: dict[TopicPartition, LogDirectory] = {}
        """Replicas that stay offline because their log may be missing from a directory."""
        self.on_new_fetches_required: Callable[[], None] = lambda: None
        """Is called when followers have to fetch again although nothing has changed for them."""
        self.busy = BusyReplicas()
        self.moves = Moves(report_directory, now_ms, new_uuid)
        self.rebuilds = Rebuilds()
        self._creation = LogCreation(self._choose, settings_of, now_ms)
        self.futures = FutureLogs(
            self.broker_id,
            self._metadata,
            self.moves,
            self.has_offline,
            report_directory,
            settings_of,
            now_ms,
            new_uuid,
        )
        self._awaited: dict[tuple[str, int], list[Callable[[], None]]] = {}
        self._leader_listeners: list[Callable[[Partition, bool], None]] = []

    # -- finding

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def lookup(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def is_expected(self, topic: str, index: int) -> bool:
        """Return True if this broker is about to host or to lead the partition.

        The metadata names this broker, but the instructions have not been applied yet. A
        replica whose topic id differs belongs to a deleted topic of the same name; it does not
        count.
        """
        known = self._metadata.image.topics.by_name.get(topic)
        if known is None or index not in known.partitions:
            return False
        registration = known.partitions[index]
        partition = self._partitions.get((topic, index))
        if partition is None or partition.topic_id != known.topic_id:
            return self.broker_id in registration.replicas
        return partition.leader is None and registration.leader == self.broker_id

    def must_wait(self, topic: str, index: int) -> bool:
        """Return True if the request must queue until the replica is created or elected."""
        if (topic, index) in self._awaited:
            return True
        return self._metadata.is_behind and self.is_expected(topic, index)

    def when_hosted(self, topic: str, index: int, callback: Callable[[], None]) -> None:
        """Call back, in turn, once it is known whether this broker leads the partition."""
        self._awaited.setdefault((topic, index), []).append(callback)

    def resume_waiting(self, *, all_is_done: bool) -> None:
        """Run the callbacks whose replica is in its final state.

        Args:
            all_is_done: run the other callbacks, too, because every reaction is complete.
        """
        for where in list(self._awaited):
            if all_is_done or not self.is_expected(*where):
                # Delete the list after the last callback: until then new requests queue behind it.
                callbacks = self._awaited[where]
                for callback in callbacks:
                    callback()
                del self._awaited[where]

    def in_directory(self, directory: LogDirectory) -> list[Partition]:
        return [p for p in self._partitions.values() if p.directory is directory]

    def directory_at(self, path: str) -> LogDirectory | None:
        """Return the directory configured by exactly this path, if any."""
        return next((d for d in self.directories if d.path == path), None)

    def absent_error(self, topic: str, index: int, missing: ErrorCode) -> ErrorCode:
        """Return the error for an absent partition; `missing` if the metadata lacks it, too."""
        known = self._metadata.image.topics.by_name.get(topic)
        if known is not None and index in known.partitions:
            if self.broker_id in known.partitions[index].replicas and self.has_offline():
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return missing

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """Return (leader, leader epoch) in the newest metadata; (-1, -1) if unknown."""
        known = self._metadata.image.topics.by_name.get(topic)
        if known is None or index not in known.partitions:
            return NO_LEADER, -1
        return known.partitions[index].leader, known.partitions[index].leader_epoch

    def local_leader_error(
        self, partition: Partition, current_leader_epoch: int, *, needs_leader: bool = True
    ) -> ErrorCode:
        """Return NONE if this broker may serve the partition, else the error (KIP-320).

        Args:
            current_leader_epoch: the leader epoch that the client sent; -1 if it sent none.
            needs_leader: a follower may not serve the request (KIP-392).
        """
        if partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if current_leader_epoch >= 0:
            if current_leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > partition.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if needs_leader and partition.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def cordon(self, cordons: Mapping[str, Sequence[Cordon]]) -> None:
        """Cordon the directories of these paths, and no others."""
        self._cordons = cordons

    def directory_cordons(self, directory: LogDirectory) -> Sequence[Cordon]:
        """Return the reasons why the directory is cordoned; empty if it is not."""
        return self._cordons.get(directory.path, ())

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Return True if the directory gets no new replicas (KIP-1066)."""
        return directory.path in self._cordons

    def remember_directory(self, where: TopicPartition, directory: LogDirectory) -> None:
        """Choose this directory when the replica is created (KIP-113); not kept over a restart."""
        self._preferred[where] = directory

    def on_leadership(self, listener: Callable[[Partition, bool], None]) -> None:
        """Call `listener` when this broker begins (True) or ends (False) to lead a partition."""
        self._leader_listeners.append(listener)

    def has_offline(self) -> bool:
        """Return True if a directory is offline."""
        return any(d.is_offline for d in self.directories)

    # -- directories that come and go

    def replace_directory(self, failed: LogDirectory, by: LogDirectory) -> list[TopicPartition]:
        """Replace a failed directory by another one; stop hosting its replicas and return them."""
        self.directories[self.directories.index(failed)] = by
        self._preferred = {
            where: by if at is failed else at for where, at in self._preferred.items()
        }
        return self._forget_directory(failed)

    def remove_directory(self, directory: LogDirectory) -> None:
        """Stop placing replicas in this directory, and stop hosting those it has."""
        self.directories.remove(directory)
        self._preferred = {w: at for w, at in self._preferred.items() if at is not directory}
        self._forget_directory(directory)

    def _forget_directory(self, gone: LogDirectory) -> list[TopicPartition]:
        partitions = self.in_directory(gone)
        for partition in partitions:
            self._drop_partition(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.futures.forget(gone)
        for where, items in list(self._unidentified.items()):
            self._unidentified[where] = [place for place in items if place[1] is not gone]
        return [partition.topic_partition for partition in partitions]

    # -- following the metadata

    def add_loaded(self, loaded: Iterable[Log], directory: LogDirectory) -> None:
        """Keep the logs that the start found on disk for the first `apply`.

        Two directories may have a log of the same name: one was offline when the other was created.
        """
        for log in loaded:
            self._loaded.setdefault(log.topic_partition, []).append((log, directory))
            directory.log_count += 1

    def take_loaded(self) -> list[FoundLog]:
        """Return the logs on disk that the metadata does not place here, and forget them.

        The logs of a busy replica stay, because its instructions still wait.
        """
        idle = [where for where in self._loaded if self.busy.end_of(where) is None]
        return [item for where in idle for item in self._loaded.pop(where)]

    def damaged(self) -> Iterator[Damage]:
        """Yield the damage of the hosted replicas, as far as the broker has met it."""
        is_leader = {partition.log: partition.leader is not None for partition in self}
        return self.damages.among(self.broker_id, is_leader)

    def accept_losses(self, lost: Iterable[TopicPartition]) -> None:
        """Allow these replicas, and no others, to be created empty if their only log was lost."""
        self._accepted_losses = set(lost)

    async def apply(self, instructions: Sequence[Instruction]) -> None:
        """Apply a metadata delta: deletions first, moving replicas later."""
        instructions = self.busy.hold_back(instructions)
        await self._delete([i for i in instructions if isinstance(i, DeleteReplica)])
        rest = [i for i in instructions if not isinstance(i, DeleteReplica)]
        await self._host([i for i in rest if self.lookup(*i.topic_partition) is None])
        hosted = [(self.lookup(*i.topic_partition), i) for i in rest]
        leaders = [(p, i) for p, i in hosted if p is not None and isinstance(i, BecomeLeader)]
        followers = [(p, i) for p, i in hosted if p is not None and isinstance(i, BecomeFollower)]
        withheld = [(p, i) for p, i in leaders if self.rebuilds.must_stay_lost(p)]
        leaders = [(p, i) for p, i in leaders if not self.rebuilds.must_stay_lost(p)]
        in_new_epochs = [p for p, i in followers if i.partition.leader_epoch != p.leader_epoch]
        # Fetchers stop first: records of the former leader belong before the new epoch.
        self._fetching.stop([p for p, _ in leaders if p.leader is None] + in_new_epochs)
        self._fetching.stop([p for p, _ in withheld])
        for partition, leadership in withheld:
            self._decline(partition, leadership)
        await self._start_epochs(leaders)
        for partition, leadership in leaders:
            self._lead(partition, leadership)
        for partition, instruction in followers:
            self._follow(partition, instruction)
        await self._begin_to_follow([p for p in in_new_epochs if p.leader_id != NO_LEADER])

    async def _delete(self, instructions: Sequence[DeleteReplica]) -> None:
        """Stop serving the replicas at once, then rename their logs, one hop per directory."""
        doomed: dict[int, list[Partition]] = {}
        for instruction in instructions:
            self.missing.pop(instruction.topic_partition, None)
            partition = self._partitions.get(instruction.topic_partition)
            if partition is not None and partition.topic_id == instruction.topic_id:
                is_topic_deleted = instruction.is_topic_deleted
                self._drop_partition(
                    partition, _TOPIC_DELETED if is_topic_deleted else _REPLICA_MOVED
                )
                doomed.setdefault(id(partition.directory), []).append(partition)
        for partitions in doomed.values():
            directory = partitions[0].directory
            directory.log_count -= len(partitions)
            logs = [partition.log for partition in partitions]
            try:
                await directory.executor.submit(
                    directory.store.delete_logs, logs, self._new_uuid, self._now_ms()
                )
            except LogDirectoryFailed as failure:
                log.warning("%d replicas were not deleted: %s", len(logs), failure)

    def _drop_partition(self, partition: Partition, code: ErrorCode) -> None:
        del self._partitions[partition.topic_partition]
        partition.is_deleted = True
        if partition.leader is not None:
            self._tell(partition, False)
        partition.leader = None
        self.moves.cancel(partition)
        self._fetching.stop([partition])
        partition.fail_waiters(ApiError(code))

    async def _host(self, instructions: Sequence[HostReplica]) -> None:
        """Find on disk or create the logs of replicas that are new here."""
        to_create: list[HostReplica] = []
        for instruction in instructions:
            where = instruction.topic_partition
            if await self._host_found(instruction):
                continue
            is_whole = self.futures.has_whole(where, instruction.topic_id)
            if not is_whole and self._is_unsafe_to_recreate(instruction):
                continue
            if self.futures.of(where, instruction.topic_id):
                promoted = await self.futures.promote(instruction)
                if promoted is not None:
                    promoted[1].log_count += 1
                    self._add(instruction, *promoted)
                continue
            restored = None
            if self._choose(where, instruction.partition) is not None:
                try:
                    restored = await self.futures.restore(instruction)
                except (CorruptLog, LogDirectoryFailed) as failure:
                    log.error("%s stays offline: what is left of its log: %s", where, failure)
                    continue
            if restored is None:
                to_create.append(instruction)
                continue
            restored[1].log_count += 1
            self._add(instruction, *restored)
        await self._creation.create(to_create, self._add)

    async def _host_found(self, instruction: HostReplica) -> bool:
        """Host the replica's log if the start found it; rename the other logs of its name.

        Returns:
            False if the log was not found yet.
        """
        where = instruction.topic_partition
        result = self._loaded.pop(where, []) + self._unidentified.pop(where, [])
        own = own_log(result, instruction.topic_id, instruction.partition, self.broker_id)
        if own is None and may_be_own_log(result, instruction.partition, self.broker_id):
            self._unidentified[where] = result
            log.error(
                "%s stays offline: its log may be %s, whose topic id is lost. If it is, write the "
                "topic id %s into partition.metadata there; else move that directory away. Then "
                "restart the broker",
                where,
                " or ".join(its_log.path for its_log, _ in result if its_log.topic_id is None),
                uuid_text(instruction.topic_id),
            )
            return True
        for place in result:
            if place is not own:
                place[1].log_count -= 1
                await self._rename_stale_log(*place)
        if own is not None and await self._is_identified(instruction, *own):
            self._add(instruction, *own)
        return own is not None

    async def _is_identified(
        self, instruction: HostReplica, its_log: Log, directory: LogDirectory
    ) -> bool:
        """Write the topic id of a log that lost it; return False if the disk fails."""
        if its_log.topic_id is not None:
            return True
        log.warning(
            "%s has no topic id. The metadata places the replica there, so it gets the topic id %s",
            its_log.path,
            uuid_text(instruction.topic_id),
        )
        try:
            await directory.executor.submit(its_log.identify, instruction.topic_id)
        except LogDirectoryFailed as failure:
            log.error("%s stays offline: %s", instruction.topic_partition, failure)
            return False
        return True

    def _is_unsafe_to_recreate(self, instruction: HostReplica) -> bool:
        """Return True (and log a hint) if an empty log would lose committed records."""
        where, partition = instruction.topic_partition, instruction.partition
        topic_id = instruction.topic_id
        if self._metadata.is_created_since_stop(topic_id):
            return False  # a log of this name was that of an earlier topic
        recorded = partition.directory(self.broker_id)
        missing_from_directory = missing_from(where, topic_id, recorded, self.directories)
        if (self.has_offline() and missing_from_directory is None) or not is_lost_log_needed(
            where, topic_id, partition, self.broker_id, self.directories
        ):
            return False
        remedy = f"elect another replica with `spindle topic elect --unclean {where}`"
        others = "the other replicas may lack some of its records"
        if len(partition.replicas) == 1:
            if where in self._accepted_losses:
                log.warning("%s is created empty: the loss of its records was accepted", where)
                return False
            remedy = f"`spindle disks online {self.broker_id} DIR --accept-loss {where}`"
            others = "it is the only replica"
        if missing_from_directory is not None:
            # The controller elects another replica, or none.
            self.missing[where] = missing_from_directory
            self._on_misplaced(topic_id, where.partition, DIRECTORY_LOST)
            is_shown = not missing_from_directory.store.has_lost_checkpoints
            log.error(
                "%s stays offline: %s %s and has no folder of it, and %s. Put the folder back and "
                "restart, or accept the loss: %s",
                where,
                missing_from_directory.path,
                "had records of it by its checkpoints" if is_shown else "has lost its checkpoints",
                others,
                remedy,
            )
            return True
        log.error(
            "%s stays offline: its log was in %s, which this broker does not have, and %s. Bring "
            "it back and restart, or accept the loss: %s",
            where,
            "a lost directory" if recorded == DIRECTORY_LOST else uuid_text(recorded),
            others,
            remedy,
        )
        return True

    def _add(self, instruction: HostReplica, its_log: Log, directory: LogDirectory) -> None:
        where = instruction.topic_partition
        settings = self._settings_of(where.topic)
        its_log.config = settings.log_config
        self._preferred.pop(where, None)
        self.missing.pop(where, None)
        partition = Partition(where, instruction.topic_id, its_log, directory, self._context)
        self._partitions[where] = partition
        self._apply_throttles(partition, settings)

    def _choose(
        self, where: TopicPartition, registration: PartitionRegistration
    ) -> LogDirectory | None:
        """Choose the directory of a new log; None to create nothing."""
        return choose_directory(
            where,
            self.directories,
            registration.directory(self.broker_id),
            self._preferred.get(where),
            self._cordons,
        )

    async def _rename_stale_log(self, stale: Log, directory: LogDirectory) -> None:
        """Rename a log that is not assigned here to `-stray`; its data stays (KIP-516)."""
        log.warning(
            "%s in %s, of topic id %s, is not assigned there: renamed to -stray",
            stale.topic_partition,
            directory.path,
            uuid_text(stale.topic_id or ZERO_UUID),
        )
        try:
            await directory.executor.submit(directory.store.mark_stray, stale, self._new_uuid())
        except LogDirectoryFailed as failure:
            log.error("%s was not renamed: %s", stale.topic_partition, failure)

    async def put_aside_strays(self) -> None:
        """Rename the logs that the first `apply` did not use to `-stray`."""
        for stale, directory in self.take_loaded():
            directory.log_count -= 1
            await self._rename_stale_log(stale, directory)
        for directory in self.directories:
            store = directory.store
            if store.checkpoints_name_strays and not directory.is_offline:
                with suppress(LogDirectoryFailed):
                    await directory.executor.submit(store.checkpoint_logs_in_use)
            needed = {where for where, lacking in self.missing.items() if lacking is directory}
            unexplained = store.unexplained_entries
            busy = {where for where in unexplained if self.busy.end_of(where) is not None}
            is_unsettled = unexplained != needed | busy or store.lacks_checkpoints
            if is_unsettled and not directory.is_offline:
                # No replica needs the others: a later topic of the same name has other records.
                with suppress(LogDirectoryFailed):
                    await directory.executor.submit(store.settle_missing, needed, busy)

    async def _start_epochs(self, leaders: Sequence[tuple[Partition, BecomeLeader]]) -> None:
        """Begin new leader epochs at the log ends (KIP-101), one hop per directory."""
        plan: dict[int, list[tuple[Partition, int]]] = {}
        for partition, instruction in leaders:
            epoch = instruction.partition.leader_epoch
            if epoch != partition.leader_epoch and not partition.is_offline:
                plan.setdefault(id(partition.directory), []).append((partition, epoch))
        for work in plan.values():
            directory = work[0][0].directory
            epochs = [(partition.log, epoch) for partition, epoch in work]
            try:
                await directory.executor.submit(directory.store.new_epochs.begin, epochs)
            except LogDirectoryFailed as failure:
                log.error("cannot lead %d partitions: %s", len(work), failure)

    def _lead(self, partition: Partition, instruction: BecomeLeader) -> None:
        registration = instruction.partition
        was_leader = partition.leader is not None
        self._report_directory(partition, registration)
        if partition.is_offline:
            return
        settings = self._settings_of(partition.topic_partition.topic)
        if was_leader and self._require_new_fetches(partition, registration):
            self.on_new_fetches_required()
        partition.become_leader(registration, settings.min_isr)
        if not was_leader:
            self._tell(partition, True)

    def _require_new_fetches(
        self, partition: Partition, registration: PartitionRegistration
    ) -> bool:
        """Forget how far replicas were whose last fetch may have been for another log.

        The controller has removed them from the ISR, or records a directory in place of a lost one:
        they may be rebuilt since. A report of their directory that reaches the controller late
        makes them eligible for the ISR before they have fetched for the new log. If one delta has
        several changes of the partition, a directory may have been lost between them.

        Returns:
            True if there is such a replica.
        """
        leader, before = partition.leader, partition.registration
        if leader is None or before is None:
            return False
        has_unseen = registration.partition_epoch > before.partition_epoch + 1
        returning = [
            replica_id
            for replica_id in before.replicas
            if replica_id in registration.replicas
            and (
                (replica_id not in registration.isr and (has_unseen or replica_id in before.isr))
                or (
                    before.directory(replica_id) == DIRECTORY_LOST
                    and registration.directory(replica_id) != DIRECTORY_LOST
                )
            )
        ]
        for replica_id in returning:
            leader.require_new_fetch(replica_id)
        return bool(returning)

    def _decline(self, partition: Partition, instruction: BecomeLeader) -> None:
        """Do not lead with a log that is being rebuilt: the others would delete their records.

        A report of the directory that has timed out here may reach the controller after it has
        recorded the replica as lost; an unclean election may choose the replica until the broker
        has reported the loss again.
        """
        log.error(
            "%s was elected while it is rebuilt and lacks records: it does not lead, and the "
            "controller is asked for another leader",
            partition.topic_partition,
        )
        index = partition.topic_partition.partition
        self._on_misplaced(partition.topic_id, index, DIRECTORY_LOST)
        partition.become_follower(instruction.partition)

    def _follow(self, partition: Partition, instruction: BecomeFollower) -> None:
        was_leader = partition.leader is not None
        self._report_directory(partition, instruction.partition)
        partition.become_follower(instruction.partition)
        if was_leader:
            self._tell(partition, False)

    async def _begin_to_follow(
        self, partitions: Sequence[Partition], *, is_same_epoch: bool = False
    ) -> None:
        """Start fetching from the leaders at the ends of the logs, with one job per directory."""
        plan: dict[int, list[Partition]] = {}
        for partition in partitions:
            if not partition.is_offline:
                plan.setdefault(id(partition.directory), []).append(partition)
        hops = []
        for work in plan.values():
            directory = work[0].directory
            logs = [partition.log for partition in work]
            hops.append(
                directory.executor.submit(
                    begin_to_follow_all, directory.store, logs, self._now_ms()
                )
            )
        for work, hop in zip(plan.values(), hops, strict=True):
            try:
                results = await hop
            except LogDirectoryFailed as failure:
                log.error("cannot follow with %d replicas: %s", len(work), failure)
                continue
            followed = []
            for partition, result in zip(work, results, strict=True):
                if isinstance(result, Exception):
                    self._could_not_follow(partition, result)
                else:
                    self._not_following.pop(partition, None)
                    followed.append(FetchStart(partition, result, is_same_epoch))
            self._fetching.follow(followed)

    def _could_not_follow(self, partition: Partition, error: Exception) -> None:
        attempt = (partition.leader_epoch, repr(error))
        if self._not_following.get(partition) != attempt:
            log.error("cannot follow with %s: %r", partition.topic_partition, error)
        self._not_following[partition] = attempt

    async def follow_again(self) -> None:
        """Retry the replicas that could not start fetching in their leader epoch.

        Do not call it while metadata is being applied. Busy replicas wait.
        """
        idle = []
        for partition, (epoch, _) in list(self._not_following.items()):
            where = partition.topic_partition
            is_hosted = self._partitions.get(where) is partition
            if not is_hosted or partition.leader_epoch != epoch or partition.leader is not None:
                del self._not_following[partition]
            elif self.busy.end_of(where) is None:
                idle.append(partition)
        await self._begin_to_follow(idle)

    def _report_directory(self, partition: Partition, registration: PartitionRegistration) -> None:
        if self.rebuilds.hides(partition):
            recorded = registration.directory(self.broker_id)
            if self.rebuilds.must_stay_lost(partition) and recorded != DIRECTORY_LOST:
                # A request that has timed out here can reach the controller after a later one.
                index = partition.topic_partition.partition
                self._on_misplaced(partition.topic_id, index, DIRECTORY_LOST)
            return
        actual = partition.directory.directory_id
        if self.moves.recorded(partition, registration.directory(self.broker_id)):
            return
        if self.futures.is_in(partition.topic_partition, registration.directory(self.broker_id)):
            return
        # Also from an offline directory: the controller must not count the replica as online.
        if registration.directory(self.broker_id) != actual:
            self._on_misplaced(partition.topic_id, partition.topic_partition.partition, actual)

    def assignment_acknowledged(self, topic_id: Uuid, index: int, directory_id: Uuid) -> None:
        """Handle that the controller has accepted the directory of a replica.

        If the metadata already had it, no metadata change follows, so a move that waits for it
        continues now.
        """
        topic = self._metadata.image.topics.by_id.get(topic_id)
        partition = None if topic is None else self.lookup(topic.name, index)
        if partition is None or partition.topic_id != topic_id:
            return
        registration = partition.registration
        if registration and registration.directory(self.broker_id) == directory_id:
            self.moves.recorded(partition, directory_id)

    def _tell(self, partition: Partition, is_leader: bool) -> None:
        for listener in self._leader_listeners:
            listener(partition, is_leader)

    # -- changes of the log

    async def while_held(self, partition: Partition, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while all changes of the replica's log are held back."""
        follows = partition.leader is None and partition.leader_id != NO_LEADER
        partition.pause_changes()
        self._fetching.stop([partition])
        failure: Exception | None = None
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised again once the replica is fed
            failure = error
        # Not after a cancellation: what the stopping broker appended to a log that was set aside
        # would be lost.
        partition.resume_changes()
        if follows and not partition.is_deleted:
            await self._begin_to_follow([partition], is_same_epoch=True)
        if failure is not None:
            raise failure

    def lag(self, partition: Partition) -> int:
        """Return how many committed records of the leader a follower lacks; -1 if unknown."""
        return self._fetching.lag(partition)

    # -- configuration and failures

    def refresh_settings(self, topics: Iterable[str] | None) -> None:
        """Apply changed configuration of these topics; None for all."""
        names = None if topics is None else set(topics)
        for partition in self._partitions.values():
            topic = partition.topic_partition.topic
            if names is None or topic in names:
                settings = self._settings_of(topic)
                partition.use_settings(settings.log_config)
                move = self.moves.get(partition)
                if move is not None:
                    move.future.config = settings.log_config
                partition.set_min_isr(settings.min_isr)
                self._apply_throttles(partition, settings)

    def _apply_throttles(self, partition: Partition, settings: TopicSettings) -> None:
        number = partition.topic_partition.partition
        partition.is_throttled_as_leader = settings.throttled_as_leader.has(number)
        is_throttled = settings.throttled_as_follower.has(number)
        if partition.is_throttled_as_follower != is_throttled:
            partition.is_throttled_as_follower = is_throttled
            self._fetching.throttle(partition)

    def review_isrs(self) -> None:
        """Check all ISRs again, because time has passed or brokers have changed (KIP-497)."""
        for partition in self._partitions.values():
            partition.review_isr()

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Fail at once everything that waits on the partitions of a dead directory."""
        self.moves.directory_failed(directory)
        self.futures.directory_failed(directory)
        partitions = self.in_directory(directory)
        if not partitions:
            return
        names = ", ".join(
            str(partition.topic_partition) for partition in partitions[:_NAMED_PARTITIONS]
        )
        more = ", ..." if len(partitions) > _NAMED_PARTITIONS else ""
        count, path = len(partitions), directory.path
        log.warning("%d replicas in %s are offline: %s%s", count, path, names, more)
        self._fetching.stop(partitions)
        for partition in partitions:
            partition.fail_waiters(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
