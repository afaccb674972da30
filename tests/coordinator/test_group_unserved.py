"""Groups of the consumer protocol (KIP-848) that Apache Kafka left in the log.

Spindle does not serve such groups, but serves their committed offsets. When it deletes one, Apache
Kafka must still be able to load the partition: the tombstones are in Kafka's order, and come before
a classic group's first record.
"""

import pytest
from group_scenario import Scenario

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.classic_group import GroupState
from spindle.coordinator.records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    UnservedRecord,
)

RETENTION_MS = 7 * 24 * 3_600_000


def key(kind: int, member: str = "") -> bytes:
    parts = ["orders", member] if member else ["orders"]
    texts = b"".join(len(part).to_bytes(2, "big") + part.encode() for part in parts)
    return kind.to_bytes(2, "big") + texts


MEMBER, GROUP = key(5, "m"), key(3)
TARGET_OF_MEMBER, TARGET, CURRENT = key(7, "m"), key(6), key(8, "m")
TOMBSTONES = [CURRENT, TARGET_OF_MEMBER, TARGET, MEMBER, GROUP]


def left_by_kafka(s: Scenario, *, with_offset: bool) -> None:
    """Replay the records of a group with one member, in the order in which Kafka writes them."""
    for left in (MEMBER, GROUP, TARGET_OF_MEMBER, TARGET, CURRENT):
        s.shard.replay(UnservedRecord("orders", left, is_tombstone=False))
    if with_offset:
        s.shard.replay(OffsetRecord("orders", TopicPartition("t", 0), CommittedOffset(5)))


def deleted(s: Scenario) -> list[bytes]:
    return [record.key for record in s.log if isinstance(record, UnservedRecord)]


def test_offsets_are_served() -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=True)
    assert s.fetch() == {("t", 0): 5}


@pytest.mark.parametrize("with_offset", [True, False])
def test_deleting_the_group_buries_everything_in_order(with_offset: bool) -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=with_offset)
    assert s.delete_groups("orders") == [ErrorCode.NONE]
    assert deleted(s) == TOMBSTONES
    assert not any(isinstance(record, GroupRecord) for record in s.log)
    assert s.shard.groups.get("orders") is None
    assert s.delete_groups("orders") == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_group_that_kafka_deleted_is_gone() -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=True)
    s.shard.replay(OffsetRecord("orders", TopicPartition("t", 0), None))
    for left in TOMBSTONES:
        s.shard.replay(UnservedRecord("orders", left, is_tombstone=True))
    assert s.shard.groups.get("orders") is None
    assert s.delete_groups("orders") == [ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize("with_offset", [True, False])
@pytest.mark.parametrize("version", [3, 9])
def test_classic_member_takes_the_group_over(version: int, with_offset: bool) -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=with_offset)
    s.ask_join(version=version)
    assert deleted(s) == TOMBSTONES
    last = s.log[-1]
    assert isinstance(last, GroupRecord)
    assert last.value is not None
    assert s.fetch() == ({("t", 0): 5} if with_offset else {})
    s.ask_join(version=version)
    assert deleted(s) == TOMBSTONES


def test_failed_replacement_can_be_tried_again() -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=True)
    s.hold()
    s.ask_join()
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert deleted(s) == []
    s.ask_join()
    assert deleted(s) == TOMBSTONES


def test_member_that_is_gone_before_the_replacement_is_committed() -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=False)
    s.hold()
    member_id = s.joined(s.ask_join()).member_id
    assert s.leave(member_id) == [ErrorCode.NONE]
    s.commit()
    assert s.group().state is GroupState.EMPTY
    s.start()
    assert s.group().state is GroupState.EMPTY


def test_offsets_do_not_expire_under_the_members_of_another_protocol() -> None:
    s = Scenario()
    left_by_kafka(s, with_offset=True)
    s.advance(RETENTION_MS * 2)
    assert s.fetch() == {("t", 0): 5}
    assert s.log == []
