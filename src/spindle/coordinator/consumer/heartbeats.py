"""ConsumerGroupHeartbeat: joining, reconciling, leaving and being fenced (KIP-848).

Every operation is exclusive: it decides on committed state, and its records are committed before
the next decision. It changes nothing itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.config import ConsumerGroupConfig
from spindle.coordinator.consumer.assignors import ASSIGNORS, AssignorInput, Subscriber
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
    partitions_of,
)
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
    check_regex,
    existing,
    hash_of_topics,
    topics_matching,
)
from spindle.coordinator.outcome import Client, Outcome, TimerKey
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLIENT_MEMBER_ID_FROM_VERSION: Final = 1
"""Since this version the client chooses the member id (KIP-1082)."""
FIRST_EPOCH: Final = 1
"""The epoch of a new group, before its first member's subscription begins the next one."""


@dataclass(frozen=True, slots=True)
class TopicsView:
    """The topics of the cluster, as of an offset of the metadata log."""

    topics: TopicsImage
    metadata_offset: int


_TopicPartitions = ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions


class _Draft:
    """A group as it is after the records that this heartbeat has added so far."""

    __slots__ = ("epoch", "group", "members", "out", "regexes", "targets")

    def __init__(self, group: ConsumerGroup, out: Outcome) -> None:
        self.group = group
        self.out = out
        self.epoch = group.epoch
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self.regexes = dict(group.regexes)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def topics_hash(self, topics: TopicsImage) -> int:
        names = {name for member in self.members.values() for name in self.topics_of(member)}
        return hash_of_topics(existing(names, topics).values())

    def put(self, member: ConsumerMember, replaced: ConsumerMember | None) -> None:
        """Add or update a member, in place of an earlier one with its instance id."""
        group_id = self.group.group_id
        if replaced is not None:
            del self.members[replaced.member_id]
            self.out.records += removal_records(group_id, replaced.member_id)
        if replaced is not None or member != self.group.members.get(member.member_id):
            self.out.records.append(member_record(group_id, member))
        self.members[member.member_id] = member
        if replaced is not None:
            target = self.targets.pop(replaced.member_id, {})
            self.targets[member.member_id] = target
            self.out.records.append(target_record(group_id, member.member_id, target))

    def remove(self, member_id: str) -> None:
        self.out.records += removal_records(self.group.group_id, member_id)
        del self.members[member_id]
        self.targets.pop(member_id, None)

    def begin_epoch(self, epoch: int, topics: TopicsImage) -> None:
        self.epoch = epoch
        self.out.records.append(
            epoch_record(self.group.group_id, self.epoch, self.topics_hash(topics))
        )

    def refresh_regexes(self, topics: TopicsImage, metadata_offset: int, now_ms: int) -> None:
        """Compare new expressions with the topics, and all of them if that is due."""
        group = self.group
        in_use = {member.topic_regex for member in self.members.values() if member.topic_regex}
        checked_ms = group.regexes_checked_ms
        is_due = checked_ms is None or now_ms - checked_ms >= REFRESH_MIN_MS
        if is_due:
            group.regexes_checked_ms = now_ms
        outdated = [regex for regex in sorted(in_use) if is_due or regex not in self.regexes]
        if outdated:
            for regex, found in topics_matching(outdated, topics).items():
                if found != self.regexes.get(regex):
                    self.regexes[regex] = found
                    self.out.records.append(
                        regex_record(group.group_id, regex, found, metadata_offset, now_ms)
                    )
        self.drop_unused_regexes()

    def drop_unused_regexes(self) -> None:
        in_use = {member.topic_regex for member in self.members.values()}
        for regex in [regex for regex in self.regexes if regex not in in_use]:
            del self.regexes[regex]
            self.out.records.append(tombstone(self.group.group_id, RecordKind.REGEX, regex))

    def assign(self, config: ConsumerGroupConfig, topics: TopicsImage, now_ms: int) -> None:
        """Compute a new target assignment; add a record for each member whose part differs."""
        group_id = self.group.group_id
        subscribers, counts = [], {}
        for member in self.members.values():
            mine = existing(self.topics_of(member), topics).values()
            counts.update({topic.topic_id: len(topic.partitions) for topic in mine})
            ids = frozenset([topic.topic_id for topic in mine])
            subscribers.append(Subscriber(member.member_id, member.instance_id, ids))
        wished = self.group.preferred_assignor(self.members.values(), config.assignors[0])
        assignor = ASSIGNORS[wished if wished in config.assignors else config.assignors[0]]
        assigned = assignor(AssignorInput(subscribers, counts, self.targets))
        for member_id, partitions in assigned.items():
            if partitions != self.targets.get(member_id):
                self.out.records.append(target_record(group_id, member_id, partitions))
        self.targets = dict(assigned)
        self.out.records.append(target_epoch_record(group_id, self.epoch, now_ms))


