"""Members leave a consumer group, are removed, or are replaced by one of the classic protocol."""

from collections.abc import Sequence

from spindle.coordinator.classic_group import ClassicGroup
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.consumer.conversions import can_downgrade, downgraded_group
from spindle.coordinator.consumer.draft import GroupDraft
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import ConsumerMember
from spindle.coordinator.group_record import group_record
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.outcome import CONSUMER_STEP_TIMERS, GroupCreated, Outcome, TimerKey
from spindle.coordinator.rebalance import Rebalances, keep_alive, tell_removed
from spindle.metadata.topics import TopicsImage


class Departures:
    """Removes members. A group whose other members are all classic becomes a classic group."""

    __slots__ = ("_config", "_groups", "_rebalances")

    def __init__(
        self, config: GroupCoordinatorConfig, groups: GroupTable, rebalances: Rebalances
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances

    def remove(
        self,
        group: ConsumerGroup,
        member_ids: Sequence[str],
        topics: TopicsImage,
        now_ms: int,
        out: Outcome,
        *,
        reason: str,
    ) -> None:
        """Remove members and begin a new epoch, in which the others get their partitions.

        Their session timers stay, so that a removal is tried again if it is not committed.
        """
        tell_removed(group.group_id, reason, member_ids)
        for member_id in member_ids:
            stop_step_timers(group, member_id, out)
        count = len(group.members) - len(member_ids)
        if can_downgrade(group, member_ids, count, self._config):
            classic = downgraded_group(group, member_ids, None, group.epoch, topics, now_ms)
            self._downgrade(group, classic, now_ms, out)
            self._rebalances.prepare(classic, now_ms, out)
            return
        draft = GroupDraft(group, out)
        for member_id in member_ids:
            draft.remove(member_id)
        draft.drop_unused_regexes()
        draft.begin_epoch(group.epoch + 1, topics)

    def replaces_last(self, group: ConsumerGroup, instance_id: str | None) -> ConsumerMember | None:
        """Return the last member of the consumer protocol if a classic instance takes its place."""
        replaced = None if instance_id is None else group.static_member(instance_id)
        if replaced is None:
            return None
        count = len(group.members)
        can = can_downgrade(group, [replaced.member_id], count, self._config)
        return replaced if can else None

    def downgrade_with(
        self,
        group: ConsumerGroup,
        replaced: ConsumerMember,
        joining: ConsumerMember,
        epoch: int,
        topics: TopicsImage,
        now_ms: int,
        out: Outcome,
    ) -> None:
        """Make the group classic, with a static member in place of an earlier one.

        The members go on without a rebalance if all others have their assignments of this epoch.
        """
        classic = downgraded_group(group, [replaced.member_id], joining, epoch, topics, now_ms)
        self._downgrade(group, classic, now_ms, out)
        others = [m for m in group.members.values() if m is not replaced]
        if epoch > group.assignment_epoch or not all(m.is_reconciled_to(epoch) for m in others):
            self._rebalances.prepare(classic, now_ms, out)

    def _downgrade(
        self, group: ConsumerGroup, classic: ClassicGroup, now_ms: int, out: Outcome
    ) -> None:
        assignment = {m.member_id: m.assignment for m in classic.members.values()}
        out.records += group.deletion_records()
        out.records.append(group_record(classic, assignment))
        out.completions.append(GroupCreated(group.group_id))
        self._groups.put(classic)
        for member_id in group.members:
            stop_step_timers(group, member_id, out)
        for member in classic.members.values():
            keep_alive(classic, member, now_ms, out)


def stop_step_timers(group: ConsumerGroup, member_id: str, out: Outcome) -> None:
    """Cancel the timers of the next step that is awaited from a member."""
    group.rejoin_deadlines_ms.pop(member_id, None)
    for kind in CONSUMER_STEP_TIMERS:
        out.cancel_timer(TimerKey(kind, group.group_id, member_id))
