"""A broker's replicas with a clock, disks and metadata that the test moves, to tell stories.

Broker 1 is the real `ReplicaManager` over logs in memory; brokers 2, 3, ... exist in the metadata
only, and the test fetches for them. `cluster` is the committed metadata. `publish()` delivers to
the broker all that was committed since the last time, in one delta. Work on a directory is done as
soon as the scenario runs, unless `hold_disk()` keeps it waiting. The broker's proposed ISRs and its
followers are noted, and the test answers for the controller and the leaders.
"""

from collections.abc import Coroutine, Iterable, Sequence
from random import Random
from typing import Any, TypedDict, TypeVar, Unpack

from cluster_image import ClusterImage, directory_of
from metadata_history import uuid
from threadless_executor import ThreadlessExecutor

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.log_directory import LogDirectory
from spindle.log.log_config import LogConfig
from spindle.log.log_values import AppendInfo
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import MetadataImage, MetadataProvenance
from spindle.metadata.local_changes import local_changes
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.validation import AppendOrigin
from spindle.protocol.sentinels import ACKS_ALL
from spindle.publication.loader import Publication
from spindle.replicas.partition import Partition, ReplicationContext
from spindle.replicas.ports import FetchStart
from spindle.replicas.replica_manager import ReplicaManager
from spindle.replicas.topic_settings import TopicSettings
from spindle.replication.fetch_session import FetchSession
from spindle.replication.leader_state import IsrProposal
from spindle.replication.throttling import ThrottledPartitions
from spindle.runtime.broker.broker_metadata import BrokerMetadata
from spindle.runtime.disks.serial_executor import Job
from spindle.testing.filesystem import MemoryFileSystem
from verification.simulation.loop import SimulatedLoop

ME = 1
"""The broker under test."""
LAG_MS = 30_000
NOW_MS = 1_700_000_000_000
NOBODY = ThrottledPartitions(False, frozenset())
T = TypeVar("T")


