"""A log of `__consumer_offsets` in memory, and the cluster's metadata, for tests of the runtime."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from spindle.authorization.authorizer import Authorizer, NoAuthorizer
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, Endpoint, TopicPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.metadata.cluster import BrokerRegistration, ClusterImage
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage, TopicsImage, count_partitions
from spindle.protocol.records.batch import batches, patch_offset_and_epoch
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.coordinator.group_coordinator import GroupCoordinator
from spindle.runtime.coordinator.shard_writer import ShardSettings
from spindle.serving.context import RequestContext
from spindle.serving.unsupported_feature_log import RefusalLog

CONFIG = replace(GroupCoordinatorConfig(), initial_rebalance_delay_ms=0)


class MemoryLog:
    """Batches per partition. Appends wait while `gate` is set, and fail with `failure`."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.grown = asyncio.Event()
        self.refused = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.failure: ErrorCode | None = None
        self.load_gate: asyncio.Event | None = None
        self.load_failure: Exception | None = None
        self.limit_bytes = 1_048_588

    def put(self, partition: TopicPartition, batch: bytes) -> int:
        base_offset = self.ends.get(partition, 0)
        stored = bytearray(batch)
        ((_, header),) = batches(stored)
        patch_offset_and_epoch(stored, 0, base_offset, 0)
        self.batches.setdefault(partition, []).append(bytes(stored))
        self.ends[partition] = base_offset + header.record_count
        self.grown.set()
        return self.ends[partition] - 1

    async def append(self, partition: TopicPartition, batch: bytes, _: object = None) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            self.refused.set()
            raise ApiError(self.failure)
        return self.put(partition, batch)

    def max_batch_bytes(self, _: TopicPartition) -> int:
        return self.limit_bytes

    async def read_batches(self, partition: TopicPartition) -> AsyncIterator[bytes]:
        if self.load_gate is not None:
            await self.load_gate.wait()
        if self.load_failure is not None:
            raise self.load_failure
        for batch in list(self.batches.get(partition, ())):
            yield batch


def topic(name: str, topic_id: bytes, partitions: int, leader: int = 1) -> TopicImage:
    registration = PartitionRegistration((1,), (bytes(16),), (1,), (), (), (), (), leader, 0, 0, 0)
    counts = count_partitions([registration] * partitions)
    return TopicImage(name, topic_id, dict.fromkeys(range(partitions), registration), counts)


def image_of(*topics: TopicImage, is_fenced: bool = False) -> MetadataImage:
    """Return the metadata of a cluster that has only broker 1 and these topics."""
    broker = BrokerRegistration(
        broker_id=1,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("PLAINTEXT", "broker-1", 9092), Endpoint("INSIDE", "inner", 9093)),
        features={},
        rack=None,
        is_fenced=is_fenced,
        is_in_controlled_shutdown=False,
        directories=(),
        cordoned_directories=None,
    )
    return replace(
        EMPTY_IMAGE,
        topics=TopicsImage({t.topic_id: t for t in topics}, {t.name: t for t in topics}),
        cluster=ClusterImage({1: broker}, {}),
    )


@dataclass
class View:
    """The broker's view of the metadata.

    Attributes:
        on_catch_up: called while a request waits for the replicas; None if nothing changes until
            it times out.
        on_wait: called with the limit of each wait for another image.
    """

    image: MetadataImage
    is_behind: bool = False
    on_catch_up: Callable[[], None] | None = None
    on_wait: Callable[[float], Awaitable[None]] | None = None

    def when_applied(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError("no test of a coordinator waits in this way")

    def forget(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError("no test of a coordinator waits in this way")

    def is_created_since_stop(self, topic_id: Uuid) -> bool:
        raise NotImplementedError("no test of a coordinator creates replicas")

    async def catch_up(self, _: float) -> bool:
        if self.on_catch_up is None:
            return False
        self.on_catch_up()
        self.is_behind = False
        return True

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        if self.on_wait is not None:
            await self.on_wait(timeout_s)
        return predicate(self.image)


class Verifier:
    """The transaction coordinators: they answer with one code, and note the questions.

    Attributes:
        on_question: called with each question, before its answer.
    """

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.asked: list[tuple[str, int, int, TopicPartition, bool]] = []
        self.on_question: Callable[[], None] | None = None

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        for partition in partitions:
            self.asked.append((transactional_id, producer_id, producer_epoch, partition, adds))
        if self.on_question is not None:
            self.on_question()
        return dict.fromkeys(partitions, self.code)


class NoReplicas:
    """No replica is hosted."""

    def lookup(self, topic: str, partition: int) -> None:
        return None


@dataclass
class Broker:
    """The services that the handlers use."""

    groups: GroupCoordinator
    metadata: View
    log: MemoryLog
    verification: Verifier = field(default_factory=Verifier)
    replicas: ReplicaManager = field(default_factory=lambda: cast("ReplicaManager", NoReplicas()))
    refusals: RefusalLog = field(default_factory=lambda: RefusalLog(standing_clock))
    authorizer: Authorizer = field(default_factory=NoAuthorizer)
    created: list[str] = field(default_factory=list)
    on_create: Callable[[str], None] | None = None
    cluster_id: str = "cluster"
    node_id: int = 1

    async def ensure_internal_topic(self, name: str) -> None:
        self.created.append(name)
        if self.on_create is not None:
            self.on_create(name)


def standing_clock() -> int:
    """Return always the same time."""
    return 1_700_000_000_000


def ids() -> Callable[[], bytes]:
    count = 0

    def new_id() -> bytes:
        nonlocal count
        count += 1
        return count.to_bytes(16, "big")

    return new_id


def start_broker(
    *topics: TopicImage,
    partitions: int = 2,
    log: MemoryLog | None = None,
    config: GroupCoordinatorConfig = CONFIG,
    settings: ShardSettings | None = None,
    elect: bool = True,
    clock: Callable[[], int] = standing_clock,
) -> Broker:
    """Start a broker that leads all partitions of `__consumer_offsets`; needs a running loop."""
    log = log or MemoryLog()
    known = topics or (topic("t", b"t" * 16, 1),)
    view = View(image_of(topic(OFFSETS_TOPIC, b"o" * 16, partitions), *known))
    groups = GroupCoordinator(1, config, log, view, clock, ids(), settings)
    if elect:
        for partition in range(partitions):
            groups.on_elected(partition, 0)
    return Broker(groups, view, log)


def context(
    api_version: int, client_id: str = "app", listener: str = "PLAINTEXT"
) -> RequestContext:
    return RequestContext(0, api_version, 1, client_id, "127.0.0.1", listener)


async def settle() -> None:
    """Let every task that is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)
