"""A broker of two or three directories in memory, whose replicas move; without network and threads.

The real `ReplicaManager` and `ReplicaMover` work on a file system that can lose power at any
operation.
The controller of this file takes over every directory assignment at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Unpack

from cluster_image import ClusterImage, directory_of
from log_builders import NOW_MS, BatchFields, batch, values
from threadless_executor import ThreadlessExecutor

from spindle.common.errors import ErrorCode, LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.log_directory import LogDirectory
from spindle.log.log_config import LogConfig
from spindle.log.log_values import AppendInfo
from spindle.metadata.image import MetadataImage
from spindle.metadata.local_changes import (
    BecomeFollower,
    BecomeLeader,
    DeleteReplica,
    Instruction,
)
from spindle.protocol.records.batch import patch_offset_and_epoch
from spindle.protocol.records.validation import AppendOrigin
from spindle.replicas.moves.move import Move
from spindle.replicas.partition import Partition, ReplicationContext
from spindle.replicas.ports import FetchStart
from spindle.replicas.replica_manager import ReplicaManager
from spindle.replicas.topic_settings import TopicSettings
from spindle.replication.throttling import throttled_partitions
from spindle.runtime.broker.replica_mover import ReplicaMover
from spindle.runtime.disks.serial_executor import Job
from spindle.serving.quotas.rates import WindowedRate
from spindle.serving.quotas.replication import ReplicationQuota
from spindle.testing.filesystem import MemoryFileSystem

BROKER = 1
WHERE = TopicPartition("orders", 0)
SMALL = LogConfig(
    segment_bytes=1500, segment_index_bytes=240, index_interval_bytes=100, file_delete_delay_ms=100
)


class PowerLost(BaseException):
    """The machine went dark in the middle of an operation."""


class Disks(MemoryFileSystem):
    """A file system that loses power after `power_left` operations; None: never."""

    power_left: int | None = None

    def check(self, operation: str, path: str) -> None:
        if self.power_left is not None:
            self.power_left -= 1
            if self.power_left < 0:
                raise PowerLost
        super().check(operation, path)


class InlineExecutor(ThreadlessExecutor):
    """Runs each function at once and calls back in the next turn of the loop."""

    def __init__(self, path: str, on_failure: Callable[[LogDirectoryFailed], None]) -> None:
        super().__init__(path, asyncio.get_running_loop(), on_failure, 60.0)
        self.died = asyncio.Event()

    def _enqueue(self, job: Job) -> None:
        function, args, callback = job
        if self.died.is_set():
            return
        try:
            result, error = self._perform(function, args)
        except PowerLost:
            self.died.set()
            return
        if callback is not None:
            self._loop.call_soon(callback, result, error)


class LateExecutor(InlineExecutor):
    """Runs each function in the next turn of the loop, as a thread would."""

    def _enqueue(self, job: Job) -> None:
        self._loop.call_soon(super()._enqueue, job)


class HangingExecutor(LateExecutor):
    """Runs nothing more once its next function has the name `hangs_at`, until `release`."""

    hangs_at = ""

    def __init__(self, path: str, on_failure: Callable[[LogDirectoryFailed], None]) -> None:
        super().__init__(path, on_failure)
        self.waiting: list[Job] = []

    def _enqueue(self, job: Job) -> None:
        if self.waiting or job[0].__name__ == self.hangs_at:
            self.waiting.append(job)
        else:
            super()._enqueue(job)

    def release(self) -> None:
        """Run what has waited."""
        self.hangs_at = ""
        jobs, self.waiting = self.waiting, []
        for job in jobs:
            super()._enqueue(job)

    def give_up(self) -> None:
        """Fail, as after the limit for hanging disks."""
        failure = self.fail("the disk has not answered")
        jobs, self.waiting = self.waiting, []
        for _, _, callback in jobs:
            if callback is not None:
                self._loop.call_soon(callback, None, failure)


class View:
    """The committed metadata."""

    is_behind = False

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    @property
    def newest(self) -> MetadataImage:
        return self.image

    def is_created_since_stop(self, topic_id: Uuid) -> bool:
        return False

    def when_applied(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def forget(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    async def catch_up(self, timeout_s: float) -> bool:
        return True

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        return predicate(self.image)


class Fetching:
    """Notes whom a fetcher would feed."""

    def __init__(self) -> None:
        self.followed: list[Partition] = []
        self.lags: dict[Partition, int] = {}

    def follow(self, replicas: Sequence[FetchStart]) -> None:
        self.followed += [replica.partition for replica in replicas]

    def lag(self, partition: Partition) -> int:
        return self.lags.get(partition, -1)

    def throttle(self, partition: Partition) -> None:
        raise NotImplementedError

    def stop(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if partition in self.followed:
                self.followed.remove(partition)


class MovingBroker:
    """One life of a broker that leads `orders-0`.

    Attributes:
        assigned: what the controller was told, in order.
        records: directories as the controller has them; it records nothing while `is_deaf`.
    """

    def __init__(
        self,
        disks: Disks,
        cluster: ClusterImage,
        directories: int = 2,
        config: LogConfig = SMALL,
        uuids: Iterable[int] = count(1),
        executor: type[InlineExecutor] = InlineExecutor,
        moves_at_once: int = 2,
    ) -> None:
        self.disks = disks
        self.cluster = cluster
        self.assigned: list[Uuid] = []
        self.is_deaf = False
        self.rate = 2**63 - 1
        self.config = config
        self._uuids = uuids
        self._executor = executor
        self.directories = [self._directory(number) for number in range(directories)]
        view = View(cluster.image)
        self.view = view
        self.fetching = Fetching()
        settings = TopicSettings(
            config, 1, throttled_partitions((), 1), throttled_partitions((), 1)
        )
        self.replicas = ReplicaManager(
            ReplicationContext(BROKER, view, lambda: 0, 10_000, lambda *_: None),
            self.directories,
            lambda topic: settings,
            self._assign,
            self.fetching,
            lambda: NOW_MS,
            self._new_uuid,
        )
        self.steady_ms = 0
        self.quota = ReplicationQuota(
            WindowedRate(11, 1000, is_spread=False), self.rate, lambda: self.steady_ms
        )
        self.mover = ReplicaMover(
            self.replicas, self.quota, moves_at_once, lambda: True, lambda: NOW_MS
        )
        self._tasks: list[asyncio.Task[None]] = []

    def _new_uuid(self) -> Uuid:
        return next(iter(self._uuids)).to_bytes(16, "big")

    def _directory(self, number: int) -> LogDirectory:
        path = f"/disk{number}"
        self.disks.make_directories(path)
        self.disks.sync_directory("/")
        executor = self._executor(path, self._failed)
        store = DirectoryStore(self.disks, path)
        return LogDirectory(path, directory_of(BROKER, number), executor, store)

    def _failed(self, failure: LogDirectoryFailed) -> None:
        directory = self.replicas.directory_at(failure.path)
        assert directory is not None
        self.replicas.on_directory_failed(directory)

    # -- the controller

    def _assign(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        self.assigned.append(directory_id)
        if not self.is_deaf:
            self.record(directory_id)
            self._tasks.append(asyncio.create_task(self.follow_metadata()))

    def record(self, directory_id: Uuid) -> None:
        """Have the controller record the directory of this broker's replica."""
        known = self.cluster.image.topics.by_name["orders"].partitions[0]
        places = [
            directory_id if broker == BROKER else known.directory(broker)
            for broker in known.replicas
        ]
        self.cluster.change("orders", directories=places)

    async def follow_metadata(self) -> None:
        """React to the newest image, as the broker does."""
        self.view.image = self.cluster.image
        async with self.mover.lock:
            await self.replicas.apply(self._instructions())
            await self.replicas.put_aside_strays()
            await self.mover.settle()

    def _instructions(self) -> list[Instruction]:
        """Return what the newest image asks of this broker, whether it is new or not."""
        topics = self.cluster.image.topics.by_name
        replicas: list[Instruction] = [
            DeleteReplica(hosted.topic_partition, hosted.topic_id, True)
            for hosted in self.replicas
            if hosted.topic_partition.topic not in topics
        ]
        for name, topic in topics.items():
            for index, partition in topic.partitions.items():
                where = TopicPartition(name, index)
                if BROKER not in partition.replicas:
                    replicas.append(DeleteReplica(where, topic.topic_id, False))
                    continue
                kind = BecomeLeader if partition.leader == BROKER else BecomeFollower
                replicas.append(kind(where, topic.topic_id, partition, False, False))
        return replicas

    # -- life

    def expire(self) -> None:
        """Remove what waits for its deletion: `file.delete.delay.ms` has passed."""
        for directory in self.directories:
            if not directory.is_offline:
                directory.store.delete_expired(NOW_MS + self.config.file_delete_delay_ms)

    async def start(self) -> "MovingBroker":
        for directory in self.directories:
            if not directory.is_offline:
                loaded = await directory.executor.submit(
                    directory.store.load, lambda topic: self.config, NOW_MS
                )
                if not loaded.log_count and not loaded.deletion_count:
                    # As if the broker had run before its first topic was created.
                    directory.store.settle_missing(directory.store.missing_at_start)
                self.replicas.add_loaded(loaded.current, directory)
                self.replicas.futures.add(directory)
        await self.follow_metadata()
        return self

    async def bring_online(self, number: int) -> None:
        """Use a directory that failed again, with all that is in it."""
        failed, by = self.directories[number], self._directory(number)
        loaded = await by.executor.submit(by.store.load, lambda topic: self.config, NOW_MS)
        async with self.mover.lock_directory(failed):
            self.replicas.replace_directory(failed, by)
            self.replicas.add_loaded(loaded.current, by)
            self.replicas.futures.add(by)
        await self.follow_metadata()

    @property
    def is_dead(self) -> bool:
        return any(
            isinstance(d.executor, InlineExecutor) and d.executor.died.is_set()
            for d in self.directories
        )

    async def stop(self) -> None:
        """End all tasks without a word to the disks, as when the process dies."""
        await self.mover.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- the replica

    @property
    def partition(self) -> Partition:
        partition = self.replicas.lookup("orders", 0)
        assert partition is not None, "orders-0 is not hosted"
        return partition

    @property
    def move(self) -> Move:
        move = self.replicas.moves.get(self.partition)
        assert move is not None, "orders-0 does not move"
        return move

    async def append(self, *texts: str, **fields: Unpack[BatchFields]) -> AppendInfo:
        """Append a batch as a producer does; return when it is acknowledged."""
        done: asyncio.Future[AppendInfo] = asyncio.get_running_loop().create_future()

        def appended(info: AppendInfo | None, error: BaseException | None) -> None:
            if done.done():
                return
            if info is not None:
                done.set_result(info)
            else:
                done.set_exception(error or AssertionError("no answer"))

        records = bytearray(batch(*texts, **fields))
        self.partition.append(records, -1, NOW_MS, AppendOrigin.CLIENT, appended)
        return await done

    async def fill(self, batches: int = 12) -> list[tuple[int, str]]:
        """Append batches that need several segments; return what is in the log."""
        for number in range(batches):
            await self.append(f"{number:03d}" + "x" * 200)
        return values(self.partition.log)

    async def feed(self, *texts: str, leader_epoch: int = 0) -> None:
        """Append a batch as the follower that fetches does, once the replica is fetched for."""
        await self.until(lambda: self.partition in self.fetching.followed)
        log = self.partition.log
        records = bytearray(batch(*texts))
        patch_offset_and_epoch(records, 0, log.log_end_offset, leader_epoch)
        await self.partition.directory.executor.submit(
            log.append_as_follower, records, leader_epoch, NOW_MS
        )

    async def begin(self, target: int = 1) -> ErrorCode:
        return await self.mover.alter(self.partition, self.directories[target])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds, or the machine is dead."""
        for _ in range(100_000):
            if self.is_dead or holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never holds")

    async def until_moved(self, target: int = 1) -> None:
        directory = self.directories[target]
        await self.until(
            lambda: self.partition.directory is directory and not len(self.replicas.moves)
        )
        await self.until(lambda: not self.mover.is_busy)

    def names(self, number: int) -> list[str]:
        """Return the partition directories of a disk, without the unique parts of their names."""
        directory = self.disks.list_directory(f"/disk{number}")
        return [
            name.split(".")[0] + "".join(name.rpartition("-")[1:] if "." in name else ())
            for name in directory
            if name.startswith("orders")
        ]


def new_cluster(directories: int = 2, replicas: Sequence[int] = (BROKER,)) -> ClusterImage:
    """Return a cluster with one partition, led by the first of its replicas."""
    cluster = ClusterImage(*(replica for replica in replicas if replica != BROKER))
    cluster.register(BROKER, directories=directories)
    cluster.create("orders", list(replicas))
    cluster.change("orders", directories=[directory_of(replica) for replica in replicas])
    return cluster
