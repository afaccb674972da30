"""The answers of ConsumerGroupDescribe and ListGroups about consumer groups."""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import ConsumerMember, Partitions, partitions_of
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


def described(
    group: ConsumerGroup, default_assignor: str, topics: TopicsImage
) -> DescribedConsumerGroup:
    """Describe a group with its members and their assignments."""
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members.values(), default_assignor),
        members=[_described_member(group, member, topics) for member in group.members.values()],
    )


def missing(group_id: str, reason: str) -> DescribedConsumerGroup:
    """Return the description of a group that does not exist or uses another protocol."""
    return description_error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, reason)


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
                partitions=sorted(found),
            )
            for topic_id, found in partitions.items()
            if topic_id in topics.by_id
        ]
    )
