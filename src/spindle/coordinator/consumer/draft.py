"""A consumer group while a request changes it: each change adds its records (KIP-848)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from spindle.common.uuids import Uuid
from spindle.coordinator.config import ConsumerGroupConfig
from spindle.coordinator.consumer.assignors import ASSIGNORS, AssignorInput, Subscriber
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import ConsumerMember, Partitions
from spindle.coordinator.consumer.records import (
    RecordKind,
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
    existing,
    hash_of_topics,
    topics_matching,
)
from spindle.coordinator.outcome import Outcome
from spindle.metadata.topics import TopicsImage

FIRST_EPOCH: Final = 1
"""The epoch of a new group, before its first member's subscription begins the next one."""


@dataclass(frozen=True, slots=True)
class TopicsView:
    """The topics of the cluster, as of an offset of the metadata log.

    Attributes:
        may_describe: tells of a topic whether a regular expression of the member may find it;
            None if it may find all.
    """

    topics: TopicsImage
    metadata_offset: int
    may_describe: Callable[[str], bool] | None = None

    def matching(self, regexes: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the topics that each expression finds."""
        found = topics_matching(regexes, self.topics)
        if self.may_describe is None:
            return found
        return {
            regex: frozenset(filter(self.may_describe, names)) for regex, names in found.items()
        }


_T = TypeVar("_T")


class GroupDraft:
    """A group as it is after the records that this request has added so far."""

    __slots__ = ("assignment_epoch", "epoch", "group", "members", "out", "regexes", "targets")

    def __init__(self, group: ConsumerGroup, out: Outcome) -> None:
        self.group = group
        self.out = out
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        # Those of the group until the first change, because most heartbeats change nothing.
        self.members: Mapping[str, ConsumerMember] = group.members
        self.targets: Mapping[str, Partitions] = group.targets
        self.regexes: Mapping[str, frozenset[str]] = group.regexes

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def topics_hash(self, topics: TopicsImage) -> int:
        alike = {(m.topic_names, m.topic_regex): m for m in self.members.values()}
        names = {name for member in alike.values() for name in self.topics_of(member)}
        return hash_of_topics(existing(names, topics).values())

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

    def refresh(
        self, before: ConsumerMember, member: ConsumerMember, view: TopicsView, now_ms: int
    ) -> None:
        """Begin a new epoch if the member's subscription or a subscribed topic has changed."""
        group = self.group
        has_changed = not member.subscribes_like(before)
        if not has_changed and group.topics_seen is view.topics:
            return
        self.refresh_regexes(view, now_ms)
        if has_changed or self.topics_hash(view.topics) != group.topics_hash:
            self.begin_epoch(max(group.epoch, FIRST_EPOCH) + 1, view.topics)
        elif group.epoch < FIRST_EPOCH:
            self.begin_epoch(FIRST_EPOCH, view.topics)
        else:
            group.topics_seen = view.topics

    def begin_epoch(self, epoch: int, topics: TopicsImage) -> None:
        self.epoch = epoch
        self.out.records.append(
            epoch_record(self.group.group_id, self.epoch, self.topics_hash(topics))
        )

    def refresh_regexes(self, view: TopicsView, now_ms: int) -> None:
        """Compare new expressions with the topics, and all of them if that is due."""
        group = self.group
        in_use = {member.topic_regex for member in self.members.values() if member.topic_regex}
        checked_ms = group.regexes_checked_ms
        is_due = checked_ms is None or now_ms - checked_ms >= REFRESH_MIN_MS
        if is_due:
            group.regexes_checked_ms = now_ms
        outdated = [regex for regex in sorted(in_use) if is_due or regex not in self.regexes]
        if outdated:
            for regex, found in view.matching(outdated).items():
                if found != self.regexes.get(regex):
                    self.regexes = {**self.regexes, regex: found}
                    self.out.records.append(
                        regex_record(group.group_id, regex, found, view.metadata_offset, now_ms)
                    )
        self.drop_unused_regexes()

    def drop_unused_regexes(self) -> None:
        in_use = {member.topic_regex for member in self.members.values()}
        for regex in [regex for regex in self.regexes if regex not in in_use]:
            self.regexes = _without(self.regexes, regex)
            self.out.records.append(tombstone(self.group.group_id, RecordKind.REGEX, regex))

    def assign(self, config: ConsumerGroupConfig, topics: TopicsImage, now_ms: int) -> None:
        """Compute the target assignment of a new epoch, but not more than once in an interval.

        Each member whose part differs gets a record.
        """
        group_id = self.group.group_id
        if self.epoch <= self.assignment_epoch or not self.group.may_assign(
            config.assignment_interval_ms, now_ms
        ):
            return
        subscribers, counts = [], {}
        ids_of: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
        for member in self.members.values():
            subscription = (member.topic_names, member.topic_regex)
            if subscription not in ids_of:
                mine = existing(self.topics_of(member), topics).values()
                counts.update({topic.topic_id: len(topic.partitions) for topic in mine})
                ids_of[subscription] = frozenset([topic.topic_id for topic in mine])
            ids = ids_of[subscription]
            subscribers.append(Subscriber(member.member_id, member.instance_id, ids))
        wished = self.group.preferred_assignor(self.members.values(), config.assignors[0])
        assignor = ASSIGNORS[wished if wished in config.assignors else config.assignors[0]]
        assigned = assignor(AssignorInput(subscribers, counts, self.targets))
        for member_id, partitions in assigned.items():
            if partitions != self.targets.get(member_id):
                self.out.records.append(target_record(group_id, member_id, partitions))
        self.targets = dict(assigned)
        self.assignment_epoch = self.epoch
        self.out.records.append(target_epoch_record(group_id, self.epoch, now_ms))


def _without(entries: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {key: value for key, value in entries.items() if key != name}
