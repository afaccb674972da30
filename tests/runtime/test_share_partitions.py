"""Share partitions on their leader: fetches that wait, writes of state, leaderships that end."""

import asyncio

import pytest
from share_leader import RELEASE, WHERE, Leader, settle

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.share.delivery import UNINITIALIZED_OFFSET, StateBatch
from spindle.coordinator.share.share_sessions import SessionKey
from spindle.runtime.share.offset_reset import duration_of


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