class Heartbeats:
    """Decides on the heartbeats of all consumer groups of a shard."""

    __slots__ = ("_new_id",)

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id

    def heartbeat(
        self,
        group: ConsumerGroup,
        config: ConsumerGroupConfig,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        view: TopicsView,
        now_ms: int,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatResponse:
        """Let a member join or stay, and take its next step to the target assignment.

        Raises:
            ApiError: the member is not known, fenced, or its group is full.
        """
        member_id = request.member_id or self._new_id()
        if len(group.members) >= config.max_size and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {config.max_size} "
                "members.",
            )
        old = _member_of(group, request, member_id)
        member = _updated(old, request, client)
        draft = _Draft(group, out)
        draft.put(member, _replaced_member(group, request))
        subscription_changed = (old.topic_names, old.topic_regex) != (
            member.topic_names,
            member.topic_regex,
        )
        if subscription_changed or group.topics_seen is not view.topics:
            draft.refresh_regexes(view.topics, view.metadata_offset, now_ms)
            if subscription_changed or draft.topics_hash(view.topics) != group.topics_hash:
                draft.begin_epoch(max(group.epoch, FIRST_EPOCH) + 1, view.topics)
            elif group.epoch < FIRST_EPOCH:
                draft.begin_epoch(FIRST_EPOCH, view.topics)
            else:
                group.topics_seen = view.topics
        target_epoch = max(draft.epoch, group.assignment_epoch)
        if draft.epoch > group.assignment_epoch:
            draft.assign(config, view.topics, now_ms)

        def is_free(topic_id: Uuid, partition: int) -> bool:
            # The member has given up what it was told to, if it takes this step.
            return group.is_free(topic_id, partition) or partition in member.revoking.get(
                topic_id, ()
            )

        moved = reconcile(
            member,
            target_epoch,
            draft.targets.get(member_id, {}),
            _claimed(request.topic_partitions),
            is_free,
        )
        if moved != member or moved.epoch != old.epoch:
            out.records.append(current_record(group.group_id, moved))
        key = TimerKey("consumer_session", group.group_id, member_id)
        out.set_timer(key, now_ms + config.session_timeout_ms)
        key = TimerKey("revocation", group.group_id, member_id)
        if moved.state is not MemberState.UNREVOKED_PARTITIONS:
            out.cancel_timer(key)
        elif moved is not member:
            # The time begins with the record that tells the member; heartbeats do not extend it.
            out.set_timer(key, now_ms + moved.rebalance_timeout_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
        )
        if _is_full(request) or partitions_of(moved.assigned) != partitions_of(old.assigned):
            response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    _TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
                    for topic_id, epochs in moved.assigned.items()
                ]
            )
        return response

    def leave(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        topics: TopicsImage,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member that leaves; a static one may leave for a while.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance
                id.
        """
        instance_id = request.instance_id
        if instance_id is None:
            member = group.member(request.member_id)
        else:
            member = _static_member(group, instance_id, request.member_id)
        if instance_id is not None and request.member_epoch == STATIC_LEAVING_EPOCH:
            # Its session timer goes on: it has until then to come back.
            away = replace(member, epoch=STATIC_LEAVING_EPOCH, revoking={})
            out.records.append(current_record(group.group_id, away))
            out.cancel_timer(TimerKey("revocation", group.group_id, member.member_id))
        else:
            self.remove(group, member.member_id, topics, out)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def remove(
        self, group: ConsumerGroup, member_id: str, topics: TopicsImage, out: Outcome
    ) -> None:
        """Remove a member and begin a new epoch, in which the others get its partitions.

        Its session timer stays, so that the removal is tried again if it is not committed.
        """
        draft = _Draft(group, out)
        draft.remove(member_id)
        draft.drop_unused_regexes()
        draft.begin_epoch(group.epoch + 1, topics)


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Iterable[str]
) -> None:
    """Raise ApiError unless the fields of a heartbeat agree with each other.

    INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION.
    """
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    if not request.member_id and (
        epoch != JOINING_EPOCH or api_version >= CLIENT_MEMBER_ID_FROM_VERSION
    ):
        raise _invalid("MemberId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    wished = request.server_assignor
    known = list(assignors)
    if wished is not None and wished not in known:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {wished} is not supported. Supported assignors: {', '.join(known)}.",
        )
    if request.subscribed_topic_regex:
        check_regex(request.subscribed_topic_regex)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


# ---------------------------------------------------------------- members


def _member_of(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> ConsumerMember:
    """Return the member as it was before this heartbeat; a new one in epoch 0 if it joins."""
    is_joining = request.member_epoch == JOINING_EPOCH
    instance_id = request.instance_id
    if instance_id is None or group.static_member(instance_id) is None:
        if instance_id is not None and not is_joining:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if is_joining and member_id not in group.members:
            return ConsumerMember(member_id)
        member = group.member(member_id)
        _check_epoch(member, request)
        return member
    if is_joining:
        current = group.static_member(instance_id)
        assert current is not None
        if not current.has_left:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {current.member_id} member.",
            )
        return replace(
            current, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
        )
    member = _static_member(group, instance_id, member_id)
    _check_epoch(member, request)
    return member


def _replaced_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember | None:
    """Return the earlier member of this instance id, whose place a joining member takes."""
    if request.member_epoch != JOINING_EPOCH or request.instance_id is None:
        return None
    return group.static_member(request.instance_id)


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH unless the member is in the epoch that it sends.

    The previous epoch is accepted from a member that owns nothing new: it did not get the answer.
    Epoch 0 is accepted as well: a member that joins again owns nothing.
    """
    received = request.member_epoch
    if received in (member.epoch, JOINING_EPOCH):
        return
    if received > member.epoch:
        size = "greater"
    elif received == member.previous_epoch and _is_part(
        _claimed(request.topic_partitions), member.assigned
    ):
        return
    else:
        size = "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_part(claimed: Partitions | None, assigned: Owned) -> bool:
    return claimed is not None and all(
        partitions <= set(assigned.get(topic_id, ())) for topic_id, partitions in claimed.items()
    )


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerMember:
    """Return the member with the fields that the request sets; null means that nothing changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True if the member needs its whole assignment: it joins, or it lost an answer."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _claimed(
    topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None,
) -> dict[Uuid, frozenset[int]] | None:
    if topics is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
