"""Dead letters on the leader of a share partition: written once stored, archived in any case."""

from share_leader import Leader, settle

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.coordinator.share.delivery import DeliveryState, StateBatch
from spindle.coordinator.share.share_partition import DeadLetterRange
from spindle.coordinator.share.share_sessions import SessionKey

REJECT = 3


def leader() -> Leader:
    s = Leader()
    s.config = s.config._replace(delivery=s.config.delivery._replace(has_dead_letters=True))
    s.hosted.append(2)
    return s


async def test_a_rejected_record_is_written_and_then_archived() -> None:
    s = leader()
    await s.acquired()
    assert await s.acknowledge(0, 1, REJECT) is ErrorCode.NONE
    await settle()
    assert s.letters == [DeadLetterRange(0, 1, 1, True)]
    assert [write.start_offset for write in s.store.writes] == [0, 2]
    s.share.close()


async def test_a_record_is_archived_even_if_the_dead_letter_cannot_be_written() -> None:
    s = leader()
    s.letter_error = ApiError(ErrorCode.INVALID_CONFIG, "no")
    await s.acquired()
    await s.acknowledge(0, 1, REJECT)
    await settle()
    assert s.store.writes[-1].start_offset == 2
    s.share.close()


async def test_records_whose_disk_has_failed_are_left_to_the_next_leader() -> None:
    s = leader()
    s.letter_error = LogDirectoryFailed("/d", "gone", 0)
    await s.acquired()
    await s.acknowledge(0, 1, REJECT)
    await settle()
    (batch,) = s.store.writes[-1].batches
    assert batch.delivery_state == DeliveryState.ARCHIVING
    s.share.close()


async def test_dead_letters_of_an_earlier_leader_are_written_when_the_state_is_read() -> None:
    s = leader()
    archiving = (StateBatch(0, 0, DeliveryState.ARCHIVING, 1),)
    s.store.state = s.store.state._replace(batches=archiving)
    assert await s.acquired() == [(1, 1, 1)]
    await settle()
    assert s.letters == [DeadLetterRange(0, 0, 1, True)]
    s.share.close()


async def test_a_share_partition_without_members_stays_until_its_dead_letters_are_written() -> None:
    s = leader()
    session = s.share.open_session(SessionKey("g", "a"))
    await s.acquired("a")
    await s.acknowledge(0, 1, REJECT, member="a")
    s.share.end_session(session)
    assert len(s.share) == 1
    await settle()
    assert len(s.letters) == 1
    assert len(s.share) == 0
