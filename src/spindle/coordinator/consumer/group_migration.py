"""A group with members changes its protocol: from classic to consumer and back (KIP-848)."""

from collections.abc import Collection

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.coordinator.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
)
from spindle.coordinator.classic.member import ClassicMember
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from spindle.coordinator.consumer.group_update import ConsumerGroupUpdate
from spindle.coordinator.consumer.member import ClassicSettings, ConsumerMember
from spindle.coordinator.consumer.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from spindle.coordinator.consumer.subscriptions import existing, hash_of_topics
from spindle.metadata.topics import TopicsImage

# ---------------------------------------------------------------- classic to consumer


def check_upgrade(group: ClassicGroup, config: GroupCoordinatorConfig) -> None:
    """Raise ApiError GROUP_ID_NOT_FOUND unless the group may become a consumer group."""
    if not config.migration.allows_upgrade:
        raise _no_upgrade(group, "online upgrade is disabled.")
    if not group.uses_consumer_protocol:
        raise _no_upgrade(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > config.consumer.max_size:
        raise _no_upgrade(group, "the group size exceeds the consumer group maximum size.")


def upgrade_records(group: ClassicGroup, topics: TopicsImage) -> list[ConsumerGroupRecord]:
    """Return the records of the consumer group: each member has what the leader assigned to it.

    The target has the timestamp 0, because no coordinator has computed it: the next assignment need
    not wait for the assignment interval.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, the subscriptions or assignments cannot be read, an
            assignor of the application has put data of its own into them, or two members have
            the same partition.
    """
    # The protocol of the last generation may be unknown to a member that has joined since.
    name = group.select_protocol() if group.members else ""
    try:
        members = [_upgraded(group, member, name, topics) for member in group.members.values()]
    except ProtocolViolation:
        raise _no_upgrade(group, "the embedded consumer protocol is malformed.") from None
    owned = [
        (topic_id, partition)
        for member in members
        for topic_id, epochs in member.assigned.items()
        for partition in epochs
    ]
    if len(owned) != len(set(owned)):
        raise _no_upgrade(group, "a partition is assigned to two members.")
    group_id, epoch = group.group_id, group.generation_id
    targets = {
        member.member_id: {topic_id: frozenset(p) for topic_id, p in member.assigned.items()}
        for member in members
    }
    names = {name for member in members for name in member.topic_names}
    topics_hash = hash_of_topics(existing(names, topics).values())
    return [
        *[member_record(group_id, member) for member in members],
        epoch_record(group_id, epoch, topics_hash),
        *[target_record(group_id, member_id, target) for member_id, target in targets.items()],
        target_epoch_record(group_id, epoch, 0),
        *[current_record(group_id, member) for member in members],
    ]


def _upgraded(
    group: ClassicGroup, member: ClassicMember, protocol_name: str, topics: TopicsImage
) -> ConsumerMember:
    assigned = read_assignment(member.assignment, topics)
    if assigned is None:
        raise _no_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade.",
        )
    subscription = read_subscription(member.metadata(protocol_name), topics)
    epoch = group.generation_id
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=epoch,
        previous_epoch=epoch,
        assigned={
            topic_id: dict.fromkeys(sorted(ids), epoch) for topic_id, ids in assigned.items()
        },
        classic=ClassicSettings(member.session_timeout_ms, member.protocols),
    )


def _no_upgrade(group: ClassicGroup, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
    )


# ---------------------------------------------------------------- consumer to classic


def can_downgrade(
    group: ConsumerGroup, leaving: Collection[str], count: int, config: GroupCoordinatorConfig
) -> bool:
    """Return True if the group becomes a classic one when these members are gone.

    Args:
        count: members of the classic group.
    """
    stay = [member for member_id, member in group.members.items() if member_id not in leaving]
    return (
        0 < count <= config.max_size
        and config.migration.allows_downgrade
        and all(member.classic is not None for member in stay)
    )


def downgraded_group(
    update: ConsumerGroupUpdate,
    leaving: Collection[str],
    joining: ConsumerMember | None,
    epoch: int,
) -> ClassicGroup:
    """Return the classic group of the members that stay: Stable, with their target assignments.

    Args:
        joining: a static member that takes the target assignment of the one with its instance id.
        epoch: of the consumer group; the generation of the classic one.
    """
    group = update.group
    classic = ClassicGroup(group.group_id, update.out.now_ms)
    classic.generation_id = epoch
    targets = dict(group.targets)
    stay = [member for member_id, member in group.members.items() if member_id not in leaving]
    if joining is not None:
        assert joining.instance_id is not None
        replaced_id = group.static_members[joining.instance_id]
        targets[joining.member_id] = targets.get(replaced_id, {})
        stay.append(joining)
    for member in stay:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=member.classic.protocols,
            )
        )
    classic.state = GroupState.STABLE
    name = classic.protocol_name = classic.select_protocol()
    for classic_member in classic.members.values():
        target = targets.get(classic_member.member_id, {})
        classic_member.assignment = write_assignment(
            target, update.view.topics, classic_member.metadata(name)
        )
    classic.subscribed_topics = classic.compute_subscribed_topics()
    return classic
