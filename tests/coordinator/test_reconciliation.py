"""Single steps of a member to its target assignment, as Kafka 4.3.1 records them."""

from __future__ import annotations

from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.member import ConsumerMember, MemberState
from spindle.coordinator.consumer.reconciliation import reconcile

TOPIC: Uuid = bytes(15) + b"\x07"


def owned_by_another(_: Uuid, __: int) -> bool:
    return False


def test_a_member_that_gets_a_released_partition_has_its_epoch_as_the_previous_one() -> None:
    waiting = ConsumerMember(
        "m", epoch=4, previous_epoch=0, state=MemberState.UNRELEASED_PARTITIONS
    )
    moved = reconcile(waiting, 4, {TOPIC: frozenset({0})}, None, lambda *_: True)
    assert moved.state is MemberState.STABLE
    assert (moved.epoch, moved.previous_epoch) == (4, 4)


def revoking_member() -> ConsumerMember:
    """Return a member of epoch 3 that keeps partition 0 and gives up partition 1."""
    return ConsumerMember(
        "m",
        epoch=3,
        previous_epoch=2,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={TOPIC: {0: 3}},
        revoking={TOPIC: {1: 3}},
    )


def test_a_member_that_has_to_give_up_more_stays_in_its_epoch() -> None:
    moved = reconcile(revoking_member(), 6, {}, {TOPIC: frozenset({0})}, owned_by_another)
    assert moved.state is MemberState.UNREVOKED_PARTITIONS
    assert moved.revoking == {TOPIC: {0: 3}}
    assert moved.epoch == 3


def test_a_partition_that_a_member_gave_up_comes_back_at_once() -> None:
    target = {TOPIC: frozenset({0, 1})}
    moved = reconcile(revoking_member(), 6, target, {TOPIC: frozenset({0})}, owned_by_another)
    assert moved.state is MemberState.STABLE
    assert moved.assigned == {TOPIC: {0: 3, 1: 6}}
