"""A classic group's record: written when a generation is stored, read when a shard is loaded.

A record holds the members of one generation with the metadata of the chosen protocol only. Their
other protocols are known again when they rejoin.
"""

from collections.abc import Iterable

from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.member import ClassicMember
from spindle.coordinator.records import GroupRecord
from spindle.protocol.messages.coordinator_records import GroupMetadataValue
from spindle.protocol.sentinels import NO_TIMESTAMP


def group_record(
    group: ClassicGroup, assignment: dict[str, bytes], *, is_rebalance_due: bool = False
) -> GroupRecord:
    """Return the record of this generation, with each member's assignment.

    Args:
        is_rebalance_due: the generation does not assign all partitions. The record then names no
            leader, so that a coordinator that loads it begins the rebalance, too. Kafka takes the
            first member as the leader of such a record.
    """
    name = group.protocol_name
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=m.member_id,
            group_instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            rebalance_timeout=m.rebalance_timeout_ms,
            session_timeout=m.session_timeout_ms,
            subscription=m.metadata(name) if name is not None else b"",
            assignment=assignment[m.member_id],
        )
        for m in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=None if is_rebalance_due else group.leader_id,
        current_state_timestamp=_state_timestamp_ms(group),
        members=members,
    )
    return GroupRecord(group.group_id, value)


def new_group_record(group: ClassicGroup) -> GroupRecord:
    """Return the record of a new group, which has no members yet."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=_state_timestamp_ms(group),
    )
    return GroupRecord(group.group_id, value)


def group_of(record: GroupRecord) -> ClassicGroup:
    """Return the group as of its last stored generation: Stable with its members, or Empty."""
    value = record.value
    assert value is not None
    stamp_ms = value.current_state_timestamp
    group = ClassicGroup(record.group_id, None if stamp_ms == NO_TIMESTAMP else stamp_ms)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.is_stored = True
    for member in _stored_members(value):
        group.add(member)
    if group.members:
        group.state = GroupState.STABLE
        group.is_rebalance_due = value.leader is None
    if group.leader_id not in group.members:
        group.leader_id = next(iter(group.members), None)
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def _state_timestamp_ms(group: ClassicGroup) -> int:
    stamp_ms = group.state_timestamp_ms
    return NO_TIMESTAMP if stamp_ms is None else stamp_ms


def _stored_members(value: GroupMetadataValue) -> Iterable[ClassicMember]:
    for stored in value.members:
        # Records before version 1 have no rebalance timeout.
        rebalance_timeout_ms = stored.rebalance_timeout
        if rebalance_timeout_ms <= 0:
            rebalance_timeout_ms = stored.session_timeout
        yield ClassicMember(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=stored.session_timeout,
            protocol_type=value.protocol_type,
            protocols=((value.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
