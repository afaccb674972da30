"""The answers of ConsumerGroupDescribe and ListGroups about consumer groups."""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.member import ConsumerMember, Partitions, partitions_of
from spindle.coordinator.group_table import GroupTable
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from spindle.protocol.messages.list_groups import ListGroupsResponse

CONSUMER_TYPE: Final = "consumer"
_PROTOCOL_TYPE: Final = "consumer"
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1
"""Member types by the protocol that a member uses."""

DescribedConsumerGroup = ConsumerGroupDescribeResponse.DescribedGroup
_Assignment = ConsumerGroupDescribeResponse.DescribedGroup.Member.Assignment


def describe_consumer_group(groups: GroupTable, group_id: str) -> DescribedConsumerGroup:
    """Describe a group with its members; one of the classic protocol has GROUP_ID_NOT_FOUND."""
    group = groups.consumer.get(group_id)
    others = (groups.share, groups.streams)
    if groups.get(group_id) is not None or any(group_id in other for other in others):
        reason = f"Group {group_id} is not a consumer group."
        return description_error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, reason)
    if group is None:
        reason = f"Group {group_id} not found."
        return description_error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, reason)
    default = groups.config.consumer.assignors[0]
    topics = groups.view.topics
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members.values(), default),
        members=[_described_member(group, member, topics) for member in group.members.values()],
    )


def description_error(
    group_id: str, code: ErrorCode, reason: str | None = None
) -> DescribedConsumerGroup:
    """Return the description of a group that could not be looked up."""
    return DescribedConsumerGroup(group_id=group_id, error_code=code, error_message=reason)


def listed(group: ConsumerGroup) -> ListGroupsResponse.ListedGroup:
    """Return the line of a group in ListGroups."""
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=_PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=CONSUMER_TYPE,
    )


def _described_member(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsImage
) -> DescribedConsumerGroup.Member:
    present: dict[Uuid, frozenset[int]] = partitions_of(member.assigned)
    for topic_id, partitions in partitions_of(member.revoking).items():
        present[topic_id] = present.get(topic_id, frozenset()) | partitions
    return DescribedConsumerGroup.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(present, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(
    partitions: Partitions | Mapping[Uuid, frozenset[int]], topics: TopicsImage
) -> _Assignment:
    """Return partitions with the names of their topics; a deleted topic is left out."""
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(
                topic_id=topic_id,
                topic_name=topics.by_id[topic_id].name,
                partitions=sorted(indexes),
            )
            for topic_id, indexes in partitions.items()
            if topic_id in topics.by_id
        ]
    )
