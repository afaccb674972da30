"""Log directories that are added, brought back online and removed while the broker runs.

The broker reports to the controller before a directory gets replicas, and after it has lost them: a
broker that registers again in the same incarnation keeps its epoch and changes its list of
directories (KIP-858). A change continues even if its client disconnects.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

from spindle.common.errors import ApiError, ConfigError, ErrorCode, LogDirectoryFailed
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.ports import FileSystem
from spindle.common.uuids import Uuid, UuidSource, uuid_text
from spindle.disks.admission import (
    Owner,
    check_apart,
    check_still_mounted,
    examine_directory,
    format_directory,
    plain_path,
)
from spindle.disks.alter_disks import (
    AlteredDirectory,
    DirectoryAction,
    DirectoryInUse,
    ReplicaState,
)
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.executor import DirectoryExecutor
from spindle.disks.log_directory import LogDirectory
from spindle.log.errors import InvalidLogDirectory
from spindle.log.formats.changed_log_dirs import ChangedLogDirs, write_changed_log_dirs
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.metadata.cluster import ClusterDelta, directories_changed_in_epoch
from spindle.metadata.features import DIRECTORY_ASSIGNMENT_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.metadata.local_changes import local_changes
from spindle.publication.loader import initial_publication
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.background import end
from spindle.runtime.broker.affected_replicas import AffectedReplicas
from spindle.runtime.broker.broker_metadata import BrokerMetadata
from spindle.runtime.broker.lifecycle import BrokerLifecycle, BrokerState
from spindle.runtime.disks.directory_logs import load_directory
from spindle.runtime.disks.open_directories import OpenDirectories

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class DirectoryPorts:
    """The parts of the process behind the directories of a broker.

    Attributes:
        metadata_log_dir: the path of the metadata log directory, which is never changed.
        configured: `log.dirs` of the property file, as absolute paths.
        changed: how the directories in use differ from `configured` at the start.
        share_open_files: returns the maximum of open files per directory for a number of
            directories; ConfigError if the process may open too few.
    """

    open_directories: OpenDirectories
    file_system: FileSystem
    metadata_log_dir: str
    configured: Sequence[str]
    changed: ChangedLogDirs
    share_open_files: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of the broker that take part in a change.

    Attributes:
        lock: held during every change of the replicas' directories.
        lock_directory: holds the lock while no replica in a directory is about to leave it.
        log_config_of: the settings of a topic by name.
        followed: the image that the replicas have applied.
        settle_moves: continues the moves between directories; called under the lock.
        report_for_election: reports the directory of a replica without a leader to the controller.
        on_changed: called after the list of directories has changed.
        on_failed: called for a directory that failed before it was in use.
    """

    node_id: int
    cluster_id: str
    replicas: ReplicaManager
    metadata: BrokerMetadata
    lifecycle: BrokerLifecycle
    lock: asyncio.Lock
    lock_directory: Callable[[LogDirectory], AbstractAsyncContextManager[None]]
    log_config_of: Callable[[str], LogConfig]
    followed: Callable[[], MetadataImage]
    settle_moves: Callable[[], Awaitable[None]]
    report_for_election: Callable[[Uuid, int, Uuid], None]
    on_changed: Callable[[], None]
    on_failed: Callable[[LogDirectoryFailed], None]
    now_ms: Callable[[], int]
    new_uuid: UuidSource


@dataclass(frozen=True, slots=True)
class _Opened:
    """A directory that is examined, locked and loaded, and not in use yet."""

    directory: LogDirectory
    was_formatted: bool
    logs: Sequence[Log]


