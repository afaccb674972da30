"""A leader of a partition with share groups: its log and its stored state are fakes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquisitionRequest,
    DeadLetterRange,
    DeliverySettings,
)
from spindle.coordinator.share.share_sessions import SessionKey
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.coordinator.share.state_shard import WrittenState
from spindle.log.log_values import FetchedRecords
from spindle.protocol.records.batch import batches, patch_offset_and_epoch
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.runtime.share.settings import ShareDeliveryConfig
from spindle.runtime.share.share_partitions import SharePartitions
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.share_ports import FetchedSharePartition, ShareFetchTerms

TOPIC_ID = b"t" * 16
WHERE = TopicIdPartition(TOPIC_ID, 0)
KEY = ShareKey("g", TOPIC_ID, 0)
ACCEPT, RELEASE = 1, 2


class FakeLog:
    """Batches of one record each."""

    topic_partition = TopicPartition("t", 0)

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.batches: list[bytes] = []

    @property
    def log_end_offset(self) -> int:
        return len(self.batches)

    def append(self, count: int, values: Sequence[bytes] = ()) -> None:
        for number in range(count):
            value = values[number] if values else b"v"
            batch = bytearray(build_batch([SimpleRecord(None, value, 0)]))
            patch_offset_and_epoch(batch, 0, len(self.batches), 0)
            self.batches.append(bytes(batch))

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool
    ) -> FetchedRecords:
        del max_bytes, min_one_batch
        return FetchedRecords(memoryview(b"".join(self.batches[offset:end_offset])), offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[Any]:
        del start_offset, end_offset
        return []


class FakeHosted:
    """A partition that this broker leads; its log is committed, up to `committed` if it is set."""

    def __init__(self) -> None:
        self.topic_partition = TopicPartition("t", 0)
        self.topic_id = TOPIC_ID
        self.leader_epoch = 3
        self.log = FakeLog()
        self.directory = self
        self.executor = self
        self.watchers: list[Any] = []
        self.committed: int | None = None

    @property
    def high_watermark(self) -> int:
        return len(self.log.batches) if self.committed is None else self.committed

    last_stable_offset = high_watermark

    def append(self, count: int, values: Sequence[bytes] = ()) -> None:
        self.log.append(count, values)
        for watcher in list(self.watchers):
            watcher.committed()

    def watch(self, watcher: Any, *, appends: bool) -> None:
        assert not appends
        self.watchers.append(watcher)

    def unwatch(self, watcher: Any) -> None:
        self.watchers.remove(watcher)

    async def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)


class FakeReplicas:
    """The only partition, and the listeners of its leadership."""

    def __init__(self, hosted: FakeHosted) -> None:
        self.hosted: FakeHosted | None = hosted
        self.listeners: list[Callable[[Any, bool], None]] = []

    def on_leadership(self, listener: Callable[[Any, bool], None]) -> None:
        self.listeners.append(listener)

    def lookup(self, topic: str, index: int) -> FakeHosted | None:
        return self.hosted if (topic, index) == ("t", 0) else None

    def absent_error(self, topic: str, index: int, missing: ErrorCode) -> ErrorCode:
        del topic, index
        return missing

    def local_leader_error(self, hosted: FakeHosted, epoch: int) -> ErrorCode:
        del hosted, epoch
        return ErrorCode.NONE


class FakeStore:
    """The state of the only share partition; `gate` holds writes back while it is cleared."""

    def __init__(self, start_offset: int = 0) -> None:
        self.state = Snapshot(0, 0, 0, start_offset, 0, 0, 0, ())
        self.writes: list[WrittenState] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: ErrorCode | None = None
        self.bug: Exception | None = None

    async def read(self, key: ShareKey, leader_epoch: int) -> Snapshot:
        del leader_epoch
        assert key == KEY
        await asyncio.sleep(0)
        if self.error is not None:
            raise ApiError(self.error)
        return self.state

    async def write(self, key: ShareKey, written: WrittenState) -> None:
        assert key == KEY
        await self.gate.wait()
        if self.bug is not None:
            raise self.bug
        if self.error is not None:
            raise ApiError(self.error)
        self.writes.append(written)


class Leader:
    """A broker that leads the partition for group g."""

    def __init__(self, start_offset: int = 0, lock_duration_ms: int = 30_000) -> None:
        self.hosted = FakeHosted()
        self.replicas = FakeReplicas(self.hosted)
        self.store = FakeStore(start_offset)
        self.config = ShareDeliveryConfig(DeliverySettings(lock_duration_ms))
        self.letters: list[DeadLetterRange] = []
        self.letter_error: Exception | None = None
        self.share = SharePartitions(
            cast(Any, self.replicas),
            cast(Any, self.store),
            lambda _: self.config,
            lambda: 0,
            5,
            self.write_letters,
        )
        self.sizes: list[int] = []

    async def write_letters(self, hosted: Any, group_id: str, letters: DeadLetterRange) -> None:
        """Keep dead letters as the topic would."""
        assert (hosted, group_id) == (self.hosted, "g")
        await asyncio.sleep(0)
        if self.letter_error is not None:
            raise self.letter_error
        self.letters.append(letters)

    def fetch(
        self, member: str = "a", wait_ms: int = 0, max_records: int = 500
    ) -> "asyncio.Task[dict[TopicIdPartition, FetchedSharePartition]]":
        terms = ShareFetchTerms(
            "g", {WHERE: "t"}, wait_ms, 1, 1_000_000, AcquisitionRequest(member, max_records)
        )
        work = self.share.fetch(terms, FetchMemory(1_000_000), lambda _, n: self.sizes.append(n))
        return asyncio.get_running_loop().create_task(work)

    async def acquired(self, member: str = "a", **terms: int) -> Sequence[Any]:
        """Fetch, and return what the member has acquired."""
        terms.setdefault("wait_ms", 60_000)
        part = (await self.fetch(member, **terms))[WHERE]
        assert part.error is None
        held = [header.base_offset for _, header in batches(part.records)]
        assert held[-1] == part.acquired[-1].last_offset
        return part.acquired

    async def acknowledge(
        self, first: int, last: int, kind: int = ACCEPT, member: str = "a"
    ) -> ErrorCode:
        done = await self.share.acknowledge(
            SessionKey("g", member), {WHERE: ("t", [AcknowledgedBatch(first, last, [kind])])}
        )
        error = done[WHERE]
        return ErrorCode.NONE if error is None else error.code


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
