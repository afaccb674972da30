"""The next step of a member from its present assignment to its target assignment (KIP-848).

A step takes partitions away (the member stays in its epoch until it has confirmed this), or gives
it partitions that no other member owns.
"""

from collections.abc import Callable, Set
from dataclasses import replace

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.member import ConsumerMember, MemberState, Owned, Partitions

IsFree = Callable[[Uuid, int], bool]
"""Return True if no member owns the partition."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: IsFree,
    left: Set[Uuid] = frozenset(),
) -> ConsumerMember:
    """Return the member after its next step; the member itself if it has to wait.

    Args:
        target: the member's part of the target assignment of epoch `target_epoch`.
        owned: partitions that the member says it owns; None if it did not say.
        left: topics that the member no longer subscribes to since this request. It gives them up at
            once, also if the target has not changed yet.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH, the record of the member has a state that is not known, and
            the member still owns partitions.
    """
    if member.is_reconciled_to(target_epoch):
        return _without(member, left, owned)
    if member.state is MemberState.STABLE:
        return _next_step(member, member.epoch, target_epoch, target, owned, is_free)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return _without(member, left, owned)
        return _next_step(member, member.epoch, target_epoch, target, owned, is_free)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next_step(member, member.epoch, target_epoch, target, owned, is_free)
    if owned is None or owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    return _next_step(member, target_epoch, target_epoch, target, owned, is_free)


def _next_step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: IsFree,
) -> ConsumerMember:
    kept: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    for topic_id, epochs in member.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, since in epochs.items():
            side = kept if partition in wanted else revoking
            side.setdefault(topic_id, {})[partition] = since
    if revoking and _owns_any(owned, revoking):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    waits = False
    for topic_id, wanted in target.items():
        for partition in sorted(wanted):
            if partition in kept.get(topic_id, {}):
                continue
            if is_free(topic_id, partition) or partition in member.revoking.get(topic_id, {}):
                kept.setdefault(topic_id, {})[partition] = target_epoch
            else:
                waits = True
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target_epoch, state, kept, {})


def _without(
    member: ConsumerMember, topic_ids: Set[Uuid], owned: Partitions | None
) -> ConsumerMember:
    """Return the member without these topics; partitions of them that it owns must be given up."""
    dropped = {topic_id: member.assigned[topic_id] for topic_id in topic_ids}
    if not dropped:
        return member
    kept = {t: epochs for t, epochs in member.assigned.items() if t not in dropped}
    revoking = {
        topic_id: {**member.revoking.get(topic_id, {}), **dropped.get(topic_id, {})}
        for topic_id in member.revoking.keys() | topic_ids
    }
    if _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return _moved(member, member.epoch, member.state, kept, member.revoking)


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, revoking: Owned
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _owns_any(owned: Partitions | None, partitions: Owned) -> bool:
    """Return True if the member still owns one of these partitions, or did not say."""
    if owned is None:
        return True
    return any(
        not owned.get(topic_id, frozenset()).isdisjoint(epochs)
        for topic_id, epochs in partitions.items()
    )
