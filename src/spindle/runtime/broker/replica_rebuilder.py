"""Rebuilds replicas of this broker from their leaders: a task for each.

A rebuild goes through the states of `replicas.rebuilds`. A rebuild fails, and the former log is
used again, if the replica may still be elected, if nothing is copied for ten minutes, or if it is
cancelled. If the broker stops during a rebuild, the replica is an ordinary follower after the
start: with the new log if it existed already, otherwise with the former log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.common.ids import NO_LEADER, OffsetAndEpoch, TopicPartition
from spindle.common.uuids import DIRECTORY_LOST, Uuid, UuidSource
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.features import DIRECTORY_ASSIGNMENT_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.found_logs import reaches
from spindle.replicas.moves.move import AssignDirectory
from spindle.replicas.partition import Partition
from spindle.replicas.rebuilds import (
    Rebuild,
    RebuildState,
    check_has_left,
    check_may_leave,
    check_space,
    refused,
)
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.background import end, run_once
from spindle.runtime.broker.broker_metadata import BrokerMetadata

log = logging.getLogger(__name__)

LEAVE_S: Final = 60.0
"""Time for the controller to take a replica out of the ISR."""
STALL_S: Final = 600.0
"""Time without progress after which a rebuild fails."""
_REPORT_AGAIN_S: Final = 2.0
"""Time after which a report that has not had its effect is sent again."""
_LOOK_S: Final = 0.1
"""Pause between two checks of a replica that is copied or is to join the ISR."""

Capacities = Callable[[Sequence[LogDirectory]], Awaitable[Mapping[str, tuple[int, int]]]]


class ReplicaRebuilder:
    """Runs the rebuilds of a broker.

    Args:
        alone: prevents other changes of a replica (`ReplicaMover.alone`).
        assign: reports the directory of a replica to the controller.
        is_queued: whether the controller has not acknowledged the last report of a replica.
        min_isr_of: `min.insync.replicas` of a topic by name.
        capacities: total and usable bytes of directories, by path.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: BrokerMetadata,
        alone: Callable[[Partition], AbstractAsyncContextManager[None]],
        assign: AssignDirectory,
        is_queued: Callable[[Uuid, int], bool],
        min_isr_of: Callable[[str], int],
        capacities: Capacities,
        now_ms: Callable[[], int],
        new_uuid: UuidSource,
    ) -> None:
        self._replicas = replicas
        self._rebuilds = replicas.rebuilds
        self._metadata = metadata
        self._alone = alone
        self._assign = assign
        self._is_queued = is_queued
        self._min_isr_of = min_isr_of
        self._capacities = capacities
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    async def begin(self, where: TopicPartition) -> None:
        """Begin to rebuild a replica; return before it has left the ISR.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, BROKER_NOT_AVAILABLE or
                INVALID_REQUEST, with a sentence for people.
        """
        partition = self._check(where)
        capacities = await self._capacities([partition.directory])
        if self._check(where) is not partition:
            raise refused(f"{where} has just been created again: ask again")
        directory = partition.directory
        _, usable_bytes = capacities.get(directory.path, (-1, -1))
        promised_bytes = sum(
            rebuild.missing_bytes
            for rebuild in self._rebuilds
            if rebuild.partition.directory is directory
        )
        check_space(partition, usable_bytes, promised_bytes)
        rebuild = self._rebuilds.begin(partition)
        log.info("rebuilding %s: it leaves the ISR first", rebuild)
        task = run_once(self._run(rebuild), f"rebuild of {where}")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def cancel(self, where: TopicPartition) -> None:
        """Cancel a rebuild that has not caught up yet; the former log is used again.

        Raises:
            ApiError: INVALID_REQUEST if there is none.
        """
        rebuild = self._rebuilds.running(where)
        if rebuild is None:
            raise refused(f"no rebuild of {where} is running on broker {self._broker_id}")
        if rebuild.state is RebuildState.JOINING:
            raise refused(f"the rebuild of {where} has all committed records already")
        rebuild.is_cancelled = True

    async def stop(self) -> None:
        """End all tasks; the next start uses the logs that it finds."""
        self._is_stopped = True
        await end(*self._tasks)

    # -- whether a replica can be rebuilt

    @property
    def _broker_id(self) -> int:
        return self._replicas.broker_id

    def _check(self, where: TopicPartition) -> Partition:
        """Return the replica if it can be rebuilt now."""
        image, broker_id = self._metadata.newest, self._broker_id
        if self._is_stopped:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is stopping")
        registration = self._registered(image, where)
        if image.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
            raise refused(
                f"metadata.version is {image.metadata_version}, and replicas can be rebuilt from "
                f"{DIRECTORY_ASSIGNMENT_LEVEL} on: upgrade it with `spindle features upgrade`"
            )
        partition = self._hosted(where)
        if self._rebuilds.running(where) is not None:
            raise refused(
                f"a rebuild of {where} is already running on broker {broker_id}; `spindle disks "
                "watch` shows it"
            )
        replicas = self._replicas
        move = replicas.moves.get(partition)
        if move is not None:
            raise refused(
                f"{where} is moving from {move.source.path} to {move.target.path}: wait until it "
                "is there, or cancel the move"
            )
        if replicas.busy.end_of(where) or replicas.futures.of(where, partition.topic_id):
            raise refused(f"{where} is about to move between directories: ask again")
        check_may_leave(where, registration, broker_id, self._min_isr_of(where.topic))
        return partition

    def _registered(self, image: MetadataImage, where: TopicPartition) -> PartitionRegistration:
        topic = image.topics.by_name.get(where.topic)
        if topic is None or where.partition not in topic.partitions:
            what = "there is no such topic"
            if topic is not None:
                what = f"{where.topic} has partitions 0 to {len(topic.partitions) - 1}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is unknown: {what}")
        registration = topic.partitions[where.partition]
        if self._broker_id not in registration.replicas:
            raise refused(
                f"broker {self._broker_id} has no replica of {where}; brokers "
                f"{', '.join(map(str, registration.replicas))} have one"
            )
        return registration

    def _hosted(self, where: TopicPartition) -> Partition:
        partition = self._replicas.lookup(*where)
        topic = self._metadata.newest.topics.by_name[where.topic]
        if partition is None or partition.topic_id != topic.topic_id:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the replica of {where} on broker {self._broker_id} is offline or being created; "
                "`spindle disks list` shows directories that are offline",
            )
        if partition.is_offline:
            path = partition.directory.path
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{where} is in {path}, which is offline: first bring it back with "
                f"`spindle disks online {self._broker_id} {path}`",
            )
        return partition

    # -- one rebuild

    async def _run(self, rebuild: Rebuild) -> None:
        try:
            await self._leave_isr(rebuild)
            await self._replace_log(rebuild)
            await self._copy(rebuild)
            await self._join_isr(rebuild)
        except ApiError as error:
            await self._give_up(rebuild, error.message or error.code.name)
        except LogDirectoryFailed as failure:
            self._end(rebuild, str(failure))
        except Exception as error:
            log.exception("the rebuild of %s failed", rebuild)
            await self._give_up(rebuild, f"an error of the broker, see its log: {error!r}")

    async def _leave_isr(self, rebuild: Rebuild) -> None:
        """Return when the replica is out of the ISR and the controller cannot elect it."""
        partition = rebuild.partition
        index = partition.topic_partition.partition

        def has_answer(image: MetadataImage) -> bool:
            registration = image.topics.partition(partition.topic_id, index)
            return (
                rebuild.is_cancelled
                or registration is None
                or self._broker_id not in registration.replicas
                or registration.directory(self._broker_id) == DIRECTORY_LOST
            )

        loop = asyncio.get_running_loop()
        ends_s = loop.time() + LEAVE_S
        has_left = False
        while not has_left and loop.time() < ends_s:
            # Again, because a late report may have recorded the directory right after this one.
            self._assign(partition.topic_id, index, DIRECTORY_LOST)
            has_left = await self._metadata.wait_for(has_answer, _REPORT_AGAIN_S)
        # The metadata may still have DIRECTORY_LOST from a rebuild that has just failed. Its last
        # report, which is not acknowledged yet, allows the election of the replica again.
        while has_left and not rebuild.is_cancelled and self._is_queued(partition.topic_id, index):
            has_left = loop.time() <= ends_s
            await asyncio.sleep(_LOOK_S)
        if not has_left:
            raise refused(
                f"the controller has not taken broker {self._broker_id} out of the ISR in "
                f"{LEAVE_S:.0f} s: check the quorum with `spindle status`"
            )

    async def _replace_log(self, rebuild: Rebuild) -> None:
        partition = rebuild.partition
        async with self._alone(partition):
            self._check_goes_on(rebuild)
            await self._replicas.while_held(partition, partial(self._replace_held, rebuild))

    async def _replace_held(self, rebuild: Rebuild) -> None:
        """Rename the log if it has not changed and the other replicas have all its records."""
        partition, where = rebuild.partition, rebuild.partition.topic_partition
        # Once more: until its fetches ended, a late report could bring the replica into the ISR
        # again, and this broker may not know that yet.
        await self._leave_isr(rebuild)
        self._check_goes_on(rebuild)
        registration = self._metadata.newest.topics.partition(partition.topic_id, where.partition)
        if registration is None or self._broker_id not in registration.replicas:
            raise refused(f"broker {self._broker_id} has no replica of {where} any more")
        check_may_leave(where, registration, self._broker_id, self._min_isr_of(where.topic))
        check_has_left(where, registration, self._broker_id)
        directory = partition.directory
        former = rebuild.former = partition.log
        rebuild.size_bytes = former.size_bytes
        new = await directory.executor.submit(
            directory.store.replace_with_empty, former, self._new_uuid(), self._now_ms()
        )
        rebuild.state = RebuildState.COPYING
        partition.replace_log(new, directory)
        partition.fail_waiters(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        log.info("%s is copied from broker %d", rebuild, partition.leader_id)

    async def _copy(self, rebuild: Rebuild) -> None:
        """Return when the new log has all committed records.

        A new leader may respond with an old high watermark. So the new log must also reach the high
        watermark of the former log.
        """
        partition, loop = rebuild.partition, asyncio.get_running_loop()
        committed_end = rebuild.former.high_watermark
        end_offset, changed_s = -1, loop.time()
        while self._replicas.lag(partition) != 0 or partition.log.log_end_offset < committed_end:
            self._check_goes_on(rebuild)
            if partition.log.log_end_offset != end_offset:
                end_offset, changed_s = partition.log.log_end_offset, loop.time()
            elif loop.time() - changed_s > STALL_S:
                source = (
                    "it has no leader"
                    if partition.leader_id == NO_LEADER
                    else f"its leader is broker {partition.leader_id}"
                )
                raise refused(f"nothing was copied for {STALL_S:.0f} s; {source}")
            await asyncio.sleep(_LOOK_S)
        self._check_goes_on(rebuild)

    async def _join_isr(self, rebuild: Rebuild) -> None:
        """Return when the replica is in the ISR again and the former log may be removed."""
        partition, loop = rebuild.partition, asyncio.get_running_loop()
        directory, index = partition.directory, partition.topic_partition.partition
        rebuild.state = RebuildState.JOINING
        self._report_directory(partition)
        ends_s = loop.time() + STALL_S
        while True:
            self._check_goes_on(rebuild)
            registration = self._metadata.newest.topics.partition(partition.topic_id, index)
            if registration is not None and self._broker_id in registration.isr:
                self._check_joined(rebuild, registration)
                break
            if loop.time() > ends_s:
                raise refused(
                    f"the leader has not added it to the ISR in {STALL_S:.0f} s, although it had "
                    f"all records; the former log stays in {rebuild.former.path}"
                )
            await asyncio.sleep(_LOOK_S)
        await directory.executor.submit(
            directory.store.remove_former, rebuild.former, self._now_ms()
        )
        self._end(rebuild)

    def _check_joined(self, rebuild: Rebuild, registration: PartitionRegistration) -> None:
        """Refuse to remove the former log if an unclean election made the replica the leader."""
        former, new = rebuild.former, rebuild.partition.log
        epoch = former.epochs.latest
        if registration.leader != self._broker_id or epoch is None:
            return
        if not reaches(new, OffsetAndEpoch(former.log_end_offset, epoch)):
            raise refused(
                "it was elected without all records of the former log, which stays in "
                f"{former.path}"
            )

    def _check_goes_on(self, rebuild: Rebuild) -> None:
        partition = rebuild.partition
        if partition.is_deleted:
            raise refused("its topic was deleted, it was reassigned, or its directory replaced")
        if partition.directory.executor.failure is not None:
            raise partition.directory.executor.failure
        if rebuild.is_cancelled and rebuild.state is not RebuildState.JOINING:
            raise refused("it was cancelled")

    # -- the end

    async def _give_up(self, rebuild: Rebuild, reason: str) -> None:
        """End a rebuild that failed; use the former log again if the new one lacks records."""
        partition = rebuild.partition
        try:
            if rebuild.state is RebuildState.COPYING:
                async with self._alone(partition):
                    if partition.is_deleted:
                        await self._remove_former(rebuild)
                    else:
                        work = partial(self._put_former_back, rebuild)
                        await self._replicas.while_held(partition, work)
                        reason += "; the former log is in use again"
                await self._until_fetched(rebuild)
            elif rebuild.state is RebuildState.JOINING and partition.is_deleted:
                await self._remove_former(rebuild)
        except LogDirectoryFailed as failure:
            reason += f"; {failure}"
        self._end(rebuild, reason)
        if not partition.is_deleted and not partition.is_offline:
            self._report_directory(partition)

    async def _until_fetched(self, rebuild: Rebuild) -> None:
        """Return when no leader assumes the length of the new log.

        Unless it was elected meanwhile, a leader assumes it until it receives a fetch for the
        former log.
        """
        partition = rebuild.partition
        while not partition.is_deleted and not partition.is_offline:
            if partition.leader_id == NO_LEADER or self._replicas.lag(partition) >= 0:
                return
            await asyncio.sleep(_LOOK_S)

    async def _put_former_back(self, rebuild: Rebuild) -> None:
        partition = rebuild.partition
        directory, new = partition.directory, partition.log
        await directory.executor.submit(
            directory.store.put_former_back,
            rebuild.former,
            new,
            self._new_uuid(),
            self._now_ms(),
        )
        rebuild.state = RebuildState.RESTORING
        partition.replace_log(rebuild.former, directory)
        partition.fail_waiters(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def _remove_former(self, rebuild: Rebuild) -> None:
        """Remove the former log of a replica that the metadata does not place here any more."""
        directory = rebuild.partition.directory
        if directory in self._replicas.directories and not directory.is_offline:
            await directory.executor.submit(
                directory.store.remove_former, rebuild.former, self._now_ms()
            )

    def _end(self, rebuild: Rebuild, failure: str = "") -> None:
        self._rebuilds.end(rebuild, failure)
        if failure:
            log.error("the rebuild of %s has failed: %s", rebuild, failure)
        else:
            log.info("%s is rebuilt, and in the ISR again", rebuild)

    def _report_directory(self, partition: Partition) -> None:
        directory_id = partition.directory.directory_id
        if directory_id:
            index = partition.topic_partition.partition
            self._assign(partition.topic_id, index, directory_id)
