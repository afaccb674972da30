"""A consumer group while a request changes it: each change adds its records (KIP-848)."""

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

from spindle.common.text import quoted
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.assignors import ASSIGNORS, AssignorInput, Subscriber
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.member import ConsumerMember, Partitions
from spindle.coordinator.consumer.reconciliation import reconcile
from spindle.coordinator.consumer.records import (
    RecordKind,
    current_record,
    epoch_record,
    member_record,
    regex_record,
    removal_records,
    target_epoch_record,
    target_record,
    tombstone,
)
from spindle.coordinator.consumer.subscriptions import (
    REFRESH_MIN_MS,
    TopicsView,
    existing,
    hash_of_topics,
)
from spindle.coordinator.coordinator_result import GroupResult
from spindle.coordinator.group_table import GroupTable

log = logging.getLogger(__name__)

FIRST_EPOCH: Final = 1
"""The epoch of a new group, before its first member's subscription begins the next one."""

_T = TypeVar("_T")


class ConsumerGroupUpdate:
    """A group with the records that this request has added so far applied to it.

    Attributes:
        group: the group as it is committed.
        config: settings that the group has now.
    """

    __slots__ = (
        "assignment_epoch",
        "config",
        "epoch",
        "group",
        "groups",
        "members",
        "out",
        "regexes",
        "targets",
        "view",
    )

    def __init__(
        self,
        groups: GroupTable,
        group: ConsumerGroup,
        out: GroupResult,
        view: TopicsView | None = None,
    ) -> None:
        """Begin an update; `view` has the topics that the sender may describe, None for all."""
        self.groups = groups
        self.group = group
        self.out = out
        self.view = view or groups.view
        self.config = groups.config_of(group.group_id)
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        # Shared with the group and copied on the first change: most heartbeats change nothing.
        self.members: Mapping[str, ConsumerMember] = group.members
        self.targets: Mapping[str, Partitions] = group.targets
        self.regexes: Mapping[str, frozenset[str]] = group.regexes

    def advance(
        self,
        old: ConsumerMember,
        member: ConsumerMember,
        replaced: ConsumerMember | None,
        owned: Partitions | None,
    ) -> ConsumerMember:
        """Add or update a member, in place of an earlier one, and return it after its next step.

        Args:
            owned: partitions that the member says it owns; None if it did not say.
        """
        group = self.group
        self.put(member, replaced)
        self.refresh(old, member)
        if self.epoch > group.epoch:
            log.info(
                "Group %s begins epoch %d with %d members",
                quoted(group.group_id),
                self.epoch,
                len(self.members),
            )
        self._assign()
        moved = self._next_step(old, member, owned)
        if moved != member or moved.epoch != old.epoch:
            self.out.records.append(current_record(group.group_id, moved))
            group.stepping[moved.member_id] = None
        return moved

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def topics_hash(self) -> int:
        alike = {(m.topic_names, m.topic_regex): m for m in self.members.values()}
        names = {name for member in alike.values() for name in self.topics_of(member)}
        return hash_of_topics(existing(names, self.view.topics).values())

    def put(self, member: ConsumerMember, replaced: ConsumerMember | None) -> None:
        """Add or update a member, in place of an earlier one with its instance id."""
        group_id = self.group.group_id
        if replaced is None and member == self.members.get(member.member_id):
            return
        self.members = {**self.members, member.member_id: member}
        if replaced is None:
            self.out.records.append(member_record(group_id, member))
            return
        if replaced.member_id != member.member_id:
            self.members = _without(self.members, replaced.member_id)
        target = self.targets.get(replaced.member_id, {})
        self.targets = _without(self.targets, replaced.member_id) | {member.member_id: target}
        self.out.records += removal_records(group_id, replaced.member_id)
        self.out.records.append(member_record(group_id, member))
        self.out.records.append(target_record(group_id, member.member_id, target))

    def remove(self, member_id: str) -> None:
        self.out.records += removal_records(self.group.group_id, member_id)
        self.members = _without(self.members, member_id)
        self.targets = _without(self.targets, member_id)

    def refresh(self, before: ConsumerMember, member: ConsumerMember) -> None:
        """Begin a new epoch if something that decides about the assignment has changed.

        That is the member's subscription, a subscribed topic, or the assignor that most members ask
        for.
        """
        group = self.group
        has_changed = not member.subscribes_like(before) or self._has_other_assignor(before, member)
        if not has_changed and group.topics_seen is self.view.topics:
            return
        self._refresh_regexes()
        if has_changed or self.topics_hash() != group.topics_hash:
            self.begin_epoch(max(group.epoch, FIRST_EPOCH) + 1)
        elif group.epoch < FIRST_EPOCH:
            self.begin_epoch(FIRST_EPOCH)
        else:
            group.topics_seen = self.view.topics

    def _has_other_assignor(self, before: ConsumerMember, member: ConsumerMember) -> bool:
        if member.server_assignor == before.server_assignor:
            return False
        default = self.config.assignors[0]
        former, preferred = (
            self.group.preferred_assignor(members.values(), default)
            for members in (self.group.members, self.members)
        )
        return preferred != former

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.out.records.append(epoch_record(self.group.group_id, epoch, self.topics_hash()))

    def _refresh_regexes(self) -> None:
        """Compare new expressions with the topics, and all of them if that is due."""
        group, now_ms = self.group, self.out.now_ms
        in_use = {member.topic_regex for member in self.members.values() if member.topic_regex}
        checked_ms = group.regexes_checked_ms
        is_due = checked_ms is None or now_ms - checked_ms >= REFRESH_MIN_MS
        if is_due:
            group.regexes_checked_ms = now_ms
        outdated = [regex for regex in sorted(in_use) if is_due or regex not in self.regexes]
        if outdated:
            offset = self.view.metadata_offset
            for regex, topics in self.view.matching(outdated).items():
                if topics != self.regexes.get(regex):
                    self.regexes = {**self.regexes, regex: topics}
                    self.out.records.append(
                        regex_record(group.group_id, regex, topics, offset, now_ms)
                    )
        self.drop_unused_regexes()

    def drop_unused_regexes(self) -> None:
        in_use = {member.topic_regex for member in self.members.values()}
        for regex in [regex for regex in self.regexes if regex not in in_use]:
            self.regexes = _without(self.regexes, regex)
            self.out.records.append(tombstone(self.group.group_id, RecordKind.REGEX, regex))

    def _assign(self) -> None:
        """Compute the target assignment of a new epoch, but not more than once in an interval.

        Each member whose part differs gets a record.
        """
        group, config, out = self.group, self.config, self.out
        if self.epoch <= self.assignment_epoch or not group.may_assign(
            config.assignment_interval_ms, out.now_ms
        ):
            return
        preferred = group.preferred_assignor(self.members.values(), config.assignors[0])
        assignor = ASSIGNORS[preferred if preferred in config.assignors else config.assignors[0]]
        assigned = assignor(self._assignor_input())
        for member_id, partitions in assigned.items():
            if partitions != self.targets.get(member_id):
                out.records.append(target_record(group.group_id, member_id, partitions))
        self.targets = dict(assigned)
        self.assignment_epoch = self.epoch
        out.records.append(target_epoch_record(group.group_id, self.epoch, out.now_ms))

    def _assignor_input(self) -> AssignorInput:
        subscribers, counts = [], {}
        ids_of: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
        for member in self.members.values():
            subscription = (member.topic_names, member.topic_regex)
            if subscription not in ids_of:
                topics = existing(self.topics_of(member), self.view.topics).values()
                counts.update({topic.topic_id: len(topic.partitions) for topic in topics})
                ids_of[subscription] = frozenset([topic.topic_id for topic in topics])
            ids = ids_of[subscription]
            subscribers.append(Subscriber(member.member_id, member.instance_id, ids))
        return AssignorInput(subscribers, counts, self.targets)

    def _next_step(
        self, old: ConsumerMember, member: ConsumerMember, owned: Partitions | None
    ) -> ConsumerMember:
        """Return the member after its next step.

        The target may be older than the member's subscription, so leave out topics that the member
        no longer subscribes to.
        """
        topics = existing(self.topics_of(member), self.view.topics).values()
        topic_ids = {topic.topic_id for topic in topics}

        def is_free(topic_id: Uuid, partition: int) -> bool:
            # With this step the member has given up the partitions that it had to revoke.
            is_own = partition in member.revoking.get(topic_id, ())
            return is_own or self.group.is_free(topic_id, partition)

        whole = self.targets.get(member.member_id, {})
        target = {topic_id: ids for topic_id, ids in whole.items() if topic_id in topic_ids}
        left = set() if member.subscribes_like(old) else member.assigned.keys() - topic_ids
        return reconcile(member, self.assignment_epoch, target, owned, is_free, left)


def _without(entries: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {key: value for key, value in entries.items() if key != name}