class DirectoryChanges:
    """Runs one change after the other.

    Attributes:
        joining: a new directory that is being registered and has no replicas yet.
    """

    def __init__(self, ports: DirectoryPorts, parts: BrokerParts) -> None:
        self._ports = ports
        self._parts = parts
        self._changed = ports.changed
        self._affected = AffectedReplicas(parts.node_id, parts.metadata, parts.replicas)
        self._turn = asyncio.Lock()
        self._tasks: dict[asyncio.Task[AlteredDirectory], None] = {}
        self._is_stopped = False
        self.joining: LogDirectory | None = None

    def online_ids(self) -> list[Uuid]:
        """Return the ids of the directories to register as online."""
        joining = [] if self.joining is None else [self.joining]
        directories = (*self._parts.replicas.directories, *joining)
        return list(dict.fromkeys(d.directory_id for d in directories if not d.is_offline))

    async def change(
        self,
        action: DirectoryAction,
        path: str,
        accepted_losses: Collection[TopicPartition] = (),
    ) -> AlteredDirectory:
        """Add, bring back or remove a directory; return when the metadata shows the change.

        Args:
            accepted_losses: replicas that may start again without their records. Otherwise a
                directory is not brought back if a replica would be lost. They may also be replicas
                of a directory that was lost before the start; PATH is then online.

        Raises:
            ApiError: INVALID_REQUEST, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR or
                BROKER_NOT_AVAILABLE, with a sentence for people. `DirectoryInUse` names replicas.
        """
        works: dict[DirectoryAction, Callable[[str], Awaitable[AlteredDirectory]]] = {
            DirectoryAction.ADD: self._add,
            DirectoryAction.ONLINE: partial(self._bring_online, accepted=accepted_losses),
            DirectoryAction.REMOVE: self._remove_directory,
        }
        task = asyncio.get_running_loop().create_task(self._in_turn(works[action], path))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise _stopping() from None

    def ask_for_leaders(self, delta: ClusterDelta) -> None:
        """Report the replicas of a directory that came back before its failure was reported."""
        kept = dict(directories_changed_in_epoch(delta)).get(self._parts.node_id)
        for partition in () if kept is None else self._parts.replicas:
            if not partition.is_offline and partition.directory.directory_id not in (kept or ()):
                self._ask_for_leader(partition)

    async def stop(self) -> None:
        """Cancel the running change; the next start finds each directory old or new."""
        self._is_stopped = True
        await end(*self._tasks)

    async def _in_turn(
        self, work: Callable[[str], Awaitable[AlteredDirectory]], path: str
    ) -> AlteredDirectory:
        async with self._turn:
            if self._is_stopped or self._parts.lifecycle.state is not BrokerState.RUNNING:
                raise _stopping()
            try:
                return await work(plain_path(path))
            except LogDirectoryFailed as failure:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from None
            except (ConfigError, InvalidLogDirectory) as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

    # -- the three actions

    async def _add(self, path: str) -> AlteredDirectory:
        parts = self._parts
        known = parts.replicas.directory_at(path)
        if known is not None:
            advice = "; `spindle disks online` brings it back" if known.is_offline else ""
            raise _refused(f"{path} is a log directory of broker {parts.node_id} already{advice}")
        if path == self._ports.metadata_log_dir:
            # A second thread would release the directory's lock, and would end the node if it
            # failed.
            raise _refused(
                f"{path} holds the metadata log; name it in log.dirs and restart the broker"
            )
        _check_answering(path, self._ports.open_directories.hangs(path))
        open_files = self._ports.share_open_files(len(parts.replicas.directories) + 1)
        opened = await self._open(path, open_files, None)
        try:
            await self._remember(self._changed.with_added(path, self._ports.configured))
            await self._announce(opened.directory, None)
            for directory in parts.replicas.directories:
                directory.executor.submit_nowait(directory.store.storage.handles.limit, open_files)
            return await self._join(opened, None)
        except asyncio.CancelledError:
            if opened.directory not in parts.replicas.directories:
                # The next start uses it: without a clean-shutdown file the broker would count as
                # killed, and would leave the replicas that may lead.
                await self._close(opened.directory)
            raise
        finally:
            self.joining = None

    async def _bring_online(
        self, path: str, accepted: Collection[TopicPartition]
    ) -> AlteredDirectory:
        parts = self._parts
        failed = self._known(path)
        if not failed.is_offline:
            return await self._accept_losses(failed, accepted)
        _check_answering(path, failed.executor.hangs())
        await self._until_known_as_failed(failed)
        open_files = self._ports.share_open_files(len(parts.replicas.directories))
        opened = await self._open(path, open_files, failed, accepted)
        try:
            await self._announce(opened.directory, failed.directory_id)
            parts.replicas.accept_losses(accepted)
            return await self._join(opened, failed, accepted)
        finally:
            parts.replicas.accept_losses(())
            self.joining = None

    async def _accept_losses(
        self, directory: LogDirectory, accepted: Collection[TopicPartition]
    ) -> AlteredDirectory:
        """Create empty logs for replicas whose directory this broker has lost."""
        parts, path = self._parts, directory.path
        async with parts.lock:
            lost = self._affected.lost_for_good()
            wrong = [where for where in accepted if where not in lost]
            if wrong:
                raise _refused(
                    f"{path} is online, and {wrong[0]} is not a lost replica of this broker"
                )
            if not lost:
                raise _refused(
                    f"{path} is online, and no replica of this broker is lost: nothing to bring "
                    "back online"
                )
            if not accepted:
                raise DirectoryInUse(
                    path,
                    dict.fromkeys(lost, ReplicaState.OFFLINE),
                    f"{path} is online, and {len(lost)} replica{'' if len(lost) == 1 else 's'} of "
                    f"broker {parts.node_id} stay offline because their logs are missing: their "
                    "directory was replaced or is not in log.dirs, or their folders are not in it "
                    "any more; bring directory or folder back and restart the broker, or accept "
                    "each loss by name (--accept-loss)",
                )
            parts.replicas.accept_losses(accepted)
            try:
                await self._host_missing()
            finally:
                parts.replicas.accept_losses(())
        for where in accepted:
            partition = parts.replicas.lookup(*where)
            if partition is not None:
                self._ask_for_leader(partition)
        states = self._affected.states(accepted, (), accepted)
        return AlteredDirectory(directory.path, directory.directory_id, replicas=states)

    async def _remove_directory(self, path: str) -> AlteredDirectory:
        parts, ports = self._parts, self._ports
        directory = self._known(path)
        if path == ports.metadata_log_dir:
            raise _refused(f"{path} holds the metadata log; it cannot be removed")
        if all(d is directory or d.is_offline for d in parts.replicas.directories):
            raise _refused(f"{path} is the last log directory of broker {parts.node_id}")
        if directory.is_offline:
            return await self._remove_failed(directory)
        async with parts.lock:
            self._affected.check_empty(directory)
            changed = self._changed.with_retired(path, ports.configured)
            await self._remember(changed)
            parts.replicas.remove_directory(directory)
            parts.on_changed()
        await self._close(directory)
        ports.open_directories.remove(path)
        log.info("log directory %s was removed", path)
        if directory.directory_id:
            parts.lifecycle.register_again()
            await self._until_registered(directory.directory_id, is_wanted=False)
        return AlteredDirectory(path, directory.directory_id)

    async def _remove_failed(self, failed: LogDirectory) -> AlteredDirectory:
        """Remove a directory whose disk failed: create its replicas in other directories."""
        parts, ports = self._parts, self._ports
        await self._until_known_as_failed(failed)
        async with parts.lock_directory(failed):
            affected = self._affected.lost_with(failed)
            self._affected.check_other_copies(failed, affected)
            await self._remember(self._changed.with_retired(failed.path, ports.configured))
            parts.replicas.remove_directory(failed)
            await self._host_missing()
            parts.on_changed()
        ports.open_directories.remove(failed.path)
        log.info("log directory %s was removed; it had failed", failed.path)
        if failed.directory_id:
            # It is not reported as offline any more: its disk may be added again.
            parts.lifecycle.register_again(failed.directory_id)
        states = self._affected.states(affected, ())
        return AlteredDirectory(failed.path, failed.directory_id, replicas=states)

    # -- steps

    async def _until_known_as_failed(self, failed: LogDirectory) -> None:
        """Wait until the controller has taken the replicas of a directory out of their ISRs.

        Until then, none of them may start again without its records.
        """
        if self._parts.metadata.newest.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
            raise _refused("metadata.version is below 3.7-IV2, which does not know directories")
        if failed.directory_id:
            await self._until_registered(failed.directory_id, is_wanted=False)
        while not await self._parts.metadata.wait_for(
            lambda image: not self._affected.is_any_unassigned(failed, image), _LOOK_AGAIN_S
        ):
            log.warning("the controller does not know yet which replicas were in %s", failed.path)

    def _known(self, path: str) -> LogDirectory:
        directory = self._parts.replicas.directory_at(path)
        if directory is None:
            paths = ", ".join(d.path for d in self._parts.replicas.directories)
            raise ApiError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                f"broker {self._parts.node_id} has no log directory {path}; it has {paths}",
            )
        return directory

    async def _open(
        self,
        path: str,
        open_files: int,
        failed: LogDirectory | None,
        accepted: Collection[TopicPartition] = (),
    ) -> _Opened:
        """Examine, lock, format and load a directory on a thread of its own."""
        ports, parts = self._ports, self._parts
        doors, files = ports.open_directories, ports.file_system
        others = [d for d in parts.replicas.directories if d is not failed]
        paths = [d.path for d in others if not d.is_offline] + [ports.metadata_log_dir]
        owner = Owner(
            parts.cluster_id,
            parts.node_id,
            {d.path: d.directory_id for d in others if d.directory_id},
            [d.path for d in others if d.is_offline],
        )
        thread = doors.probe(path)
        try:
            if failed is not None:
                # The former thread no longer uses these files.
                await thread.submit(failed.store.close_without_flush)
            await thread.submit(_check_apart, path, [p for p in paths if p != path])
            examine = partial(examine_directory, may_make=failed is None)
            properties = await thread.submit(examine, files, path, owner)
            if failed is not None and properties is None:
                await thread.submit(check_still_mounted, files, path, failed.mount_point)
                self._affected.check_losses(failed, None, (), accepted)
            await doors.lock(path, thread)
            directory_id = await thread.submit(
                format_directory, files, path, properties, owner, parts.new_uuid, parts.now_ms()
            )
            store = DirectoryStore(files, path, open_files)
            loaded = await load_directory(thread, store, parts.log_config_of, parts.now_ms())
            if failed is not None and properties is not None:
                logs = (*loaded.current, *store.future_logs.values())
                self._affected.check_losses(failed, directory_id, logs, accepted)
            mount_point = await thread.submit(files.mount_point, path)
        except BaseException:
            await self._give_up(path, thread)
            raise
        directory = LogDirectory(path, directory_id, thread, store, mount_point)
        return _Opened(directory, properties is None, loaded.current)

    async def _give_up(self, path: str, thread: DirectoryExecutor) -> None:
        try:
            await self._ports.open_directories.unlock(path, thread)
        except LogDirectoryFailed:
            log.warning("the lock of %s was not released", path)
        thread.fail("it was not taken into use")

    async def _remember(self, changed: ChangedLogDirs) -> None:
        """Store the directories that the next start uses."""
        ports = self._ports
        thread = ports.open_directories.thread(ports.metadata_log_dir)
        await thread.submit(
            write_changed_log_dirs, ports.file_system, ports.metadata_log_dir, changed
        )
        self._changed = changed

    async def _announce(self, directory: LogDirectory, forgotten: Uuid | None) -> None:
        """Register the broker with the directory; return when this broker's metadata shows it."""
        self.joining = directory
        self._parts.lifecycle.register_again(forgotten)
        await self._until_registered(directory.directory_id, is_wanted=True)

    async def _until_registered(self, directory_id: Uuid, *, is_wanted: bool) -> None:
        node_id = self._parts.node_id

        def is_so(image: MetadataImage) -> bool:
            if self.joining is not None and self.joining.is_offline:
                return True  # it failed meanwhile: no registration will name it
            if image.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
                return True
            own = image.cluster.brokers.get(node_id)
            return own is not None and (directory_id in own.directories) is is_wanted

        while not await self._parts.metadata.wait_for(is_so, _LOOK_AGAIN_S):
            log.warning(
                "the controller has not %s directory %s yet",
                "registered" if is_wanted else "removed",
                uuid_text(directory_id),
            )

    async def _join(
        self,
        opened: _Opened,
        failed: LogDirectory | None,
        accepted: Collection[TopicPartition] = (),
    ) -> AlteredDirectory:
        """Start to use the directory, with the replicas that it has or had."""
        parts, directory = self._parts, opened.directory
        replicas = parts.replicas
        async with parts.lock if failed is None else parts.lock_directory(failed):
            affected = self._affected.recorded_in(directory.directory_id)
            if opened.was_formatted:
                with contextlib.suppress(LogDirectoryFailed):
                    # It is new, so it lacks no log, although it has no checkpoints.
                    await directory.executor.submit(directory.store.settle_missing, ())
            if failed is None:
                replicas.directories.append(directory)
            else:
                affected += self._affected.recorded_in(failed.directory_id)
                affected += replicas.replace_directory(failed, directory)
            replicas.add_loaded(opened.logs, directory)
            replicas.futures.add(directory)
            await self._host_missing()
            # A log found here may be an old copy of a replica that is in another directory.
            affected += [
                partition.topic_partition for partition in replicas.in_directory(directory)
            ]
            parts.on_changed()
        self._ports.open_directories.replace(directory.path, directory.executor)
        log.info(
            "log directory %s, id %s, is in use: %d logs were found",
            directory.path,
            uuid_text(directory.directory_id),
            len(opened.logs),
        )
        failure = directory.executor.failure
        if failure is not None:
            parts.on_failed(failure)
            raise failure
        self._ask_for_leaders(opened)
        return AlteredDirectory(
            directory.path,
            directory.directory_id,
            opened.was_formatted,
            self._affected.states(affected, opened.logs, accepted),
        )

    async def _host_missing(self) -> None:
        """Host the replicas that the metadata places here and that are not hosted yet."""
        parts = self._parts
        placed = local_changes(initial_publication(parts.followed()).delta, parts.node_id)
        missing = [i for i in placed if parts.replicas.lookup(*i.topic_partition) is None]
        await parts.replicas.apply(missing)
        await parts.replicas.put_aside_strays()
        await parts.settle_moves()

    def _ask_for_leaders(self, opened: _Opened) -> None:
        """Report the directory of replicas whose partitions have no leader.

        A controller elects one when it learns the directory of a replica. It does not when a
        directory comes back.
        """
        result = {id(log): None for log in opened.logs}
        for partition in self._parts.replicas.in_directory(opened.directory):
            if id(partition.log) in result:
                self._ask_for_leader(partition)

    def _ask_for_leader(self, partition: Partition) -> None:
        directory_id = partition.directory.directory_id
        if self._parts.replicas.rebuilds.hides(partition):
            return  # it must not be elected before it has all records
        if partition.leader_id == NO_LEADER and directory_id is not None:
            _, index = partition.topic_partition
            self._parts.report_for_election(partition.topic_id, index, directory_id)

    async def _close(self, directory: LogDirectory) -> None:
        """Close the files of a directory and release its lock; its disk may fail meanwhile."""
        epoch = self._parts.lifecycle.broker_epoch
        try:
            await directory.executor.submit(directory.store.close, epoch)
            await self._ports.open_directories.unlock(directory.path, directory.executor)
        except LogDirectoryFailed as failure:
            log.warning("%s", failure)
        directory.executor.fail("it was removed")


def _check_apart(path: str, others: Sequence[str]) -> None:
    check_apart(path, os.path.realpath(path), {os.path.realpath(other): other for other in others})


def _check_answering(path: str, hangs: bool) -> None:
    if hangs:
        raise _refused(f"the disk of {path} still hangs: a write to it may yet go through")


def _refused(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)


def _stopping() -> ApiError:
    return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is starting or stopping")
