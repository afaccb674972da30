"""The answers of ShareGroupDescribe and ListGroups about share groups."""

from typing import Final

from spindle.common.errors import ErrorCode
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.share.assignor import SIMPLE
from spindle.coordinator.share.member import ShareMember
from spindle.coordinator.share.share_group import ShareGroup
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.list_groups import ListGroupsResponse
from spindle.protocol.messages.share_group_describe import ShareGroupDescribeResponse

SHARE_TYPE: Final = "share"
_PROTOCOL_TYPE: Final = "share"

DescribedShareGroup = ShareGroupDescribeResponse.DescribedGroup
_Assignment = ShareGroupDescribeResponse.DescribedGroup.Member.Assignment


def describe_share_group(groups: GroupTable, group_id: str) -> DescribedShareGroup:
    """Describe a group with its members; one of another type has GROUP_ID_NOT_FOUND."""
    group = groups.share.get(group_id)
    if group is None:
        is_other = groups.get(group_id) or groups.offset_owner(group_id)
        reason = "is not a share group" if is_other else "not found"
        return share_description_error(
            group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}."
        )
    topics = groups.view.topics
    return DescribedShareGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_described_member(member, topics) for member in group.members.values()],
    )


def share_description_error(
    group_id: str, code: ErrorCode, reason: str | None = None
) -> DescribedShareGroup:
    """Return the description of a group that could not be looked up."""
    return DescribedShareGroup(group_id=group_id, error_code=code, error_message=reason)


def listed_share_group(group: ShareGroup) -> ListGroupsResponse.ListedGroup:
    """Return the line of a group in ListGroups."""
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=_PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=SHARE_TYPE,
    )


def _described_member(member: ShareMember, topics: TopicsImage) -> DescribedShareGroup.Member:
    return DescribedShareGroup.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=_Assignment(
            topic_partitions=[
                _Assignment.TopicPartitions(
                    topic_id=topic_id,
                    topic_name=topics.by_id[topic_id].name,
                    partitions=sorted(indexes),
                )
                for topic_id, indexes in member.assigned.items()
                if topic_id in topics.by_id
            ]
        ),
    )
