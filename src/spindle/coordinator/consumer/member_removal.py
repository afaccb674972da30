"""Members leave a consumer group, are removed, or are replaced by one of the classic protocol.

A group whose other members are all classic becomes a classic group.
"""

from collections.abc import Sequence

from spindle.coordinator.classic.classic_group import ClassicGroup
from spindle.coordinator.classic.group_record import group_record
from spindle.coordinator.classic.rebalance import ClassicRebalance, keep_alive, log_removed
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.group_migration import can_downgrade, downgraded_group
from spindle.coordinator.consumer.group_update import ConsumerGroupUpdate
from spindle.coordinator.consumer.member import ConsumerMember
from spindle.coordinator.consumer.records import target_epoch_record
from spindle.coordinator.coordinator_result import (
    CONSUMER_STEP_TIMERS,
    GroupCreated,
    GroupResult,
    TimerKey,
)


def remove_members(update: ConsumerGroupUpdate, member_ids: Sequence[str], reason: str) -> None:
    """Remove members and begin a new epoch, in which the others get their partitions.

    Their session timers stay, so that a removal is tried again if it is not committed.
    """
    group, groups, out = update.group, update.groups, update.out
    log_removed(group.group_id, reason, member_ids)
    for member_id in member_ids:
        stop_step_timers(group, member_id, out)
    count = len(group.members) - len(member_ids)
    if can_downgrade(group, member_ids, count, groups.config):
        classic = downgraded_group(update, member_ids, None, group.epoch)
        _downgrade(update, classic, is_rebalance_due=True)
        return
    for member_id in member_ids:
        update.remove(member_id)
    update.drop_unused_regexes()
    update.begin_epoch(group.epoch + 1)
    if not update.members:
        # Nothing is left to assign.
        out.records.append(target_epoch_record(group.group_id, update.epoch, 0))


def downgrade_with(
    update: ConsumerGroupUpdate, replaced: ConsumerMember, joining: ConsumerMember, epoch: int
) -> None:
    """Make the group classic, with a static member in place of an earlier one.

    No rebalance begins if all other members have their assignments of this epoch.
    """
    group = update.group
    classic = downgraded_group(update, [replaced.member_id], joining, epoch)
    others = [m for m in group.members.values() if m is not replaced]
    is_reconciled = all(m.is_reconciled_to(epoch) for m in others)
    is_rebalance_due = epoch > group.assignment_epoch or not is_reconciled
    _downgrade(update, classic, is_rebalance_due=is_rebalance_due)


def _downgrade(
    update: ConsumerGroupUpdate, classic: ClassicGroup, *, is_rebalance_due: bool
) -> None:
    group, out = update.group, update.out
    assignment = {m.member_id: m.assignment for m in classic.members.values()}
    out.records += group.deletion_records()
    out.records.append(group_record(classic, assignment, is_rebalance_due=is_rebalance_due))
    out.completions.append(GroupCreated(group.group_id))
    update.groups.put(classic)
    for member_id in group.members:
        stop_step_timers(group, member_id, out)
    for member in classic.members.values():
        keep_alive(classic, member, out)
    if is_rebalance_due:
        ClassicRebalance(classic, update.groups.config, out).prepare()


def stop_step_timers(group: ConsumerGroup, member_id: str, out: GroupResult) -> None:
    """Cancel the timers of the next step that is awaited from a member."""
    group.rejoin_deadlines_ms.pop(member_id, None)
    for kind in CONSUMER_STEP_TIMERS:
        out.cancel_timer(TimerKey(kind, group.group_id, member_id))