class ProducerFields(TypedDict, total=False):
    """The arguments that `batch_of` passes to `build_batch`."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    codec: int
    is_transactional: bool


class HeldDirectory(ThreadlessExecutor):
    """The I/O thread of a directory: its jobs run in order, at once or when they are released."""

    def __init__(self, path: str, loop: SimulatedLoop, on_failure: Any) -> None:
        super().__init__(path, loop, on_failure, float("inf"))
        self.is_held = False
        self._jobs: list[Job] = []

    def _enqueue(self, job: Job) -> None:
        self._jobs.append(job)
        self._loop.call_soon(self._run_all)

    def release(self) -> None:
        """Do what has gathered, and whatever comes, at once again."""
        self.is_held = False
        self._run_all()

    def _run_all(self) -> None:
        while self._jobs and not self.is_held:
            function, args, callback = self._jobs.pop(0)
            result, error = self._perform(function, args)
            if callback is not None:
                callback(result, error)


class Answer:
    """The result of an append, once there is one."""

    def __init__(self) -> None:
        self.info: AppendInfo | None = None
        self.code: ErrorCode | None = None

    @property
    def is_waiting(self) -> bool:
        return self.code is None

    @property
    def offset(self) -> int:
        """The first offset of what was appended."""
        assert self.info is not None
        return self.info.first_offset

    def __call__(self, info: AppendInfo | None, error: BaseException | None) -> None:
        assert self.code is None, "answered twice"
        self.info = info
        self.code = ErrorCode.NONE
        if error is not None:
            self.code = error.code if isinstance(error, ApiError) else None
            if self.code is None:
                self.code = ErrorCode.KAFKA_STORAGE_ERROR


class Fetchers:
    """Followers that the broker wants to be fed, by topic and partition: the leader of each."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int] = {}
        self.throttled: list[tuple[str, int]] = []
        self.lags: dict[Partition, int] = {}

    def follow(self, replicas: Sequence[FetchStart]) -> None:
        for partition, *_ in replicas:
            self.leaders[partition.topic_partition] = partition.leader_id

    def lag(self, partition: Partition) -> int:
        return self.lags.get(partition, -1)

    def throttle(self, partition: Partition) -> None:
        self.throttled.append(partition.topic_partition)

    def stop(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.leaders.pop(partition.topic_partition, None)


class BrokerScenario:
    """Broker 1 of a cluster.

    Attributes:
        proposals: in-sync sets that the broker asked the controller for and that have no answer.
        fetchers: the followers that it wants to be fed.
        misplaced: (topic id, partition, directory id) of replicas reported elsewhere (KIP-858).
        settings: by topic, what differs from the defaults of `topic_settings`.
    """

    def __init__(
        self,
        brokers: Sequence[int] = (1, 2, 3),
        *,
        directories: int = 1,
        is_started: bool = True,
        stored_end_offset: int | None = None,
    ) -> None:
        self.loop = SimulatedLoop()
        self.cluster = ClusterImage()
        for broker_id in brokers:
            self.cluster.register(broker_id, directories=directories)
        self.files = MemoryFileSystem()
        self.directories = [self._directory(n) for n in range(directories)]
        self.metadata = BrokerMetadata(self._react, self._broken)
        end_offset = self.image.provenance.last_offset + 1
        self.metadata.stored_end_offset = (
            end_offset if stored_end_offset is None else stored_end_offset
        )
        self.proposals: list[tuple[Partition, IsrProposal]] = []
        self.fetchers = Fetchers()
        self.misplaced: list[tuple[Uuid, int, Uuid]] = []
        self.settings: dict[str, TopicSettings] = {}
        self._random = Random(1)
        self.replicas = ReplicaManager(
            ReplicationContext(
                ME,
                self.metadata,
                self.steady_ms,
                LAG_MS,
                lambda partition, proposal: self.proposals.append((partition, proposal)),
            ),
            self.directories,
            lambda topic: self.settings.get(topic) or topic_settings(),
            lambda *where: self.misplaced.append(where),
            self.fetchers,
            lambda: NOW_MS,
            lambda: uuid(self._random.randrange(1 << 40, 1 << 41)),
        )
        self.metadata.on_publication(Publication(MetadataDelta(self.image), self.image, 0))
        if is_started:
            self._start()

    def _directory(self, number: int) -> LogDirectory:
        path = f"/disk{number}"
        self.files.make_directories(path)
        executor = HeldDirectory(path, self.loop, lambda failure: None)
        store = DirectoryStore(self.files, path)
        store.load(lambda topic: LogConfig(), NOW_MS)
        return LogDirectory(path, directory_of(ME, number), executor, store)

    def start(self, broker_epoch: int) -> None:
        """Let the broker react for the first time; on its disk was the metadata of `__init__`.

        Args:
            broker_epoch: of the last run, in which it stopped; -1 if it was killed.
        """
        self.hear()
        self.metadata.stopped(ME, broker_epoch)
        self._start()

    def _start(self) -> None:
        async def start() -> None:
            self.metadata.start()

        self.run(start())
        self.settle()

    def _broken(self, reason: str) -> None:
        raise AssertionError(reason)

    async def _react(self, publication: Publication) -> None:
        await self.replicas.apply(local_changes(publication.delta, ME))
        await self.replicas.put_aside_strays()
        is_newest = publication.image is self.metadata.image
        self.replicas.resume_waiting(all_is_done=is_newest)
        if publication.delta.cluster.changed_brokers:
            self.replicas.review_isrs()

    # ------------------------------------------------------------ time and order

    def steady_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work of the event loop to its end."""
        return self.loop.run_until_complete(work)

    def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        for _ in range(20):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; timers ring on their way."""

        async def pass_() -> None:
            future: Any = self.loop.create_future()
            self.loop.call_later(duration_ms / 1000, future.set_result, None)
            await future

        self.run(pass_())
        self.settle()

    def hold_disk(self, number: int = 0) -> None:
        """Work on the directory waits from now on."""
        self._executor(number).is_held = True

    def release_disk(self, number: int = 0) -> None:
        self._executor(number).release()
        self.settle()

    def fail_disk(self, number: int = 0) -> None:
        """Let the directory fail, and the broker notice it."""
        directory = self.directories[number]
        directory.executor.fail(OSError("the disk is gone"))
        self.replicas.on_directory_failed(directory)
        self.settle()

    def _executor(self, number: int) -> HeldDirectory:
        executor = self.directories[number].executor
        assert isinstance(executor, HeldDirectory)
        return executor

    # ------------------------------------------------------------ metadata

    @property
    def image(self) -> MetadataImage:
        """Return the committed image, whether the broker has heard of it or not."""
        return self.cluster.image

    def publish(self) -> None:
        """Deliver to the broker everything committed since the last delivery, as one delta."""
        self.hear()
        self.settle()

    def hear(self) -> None:
        """Give the broker the new image; its replicas follow with `settle()`."""
        before = self.metadata.newest
        delta = MetadataDelta(before)
        for offset, record in self.cluster.records_after(before.provenance.last_offset):
            delta.replay(record, offset)
        image = delta.apply(MetadataProvenance(self.image.provenance.last_offset, 1, 0))
        self.metadata.on_publication(Publication(delta, image, 0))

    def create(self, topic: str, *replicas: Sequence[int]) -> Uuid:
        """Create a topic and hear of it; return its id."""
        topic_id = self.cluster.create(topic, *replicas)
        self.publish()
        return topic_id

    def change(self, topic: str, index: int = 0, **fields: object) -> None:
        """Change a partition and hear of it; see `ClusterImage.change`."""
        self.cluster.change(topic, index, **fields)
        self.publish()

    # ------------------------------------------------------------ leading

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        partition = self.replicas.lookup(topic, index)
        assert partition is not None, f"{topic}-{index} is not here"
        return partition

    def append(
        self,
        *values: str,
        topic: str = "t",
        acks: int = ACKS_ALL,
        leader_epoch: int = -1,
        **batch: Unpack[ProducerFields],
    ) -> Answer:
        """Append records as a client of the leader would; see `batch_of` for `batch`.

        Transactional ones are those of a coordinator, which verifies them itself.
        """
        answer = Answer()
        is_transactional = batch.get("is_transactional", False)
        origin = AppendOrigin.COORDINATOR if is_transactional else AppendOrigin.CLIENT
        self.partition(topic).append(
            batch_of(*values, **batch), acks, NOW_MS, origin, answer, leader_epoch
        )
        self.settle()
        return answer

    def end_transaction(self, producer_id: int, *, is_committed: bool, topic: str = "t") -> None:
        """Append the marker that ends a producer's transaction."""
        marker = build_end_transaction(
            EndTransactionMarker(is_committed, 0), producer_id, 0, NOW_MS
        )
        answer = Answer()
        self.partition(topic).append(marker, 1, NOW_MS, AppendOrigin.COORDINATOR, answer)
        self.settle()
        assert answer.code == ErrorCode.NONE

    def follower_fetches(
        self,
        replica: int,
        offset: int,
        *,
        topic: str = "t",
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        log_start_offset: int = 0,
    ) -> ErrorCode:
        """Fetch as a follower from `offset` on; return the error."""
        partition = self.partition(topic)
        if broker_epoch is None:
            broker_epoch = self.cluster.broker_epoch(replica)
        epoch = partition.leader_epoch if leader_epoch is None else leader_epoch
        code = self.replicas.local_leader_error(partition, epoch)
        code = code or partition.replica_error(replica, broker_epoch, epoch)
        if not code:
            session = FetchSession(1, True, self.steady_ms(), is_replica=True)
            partition.follower_fetched(replica, offset, log_start_offset, broker_epoch, session)
        self.settle()
        return code

    def delete_records(self, offset: int, topic: str = "t") -> None:
        """Delete the leader's records before the offset, which must be committed."""
        partition = self.partition(topic)
        executor = partition.directory.executor
        executor.submit_nowait(partition.log.increment_log_start_offset, offset)
        self.settle()
        partition.log_start_moved()
        self.settle()

    # ------------------------------------------------------------ the controller's answers

    def proposal(self) -> tuple[int, ...] | None:
        """Return the ISR that was proposed last; None without one."""
        return self.proposals[-1][1].isr if self.proposals else None

    def accept(self, *, is_heard: bool = True) -> None:
        """Commit the oldest proposal as the controller, and answer it."""
        partition, proposal = self.proposals.pop(0)
        where = partition.topic_partition
        self.cluster.change(where.topic, where.partition, isr=list(proposal.isr))
        known = self.image.topics.by_name[where.topic].partitions[where.partition]
        partition.isr_committed(proposal, known.leader_epoch, known.partition_epoch, known.isr)
        if is_heard:
            self.publish()

    def refuse(self, code: ErrorCode) -> None:
        """Refuse the oldest proposal as the controller."""
        partition, proposal = self.proposals.pop(0)
        partition.isr_refused(proposal, code)
        self.settle()


def topic_settings(
    *,
    min_isr: int = 1,
    throttled_as_leader: ThrottledPartitions = NOBODY,
    throttled_as_follower: ThrottledPartitions = NOBODY,
    **log: Any,
) -> TopicSettings:
    """Return settings of a topic; `log` are fields of `LogConfig`."""
    return TopicSettings(LogConfig(**log), min_isr, throttled_as_leader, throttled_as_follower)


def batch_of(*values: str, **options: Unpack[ProducerFields]) -> bytes:
    """Return a batch; `options` are those of `build_batch`, such as producer id and epoch."""
    return build_batch(
        [SimpleRecord(value=value.encode(), timestamp_ms=NOW_MS) for value in values], **options
    )
