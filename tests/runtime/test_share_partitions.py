"""Share partitions on their leader: fetches that wait, writes of state, leaderships that end."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.coordinator.share.delivery import UNINITIALIZED_OFFSET, StateBatch
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquisitionRequest,
    DeliverySettings,
)
from spindle.coordinator.share.share_sessions import SessionKey
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.coordinator.share.state_shard import WrittenState
from spindle.log.log_values import FetchedRecords
from spindle.protocol.records.batch import batches, patch_offset_and_epoch
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.runtime.share.offset_reset import duration_of
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

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.batches: list[bytes] = []

    def append(self, count: int) -> None:
        for _ in range(count):
            batch = bytearray(build_batch([SimpleRecord(None, b"v", 0)]))
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
    """A partition that this broker leads; everything in its log is committed."""

    def __init__(self) -> None:
        self.topic_partition = TopicPartition("t", 0)
        self.topic_id = TOPIC_ID
        self.leader_epoch = 3
        self.log = FakeLog()
        self.directory = self
        self.executor = self
        self.watchers: list[Any] = []

    @property
    def high_watermark(self) -> int:
        return len(self.log.batches)

    last_stable_offset = high_watermark

    def append(self, count: int) -> None:
        self.log.append(count)
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
        self.share = SharePartitions(
            cast(Any, self.replicas), cast(Any, self.store), lambda _: self.config, lambda: 0, 5
        )
        self.sizes: list[int] = []

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


async def test_a_fetch_waits_for_records_and_watches_nothing_afterwards() -> None:
    s = Leader()
    fetch = s.fetch(wait_ms=60_000)
    await settle()
    assert not fetch.done()
    s.hosted.append(3)
    part = (await fetch)[WHERE]
    assert part.acquired == [(0, 2, 1)]
    assert s.sizes == [len(part.records)]
    assert s.hosted.watchers == []
    s.share.close()


async def test_a_fetch_without_records_ends_with_its_time() -> None:
    s = Leader()
    assert await s.fetch(wait_ms=1) == {}
    s.share.close()


async def test_a_fetch_waits_without_work_while_others_have_all_records() -> None:
    s = Leader()
    s.hosted.append(2)
    await s.acquired("a")
    fetch = s.fetch("b", wait_ms=60_000)
    await settle()
    assert not fetch.done()
    assert await s.acknowledge(1, 1, RELEASE) is ErrorCode.NONE
    assert (await fetch)[WHERE].acquired == [(1, 1, 2)]
    s.share.close()


async def test_two_fetches_at_the_same_time_get_different_records() -> None:
    s = Leader()
    s.hosted.append(10)
    first, second = await asyncio.gather(
        s.acquired("a", max_records=4), s.acquired("b", max_records=6)
    )
    assert (first, second) == ([(0, 3, 1)], [(4, 9, 1)])
    s.share.close()


async def test_an_acknowledgement_is_answered_when_it_is_stored() -> None:
    s = Leader()
    s.hosted.append(4)
    await s.acquired()
    s.store.gate.clear()
    first = asyncio.ensure_future(s.acknowledge(0, 0))
    await settle()
    second = asyncio.ensure_future(s.acknowledge(1, 2))
    third = asyncio.ensure_future(s.acknowledge(3, 3))
    await settle()
    assert not first.done()
    s.store.gate.set()
    assert set(await asyncio.gather(first, second, third)) == {ErrorCode.NONE}
    # The two that waited for the first write share the next one.
    assert [write.start_offset for write in s.store.writes] == [1, 4]
    assert {write.leader_epoch for write in s.store.writes} == {3}
    s.share.close()


async def test_an_acknowledgement_that_cannot_be_stored_gets_the_error_and_can_be_repeated() -> (
    None
):
    s = Leader()
    s.hosted.append(1)
    await s.acquired()
    s.store.error = ErrorCode.NOT_COORDINATOR
    assert await s.acknowledge(0, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    s.store.error = None
    assert await s.acknowledge(0, 0) is ErrorCode.NONE
    s.share.close()


@pytest.mark.parametrize(
    ("stored", "code"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_fenced_leader_reads_the_state_again(stored: ErrorCode, code: ErrorCode) -> None:
    s = Leader()
    s.hosted.append(2)
    await s.acquired()
    s.store.error = stored
    assert await s.acknowledge(0, 0) is code
    s.store.error = None
    s.store.state = s.store.state._replace(start_offset=1, state_epoch=5)
    assert await s.acquired() == [(1, 1, 1)]
    assert await s.acknowledge(1, 1) is ErrorCode.NONE
    assert s.store.writes[-1].state_epoch == 5
    s.share.close()


async def test_a_state_that_cannot_be_read_is_an_error_of_the_fetch_and_is_read_again() -> None:
    s = Leader()
    s.hosted.append(1)
    s.store.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    error = (await s.fetch(wait_ms=60_000))[WHERE].error
    assert error is not None
    assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    s.store.error = None
    assert await s.acquired() == [(0, 0, 1)]
    s.share.close()


async def test_a_bug_leaves_no_member_waiting() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    s = Leader()
    s.hosted.append(1)
    await s.acquired()
    s.store.state = s.store.state._replace(batches=(StateBatch(0, 0, 77, 1),))
    s.store.bug = ValueError("a bug")
    assert await s.acknowledge(0, 0) is ErrorCode.UNKNOWN_SERVER_ERROR
    s.store.bug = None
    # The next one cannot read a state with an unknown number.
    error = (await s.fetch(wait_ms=60_000))[WHERE].error
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_lock_that_expires_wakes_a_fetch_and_is_stored() -> None:
    s = Leader(lock_duration_ms=5)
    s.hosted.append(1)
    await s.acquired("a")
    assert await s.acquired("b") == [(0, 0, 2)]
    await settle()
    assert s.store.writes[0].batches == [StateBatch(0, 0, 0, 1)]
    assert await s.acknowledge(0, 0, member="a") is ErrorCode.INVALID_RECORD_STATE
    s.share.close()


async def test_the_end_of_the_leadership_ends_fetches_and_acknowledgements() -> None:
    s = Leader()
    s.hosted.append(1)
    await s.acquired()
    s.store.gate.clear()
    acknowledged = asyncio.ensure_future(s.acknowledge(0, 0))
    fetch = s.fetch("b", wait_ms=60_000)
    await settle()
    s.replicas.hosted = None
    for listener in s.replicas.listeners:
        listener(s.hosted, False)
    assert await acknowledged is ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = (await fetch)[WHERE].error
    assert error is not None
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(s.share) == 0
    assert s.hosted.watchers == []


async def test_a_new_leader_epoch_reads_the_state_again() -> None:
    s = Leader()
    s.hosted.append(2)
    await s.acquired()
    s.hosted.leader_epoch = 4
    assert await s.acknowledge(0, 0) is ErrorCode.INVALID_RECORD_STATE
    assert await s.acquired() == [(0, 1, 1)]
    s.share.close()


async def test_a_session_that_ends_releases_what_its_member_holds() -> None:
    s = Leader()
    s.hosted.append(2)
    session = s.share.open_session(SessionKey("g", "a"))
    s.share.open_session(SessionKey("g", "b"))
    await s.acquired("a")
    s.share.end_session(session)
    s.share.end_session(session)
    assert await s.acquired("b") == [(0, 1, 2)]
    s.share.close()


async def test_a_group_without_sessions_leaves_nothing_behind() -> None:
    s = Leader()
    s.hosted.append(1)
    session = s.share.open_session(SessionKey("g", "a"))
    await s.acquired("a")
    s.share.end_session(session)
    await settle()
    assert s.store.writes[-1].batches == [StateBatch(0, 0, 0, 1)]
    assert len(s.share) == 0


async def test_a_broker_takes_no_more_sessions_than_allowed() -> None:
    s = Leader()
    for number in range(5):
        s.share.open_session(SessionKey("g", str(number)))
    with pytest.raises(ApiError) as error:
        s.share.open_session(SessionKey("g", "5"))
    assert error.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    s.share.open_session(SessionKey("g", "4"))
    with pytest.raises(ApiError) as error:
        s.share.sessions.continue_with(SessionKey("g", "4"), 2)
    assert error.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert s.share.sessions.continue_with(SessionKey("g", "4"), 1).epoch == 2
    s.share.close()


async def test_the_first_offset_follows_the_reset_of_the_group_and_is_stored() -> None:
    s = Leader(UNINITIALIZED_OFFSET)
    s.hosted.append(3)
    fetch = s.fetch(wait_ms=60_000)
    await settle()
    assert [write.start_offset for write in s.store.writes] == [3]
    s.hosted.append(1)
    assert (await fetch)[WHERE].acquired == [(3, 3, 1)]
    s.share.close()
    other = Leader(UNINITIALIZED_OFFSET)
    other.config = other.config._replace(auto_offset_reset="earliest")
    other.hosted.append(3)
    assert await other.acquired() == [(0, 2, 1)]
    other.share.close()


async def test_records_that_the_log_deletes_are_skipped() -> None:
    s = Leader()
    s.hosted.append(5)
    await s.acquired("a", max_records=2)
    s.hosted.log.log_start_offset = 4
    assert await s.acquired("b") == [(4, 4, 1)]
    await settle()
    assert s.store.writes[-1].start_offset == 4
    s.share.close()


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("latest", None),
        ("by_duration:PT0S", 0),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT15M", 900_000),
    ],
)
def test_durations_are_read_as_iso_8601(text: str, duration_ms: int | None) -> None:
    assert duration_of(text) == duration_ms
