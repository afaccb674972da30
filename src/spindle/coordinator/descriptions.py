"""The answers of DescribeGroups and ListGroups, from the groups of a shard."""

from collections.abc import Sequence
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.consumer.descriptions import CONSUMER_TYPE, listed
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.share.descriptions import SHARE_TYPE, listed_share_group
from spindle.coordinator.streams.descriptions import STREAMS_TYPE, listed_streams_group
from spindle.protocol import versions
from spindle.protocol.messages.describe_groups import DescribeGroupsResponse
from spindle.protocol.messages.list_groups import ListGroupsResponse

CLASSIC_TYPE: Final = "classic"

DescribedGroup = DescribeGroupsResponse.DescribedGroup
ListedGroup = ListGroupsResponse.ListedGroup


def describe_error(group_id: str, code: ErrorCode) -> DescribedGroup:
    """Return the description of a group that could not be looked up."""
    return DescribedGroup(group_id=group_id, error_code=code)


def describe_group(groups: GroupTable, group_id: str, api_version: int) -> DescribedGroup:
    """Describe a group with its members; their metadata is shown only while the group is Stable."""
    group = groups.get(group_id)
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= versions.DESCRIBE_GROUPS_GROUP_ID_NOT_FOUND:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            is_other = any(
                group_id in others for others in (groups.consumer, groups.share, groups.streams)
            )
            reason = "is not a classic group" if is_other else "not found"
            missing.error_message = f"Group {group_id} {reason}."
        return missing
    name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=name or "",
        members=[
            DescribedGroup.DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=b"" if name is None else m.metadata(name),
                member_assignment=m.assignment,
            )
            for m in group.members.values()
        ],
    )


def list_groups(
    groups: GroupTable, states_filter: Sequence[str], types_filter: Sequence[str]
) -> list[ListedGroup]:
    """Return the stored groups with one of these states and types; an empty filter allows all.

    Filters ignore case. A name that is not a state or type matches nothing.
    """
    states = [state.strip().lower() for state in states_filter]
    types = [name.strip().lower() for name in types_filter]
    matching = []
    if not types or CLASSIC_TYPE in types:
        matching += [
            _listed(group)
            for group in groups
            if group.is_stored and (not states or group.state.value.lower() in states)
        ]
    if not types or CONSUMER_TYPE in types:
        matching += [
            listed(group)
            for group in groups.consumer.values()
            if not states or group.state.value.lower() in states
        ]
    if not types or SHARE_TYPE in types:
        matching += [
            listed_share_group(group)
            for group in groups.share.values()
            if not states or group.state.value.lower() in states
        ]
    if not types or STREAMS_TYPE in types:
        matching += [
            listed_streams_group(group)
            for group in groups.streams.values()
            if not states or group.state.filter_name in states
        ]
    return matching


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )
